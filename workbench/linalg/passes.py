"""One reading of a Dask array: A Q and AᴴA Q from the same tiles, without a copy of A in floating point.

A tile of some rows is brought to floating point in a buffer that stays in cache, used for both products, and forgotten.
Centring and scaling are applied to the narrow factors: with Ã = D_r (A − r 1ᵀ − 1 cᵀ) D_c,

    Ã Q  = D_r (A D_c Q − r (1ᵀ D_c Q) − 1 (cᵀ D_c Q))
    ÃᴴY = D_c (Aᴴ D_r Y − 1 (rᴴ D_r Y) − c̄ (1ᵀ D_r Y))

Numbers along the rows (r, D_r) come from the tile itself; those along the columns (c, D_c) from the first pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from workbench.linalg import krylov, products
from workbench.linalg.arrays import check_finite, dense, result_dtype, working_dtype
from workbench.linalg.gpu import host, namespace, on_device, on_devices, single_is_single, to_device_of
from workbench.linalg.keys import fresh, in_pass, lasting, tree
from workbench.linalg.krylov import Operator
from workbench.sent_code import cluster_client, scheduler

Matrix = np.ndarray[Any, Any]
Along = Literal["rows", "columns"] | None

# Bytes of a tile in floating point. 0.7 to 3 MB were equally fast; larger tiles don't fit in the third-level cache.
TILE_BYTES = 1_500_000
# float32 partial sums are added to a float64 total every so many rows.
ROWS_IN_SINGLE = 2048
# Up to this many columns for each column of Q, AᵀA takes no longer than the passes that it saves: BLAS is three times
# as fast if both sides are wide. The second number limits the size of AᵀA, which tasks send to each other.
GRAM_PER_COLUMN, GRAM_COLUMNS = 100, 4096
# Bytes of a tile that is multiplied with itself: BLAS is fastest with many rows.
GRAM_TILE_BYTES = 2**26
# Partial results that are added in one task.
FAN_IN = 16
# Larger partial results are added in pairs, so that few wait in memory.
LARGE_PART = 2**20
# A larger Q isn't sent inside the graph, but directly to the workers.
GRAPH_BYTES = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Transformation of an array's numbers: times 2^-exponent, less their means along an axis, over their deviations.

    `along` selects the means: each row's own ("rows"), or each column's ("columns"; `mean` and `factor`, once known).
    """

    along: Along = None
    scale: bool = False
    exponent: int = 0
    mean: Matrix | None = None
    factor: Matrix | None = None

    @property
    def known(self) -> bool:
        """True if nothing has to be learned from a first pass."""
        return self.along != "columns" or self.mean is not None

    def as_given(self) -> tuple[Matrix | None, Matrix | None]:
        """Return `mean` and `factor` in the unit of the array itself; what is constant has the factor 1 in any unit."""
        if self.mean is None or self.factor is None:
            return None, None
        constant = self.factor == 1
        return shifted(self.mean, -self.exponent), np.where(constant, 1.0, shifted(self.factor, self.exponent))


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over some rows, from one reading. `mean` and `deviations` (Σ|x − mean|²) are each column's.

    `squares` is ‖Ã‖²_F, `means` the part removed by centering, `factors` the least and the largest by which rows were
    multiplied. `gram` is ÃᵀÃ in single precision, which suffices for a start.
    """

    product: Matrix
    triangle: Matrix | None
    squares: float
    rows: int
    means: float = 0.0
    mean: Matrix | None = None
    deviations: Matrix | None = None
    factors: tuple[float, float] = (1.0, 1.0)
    gram: Matrix | None = None


class DaskOperator(Operator):
    """A tall Dask array as `krylov` needs it. Blocks along both axes are fine: a task gets a row of blocks."""

    def __init__(self, a: Any, view: View, row_name: str, in_memory: bool) -> None:
        super().__init__(a.shape, int(a.nbytes), in_memory)
        self.a, self.view, self.row_name = a, view, row_name
        self.is_complex = a.dtype.kind == "c"
        # Whole numbers of 16 bits are exact in float32; the scale of others is seen in a first pass in float64.
        self.single = a.dtype.kind in "biu" and a.dtype.itemsize <= 2
        self._uncentered = 0.0

    def input_error(self, s: Matrix, single: bool) -> Matrix:
        """Return the error of singular values from rounding the numbers, or their means, when they were read.

        Both products of a pass use the same rounded numbers, so that nothing computed from them could show it.
        """
        kind, size = self.a.dtype.kind, self.a.dtype.itemsize
        exact = (
            not single or (kind in "biu" and size <= 2) or (kind == "f" and size <= 4) or (kind == "c" and size <= 8)
        )
        if exact and self.view.along is None:
            return np.zeros_like(s)
        eps = float(np.finfo(np.float32 if single else float).eps)
        return np.full_like(s, eps / 2 * float(np.sqrt(self._uncentered)))

    def prepare(self) -> None:
        """Find the columns' means."""
        if not self.view.known:
            self.normal(np.eye(self.shape[1], 1), False)

    def started(self, q: Matrix, single: bool) -> Matrix:
        """Return a start: leading vectors of a small ÃᵀÃ, else `q`, or ÃᴴÃ q after a pass for the means."""
        if self._pays(q.shape[1]):
            sums = self._read(q, single, False, with_gram=True)
            return krylov.leading_vectors(sums.gram.astype(np.float64), q) if sums.gram is not None else sums.product
        return q if self.view.known else self.normal(q, single)

    def _pays(self, width: int) -> bool:
        """Return whether ÃᵀÃ in the first pass takes less time than the passes that it saves."""
        most = min(GRAM_COLUMNS, GRAM_PER_COLUMN * width) if self.in_memory else GRAM_COLUMNS
        return not self.is_complex and not on_devices(self.a) and self.shape[1] <= most

    def _read(self, q: Matrix, single: bool, with_triangle: bool, with_gram: bool = False) -> Sums:
        first = self.passes == 0
        self.passes += 1
        sums = self._summed(q, single, with_triangle, first, with_gram)
        if first and self.a.dtype.kind in "fc" and not _in_range(sums):
            # Squares overflow or vanish: once more, with the largest number brought near 1.
            self.passes += 1
            self.view = replace(self.view, exponent=self._exponent())
            sums = self._summed(q, single, with_triangle, first, with_gram)
        if first:
            sums = self._learned(sums, q)
            self.squares, self._uncentered = sums.squares, sums.squares + sums.means
            self.only_rounding = self._is_constant(sums, single)
            self.squares = 0.0 if self.only_rounding else self.squares
            self.squares_error = 16 * float(np.finfo(np.float32 if single else float).eps) * sums.squares
            self.single = self.single or self._suits_single(sums)
        return sums

    def _is_constant(self, sums: Sums, single: bool) -> bool:
        """Return whether the centered values are below the error of a mean, relative to the original numbers.

        In float32 numbers are whole, and a single one that differs must count: no room for sums that round badly.
        """
        count = self.shape[1] if self.view.along == "rows" else self.shape[0]
        eps = 4 * float(np.finfo(np.float32).eps) if single else max(4.0, np.sqrt(count)) * float(np.finfo(float).eps)
        return self.view.along is not None and sums.means > 0 and sums.squares <= eps**2 * self._uncentered

    def _suits_single(self, sums: Sums) -> bool:
        """Return whether the range of float32 suffices for the numbers as read, and for all results."""
        least, most = sums.factors if self.view.factor is None else (self.view.factor.min(), self.view.factor.max())
        return bool(
            sums.squares / max(1, self.a.size) > 1e-30 and self._uncentered < 1e30 and least > 1e-15 and most < 1e15
        )

    def _learned(self, sums: Sums, q: Matrix) -> Sums:
        """Return the columns' means from a first pass, and the product as if they had been known."""
        if self.view.known or sums.mean is None or sums.deviations is None:
            return sums
        deviation = np.sqrt(sums.deviations / sums.rows)
        factor = factor_of(deviation, sums.mean, sums.rows) if self.view.scale else np.ones(len(deviation))
        self.view = replace(self.view, mean=sums.mean, factor=factor)
        product = sums.product - sums.rows * np.outer(sums.mean.conj(), sums.mean @ q)
        gram = None if sums.gram is None else factor[:, None] * sums.gram * factor
        return replace(
            sums,
            product=factor[:, None] * product,
            gram=gram,
            squares=float((sums.deviations * factor**2).sum()),
            means=float(sums.rows * (np.abs(sums.mean * factor) ** 2).sum()),
        )

    # --- graphs --------------------------------------------------------------------------------------------------

    def _summed(self, q: Matrix, single: bool, with_triangle: bool, first: bool, with_gram: bool) -> Sums:
        task = _Reading(self.view, single, with_triangle, with_gram, first, self.row_name)
        return self._reduced("product", task, q, _added, 4 * self.shape[1] ** 2 if with_gram else 0)

    def _exponent(self) -> int:
        exponent = self._reduced("scale", _largest_exponent, np.zeros(0), max)
        return int(exponent) if exponent > _ALL_ZERO else 0

    def _reduced(
        self, what: str, task: Callable[..., Any], q: Matrix, add: Callable[[list[Any]], Any], extra: int = 0
    ) -> Any:
        starts = np.cumsum([0, *self.a.chunks[0][:-1]])
        starting = [(int(each),) for each in starts]
        return reduction(in_pass(what, self.passes), self.a, task, q, add, starting, extra).computed()

    def projected(self, v: Matrix) -> Any:
        """Return Ã v as a lazy Dask array, which takes one more pass over the array when computed."""
        dtype = result_dtype(self.a.dtype)
        task = _Projecting(self.view, dtype.str, self.row_name)
        name = lasting("project", self.a.name, task, v)
        graph: dict[Any, Any] = {(name + "-v",): v}
        starts = np.cumsum([0, *self.a.chunks[0][:-1]])
        for i, start in enumerate(starts):
            panel = [(self.a.name, i, j) for j in range(self.a.numblocks[1])]
            graph[name, i, 0] = (task, panel, (name + "-v",), int(start))
        whole = HighLevelGraph.from_collections(name, graph, dependencies=[self.a])
        return da.Array(whole, name, chunks=(self.a.chunks[0], (v.shape[1],)), meta=self.a._meta.astype(dtype))


