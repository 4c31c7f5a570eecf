"""Singular value decompositions of random matrices."""

from __future__ import annotations

import time
from typing import Annotated, Any

import dask
import dask.array as da
from dask.base import wait

from workbench.workloads.fields import (
    Accuracy,
    Chunks,
    Components,
    FloatType,
    Iterations,
    Iterator,
    MatrixType,
    Method,
    Persist,
    Recompute,
    Resolved,
    Seed,
    Shape,
    Sized,
)


def random_matrix(shape: tuple[int, int], chunks: int | tuple[int, int] | str, dtype: str, seed: int) -> da.Array:
    """Numbers from 0 to 1, or 0, 1 and 2 like genotypes where they are whole."""
    if dtype == "uint8" and dask.config.get("array.backend", "numpy") == "cupy":
        from workbench.workloads.generators import counts

        return counts(da.core.normalize_chunks(chunks, shape, dtype=dtype), seed)
    rs = da.random.RandomState(seed)
    if dtype == "uint8":
        return rs.randint(0, 3, size=shape, chunks=chunks, dtype="uint8")
    return rs.random(size=shape, chunks=chunks).astype(dtype)


def held(*collections: Any) -> tuple[Any, ...]:
    """Collections in the memory of the workers, and the seconds that it took."""
    began = time.perf_counter()
    collections = dask.persist(*collections)
    wait(collections)
    if dask.config.get("array.backend", "numpy") == "cupy":
        # A task there ends when its kernels are launched.
        from workbench.linalg.backend import wait_for_gpus

        wait_for_gpus()
    return *collections, time.perf_counter() - began


def tall_skinny_svd(
    shape: Annotated[Shape, Sized("tall", "512MiB")],
    method: Method = "workbench",
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
    persist: Persist = False,
) -> tuple[da.Array, da.Array, da.Array, float | None]:
    """Full SVD of a random matrix with many rows and few columns.

    Exact, in one pass. Dask decomposes each block of rows by itself (QR), stacks the small factors, decomposes them
    once and carries the result back. workbench.linalg makes the columns orthonormal from their products with each other
    (Cholesky QR), several times as fast and in half of the memory, and checks in between whether that is safe. The
    elements lie evenly between 0 and 1. From the posts "Large SVDs" (2020), where the matrix is 10 000 000 × 20, and
    "Experiments in high performance networking with UCX and DGX" (2019), where it is 1 000 000 × 1000.
    """
    x, seconds_to_make = da.random.RandomState(seed).random(size=shape, chunks=chunks).astype(dtype), None
    if persist:
        x, seconds_to_make = held(x)
    if method == "workbench":
        from workbench.linalg import svd

        u, s, v = svd(x)
    else:
        u, s, v = da.linalg.svd(x)
    return u, s, v, seconds_to_make


def compressed_svd(
    shape: Annotated[Shape, Sized("wide", "256MiB")],
    k: Components = 10,
    method: Method = "workbench",
    tol: Accuracy = 0.01,
    n_power_iter: Iterations = 2,
    iterator: Iterator = "QR",
    compute: Recompute = False,
    chunks: Chunks = "auto",
    dtype: MatrixType = "uint8",
    seed: Seed = 0,
    persist: Persist = False,
    keep: Annotated[bool, Resolved()] = True,
) -> tuple[da.Array, da.Array, da.Array, Any, float | None]:
    """First k singular values and vectors of a large random matrix, approximately.

    The matrix is multiplied by a few random vectors, and what remains of it is decomposed. With Dask's own function the
    values can be far too small and nothing warns of it, so the check goes through the matrix once more and says how far
    off they may be. workbench.linalg goes on until bounds on the error meet tol, one pass for a product and its
    transposed one, and gives a certificate. Random numbers are the hardest case: beyond the first, their singular
    values lie close together, as those of real data rarely do. From the post "Large SVDs" (2020), where the matrix is
    1 000 000 × 20 000 or ten times as high, k is 10 and there are no power iterations.
    """
    x, seconds_to_make = random_matrix(shape, chunks, dtype, seed), None
    if persist:
        x, seconds_to_make = held(x)
    if method == "workbench":
        from workbench.linalg import svd_compressed

        u, s, v = result = svd_compressed(x, k, tol=tol, seed=seed, keep=keep)
        return u, s, v, result.certificate, seconds_to_make
    # A RandomState makes its numbers where x is, on the CPU or a GPU.
    rs = da.random.RandomState(seed)
    u, s, v = da.linalg.svd_compressed(x, k, iterator=iterator, n_power_iter=n_power_iter, seed=rs, compute=compute)
    return u, s, v, None, seconds_to_make
