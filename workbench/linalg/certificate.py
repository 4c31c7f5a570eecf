"""How far singular values that were found by iteration can be from the true ones, from what the iteration has at hand.

With B = AᴴA, Ritz values θ₁ ≥ θ₂ ≥ … and residuals R = B V − V Θ:

- Cauchy: λᵢ ≥ θᵢ. What was found is never too large, but for rounding.
- Weyl: λᵢ ≤ max(θᵢ, c) + ‖R_k‖ where c is above all that V's first k columns don't reach; and if s_i² ≥ c,
  σᵢ ≤ sᵢ + ‖R_i / S_i‖. In a cluster c may well be above θᵢ.
- Kato–Temple, as a matrix (Mathias 1998): where the part of B that V's first b columns don't reach has no eigenvalue
  above c < θᵢ, λᵢ ≤ λᵢ(Θ_b + R_bᴴR_b / (θᵢ − c)), the square of the i-th singular value of [Θ_b^½ ; R_b / (θᵢ − c)^½]
  stacked. That c is taken as θ_{b+1} + ‖r_{b+1}‖, which holds unless the iteration has missed a direction altogether;
  or as ‖A‖²_F − Σ_{j ≤ b} θⱼ, which always holds: then the bound is a proof.
- Trace: as no θⱼ is too large, λᵢ − θᵢ ≤ ‖A‖²_F − Σ_j θⱼ over all of V. A proof, too, if seldom a sharp one.
- Davis–Kahan: the sine of the largest angle between the found and the true subspace is ≤ ‖R_k‖ / (θ_k − c).

Rounding adds `floor`. Of products with B, the asymmetry of VᴴBV measures it for free.

References
----------
Mathias: Quadratic residual bounds for the Hermitian eigenvalue problem. SIAM J. Matrix Anal. Appl. 19, 1998.
Davis, Kahan: The rotation of eigenvectors by a perturbation III. SIAM J. Numer. Anal. 7, 1970.
Wedin: Perturbation bounds in connection with singular value decomposition. BIT 12, 1972.
Parlett: The Symmetric Eigenvalue Problem, chapters 10 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Matrix = np.ndarray[Any, Any]
Status = Literal["proved", "very likely", "not reached"]

# Above so many values one gap serves for all of them: a singular value decomposition for each would cost too much.
MANY = 24
# A gap of fewer residuals than this may lie within a cluster of which only a part was found: then nothing is built on
# it. Of clusters of 60 to 130 values, in spaces of 60 to 100 columns, some have shown gaps of up to 2.5 residuals.
CLEAR = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """What is known about the accuracy of some leading singular values, and what it has cost.

    Parameters
    ----------
    tol
        The relative accuracy that was asked for.
    bound
        For each value, how far it may be from the true one, relative to it. Values that are zero to rounding
        (at most 4·max(M, N)·ε times the largest) have their bound relative to the largest.
    status
        "proved": the Frobenius norm leaves no room for anything missed. "very likely": two passes in a row agree; only
        a start that is orthogonal to a singular vector could deceive. "not reached": the bounds don't meet `tol`.
    angle
        Estimated upper bound of the sine of the largest angle between the found and the true space of singular vectors.
        1 where the next singular value is as large as the last one found, so that there is no such space. 0 where all
        min(M, N) were asked for, so that there is no next one: then any space is the whole.
    residuals
        ‖AᴴA v − σ² v‖ / σ₁² of each.
    passes, bytes_read
        How often the array was gone through, and how many of its bytes were made or read to that end.
    dtype
        The arithmetic that the result rests on.
    """

    tol: float
    bound: Matrix
    status: Status
    angle: float
    residuals: Matrix
    passes: int
    bytes_read: int
    dtype: str

    @property
    def sentence(self) -> str:
        """All this for a person."""
        if not self.bound.size:
            return "There are no singular values, so nothing can be wrong with them."
        worst, arithmetic = float(self.bound.max()), f"{self.passes} pass{'es' * (self.passes != 1)}, {self.dtype}"
        if self.status == "not reached":
            return (
                f"The accuracy of {self.tol:.0e} was not reached: after {arithmetic}, the worst value may be off by "
                f"{worst:.1e} of itself. Allow more passes (max_passes), more columns (n_oversamples), or a larger tol."
            )
        several = self.bound.size > 1
        values = f"all {self.bound.size} singular values are" if several else "the singular value is"
        head = f"It is proved that {values}" if self.status == "proved" else f"Very likely {values}"
        themselves = "themselves" if several else "itself"
        return f"{head} right to {worst:.1e} of {themselves} ({arithmetic}); {self._vectors}."

    @property
    def _vectors(self) -> str:
        if self.angle == 0:
            return "the vectors span all there is along the shorter side, so that there is no gap to look for"
        if self.angle >= 1:
            return "the next value is too near to the last to bound the angle to the true vectors"
        return f"the sine of the angle to the true vectors is at most about {self.angle:.1e}"


@dataclass(frozen=True, slots=True, eq=False)
class Ritz:
    """What one pass has found: k values asked for, and some more.

    `s` are √θ, descending; `norms` the residuals' norms; `triangle` the R factor of the residuals, so that the norm of
    any combination of them is that of the same combination of `triangle`'s columns. `floor` is the rounding error in θ,
    `floor_s` that in each of s. `squares` is ‖A‖²_F, `complete` whether V spans everything.
    """

    s: Matrix
    norms: Matrix
    triangle: Matrix
    floor: float
    floor_s: Matrix
    squares: float
    squares_error: float
    complete: bool


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Where the true singular values are: `upper` if nothing was missed, `proved` in any case."""

    s: Matrix
    lower: Matrix
    upper: Matrix
    proved: Matrix
    angle: float

    def error(self, upper: Matrix) -> Matrix:
        """The largest distance of the true values from `s`."""
        return np.maximum(upper - self.s, self.s - self.lower)


