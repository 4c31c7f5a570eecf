"""What each workload moves and what must fit in memory, from its parameters alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from dask.utils import format_bytes

from workbench.workloads.sizes import number_of_blocks
from workbench.workloads.values import Needs


def streaming_sum(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass in which blocks are made and forgotten."""
    n_bytes, block, count = _random_array(resolved)
    # The block, `x + 1`, and what the generator needs meanwhile.
    held = 3 * block * threads_per_worker
    return Needs(
        input_bytes=n_bytes,
        output_bytes=np.dtype(resolved["dtype"]).itemsize,
        bytes_processed=n_bytes,
        passes=1,
        held_per_worker=held,
        held_total=held,
        n_tasks=2 * count,
        sentence=f"Makes {format_bytes(n_bytes)} in one pass and forgets each block: "
        f"{format_bytes(held)} in a worker at a time is enough.",
    )


def transposed_sum(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass in which a block waits for the one across the diagonal."""
    n_bytes, block, count = _random_array(resolved)
    held = 4 * block * threads_per_worker
    # One worker held a fifth of the array when measured; several, which wait for each other, hold more.
    total = max(held, n_bytes // 2)
    return Needs(
        input_bytes=n_bytes,
        output_bytes=np.dtype(resolved["dtype"]).itemsize,
        bytes_processed=n_bytes,
        passes=1,
        held_per_worker=held,
        held_total=total,
        n_tasks=3 * count,
        sentence=f"Makes {format_bytes(n_bytes)} in one pass; blocks wait for those across the diagonal, so up to "
        f"{format_bytes(total)} on all workers together, and nearly all of it travels.",
    )


def _random_array(resolved: Mapping[str, Any]) -> tuple[int, int, int]:
    """Bytes of the array, bytes of a block, number of blocks."""
    itemsize = np.dtype(resolved["dtype"]).itemsize
    shape, chunks = tuple(resolved["shape"]), tuple(resolved["chunks"])
    return math.prod(shape) * itemsize, math.prod(chunks) * itemsize, number_of_blocks(shape, chunks)


def exact_svd(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass; the orthogonal factor of each block stays until the small factors are decomposed."""
    n_bytes, block, count = _random_array(resolved)
    return _exact(resolved["shape"], n_bytes, block, count, threads_per_worker, "Makes")


def approximate_svd(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """Two passes and two for each power iteration."""
    n_bytes, block, count = _random_array(resolved)
    return _approximate(resolved, n_bytes, block, count, threads_per_worker, "Makes")


def svd_of_file(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """As for random arrays, with reading and centring."""
    n_bytes, block, count = _random_array(resolved)
    read = math.prod(resolved["blocks"]) * np.dtype(resolved["dtype"]).itemsize
    block = max(block, read)
    if resolved["k"] is None:
        return _exact(resolved["shape"], n_bytes, block, count, threads_per_worker, "Reads")
    return _approximate(resolved, n_bytes, block, count, threads_per_worker, "Reads")


def _exact(shape: Any, n_bytes: int, block: int, count: int, threads_per_worker: int, verb: str) -> Needs:
    small = min(shape)
    itemsize = n_bytes // math.prod(shape)
    stack = count * small * small * itemsize
    # The factors of all blocks are stacked in one worker, which decomposes them and holds the result as well.
    held = max(4 * block * threads_per_worker, 3 * stack)
    # Measured with one worker: 1.5 times the array in blocks of a seventh or a twenty-fifth of it.
    total = n_bytes * 5 // 4 + held
    return Needs(
        input_bytes=n_bytes,
        output_bytes=n_bytes + small * itemsize + small * small * itemsize,
        bytes_processed=n_bytes,
        passes=1,
        held_per_worker=held,
        held_total=total,
        n_tasks=8 * count,
        sentence=f"{verb} {format_bytes(n_bytes)} in one pass. The factors, as large as the array, stay in memory: "
        f"about {format_bytes(total)} on all workers together, and {format_bytes(held)} in one worker at a time.",
    )


def _approximate(
    resolved: Mapping[str, Any], n_bytes: int, block: int, count: int, threads_per_worker: int, verb: str
) -> Needs:
    rows, columns = resolved["shape"]
    width = min(max(20, resolved["k"] + 10), rows, columns)  # da.linalg.compression_level
    passes = 2 + 2 * resolved["n_power_iter"]
    products = 3 * width * (rows + columns) * 8
    stored = np.dtype(resolved["dtype"])
    copy = 0 if stored.kind == "f" else block // stored.itemsize * 8  # NumPy multiplies whole numbers as float64.
    held = (3 * block + copy) * threads_per_worker
    total = held + products + (0 if resolved["compute"] else n_bytes)
    hold = (
        f"{verb} it again at each pass"
        if resolved["compute"]
        else "The array is held in memory (compute=true makes or reads it again instead)"
    )
    return Needs(
        input_bytes=n_bytes,
        output_bytes=resolved["k"] * (rows + columns + 1) * 8,
        bytes_processed=passes * n_bytes,
        passes=passes,
        held_per_worker=held,
        held_total=total,
        n_tasks=(passes + 1) * 3 * count,
        sentence=f"Goes through {format_bytes(n_bytes)} {passes} times, and once more for the check. {hold}: about "
        f"{format_bytes(total)} on all workers together, and {format_bytes(held)} in one worker at a time.",
    )
