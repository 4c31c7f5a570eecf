"""What is in a file: finds the array that is meant and says in one sentence what is wrong with it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from workbench import formats
from workbench.errors import MissingError, WorkbenchError
from workbench.storage import conventions, places
from workbench.storage.places import Options, Place
from workbench.storage.zarrs import safe
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
_FORMATS = ".npy, .npz, HDF5 or Zarr (a folder or a .zip)"
_MARKERS = (".zarray", ".zgroup", "zarr.json")
_HDF5 = b"\x89HDF\r\n\x1a\n"
_MOST_FOLDERS = 1000
_ANONYMOUS: Mapping[str, Options] = {
    **{protocol: {"anon": True} for protocol in ("s3", "s3a", "abfs", "abfss", "az")},
    **{protocol: {"token": "anon"} for protocol in ("gs", "gcs")},
}
_ENDPOINTS = ("s3", "s3a", "gs", "gcs")


@dataclass(frozen=True)
class Found:
    """An array of two dimensions in a file. `chunks` is how it is stored, None where any block reads equally well."""

    path: str
    array: str | None
    format: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunks: tuple[int, int] | None = None
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

    def __str__(self) -> str:
        return f"{self.path} ({self.array})" if self.array else self.path


def find_array(path: str, array: str | None, *, raw: bool = False, options: Options | None = None) -> Found:
    """Find the array at a path or URL; only its description is read.

    Parameters
    ----------
    raw
        Whether the stored numbers are meant, whatever attributes say that they stand for.
    options
        What fsspec is told of a URL's server.

    Raises
    ------
    BadParameterError
        There is no such array, or it is none that has an SVD.
    MissingError
        The package that reads this kind of URL isn't installed.
    """
    try:
        place = places.full(path, options)
        with places.sentences_about(place, _FORMATS):
            found = _READERS[_format(place)](place, array)
        read_as = _as_stored(found) if raw else _as_said(found)
    except (BadParameterError, MissingError):
        raise
    except WorkbenchError as err:
        raise _bad(str(err)) from err
    if array is not None and found.array is None:
        raise BadParameterError(f"{place} holds one array, which has no name; array was given as {array!r}.", "array")
    return read_as


def options_of(
    workload: str, path: str, *, anon: bool, endpoint_url: str | None, names: Sequence[str] = ("anon", "endpoint_url")
) -> dict[str, Any]:
    """What fsspec is told of the server of a URL: to ask without keys, and where it is.

    Raises
    ------
    BadParameterError
        Nobody could read such a URL so; `names` are those of the two parameters.
    """
    protocol = path.split("://")[0] if "://" in path else None
    for name, given, known in zip(names, (anon, endpoint_url), (_ANONYMOUS, _ENDPOINTS), strict=True):
        if given and protocol not in known:
            urls = ", ".join(f"{each}://" for each in known)
            raise _bad(f"{name} of {workload} is for {urls}, and {path} is none of them. Leave {name} out.", name)
    without_keys = _ANONYMOUS[protocol] if anon and protocol else {}
    return {**without_keys, **({"endpoint_url": endpoint_url} if endpoint_url else {})}


def _as_said(found: Found) -> Found:
    """An array of the numbers that its attributes say it stands for."""
    said = conventions.stored(str(found), found.dtype, found.attributes, found.fill)
    if found.hidden:
        raise _bad(
            f"{found} has a mask beside it, which hides {found.hidden} of its values if it is that of a NumPy array. "
            "Fill them and save it without a mask, or choose raw=true to use all values."
        )
    turned = "MATLAB_class" in found.attributes
    remarks = ("MATLAB wrote it: its rows are columns here, and its columns rows.",) if turned else ()
    return replace(found, unpack=said.recipe(found.dtype), remarks=(*said.remarks, *remarks))


def _as_stored(found: Found) -> Found:
    """An array of the numbers that are in the file, whatever they stand for."""
    aside = [name for name in conventions.ATTRIBUTES if name in found.attributes] + ["its mask"] * bool(found.hidden)
    told = (f"The stored numbers are used as they are, without regard to {', '.join(aside)}.",) if aside else ()
    return replace(found, remarks=told)


def _bad(sentence: str, parameter: str = "path") -> BadParameterError:
    return BadParameterError(sentence, parameter)


def _format(place: Place) -> str:
    if place.is_url:
        return _format_of_url(place)
    return "zarr" if Path(place.path).is_dir() else _format_of_file(place)


def _format_of_url(place: Place) -> str:
    fs, root = place.storage()
    if any(fs.exists(f"{root}/{name}") for name in _MARKERS) or (not fs.isfile(root) and fs.isdir(root)):
        return "zarr"
    if not fs.exists(root):
        raise FileNotFoundError(place)
    found = _format_of_file(place)
    if found == "zarr-zip":
        raise _bad(f"{place} is a .zip file at a URL. Copy it to this machine, or unpack it there.")
    return found


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
    if place.name in _MARKERS:
        raise _bad(f"{place} belongs to a Zarr array. Give the folder that it is in.")
    if start[:3] == b"CDF":
        raise _bad(
            f"{place} is NetCDF 3, which is not read here. Make NetCDF 4 of it: nccopy -k nc4 {place.name} NEW.nc."
        )
    what = "is empty" if not start else "is in no format that can be read here"
    raise _bad(f"{place} {what}. Give the path of {_FORMATS}.")


def _npy(place: Place, array: str | None) -> Found:
    with place.open() as file:
        shape, fortran, dtype = _npy_header(file)
        start = file.tell()
        size = file.seek(0, os.SEEK_END)
    _check(place, None, shape, dtype)
    promised = start + math.prod(shape) * dtype.itemsize
    if size < promised:
        raise _bad(
            f"{place} is cut short: an array of {_times(shape)} {dtype} needs {promised} bytes and it has {size}. "
            "Save or copy it again."
        )
    if not place.is_url:
        return Found(place.path, None, "npy", _two(shape), dtype)
    if fortran:
        raise _bad(
            f"{place} is stored column by column (Fortran order), of which no rows can be fetched. Copy it here."
        )
    return Found(place.path, None, "npy-url", _two(shape), dtype, chunks=(1, shape[1]))


def _npz(place: Place, array: str | None) -> Found:
    with place.open() as file, zipfile.ZipFile(file) as members:
        names = sorted(name.removesuffix(".npy") for name in members.namelist())
        chosen = [name for name in names if name != "mask" or array == "mask"]
        name = _choose(place, array, chosen or names)
        with members.open(f"{name}.npy") as member:
            shape, _, dtype = _npy_header(member)
        _check(place, name, shape, dtype)
        masks = {"mask", f"{name}_mask", f"mask_{name}"}.intersection(names) - {name}
        hidden = sum(_hidden(members, mask, shape) for mask in masks)
    return Found(place.path, name, "npz", _two(shape), dtype, whole=True, hidden=hidden)


def _hidden(members: zipfile.ZipFile, mask: str, shape: tuple[int, ...]) -> int:
    """How many values a mask of this shape hides, as NumPy's masked arrays mean it."""
    with members.open(f"{mask}.npy") as member:
        size, _, dtype = _npy_header(member)
    if size != shape or dtype.kind != "b":
        return 0
    with members.open(f"{mask}.npy") as member:
        return int(np.lib.format.read_array(member, allow_pickle=False).sum())


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype


