"""Estimates of data moved, work and memory for each workload, from its parameters alone.

Estimates of memory are upper bounds of measured peaks, and less than 1.5 times most of them: growth of worker
processes, one to two workers of one or two threads, November 2026. A test repeats the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import formats
from workbench.workloads.sizes import number_of_blocks
from workbench.workloads.values import Needs

_EXACT_COLUMNS = 64
"""Number of columns up to which workbench.linalg computes all at once (krylov.EXACT)."""
_MOST_PASSES = 25
"""Passes of svd_compressed, PCA and genotypes.pca: their `max_passes`, and one more if the first shows its use."""
_GRAM_COLUMNS, _GRAM_PER_COLUMN, _GRAM_TILE = 4096, 100, 2**26
"""Number of columns up to which the first pass finds AᵀA, and the bytes of its tiles (linalg.passes)."""
_WITH_GRAM = 3
"""Number of passes in that case."""


@dataclass(frozen=True)
class Matrix:
    """An array in blocks, as a workload uses it."""

    rows: int
    columns: int
    block_rows: int
    block_columns: int
    dtype: np.dtype[Any]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.rows * self.columns

    @property
    def n_bytes(self) -> int:
        """Bytes in total."""
        return self.elements * self.dtype.itemsize

    @property
    def block_elements(self) -> int:
        """Number of elements in a block."""
        return self.block_rows * self.block_columns

    @property
    def block(self) -> int:
        """Bytes of a block."""
        return self.block_elements * self.dtype.itemsize

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return number_of_blocks((self.rows, self.columns), (self.block_rows, self.block_columns))

    @property
    def made(self) -> int:
        """Bytes held while a block is made: the generator's float64 and the result."""
        return self.block + (self.block_elements * 8 if self.dtype == np.float32 else 0)

    def needs(self, *, held: int, kept: int = 0, passes: int = 1, **others: Any) -> Needs:
        """Return the needs of passes over it: `held` is in use in one worker at once while `kept` stays."""
        return Needs.of(held=held, kept=kept, passes=passes, input_bytes=self.n_bytes, **others)


def _on_all(kept: int, held: int) -> str:
    return f"about {formats.size(kept + held)} on all workers, {formats.size(held)} of it in one at a time."


def matrix(resolved: Mapping[str, Any]) -> Matrix:
    """Return the array of a workload's parameters."""
    (rows, columns), (block_rows, block_columns) = resolved["shape"], resolved["chunks"]
    return Matrix(rows, columns, min(block_rows, rows), min(block_columns, columns), np.dtype(resolved["dtype"]))


