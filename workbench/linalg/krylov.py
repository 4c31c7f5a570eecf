"""Leading singular values and right singular vectors of a matrix that can only be read from end to end.

A block Krylov space of AᴴA is built with one product AᴴA Q a pass. All of its blocks and products are stored, so that
the Rayleigh–Ritz step and the residuals cost no pass [1]. Passes end when the bounds of `certificate` meet the
tolerance and the pass before already had bounds that contain what this one found.

Three ways of computing follow each other, each only as far as needed:

single
    Products in float32, where whole numbers of 16 bits (or a first pass that shows the scale) and the tolerance allow.
double
    The same in float64, from the best vectors so far, once rounding alone exceeds the tolerance.
orthogonal
    Squaring loses singular values below √ε σ₁. So A V itself is factorized (tall QR), V turned to the singular vectors
    of R, and V enlarged by the residuals: a restarted block Golub–Kahan method. This sees values down to ε σ₁.

References
----------
[1] Musco, Musco: Randomized block Krylov methods for stronger and faster approximate singular value decomposition.
    NIPS 2015; Golub, Underwood: The block Lanczos method for computing eigenvalues, 1977.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from workbench.linalg.arrays import memory_of_host
from workbench.linalg.certificate import Certificate, Interval, Limit, Ritz, Status, groups, interval, sine_of, warn
from workbench.linalg.threads import one_thread

Matrix = np.ndarray[Any, Any]

# Up to this many columns everything is computed at once, exactly.
EXACT = 64
# In single precision the error is at least 4 ε of θ₁, so smaller tolerances start in double precision.
SINGLE = 5e-6
# A column with a larger share within the basis is made orthogonal once more: the basis is orthonormal only up to
# rounding, so one projection leaves too much of that share.
WITHIN = 0.1
# Values with a smaller relative error hardly change any more.
SETTLED = 0.05
# Multiples of the rounding error: smaller values can't be distinguished from zero; errors can't become smaller.
ZERO, LIMITED = 4.0, 3.0
# Number of passes over which the shrinking of bounds is measured, to recognize values as dense as those of noise.
TREND = 4
# Up to SOLVED columns all eigenvectors of a matrix in memory are computed; of a larger one those in subspaces of
# SPACES columns, one after the other, until residuals are at the level of single precision.
SOLVED, SPACES, CONVERGED = 512, (120, 400, 400, 400), 1e-6


@cache
def basis_bytes() -> int:
    """Return the bytes of the stored blocks and products, and of the copy that one more block makes.

    Above that, the space is cut down to its best vectors. 6 GiB are 17 passes with 48 columns of half a million
    samples.
    """
    return min(6 * 2**30, memory_of_host().limit // 4)


class Operator:
    """A tall matrix A that is read from end to end, once for each product.

    Its blocks, of `nbytes` in all, stay in memory after the first pass if `in_memory`.
    """

    is_complex = False
    single = True  # whether float32 can hold its numbers, as far as is known
    only_rounding = False  # whether centering leaves nothing but rounding errors; known after the first pass

    def __init__(self, shape: tuple[int, int], nbytes: int, in_memory: bool) -> None:
        self.shape, self.nbytes, self.in_memory = shape, nbytes, in_memory
        self.passes = 0
        # ‖A‖²_F, known after the first pass, and how far that may be off.
        self.squares, self.squares_error = np.inf, 0.0

    @property
    def bytes_read(self) -> int:
        """Bytes made or read at the source of the array."""
        return self.nbytes * (min(self.passes, 1) if self.in_memory else self.passes)

    def input_error(self, s: Matrix, single: bool) -> Matrix:
        """Return the error of values near `s` that comes from rounding A when it is read.

        Its products can't show it.
        """
        raise NotImplementedError

    def prepare(self) -> None:
        """Compute values that other passes need, such as means, in a pass."""

    def started(self, q: Matrix, single: bool) -> Matrix:
        """Return a start as good as the random `q` or better: `q` itself, or the result of a first pass."""
        raise NotImplementedError

    def normal(self, q: Matrix, single: bool) -> Matrix:
        """Return AᴴA q."""
        return np.asarray(self._read(q, single, False).product)

    def triangle(self, v: Matrix) -> tuple[Matrix, Matrix]:
        """Return R of the QR factorization of A v, and AᴴA v."""
        sums = self._read(v, False, True)
        return sums.triangle, sums.product

    def _read(self, q: Matrix, single: bool, with_triangle: bool) -> Any:
        """Read the array once: `product` is AᴴA q; `triangle` is R of A q where requested."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Leading:
    """Result: the k largest singular values, their right singular vectors as columns, and their certificate."""

    s: Matrix
    v: Matrix
    certificate: Certificate


