"""The SVD of tall and skinny (or short and fat) Dask arrays, by Cholesky QR with a checked fall-back.

Each block is read as tiles that stay in cache. With A = Q C, Q orthonormal and C small, the SVD of C finishes the work:

1. A sketch of A, its rows summed with random signs into a few times N buckets, has nearly A's right singular vectors
   and values. From its V and S comes Q₁ = A V / S, whose condition is about 3 whatever that of A [1]. With an
   orthogonal V a plain product is backward stable, so no triangular solve is needed [2].
2. Where A has no rank for columns of Q₁, as it repeats columns or holds zeros, random ones take their place: their rows
   of C are 0. All rows of A are used to check that A is zero along the vectors left out.
3. Where Q₁ᴴQ₁ is as well conditioned as it should be, one Cholesky step makes Q₁ orthonormal to rounding.
4. Else, if that Gram matrix has a trustworthy Cholesky factor, two of them: CholeskyQR2 [3].
5. Else Householder's method, TSQR [4], on A in tiles, whose small factors are joined a few at a time.

Every decision is taken inside the graph, from computed numbers: Cholesky's own error isn't enough, since a
matrix of rank 75 with 100 columns may pass it. The sketch replaces the shift in shifted CholeskyQR3 [5]: it
costs a third of a Gram matrix, and saves the third round that condition numbers above 1e8 would need.

Everything is computed where the blocks lie: for an array on GPUs, sketches, Gram matrices and small factors stay there.

References
----------
[1] Garrison, Ipsen: A randomized preconditioned Cholesky-QR algorithm, 2024 (arXiv:2406.11751); Higgins, Szyld, Boman,
    Yamazaki: Analysis of randomized Householder-Cholesky QR factorization with multisketching, 2023 (arXiv:2309.05868).
    The sketch is a CountSketch (Clarkson, Woodruff, STOC 2013) with rows dealt to the buckets in turn.
[2] Stathopoulos, Wu: A block orthogonalization procedure with constant synchronization requirements. SISC 23, 2002.
[3] Yamamoto, Nakatsukasa, Yanagisawa, Fukaya: Roundoff error analysis of the CholeskyQR2 algorithm. ETNA 44, 2015.
[4] Benson, Gleich, Demmel: Direct QR factorizations for tall-and-skinny matrices in MapReduce architectures, 2013.
[5] Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa: Shifted Cholesky QR for computing the QR factorization of
    ill-conditioned matrices. SIAM J. Sci. Comput. 42, 2020.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from workbench.formats import by, count, size
from workbench.linalg import arguments
from workbench.linalg.arrays import (
    ArrayError,
    as_matrix,
    check_finite,
    dense,
    memory_of_host,
    result_dtype,
    slices,
    tile_rows,
    tiles,
    working_dtype,
)
from workbench.linalg.gpu import device_memory, namespace, on_device, on_devices, to_device_of
from workbench.linalg.keys import lasting, tree
from workbench.sent_code import cluster_client, workers_of

Matrix = Any  # NumPy's or CuPy's, as the blocks are
Finish = Literal["svd", "qr"]
Signs = Literal["left", "right"] | None

# Above this distance from orthonormal a second Cholesky step can't be relied on to end at rounding level.
NEARLY_ORTHONORMAL = 0.1
# A sketch with twice as many rows as columns leaves a condition of at most about 6, with four times as many of 3.
# One step of Cholesky QR then loses no digit; above, it would lose the square of the condition.
WELL_CONDITIONED = 10.0
# Partial sums are added so many at a time, or fewer if they are large.
FAN_IN, TOGETHER = 16, 2**29
# Multiples of ε: singular values of the sketch below NULL times the largest are rounding errors; their directions may
# make up at most LOST · √n of the array itself.
NULL, LOST = 8.0, 32.0
# Bytes for each of N × N elements that decomposing a sketch takes: 88 of a process with N = 2000.
SMALL_BYTES = 96
_TOO_LARGE = "Sums of these numbers are too large for float64. Divide the array by a constant first, such as 1e100."


def svd(a: Any, coerce_signs: bool = True, full_matrices: bool = False) -> tuple[Any, Any, Any]:
    """Return the SVD `u, s, vh` of a tall or wide Dask array, lazily: a faster `dask.array.linalg.svd`.

    Orthonormal to rounding whatever the conditioning; singular values are as accurate as LAPACK's, that is to a few
    ε times the largest. Single precision is computed in double and rounded once. Every block is needed three times, so
    it is held until its block of `u` exists: the memory needed besides the array is that of `u`.

    Parameters
    ----------
    a : (M, N) Array
        In one block along its shorter axis. Blocks along both axes are joined along the shorter one, with a
        `PerformanceWarning`, so all numbers of a few rows (columns) must fit in one worker.
    coerce_signs : bool
        True makes signs definite: each row of `vh` has a sum ≥ 0, as in Dask.
    full_matrices : bool
        Only False is allowed, as in Dask.

    Returns
    -------
    u : (M, K) Array, K = min(M, N)
    s : (K,) Array, descending
    vh : (K, N) Array

    Raises
    ------
    ArrayError
        A ValueError: not two-dimensional; or, when computed, NaN or infinity, with their place.
    """
    arguments.flags(coerce_signs=coerce_signs, full_matrices=full_matrices)
    if full_matrices:
        raise NotImplementedError("full_matrices=True is not implemented for Dask arrays: use full_matrices=False.")
    a = as_matrix(a)
    if 0 in a.shape:
        return _empty(a)
    _check_memory(a)
    if _is_wide(a):
        vt, s, ut = _factors(_joined(a, 0).T, "svd", "left" if coerce_signs else None, "column")
        return ut.T, s, vt.T
    return _factors(_joined(a, 1), "svd", "right" if coerce_signs else None, "row")


def orthonormal(a: Any) -> tuple[Any, Any]:
    """Return `q, r` of a tall Dask array in one column of blocks.

    R has a positive diagonal, so columns keep their order.
    """
    q, _, r = _factors(a, "qr", None, "row")
    return q, r


def small_bytes(columns: int) -> int:
    """Return the memory of the single task that decomposes the small factors of so many columns."""
    return SMALL_BYTES * columns**2


def _check_memory(a: Any) -> None:
    """Raise if no worker, GPU or machine has enough memory; warn if it takes much."""
    needed = 0 if np.isnan(a.shape).any() else small_bytes(int(min(a.shape)))
    if needed < 2**30:
        return
    most, small = _largest(on_devices(a)), int(min(a.shape))
    message = (
        f"An exact SVD with {count(small)} columns on the shorter side decomposes matrices of {by((small, small))}: "
        f"one task needs about {size(needed)} for it, in addition to the blocks"
    )
    remedy = "The leading values and vectors take far less: svd_compressed(a, k)."
    if most and needed > most:
        raise ArrayError(f"{message}, and the largest worker has {size(most)}. {remedy}")
    warnings.warn(f"{message}. {remedy}", da.PerformanceWarning, stacklevel=3)


def _largest(on_devices: bool) -> int:
    """Return the memory in bytes of the largest worker, GPU or machine; 0 if unknown."""
    client = cluster_client()
    if client is None:
        return device_memory() if on_devices else memory_of_host().limit
    workers = workers_of(client).values()
    sizes = (each["metrics"].get("gpu-memory-total") if on_devices else each["memory_limit"] for each in workers)
    return max((int(size) for size in sizes if size), default=0)


def _is_wide(a: Any) -> bool:
    rows, columns = a.shape
    if np.isnan(rows) or np.isnan(columns):
        return a.numblocks[1] > a.numblocks[0]
    return bool(columns > rows)


def _joined(a: Any, axis: int) -> Any:
    """Return `a` in one block along `axis`, its shorter one."""
    if a.numblocks[axis] == 1:
        return a
    other = 1 - axis
    if np.isnan(a.shape).any():
        raise ArrayError("Blocks of unknown size can't be joined along the shorter axis: call a.compute_chunk_sizes().")
    if a.numblocks[other] > 1:
        warnings.warn(
            f"svd joins the {a.numblocks[axis]} blocks along axis {axis}: rechunk the array where it is made, "
            f"with one block along its shorter axis, or use svd_compressed.",
            da.PerformanceWarning,
            stacklevel=3,
        )
    height = a.chunks[other] if a.numblocks[other] > 1 and _size(a, other) < 2**28 else "auto"
    return a.rechunk({axis: -1, other: height})


def _size(a: Any, axis: int) -> int:
    """Return the bytes of the largest block if the other axis were one block."""
    return int(max(a.chunks[axis]) * a.shape[1 - axis] * a.dtype.itemsize)


def _empty(a: Any) -> tuple[Any, Any, Any]:
    dtype, (rows, columns) = result_dtype(a.dtype), a.shape
    make = {"dtype": dtype, "chunks": -1, "meta": a._meta.astype(dtype)}
    values = da.zeros(0, dtype=np.finfo(dtype).dtype, chunks=-1)
    return da.zeros((rows, 0), **make), values, da.zeros((0, columns), **make)


# --- the graph ---------------------------------------------------------------------------------------------------


def _factors(a: Any, finish: Finish, signs: Signs, axis_name: str) -> tuple[Any, Any, Any]:
    """Return lazy `u, s, vh` (or q, –, r) of an array in one column of blocks."""
    inputs = (a.name, finish, signs, axis_name)
    name = {part: lasting(f"{finish}-{part}", *inputs) for part in ("work", "u", "s", "vh")}
    dtype, n = result_dtype(a.dtype), a.shape[1]
    n = a.chunks[1][0] if not np.isnan(n) else n
    work, last = _work(a, name["work"], finish, signs, axis_name)
    layers: dict[str, dict[Any, Any]] = {
        name["u"]: {
            (name["u"], i, 0): (_left, (a.name, i, 0), last, (name["work"], "turn0", i), i, dtype.str)
            for i in range(a.numblocks[0])
        },
        name["s"]: {(name["s"], 0): (_values, last, dtype.str)},
        name["vh"]: {(name["vh"], 0, 0): (_right, last, dtype.str)},
    }
    meta = a._meta.astype(dtype)
    chunks = {"u": (a.chunks[0], (n,)), "s": ((n,),), "vh": ((n,), (n,))}
    metas = {"u": meta, "s": meta.real.reshape(-1), "vh": meta}

    def array(part: str) -> Any:
        blocks_too = a.__dask_layers__() if part == "u" else ()
        graph = HighLevelGraph(
            {**a.dask.layers, name["work"]: work, name[part]: layers[name[part]]},
            {
                **a.dask.dependencies,
                name["work"]: set(a.__dask_layers__()),
                name[part]: {name["work"], *blocks_too},
            },
        )
        return da.Array(graph, name[part], chunks=chunks[part], meta=metas[part])

    return array("u"), array("s"), array("vh")


def _work(a: Any, name: str, finish: Finish, signs: Signs, axis_name: str) -> tuple[dict[Any, Any], Any]:
    """Return the tasks that all three factors share, and the key of the last decision."""
    starts = [float(start) for start in np.cumsum([0, *a.chunks[0][:-1]])]
    columns = int(a.shape[1]) if not np.isnan(a.shape[1]) else 0
    ranks, buckets = range(a.numblocks[0]), _buckets(columns)
    graph: dict[Any, Any] = {}

    fan_in = max(2, min(FAN_IN, TOGETHER // (8 * buckets * max(1, columns))))

    def up(stage: str, add: Any) -> list[list[Any]]:
        return tree(graph, [(name, stage, i) for i in ranks], fan_in, add, lambda level: (name, f"{stage}-sum{level}"))

    for i in ranks:
        block = (a.name, i, 0)
        graph[name, "sketch", i] = (_sketch, block, i, starts[i], buckets, axis_name)
        graph[name, "second-gram", i] = (_gram, block, (name, "first"), i, signs == "left")
        graph[name, "third-gram", i] = (_gram, block, (name, "second"), i, False)
        graph[name, "triangle", i] = (_triangle, block, (name, "third"))
    graph[name, "first"] = (_first, up("sketch", partial(_add_sketches, buckets))[-1][0])
    graph[name, "second"] = (_second, (name, "first"), up("second-gram", _add)[-1][0])
    graph[name, "third"] = (_third, (name, "second"), up("third-gram", _add)[-1][0])
    levels = up("triangle", _joined_triangles)
    graph[name, "last"] = (_last, (name, "third"), levels[-1][0], finish, signs)
    for level in reversed(range(len(levels) - 1)):
        for i in range(len(levels[level])):
            above = (name, "last") if level == len(levels) - 2 else (name, f"turn{level + 1}", i // fan_in)
            graph[name, f"turn{level}", i] = (_turn, levels[level + 1][i // fan_in], i % fan_in, above)
    return graph, (name, "last")


# --- sums over the blocks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over some rows: a sketch or a Gram matrix, the column sums, and the number of rows.

    `lost` is the sum of squares of A along directions treated as zero, relative to its largest singular value.
    """

    matrix: Matrix
    sums: Matrix
    rows: int
    lost: float = 0.0


