"""What is in a file: finds the array that is meant and says in one sentence what is wrong with it."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging.handlers
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np

from workbench import credentials, formats
from workbench.errors import BadInputError, MissingError, WorkbenchError, install
from workbench.storage import conventions, datasets, places
from workbench.storage.datasets import is_bounds
from workbench.storage.decoders import check_decoders, decoders
from workbench.storage.places import Options, Place
from workbench.storage.written import bounds_of, of_place, remark
from workbench.storage.zarrs import MARKS, files_at, images_of, is_marked, opened_at, outdated_remark, safe
from workbench.workloads import fields
from workbench.workloads.sizes import number_of_blocks
from workbench.workloads.values import BadParameterError

_KINDS = {
    "c": "complex numbers",
    "O": "Python objects",
    "S": "text",
    "U": "text",
    "T": "text",
    "M": "dates",
    "m": "durations",
    "V": "records",
}
FORMATS = ".npy, .npz, HDF5, NetCDF, Zarr (a folder or a .zip), TIFF, Parquet (a file or a folder of them) or CSV"
_BY_NAME = ("hdf5", "zarr", "zarr-zip")
"""Formats of which xarray tells names of dimensions."""
_HDF5 = b"\x89HDF\r\n\x1a\n"
UNLISTED = "its server can't list what is in it: name the array."
_SAMPLE_BYTES = 1_000_000
_PIECE_BYTES = 4_000_000
"""Of text; a block reads the pieces that its rows are in, so it is of several."""
_PIECES = 4
_DATASETS = ("netcdf3", "grib", "netcdf-files")
_MOST_FOLDERS = 1000
_ANONYMOUS: Mapping[str, Options] = {
    **{protocol: {"anon": True} for protocol in ("s3", "s3a", "abfs", "abfss", "az")},
    **{protocol: {"token": "anon"} for protocol in ("gs", "gcs")},
}
_ENDPOINTS = ("s3", "s3a", "gs", "gcs")

SERVED: Mapping[str, tuple[Any, Any]] = {
    "anon": (fields.Anonymous, False),
    "endpoint_url": (fields.Endpoint | None, None),
    places.TOKEN: (fields.TokenVariable | None, None),
}
"""Fields of a form on the server of a URL, which `options_of` reads."""


@dataclass(frozen=True)
class Found:
    """An array in a file. `chunks` is how it is stored, None where any block reads equally well."""

    path: str
    array: str | None
    format: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None = None
    whole: bool = False
    """It can only be read as a whole."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = None
    """What it is filled with where nothing was written, if that stands for "missing"."""
    hidden: int = 0
    """Values that a mask beside it hides."""
    unpack: Mapping[str, Any] | None = None
    """What makes numbers of the stored ones, as `workbench.workloads.file.unpacked` takes it."""
    remarks: tuple[str, ...] = ()
    """How the numbers are read, where that isn't plain."""
    recipe: Mapping[str, Any] | None = None
    """Which part of a variable of a dataset is meant, or what else its reader must know."""
    dims: tuple[str, ...] | None = None
    """Names of its dimensions, where they have some."""
    rows: str | None = None
    """Dimension that the rows of a matrix go through where none is named; None for the first."""
    lengths: tuple[int, ...] = ()
    axes: tuple[tuple[int, ...], ...] | None = None
    """Of a matrix that is made of an array of more dimensions: its shape, and which the rows and columns go through."""

    def __str__(self) -> str:
        return f"{self.path} ({self.array})" if self.array else self.path

    @property
    def working_type(self) -> str:
        """Type in which its numbers are worked on."""
        return "float32" if self.dtype.kind == "f" and self.dtype.itemsize <= 4 else "float64"

    def facts(self) -> dict[str, Any]:
        """What `workbench.workloads.file.array_of_file` and who uses it take, but for options and blocks."""
        same = {name: getattr(self, name) for name in ("path", "array", "format", "unpack", "remarks", "shape")}
        stored = self.working_type if self.unpack else self.dtype.newbyteorder("=").name
        n_stored = number_of_blocks(self.shape, self.chunks) if self.chunks and not self.whole else 1
        return same | {"stored": stored, "dtype": self.working_type, "n_stored": n_stored}


_IMPORTS = {
    "hdf5": ("h5py",),
    "zarr": ("zarr",),
    "zarr-zip": ("zarr",),
    "tiff": ("tifffile", "zarr"),
    "parquet": ("pyarrow",),
    "csv": ("pyarrow",),
}
"""Modules with which tasks read a format; xarray and its engine read datasets."""