class Reduction(NamedTuple):
    """A sum over the rows of blocks of an array, computed by Dask's current scheduler."""

    name: str
    graph: HighLevelGraph
    n_parts: int

    def computed(self) -> Any:
        """Return the sum."""
        return self._here(self.graph, self.name) if cluster_client() is None else self._delayed.compute()

    def computed_and_left(self, keep: Callable[[Any], Any]) -> tuple[Any, list[Delayed]]:
        """Return the sum and `keep` of each task's result, which stays where it was computed."""
        graph = {(self.name, "left", i): (keep, (self.name, "part", i)) for i in range(self.n_parts)}
        layer, total = f"{self.name}-left", self.graph
        whole = HighLevelGraph({**total.layers, layer: graph}, {**total.dependencies, layer: {self.name}})
        if cluster_client() is None:
            total_value, *values = self._here(whole, [self.name, *graph])
            return total_value, [Delayed(key, {key: value}) for key, value in zip(graph, values, strict=True)]
        parts = [Delayed(key, whole, layer=layer) for key in graph]
        total_held, *parts = dask.persist(self._delayed, *parts)
        return total_held.compute(), parts

    @property
    def _delayed(self) -> Delayed:
        return Delayed(self.name, self.graph)

    @staticmethod
    def _here(graph: HighLevelGraph, keys: Any) -> Any:
        """Compute a whole graph in this process.

        The graph isn't optimized: that takes Dask as long as the tasks.
        """
        get = scheduler() or get_scheduler() or dask.threaded.get
        return get(graph.to_dict(), keys)


