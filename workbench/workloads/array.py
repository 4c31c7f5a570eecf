"""Sums and means over random arrays."""

from __future__ import annotations

from typing import Annotated

import dask.array as da

from workbench.workloads.fields import Chunks, FloatType, Generator, Persist, Seed, Shape, Sized
from workbench.workloads.svd import held


def random_normal(
    shape: tuple[int, int], chunks: int | tuple[int, int] | str, dtype: str, seed: int, generator: str
) -> da.Array:
    """Normal numbers of mean 10 and standard deviation 1, from a generator of NumPy's or CuPy's."""
    rs = da.random.RandomState(seed) if generator == "RandomState" else da.random.default_rng(seed)
    return rs.normal(10, 1, size=shape, chunks=chunks).astype(dtype)


def sum_in_tiles(
    shape: tuple[int, int], chunks: int | tuple[int, int] | str, dtype: str, seed: int, generator: str
) -> da.Array:
    """Sum of every other row and column of such numbers plus 1, which go no further than the cache, or a register."""
    from workbench.workloads.generators import sum_every_other

    blocks = da.core.normalize_chunks(chunks, shape, dtype=dtype)
    engine = {"tiles": "numpy", "fast": "fast", "fused": "device"}[generator]
    return sum_every_other(10, 1, chunks=blocks, dtype=dtype, seed=seed, engine=engine)


def array_sum(
    shape: Annotated[Shape, Sized("square", "2GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
    generator: Generator = "tiles",
) -> da.Array:
    """Sum of every other row and column of `x + 1`, where x is random.

    The elements of x are normal with mean 10 and standard deviation 1. Each block is made, worked on and forgotten,
    so an array much larger than memory is no trouble. From the post "GPU Dask Arrays, first steps" (2019), whose code
    is that with generator=RandomState; tiles and fast make and add up the same kind of numbers without leaving the
    cache, and fused on GPUs without storing any.
    """
    if generator in ("tiles", "fast", "fused"):
        return sum_in_tiles(shape, chunks, dtype, seed, generator)
    x = random_normal(shape, chunks, dtype, seed, generator)
    return (x + 1)[::2, ::2].sum()


def array_mean(
    shape: Annotated[Shape, Sized("square", "2GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
    generator: Generator = "tiles",
) -> da.Array:
    """Mean of every other row and column of `x + 1`, where x is random.

    The same as array_sum with a mean in place of the sum, which the post "GPU Dask Arrays, first steps" (2019) found
    broken on GPUs.
    """
    if generator in ("tiles", "fast", "fused"):
        return sum_in_tiles(shape, chunks, dtype, seed, generator) / (-(-shape[0] // 2) * -(-shape[1] // 2))
    x = random_normal(shape, chunks, dtype, seed, generator)
    return (x + 1)[::2, ::2].mean()


def transpose_sum(
    shape: Annotated[Shape, Sized("square", "1GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
    persist: Persist = False,
) -> tuple[da.Array, float | None]:
    """Sum of a random square array and its transpose.

    Each block meets the one across the diagonal, so nearly every block travels between workers: a test of the network
    more than of the processors. The elements lie evenly between 0 and 1. From the post "Experiments in high performance
    networking with UCX and DGX" (2019).
    """
    rs = da.random.RandomState(seed)
    x, seconds_to_make = rs.random(size=shape, chunks=chunks).astype(dtype), None
    if persist:
        x, seconds_to_make = held(x)
    return (x + x.T).sum(), seconds_to_make