def _add(totals: Sequence[Total | None]) -> Total | None:
    """Return the sum; None where a stage had nothing to do."""
    present = [total for total in totals if total is not None]
    if not present:
        return None
    matrix, sums = (sum(each[1:], each[0]) for each in ([t.matrix for t in present], [t.sums for t in present]))
    return Total(matrix, sums, sum(t.rows for t in present), sum(t.lost for t in present))


def _add_sketches(buckets: int, totals: Sequence[Total]) -> Total:
    """Return the sketch of rows that follow each other. With fewer rows than buckets, it has no more than those."""
    rows = sum(t.rows for t in totals)
    like = totals[0].matrix
    matrix = namespace(like).zeros((min(rows, buckets), like.shape[1]), like.dtype)
    first = 0
    for total in totals:
        until_last = buckets - first % buckets
        matrix[first % buckets :][: len(total.matrix)] += total.matrix[:until_last]
        matrix[: max(0, len(total.matrix) - until_last)] += total.matrix[until_last:]
        first += total.rows
    return Total(matrix, totals[0].sums, rows)


def _buckets(columns: int) -> int:
    """Return the number of rows of a sketch: a tile's, at least twice the columns."""
    return max(tile_rows(columns), 4 * columns if columns <= 256 else 2 * columns)


def _sketch(block: Any, index: int, first_row: float, buckets: int, axis_name: str) -> Total:
    """Sketch a block: row r goes to bucket r modulo `buckets` with a random sign.

    Raises if the block isn't finite.
    """
    block = dense(block)
    xp, work = namespace(block), working_dtype(block.dtype)
    height, n = block.shape
    total = xp.zeros((min(buckets, height), n), dtype=work)
    signs = to_device_of(np.random.default_rng(index).choice([-1.0, 1.0], size=(height, 1)), block)
    signed = xp.empty(total.shape, dtype=work)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, height, buckets):
            rows = slice(start, min(start + buckets, height))
            part = xp.multiply(block[rows], signs[rows], out=signed[: rows.stop - start])
            total[: rows.stop - start] += part
    if not xp.isfinite(total).all():
        check_finite(block, first_row, axis_name)
        raise ArrayError(_TOO_LARGE)
    return Total(total, xp.zeros(0), height)