def reduction(
    what: str,
    a: Any,
    task: Callable[..., Any],
    q: Any,
    add: Callable[[list[Any]], Any],
    more: Sequence[tuple[Any, ...]],
    more_bytes: int = 0,
) -> Reduction:
    """Return the sum, by `add`, of `task(row of blocks, q, *more[i])` over the rows of blocks of `a`.

    `what` names the tasks; `q` has `nbytes`, and a task's result `more_bytes` more. Dask arrays among `more` aren't
    looked for, only keys of `a`.
    """
    name = fresh(what)
    graph: dict[Any, Any] = {(name, "q"): q} if q.nbytes <= GRAPH_BYTES else {}
    shared = (name, "q") if graph else _sent(q)
    keys: list[Any] = []
    for i in range(a.numblocks[0]):
        panel = [(a.name, i, j) for j in range(a.numblocks[1])]
        keys.append((name, "part", i))
        graph[keys[-1]] = (task, panel, shared, *more[i])
    # At most two large results wait to be added.
    fan_in = FAN_IN if q.nbytes + more_bytes < LARGE_PART else 2
    graph[name] = (_same, tree(graph, keys, fan_in, add, lambda level: (name, level))[-1][0])
    return Reduction(name, HighLevelGraph.from_collections(name, graph, dependencies=[a]), a.numblocks[0])


def _same(x: Any) -> Any:
    return x


