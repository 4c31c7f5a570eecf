"""What each workload moves, does, and must fit in memory, from its parameters alone.

Memory is stated so that no worker was seen to need more, and less than half as much again as most did: peaks of worker
processes over what they held before, one to two workers of one or two threads, November 2026. A test measures it anew.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import formats
from workbench.hardware.rates import qr_operations
from workbench.workloads.sizes import number_of_blocks
from workbench.workloads.values import Needs

Work = dict[str, float]


_QR_COLUMNS = (20, 100, 400)
_EXACT_COLUMNS = 64
"""Up to so many columns workbench.linalg computes all at once (krylov.EXACT)."""
_MOST_PASSES = 25
"""Of svd_compressed, PCA and genotypes.pca: their `max_passes`, and one more where the first shows that it helps."""
_GRAM_COLUMNS, _GRAM_PER_COLUMN, _GRAM_TILE = 4096, 100, 2**26
"""Up to so many columns the first pass finds AᵀA, and of how many bytes its tiles are (linalg.passes)."""
_WITH_GRAM = 3
"""Passes, where that is so."""
_THIN_COLUMNS = 20
_SQUARE_COLUMNS = 400


@dataclass(frozen=True)
class Matrix:
    """Array in blocks, as a workload has it."""

    rows: int
    columns: int
    block_rows: int
    block_columns: int
    dtype: np.dtype[Any]

    @property
    def elements(self) -> int:
        """How many numbers."""
        return self.rows * self.columns

    @property
    def n_bytes(self) -> int:
        """Of all of it."""
        return self.elements * self.dtype.itemsize

    @property
    def block_elements(self) -> int:
        """Numbers in a block."""
        return self.block_rows * self.block_columns

    @property
    def block(self) -> int:
        """Bytes of a block."""
        return self.block_elements * self.dtype.itemsize

    @property
    def n_blocks(self) -> int:
        """How many blocks."""
        return number_of_blocks((self.rows, self.columns), (self.block_rows, self.block_columns))

    @property
    def made(self) -> int:
        """Bytes held while a block is made: the generator's float64 beside what it becomes."""
        return self.block + (self.block_elements * 8 if self.dtype == np.float32 else 0)

    @property
    def rounded(self) -> int:
        """Bytes written to turn all that the generator makes, in float64, into what is asked for."""
        return self.n_bytes if self.dtype == np.float32 else 0

    def needs(self, *, held: int, kept: int = 0, passes: int = 1, **others: Any) -> Needs:
        """What passes over it need, of which `held` is in hand in one worker at once while `kept` stays."""
        sizes = {"input_bytes": self.n_bytes, "n_blocks": self.n_blocks, **others}
        return Needs.of(held=held, kept=kept, passes=passes, **sizes)


def _on_all(kept: int, held: int) -> str:
    return f"about {formats.size(kept + held)} on all workers, {formats.size(held)} of it in one at a time."


def matrix(resolved: Mapping[str, Any]) -> Matrix:
    """The array of a workload's parameters."""
    (rows, columns), (block_rows, block_columns) = resolved["shape"], resolved["chunks"]
    return Matrix(rows, columns, min(block_rows, rows), min(block_columns, columns), np.dtype(resolved["dtype"]))


