"""What a file holds, before anything runs on it: arrays with shape, type, chunks and compression, and dimensions."""

from __future__ import annotations

import base64
import contextlib
import io
import math
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from workbench import formats
from workbench.errors import BadInputError, MissingError, WorkbenchError
from workbench.storage import conventions, datasets, places
from workbench.storage.decoders import check_decoders
from workbench.storage.places import Options, Place
from workbench.storage.unreadable import UnreadableError
from workbench.storage.written import NON_COORDINATE, of_place
from workbench.storage.zarrs import files_at, images_of, opened_at, outdated_remark
from workbench.workloads import file, opening
from workbench.workloads.opening import Found

_MOST = 500
"""Arrays that are listed."""
_SITES = 1000
"""Variants of which it is told how much is unknown."""
MOST_BYTES = 8 * 2**20
"""Of stored blocks that are read for a picture."""
_COUNTING = 5.0
"""Seconds in which chunks that exist are counted."""
_SIDE = 64
_PALETTE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Five of viridis's colours, from the least to the largest value."""


class Picture(BaseModel, frozen=True):
    """An image of some numbers of an array."""

    array: str
    caption: str
    """Which part it is of, and of which values its colours are."""
    png: str
    """As base64."""


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
    north_last: bool = Field(default=False, exclude=True)
    """Whether it has latitudes that rise, so that a picture of it stands on its head."""

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
    picture: Picture | None = None
    """Some of the numbers of the largest array, where they cost little to read."""

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
        kind = "bed" if place.name.lower().endswith(_GENOTYPES) else opening.format_of(place)
        title, listed = _FORMATS[kind]
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
    picture, unread = (None, ()) if kind in _NO_PICTURE else _picture(place, held, dimensions)
    return Contents(
        path=place.path,
        format=title,
        n_bytes=_size(place),
        arrays=held[:_MOST],
        dimensions=dimensions,
        choices=_choices(held, dimensions),
        remarks=(*remarks, *unread),
        picture=picture,
    )


def _picture(
    place: Place, held: tuple[Held, ...], dimensions: Sequence[Dimension]
) -> tuple[Picture | None, tuple[str, ...]]:
    """Of the largest array of two dimensions or more, and a sentence where its numbers can't be decoded."""
    images = [each for each in held if len(each.shape) > 1 and _has_numbers(each)]
    if not images:
        return None, ()
    largest = max(images, key=lambda each: each.n_bytes)
    upside_down = {each.name for each in dimensions if each.north_last}
    down = largest.dims is not None and largest.dims[-2] in upside_down
    # What else can't be read is said where somebody wants to compute with it.
    try:
        return picture_of(place, largest.name or None, from_below=down), ()
    except (MissingError, UnreadableError) as err:
        return None, (str(err),)
    except (WorkbenchError, OSError, ValueError, KeyError, ImportError):
        return None, ()


def picture_of(place: Place, array: str | None, *, from_below: bool = False) -> Picture | None:
    """The last two dimensions at the first place of the others, or a corner of them; None where that takes too much.

    The first row is on top, or `from_below` at the bottom.
    """
    found = opening.find_array(place.path, array, options=place.options, as_matrix=False)
    check_decoders(place, *opening.stored_as(found))
    window = _window(found)
    if window is None:
        return None
    options = dict(place.options if found.recipe is None else found.recipe)
    block = file.read_stored(found.format, found.path, found.array, options, *window)
    numbers = block if found.unpack is None else file.unpacked(block, **found.unpack)
    numbers = np.asarray(numbers, "float64").reshape(numbers.shape[-2:])
    shown = numbers[:: _step(numbers.shape[0]), :: _step(numbers.shape[1])]
    known = shown[np.isfinite(shown)]
    if not known.size:
        return None
    low, high = np.percentile(known, (2, 98))
    parts = [f"{part.start} to {part.stop - 1}" for part in window[-2:]]
    of = "" if [part.stop for part in window] == list(found.shape) else "part of "
    caption = f"{of}{found.array or 'the array'}: {parts[0]} by {parts[1]}, values from {low:.4g} to {high:.4g}"
    return Picture(array=found.array or "", caption=caption, png=_png(shown[::-1] if from_below else shown, low, high))