def interval(ritz: Ritz, k: int) -> Interval:
    """Bounds of the first k singular values."""
    theta = ritz.s**2
    lower = np.sqrt(np.maximum(theta[:k] - ritz.floor, 0)) - ritz.floor_s[:k]
    if ritz.complete:
        upper = _widened(theta[:k], ritz)
        return Interval(ritz.s[:k], lower, upper, upper, _angle_by_rounding(ritz, k))
    b = _split(ritz, k)
    beyond = theta[b] + ritz.norms[b] if b < len(theta) else np.inf
    highest = np.maximum(theta[:k], _next(ritz, k))
    clear = CLEAR * float(np.linalg.norm(ritz.triangle[:, :b], 2))
    upper = np.minimum(highest + np.linalg.norm(ritz.triangle[:, :k], 2), _temple(ritz, k, b, float(beyond), clear))
    if not ritz.floor:
        upper = np.minimum(upper, _dilated(ritz, highest))
    whole = len(ritz.norms)
    tail = max(ritz.squares - float(theta[:whole].sum()), 0.0) + ritz.squares_error
    proved = np.minimum(_temple(ritz, k, whole, tail), theta[:k] + _trace_left(ritz))
    return Interval(ritz.s[:k], lower, _widened(upper, ritz), _widened(proved, ritz), _angle(ritz, k))


def _widened(theta: Matrix, ritz: Ritz) -> Matrix:
    return np.sqrt(theta + ritz.floor) + ritz.floor_s[: len(theta)]


def _next(ritz: Ritz, k: int) -> float:
    """What the largest eigenvalue beyond the first k may be."""
    if not len(ritz.norms):
        return 0.0
    after = min(k, len(ritz.s) - 1)
    return float(ritz.s[after] ** 2 + (ritz.norms[after] if after < len(ritz.norms) else ritz.norms.max()))


def _trace_left(ritz: Ritz) -> float:
    """What ‖A‖²_F leaves for all that was not found, each Ritz value being too large by no more than its rounding."""
    rounding = ritz.squares_error + len(ritz.s) * ritz.floor + 2 * float(ritz.s @ ritz.floor_s)
    return max(ritz.squares - float((ritz.s**2).sum()), 0.0) + rounding


def _split(ritz: Ritz, k: int) -> int:
    """After how many values to cut: where the bound on the k-th is best, of those with a known residual beyond."""
    theta = ritz.s**2
    best, value = k, np.inf
    for b in sorted({k, (k + len(ritz.norms) - 1) // 2, len(ritz.norms) - 1}):
        if k <= b < len(ritz.norms):
            gap = theta[k - 1] - theta[b] - ritz.norms[b]
            estimate = np.linalg.norm(ritz.triangle[:, :b], 2) ** 2 / gap if gap > 0 else np.inf
            if estimate < value:
                best, value = b, estimate
    return best


def _temple(ritz: Ritz, k: int, b: int, beyond: float, clear: float = 0.0) -> Matrix:
    """Upper bounds of the first k eigenvalues where none outside of the first b Ritz vectors is above `beyond`.

    Infinite where the gap is not larger than `clear`.
    """
    theta, upper = ritz.s**2, np.full(k, np.inf)
    gaps = theta[:k] - beyond
    gaps = np.where(gaps > clear, gaps, 0.0)
    if k > MANY:
        gaps = np.minimum(gaps, gaps[gaps > 0].min(initial=np.inf))
    found: dict[float, Matrix] = {}
    for i in np.flatnonzero(gaps > 0):
        gap = float(gaps[i])
        if gap not in found:
            stack = np.concatenate([np.diag(ritz.s[:b]), ritz.triangle[:, :b] / np.sqrt(gap)])
            found[gap] = np.linalg.svd(stack, compute_uv=False) ** 2
        upper[i] = found[gap][i]
    return upper


def _dilated(ritz: Ritz, highest: Matrix) -> Matrix:
    """Weyl's bound for [0 A; Aᴴ 0], whose residuals are R / s: the one that is of use where s is next to nothing."""
    k = len(highest)
    safe = np.where(ritz.s[:k] > 0, ritz.s[:k], np.inf)
    scaled = ritz.triangle[:, :k] / safe
    reach = [np.linalg.norm(scaled[:, : i + 1], 2) for i in range(k)]
    return (np.sqrt(highest) + np.array(reach)) ** 2


def _angle(ritz: Ritz, k: int) -> float:
    if k >= len(ritz.norms):
        return 1.0
    gap = ritz.s[k - 1] ** 2 - ritz.s[k] ** 2 - ritz.norms[k]
    reach = float(np.linalg.norm(ritz.triangle[:, :k], 2)) + ritz.floor
    return min(1.0, reach / gap) if gap > 0 else 1.0


def _angle_by_rounding(ritz: Ritz, k: int) -> float:
    """Where V spans everything, only rounding is between the found space and the true one (Wedin 1972)."""
    if k == len(ritz.s):
        return 0.0
    gap, together = ritz.s[k - 1] - ritz.s[k], ritz.s[k - 1] + ritz.s[k]
    return min(1.0, float((ritz.floor_s[k - 1 : k + 1].max() + ritz.floor / together) / gap)) if gap > 0 else 1.0
