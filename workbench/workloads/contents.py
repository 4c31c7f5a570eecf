"""What a file holds, before anything runs on it: arrays with shape, type, chunks and compression, and dimensions."""

from __future__ import annotations

import contextlib
import math
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from pydantic import BaseModel

from workbench import formats
from workbench.errors import BadInputError, MissingError
from workbench.storage import conventions, datasets, places
from workbench.storage.decoders import check_decoders
from workbench.storage.places import Options, Place
from workbench.storage.written import NON_COORDINATE, of_place
from workbench.storage.zarrs import files_at, images_of, opened_at, outdated_remark
from workbench.workloads import extensions, opening

_MOST = 500
"""Arrays that are listed."""
_COUNTING = 5.0
"""Seconds in which chunks that exist are counted."""


class Held(BaseModel, frozen=True):
    """An array in a file, as far as it can be told without reading its numbers."""

    name: str
    """Empty where a file holds one array without a name."""
    shape: tuple[int, ...]
    dtype: str
    n_bytes: int
    """In memory, as it is stored; compressed it takes fewer."""
    dims: tuple[str, ...] | None = None
    """Names of its dimensions, where they have some."""
    chunks: tuple[int, ...] | None = None
    """Lengths of the blocks in which it is stored; None where it lies in one piece."""
    compression: str | None = None
    packing: str | None = None
    """How its numbers become those that they stand for, which is done where they are read."""
    title: str | None = None
    """What it is, and in which units, as its attributes say."""
    written: str | None = None
    """How many of its chunks exist, where not all do: "4 of 8 chunks exist"."""

    def line(self) -> str:
        """All but its name, on one line."""
        lengths = (
            (f"{dim} {length}" for dim, length in zip(self.dims, self.shape, strict=True))
            if self.dims
            else map(str, self.shape)
        )
        blocks = f"blocks of {formats.by(self.chunks)}" if self.chunks and self.chunks != self.shape else None
        shape = " × ".join(lengths) or "one value"
        parts = (
            f"{shape}, {self.dtype}",
            formats.size(self.n_bytes),
            blocks,
            self.compression,
            self.packing,
            self.title,
            self.written,
        )
        return ", ".join(filter(None, parts))


class Dimension(BaseModel, frozen=True):
    """A named dimension; `first` and `last` are the values of its coordinate at both ends, where it has one."""

    name: str
    length: int
    first: str | None = None
    last: str | None = None

    def line(self) -> str:
        """All but its name, on one line."""
        return f"{self.length}" + (f", {self.first} to {self.last}" if self.first is not None else "")


