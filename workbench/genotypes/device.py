"""The products of `kernels` on GPUs: rows are decoded by a kernel of ours, and multiplied by the device's library.

A tile is some thousand rows of floating point, with each row's mean behind its samples as in `kernels`, so that one
product centers, and another sums the centering terms. Blocks outside of devices are left to `kernels`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.genotypes import kernels
from workbench.genotypes.kernels import ROWS_IN_SINGLE, Narrow
from workbench.genotypes.packing import PER_BYTE
from workbench.linalg.cuda import THREADS, grid, kernel
from workbench.linalg.gpu import host, namespace, on_device, to_device_of

Matrix = np.ndarray[Any, Any]

# Dask needs a millisecond or more for a task; a GPU processes a block of this size in about 30 ms, by estimate.
LARGEST_BLOCK = 2**30
TILE_BYTES = 2**30
# Rows of tiles are padded to a multiple of this many groups of four float32: GPUs read 128 bytes at a time.
_ALIGNED = 8
# Threads that count a row, and rows in a block of threads.
_COUNTING = (32, 8)


def normal(packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    """Return ÃᵀÃ Q of a packed block, in float64: (n_samples, columns)."""
    if not on_device(packed):
        return kernels.normal(packed, sites, q)
    xp, n_bytes, width = namespace(packed), packed.shape[1], q.planes.shape[2]
    factors = kernels.rounded(packed, sites, q)[1]
    products_of_rows, squared = xp.empty((packed.shape[0], width), q.planes.dtype), factors * factors
    total = xp.zeros((width, PER_BYTE * groups_of(n_bytes)), np.float64)
    for x, y, part in _tiles(packed, sites, q, products_of_rows):
        y *= squared[part]
        # Add ROWS_IN_SINGLE rows in the precision of Q, and these sums in float64.
        whole = len(x) // ROWS_IN_SINGLE * ROWS_IN_SINGLE
        for rows, each in ((slice(whole), ROWS_IN_SINGLE), (slice(whole, None), len(x) - whole)):
            if len(x[rows]):
                sums = y[rows].reshape(-1, each, width).transpose(0, 2, 1) @ x[rows].reshape(-1, each, x.shape[1])
                total += sums.sum(axis=0, dtype=np.float64)
    found = host(total)
    return np.ascontiguousarray(found[:, : q.n_samples].T) - found[:, PER_BYTE * n_bytes]


def projected(packed: Any, sites: Matrix, q: Narrow) -> Any:
    """Return Ã Q of a packed block."""
    if not on_device(packed):
        return kernels.projected(packed, sites, q)
    result = namespace(packed).empty((packed.shape[0], q.planes.shape[2]), q.planes.dtype)
    for _ in _tiles(packed, sites, q, result):
        pass
    result *= kernels.rounded(packed, sites, q)[1]
    return result


def counted(packed: Any, n_samples: int) -> Matrix:
    """Count samples with 0, 1, 2 copies and missing ones in each row of a packed block: (rows, 4)."""
    if not on_device(packed):
        return kernels.counted(packed, n_samples)
    xp, (height, n_bytes) = namespace(packed), packed.shape
    copies = xp.zeros((height, 3), np.int32)
    parameters = (xp.ascontiguousarray(packed), n_bytes, height, int(kernels.last_byte(n_samples)), copies)
    kernel("count")((max(1, -(-height // _COUNTING[1])),), _COUNTING, parameters)
    counts = host(copies).astype(np.int64)
    return np.column_stack([n_samples - counts.sum(axis=1), counts])


def oversamples(k: int) -> int:
    """Return the columns beyond `k` that are worth their time: at least six, and up to the width of a device's tile."""
    return -(-(k + 6) // 16) * 16 - k


def tile_bytes(n_variants: int, n_samples: int, itemsize: int = 4) -> int:
    """Return the bytes of a tile of floating point, to plan memory."""
    groups = groups_of(-(-n_samples // PER_BYTE))
    return min(n_variants, rows_of(groups, itemsize)) * PER_BYTE * groups * itemsize


def groups_of(n_bytes: int) -> int:
    """Return the groups of four numbers in a row of a tile: those of its bytes, the mean's, and up to the next row."""
    return -(-(n_bytes + 1) // _ALIGNED) * _ALIGNED


def rows_of(groups: int, itemsize: int) -> int:
    """Return the rows of a tile: as many as its bytes allow, in whole sums of single precision."""
    rows = TILE_BYTES // (PER_BYTE * groups * itemsize)
    return max(1, rows // ROWS_IN_SINGLE * ROWS_IN_SINGLE or rows)


def _tiles(packed: Any, sites: Matrix, q: Narrow, out: Any) -> Iterator[tuple[Any, Any, slice]]:
    """Yield decoded rows, in a buffer that is used again; their X Q − μ 1ᵀQ is put into `out`."""
    xp, dtype, (height, n_bytes), width = namespace(packed), q.planes.dtype, packed.shape, q.planes.shape[2]
    groups = groups_of(n_bytes)
    rows = max(1, min(height, rows_of(groups, dtype.itemsize)))
    buffer = xp.empty((rows, PER_BYTE * groups), dtype)
    right = np.zeros((PER_BYTE * groups, width), dtype)
    right[: PER_BYTE * n_bytes] = kernels.by_samples(q.planes)
    right[PER_BYTE * n_bytes] = -q.ones
    factors, packed = to_device_of(right, packed), xp.ascontiguousarray(packed)
    means = xp.ascontiguousarray(kernels.rounded(packed, sites, q)[0][:, 0])
    for start in range(0, height, rows):
        part = slice(start, min(start + rows, height))
        n, y = part.stop - start, out[part]
        x = buffer[:n]
        parameters = (packed[part], n_bytes, n, means[part], x, groups)
        kernel(f"decode_{dtype}")(grid(groups, n), (THREADS,), parameters)
        xp.matmul(x, factors, out=y)
        yield x, y, part


DEVICE = replace(
    kernels.NUMPY,
    largest_block=LARGEST_BLOCK,
    normal=normal,
    counted=counted,
    projected=projected,
    oversamples=oversamples,
)
"""The functions of this module."""
