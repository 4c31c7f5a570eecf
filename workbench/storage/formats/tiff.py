"""Series of pages in TIFF files."""

from __future__ import annotations

import logging.handlers
import math
import os
from importlib.util import find_spec
from typing import Any

import numpy as np

from workbench.errors import MissingError, install
from workbench.storage import sources
from workbench.storage.formats.base import (
    Format,
    Found,
    Listed,
    bad,
    check,
    choose,
    count_written,
    held_as,
    known,
    lengths,
)
from workbench.storage.places import Place


def tiff_of(file: Any, place: Place) -> Any:
    """Return a TIFF file's pages.

    MissingError if tifffile isn't installed, BadParameterError if the file is cut off.
    """
    if find_spec("tifffile") is None:
        raise MissingError(f"Reading {place} needs tifffile: {install('images')}.")
    from tifffile import TiffFile

    # tifffile reports missing pages only in its log.
    records = logging.handlers.BufferingHandler(100)
    log = logging.getLogger("tifffile")
    log.addHandler(records)
    try:
        tiff = TiffFile(file)
        pages = list(tiff.pages)
    finally:
        log.removeHandler(records)
    size = file.seek(0, os.SEEK_END)
    ends = (start + count for page in pages for start, count in zip(page.dataoffsets, page.databytecounts, strict=True))
    if max(ends, default=0) > size or any("invalid page offset" in each.getMessage() for each in records.buffer):
        raise bad(f"{place} is cut short: it goes on beyond its {size} bytes. Save or copy it again.")
    return tiff


def find_tiff(place: Place, array: str | None) -> Found:
    """Describe a series of pages."""
    with place.open() as file, tiff_of(file, place) as pages:
        import zarr

        names = [str(number) for number in range(len(pages.series))]
        name = choose(place, array, names) if len(names) > 1 or array is not None else None
        series = pages.series[int(name or 0)]
        level = zarr.open_array(series.aszarr(level=0), mode="r")
        dims = tuple(series.axes.lower())
    check(place, name, level.shape, np.dtype(level.dtype))
    # The axes of a single image are rows and columns; a stack needs names.
    named = len(level.shape) > 2 and len(set(dims)) == len(level.shape)
    chunks = lengths(level.chunks)
    return Found(
        place.path, name, "tiff", lengths(level.shape), np.dtype(level.dtype), chunks, dims=dims if named else None
    )


def look_tiff(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    arrays = []
    with place.open() as file, tiff_of(file, place) as pages:
        for number, each in enumerate(pages.series):
            name = str(number) if len(pages.series) > 1 else ""
            packed = each.keyframe.compression.name.lower().replace("none", "") or None
            facts = count_written(place, "tiff", str(number), math.inf)
            # Chunks are those of a page; a series may have more dimensions, or drop those of length one.
            piece = each.keyframe.chunks[-len(each.shape) :]
            facts |= {"chunks": (1,) * (len(each.shape) - len(piece)) + piece, "dims": tuple(each.axes.lower())}
            arrays.append(held_as(name, each.shape, each.dtype, compression=packed, **facts))
    return tuple(arrays), ()


def read_tiff(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of a series of pages in a TIFF file, by default the first; only its pages or tiles are read."""
    import fsspec
    import zarr
    from tifffile import TiffFile

    with fsspec.open(path, "rb", **known(path, options)) as file, TiffFile(file) as pages:
        return zarr.open_array(pages.series[int(array or 0)].aszarr(level=0), mode="r")[where]


TIFF = Format(
    "TIFF",
    look_tiff,
    starts=lambda start, place: start.startswith(sources.TIFF),
    find=find_tiff,
    readers={"tiff": read_tiff},
    modules=("tifffile", "zarr"),
)