class Contents(BaseModel, frozen=True):
    """What a file, folder or URL holds."""

    path: str
    format: str
    n_bytes: int | None
    """Of the file, or of all files of a folder; None where a server doesn't say."""
    arrays: tuple[Held, ...]
    dimensions: tuple[Dimension, ...] = ()
    choices: dict[str, tuple[str, ...]]
    """What can be chosen in a form, by the field's name: array, variable, time."""
    remarks: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Format, size and how many arrays, on one line."""
        held = "" if self.n_bytes is None else f", {formats.size(self.n_bytes)}"
        return f"{self.format}{held}: {formats.count(len(self.arrays), 'array')}"


def look(path: str, options: Options | None = None) -> Contents:
    """What there is at a path or URL; of its numbers only coordinates are read.

    Raises
    ------
    BadInputError
        There is nothing, or nothing that can be read here.
    MissingError
        The package that reads it isn't installed; the sentence has the command that installs it.
    """
    place = places.full(path, options)
    with places.sentences_about(place, opening.FORMATS):
        brought = extensions.format_of(place.name)
        kind = "" if brought else opening.format_of(place)
        title, listed = (brought.title, brought.look) if brought else _FORMATS[kind]
        held, remarks = listed(place)
    if not place.is_url:  # whose server may not list what it has
        opening.check_any(place, held)
    dimensions: tuple[Dimension, ...] = ()
    if kind in ("hdf5", "zarr", "zarr-zip", *_BY_XARRAY) and any(each.dims for each in held):
        try:
            dimensions = _dimensions(place, held)
        except (BadInputError, MissingError) as err:
            remarks = (*remarks, f"Coordinates were not read: {err}")
    if len(held) > _MOST:
        remarks = (*remarks, f"It holds {len(held)} arrays, of which the first {_MOST} are listed.")
    remarks += _undecodable(place, kind, held)
    return Contents(
        path=place.path,
        format=title,
        n_bytes=_size(place),
        arrays=held[:_MOST],
        dimensions=dimensions,
        choices=_choices(held, dimensions),
        remarks=remarks,
    )


def _undecodable(place: Place, kind: str, held: tuple[Held, ...]) -> tuple[str, ...]:
    """Return a sentence where a package that decompresses the largest array is missing."""
    largest = max(filter(_has_numbers, held), key=lambda each: each.n_bytes, default=None)
    try:
        if largest is not None:
            check_decoders(place, kind, largest.name or None)
    except (BadInputError, MissingError) as err:
        return (str(err),)
    return ()


def _has_numbers(each: Held) -> bool:
    # NumPy's text of types with fields isn't read again.
    return each.n_bytes > 0 and each.dtype[0] not in "[{(" and np.dtype(each.dtype).kind in "biuf"


def _size(place: Place) -> int | None:
    with contextlib.suppress(OSError, ValueError, NotImplementedError, TypeError):
        return sum(map(os.path.getsize, datasets.files_of(place))) or place.size() or (None if place.is_url else 0)
    return None


def _choices(held: tuple[Held, ...], dimensions: tuple[Dimension, ...]) -> dict[str, tuple[str, ...]]:
    numbers = [each for each in held if _has_numbers(each) and each.name not in (each.dims or ())]
    found = {
        "array": [each.name for each in numbers if len(each.shape) == 2 and each.name],
        "variable": [each.name for each in numbers if each.dims and len(each.dims) > 1],
        "samples": [", ".join(each.name for each in few) for n in (1, 2) for few in combinations(dimensions, n)],
    }
    return {name: tuple(values[:_MOST]) for name, values in found.items() if values}


Listed = tuple[tuple[Held, ...], tuple[str, ...]]


def held_as(name: str, shape: Any, dtype: Any, **more: Any) -> Held:
    """An array of this shape and type; what else is known of it is named as its fields are."""
    shape, known = tuple(map(int, shape)), np.dtype(dtype)
    # NumPy's text of any length has a name that isn't read again.
    called = "str" if known.kind == "T" else str(known)
    return Held(name=name, shape=shape, dtype=called, n_bytes=math.prod(shape) * known.itemsize, **more)


def _npy(place: Place) -> Listed:
    shape, fortran, dtype = opening.npy_whole(place)
    told = ("It is stored column by column (Fortran order).",) if fortran and len(shape) > 1 else ()
    return (held_as("", shape, dtype),), told


def _npz(place: Place) -> Listed:
    found = []
    with place.open() as file, zipfile.ZipFile(file) as members:
        for info in members.infolist():
            with members.open(info) as member:
                shape, _, dtype = opening.npy_header(member)
            packed = "deflate" if info.compress_type != zipfile.ZIP_STORED else None
            found.append(held_as(info.filename.removesuffix(".npy"), shape, dtype, compression=packed))
    return tuple(found), ("Each of its arrays can only be read as a whole.",)


def _hdf5(place: Place) -> Listed:
    found = []
    until = time.monotonic() + _COUNTING
    with opening.hdf5_datasets(place) as datasets:
        for name, item in datasets.items():
            if not item.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension"):
                stored = {"chunks": item.chunks, "compression": item.compression}
                told = _told(item.dtype, item.attrs) | _written(place, "hdf5", name, until)
                name = name.replace(NON_COORDINATE, "")
                found.append(held_as(name, item.shape or (), item.dtype, dims=_scales(name, item), **stored, **told))
    return tuple(found), ()


def _scales(name: str, item: Any) -> tuple[str, ...] | None:
    """Names of an HDF5 dataset's dimensions, by the scales that are attached to them."""
    import h5py

    if h5py.h5ds.is_scale(item.id):
        return (name.rpartition("/")[2],) if item.ndim == 1 else None
    names = tuple(each[0].name.rpartition("/")[2] if len(each) else "" for each in item.dims)
    return names if names and all(names) else None


