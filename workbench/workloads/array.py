"""Sums and means over random arrays."""

from __future__ import annotations

from typing import Annotated

import dask.array as da

from workbench.workloads.fields import Chunks, FloatType, Seed, Shape, Sized


def array_sum(
    shape: Annotated[Shape, Sized("square", "2GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
) -> da.Array:
    """Sum of every other row and column of `x + 1`, where x is random.

    The elements of x are normal with mean 10 and standard deviation 1. Each block is made, worked on and forgotten,
    so an array much larger than memory is no trouble. From the post "GPU Dask Arrays, first steps" (2019).
    """
    rs = da.random.RandomState(seed)
    x = rs.normal(10, 1, size=shape, chunks=chunks).astype(dtype)
    return (x + 1)[::2, ::2].sum()


def array_mean(
    shape: Annotated[Shape, Sized("square", "2GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
) -> da.Array:
    """Mean of every other row and column of `x + 1`, where x is random.

    The same as array_sum with a mean in place of the sum, which the post "GPU Dask Arrays, first steps" (2019) found
    broken on GPUs.
    """
    rs = da.random.RandomState(seed)
    x = rs.normal(10, 1, size=shape, chunks=chunks).astype(dtype)
    return (x + 1)[::2, ::2].mean()


def transpose_sum(
    shape: Annotated[Shape, Sized("square", "1GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
) -> da.Array:
    """Sum of a random square array and its transpose.

    Each block meets the one across the diagonal, so nearly every block travels between workers: a test of the network
    more than of the processors. The elements lie evenly between 0 and 1. From the post "Experiments in high performance
    networking with UCX and DGX" (2019).
    """
    rs = da.random.RandomState(seed)
    x = rs.random(size=shape, chunks=chunks).astype(dtype)
    return (x + x.T).sum()
