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
    return Needs(
        input_bytes=n_bytes,
        output_bytes=np.dtype(resolved["dtype"]).itemsize,
        bytes_processed=n_bytes,
        passes=1,
        held_per_worker=held,
        held_total=max(held, n_bytes),
        n_tasks=3 * count,
        sentence=f"Makes {format_bytes(n_bytes)} in one pass; blocks wait for those across the diagonal, so up to "
        f"{format_bytes(max(held, n_bytes))} on all workers together, and nearly all of it travels.",
    )


def _random_array(resolved: Mapping[str, Any]) -> tuple[int, int, int]:
    """Bytes of the array, bytes of a block, number of blocks."""
    itemsize = np.dtype(resolved["dtype"]).itemsize
    shape, chunks = tuple(resolved["shape"]), tuple(resolved["chunks"])
    return math.prod(shape) * itemsize, math.prod(chunks) * itemsize, number_of_blocks(shape, chunks)
