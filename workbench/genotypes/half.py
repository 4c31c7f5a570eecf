"""The products of `device` in float16 on tensor cores, for those who ask: what their sums round has not been measured.

Counts are exact in float16. What they are multiplied by is cut into two parts of 11 bits each, over a power of two for
each column, so that it is as good as float32. Where nothing is known a count is 0, and a second product, with which are
unknown, puts the site's mean there. float64, and what isn't on a device, are left to `device`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from workbench.genotypes import device, kernels
from workbench.genotypes.device import (
    LARGEST_BLOCK as LARGEST_BLOCK,
    counted as counted,
    oversamples as oversamples,
    projected as projected,
)
from workbench.genotypes.kernels import ROWS_IN_SINGLE, Narrow, arranged as arranged, gathered as gathered
from workbench.genotypes.packing import PER_BYTE
from workbench.linalg.blocks import beside, host, namespace, on_device
from workbench.linalg.cuda import THREADS, grid, kernel

Matrix = np.ndarray[Any, Any]

# Upper bytes, in float16, of what the codes 0 to 3 mean: copies, and whether nothing is known.
_COPIES, _UNKNOWN = 0x00403C00, 0x3C000000
_PARTS, _BITS = 2, 11
_R_32F, _R_16F = 0, 2  # cudaDataType


def normal(packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    """ÃᵀÃ Q of a block in our codes, in float64: (n_samples, columns)."""
    if q.planes.dtype != np.float32 or not on_device(packed):
        return device.normal(packed, sites, q)
    xp, (height, n_bytes), width = namespace(packed), packed.shape, q.planes.shape[2]
    groups = device.groups_of(n_bytes)
    step = device.rows_of(groups, 2)
    buffers = xp.empty((2, max(1, min(height, step)), PER_BYTE * groups), np.float16)
    right = np.zeros((PER_BYTE * groups, width), np.float32)
    right[: PER_BYTE * n_bytes] = kernels.by_samples(q.planes)
    parts, ones = _split(beside(right, packed)), beside(q.ones.astype(np.float32), packed)
    means, factors = kernels.rounded(packed, sites, q)
    total, shift = xp.zeros((PER_BYTE * groups, width)), xp.zeros(width)
    packed = xp.ascontiguousarray(packed)
    for start in range(0, height, step):
        rows = slice(start, min(start + step, height))
        mean, n = means[rows], rows.stop - start
        missing = bool((sites[rows, 2] != 0).any())
        x, unknown = (buffer[:n] for buffer in buffers)
        for table, into in ((_COPIES, x), (_UNKNOWN, unknown))[: 1 + missing]:
            parameters = (packed[rows], n_bytes, n, table, into, groups)
            kernel("decode_float16")(grid(groups, n), (THREADS,), parameters)
        y = _product(xp, x, parts) - mean * ones
        if missing:
            y += mean * _product(xp, unknown, parts)
        y *= factors[rows] ** 2
        shift += (mean * y).sum(axis=0, dtype=np.float64)
        for first in range(0, n, ROWS_IN_SINGLE):
            few = slice(first, first + ROWS_IN_SINGLE)
            total += _product(xp, x[few], _split(y[few]), transposed=True)
            if missing:
                total += _product(xp, unknown[few], _split(mean[few] * y[few]), transposed=True)
    return host(total)[: q.n_samples] - host(shift)


def _split(a: Any) -> tuple[Any, Any]:
    """Parts of a matrix in float16 side by side, and what each column of them is to be multiplied by."""
    xp, (height, width) = namespace(a), a.shape
    largest = abs(a).max(axis=0)
    # Of zeros alone 1, of others the power of two above: dividing by it rounds nothing.
    unit = xp.ldexp(xp.ones_like(largest), xp.frexp(largest)[1])
    rest, parts = a / unit, xp.empty((height, _PARTS, width), np.float16)
    for i in range(_PARTS):
        parts[:, i] = rest
        rest = (rest - parts[:, i]) * np.float32(2**_BITS)
    units = unit * xp.asarray(np.float32(2.0) ** (-_BITS * np.arange(_PARTS, dtype=np.float32))[:, None])
    return parts.reshape(height, -1), units


def _product(xp: Any, x: Any, by: tuple[Any, Any], *, transposed: bool = False) -> Any:
    """`x`, or its transpose, times a matrix in parts, with sums in float32."""
    cublas, (parts, units) = import_module("cupy_backends.cuda.libs.cublas"), by
    height, inner = x.shape[::-1] if transposed else x.shape
    found = xp.empty((height, parts.shape[1]), np.float32)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    # cuBLAS counts by columns: to it each of ours is its transpose, and so is the product.
    cublas.gemmEx(
        import_module("cupy").cuda.device.get_cublas_handle(),
        cublas.CUBLAS_OP_N,
        cublas.CUBLAS_OP_T if transposed else cublas.CUBLAS_OP_N,
        parts.shape[1],
        height,
        inner,
        one.ctypes.data,
        parts.data.ptr,
        _R_16F,
        parts.shape[1],
        x.data.ptr,
        _R_16F,
        x.shape[1],
        zero.ctypes.data,
        found.data.ptr,
        _R_32F,
        parts.shape[1],
        cublas.CUBLAS_COMPUTE_32F,
        cublas.CUBLAS_GEMM_DEFAULT,
    )
    return (found.reshape(height, *units.shape) * units).sum(axis=1)