def leading(operator: Operator, k: int, *, oversample: int, tol: float, max_passes: int, seed: int) -> Leading:
    """Compute the k largest singular values of `operator` to the relative accuracy `tol`.

    `k` may be at most the number of columns. One pass more than `max_passes` is possible where the first shows that
    the arithmetic has to change. Warns with an AccuracyWarning if the accuracy wasn't reached.
    """
    search = _Search(operator, k, oversample, tol, max_passes, seed)
    with one_thread():
        result = search.run()
    warn(result.certificate)
    return result


class _Search:
    def __init__(self, operator: Operator, k: int, oversample: int, tol: float, max_passes: int, seed: int) -> None:
        self.operator, self.k, self.tol, self.max_passes, self.seed = operator, k, tol, max_passes, seed
        self.rng = np.random.default_rng(seed)
        self.n = operator.shape[1]
        self.width = min(self.n, max(k + oversample, 16))
        # Bounds need residuals of the one after k, and those of the gap behind it of one more.
        self.known = max(self.width, k + 2)
        self.before: Interval | None = None
        self.limit: Limit = "passes"
        self.needed = 0
        self._worst: list[float] = []  # how many times the tolerance is exceeded after each pass
        self._rough = False  # whether something in single precision is part of what is known

    def run(self) -> Leading:
        if self.n <= max(EXACT, self.width):
            return self._exact()
        start = self.operator.started(orthonormal(self._random(self.width)), self.operator.single)
        result = self._gram(orthonormal(start), self.tol >= SINGLE)
        if not isinstance(result, Leading) and self._rough:
            result = self._gram(result, False)
        return result if isinstance(result, Leading) else self._orthogonal(result)

    def _exact(self) -> Leading:
        self.operator.prepare()
        r, _ = self.operator.triangle(np.eye(self.n))
        _, s, vh = np.linalg.svd(r, full_matrices=False)
        s, v = np.concatenate([s, np.zeros(self.n - len(s))]), vh.conj().T
        if v.shape[1] < self.n:
            v = np.linalg.svd(r)[2].conj().T
        none, rounding = np.zeros(self.n), self._rounding(s[0]) + self.operator.input_error(s, False)
        ritz = Ritz(s, none, np.zeros((1, self.n)), 0.0, rounding, 0.0, 0.0, True)
        self.limit = "constant" if self.operator.only_rounding else "rounding"
        return self._ended(interval(ritz, self.k), ritz, v, "float64, with a QR factorization")

    def _random(self, columns: int) -> Matrix:
        block = self.rng.standard_normal((self.n, columns))
        return block + 1j * self.rng.standard_normal((self.n, columns)) if self.operator.is_complex else block

    def _rounding(self, largest: float) -> float:
        """Return the accuracy of LAPACK's singular values, and the sums behind it."""
        return 8 * _EPS64 * float(largest)

    # --- with products of AᴴA ------------------------------------------------------------------------------------

    def _gram(self, block: Matrix, may_be_single: bool) -> Leading | Matrix:
        """Return the result, or if this arithmetic isn't enough, the best vectors so far."""
        most = basis_bytes() // (2 * self.n * block.itemsize) + 3 * self.width
        basis = _Basis.empty(self.n, min(self.n, most), block.dtype)
        self._rough, self._worst = False, []
        while True:
            single = may_be_single and self.operator.single
            if single:
                # Round the block before storing it: products in single precision are then exact for the stored one.
                block = block.astype("c8" if self.operator.is_complex else "f4").astype(block.dtype)
                self._rough = True
            basis = basis.extended(block, self.operator.normal(block, single))
            eps = _EPS32 if self._rough else _EPS64
            ritz, w = self._ritz(basis, eps)
            bounds = interval(ritz, self.k)
            if self._accepted(bounds):
                return self._ended(bounds, ritz, basis.k @ w)
            if self._too_coarse(ritz, bounds):
                return orthonormal(basis.k @ w[:, : self.width if self._rough else 2 * self.width])
            if self._over(bounds, ritz, self.max_passes):
                return self._ended(bounds, ritz, basis.k @ w)
            self.before = bounds
            block = self._next(basis, float(ritz.s[0]) ** 2)
            if basis.full:
                basis = basis.cut(w, ritz.s**2)

    def _ritz(self, basis: _Basis, eps: float) -> tuple[Ritz, Matrix]:
        """Return the Ritz values with their residuals, and some of their vectors in the basis."""
        values, w = np.linalg.eigh((basis.t + basis.t.conj().T) / 2)
        values, w = np.maximum(values[::-1], 0.0), w[:, ::-1]
        n_known = min(basis.columns, self.known)
        residuals = basis.z @ w[:, :n_known] - basis.k @ (w[:, :n_known] * values[:n_known])
        skew = basis.t - basis.t.conj().T
        rough = np.linalg.norm(skew, 2) if len(skew) <= 256 else np.linalg.norm(skew, 1)
        floor = 4 * eps * float(values[0]) + float(rough)
        s = np.sqrt(values)
        ritz = Ritz(
            s,
            np.linalg.norm(residuals, axis=0),
            np.asarray(np.linalg.qr(residuals, mode="r")),
            floor,
            self._rounding(s[0]) + self.operator.input_error(s, self._rough),
            self.operator.squares,
            self.operator.squares_error + floor,
            basis.columns == self.n,
        )
        return ritz, w[:, : 2 * self.width]

    def _too_coarse(self, ritz: Ritz, bounds: Interval) -> bool:
        """Return whether rounding alone takes most of the tolerance of one of the k values.

        The first passes find them too small, and rounding is the smaller the larger they are.
        """
        theta = ritz.s[: self.k] ** 2
        error = (np.sqrt(theta + ritz.floor) - np.sqrt(np.maximum(theta - ritz.floor, 0))) / 2 + ritz.floor_s[: self.k]
        grown = (self._excess(bounds, bounds.upper, SETTLED) <= 1).all()
        most = 0.8 * self.tol if grown else 2 * self.tol
        return bool((error > most * ritz.s[: self.k]).any() and ritz.s[0] > 0)

    def _next(self, basis: _Basis, largest: float) -> Matrix:
        """Return the directions that the last products add, filled up to a block with random ones.

        Only what float64 can't separate from the basis is replaced, of products in float32 too: next to a dominant
        value their rounding may be more than all the rest, and directions of which a part is rounding still lead on.
        """
        last = slice(-self.width, None)
        u, s, _ = np.linalg.svd(basis.z[:, last] - basis.k @ basis.t[:, last], full_matrices=False)
        u = u[:, s > 100 * _EPS64 * largest]
        columns = min(self.width, self.n - basis.columns)
        if u.shape[1] < columns:
            u = np.concatenate([u, self._random(columns - u.shape[1])], axis=1)
        u, within = basis.outside(u[:, :columns])
        if within > WITHIN:
            u, _ = basis.outside(orthonormal(u))
        return np.linalg.qr(u)[0]

    # --- with A V itself -----------------------------------------------------------------------------------------

    def _orthogonal(self, v: Matrix) -> Leading:
        self._worst = []
        while True:
            r, z = self.operator.triangle(v)
            _, s, vh = np.linalg.svd(r)
            v, z = v @ vh.conj().T, z @ vh.conj().T
            s = np.concatenate([s, np.zeros(v.shape[1] - len(s))])
            residuals = z - v @ (v.conj().T @ z)
            residuals -= v @ (v.conj().T @ residuals)
            n_known = min(self.known, v.shape[1])
            ritz = Ritz(
                s,
                np.linalg.norm(residuals[:, :n_known], axis=0),
                np.asarray(np.linalg.qr(residuals[:, :n_known], mode="r")),
                0.0,
                self._rounding(s[0]) + self.operator.input_error(s, False),
                self.operator.squares,
                self.operator.squares_error,
                v.shape[1] == self.n,
            )
            bounds = interval(ritz, self.k)
            if self._accepted(bounds) or self._over(bounds, ritz, self.max_passes + 1):
                return self._ended(bounds, ritz, v, "float64, with a QR factorization")
            self.before = bounds
            v = self._enlarged(v, residuals[:, : self.width], s)

    def _enlarged(self, v: Matrix, residuals: Matrix, s: Matrix) -> Matrix:
        basis = v[:, : min(2 * self.width, v.shape[1])]
        scale = np.linalg.norm(residuals, axis=0)
        useful = scale > 100 * _EPS64 * np.maximum(s[: len(scale)], np.finfo(float).tiny) * s[0]
        new = np.concatenate([residuals[:, useful] / scale[useful], self._random(self.width)], axis=1)
        columns = min(self.width, self.n - basis.shape[1])
        new = orthonormal(new[:, :columns] - basis @ (basis.conj().T @ new[:, :columns]))
        new = np.linalg.qr(new - basis @ (basis.conj().T @ new))[0]
        return np.concatenate([basis, new], axis=1)

    # --- the end -------------------------------------------------------------------------------------------------

    def _excess(self, bounds: Interval, upper: Matrix, tol: float) -> Matrix:
        """Return each value's error relative to the allowed error: `tol`, or the rounding error if that is larger."""
        error, rounding = bounds.error(upper), self._doubt(bounds.s)
        zero = upper <= ZERO * rounding
        return np.where(zero, 0.0, error / np.maximum(tol * bounds.s, _TINY))

    def _doubt(self, s: Matrix) -> Matrix:
        """Return the uncertainty of values by rounding, whatever the method."""
        return self._rounding(s[0]) + self.operator.input_error(s, False)

    def _over(self, bounds: Interval, ritz: Ritz, most: int) -> bool:
        """Return whether passes have ended or more would be of no use; set `limit` to the reason."""
        excess = self._excess(bounds, bounds.upper, self.tol)
        rounding = self._doubt(bounds.s)
        # Rounding exceeds the tolerance of these values, even at their upper bounds.
        forbidden = (excess > 1) & (rounding > self.tol * bounds.upper)
        best = LIMITED * rounding / np.maximum(self.tol * bounds.s, _TINY)
        left = np.where(forbidden, excess / np.maximum(best, 1), excess)
        self._worst.append(float(left.max()))
        if self.operator.only_rounding:
            self.limit = "constant"
        elif forbidden.any() and self._worst[-1] <= 1:
            self.limit = "rounding"
        elif self._like_noise(bounds, ritz, left, most):
            self.limit = "noise"
        return self.limit != "passes" or self.operator.passes >= most

    def _like_noise(self, bounds: Interval, ritz: Ritz, left: Matrix, most: int) -> bool:
        """Return whether the values not known yet are as dense as noise, so that the passes won't suffice.

        Of a continuum, bounds shrink as a power of the number of passes, about the second, and no sooner faster than
        single values of it are resolved: in a space of n dimensions after some 1.8 n^0.3 passes, as tried with noise
        of n from 1,000 to 20,000. The earlier estimate is used, and bounds that shrink geometrically may continue.
        """
        passes, worst = self.operator.passes, self._worst
        if len(worst) <= TREND or worst[-1] <= 1:
            return False
        shrunk = max(worst[-1 - TREND] / worst[-1], 1 + _EPS32)
        power = np.log(shrunk) / np.log(passes / (passes - TREND))
        geometric = passes + TREND * np.log(worst[-1]) / np.log(shrunk)
        self.needed = int(min(1e6, geometric, passes * worst[-1] ** (1 / (power + 1))))
        if min(self.needed, 1.8 * self.n**0.3) <= most:
            return False
        _, highest = self._highest(bounds, ritz, True)
        return bool((left[: groups(ritz, highest, self.k)[-1].first - 1] <= 1).all())

    def _highest(self, bounds: Interval, ritz: Ritz, likely: bool) -> tuple[Matrix, Matrix]:
        """Return upper bounds of the first k values; and of the next one too, if it is known."""
        upper = bounds.upper if likely else bounds.proved
        if self.k >= (len(ritz.s) if ritz.complete else len(ritz.norms)):
            return upper, upper
        further = interval(ritz, self.k + 1)
        return upper, np.append(upper, (further.upper if likely else further.proved)[-1])

    def _accepted(self, bounds: Interval) -> bool:
        return self._status(bounds) != "not reached"

    def _status(self, bounds: Interval) -> Status:
        if self.operator.only_rounding:
            return "not reached"
        if (self._excess(bounds, bounds.proved, self.tol) <= 1).all():
            return "proved"
        met = self._agrees(bounds) and (self._excess(bounds, bounds.upper, self.tol) <= 1).all()
        return "very likely" if met else "not reached"

    def _agrees(self, bounds: Interval) -> bool:
        """Return whether the bounds of the previous pass contain the values of this one."""
        slack = self._rounding(bounds.s[0])
        return self.before is not None and bool((bounds.s <= self.before.upper + slack).all())

    def _ended(self, bounds: Interval, ritz: Ritz, v: Matrix, dtype: str | None = None) -> Leading:
        status = self._status(bounds)
        largest = float(bounds.s[0]) or 1.0
        likely = status != "proved" and self._agrees(bounds)
        upper, highest = self._highest(bounds, ritz, likely)
        error = bounds.error(upper)
        nothing = self.operator.only_rounding
        distinct = (upper > ZERO * self._doubt(bounds.s)) & (bounds.s > 0) & (not nothing)
        squares = self.operator.squares or np.nan
        certificate = Certificate(
            tol=self.tol,
            bound=np.divide(error, bounds.s, where=distinct, out=np.where(error > 0, np.inf, 0.0)),
            # Here even the largest value is a rounding error.
            of_largest=np.ones(self.k) if nothing else error / largest,
            status=status,
            limit=self.limit if status == "not reached" else None,
            needed=self.needed,
            angle=sine_of(ritz, highest, 0, self.k),
            groups=groups(ritz, highest, self.k),
            residuals=np.resize(ritz.norms, self.k) / largest**2 if len(ritz.norms) >= self.k else np.zeros(self.k),
            shares=bounds.s**2 / squares,
            passes=self.operator.passes,
            bytes_read=self.operator.bytes_read,
            dtype=dtype or ("float32" if self._rough else "float64"),
            seed=self.seed,
        )
        return Leading(bounds.s, _nearest_orthonormal(v[:, : self.k]), certificate)