# --- the decisions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """State A = (A M₁ M₂ …) C so far: the small factors by which blocks are multiplied, and C.

    `route` is the next step: "turn" (multiply, look at the Gram matrix again), "done" or "tsqr".
    `sums` are the column sums so far. Householder's method starts from A itself. The last `filled` columns of A M₁ are
    replaced by random ones. `rows` are those of A, `limit` is the largest allowed sum of `lost` squares.
    """

    route: Literal["turn", "done", "tsqr"]
    multipliers: tuple[Matrix, ...]
    small: Matrix
    sums: Matrix
    rows: int
    filled: int = 0
    limit: float = 0.0


def _first(sketch: Total) -> Step:
    """Return Q₁ = A V / S with S and V of the sketch."""
    n = sketch.matrix.shape[1]
    if sketch.rows < n:
        raise ArrayError(
            f"The array has {sketch.rows} rows and {n} columns, known only after computing. Call "
            "a.compute_chunk_sizes() first."
        )
    xp = namespace(sketch.matrix)
    triangle = xp.linalg.qr(sketch.matrix, mode="r")
    if not xp.isfinite(triangle).all():
        raise ArrayError(_TOO_LARGE)
    _, s, vh = xp.linalg.svd(triangle)
    eps = float(np.finfo(float).eps)
    # For columns of zeros LAPACK returns values of up to 16 ε; the norms along its vectors are smaller.
    along = xp.linalg.norm(triangle / xp.where(s[0] > 0, s[0], 1) @ vh.conj().T, axis=0)
    rank = int((along > NULL * eps).sum())
    seen = xp.arange(n) < rank
    # Directions below the rank are scaled by the largest value.
    scaled = xp.maximum(xp.where(seen, s, s[0]), 1e-290)
    small = xp.where(seen, scaled, 0.0)[:, None] * vh
    limit = (LOST * eps) ** 2 * n * (n - rank)
    # In C order, as NumPy unpickles it on another worker: products are then the same to the bit.
    return Step("turn", (xp.ascontiguousarray(vh.conj().T / scaled),), small, sketch.sums, sketch.rows, n - rank, limit)


def _cholesky(gram: Matrix) -> Matrix | None:
    """Return the upper factor, or None where there is none.

    On GPUs that isn't reported; the next Gram matrix shows it.
    """
    xp = namespace(gram)
    try:
        root = xp.linalg.cholesky(gram).conj().T
    except np.linalg.LinAlgError:
        return None
    return root if xp.isfinite(root).all() else None


def _second(step: Step, gram: Total) -> Step:
    """Finish if Q₁ is well conditioned; else take one more Cholesky step, or use Householder's method."""
    xp = namespace(gram.matrix)
    norms = xp.sqrt(xp.diagonal(gram.matrix).real)
    if not (norms > 0).all() or not xp.isfinite(norms).all() or gram.lost > step.limit:
        return _given_up(step)
    squares = xp.linalg.eigvalsh(gram.matrix)
    if squares[-1] <= WELL_CONDITIONED**2 * squares[0]:
        return _polished(step, gram)
    root = _cholesky(gram.matrix / norms / norms[:, None])
    if root is None:
        return _given_up(step)
    _, s, vh = xp.linalg.svd(root)
    turn, small = xp.ascontiguousarray(vh.conj().T / s / norms[:, None]), s[:, None] * vh * norms @ step.small
    # Rounding in G is about ε·√rows·‖G‖: smaller values of the factor are noise, and dividing by them would amplify it.
    trusted = s[-1] ** 2 >= 1e3 * np.finfo(float).eps * s[0] ** 2
    # Rounding in Q₁'s columns comes back times C: where C's rows are larger than A, digits of A would be lost.
    if not trusted or xp.linalg.norm(norms[:, None] * step.small) > WELL_CONDITIONED * xp.linalg.norm(small):
        return _given_up(step)
    return replace(step, multipliers=(*step.multipliers, turn), small=small, sums=gram.sums @ turn)