def _zarr(place: Place) -> Listed:
    import zarr

    group = files_at(place)
    names, images = opening.zarr_arrays(*group), images_of(*group)
    if not names and place.is_url and not place.names():
        return (), (opening.UNLISTED.capitalize(),)
    until = time.monotonic() + _COUNTING
    with opened_at(place) as store:
        opened = (zarr.open_array(store, path=name, mode="r", **place.zarr_options) for name in names)
        found = [
            _of_zarr(name, each, images.get(name)).model_copy(update=_written(place, "zarr", name, until))
            for name, each in zip(names, opened, strict=True)
        ]
    return tuple(found), outdated_remark(place)


def _written(place: Place, format: str, name: str, until: float) -> dict[str, Any]:
    """Return how many chunks exist, where not all do, if there is time left to count them."""
    try:
        found = None if time.monotonic() > until else of_place(place, format, name)
    except BadInputError as err:
        return {"written": str(err)}
    if found is None or found.is_complete:
        return {}
    return {"written": f"{found} ({found.misplaced.partition(', which')[0]})" if found.misplaced else str(found)}


def _of_zarr(name: str, array: Any, axes: tuple[str, ...] | None) -> Held:
    said = array.attrs.asdict()
    dims = axes or getattr(array.metadata, "dimension_names", None) or said.get("_ARRAY_DIMENSIONS")
    packed = ", ".join(_codec(each) for each in array.compressors) or None
    named = tuple(dims) if dims and all(isinstance(each, str) for each in dims) else None
    chunks = array.shards or array.chunks
    dtype = opening.numpy_type(array)
    return held_as(name, array.shape, dtype, dims=named, chunks=chunks, compression=packed, **_told(dtype, said))


def _tiff(place: Place) -> Listed:
    found = []
    with place.open() as file, opening.tiff_of(file, place) as pages:
        for number, each in enumerate(pages.series):
            name = str(number) if len(pages.series) > 1 else ""
            packed = each.keyframe.compression.name.lower().replace("none", "") or None
            told = _written(place, "tiff", str(number), math.inf)
            found.append(
                held_as(name, each.shape, each.dtype, compression=packed, dims=tuple(each.axes.lower()), **told)
            )
    return tuple(found), ()


def _parquet(place: Place) -> Listed:
    from pyarrow.parquet import ParquetFile

    parts = opening.parquet_parts(place)
    n_rows = n_groups = 0
    for part in parts:
        with places.sentences_about(part, "a Parquet file"), part.open() as file, ParquetFile(file) as table:
            n_rows, n_groups = n_rows + table.metadata.num_rows, n_groups + table.num_row_groups
            columns = table.schema_arrow
    told = f" in {formats.count(len(parts), 'file')}" if len(parts) > 1 else ""
    found = tuple(_column(each.name, n_rows, each.type) for each in columns)
    return found, (f"{formats.count(n_groups, 'group')} of rows{told}.",)


def _csv(place: Place) -> Listed:
    text: tuple[str, ...] = ()
    try:
        found = opening.find_array(place.path, None, options=place.options)
    except opening.NoNumbersError as err:
        if not err.numbers:
            raise
        found = opening.find_array(place.path, opening.joined(err.numbers), options=place.options)
        text = (f"Columns without numbers: {', '.join(err.others[:50])}. Name as array those that are meant.",)
    names = (found.recipe or {})["columns"]
    return (held_as("", found.shape, found.dtype),), (f"Columns: {', '.join(names[:50])}.", *text, *found.remarks)