def leading_vectors(gram: Matrix, start: Matrix) -> Matrix:
    """Return as many leading eigenvectors of a symmetric matrix as `start` has columns, or `start` if it isn't finite.

    For a small matrix all are computed. For others a block Krylov space is restarted some times from its best vectors.
    """
    width = start.shape[1]
    if not np.isfinite(gram).all():
        return start
    if len(gram) <= max(SOLVED, 4 * width):
        return np.linalg.eigh(gram)[1][:, : -width - 1 : -1]
    best = start
    for columns in SPACES:
        basis = np.linalg.qr(best)[0]
        for _ in range(min(max(2, columns // width), len(gram) // width) - 1):
            block = gram @ basis[:, -width:]
            for _ in range(2):
                block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
            basis = np.concatenate([basis, block], axis=1)
        products = gram @ basis
        values, w = np.linalg.eigh(basis.T @ products)
        values, w = values[: -width - 1 : -1], w[:, : -width - 1 : -1]
        best = basis @ w
        if np.linalg.norm(products @ w - best * values) <= CONVERGED * values[0]:
            break
    return best


@dataclass(frozen=True, slots=True, eq=False)
class _Basis:
    """An orthonormal K, Z = AᴴA K, and T = Kᴴ Z.

    K and Z are the first columns of buffers that one basis passes to the next: unused columns take no memory.
    """

    rooms: tuple[Matrix, Matrix]
    t: Matrix

    @classmethod
    def empty(cls, n: int, columns: int, dtype: Any) -> _Basis:
        """Return an empty basis with room for so many columns."""
        rooms = np.empty((n, columns), dtype, order="F"), np.empty((n, columns), dtype, order="F")
        return cls(rooms, np.zeros((0, 0), dtype))

    @property
    def columns(self) -> int:
        return len(self.t)

    @property
    def k(self) -> Matrix:
        return self.rooms[0][:, : self.columns]

    @property
    def z(self) -> Matrix:
        return self.rooms[1][:, : self.columns]

    @property
    def full(self) -> bool:
        return 2 * self.k.nbytes > basis_bytes()

    def extended(self, block: Matrix, product: Matrix) -> _Basis:
        """Return the basis extended by one block."""
        t = np.block([[self.t, self.k.conj().T @ product], [block.conj().T @ self.z, block.conj().T @ product]])
        for room, new in zip(self.rooms, (block, product), strict=True):
            room[:, self.columns : len(t)] = new
        return replace(self, t=t)

    def cut(self, w: Matrix, values: Matrix) -> _Basis:
        """Replace the basis by the Ritz vectors K w; their products follow without a pass."""
        for room, all_ in zip(self.rooms, (self.k, self.z), strict=True):
            room[:, : w.shape[1]] = all_ @ w
        return replace(self, t=np.diag(values[: w.shape[1]]).astype(w.dtype))

    def outside(self, x: Matrix) -> tuple[Matrix, float]:
        """Return the part of x outside of K, and the largest share of a column that lies within K."""
        within = self.k.conj().T @ x
        return x - self.k @ within, float(np.linalg.norm(within, axis=0).max(initial=0.0))


def _nearest_orthonormal(x: Matrix) -> Matrix:
    """Return the nearest orthonormal matrix to one that single precision left slightly off."""
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    mended: Matrix = u @ vh
    return mended


def orthonormal(x: Matrix) -> Matrix:
    """Return an orthonormal basis of columns of any scale."""
    norms = np.linalg.norm(x, axis=0)
    q: Matrix = np.linalg.qr(x / np.where(norms > 0, norms, 1))[0]
    return q


_EPS32, _EPS64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
