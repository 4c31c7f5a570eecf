"""Chunks of stored arrays that exist: readers give the fill value for chunks that were never written, or were lost."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import BadInputError
from workbench.storage.places import Place
from workbench.storage.zarrs import MARKS, files_at, opened_at, recent

Bounds = Sequence[tuple[int, int] | None] | None
"""Part that is read along each axis: start and stop, None for all of it."""

MOST_LOCAL, MOST_REMOTE, MOST_WEB = 500_000, 100_000, 1000
"""Number of chunks up to which all are counted: listing takes about 1 s for so many files or keys of a bucket.

A web server gets one request for each folder.
"""
_SAMPLE = 8
"""Number of chunks that are checked if they can't be listed, or are more."""
_SHARDS = 1000
"""Number of shards up to which their indices are read, which takes one small read each."""
NON_COORDINATE = "_nc4_non_coord_"
"""Prefix that NetCDF-4 puts before a variable with the name of a dimension that isn't its only one."""
_EMPTY = 2**64 - 1
"""Offset by which a shard's index marks a chunk that it doesn't hold (Zarr's codec sharding_indexed)."""


@dataclass(frozen=True)
class Written:
    """Number of the chunks of an array, or of a part of it, that exist."""

    existing: int
    expected: int
    fill: Any = 0
    """Value that readers give where a chunk doesn't exist; None where it isn't defined."""
    unit: str = "chunk"
    misplaced: str | None = None
    """Message about chunks that exist under keys with the other separator."""
    is_sample: bool = False
    """True if only some chunks were checked."""
    lost: str | None = None
    """Key of the first chunk that doesn't exist, where it is known."""

    def __str__(self) -> str:
        unit = f"{self.unit}{'s' * (self.expected != 1)}"
        if self.is_sample:
            return f"{self.existing} of {self.expected} {unit} that were looked for exist"
        return f"{self.existing} of {self.expected} {unit} exist{'s' * (self.expected == 1)}"

    @property
    def is_complete(self) -> bool:
        """True if all chunks exist, as far as counted."""
        return self.existing >= self.expected


def remark(
    name: object,
    tally: Written | None,
    *,
    missing: Iterable[float] = (),
    accept: bool = False,
    never: bool = False,
    remedy: str = "choose missing_chunks=fill if they were left out on purpose",
) -> str | None:
    """Return a message about chunks that don't exist, None where all do.

    Parameters
    ----------
    missing
        Stored values that stand for missing ones: chunks that don't exist are then missing, too.
    accept
        True if most chunks may be absent, as the caller chose the fill value for them.
    never
        True if such an array is always written as a whole.
    remedy
        Remedy other than writing it again.

    Raises
    ------
    BadInputError
        Most chunks don't exist, or their values aren't defined, or they lie under other keys.
    """
    if tally is None:
        return (
            f"Whether all chunks of {name} exist was not counted, as they are too many or its server can't list them."
        )
    if tally.is_complete:
        return None
    if tally.misplaced:
        raise BadInputError(f"{name}: {tally}. {tally.misplaced}")
    again = "Copy or write it again"
    if never:
        first = f": {tally.lost} is missing" if tally.lost else ""
        raise BadInputError(f"{name}: {tally}, expected all of them{first}. {again}.")
    if tally.fill is None:
        raise BadInputError(
            f"{name}: {tally}, and its fill value is null, so the others hold nothing. {again}, or set its fill_value."
        )
    is_nan = isinstance(tally.fill, (float, np.floating)) and math.isnan(tally.fill)
    counts = "missing" if is_nan or tally.fill in tuple(missing) else f"{tally.fill:.10g}"
    most = tally.existing * 2 < tally.expected and counts != "missing"
    if not accept and (most or not tally.existing):
        raise BadInputError(f"{name}: {tally}, and the others would count as {counts}. {again}; or {remedy}.")
    return f"{tally}; the others were never written, or are lost, and count as {counts}."


def of_place(place: Place, format: str, name: str | None, bounds: Bounds = None) -> Written | None:
    """Count the chunks of an array by the format of its file; None where they weren't counted."""
    counted: Written | None = recent(
        lambda: _of_place(place, format, name, bounds), "written", place, format, name, str(bounds)
    )
    return counted


def _of_place(place: Place, format: str, name: str | None, bounds: Bounds) -> Written | None:
    if format in ("zarr", "zarr-zip"):
        import zarr

        with opened_at(place) as store:
            array = zarr.open_array(store, path=name or "", mode="r", **place.zarr_options)
            return of_zarr(array, place, name or "", bounds)
    if format in ("hdf5", "h5netcdf"):
        return _of_hdf5(place, name or "", bounds, by_xarray=format == "h5netcdf")
    return _of_tiff(place, name) if format == "tiff" else Written(1, 1)