def _sent(q: Matrix) -> Any:
    """Return `q`, or, if it is large and a cluster computes, its future."""
    client = cluster_client()
    return client.scatter(q, hash=False) if client is not None and q.nbytes > GRAPH_BYTES else q


def _in_range(sums: Sums) -> bool:
    return bool(np.isfinite(sums.product).all() and 1e-200 < sums.squares < 1e200)


def _added(parts: Sequence[Sums]) -> Sums:
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.sum([part.product for part in parts], axis=0)
    triangles = [part.triangle for part in parts if part.triangle is not None]
    triangle = np.asarray(np.linalg.qr(np.concatenate(triangles), mode="r")) if triangles else None
    rows = sum(part.rows for part in parts)
    mean, deviations = None, None
    centered = [(p.mean, p.deviations, p.rows) for p in parts if p.mean is not None and p.deviations is not None]
    if centered:
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.sum([each * (n / rows) for each, _, n in centered], axis=0)
            deviations = np.sum([within + n * np.abs(each - mean) ** 2 for each, within, n in centered], axis=0)
    gram = _added_grams(parts, mean)
    squares, means = sum(part.squares for part in parts), sum(part.means for part in parts)
    factors = min(part.factors[0] for part in parts), max(part.factors[1] for part in parts)
    return Sums(product, triangle, squares, rows, means, mean, deviations, factors, gram)


def _added_grams(parts: Sequence[Sums], mean: Matrix | None) -> Matrix | None:
    """Return ÃᵀÃ of all parts, about the mean of all if each part is about its own."""
    total: Matrix | None = None
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts:
            if part.gram is None:
                return None
            total = part.gram.copy() if total is None else np.add(total, part.gram, out=total)
        if total is not None and mean is not None:
            offsets = np.array([np.sqrt(part.rows) * (part.mean - mean) for part in parts]).astype(total.dtype)
            total += offsets.T @ offsets
    return total


# --- the work on a row of blocks ---------------------------------------------------------------------------------


def _largest_exponent(panel: Sequence[Any], q: Matrix, first_row: int) -> int:
    """Return the power of two that brings the largest number of finite blocks near 1."""
    largest = 0.0
    for block in panel:
        x = dense(block)
        if x.size:
            parts = (x.real, x.imag) if x.dtype.kind == "c" else (x,)
            largest = max(largest, *(float(abs(part).max()) for part in parts))
    return int(np.frexp(largest)[1]) if largest else _ALL_ZERO


_ALL_ZERO = -10_000