def _third(step: Step, gram: Total | None) -> Step:
    """Finish if the last step was needed and has worked; else use Householder's method."""
    if step.route != "turn" or gram is None:
        return step
    if _orthogonality(gram.matrix) > NEARLY_ORTHONORMAL:
        return _given_up(step)
    return _polished(step, replace(gram, sums=step.sums))


def _given_up(step: Step) -> Step:
    return replace(step, route="tsqr", multipliers=(), filled=0)


def _polished(step: Step, gram: Total) -> Step:
    """Finish, as the Gram matrix is well conditioned."""
    root = _cholesky(gram.matrix)
    assert root is not None
    inverse = namespace(root).linalg.inv(root)
    multipliers = (*step.multipliers, inverse)
    return replace(step, route="done", multipliers=multipliers, small=root @ step.small, sums=gram.sums @ inverse)


@dataclass(frozen=True, slots=True)
class Triangle:
    """R of some rows, their Q's column sums, and the multiplier of each part's Q within their Q."""

    r: Matrix
    sums: Matrix
    parts: tuple[Matrix, ...] = ()


def _joined_triangles(triangles: Sequence[Triangle | None]) -> Triangle | None:
    present = [triangle for triangle in triangles if triangle is not None]
    if not present:
        return None
    xp = namespace(present[0].r)
    q, r = xp.linalg.qr(xp.concatenate([triangle.r for triangle in present]))
    parts = tuple(q[part] for part in slices([len(triangle.r) for triangle in present]))
    return Triangle(r, sum(each.sums @ part for each, part in zip(present, parts, strict=True)), parts)


