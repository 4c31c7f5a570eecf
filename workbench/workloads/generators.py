"""Random arrays that don't depend on their blocks, made of tiles in the processor's cache or on GPUs.

Filling a whole block before using it writes all of it to memory and reads it again, and writing
pages for the first time is the slowest part of that. A tile of 256 × 256 stays in the cache until it has been used. Its
numbers follow from the seed and the tile's place, so the array is the same for all chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import product
from typing import Any, Literal

import dask
import dask.array as da
import numpy as np

from workbench.compiled import installed, load
from workbench.errors import BadInputError, install
from workbench.sent_code import can_import

TILE = 256
"""Rows and columns of a tile: half a MiB of float64."""

LANES = 32
"""Generators of a tile that run side by side: four vectors of the widest instructions there are."""

Engine = Literal["numpy", "fast"]
"""Generator of the numbers: NumPy's SFC64, or xoshiro256++ compiled by numba, which is several times as fast."""

_DEVICE_GRID = (4, 512)
"""Blocks of threads for a sum, along columns and rows: more than any device runs at once, and 8 MB of partial sums."""

_NO_NUMBA = f"The generator 'fast' needs numba where it computes: {install('fast')}."

Chunks = tuple[tuple[int, ...], tuple[int, ...]]
"""Lengths of the blocks along both axes."""


def normal(
    loc: float, scale: float, *, chunks: Chunks, dtype: str = "float64", seed: int = 0, engine: Engine = "numpy"
) -> da.Array:
    """Return an array of normal numbers of this mean and deviation; equal for one seed and engine, whatever the chunks.

    Blocks that begin and end at multiples of 256 lose no time at their edges.

    Raises
    ------
    BadInputError
        The engine "fast" without numba.
    """
    _require(engine)
    return da.map_blocks(
        _normal_block,
        chunks=chunks,
        dtype=dtype,
        meta=np.empty((0, 0), dtype),
        loc=loc,
        scale=scale,
        kind=dtype,
        seed=seed,
        engine=engine,
    )


def sum_every_other(
    loc: float, scale: float, *, chunks: Chunks, dtype: str = "float64", seed: int = 0, engine: str = "numpy"
) -> da.Array:
    """Sum `(normal(loc, scale, …) + 1)[::2, ::2]`, using each tile while it is in the cache.

    Every element is made and stored, even those not in the sum. The engine "device" makes all of them on GPUs
    (Philox4x32-10 and Box–Muller), other ones for float32 than for float64, and adds them up without storing any.
    Raises BadInputError as `normal` does, and for that engine where array.backend isn't "cupy".
    """
    if engine != "device":
        _require(engine)
    elif dask.config.get("array.backend", "numpy") != "cupy":
        raise BadInputError("The engine 'device' (generator=fused) is for GPUs: array.backend is not 'cupy' here.")
    sums = da.map_blocks(
        _sum_of_block,
        chunks=tuple((1,) * len(lengths) for lengths in chunks),
        dtype="float64",
        meta=np.empty((0, 0)),
        edges=tuple(tuple(np.cumsum((0, *lengths)).tolist()) for lengths in chunks),
        loc=loc,
        scale=scale,
        kind=dtype,
        seed=seed,
        engine=engine,
    )
    return sums.sum().astype(dtype)


def counts(chunks: Chunks, seed: int) -> da.Array:
    """Return an array of 0, 1 and 2, equally likely, as uint8: drawn on GPUs (Philox4x32-10) without waiting for them.

    CuPy's `randint` draws the same kind of numbers by way of uint32, and waits for the GPU at each block.
    """
    return da.map_blocks(
        _block_of_counts,
        token="counts",
        chunks=chunks,
        dtype="uint8",
        meta=da.empty((0, 0), dtype="uint8")._meta,
        seed=seed,
    )


def fast_reason() -> str | None:
    """Return the reason why the engine "fast" is unavailable in this process; None if it is available."""
    return None if installed() else _NO_NUMBA


def _require(engine: str) -> None:
    if engine not in ("numpy", "fast"):
        raise BadInputError(f"Unknown engine '{engine}'. Choose one of: numpy, fast.")
    if engine == "fast" and not can_import("numba"):
        raise BadInputError(_NO_NUMBA)


def _normal_block(block_info: Any, loc: float, scale: float, kind: str, seed: int, engine: str) -> np.ndarray[Any, Any]:
    (top, bottom), (left, right) = block_info[None]["array-location"]
    block = np.empty((bottom - top, right - left), kind)
    tile, room = np.empty((TILE, TILE), kind), np.empty((TILE, TILE))
    for row, column in _tiles(top, bottom, left, right):
        if engine == "fast":
            _compiled("fill", (seed, row, column), (loc, scale), tile)
        else:
            _fill(tile, room, (seed, row, column), loc, scale)
        y, x = row * TILE - top, column * TILE - left
        part = block[max(y, 0) : y + TILE, max(x, 0) : x + TILE]
        part[:] = tile[max(-y, 0) :, max(-x, 0) :][: part.shape[0], : part.shape[1]]
    return block