def _tile_height(panel: Sequence[Any], dtype: np.dtype[Any], tall: bool = False) -> int:
    """Return the height of a tile in rows: all of them on a device, and many where it is multiplied with itself."""
    height, n = panel[0].shape[0], sum(block.shape[1] for block in panel)
    most = products.ROWS if n >= products.MANY and not tall else 4096
    preferred = min(most, max(16, (GRAM_TILE_BYTES if tall else TILE_BYTES) // max(1, n * dtype.itemsize)))
    return int(height if on_device(panel[0]) else min(height, preferred))


def _tiles(panel: Sequence[Any], view: View, dtype: np.dtype[Any], tall: bool = False) -> Iterator[Any]:
    """Yield the rows of a row of blocks in floating point, some at a time. The buffer is used again for the next."""
    xp, height, rows = namespace(panel[0]), panel[0].shape[0], _tile_height(panel, dtype, tall)
    ends = np.cumsum([block.shape[1] for block in panel])
    n = int(ends[-1])
    direct = len(panel) == 1 and panel[0].dtype == dtype and not view.exponent
    # A transposed block is copied to a buffer of the same layout: its rows aren't contiguous.
    across = panel[0].flags.f_contiguous and not panel[0].flags.c_contiguous
    buffer = None if direct else xp.empty((n, rows), dtype).T if across else xp.empty((rows, n), dtype)
    for start in range(0, height, max(1, rows)):
        stop = min(start + rows, height)
        if buffer is None:
            yield panel[0][start:stop]
            continue
        tile = buffer[: stop - start]
        for block, end in zip(panel, ends, strict=True):
            part = tile[:, end - block.shape[1] : end]
            if view.exponent:
                part[...] = shifted(block[start:stop], view.exponent)
            else:
                part[...] = block[start:stop]
        yield tile


def shifted(x: Any, exponent: int) -> Any:
    """Return X times 2^-exponent, in two steps as one may be out of range."""
    half = exponent // 2
    return x * 2.0**-half * 2.0 ** (half - exponent)


@dataclass(frozen=True, slots=True)
class _Narrow:
    """Right-hand factor of a tile: Q with the columns' factors, and its product with the means."""

    q: Any
    of_mean: Any  # cᵀ D_c Q, what is taken from every row
    of_ones: Any  # 1ᵀ D_c Q, what is taken r times

    @classmethod
    def of(cls, q: Matrix, view: View, like: Any, dtype: np.dtype[Any]) -> _Narrow:
        scaled = q if view.factor is None else view.factor[:, None] * q
        narrow = to_device_of(scaled.astype(dtype), like)
        of_mean = None if view.mean is None else to_device_of((view.mean @ scaled).astype(dtype), like)
        return cls(narrow, of_mean, narrow.sum(axis=0) if view.along == "rows" else None)


def _rows_of(x: Any, view: View) -> tuple[Any, Any, Any]:
    """Return each row's mean, factor, and sum of squares about the mean (None where not needed)."""
    xp = namespace(x)
    mean = _row_means(x)
    deviations = _squares(x - mean, 1)[:, None]
    if not view.scale:
        return mean, None, deviations
    return mean, factor_of(xp.sqrt(deviations / x.shape[1]), mean, x.shape[1]), deviations


def factor_of(deviation: Any, mean: Any, count: int) -> Any:
    """Return the divisor for a deviation; 1 if a row or column is constant but for rounding, as in StandardScaler."""
    constant = deviation <= 10 * np.finfo(deviation.dtype).eps * abs(mean) * np.sqrt(count)
    return 1 / namespace(deviation).where(constant, 1, deviation)


def _projected(x: Any, narrow: _Narrow, view: View, with_squares: bool, out: Any, room: Any) -> tuple[Any, ...]:
    """Write Ã Q for a tile to `out`; return each row's mean and factor, and the tile's ‖Ã‖²_F if requested."""
    y = products.right(x, narrow.q, out[: x.shape[0]], room)
    if view.along != "rows":
        if narrow.of_mean is not None:
            y -= narrow.of_mean
        return y, None, None, _squares(x, 1).sum(dtype=np.float64) if with_squares else None
    if view.scale or with_squares:
        mean, factor, deviations = _rows_of(x, view)
    else:
        mean, factor, deviations = _row_means(x), None, None
    y -= mean * narrow.of_ones
    if factor is not None:
        y *= factor
    squares = None
    if with_squares:
        squares = (deviations if factor is None else deviations * factor**2).sum(dtype=np.float64)
    return y, mean, factor, squares


def _row_means(x: Any) -> Any:
    """Return the rows' means as a column, by a product: several times faster than NumPy's mean."""
    return x @ namespace(x).full((x.shape[1], 1), 1 / x.shape[1], dtype=x.dtype)


def _squares(x: Any, axis: int) -> Any:
    """Return the sums of squares along an axis, without an array of the squares where possible."""
    if on_device(x):
        # One reduction; CuPy's einsum makes a product of matrices for each row, or copies what it reads.
        return namespace(x).linalg.norm(x, axis=axis) ** 2
    if x.dtype.kind == "c":
        return (x.real**2 + x.imag**2).sum(axis=axis)
    return np.einsum("ij,ij->i" if axis else "ij,ij->j", x, x)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The task of one pass: called with a row of blocks, Q, and the first row's number."""

    view: View
    single: bool
    with_triangle: bool
    with_gram: bool
    first: bool
    row_name: str

    def __call__(self, panel: Sequence[Any], q: Matrix, first_row: int) -> Sums:
        panel = [dense(block) for block in panel]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            sums = self._summed(panel, q)
        if not np.isfinite(sums.product).all():
            _say_where(panel, first_row, self.row_name)
        return sums

    def _summed(self, panel: Sequence[Any], q: Matrix) -> Sums:
        work = working_dtype(panel[0].dtype)
        dtype = np.dtype({"c16": "c8", "f8": "f4"}[work.str[1:]])
        dtype = dtype if self.single and single_is_single(panel[0]) else work
        xp, view = namespace(panel[0]), self.view
        narrow = _Narrow.of(q, view, panel[0], dtype)
        total = xp.zeros(q.shape[::-1], work)
        recent, pending = xp.zeros(q.shape[::-1], dtype), 0
        # Reuse the memory: allocating it for each tile would take as long as the products.
        height = _tile_height(panel, dtype, self.with_gram)
        left, right, room = xp.empty((height, q.shape[1]), dtype), xp.empty_like(recent), None
        shift = xp.zeros(q.shape[1], work)
        squares, means, triangle, factors = 0.0, 0.0, None, (1.0, 1.0)
        learn = self.first and not view.known
        columns: list[Sums] = []
        gram: Matrix | None = None
        for x in _tiles(panel, view, dtype, self.with_gram):
            room = products.room_for(x, q.shape[1]) if room is None else room
            y, mean, factor, square = _projected(x, narrow, view, self.first and not learn, left, room)
            if self.with_triangle:
                pieces = [y] if triangle is None else [triangle, y]
                triangle = xp.linalg.qr(xp.concatenate(pieces), mode="r")
            if factor is not None:
                y *= factor
            if dtype.kind == "c":
                recent += products.left(y.conj(), x, right).conj()
            else:
                recent += products.left(y, x, right)
            pending += x.shape[0]
            if pending >= ROWS_IN_SINGLE:
                total += recent
                recent[...], pending = 0, 0
            if mean is not None:
                shift += (mean.conj() * y).sum(axis=0)
            elif view.mean is not None:
                shift += y.sum(axis=0)
            squares += 0.0 if square is None else float(square)
            if self.first and mean is not None:
                moved = mean if factor is None else mean * factor
                means += x.shape[1] * float((abs(moved) ** 2).sum(dtype=np.float64))
            if self.first and factor is not None:
                factors = min(factors[0], float(factor.min())), max(factors[1], float(factor.max()))
            if learn:
                columns.append(_columns_of(x, work, self.with_gram))
            elif self.with_gram:
                gram = _gram(x, mean, factor) if gram is None else gram + _gram(x, mean, factor)
        taken_off = host(shift) if view.mean is None else np.outer(view.mean.conj(), host(shift))
        product = np.ascontiguousarray(host(total + recent).T) - taken_off
        if view.factor is not None:
            product = view.factor[:, None] * product
        r_factor = None if triangle is None else host(triangle)
        sums = Sums(product, r_factor, squares, panel[0].shape[0], means, factors=factors, gram=gram)
        if not columns:
            return sums
        learned = _added(columns)
        assert learned.deviations is not None
        squares = float(learned.deviations.sum())
        return replace(sums, mean=learned.mean, deviations=learned.deviations, squares=squares, gram=learned.gram)


def _columns_of(x: Any, work: np.dtype[Any], with_gram: bool) -> Sums:
    """Return each column's mean in a tile, and its squares about it; with ÃᵀÃ about it, too."""
    mean = x.mean(axis=0, dtype=work)
    centered = x - mean
    gram = _gram(centered, None, None) if with_gram else None
    return Sums(np.zeros(0), None, 0.0, x.shape[0], 0.0, host(mean), host(_squares(centered, 0)), gram=gram)


def _gram(x: Matrix, mean: Matrix | None, factor: Matrix | None) -> Matrix:
    """Return ÃᵀÃ of a tile in single precision."""
    centered = x if mean is None else x - mean
    if factor is not None:
        centered *= factor
    single = centered.astype(np.float32, copy=False)
    return single.T @ single


@dataclass(frozen=True, slots=True)
class _Projecting:
    """The task that gives Ã v for a row of blocks."""

    view: View
    dtype: str
    row_name: str

    def __call__(self, panel: Sequence[Any], v: Matrix, first_row: int) -> Any:
        panel = [dense(block) for block in panel]
        work = working_dtype(panel[0].dtype)
        narrow = _Narrow.of(v, self.view, panel[0], work)
        xp, row = namespace(panel[0]), 0
        result = xp.empty((panel[0].shape[0], v.shape[1]), np.dtype(self.dtype))
        left, room = xp.empty((_tile_height(panel, work), v.shape[1]), work), None
        with np.errstate(over="ignore", invalid="ignore"):
            for x in _tiles(panel, self.view, work):
                room = products.room_for(x, v.shape[1]) if room is None else room
                result[row : row + x.shape[0]] = _projected(x, narrow, self.view, False, left, room)[0]
                row += x.shape[0]
        if not bool(xp.isfinite(result).all()):
            _say_where(panel, first_row, self.row_name)
        return result


def _say_where(panel: Sequence[Any], first_row: int, row_name: str) -> None:
    """Raise if there is something in a row of blocks that isn't finite."""
    column = 0
    for block in panel:
        check_finite(block, first_row, row_name, column)
        column += block.shape[1]