def svd(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """Of a random array that is made."""
    x = matrix(resolved)
    work: Work = {"integers" if x.dtype == np.uint8 else "uniform": x.elements, "write": x.rounded}
    return _svd(x, resolved, x.made, work, threads_per_worker, "Makes")


def svd_of_file(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """As for random arrays, with reading and centring."""
    x = matrix(resolved)
    read = math.prod(resolved["blocks"]) * x.dtype.itemsize
    work: Work = {"read": 2 * x.n_bytes}
    if resolved["k"] is None or resolved["method"] == "dask":
        centred = x.n_bytes if resolved["center"] else 0
        work = {"write": 2 * x.n_bytes + centred, "read": 2 * x.n_bytes + centred}
    # A block as it is stored, which may be mapped into memory, and as it is worked on.
    needs = _svd(x, resolved, 2 * max(read, x.block), work, threads_per_worker, "Reads")
    again = resolved["k"] is not None and not resolved["keep"]
    times_read = needs.passes + (resolved["method"] == "workbench") if again else 1
    n_read = number_of_blocks((x.rows, x.columns), resolved["blocks"])
    # Blocks that are read in other pieces than those that are worked on are cut and put together; eofs counts its own.
    other = "slabs" not in resolved and tuple(resolved["blocks"]) != tuple(resolved["chunks"])
    cut = times_read * 2 * (n_read + x.n_blocks) if other else 0
    more = {"n_tasks": needs.n_tasks + cut, "n_stored": times_read * resolved.get("n_stored", 0)}
    return needs.model_copy(update={"on_host": 2 * read * threads_per_worker, **more})


def _svd(x: Matrix, resolved: Mapping[str, Any], taken: int, work: Work, threads_per_worker: int, verb: str) -> Needs:
    ours = resolved["method"] == "workbench"
    if resolved.get("k") is None:
        return (_orthonormalised if ours else _exact)(x, taken, work, threads_per_worker, verb)
    return (_certified if ours else _approximate)(x, resolved, taken, work, threads_per_worker, verb)


def _exact(x: Matrix, taken: int, work: Work, threads_per_worker: int, verb: str) -> Needs:
    """One pass; the orthogonal factor of each block stays until the small factors are decomposed."""
    small = min(x.rows, x.columns)
    itemsize = x.dtype.itemsize
    stack = x.n_blocks * small * small * itemsize
    # NumPy decomposes float32 in float64: the block, a copy, its factor, and the factor as it is kept.
    block = x.block_elements * 8
    decomposing = taken + 2 * block + (x.block if itemsize == 8 else 2 * x.block)
    # The check compares four blocks with their products, and one worker may get all of them.
    checking = (5 + 3 * threads_per_worker) * x.block + taken * threads_per_worker
    held = max(decomposing * threads_per_worker, checking, 3 * stack)
    stays = x.n_bytes + stack
    return x.needs(
        held=held,
        kept=stays,
        received=x.block,
        n_tasks=several(7, x.n_blocks) + 13,
        work=_sum(
            work,
            _qr(x.elements / small, small),
            _product(2 * x.elements * small, small, "f32" if itemsize == 4 else "f64"),
            {"write": 2 * x.n_bytes},
        ),
        serial=_sum(_qr(x.n_blocks * small, small), {"svd": small**3}),
        moved=stack,
        sentence=f"{verb} {formats.size(x.n_bytes)} in one pass. The factors, as large as the array, stay in memory: "
        f"{_on_all(stays, held)}",
    )


def _approximate(
    x: Matrix, resolved: Mapping[str, Any], taken: int, work: Work, threads_per_worker: int, verb: str
) -> Needs:
    """Two passes and two for each power iteration."""
    width = min(max(20, resolved["k"] + 10), x.rows, x.columns)  # da.linalg.compression_level
    iterations, again = resolved["n_power_iter"], resolved["compute"]
    passes = 2 + 2 * iterations
    products = 3 * width * (x.rows + x.columns) * 8
    # NumPy multiplies whole numbers as float64, and the check squares all numbers as float64.
    copy = x.block_elements * 8
    in_product = x.block + (2 * copy if x.dtype.kind != "f" else 0)
    checking = taken + 5 * copy // 2
    times = threads_per_worker
    held = max(taken, in_product, checking) * times + products // 8
    beside = max(taken, in_product) * times + products // 8
    stays = 0 if again else x.n_bytes
    hold = (
        f"{verb} it again at each pass"
        if again
        else "The array is held in memory (compute=true makes or reads it again instead)"
    )
    kind = {"u": "u8", "i": "u8"}.get(x.dtype.kind, f"f{8 * x.dtype.itemsize}")
    gone_through = passes if again else 1
    across = _qr(x.rows, width) if iterations else {}
    return x.needs(
        passes=passes,
        held=held,
        kept=products + stays,
        beside_kept=beside,
        received=x.block,
        n_tasks=several(4 * passes + 5, x.n_blocks) + 30,
        n_rounds=passes,
        work=_sum(
            {name: gone_through * amount for name, amount in work.items()},
            _product(2 * passes * x.elements * width, width, kind),
            *([across] * (iterations + 1)),
        ),
        moved=passes * width * 8 * (x.rows + x.columns),
        sentence=f"Goes through {formats.size(x.n_bytes)} {passes} times, and once more for the check. {hold}: "
        f"{_on_all(products + stays, held)}",
    )


def _orthonormalised(x: Matrix, taken: int, work: Work, threads_per_worker: int, verb: str) -> Needs:
    """Cholesky QR of workbench.linalg: each block waits for its block of U."""
    from workbench.linalg.tall import small_bytes

    small = min(x.rows, x.columns)
    checking = (5 + 3 * threads_per_worker) * x.block + taken * threads_per_worker
    held = max((taken + 2 * x.block_elements * 8) * threads_per_worker, checking, small_bytes(small))
    stays = x.n_bytes + 8 * x.n_blocks * small * small
    return x.needs(
        held=held,
        kept=stays,
        received=x.block,
        n_tasks=several(7, x.n_blocks) + 13,
        n_rounds=2,
        # A sketch, a Gram matrix and two products, the first of which are symmetric.
        work=_sum(work, _product(6 * x.elements * small, small, "f64"), {"write": 2 * x.n_bytes}),
        serial={"svd": small**3},
        moved=8 * x.n_blocks * small * small,
        sentence=f"{verb} {formats.size(x.n_bytes)} in one pass. The array waits in memory until U, as large, "
        f"takes its place: {_on_all(stays, held)}",
    )


def expected_passes(tol: float, rows: float = 20, columns: float = 1, width: float = 0) -> int:
    """How often an array is gone through for an accuracy, as it was found for random numbers, the hardest case.

    Singular values of random numbers lie the closer together, the less square the array is (Marchenko and Pastur,
    1967), which leaves as little to find out as a larger `tol` does. Blocks of `width` columns fill the space of all
    `columns` at last; 0 is for so many columns that they don't.
    """
    spread = math.sqrt(min(rows, columns) / max(rows, columns) * 20)
    passes = max(3, round(3 + 8 * math.log10(0.05 * spread / tol)))
    full = 1 + math.ceil(0.7 * min(rows, columns) / width) if width else 24
    return min(24, passes, max(3, full))


def times_gone_through(passes: int) -> str:
    """What is known of the passes before: that one is enough, or how many there are at most.

    `expected_passes` may be off by a factor of two: it serves for times, and isn't said.
    """
    return "once" if passes == 1 else f"at most {_MOST_PASSES} times"


def _certified(
    x: Matrix, resolved: Mapping[str, Any], taken: int, work: Work, threads_per_worker: int, verb: str
) -> Needs:
    """Block Krylov of workbench.linalg: fused passes over rows of blocks, until the accuracy is reached."""
    long, short = max(x.rows, x.columns), min(x.rows, x.columns)
    width = min(max(16, resolved["k"] + 10), short)
    passes = 1 if short <= max(_EXACT_COLUMNS, width) else expected_passes(resolved["tol"], long, short, width)
    if resolved.get("axis") == 0:
        long, short = x.rows, x.columns
    most = min(_GRAM_COLUMNS, _GRAM_PER_COLUMN * width) if resolved["keep"] else _GRAM_COLUMNS
    with_gram = passes > 1 and short <= most
    passes = min(passes, _WITH_GRAM) if with_gram else passes
    height = x.block_rows if long == x.rows else x.block_columns
    row_of_blocks = min(height * short * x.dtype.itemsize, 2**28)
    row_made = row_of_blocks * max(taken, x.block) // x.block
    # Tiles and narrow factors in floating point; the check turns sampled rows of blocks into floating point.
    factors = 3 * width * (height + 2 * short) * 8
    checking = (row_of_blocks // x.dtype.itemsize) * (8 if x.dtype.kind != "f" else 0) + 2 * row_of_blocks
    squared = 12 * short**2 + 1.5 * min(_GRAM_TILE, height * short * 8) if with_gram else 0
    held = max(row_made + factors + int(squared) + 4_000_000, checking) * threads_per_worker
    products = 2 * resolved["k"] * long * 8
    stays = x.n_bytes if resolved["keep"] else 0
    gone_through = 1 if resolved["keep"] else passes + 1
    hold = "The array is held in memory" if resolved["keep"] else f"{verb} it again at each pass"
    kind = "u8" if x.dtype.kind in "iu" else f"f{8 * x.dtype.itemsize}"
    single = resolved["tol"] >= 1e-5
    n_rows = -(-long // height)
    return x.needs(
        passes=passes,
        held=held,
        kept=products + stays,
        received=row_of_blocks,
        n_tasks=several(1.15 * passes + 6.5, n_rows) + 3 * passes + x.n_blocks * gone_through,
        n_rounds=passes + 2,
        n_blocks=n_rows,
        work=_sum(
            {name: gone_through * amount for name, amount in work.items()},
            _product(4 * passes * x.elements * width, width, kind, fused=single),
            {"gemm_f32": x.elements * short} if with_gram else {},
        ),
        moved=2 * width * 8 * short * passes + (4 * short**2 * n_rows if with_gram else 0),
        sentence=f"Goes through {formats.size(x.n_bytes)} {times_gone_through(passes)}, until the accuracy of "
        f"{resolved['tol']:g} is reached, and once more for the check. {hold}: "
        f"{_on_all(products + stays, held)}",
    )


def several(tasks: float, n_blocks: int) -> int:
    """Tasks of a graph that has so many for each block, as counted in the graphs that Dask had optimised."""
    return math.ceil(tasks * n_blocks) + 1


def _sum(*parts: Work) -> Work:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return {name: float(amount) for name, amount in total.items() if amount}


def _qr(rows: float, columns: int) -> Work:
    """Work of a QR decomposition, told by the two widths that were measured between which it lies."""
    operations = qr_operations(rows, columns)
    if columns <= _QR_COLUMNS[0]:
        # So narrow ones take the time of passing through memory, which grows with the elements.
        return {"qr_20": operations * _QR_COLUMNS[0] / columns}
    if columns >= _QR_COLUMNS[-1]:
        return {"qr_400": operations}
    below, above = next(pair for pair in itertools.pairwise(_QR_COLUMNS) if columns <= pair[1])
    part = math.log(columns / below) / math.log(above / below)
    return {f"qr_{below}": operations * (1 - part), f"qr_{above}": operations * part}


def _product(operations: float, width: int, kind: str, *, fused: bool = False) -> Work:
    """Work of products one side of which has `width` columns: between a thin one and a square one.

    Fused ones, both products of a pass from the same tile, are made in float32 whatever is stored.
    """
    thin = f"{'fused' if fused else 'thin'}_{kind}"
    if width <= _THIN_COLUMNS:
        return {thin: operations * _THIN_COLUMNS / width}
    part = min(1.0, math.log(width / _THIN_COLUMNS) / math.log(_SQUARE_COLUMNS / _THIN_COLUMNS))
    square = "gemm_f32" if kind == "f32" or fused else "gemm_f64"
    return {thin: operations * (1 - part), square: operations * part}


def with_input(
    estimate: Callable[[Mapping[str, Any], int], Needs], resolved: Mapping[str, Any], threads_per_worker: int
) -> Needs:
    """Add the array itself where it is held first, and isn't counted already."""
    needs = estimate(resolved, threads_per_worker)
    if not resolved["persist"] or not resolved.get("compute", True):
        return needs
    more = formats.size(needs.input_bytes)
    return needs.model_copy(
        update={
            "held_total": needs.held_total + needs.input_bytes,
            "kept": None if needs.kept is None else needs.kept + needs.input_bytes,
            "sentence": f"{needs.sentence} The array is made first and held, {more} more.",
        }
    )