def _column(name: str, n_rows: int, kind: Any) -> Held:
    try:
        return held_as(name, (n_rows,), kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return held_as(name, (n_rows,), np.dtype(object))


def _codec(codec: Any) -> str:
    """A compressor's name; Blosc's has that of the one inside."""
    inner = getattr(codec, "cname", None)
    name = getattr(codec, "codec_id", None) or type(codec).__name__.removesuffix("Codec").lower()
    return f"{name} ({getattr(inner, 'value', inner)})" if inner else str(name)


def _by_xarray(place: Place) -> Listed:
    found = []
    source = datasets.source_of(place)
    with source.opened() as raw, source.decoded(raw) as dataset:
        for name, each in dataset.variables.items():
            kind = each.encoding.get("dtype", each.dtype)
            dims = tuple(map(str, each.dims))
            found.append(held_as(str(name), each.shape, kind, dims=dims, **_told(kind, each.encoding | each.attrs)))
    return tuple(found), ()


def _by_files(place: Place) -> Listed:
    files = datasets.files_of(place)
    found, _ = _by_xarray(Place(files[0]))
    told = f"Lengths are those of the first of {formats.count(len(files), 'file')}."
    return found, (f"{told} They are read as one if they differ along one dimension alone.",)


def _told(dtype: Any, said: Mapping[str, Any]) -> dict[str, str | None]:
    """What attributes say of an array: how it is packed, what it is and in which units."""
    packing = None
    # What nobody can read says so where somebody wants to compute with it.
    with contextlib.suppress(BadInputError):
        found = conventions.stored("it", np.dtype(dtype), said)
        packing = f"packed (× {found.scale:.6g} + {found.offset:.6g})" if found.is_packed else None
    return {"packing": packing, "title": _title(said)}


def _title(said: Mapping[str, Any]) -> str | None:
    name, units = (_text(said.get(each)) for each in ("long_name", "units"))
    name = name or _text(said.get("standard_name"))
    return f"{name} ({units})" if name and units else name or units or None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value) if value is not None else ""


def _dimensions(place: Place, held: tuple[Held, ...]) -> tuple[Dimension, ...]:
    """Named dimensions with the ends of their coordinates, from each group that has some."""
    groups = dict.fromkeys(each.name.rpartition("/")[0] for each in held if each.dims)
    found: dict[str, Dimension] = {}
    for group in list(groups)[:20]:
        source = datasets.source_of(place, group or None)
        with places.sentences_about(place, datasets.FORMATS), source.opened() as raw, source.decoded(raw) as dataset:
            found |= {each.name: each for each in _of_dataset(dataset)}
    return tuple(found.values())


def _of_dataset(dataset: Any) -> Iterator[Dimension]:
    for name, length in dataset.sizes.items():
        ends: list[str | None] = [None, None]
        if name in dataset.coords and length:
            values = dataset.coords[name].values
            ends = [datasets.shown(values[place]) for place in (0, -1)]
        yield Dimension(name=str(name), length=int(length), first=ends[0], last=ends[1])


_BY_XARRAY = ("netcdf3", "grib")
_FORMATS: Mapping[str, tuple[str, Callable[[Place], Listed]]] = {
    "npy": ("NumPy array", _npy),
    "npz": ("NumPy arrays", _npz),
    "hdf5": ("HDF5", _hdf5),
    "zarr": ("Zarr", _zarr),
    "zarr-zip": ("Zarr in a .zip file", _zarr),
    "netcdf3": ("NetCDF 3", _by_xarray),
    "grib": ("GRIB", _by_xarray),
    "netcdf-files": ("NetCDF files", _by_files),
    "tiff": ("TIFF", _tiff),
    "parquet": ("Parquet", _parquet),
    "csv": ("Table of text", _csv),
}
