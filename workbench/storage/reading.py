"""Arrays in files, read block by block: functions of tasks, which need only Dask and NumPy on workers."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

from workbench import formats
from workbench.storage.formats import READERS
from workbench.storage.formats.base import Found


def read_stored(
    format: str, path: str, array: str | None, options: dict[str, Any], *where: slice
) -> np.ndarray[Any, Any]:
    """Read a block of an array in a file, as stored; an error names the file and the chunk that can't be decoded."""
    try:
        return READERS[format](path, array, options, *where)
    except Exception as err:
        from workbench.storage.read_errors import explained

        error = explained(err, path, array, format, options, where)
        if error is None:
            raise
        raise error from err


def part_of(read: Callable[..., Any], part: Sequence[Sequence[int]], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of the selected part of an array that `read` reads; single positions lose their dimension."""
    selection = iter(where)
    places = ((at[0], slice(0, 1) if len(at) == 1 else next(selection)) for at in part)
    block = read(*(slice(start + each.start, start + each.stop) for start, each in places))
    return block.reshape([each.stop - each.start for each in where])


def unpacked(
    block: np.ndarray[Any, Any],
    dtype: str | None = None,
    missing: Sequence[float] = (),
    low: float | None = None,
    high: float | None = None,
    scale: float = 1.0,
    offset: float = 0.0,
) -> np.ndarray[Any, Any]:
    """Convert stored numbers: bits read as dtype, NaN where none is known, times scale, plus offset."""
    if dtype is not None:
        block = block.astype(block.dtype.newbyteorder("=")).view(dtype)
    absent = np.isin(block, np.array(missing, block.dtype))
    if low is not None:
        absent |= block < low
    if high is not None:
        absent |= block > high
    # For an array without dimensions NumPy returns a scalar, which is immutable.
    numbers = np.asarray(np.multiply(block, scale, dtype="float64"))
    numbers += offset
    numbers[absent] = np.nan
    return numbers


def folded(
    read: Callable[..., Any], lengths: Sequence[int], axes: Sequence[Sequence[int]], *where: slice
) -> np.ndarray[Any, Any]:
    """Read a block of a matrix whose rows and columns each combine several axes of an array."""
    parts = [slice(0, length) for length in lengths]
    inside, sides = [], []
    for group, part in zip(axes, where, strict=True):
        # Read only the needed range of the first axis, and all of the others.
        inner = math.prod(lengths[axis] for axis in group[1:])
        first, last = part.start // inner, -(-part.stop // inner)
        parts[group[0]] = slice(first, last)
        inside.append(slice(part.start - first * inner, part.stop - first * inner))
        sides.append((last - first) * inner)
    return read(*parts).transpose([axis for group in axes for axis in group]).reshape(sides)[tuple(inside)]


def read_block(
    block_info: Any,
    read: Callable[..., Any],
    unpack: Mapping[str, Any] | None,
    dtype: Any,
    missing: str | None = None,
    whose: str = "",
    dims: Sequence[str] | None = None,
    instead: str = "",
) -> np.ndarray[Any, Any]:
    """Read a block of numbers, converted from the stored ones.

    `read` gets a slice for each dimension. Missing values are NaN, or refused if `missing` is "refuse"; infinite
    ones are refused unless `missing` is None.
    """
    about = block_info[None]
    where = [slice(*bounds) for bounds in about["array-location"]]
    stored = np.asarray(read(*where))
    block = (stored if unpack is None else unpacked(stored, **unpack)).astype(dtype, copy=False)
    if missing is None:
        return block
    infinite = np.isinf(block)
    absent = infinite if infinite.any() or missing != "refuse" else np.isnan(block)
    if absent.any():
        choice = "" if infinite.any() else f", or choose missing={instead}"
        kinds = "that are infinite, which is not missing" if infinite.any() else "that are missing"
        places = np.argwhere(absent)
        inside, at = _in_words(where, places[0], dims)
        others = (
            "" if block.shape == tuple(about["shape"]) else " Other blocks, which were not looked at, may have more."
        )
        raise ValueError(
            f"{whose} has values {kinds}: {formats.count(len(places))} of the {formats.count(block.size)} in {inside}, "
            f"the first at {at}: {stored[tuple(places[0])]}.{others} Replace them{choice}."
        )
    return block


def _in_words(where: Sequence[slice], place: Any, dims: Sequence[str] | None) -> tuple[str, str]:
    """Add the block and its position in the array to an error."""
    first = [part.start + int(index) for part, index in zip(where, place, strict=True)]
    spans = [f"{part.start} to {part.stop - 1}" for part in where]
    if len(where) == 2:
        return f"rows {spans[0]} and columns {spans[1]}", f"row {first[0]}, column {first[1]}"
    at = str(first) if dims is None else "position " + ", ".join(map("{} of {}".format, first, dims))
    return f"[{', '.join(spans)}]", at


def reader_of(found: Found) -> Callable[..., np.ndarray[Any, Any]]:
    """Return a function that reads a block of an array as stored, given a slice for each dimension."""
    options = dict(found.options if found.recipe is None else found.recipe)
    part = options.get("part")
    read = partial(read_stored, found.format, found.path, found.array, options if part is None else options["options"])
    if part is not None:
        read = partial(part_of, read, part)
    return read if found.axes is None else partial(folded, read, found.lengths, found.axes)


def array_of(found: Found, blocks: Any, missing: str | None = None, instead: str = "mean, rows or columns") -> da.Array:
    """Return an array in a file, read block by block where needed; `missing` as in `read_block`."""
    dtype = found.number_type
    read = partial(
        read_block,
        read=reader_of(found),
        unpack=found.unpack,
        dtype=dtype,
        missing=missing,
        whose=str(found),
        dims=(found.recipe or {}).get("dims"),
        instead=instead,
    )
    return da.map_blocks(
        read,
        # A unique name: the file may have changed since another call.
        name=f"read-block-{uuid.uuid4().hex}",
        chunks=da.core.normalize_chunks(blocks, found.shape),
        dtype=dtype,
        meta=np.empty((0,) * len(found.shape), dtype),
    )