def _hdf5(place: Place, array: str | None) -> Found:
    import h5py

    with place.open() as file, h5py.File(file, "r") as datasets:
        names: dict[str, bool] = {}

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                names[name] = h5py.h5ds.is_scale(item.id)

        datasets.visititems(note)
        name = _choose(place, array, sorted(names), names.__getitem__)
        dataset = datasets[name]
        # A dataset without any element, h5py's Empty, has no shape at all.
        shape, dtype = dataset.shape or (), np.dtype(dataset.dtype)
        _check(place, name, shape, dtype)
        chunks = dataset.chunks and _two(dataset.chunks)
        attributes = {key: value for key, value in dataset.attrs.items() if not isinstance(value, h5py.Empty)}
        fill = conventions.netcdf_fill(dtype, dataset.fillvalue)
        return Found(place.path, name, "hdf5", _two(shape), dtype, chunks, attributes=attributes, fill=fill)


def _zarr(place: Place, array: str | None) -> Found:
    import zarr

    fs, root = place.storage()
    names = _zarr_arrays(fs, root)
    if names == [""]:
        name = None
    elif names or array is None:
        name = _choose(place, array, names, lambda name: _is_coordinate(fs, root, name))
    else:
        name = array  # A server that can't list its files: the name decides.
    found = zarr.open_array(place.path, path=name or "", mode="r", **place.zarr_options)
    return _described(found, place, name, "zarr")


