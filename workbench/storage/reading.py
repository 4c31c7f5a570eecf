"""Arrays in files, read block by block: what tasks run, which needs Dask and NumPy alone where it arrives."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import wait

from workbench.storage.formats import READERS
from workbench.storage.formats.base import known
from workbench.storage.formats.zarr import plain


def read_stored(
    format: str, path: str, array: str | None, options: dict[str, Any], *where: slice
) -> np.ndarray[Any, Any]:
    """Block of an array in a file, as it is stored; an error names the file and the chunk that can't be decoded."""
    try:
        return READERS[format](path, array, options, *where)
    except Exception as err:
        from workbench.storage.unreadable import explained

        error = explained(err, path, array, format, options, where)
        if error is None:
            raise
        raise error from err


def shown(resolved: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a notebook's cell holds for `array_of_file` to read a file with these parameters."""
    format, reader = resolved["format"], READERS[resolved["format"]]
    used = {unpacked: resolved["unpack"], folded: resolved.get("lengths"), part_of: "part" in resolved["options"]}
    parts = [each for each, is_used in used.items() if is_used]
    first = ((plain,) if format.startswith("zarr") else ()) + ((known,) if format not in _OF_PATHS else ())
    return (
        *first,
        reader,
        f'READERS = {{"{format}": {reader.__name__}}}',
        read_stored,
        *parts,
        read_block,
        array_of_file,
    )


_OF_PATHS = ("npy", "zarr-zip", "dataset")
"""Formats whose readers are told nothing of a server."""


def part_of(read: Callable[..., Any], part: Sequence[Sequence[int]], *where: slice) -> np.ndarray[Any, Any]:
    """Block of what was selected of an array that `read` reads; dimensions of which one position was are gone."""
    left = iter(where)
    wanted = ((at[0], slice(0, 1) if len(at) == 1 else next(left)) for at in part)
    found = read(*(slice(start + each.start, start + each.stop) for start, each in wanted))
    return found.reshape([each.stop - each.start for each in where])


def unpacked(
    block: np.ndarray[Any, Any],
    dtype: str | None = None,
    missing: Sequence[float] = (),
    low: float | None = None,
    high: float | None = None,
    scale: float = 1.0,
    offset: float = 0.0,
) -> np.ndarray[Any, Any]:
    """Numbers that stored ones stand for: bits read as dtype, NaN where none is known, times scale, plus offset."""
    if dtype is not None:
        block = block.astype(block.dtype.newbyteorder("=")).view(dtype)
    absent = np.isin(block, np.array(missing, block.dtype))
    if low is not None:
        absent |= block < low
    if high is not None:
        absent |= block > high
    # Of one number without dimensions NumPy makes a scalar, into which nothing can be written.
    numbers = np.asarray(np.multiply(block, scale, dtype="float64"))
    numbers += offset
    numbers[absent] = np.nan
    return numbers


def folded(
    read: Callable[..., Any], lengths: Sequence[int], axes: Sequence[Sequence[int]], *where: slice
) -> np.ndarray[Any, Any]:
    """Block of a matrix, whose rows and columns each go through some axes of an array that `read` reads."""
    parts = [slice(0, length) for length in lengths]
    inside, sides = [], []
    for group, part in zip(axes, where, strict=True):
        # Of the first axis as many places as are needed, of the others all.
        inner = math.prod(lengths[axis] for axis in group[1:])
        first, last = part.start // inner, -(-part.stop // inner)
        parts[group[0]] = slice(first, last)
        inside.append(slice(part.start - first * inner, part.stop - first * inner))
        sides.append((last - first) * inner)
    return read(*parts).transpose([axis for group in axes for axis in group]).reshape(sides)[tuple(inside)]


def read_block(
    block_info: Any,
    read: Callable[..., Any],
    unpack: dict[str, Any] | None,
    stored: str,
    missing: str,
    whose: str,
    shape: tuple[int, ...],
    dims: Sequence[str] | None,
    instead: str,
) -> np.ndarray[Any, Any]:
    """Block of the numbers that stored ones stand for; what is missing is refused, or NaN."""
    where = [slice(*bounds) for bounds in block_info[None]["array-location"]]
    found = np.asarray(read(*where))
    block = (found if unpack is None else unpacked(found, **unpack)).astype(stored, copy=False)
    infinite = np.isinf(block)
    absent = infinite if infinite.any() or missing != "refuse" else np.isnan(block)
    if absent.any():
        places = np.argwhere(absent)
        first = [part.start + int(index) for part, index in zip(where, places[0], strict=True)]
        named = len(shape) == 2
        at = f"row {first[0]}, column {first[1]}" if named else str(first)
        if not named and dims is not None:
            at = "position " + ", ".join(map("{} of {}".format, first, dims))
        spans = [f"{part.start} to {part.stop - 1}" for part in where]
        inside = f"rows {spans[0]} and columns {spans[1]}" if named else f"[{', '.join(spans)}]"
        others = "" if block.shape == shape else " Other blocks, which were not looked at, may have more."
        what = "that are infinite, which is not missing" if infinite.any() else "that are missing"
        choice = "" if infinite.any() else f", or choose missing={instead}"
        raise ValueError(
            f"{whose} has values {what}: {len(places)} of the {block.size} in {inside}, the first at {at}: "
            f"{found[tuple(places[0])]}.{others} Replace them{choice}."
        )
    return block


def read_numbers(block_info: Any, read: Callable[..., Any], unpack: Mapping[str, Any] | None, dtype: Any) -> Any:
    """Block of what the stored numbers stand for; NaN is missing. `read` is given a slice for each dimension."""
    block = np.asarray(read(*(slice(*bounds) for bounds in block_info[None]["array-location"])))
    return (block if unpack is None else unpacked(block, **unpack)).astype(dtype, copy=False)


def array_of_file(
    path: str,
    array: str | None,
    options: dict[str, Any],
    format: str,
    unpack: dict[str, Any] | None,
    shape: tuple[int, ...],
    blocks: tuple[int, ...],
    stored: str,
    missing: str = "refuse",
    lengths: tuple[int, ...] = (),
    axes: Sequence[Sequence[int]] | None = None,
    instead: str = "mean, rows or columns",
) -> da.Array:
    """Array in a file, read block by block where the blocks are needed; what is missing is refused, or NaN."""
    read = partial(read_stored, format, path, array, options["options"] if "part" in options else options)
    if "part" in options:
        read = partial(part_of, read, options["part"])
    if axes is not None:
        read = partial(folded, read, lengths, axes)
    return da.map_blocks(
        read_block,
        read=read,
        unpack=unpack,
        stored=stored,
        missing=missing,
        whose=f"{path} ({array})" if array else path,
        shape=shape,
        dims=options.get("dims"),
        instead=instead,
        # Of this call alone: since another call the file may have been written again.
        name=f"read-block-{uuid.uuid4().hex}",
        chunks=da.core.normalize_chunks(blocks, shape),
        dtype=stored,
        meta=np.empty((0,) * len(shape), stored),
    )


def matrix_of_file(
    path: str,
    array: str | None,
    options: dict[str, Any],
    format: str,
    unpack: dict[str, Any] | None,
    shape: tuple[int, int],
    blocks: tuple[int, int],
    chunks: int | tuple[int, int] | str,
    stored: str,
    dtype: str,
    center: bool,
    compute: bool,
    missing: str = "refuse",
    lengths: tuple[int, ...] = (),
    axes: Sequence[Sequence[int]] | None = None,
) -> tuple[da.Array, Any]:
    """Array in a file as a matrix, and which rows or columns of it are kept.

    What is missing is refused, filled or left out; for the last two, the array is gone through once more, first.
    """
    x = array_of_file(path, array, options, format, unpack, shape, blocks, stored, missing, lengths, axes)
    # Onto the GPU where array.backend says so, else nowhere: as it is stored, which may be an eighth of the bytes.
    x, kept = without_gaps(x.to_backend().astype(dtype).rechunk(chunks), missing, path)
    if center:
        mean = x.mean(axis=0)
        if compute:
            # Known beforehand, the means let each block pass by; otherwise all of them wait in memory for the means.
            mean = mean.persist()
            wait(mean)
        x = x - mean
    return x, kept


def without_gaps(x: da.Array, missing: str, path: str) -> tuple[da.Array, Any]:
    """The array without NaN, filled or without rows or columns that hold one; and which of these are kept."""
    if missing == "refuse":
        return x, None
    known = ~da.isnan(x)
    if missing != "mean":
        axis = 1 if missing == "rows" else 0
        kept = np.flatnonzero(known.all(axis=axis).to_backend("numpy").compute())
        if not len(kept):
            other = "columns" if missing == "rows" else "rows"
            raise ValueError(
                f"Of {path} all {missing} hold missing values, so that nothing is left. Choose missing={other}, or "
                "missing=mean where every column has some value."
            )
        return x[kept] if missing == "rows" else x[:, kept], {missing.removesuffix("s"): kept}
    sums, counts = dask.persist(da.nansum(x, axis=0), known.sum(axis=0))
    nothing = int((counts == 0).sum())
    if nothing:
        raise ValueError(
            f"{path} has columns without any value, which have no mean ({nothing} of {x.shape[1]}). Choose "
            "missing=columns, which leaves out all that hold a missing value."
        )
    return da.where(known, x, sums / counts).astype(x.dtype), None