def svd(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate the SVD of a random array that is made."""
    x = matrix(resolved)
    return _svd(x, resolved, x.made, threads_per_worker, "Makes")


def svd_of_file(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate the SVD of an array that is read."""
    x = matrix(resolved)
    read = math.prod(resolved["blocks"]) * x.dtype.itemsize
    # A block as stored, which may be mapped into memory, and as computed with.
    needs = _svd(x, resolved, 2 * max(read, x.block), threads_per_worker, "Reads")
    return needs.model_copy(update={"on_host": 2 * read * threads_per_worker})


def _svd(x: Matrix, resolved: Mapping[str, Any], in_task: int, threads_per_worker: int, verb: str) -> Needs:
    ours = resolved["method"] == "workbench"
    if resolved.get("k") is None:
        return (_orthonormalized if ours else _exact)(x, in_task, threads_per_worker, verb)
    return (_certified if ours else _approximate)(x, resolved, in_task, threads_per_worker, verb)


def _exact(x: Matrix, in_task: int, threads_per_worker: int, verb: str) -> Needs:
    """Estimate one pass; the orthogonal factor of each block stays until the small factors are decomposed."""
    small = min(x.rows, x.columns)
    itemsize = x.dtype.itemsize
    stack = x.n_blocks * small * small * itemsize
    # NumPy decomposes float32 in float64: the block, a copy, its factor, and the factor as it is stored.
    block = x.block_elements * 8
    decomposing = in_task + 2 * block + (x.block if itemsize == 8 else 2 * x.block)
    # The check compares four blocks with their products, and one worker may get all of them.
    checking = (5 + 3 * threads_per_worker) * x.block + in_task * threads_per_worker
    held = max(decomposing * threads_per_worker, checking, 3 * stack)
    stays = x.n_bytes + stack
    return x.needs(
        held=held,
        kept=stays,
        received=x.block,
        sentence=f"{verb} {formats.size(x.n_bytes)} in one pass. The factors, as large as the array, stay in memory: "
        f"{_on_all(stays, held)}",
    )


def _approximate(x: Matrix, resolved: Mapping[str, Any], in_task: int, threads_per_worker: int, verb: str) -> Needs:
    """Estimate two passes and two for each power iteration."""
    width = min(max(20, resolved["k"] + 10), x.rows, x.columns)  # da.linalg.compression_level
    iterations, again = resolved["n_power_iter"], resolved["compute"]
    passes = 2 + 2 * iterations
    products = 3 * width * (x.rows + x.columns) * 8
    # NumPy multiplies whole numbers as float64, and the check squares all numbers as float64.
    copy = x.block_elements * 8
    in_product = x.block + (2 * copy if x.dtype.kind != "f" else 0)
    checking = in_task + 5 * copy // 2
    times = threads_per_worker
    held = max(in_task, in_product, checking) * times + products // 8
    with_kept = max(in_task, in_product) * times + products // 8
    stays = 0 if again else x.n_bytes
    hold = (
        f"{verb} it again at each pass"
        if again
        else "The array is held in memory (compute=true makes or reads it again instead)"
    )
    return x.needs(
        passes=passes,
        held=held,
        kept=products + stays,
        with_kept=with_kept,
        received=x.block,
        n_rounds=passes,
        sentence=f"Goes through {formats.size(x.n_bytes)} {passes} times, and once more for the check. {hold}: "
        f"{_on_all(products + stays, held)}",
    )


def _orthonormalized(x: Matrix, in_task: int, threads_per_worker: int, verb: str) -> Needs:
    """Estimate the Cholesky QR of workbench.linalg: each block waits for its block of U."""
    from workbench.linalg.tall import small_bytes

    small = min(x.rows, x.columns)
    checking = (5 + 3 * threads_per_worker) * x.block + in_task * threads_per_worker
    held = max((in_task + 2 * x.block_elements * 8) * threads_per_worker, checking, small_bytes(small))
    stays = x.n_bytes + 8 * x.n_blocks * small * small
    return x.needs(
        held=held,
        kept=stays,
        received=x.block,
        n_rounds=2,
        sentence=f"{verb} {formats.size(x.n_bytes)} in one pass. The array waits in memory until U, as large, "
        f"takes its place: {_on_all(stays, held)}",
    )


def expected_passes(tol: float, rows: float = 20, columns: float = 1, width: float = 0) -> int:
    """Return the passes needed for an accuracy, as measured for random numbers, the hardest case.

    Singular values of random numbers lie closer together if the array is less square (Marchenko and Pastur,
    1967), which saves as many passes as a larger `tol` does. Blocks of `width` columns finally fill the space of all
    `columns`; 0 means too many columns for that.
    """
    spread = math.sqrt(min(rows, columns) / max(rows, columns) * 20)
    passes = max(3, round(3 + 8 * math.log10(0.05 * spread / tol)))
    full = 1 + math.ceil(0.7 * min(rows, columns) / width) if width else 24
    return min(24, passes, max(3, full))


def times_gone_through(passes: int) -> str:
    """Return a message about the passes: one is enough, or their largest number.

    `expected_passes` may be off by a factor of two: it is used for times, and not shown.
    """
    return "once" if passes == 1 else f"at most {_MOST_PASSES} times"


def _certified(x: Matrix, resolved: Mapping[str, Any], in_task: int, threads_per_worker: int, verb: str) -> Needs:
    """Estimate the block Krylov method of workbench.linalg: fused passes over rows of blocks, up to the accuracy."""
    long, short = max(x.rows, x.columns), min(x.rows, x.columns)
    width = min(max(16, resolved["k"] + 10), short)
    passes = 1 if short <= max(_EXACT_COLUMNS, width) else expected_passes(resolved["tol"], long, short, width)
    if resolved.get("axis") == 0:
        long, short = x.rows, x.columns
    most = min(_GRAM_COLUMNS, _GRAM_PER_COLUMN * width) if not resolved["compute"] else _GRAM_COLUMNS
    with_gram = passes > 1 and short <= most
    passes = min(passes, _WITH_GRAM) if with_gram else passes
    height = x.block_rows if long == x.rows else x.block_columns
    row_of_blocks = min(height * short * x.dtype.itemsize, 2**28)
    row_made = row_of_blocks * max(in_task, x.block) // x.block
    # Tiles and narrow factors in floating point; the check turns sampled rows of blocks into floating point.
    factors = 3 * width * (height + 2 * short) * 8
    checking = (row_of_blocks // x.dtype.itemsize) * (8 if x.dtype.kind != "f" else 0) + 2 * row_of_blocks
    squared = 12 * short**2 + 1.5 * min(_GRAM_TILE, height * short * 8) if with_gram else 0
    held = max(row_made + factors + int(squared) + 4_000_000, checking) * threads_per_worker
    products = 2 * resolved["k"] * long * 8
    stays = 0 if resolved["compute"] else x.n_bytes
    hold = f"{verb} it again at each pass" if resolved["compute"] else "The array is held in memory"
    return x.needs(
        passes=passes,
        held=held,
        kept=products + stays,
        received=row_of_blocks,
        n_rounds=passes + 2,
        sentence=f"Goes through {formats.size(x.n_bytes)} {times_gone_through(passes)}, until the accuracy of "
        f"{resolved['tol']:g} is reached, and once more for the check. {hold}: "
        f"{_on_all(products + stays, held)}",
    )


def with_input(estimate: Callable[..., Needs], threads_per_worker: int, **resolved: Any) -> Needs:
    """Add the array itself if it is held first, and isn't counted already."""
    needs = estimate(threads_per_worker, **resolved)
    if not resolved["persist"] or not resolved.get("compute", True):
        return needs
    size = formats.size(needs.input_bytes)
    return needs.model_copy(
        update={
            "held_total": needs.held_total + needs.input_bytes,
            "kept": None if needs.kept is None else needs.kept + needs.input_bytes,
            "sentence": f"{needs.sentence} The array is made first and held, {size} more.",
        }
    )