@dataclass(frozen=True, slots=True)
class Last:
    """Multipliers of each block, and the small factors. `turn` is Householder's Q, relative to that of all parts."""

    multipliers: tuple[Matrix, ...]
    turn: Matrix | None
    s: Matrix
    right: Matrix
    rows: int
    filled: int


def _last(step: Step, triangle: Triangle | None, finish: Finish, signs: Signs) -> Last:
    """Return the SVD (or QR) of the small factor, with its signs made definite."""
    small, sums = (step.small, step.sums) if triangle is None else (triangle.r, triangle.sums)
    xp = namespace(small)
    u, s, right = xp.linalg.svd(small, full_matrices=False) if finish == "svd" else _small_qr(small)
    if signs is not None:
        flip = xp.where((right.sum(axis=1) if signs == "right" else sums @ u).real >= 0, 1.0, -1.0)
        u, right = u * flip, flip[:, None] * right
    if triangle is not None:
        return Last((), u, s, right, step.rows, 0)
    # The last multiplier is well conditioned, so that it and u may be made one.
    return Last((*step.multipliers[:-1], step.multipliers[-1] @ u), None, s, right, step.rows, step.filled)


def _turn(joined: Triangle | None, place: int, above: Any) -> Matrix | None:
    """Return the multiplier of one part's Q, from that of all parts: `above`, or its `turn`."""
    if joined is None:
        return None
    turned: Matrix = joined.parts[place] @ (above.turn if isinstance(above, Last) else above)
    return turned