def imports_of(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return what tasks import to read a file and to decompress it, as `Template.imports`."""
    options = resolved.get("options") or {}
    options = options["options"] if "part" in options else options
    source = options.get("source") or {key: resolved[key] for key in ("engine", "group") if key in resolved}
    engine, place = source.get("engine"), Place(resolved["path"], source.get("options", options))
    array = resolved.get("array") or resolved.get("variable")
    format, name = _stored_as(place, resolved.get("format", ""), array, source)
    found = ("xarray", *_IMPORTS.get(format, (format,))) if engine else _IMPORTS.get(format, ())
    # What can't be read any more is for whoever opens it to tell.
    with contextlib.suppress(WorkbenchError, OSError, LookupError, ValueError):
        found += () if source.get("files") else decoders(place, format, name)
    return dict.fromkeys((*found, *places.modules_of(resolved["path"])), "")


def find_array(
    path: str,
    array: str | None,
    *,
    options: Options | None = None,
    rows: str | None = None,
    select: str | None = None,
    as_matrix: bool = True,
) -> Found:
    """Find the array at a path or URL; only its description is read.

    Parameters
    ----------
    options
        What fsspec is told of a URL's server.
    rows, select
        Which dimensions the rows go through, and which part is meant, by names of dimensions or by their numbers.
        With rows="" names of dimensions are found, however few there are.
    as_matrix
        Whether rows and columns are meant, and not all dimensions that it has.

    Raises
    ------
    BadParameterError
        There is no such array, or it is none that has an SVD.
    MissingError
        The package that reads this kind of URL isn't installed.
    """
    try:
        place = places.full(path, options)
        with places.sentences_about(place, FORMATS):
            kind = format_of(place)
            images = images_of(*files_at(place)) if kind in ("zarr", "zarr-zip") else {}
            is_image = bool(images) if array is None else bool(images.get(array.strip("/")))
            by_name, named = kind in _BY_NAME and not is_image, None
            if kind in _DATASETS:
                named = _dataset(place, array, select)
            elif by_name and not all(map(str.isdigit, (*datasets.asked(select), *names_in(rows)))):
                named = _named(place, array, select)
            found = named or _READERS[kind](place, array)
            if select and not named:
                found = _part(place, found, select)
            elif by_name and not named and (rows is not None or (as_matrix and len(found.shape) > 2)):
                with contextlib.suppress(WorkbenchError):
                    found = _named(place, found.array, None) or found
            if as_matrix:
                found = _folded(found, rows)
        decoded = _decoded(found)
    except MissingError:
        raise
    except BadParameterError as err:
        if err.parameter == "variable":
            raise _bad(str(err), "array") from err
        raise
    except WorkbenchError as err:
        raise _bad(str(err)) from err
    if array is not None and found.array is None:
        raise BadParameterError(f"{place} holds one array, which has no name; array was given as {array!r}.", "array")
    return decoded


def array_of(workload: str, values: Mapping[str, Any], **asked: Any) -> tuple[Found, dict[str, Any]]:
    """The array that a workload's parameters mean, found as `find_array` is asked, and what its function takes of it.

    Raises BadParameterError, which names the parameter.
    """
    options = options_of(workload, values["path"], values)
    try:
        found = find_array(values["path"], values["array"], options=options, select=values["select"], **asked)
    except BadParameterError as err:
        raise BadParameterError(f"{err.parameter} of {workload}: {err}", err.parameter) from err
    try:
        told = existing_chunks(found, places.full(values["path"], options), values["missing_chunks"])
    except BadInputError as err:
        raise BadParameterError(f"path of {workload}: {err}", "path") from err
    found = replace(found, remarks=(*told, *found.remarks))
    return found, found.facts() | {"options": options if found.recipe is None else found.recipe}


def existing_chunks(found: Found, place: Place, missing_chunks: str) -> tuple[str, ...]:
    """Return sentences on metadata that contradict each other and on chunks that don't exist.

    Raises BadInputError where most chunks don't exist and `missing_chunks` isn't "fill", and MissingError where a
    package that decompresses them isn't installed.
    """
    source = (found.recipe or {}).get("source") or {}
    if source.get("files"):
        return ()
    format, name = stored_as(found)
    group = source.get("group")
    check_decoders(place, format, name)
    said = outdated_remark(place, group) if format in ("zarr", "zarr-zip") else ()
    written = of_place(place, format, name, bounds_of(found.recipe))
    known = {"missing": (found.unpack or {}).get("missing", ()), "accept": missing_chunks == "fill"}
    told = remark(str(found), written, **known)
    return (*said, told) if told else said


def stored_as(found: Found) -> tuple[str, str | None]:
    """Return the format of an array, or the engine that opens its dataset, and its name there, with its group."""
    source = (found.recipe or {}).get("source") or {}
    return _stored_as(Place(found.path, source.get("options", {})), found.format, found.array, source)


def _stored_as(place: Place, format: str, array: str | None, source: Mapping[str, Any]) -> tuple[str, str | None]:
    group = source.get("group")
    name = f"{group}/{array.rpartition('/')[2]}" if group and array else array
    format = source.get("engine") or format
    if format == datasets.IMAGES:
        format = "zarr" if is_marked(place) else "tiff"
    return format, name


def options_of(workload: str, path: str, given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """What fsspec is told of the server of a URL: to ask without keys, where it is, and which variable holds a token.

    Raises
    ------
    BadParameterError
        Nobody could read such a URL so; the names of parameters begin with `prefix`.
    """
    protocol = path.split("://")[0] if "://" in path else None
    asked = {name: given[prefix + name] for name in SERVED if given.get(prefix + name)}
    for name, of in zip(SERVED, (_ANONYMOUS, _ENDPOINTS, places.TOKENS), strict=True):
        if name in asked and protocol not in of:
            urls, known = ", ".join(f"{each}://" for each in of), prefix + name
            raise _bad(f"{known} of {workload} is for {urls}, and {path} is none of them. Leave {known} out.", known)
    if asked.pop("anon", False) and protocol:
        asked |= _ANONYMOUS[protocol]
    else:
        _check_keys(path, asked, prefix)
    if places.TOKEN in asked:
        asked[places.TOKEN_SERVER] = places.server_of(path)
        try:
            places.with_token(path, asked)
        except BadInputError as err:
            raise _bad(f"{places.TOKEN} of {workload}: {err}", places.TOKEN) from err
        server = os.environ.get("HF_ENDPOINT", "https://huggingface.co") if protocol == "hf" else path
        credentials.check(asked[places.TOKEN], credentials.origin(server), places.TOKEN)
    return asked


def _check_keys(path: str, asked: Mapping[str, Any], prefix: str) -> None:
    """Raise UnconfirmedError where the keys of this environment would go to a server that nobody configured."""
    protocol = path.partition("://")[0]
    endpoint = asked.get("endpoint_url")
    if endpoint is not None and credentials.origin(endpoint) not in map(credentials.origin, _configured()):
        credentials.check(f"Your keys for {protocol}", credentials.origin(endpoint), f"{prefix}endpoint_url")
    account = re.fullmatch(r"abfss?://[^@/]*@([^./]+).*", path)
    if account and account[1] != os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") and places.TOKEN not in asked:
        credentials.check("Your keys for abfs", credentials.origin(path), "path")
    places.check_protocols(path)


def _configured() -> list[str]:
    """Servers of S3 and Google's storage that the environment names."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST")
    return [each for name in names if "://" in (each := os.environ.get(name, ""))]


def _decoded(found: Found) -> Found:
    """Return the array with its attributes applied: scale, offset, missing values."""
    try:
        said = conventions.stored(str(found), found.dtype, found.attributes, found.fill)
    except BadInputError as err:
        raise _bad(f"{err} Or open it in a function of your own, with xarray and decode_cf=False.") from err
    if found.hidden:
        raise _bad(
            f"{found} has a mask beside it, which hides {found.hidden} of its values if it is that of a NumPy array. "
            "Fill them and save it without a mask, or load it in a function of your own."
        )
    turned = "MATLAB_class" in found.attributes
    remarks = ("MATLAB wrote it: its rows are columns here, and its columns rows.",) if turned else ()
    return replace(found, unpack=said.recipe(found.dtype), remarks=(*found.remarks, *said.remarks, *remarks))


def _bad(sentence: str, parameter: str = "path") -> BadParameterError:
    return BadParameterError(sentence, parameter)


def format_of(place: Place) -> str:
    """In which format it is: npy, npz, hdf5, zarr, zarr-zip, netcdf3, netcdf-files, grib, tiff, parquet or csv."""
    if not place.is_url:
        if not Path(place.path).is_dir() and datasets.files_of(place):
            return "netcdf-files"
        return _format_of_folder(place) if Path(place.path).is_dir() else _format_of_file(place)
    fs, root = place.storage()
    if is_marked(place):
        return "zarr"
    if not fs.isfile(root) and fs.isdir(root):
        return _format_of_folder(place)
    if not fs.exists(root):
        fs.info(root)  # which tells why
        raise FileNotFoundError(place)
    found = _format_of_file(place)
    if found == "zarr-zip":
        raise _bad(f"{place} is a .zip file at a URL. Copy it to this machine, or unpack it there.")
    return found


def _format_of_folder(place: Place) -> str:
    entries = _entries(*place.storage())
    if any(map(_is_part, entries)):
        return "parquet"
    parts = sorted(name for name, kind in entries.items() if kind == "directory" and "=" in name)
    if parts:
        raise _bad(f"{place} is a table in folders, such as {parts[0]}. Give one of them, or write it into one folder.")
    return "netcdf-files" if datasets.files_of(place) else "zarr"


def _is_part(name: str) -> bool:
    """Whether a file in a folder is a part of a Parquet table, as pandas, Dask and Spark write them."""
    return name.endswith((".parquet", ".parq")) and not name.startswith(("_", "."))


def parquet_parts(place: Place) -> list[Place]:
    """Files of a Parquet table, those of a folder by the numbers in their names."""
    fs, root = place.storage()
    if fs.isfile(root):
        return [place]
    names = sorted(
        filter(_is_part, _entries(fs, root)),
        key=lambda name: [int(each) if each.isdigit() else each for each in re.split(r"(\d+)", name)],
    )
    return [Place(f"{place.path.rstrip('/')}/{name}", place.options) for name in names]


def _format_of_file(place: Place) -> str:
    with place.open() as file:
        start = file.read(8)
        if start.startswith(b"\x93NUMPY"):
            return "npy"
        if start == _HDF5:
            return "hdf5"
        if start.startswith(b"PK"):
            with zipfile.ZipFile(file) as members:
                names = members.namelist()
            return "npz" if names and all(name.endswith(".npy") for name in names) else "zarr-zip"
    if place.name in MARKS:
        raise _bad(f"{place} belongs to a Zarr array. Give the folder that it is in.")
    if start[:3] == b"CDF":
        return "netcdf3"
    if start[:4] == b"GRIB":
        return "grib"
    if start[:4] == b"PAR1":
        return "parquet"
    if start[:4] in datasets.TIFF:
        return "tiff"
    if start and place.name.lower().endswith((".csv", ".tsv")):
        return "csv"
    if start[:2] == b"\x1f\x8b":
        raise _bad(
            f"{place} is compressed as a whole, so no part of it can be read alone. Unpack it first: gunzip FILE."
        )
    if not start:
        raise _bad(f"{place} is empty. Give the path of {FORMATS}.")
    # Numbers with something between them: what is missing is the name by which we know.
    hint = (
        " A table of numbers as text has a name that ends with .csv or .tsv." if start[:1] in b"-+.0123456789" else ""
    )
    raise _bad(f"{place} is in no format that can be read here. Give the path of {FORMATS}.{hint}")


def _dataset(place: Place, array: str | None, select: str | None) -> Found:
    """A variable as xarray opens it."""
    picked = datasets.pick(place.path, array, select, place.options)
    return Found(
        picked.source.path,
        picked.name,
        "dataset",
        picked.shape,
        picked.dtype,
        picked.stored,
        attributes=picked.attrs,
        fill=picked.fill,
        remarks=picked.numbers.remarks[:1] if picked.source.packed_apart else (),
        recipe=picked.recipe(),
        dims=picked.dims,
        rows=datasets.time_of(picked.coords, picked.dims),
    )


def _named(place: Place, array: str | None, select: str | None) -> Found | None:
    """A variable whose dimensions have names; None of other arrays, of which xarray can't say more."""
    try:
        named = _dataset(place, array, None)
    except (BadParameterError, MissingError):
        raise
    except WorkbenchError:
        return None
    # So xarray calls dimensions of HDF5 that have no names.
    if any(dim.startswith("phony_dim") for dim in named.dims or ()):
        return None
    return _dataset(place, array, select) if select else named


def _part(place: Place, found: Found, select: str) -> Found:
    """A part of an array whose dimensions have no coordinates, by positions along them."""
    if found.recipe is not None:
        raise _bad(f"{found} is a table, of which no rows can be selected. Leave select out.", "select")
    import xarray as xr

    dims = found.dims or tuple(map(str, range(len(found.shape))))
    nothing = xr.DataArray(np.broadcast_to(0, found.shape), dims=dims, name=found.array or "its array")
    where = datasets.positions(place, nothing, datasets.asked(select))
    part = {dim: [each] if isinstance(each, int) else [*each[:2]] for dim, each in where.items()}
    left = {axis: part[dim] for axis, dim in enumerate(dims) if len(part[dim]) > 1}
    shape = tuple(stop - start for start, stop in left.values())
    chunks = found.chunks and tuple(min(found.chunks[axis], stop - start) for axis, (start, stop) in left.items())
    recipe = {"options": dict(place.options), "part": [*part.values()]}
    named = tuple(dims[axis] for axis in left) if found.dims else None
    return replace(found, shape=shape, chunks=chunks, dims=named, recipe=recipe)


def names_in(names: str | None) -> list[str]:
    """Names, or numbers, of dimensions that stand in a text with commas between."""
    return [each.strip() for each in (names or "").split(",") if each.strip()]


def _folded(found: Found, rows: str | None) -> Found:
    """A matrix, whose rows go through some dimensions of an array, and its columns through all others."""
    if len(found.shape) < 2 and found.dims:
        raise _bad(f"{found} has one dimension as it was selected. Select less, so that two are left.", "select")
    if len(found.shape) < 2 or (found.dims is None and rows is None):
        _check_matrix(found)
        return found
    numbers = tuple(map(str, range(len(found.shape))))
    dims = found.dims or numbers
    by_number = dict(zip(numbers, dims, strict=True)) | {dim: dim for dim in dims}
    of_rows = [by_number.get(each, each) for each in names_in(rows)] or [found.rows or dims[0]]
    of_columns = [dim for dim in dims if dim not in of_rows]
    if not of_columns or len(set(of_rows)) < len(of_rows) or not set(of_rows) <= set(dims):
        raise _bad(f"rows is {rows!r}. Name some of the dimensions of {found}, but not all: {', '.join(dims)}.", "rows")
    axes = tuple(tuple(dims.index(dim) for dim in group) for group in (of_rows, of_columns))
    stored = found.chunks or (1,) * (len(dims) - 1) + found.shape[-1:]
    inner = [math.prod(found.shape[axis] for axis in group[1:]) for group in axes]
    shape, chunks = (
        tuple(lengths[group[0]] * each for group, each in zip(axes, inner, strict=True))
        for lengths in (found.shape, stored)
    )
    remark = f"Rows are {' × '.join(of_rows)}, columns {' × '.join(of_columns)}."
    return replace(found, shape=shape, chunks=chunks, lengths=found.shape, axes=axes, remarks=(*found.remarks, remark))


def npy_whole(place: Place) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it lies column by column, and type of a .npy. Raises BadInputError where it is cut short."""
    with place.open() as file:
        shape, fortran, dtype = npy_header(file)
        needed = file.tell() + math.prod(shape) * dtype.itemsize
        size = file.seek(0, os.SEEK_END)
    # Objects are pickled, and are refused elsewhere.
    if size < needed and not dtype.hasobject:
        raise _bad(
            f"{place} is cut short: an array of {formats.by(shape)} {dtype} needs {needed} bytes and it has {size}. "
            "Save or copy it again."
        )
    return shape, fortran, dtype


def _npy(place: Place, array: str | None) -> Found:
    shape, fortran, dtype = npy_whole(place)
    _check(place, None, shape, dtype)
    if not place.is_url:
        return Found(place.path, None, "npy", _lengths(shape), dtype)
    if fortran:
        raise _bad(
            f"{place} is stored column by column (Fortran order), of which no rows can be fetched. Copy it here."
        )
    return Found(place.path, None, "npy-url", _lengths(shape), dtype, chunks=(1, *shape[1:]))


def _npz(place: Place, array: str | None) -> Found:
    with place.open() as file, zipfile.ZipFile(file) as members:
        names = sorted(name.removesuffix(".npy") for name in members.namelist())
        chosen = [name for name in names if name != "mask" or array == "mask"]
        name = _choose(place, array, chosen or names)
        with members.open(f"{name}.npy") as member:
            shape, _, dtype = npy_header(member)
        _check(place, name, shape, dtype)
        masks = {"mask", f"{name}_mask", f"mask_{name}"}.intersection(names) - {name}
        hidden = sum(_hidden(members, mask, shape) for mask in masks)
    return Found(place.path, name, "npz", _lengths(shape), dtype, whole=True, hidden=hidden)


def _hidden(members: zipfile.ZipFile, mask: str, shape: tuple[int, ...]) -> int:
    """How many values a mask of this shape hides, as NumPy's masked arrays mean it."""
    with members.open(f"{mask}.npy") as member:
        size, _, dtype = npy_header(member)
    if size != shape or dtype.kind != "b":
        return 0
    with members.open(f"{mask}.npy") as member:
        return int(np.lib.format.read_array(member, allow_pickle=False).sum())


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it lies column by column, and type."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"its header has the shape {shape}, and no length can be negative")
    return shape, fortran, dtype


@contextlib.contextmanager
def hdf5_datasets(place: Place, array: str | None = None) -> Iterator[dict[str, Any]]:
    """All datasets of an HDF5 file by name, while it is open; behind links only the one that is named."""
    import h5py

    found = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item

    with place.open() as file, h5py.File(file, "r") as opened:
        opened.visititems(note)
        if array is not None and array.strip("/"):
            note(array.strip("/"), opened.get(array))
        yield found


def _hdf5(place: Place, array: str | None) -> Found:
    import h5py

    with hdf5_datasets(place, array) as datasets:
        sizes = {each: datasets[each].shape for each in datasets}
        name = _choose(
            place, array, sorted(datasets), lambda each: h5py.h5ds.is_scale(datasets[each].id) or is_bounds(each, sizes)
        )
        dataset = datasets[name]
        if dataset.shape is None:
            raise _bad(f"{place} ({name}) holds no value (h5py.Empty). Give an array with at least one.")
        shape, dtype = dataset.shape, np.dtype(dataset.dtype)
        _check(place, name, shape, dtype)
        for other in (each.file_name for each in (dataset.virtual_sources() if dataset.is_virtual else ())):
            # HDF5 has the fill value where it isn't there.
            if place.is_url or not ("%" in other or (Path(place.path).parent / other).exists()):
                raise _bad(f"{place} ({name}) is made of other files, of which {other} isn't on this machine. Copy it.")
        chunks = dataset.chunks and _lengths(dataset.chunks)
        attributes = {key: value for key, value in dataset.attrs.items() if not isinstance(value, h5py.Empty)}
        fill = conventions.netcdf_fill(dtype, dataset.fillvalue)
        return Found(place.path, name, "hdf5", _lengths(shape), dtype, chunks, attributes=attributes, fill=fill)


def _zarr(place: Place, array: str | None, kind: str = "zarr") -> Found:
    import zarr

    name, dims = _in_group(place, array)
    with opened_at(place) as store:
        found = safe(zarr.open_array(store, path=name or "", mode="r", **place.zarr_options), place)
    dtype, shape = numpy_type(found), _lengths(found.shape)
    _check(place, name, shape, dtype)
    chunks, attributes = _lengths(found.shards or found.chunks), found.attrs.asdict()
    # To xarray, whose mark the names of dimensions are, the fill value of format 2 means "missing".
    fills = found.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes
    fill, named = found.fill_value if fills else None, dims if len(dims) == len(shape) else None
    return Found(place.path, name, kind, shape, dtype, chunks, attributes=attributes, fill=fill, dims=named)


def _in_group(place: Place, array: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Name of the array that is meant, None where there is but one without a name, and of an image its dimensions."""
    fs, root = files_at(place)
    images = images_of(fs, root)
    if array is None and images:
        return next(iter(images.items()))
    names = zarr_arrays(fs, root)
    if names == [""]:
        return None, ()
    if not names and array is not None and place.is_url:
        return array, images.get(array.strip("/"), ())  # A server that can't list its files: the name decides.
    if not names and place.is_url and not place.names():
        raise _bad(f"{place} is a Zarr group, and {UNLISTED}", "array")
    name = _choose(place, array, names, lambda name: _is_coordinate(fs, root, name))
    return name, images.get(name, ())


def tiff_of(file: Any, place: Place) -> Any:
    """A TIFF file's pages. MissingError where tifffile isn't installed, BadParameterError where it is cut off."""
    if find_spec("tifffile") is None:
        raise MissingError(f"Reading {place} needs tifffile: {install('images')}.")
    from tifffile import TiffFile

    # Of pages that can't be found tifffile speaks in its log alone.
    heard = logging.handlers.BufferingHandler(100)
    log = logging.getLogger("tifffile")
    log.addHandler(heard)
    try:
        found = TiffFile(file)
        pages = list(found.pages)
    finally:
        log.removeHandler(heard)
    size = file.seek(0, os.SEEK_END)
    ends = (start + count for page in pages for start, count in zip(page.dataoffsets, page.databytecounts, strict=True))
    if max(ends, default=0) > size or any("invalid page offset" in each.getMessage() for each in heard.buffer):
        raise _bad(f"{place} is cut short: it goes on beyond its {size} bytes. Save or copy it again.")
    return found


def _tiff(place: Place, array: str | None) -> Found:
    with place.open() as file, tiff_of(file, place) as pages:
        import zarr

        names = [str(number) for number in range(len(pages.series))]
        name = _choose(place, array, names) if len(names) > 1 or array is not None else None
        series = pages.series[int(name or 0)]
        found = zarr.open_array(series.aszarr(level=0), mode="r")
        dims = tuple(series.axes.lower())
    _check(place, name, found.shape, np.dtype(found.dtype))
    # Of a picture rows and columns are plain; of a stack their names say which are meant.
    named = len(found.shape) > 2 and len(set(dims)) == len(found.shape)
    chunks = _lengths(found.chunks)
    return Found(
        place.path, name, "tiff", _lengths(found.shape), np.dtype(found.dtype), chunks, dims=dims if named else None
    )


def _parquet(place: Place, array: str | None) -> Found:
    from pyarrow.parquet import ParquetFile

    parts = parquet_parts(place)
    names: list[str] = []
    ends, rows = [0], 0
    for part in parts:
        with places.sentences_about(part, "a Parquet file"), part.open() as file, ParquetFile(file) as table:
            twice = [name for name, count in Counter(table.schema_arrow.names).items() if count > 1]
            if twice:
                raise _bad(f"{part} has several columns called {twice[0]!r}. Give each a name of its own.")
            there = _columns(part, array, table.schema_arrow)
            if names and there != names:
                raise _bad(f"The columns of {part} aren't those of {parts[0].name}: {', '.join(there[:20])}.")
            names = there
            ends.append(ends[-1] + table.metadata.num_rows)
            rows = rows or (table.metadata.row_group(0).num_rows if table.metadata.num_row_groups else 0)
    recipe = {
        "options": dict(place.options),
        "files": [part.path for part in parts],
        "ends": ends[1:],
        "columns": names,
    }
    return replace(_table(place, array, names, "parquet", ends[-1], rows, len(table.schema_arrow)), recipe=recipe)


def _csv(place: Place, array: str | None) -> Found:
    import io

    from pyarrow import csv, types

    with place.open() as file:
        sample = file.read(_SAMPLE_BYTES)
        sample = sample[: sample.rfind(b"\n") + 1] or sample
        try:
            head = sample.partition(b"\n")[0].decode("utf-8-sig")
        except UnicodeDecodeError:
            raise _bad(f"{place} isn't written in UTF-8. Make it so: iconv -f latin1 -t utf-8 OLD > NEW.") from None
        delimiter = max("\t;,", key=re.sub(r'"[^"]*"', "", head).count)
        first = [each.strip() for each in split(head, delimiter)]
        below = len(sample.partition(b"\n")[0]) + 1
        lines = sample[below:].decode("utf-8", "replace").splitlines()
        if head.startswith("#") and any(lines[-1].count(each) != head.count(each) for each in "\t;," if lines):
            raise _bad(f"{place} begins with a comment ({head[:40]}). Take out such lines: grep -v '^#' OLD > NEW.")
        if all(map(_is_number, first)):
            begin, names = 0, [f"column_{number}" for number in range(len(first))]
            remarks: tuple[str, ...] = ("The first line holds numbers, so it is a row and the columns have no names.",)
        else:
            begin = below
            names, remarks = _unlike(first)
        if not sample[begin:].strip():
            raise _bad(f"{place} has no rows below its names. Give a table with at least one.")
        read = csv.read_csv(
            io.BytesIO(sample[begin:]), csv.ReadOptions(column_names=names), csv.ParseOptions(delimiter=delimiter)
        )
        _check_decimals(place, read, split(array) if array else names)
        chosen = _columns(place, array, read.schema)
        flags = [name for name in chosen if types.is_boolean(read.schema.field(name).type)]
        stamp = () if place.is_url else place.stamp()
        starts, ends = _known_pieces(place.path, begin, *stamp) if stamp else _pieces(file, begin)
    recipe = {"options": dict(place.options), "starts": starts, "ends": ends, "names": names, "delimiter": delimiter}
    rows = ends[-1] * min(_PIECES, len(ends)) // len(ends)
    found = _table(place, array, chosen, "csv", ends[-1], rows, len(names))
    return replace(found, recipe=recipe | {"columns": chosen, "flags": flags}, remarks=(*remarks, *found.remarks))


def _check_decimals(place: Place, rows: Any, wanted: Sequence[str]) -> None:
    """Raise BadParameterError where a column holds numbers with decimal commas."""
    from pyarrow import types

    for name in wanted:
        if name not in rows.schema.names or not types.is_string(rows.schema.field(name).type):
            continue
        values = [each for each in rows[name].slice(0, 100).to_pylist() if each]
        if values and all(
            re.fullmatch(r"\s*[+-]?\d*,\d+(e[+-]?\d+)?\s*|\s*[+-]?\d+\s*", each, re.I) for each in values
        ):
            raise _bad(
                f"{place} has decimal commas, such as {values[0].strip()} in the column {name!r}. Write it with "
                "decimal points: pandas.read_csv(OLD, sep=None, decimal=',').to_csv(NEW, index=False)."
            )


def split(line: str, delimiter: str = ",") -> list[str]:
    """Names that stand in a line, in quotes where the delimiter is in one."""
    import csv

    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])


def joined(names: Sequence[str]) -> str:
    """The line that `split` makes these names of."""
    import csv
    import io

    csv.writer(line := io.StringIO(), lineterminator="").writerow(names)
    return line.getvalue()


def _unlike(names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Names of which no two are the same, as pandas tells columns apart: a, a.1; and a sentence where it had to."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    found: list[str] = []
    taken = set(names)
    for name in names:
        again = name in twice and name in found
        found.append(next(each for n in itertools.count(1) if (each := f"{name}.{n}") not in taken) if again else name)
        taken.add(found[-1])
    if not twice:
        return found, ()
    called = ", ".join(name for name, given in zip(found, names, strict=True) if given in twice[:4])
    return found, (f"Columns of one name are told apart by numbers, as pandas does: {called}.",)


def _is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text or "nan")
        return True
    return False


def _pieces(file: IO[bytes], begin: int) -> tuple[list[int], list[int]]:
    """Return the bytes between which pieces of whole lines lie, and the number of rows up to the end of each."""
    file.seek(begin)
    starts, ends = [begin], [0]
    while piece := file.read(_PIECE_BYTES):
        piece += file.readline()
        starts.append(starts[-1] + len(piece))
        ends.append(ends[-1] + piece.count(b"\n") + (not piece.endswith(b"\n")))
    return starts, ends[1:]


@lru_cache(maxsize=32)
def _known_pieces(path: str, begin: int, *_: str) -> tuple[list[int], list[int]]:
    """Return the pieces of a file of this machine. A form asks at each key, and counting takes 1.2 s per GB."""
    with Place(path).open() as file:
        return _pieces(file, begin)


def _columns(place: Place, array: str | None, schema: Any) -> list[str]:
    """Names of a table's columns that are meant, all of them numbers."""
    from pyarrow import types

    numbers = [
        each.name
        for each in schema
        if types.is_integer(each.type)
        or types.is_floating(each.type)
        or types.is_boolean(each.type)
        or types.is_null(each.type)
    ]
    labels = [name for name in schema.names if not name or name.startswith("__index_level_")]
    # pandas says beside the columns which of them are its index; one that only counts is no column, and a dict.
    labels += [each for each in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(each, str)]
    there = [name for name in schema.names if name not in labels] or list(schema.names)
    wanted = split(array) if array else there
    others = [name for name in wanted if name not in numbers]
    if others or not wanted:
        what = "is no column" if others and others[0] not in schema.names else "holds no numbers"
        raise NoNumbersError(f"{others[0]!r} of {place} {what}.", numbers, others)
    return wanted


class NoNumbersError(BadParameterError):
    """Columns of a table that hold no numbers were asked for; `numbers` are those that do, `others` those."""

    def __init__(self, what: str, numbers: Sequence[str], others: Sequence[str]) -> None:
        offered = joined(numbers[:20]) or "none"
        super().__init__(f"{what} Name columns of numbers as array: {offered}.", "array")
        self.what, self.numbers, self.others = what, tuple(numbers), tuple(others)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.numbers, self.others)


def _table(
    place: Place, array: str | None, columns: Sequence[str], format: str, n_rows: int, rows: int, n_columns: int
) -> Found:
    """So many rows, read a group of `rows` at a time, of some of a table's columns."""
    shape, dtype = (n_rows, len(columns)), np.dtype("float64")
    remarks: tuple[str, ...] = ()
    _check(place, None, shape, dtype)
    if array is None and len(columns) < n_columns:
        array, remarks = joined(columns), ("The labels of the rows, which pandas wrote beside them, are left out.",)
    return Found(place.path, array, format, shape, dtype, (max(1, rows), len(columns)), remarks=remarks)


_READERS: Mapping[str, Callable[[Place, str | None], Found]] = {
    "npy": _npy,
    "npz": _npz,
    "hdf5": _hdf5,
    "zarr": _zarr,
    "zarr-zip": partial(_zarr, kind="zarr-zip"),
    "tiff": _tiff,
    "parquet": _parquet,
    "csv": _csv,
}


def numpy_type(array: Any) -> np.dtype[Any]:
    """Type of a Zarr array; that of objects where NumPy has no such type."""
    try:
        return np.dtype(array.dtype)
    except TypeError:
        return np.dtype(object)


def zarr_arrays(fs: Any, root: str) -> list[str]:
    """Names of the arrays below a folder, '' for the folder itself.

    Where files can't be listed, those of the group's consolidated metadata; without these there are none.
    """
    names: list[str] = []
    folders = [""]
    for _ in range(_MOST_FOLDERS):
        if not folders:
            break
        folder = folders.pop(0)
        place_of = f"{root.rstrip('/')}/{folder}".rstrip("/") if root else folder
        entries = _entries(fs, place_of)
        if _is_array(fs, place_of, entries):
            names.append(folder)
        else:
            folders += sorted(f"{folder}/{name}".lstrip("/") for name, kind in entries.items() if kind == "directory")
    return sorted(names or _consolidated(fs, root))


def _consolidated(fs: Any, root: str) -> list[str]:
    """Names of the arrays that a group's own file tells of, as xarray writes it."""
    with contextlib.suppress(OSError, LookupError, ValueError, TypeError, AttributeError):
        said = json.loads(fs.cat_file(f"{root.rstrip('/')}/zarr.json"))["consolidated_metadata"]["metadata"]
        return [name for name, each in said.items() if each["node_type"] == "array"]
    with contextlib.suppress(OSError, LookupError, ValueError, TypeError, AttributeError):
        said = json.loads(fs.cat_file(f"{root.rstrip('/')}/.zmetadata"))["metadata"]
        return [name.removesuffix("/.zarray") for name in said if name.endswith("/.zarray")]
    return []


def _entries(fs: Any, folder: str) -> dict[str, str]:
    try:
        listed = fs.ls(folder, detail=True)
    except (OSError, NotImplementedError):
        return {}
    return {entry["name"].rstrip("/").rsplit("/", 1)[-1]: entry["type"] for entry in listed}


def _is_array(fs: Any, folder: str, entries: dict[str, str]) -> bool:
    if ".zarray" in entries or (not entries and fs.exists(f"{folder}/.zarray")):
        return True
    if "zarr.json" not in entries and (entries or not fs.exists(f"{folder}/zarr.json")):
        return False
    return json.loads(fs.cat_file(f"{folder}/zarr.json")).get("node_type") == "array"


def _is_coordinate(fs: Any, root: str, name: str) -> bool:
    """Whether an array numbers one dimension, which has its name, as xarray writes them."""
    folder = f"{root.rstrip('/')}/{name}" if root else name
    for file, key in (("zarr.json", "dimension_names"), (".zattrs", "_ARRAY_DIMENSIONS")):
        with contextlib.suppress(OSError, LookupError, ValueError, TypeError):
            if json.loads(fs.cat_file(f"{folder}/{file}"))[key] == [name.rpartition("/")[2]]:
                return True
    return False


def check_any(place: Place, arrays: Sequence[Any]) -> None:
    """Raise BadParameterError where there is no array."""
    if not arrays:
        raise _bad(f"There is no array in {place}. Give the path of {FORMATS}.")


def _choose(
    place: Place, array: str | None, names: Sequence[str], is_coordinate: Callable[[str], bool] = lambda _: False
) -> str:
    """Name of the array that is meant, which coordinates of a dimension (lat, time) are only where they are named."""
    check_any(place, names)
    if array is not None and array.strip("/") in names:
        return array.strip("/")
    offered = names if len(names) == 1 else [name for name in names if not is_coordinate(name)] or names
    if array is None and len(offered) == 1:
        return offered[0]
    shown = formats.shortened(offered)
    if array is None:
        raise _bad(f"{place} holds {len(offered)} arrays. Name one of them as array: {shown}.", "array")
    raise _bad(f"There is no array {array!r} in {place}. Choose one of: {shown}.", "array")


def _check(place: Place, array: str | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    what = f"{place} ({array})" if array else place
    if dtype.kind not in "biuf":
        kind = _KINDS.get(dtype.kind, str(dtype))
        raise _bad(f"{what} holds {kind} ({dtype}). Give an array of real numbers: whole numbers or floats.")
    if 0 in shape:
        raise _bad(f"{what} is empty ({formats.by(shape)}). Give an array with at least one row and one column.")


def _check_matrix(found: Found) -> None:
    count, shape = len(found.shape), found.shape
    if count == 2:
        return
    size = f" ({formats.by(shape)})" if shape else ""
    hint = f" Save it as {shape[0]} × {math.prod(shape[1:])}, for example." if count > 2 else ""
    hint += " Or name those of the rows: rows=0, or rows=time where they have names." if count > 2 else ""
    raise _bad(f"{found} has {formats.count(count, 'dimension')}{size}. Give an array with 2, rows and columns.{hint}")


def _lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(int, lengths))
