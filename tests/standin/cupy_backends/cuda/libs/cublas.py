"""The one function of cuBLAS that we call ourselves, on a processor."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT = 68, -1
_TYPES = {0: np.dtype("float32"), 2: np.dtype("float16")}  # CUDA_R_32F, CUDA_R_16F


def gemmEx(
    handle: int,
    transa: int,
    transb: int,
    m: int,
    n: int,
    k: int,
    alpha: int,
    a: int,
    type_a: int,
    lda: int,
    b: int,
    type_b: int,
    ldb: int,
    beta: int,
    c: int,
    type_c: int,
    ldc: int,
    compute: int,
    algorithm: int,
) -> None:
    """C = op(A) op(B) of matrices that are stored by columns, with sums in float32."""
    assert (compute, algorithm) == (CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT)
    assert (_at(alpha, 0, 1, 1, 1)[0, 0], _at(beta, 0, 1, 1, 1)[0, 0]) == (1, 0)
    left = _at(a, type_a, *((k, m) if transa else (m, k)), lda).astype(np.float32)
    right = _at(b, type_b, *((n, k) if transb else (k, n)), ldb).astype(np.float32)
    _at(c, type_c, m, n, ldc)[:] = (left.T if transa else left) @ (right.T if transb else right)


def _at(address: int, kind: int, rows: int, columns: int, leading: int) -> Any:
    assert leading >= rows
    n_bytes = _TYPES[kind].itemsize * leading * columns
    flat = np.frombuffer((ctypes.c_char * n_bytes).from_address(address), _TYPES[kind])
    return flat.reshape(columns, leading).T[:rows]