def _small_qr(matrix: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return Q, R's diagonal and R, with a diagonal that is real and ≥ 0."""
    xp = namespace(matrix)
    q, r = xp.linalg.qr(matrix)
    diagonal = xp.diagonal(r)
    size = abs(diagonal)
    phase = xp.where(size > 0, diagonal / xp.where(size > 0, size, 1), 1)
    return q * phase, size, phase.conj()[:, None] * r


# --- the work on a block -----------------------------------------------------------------------------------------
# Products are computed again for each purpose: a tile's are in cache, and writing new memory costs more.


def _turned(
    block: Any, multipliers: Sequence[Any], rows: int, random: Any = None, lost: Any = None
) -> Iterator[tuple[slice, Any]]:
    """Return the block's tiles times the multipliers, in double precision; each is overwritten by the next one.

    `random` replaces as many columns of the first result; their squares are added to `lost`.
    """
    work, xp = working_dtype(block.dtype), namespace(block)
    height = block.shape[0] if on_device(block) else min(rows, block.shape[0])
    # Allocating memory for each tile would take a third of the time of its product.
    products = [xp.empty((height, multiplier.shape[1]), dtype=work) for multiplier in multipliers]
    for part in tiles(block, rows):
        x = block[part].astype(work, copy=False)
        for number, (multiplier, product) in enumerate(zip(multipliers, products, strict=True)):
            x = xp.matmul(x, multiplier, out=product[: x.shape[0]])
            if random is not None and not number:
                nothing = x[:, -random.shape[1] :]
                if lost is not None:
                    lost += (abs(nothing) ** 2).sum()
                nothing[...] = random[part]
        yield part, x


def _random(block: Any, index: int, of: Step | Last) -> Any:
    """Return the same random columns each time, of length about one over all blocks; None where none are needed."""
    if not of.filled:
        return None
    drawn = np.random.default_rng([index, 1]).standard_normal((block.shape[0], of.filled))
    return to_device_of(drawn / np.sqrt(of.rows), block)


def _gram(block: Any, step: Step, index: int, with_sums: bool) -> Total | None:
    """Return the Gram matrix of a block times the multipliers so far; None where the decision has been taken."""
    if step.route != "turn":
        return None
    block = dense(block)
    xp, n = namespace(block), block.shape[1]
    work = working_dtype(block.dtype)
    total, sums, lost = xp.zeros((n, n), dtype=work), xp.zeros(n, dtype=work), xp.zeros(())
    for _, y in _turned(block, step.multipliers, tile_rows(2 * n), _random(block, index, step), lost):
        total += y.conj().T @ y if work.kind == "c" else y.T @ y
        if with_sums:
            sums += y.sum(axis=0)
    # Reading a number waits for the GPU.
    return Total(total, sums, block.shape[0], float(lost) if step.filled else 0.0)


def _triangle(block: Any, step: Step) -> Triangle | None:
    """Return the block's R, and the column sums of its Q, if only Householder's method is left."""
    if step.route != "tsqr":
        return None
    q, r = _householder(dense(block))
    return Triangle(r, q.sum(axis=0))


def _householder(block: Any) -> tuple[Any, Any]:
    """Return Q and R of a block, from its tiles."""
    xp, n, work = namespace(block), block.shape[1], working_dtype(block.dtype)
    pieces = [xp.linalg.qr(block[part].astype(work)) for part in tiles(block, max(8 * n, tile_rows(n)))]
    if not pieces:
        return xp.zeros((0, 0), dtype=work), xp.zeros((0, n), dtype=work)
    if len(pieces) == 1:
        return pieces[0]
    top, r = xp.linalg.qr(xp.concatenate([triangle for _, triangle in pieces]))
    ends = np.cumsum([triangle.shape[0] for _, triangle in pieces])
    q = [piece @ top[end - piece.shape[1] : end] for (piece, _), end in zip(pieces, ends, strict=True)]
    return xp.concatenate(q), r


def _left(block: Any, last: Last, turn: Matrix | None, index: int, dtype: str) -> Any:
    """Return a block of u."""
    block = dense(block)
    factors = last.multipliers
    random = _random(block, index, last)
    if turn is not None:
        q, _ = _householder(block)
        block, factors = q, (turn,)
    columns = factors[-1].shape[1]
    u = namespace(block).empty((block.shape[0], columns), dtype=np.dtype(dtype))
    direct = u.dtype == working_dtype(block.dtype)
    for part, y in _turned(block, factors[:-1], tile_rows(2 * columns), random):
        if direct:
            namespace(block).matmul(y, factors[-1], out=u[part])
        else:
            u[part] = y @ factors[-1]
    return u


def _values(last: Last, dtype: str) -> Any:
    kind, largest = np.finfo(np.dtype(dtype)), float(last.s.real.max()) if last.s.size else 0.0
    if not largest <= float(kind.max) or 0 < largest < float(kind.tiny):
        remedy = "Divide the array by a constant first, such as 1e100"
        if kind.dtype == np.float32:
            remedy = "Convert it to float64 first, or ask for the first k values only (svd_compressed)"
        raise ArrayError(
            f"The largest singular value, {largest:.3g}, is out of the range of {kind.dtype}, which the array has. "
            f"{remedy}."
        )
    return last.s.real.astype(kind.dtype)


def _right(last: Last, dtype: str) -> Any:
    return last.right.astype(np.dtype(dtype))


def _orthogonality(gram: Any) -> float:
    """Return ‖G − I‖₂ of a Gram matrix; infinite where it isn't finite."""
    xp = namespace(gram)
    if not xp.isfinite(gram).all():
        return float("inf")
    if not gram.size:
        return 0.0
    return float(abs(xp.linalg.eigvalsh(gram) - 1).max())