def bounds_of(recipe: Mapping[str, Any] | None) -> Bounds:
    """Return the part that a reader's recipe means: `places` of a dataset, or the `part` of another array."""
    if recipe is None:
        return None
    if "part" in recipe:
        return [(each[0], each[0] + 1) if len(each) == 1 else (each[0], each[1]) for each in recipe["part"]]
    parts = recipe.get("places", {}).values()
    # Longitudes across the ends of a file start below 0.
    return [(each, each + 1) if isinstance(each, int) else None if each[0] < 0 else tuple(each[:2]) for each in parts]


def of_zarr(array: Any, place: Place, name: str, bounds: Bounds = None) -> Written | None:
    """Count the chunks of an open Zarr array, or its shards; None where they weren't counted."""
    sides = tuple(map(int, array.shards or array.chunks))
    ranges = _indices(array.shape, sides, bounds)
    expected = math.prod(map(len, ranges))
    fill, unit = array.metadata.fill_value, "shard" if array.shards else "chunk"
    if not expected:
        return Written(0, 0, fill)
    fs, root = files_at(place)
    folder = "/".join(filter(None, (root.rstrip("/"), name.strip("/"))))
    most = MOST_WEB if place.path.startswith("http") else MOST_REMOTE if place.is_url else MOST_LOCAL
    names = _names(fs, folder, is_local=not place.is_url and Path(place.path).is_dir()) if expected <= most else set()
    if not names.intersection(MARKS):
        return _sampled(array, fs, folder, ranges, fill)
    usual, other = _patterns(array)
    existing = set(_inside(names, usual, ranges))
    if not array.ndim:
        existing = {()} if array.metadata.encode_chunk_key(()) in names else set()
    elsewhere = {} if len(existing) == expected else dict(_with_names(names, other, ranges))
    lost = [key for at, key in elsewhere.items() if at not in existing]
    misplaced = None
    if lost:
        mark = "/" if "/" in lost[0] else "."
        how = (
            f'"dimension_separator": "{mark}" into .zarray'
            if array.metadata.zarr_format == 2
            else f'"separator": "{mark}" into zarr.json'
        )
        misplaced = (
            f"{len(lost)} lie under keys with the other separator, such as {min(lost)}, which are not read. Write "
            f"{how}, or rename the files."
        )
    if array.shards and not place.is_url and len(existing) <= _SHARDS:
        inner = _in_shards(array, fs, folder, existing, bounds)
        if inner is not None:
            return Written(
                inner, math.prod(map(len, _indices(array.shape, array.chunks, bounds))), fill, "chunk", misplaced
            )
    first = next((at for at in itertools.product(*ranges) if at not in existing), None)
    key = None if first is None else array.metadata.encode_chunk_key(first)
    return Written(len(existing), expected, fill, unit, misplaced, lost=key)