def _zarr_zip(place: Place, array: str | None) -> Found:
    import fsspec
    import zarr

    fs = fsspec.filesystem("zip", fo=place.path)
    names = _zarr_arrays(fs, "")
    name = None if names == [""] else _choose(place, array, names, lambda name: _is_coordinate(fs, "", name))
    with zarr.storage.ZipStore(place.path, mode="r") as store:
        return _described(zarr.open_array(store, path=name or "", mode="r"), place, name, "zarr-zip")


def _described(array: Any, place: Place, name: str | None, format: str) -> Found:
    dtype = _numpy_type(safe(array, place))
    _check(place, name, array.shape, dtype)
    chunks, attributes = _two(array.shards or array.chunks), array.attrs.asdict()
    # To xarray, whose mark the names of dimensions are, the fill value of format 2 means "missing".
    fills = array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes
    fill = array.fill_value if fills else None
    return Found(place.path, name, format, _two(array.shape), dtype, chunks, attributes=attributes, fill=fill)


_READERS = {"npy": _npy, "npz": _npz, "hdf5": _hdf5, "zarr": _zarr, "zarr-zip": _zarr_zip}


def _numpy_type(array: Any) -> np.dtype[Any]:
    try:
        return np.dtype(array.dtype)
    except TypeError:
        return np.dtype(object)


def _zarr_arrays(fs: Any, root: str) -> list[str]:
    """Names of the arrays below a folder, '' for the folder itself; empty where files can't be listed."""
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
    return sorted(names)


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


def _choose(
    place: Place, array: str | None, names: Sequence[str], is_coordinate: Callable[[str], bool] = lambda _: False
) -> str:
    """Name of the array that is meant, which coordinates of a dimension (lat, time) are only where they are named."""
    if not names:
        raise _bad(f"There is no array in {place}. Give the path of {_FORMATS}.")
    if array is not None and array.strip("/") in names:
        return array.strip("/")
    offered = names if len(names) == 1 else [name for name in names if not is_coordinate(name)] or names
    if array is None and len(offered) == 1:
        return offered[0]
    shown = ", ".join(offered[:20]) + (f" and {len(offered) - 20} more" if len(offered) > 20 else "")
    if array is None:
        raise _bad(f"{place} holds {len(offered)} arrays. Name one of them as array: {shown}.", "array")
    raise _bad(f"There is no array {array!r} in {place}. Choose one of: {shown}.", "array")


def _check(place: Place, array: str | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    what = f"{place} ({array})" if array else place
    if dtype.kind not in "biuf":
        kind = _KINDS.get(dtype.kind, str(dtype))
        raise _bad(f"{what} holds {kind} ({dtype}). Give an array of real numbers: whole numbers or floats.")
    if len(shape) != 2:
        count = len(shape)
        size = f" ({_times(shape)})" if shape else ""
        hint = f" Save it as {shape[0]} × {math.prod(shape[1:])}, for example." if count > 2 else ""
        raise _bad(
            f"{what} has {formats.count(count, 'dimension')}{size}. Give an array with 2, rows and columns.{hint}"
        )
    if 0 in shape:
        raise _bad(f"{what} is empty ({_times(shape)}). Give an array with at least one row and one column.")


def _times(shape: Sequence[int]) -> str:
    return " × ".join(str(length) for length in shape)


def _two(lengths: Sequence[int]) -> tuple[int, int]:
    rows, columns = lengths
    return int(rows), int(columns)