def _block_of_counts(block_info: Any, seed: int) -> Any:
    from workbench.linalg.cuda import THREADS, grid, kernel

    (top, bottom), (left, right) = block_info[None]["array-location"]
    block = import_module("cupy").empty((bottom - top, right - left), "uint8")
    shape = grid(-(-right // 16) - left // 16, bottom - top)
    kernel("draw_counts")(shape, (THREADS,), (top, bottom, left, right, seed, block))
    return block


def _sum_of_block(
    block_info: Any,
    edges: tuple[tuple[int, ...], tuple[int, ...]],
    loc: float,
    scale: float,
    kind: str,
    seed: int,
    engine: str,
) -> Any:
    i, j = block_info[None]["chunk-location"]
    (top, bottom), (left, right) = edges[0][i : i + 2], edges[1][j : j + 2]
    if engine == "device":
        from workbench.linalg.cuda import THREADS, kernel

        sums = import_module("cupy").empty((THREADS * _DEVICE_GRID[0] * _DEVICE_GRID[1], 2))
        parameters = (top, bottom, left, right, float(loc), float(scale), seed, sums)
        kernel(f"sum_{kind}")(_DEVICE_GRID, (THREADS,), parameters)
        return sums[:, 0].sum().reshape(1, 1)
    return np.array([[block_sum((top, bottom, left, right), loc, scale, kind=kind, seed=seed, engine=engine)]])


def block_sum(
    edges: tuple[int, int, int, int], loc: float, scale: float, *, kind: str = "float64", seed: int = 0, engine: str
) -> float:
    """Sum `x + 1` over every other row and column of the block with these `edges`: top, bottom, left, right."""
    (top, bottom, left, right), tile = edges, np.empty((TILE, TILE), kind)
    if engine == "fast":
        return float(_compiled("sum_every_other", (seed, *edges), (loc, scale), tile))
    whole, room = 0.0, np.empty((TILE, TILE))
    for row, column in _tiles(top, bottom, left, right):
        _fill(tile, room, (seed, row, column), loc, scale)
        y, x = row * TILE, column * TILE
        # First even row and column within the block, which may not be the tile's first.
        first_row, first_column = max(top + top % 2 - y, 0), max(left + left % 2 - x, 0)
        every_other = tile[first_row : min(bottom - y, TILE) : 2, first_column : min(right - x, TILE) : 2]
        whole += float((every_other + 1).sum())
    return whole


def _tiles(top: int, bottom: int, left: int, right: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of the tiles that a block touches."""
    return product(range(top // TILE, -(-bottom // TILE)), range(left // TILE, -(-right // TILE)))


def _fill(
    tile: np.ndarray[Any, Any], room: np.ndarray[Any, Any], place: Sequence[int], loc: float, scale: float
) -> None:
    """Fill the tile of this seed, row and column, using `room` if it isn't of float64."""
    bits = np.random.SFC64(np.random.SeedSequence(place[0], spawn_key=place[1:]))
    # Two tiles would crowd the cache, so draw into this one if possible.
    numbers = tile if tile.dtype == room.dtype else room
    np.random.Generator(bits).standard_normal(out=numbers)
    if scale != 1:
        np.multiply(numbers, scale, out=numbers)
    np.add(numbers, loc, out=tile, casting="same_kind")


def _compiled(name: str, place: Sequence[int], moments: Sequence[float], tile: np.ndarray[Any, Any]) -> Any:
    loops = load("workbench.workloads.fast_normal")
    return getattr(loops, name)(np.array(place, np.uint64), np.array(moments, float), tile)


def table(part: int, n_parts: int, n_rows: int, matching: float, seed: int, side: str, library: str) -> Any:
    """Return a partition's rows: random keys and values on the left, each key once, in random order, on the right."""
    rng = np.random.default_rng([seed, part, side == "left"])
    if side == "left":
        keys = rng.integers(0, round(n_rows / matching), len(range(part, n_rows, n_parts)))
        columns = {"key": keys, "x": rng.integers(0, 1000, len(keys))}
    else:
        keys = rng.permutation(np.arange(part, n_rows, n_parts))
        columns = {"key": keys, "y": keys % 997}
    return import_module(library).DataFrame(columns)


def joined(part: Any, n_parts: int, n_rows: int, matching: float, seed: int) -> Any:
    """Return rows and sum of products of a partition's join, computed from its left keys and values alone."""
    left = table(int(part[0]), n_parts, n_rows, matching, seed, "left", "pandas")
    matching_rows = left[left.key < n_rows]
    return np.array([[len(matching_rows), int((matching_rows.x * (matching_rows.key % 997)).sum())]])