def _indices(shape: Sequence[int], sides: Sequence[int], bounds: Bounds) -> list[range]:
    """Return by axis the numbers of the chunks in some bounds."""
    bounds = bounds if bounds is not None and len(bounds) == len(shape) else [None] * len(shape)
    ends = [(0, length) if part is None else part for length, part in zip(shape, bounds, strict=True)]
    return [range(start // side, -(-stop // side)) for (start, stop), side in zip(ends, sides, strict=True)]


def _names(fs: Any, folder: str, *, is_local: bool) -> set[str]:
    """Return the paths of all files below a folder, relative to it; none where they can't be listed."""
    if is_local:
        return {
            (Path(where).relative_to(folder) / name).as_posix() for where, _, names in os.walk(folder) for name in names
        }
    try:
        paths = fs.find(folder)
    except (OSError, NotImplementedError, ValueError):
        return set()
    return {str(each).removeprefix(f"{folder}/") for each in paths}


def _patterns(array: Any) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of the keys of chunks: with the separator that the metadata name, and with the other."""
    metadata = array.metadata
    prefix = metadata.encode_chunk_key((0,) * array.ndim).startswith("c")
    separator = metadata.dimension_separator if metadata.zarr_format == 2 else metadata.chunk_key_encoding.separator

    def pattern(mark: str) -> re.Pattern[str]:
        return re.compile(re.escape(mark).join(["c"] * prefix + [r"(\d+)"] * array.ndim))

    return pattern(separator), pattern("." if separator == "/" else "/")


def _with_names(
    names: Iterable[str], pattern: re.Pattern[str], ranges: Sequence[range]
) -> Iterator[tuple[tuple[int, ...], str]]:
    for name in names:
        if match := pattern.fullmatch(name):
            at = tuple(map(int, match.groups()))
            if all(map(range.__contains__, ranges, at)):
                yield at, name


def _inside(names: Iterable[str], pattern: re.Pattern[str], ranges: Sequence[range]) -> Iterator[tuple[int, ...]]:
    return (at for at, _ in _with_names(names, pattern, ranges))


def _sampled(array: Any, fs: Any, folder: str, ranges: Sequence[range], fill: Any) -> Written | None:
    """Check a few chunks, which is cheap; None if some exist, as the others remain unknown."""
    sample = {tuple(each[round(part * (len(each) - 1))] for each in ranges) for part in np.linspace(0, 1, _SAMPLE)}
    keys = [array.metadata.encode_chunk_key(at) for at in sorted(sample)]
    if any(fs.exists(f"{folder}/{key}" if folder else key) for key in keys):
        return None
    return Written(0, len(keys), fill, is_sample=True)


def _in_shards(array: Any, fs: Any, folder: str, existing: Iterable[tuple[int, ...]], bounds: Bounds) -> int | None:
    """Count the chunks in shards by their indices; None where these are stored in an unusual way."""
    codec = array.metadata.codecs[0]
    inner = [type(each).__name__ for each in codec.index_codecs]
    if inner not in (["BytesCodec", "Crc32cCodec"], ["BytesCodec"]):
        return None
    per_shard = tuple(side // chunk for side, chunk in zip(array.shards, array.chunks, strict=True))
    size = 16 * math.prod(per_shard) + 4 * (len(inner) - 1)
    part = (
        {"start": -size}
        if str(getattr(codec.index_location, "value", codec.index_location)) == "end"
        else {"end": size}
    )
    ranges, count = _indices(array.shape, array.chunks, bounds), 0
    for at in existing:
        raw = fs.cat_file(f"{folder}/{array.metadata.encode_chunk_key(at)}", **part)[: 16 * math.prod(per_shard)]
        if len(raw) < 16 * math.prod(per_shard):
            return None  # cut short; its reader reports that
        present = np.frombuffer(raw, "<u8").reshape(*per_shard, 2)[..., 0] != _EMPTY
        inside = (
            slice(max(each.start - first * n, 0), max(min(each.stop - first * n, n), 0))
            for each, first, n in zip(ranges, at, per_shard, strict=True)
        )
        count += int(present[tuple(inside)].sum())
    return count


def _of_hdf5(place: Place, name: str, bounds: Bounds, *, by_xarray: bool) -> Written | None:
    import h5py

    with place.open() as file, h5py.File(file, "r") as opened:
        dataset = opened[hdf5_name(opened, name)]
        if dataset.external:
            _check_external(dataset, place, name, by_xarray=by_xarray)
        if dataset.is_virtual or dataset.external or dataset.shape is None or 0 in dataset.shape:
            return Written(0, 0)
        fill: Any = np.asarray(dataset.fillvalue)
        fill = fill.item() if fill.ndim == 0 and fill.dtype.kind in "biuf" else 0
        if dataset.chunks is None:
            return Written(int(dataset.id.get_storage_size() > 0), 1, fill, "block")
        ranges = _indices(dataset.shape, dataset.chunks, bounds)
        existing, expected = dataset.id.get_num_chunks(), math.prod(map(len, ranges))
        if existing >= math.prod(
            -(-length // side) for length, side in zip(dataset.shape, dataset.chunks, strict=True)
        ):
            return Written(expected, expected, fill)
        if existing > MOST_LOCAL:
            return None
        starts: list[tuple[int, ...]] = []
        dataset.id.chunk_iter(lambda chunk: starts.append(chunk.chunk_offset))
        at = (tuple(map(int.__floordiv__, start, dataset.chunks)) for start in starts)
        return Written(sum(all(map(range.__contains__, ranges, each)) for each in at), expected, fill)


def hdf5_name(opened: Any, name: str) -> str:
    """Return the name of a NetCDF variable in its HDF5 file: the plain one may belong to a dimension."""
    folder, _, last = name.rpartition("/")
    other = "/".join(filter(None, (folder, f"{NON_COORDINATE}{last}")))
    return other if other in opened else name


def _check_external(dataset: Any, place: Place, name: str, *, by_xarray: bool) -> None:
    """Raise BadInputError if a file with an HDF5 dataset's values is absent or short: HDF5 reads fill values."""
    whose = f"{place} ({name})"
    if place.is_url or by_xarray:
        raise BadInputError(
            f"{whose} keeps its values in other files, such as {dataset.external[0][0]}, which can't be read "
            f"{'from a URL' if place.is_url else 'here'}. Copy the array into a file of its own."
        )
    remaining = dataset.dtype.itemsize * math.prod(dataset.shape)
    for other, offset, size in dataset.external:
        path, needed = Path(place.path).parent / other, min(remaining, size)
        remaining -= needed
        if not path.is_file():
            raise BadInputError(f"{whose} keeps its values in {path}, which isn't there. Copy it there.")
        if (length := path.stat().st_size) < offset + needed:
            raise BadInputError(
                f"{whose} keeps its values in {path}, which is cut short: it has {length} bytes, expected "
                f"{offset + needed}. Copy or write it again."
            )


def _of_tiff(place: Place, name: str | None) -> Written:
    """Count the strips or tiles of a series of pages: GDAL leaves out those that it calls sparse."""
    from tifffile import TiffFile

    with place.open() as file, TiffFile(file) as pages:
        sizes = [size for page in pages.series[int(name or 0)].pages if page for size in page.databytecounts]
    return Written(sum(size > 0 for size in sizes), len(sizes), 0, "tile")