def _window(found: Found) -> tuple[slice, ...] | None:
    """The part that is read: all of the last two dimensions, halved until its stored blocks are few enough bytes."""
    if len(found.shape) < 2 or min(found.shape[-2:]) < 2:
        return None
    before = [slice(0, 1) for _ in found.shape[:-2]]
    if found.chunks is None and not found.whole:
        # In one piece, of which some rows can be read.
        return (*before, *(slice(0, length, _step(length)) for length in found.shape[-2:]))
    chunks = found.chunks or found.shape
    lengths = [*(1 for _ in before), *found.shape[-2:]]
    while _covered(lengths, chunks) * found.dtype.itemsize > MOST_BYTES:
        axis = max((-2, -1), key=lambda axis: lengths[axis] / chunks[axis])
        if lengths[axis] <= chunks[axis]:
            return None
        lengths[axis] = -(-lengths[axis] // 2)
    return tuple(slice(0, length) for length in lengths)


def _step(length: int) -> int:
    return max(1, -(-length // _SIDE))


def _covered(lengths: Sequence[int], chunks: Sequence[int]) -> int:
    return math.prod(-(-length // chunk) * chunk for length, chunk in zip(lengths, chunks, strict=True))


def _png(numbers: np.ndarray[Any, Any], low: float, high: float) -> str:
    from PIL import Image

    known = np.isfinite(numbers)
    at = np.clip((np.where(known, numbers, low) - low) / ((high - low) or 1.0), 0, 1)
    colors = np.array(_PALETTE).T
    bands = [np.interp(at, np.linspace(0, 1, len(_PALETTE)), band) for band in colors]
    rgba = np.stack([*bands, 255.0 * known], axis=-1).astype("uint8")
    told = io.BytesIO()
    Image.fromarray(rgba, "RGBA").save(told, "png", optimize=True)
    return base64.b64encode(told.getvalue()).decode()


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


def _held(name: str, shape: Any, dtype: Any, **more: Any) -> Held:
    shape, known = tuple(map(int, shape)), np.dtype(dtype)
    # NumPy's text of any length has a name that isn't read again.
    called = "str" if known.kind == "T" else str(known)
    return Held(name=name, shape=shape, dtype=called, n_bytes=math.prod(shape) * known.itemsize, **more)


def _npy(place: Place) -> Listed:
    shape, fortran, dtype = opening.npy_whole(place)
    told = ("It is stored column by column (Fortran order).",) if fortran and len(shape) > 1 else ()
    return (_held("", shape, dtype),), told


def _npz(place: Place) -> Listed:
    found = []
    with place.open() as file, zipfile.ZipFile(file) as members:
        for info in members.infolist():
            with members.open(info) as member:
                shape, _, dtype = opening.npy_header(member)
            packed = "deflate" if info.compress_type != zipfile.ZIP_STORED else None
            found.append(_held(info.filename.removesuffix(".npy"), shape, dtype, compression=packed))
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
                found.append(_held(name, item.shape or (), item.dtype, dims=_scales(name, item), **stored, **told))
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
    return _held(name, array.shape, dtype, dims=named, chunks=chunks, compression=packed, **_told(dtype, said))


def _tiff(place: Place) -> Listed:
    found = []
    with place.open() as file, opening.tiff_of(file, place) as pages:
        for number, each in enumerate(pages.series):
            name = str(number) if len(pages.series) > 1 else ""
            packed = each.keyframe.compression.name.lower().replace("none", "") or None
            told = _written(place, "tiff", str(number), math.inf)
            found.append(_held(name, each.shape, each.dtype, compression=packed, dims=tuple(each.axes.lower()), **told))
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
    return (_held("", found.shape, found.dtype),), (f"Columns: {', '.join(names[:50])}.", *text, *found.remarks)


def _bed(place: Place) -> Listed:
    from workbench.genotypes import open_genotypes

    found = open_genotypes(place.path, storage_options=place.options or None)
    first = np.asarray(found[: min(_SITES, found.n_variants)].counts(3).compute())
    contigs = [str(each) for each in dict.fromkeys(np.asarray(found.variants.contig).tolist())]
    told = [f"Contigs: {', '.join(contigs[:30])}."] if contigs else []
    told.append(f"Of the first {formats.count(len(first), 'variant')} {100 * (first == 3).mean():.2g} % are unknown.")
    names = [str(each) for each in found.samples[:3]]
    told.append(f"Samples: {', '.join(names)}{' …' if found.n_samples > len(names) else ''}.")
    n_bytes = found.n_variants * -(-found.n_samples // 4)
    genotypes = _held("genotypes", found.shape, "uint8", dims=("variant", "sample"), compression="two bits each")
    return (genotypes.model_copy(update={"n_bytes": n_bytes}),), (*told, *found.remarks)


def _column(name: str, n_rows: int, kind: Any) -> Held:
    try:
        return _held(name, (n_rows,), kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return _held(name, (n_rows,), np.dtype(object))


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
            found.append(_held(str(name), each.shape, kind, dims=dims, **_told(kind, each.encoding | each.attrs)))
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
        north_last = False
        if name in dataset.coords and length:
            values = dataset.coords[name].values
            ends = [datasets.shown(values[place]) for place in (0, -1)]
            north_last = datasets.is_latitude(str(name), dataset.coords[name]) and bool(values[0] < values[-1])
        yield Dimension(name=str(name), length=int(length), first=ends[0], last=ends[1], north_last=north_last)


# Of these some aren't read: it is said what makes a .bed of them.
_GENOTYPES = (".bed", ".vcf", ".vcf.gz", ".vcf.bgz", ".bcf", ".pgen", ".ped", ".bgen")
_BY_XARRAY = ("netcdf3", "grib")
_NO_PICTURE = ("csv", "parquet", "bed")
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
    "bed": ("PLINK .bed, .bim and .fam", _bed),
}
