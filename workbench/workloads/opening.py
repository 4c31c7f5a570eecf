"""What is in a file: finds the array that is meant and says in one sentence what is wrong with it."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from workbench.errors import MissingError
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


def find_array(path: str, array: str | None) -> Found:
    """Find the array at a path or URL; only its description is read.

    Raises
    ------
    BadParameterError
        There is no such array, or it is none that has an SVD.
    MissingError
        The package that reads this kind of URL isn't installed.
    """
    place = absolute(path)
    format = _format(place)
    with _sentences_about(place):
        if format == "npy":
            found = _npy(place)
        elif format == "npz":
            found = _npz(place, array)
        elif format == "hdf5":
            found = _hdf5(place, array)
        else:
            found = _zarr(place, array, format)
    if array is not None and found.array is None:
        raise BadParameterError(f"{place} holds one array, which has no name; array was given as {array!r}.", "array")
    return found


def absolute(path: str) -> str:
    """Path from the root, or the URL as it is."""
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    if "://" in path:
        return path
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100  Path.absolute keeps '..'


def _bad(sentence: str, parameter: str = "path") -> BadParameterError:
    return BadParameterError(sentence, parameter)


@contextmanager
def _sentences_about(place: str) -> Iterator[None]:
    """Turn what reading a description can raise into one sentence."""
    try:
        yield
    except (BadParameterError, MissingError):
        raise
    except PermissionError as err:
        raise _bad(f"{place} can't be read: you have no permission. Change its mode, or copy it to your own.") from err
    except FileNotFoundError as err:
        raise _bad(f"{place} isn't there. Give the path of {_FORMATS}.") from err
    except ImportError as err:
        raise MissingError(f"Reading {place} needs a package: {err}. Try: pip install 'dask-workbench[cloud]'") from err
    except Exception as err:  # the readers of four formats and of every protocol raise what they like
        reason = " ".join(str(err).split())[:200] or type(err).__name__
        raise _bad(f"{place} can't be read; it may be damaged or not be what its name says ({reason}).") from err


@contextmanager
def _file(place: str) -> Iterator[IO[bytes]]:
    if "://" in place:
        import fsspec

        with fsspec.open(place, "rb") as file:
            yield file
    else:
        with Path(place).open("rb") as file:
            yield file


def _format(place: str) -> str:
    with _sentences_about(place):
        if "://" in place:
            return _format_of_url(place)
        if Path(place).is_dir():
            return "zarr"
        return _format_of_file(place)


def _format_of_url(place: str) -> str:
    import fsspec

    fs, root = fsspec.core.url_to_fs(place)
    root = root.rstrip("/")
    if any(fs.exists(f"{root}/{name}") for name in _MARKERS) or (not fs.isfile(root) and fs.isdir(root)):
        return "zarr"
    if not fs.exists(root):
        raise FileNotFoundError(place)
    found = _format_of_file(place)
    if found == "zarr-zip":
        raise _bad(f"{place} is a .zip file at a URL. Copy it to this machine, or unpack it there.")
    return found


def _format_of_file(place: str) -> str:
    with _file(place) as file:
        start = file.read(8)
        if start.startswith(b"\x93NUMPY"):
            return "npy"
        if start == _HDF5:
            return "hdf5"
        if start.startswith(b"PK"):
            with zipfile.ZipFile(file) as members:
                names = members.namelist()
            return "npz" if names and all(name.endswith(".npy") for name in names) else "zarr-zip"
    if Path(place).name in _MARKERS:
        raise _bad(f"{place} belongs to a Zarr array. Give the folder that it is in.")
    what = "is empty" if not start else "is in no format that can be read here"
    raise _bad(f"{place} {what}. Give the path of {_FORMATS}.")


def _npy(place: str) -> Found:
    with _file(place) as file:
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
    if "://" not in place:
        return Found(place, None, "npy", _two(shape), dtype)
    if fortran:
        raise _bad(
            f"{place} is stored column by column (Fortran order), of which no rows can be fetched. Copy it here."
        )
    return Found(place, None, "npy-url", _two(shape), dtype, chunks=(1, shape[1]))


def _npz(place: str, array: str | None) -> Found:
    with _file(place) as file, zipfile.ZipFile(file) as members:
        names = sorted(name.removesuffix(".npy") for name in members.namelist())
        name = _choose(place, array, names)
        with members.open(f"{name}.npy") as member:
            shape, _, dtype = _npy_header(member)
    _check(place, name, shape, dtype)
    return Found(place, name, "npz", _two(shape), dtype, whole=True)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype


def _hdf5(place: str, array: str | None) -> Found:
    import h5py

    with _file(place) as file, h5py.File(file, "r") as datasets:
        names: list[str] = []

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                names.append(name)

        datasets.visititems(note)
        name = _choose(place, array, sorted(names))
        dataset = datasets[name]
        # A dataset without any element, h5py's Empty, has no shape at all.
        shape, dtype = dataset.shape or (), np.dtype(dataset.dtype)
        _check(place, name, shape, dtype)
        return Found(place, name, "hdf5", _two(shape), dtype, chunks=dataset.chunks and _two(dataset.chunks))


def _zarr(place: str, array: str | None, format: str) -> Found:
    import zarr

    names = _zarr_arrays(place, format)
    if names == [""]:
        name = None
    elif names or array is None:
        name = _choose(place, array, names)
    else:
        name = array  # A server that can't list its files: the name decides.
    if format == "zarr":
        return _described(zarr.open_array(place, path=name or "", mode="r"), place, name, format)
    with zarr.storage.ZipStore(place, mode="r") as store:
        return _described(zarr.open_array(store, path=name or "", mode="r"), place, name, format)


def _described(array: Any, place: str, name: str | None, format: str) -> Found:
    dtype = _numpy_type(array)
    _check(place, name, array.shape, dtype)
    return Found(place, name, format, _two(array.shape), dtype, chunks=_two(array.shards or array.chunks))


def _numpy_type(array: Any) -> np.dtype[Any]:
    try:
        return np.dtype(array.dtype)
    except TypeError:
        return np.dtype(object)


def _zarr_arrays(place: str, format: str) -> list[str]:
    """Names of the arrays below a folder, '' for the folder itself; empty where files can't be listed."""
    import fsspec

    if format == "zarr-zip":
        fs, root = fsspec.filesystem("zip", fo=place), ""
    else:
        fs, root = fsspec.core.url_to_fs(place)
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
    import json

    return json.loads(fs.cat_file(f"{folder}/zarr.json")).get("node_type") == "array"


def _choose(place: str, array: str | None, names: Sequence[str]) -> str:
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    if not names:
        raise _bad(f"There is no array in {place}. Give the path of {_FORMATS}.")
    if array is None:
        if len(names) == 1:
            return names[0]
        raise _bad(f"{place} holds {len(names)} arrays. Name one of them as array: {shown}.", "array")
    name = array.strip("/")
    if name not in names:
        raise _bad(f"There is no array {array!r} in {place}. Choose one of: {shown}.", "array")
    return name


def _check(place: str, array: str | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    what = f"{place} ({array})" if array else place
    if dtype.kind not in "biuf":
        kind = _KINDS.get(dtype.kind, str(dtype))
        raise _bad(f"{what} holds {kind} ({dtype}). Give an array of real numbers: whole numbers or floats.")
    if len(shape) != 2:
        count = len(shape)
        dimensions = f"{count} dimension{'' if count == 1 else 's'}"
        size = f" ({_times(shape)})" if shape else ""
        hint = f" Save it as {shape[0]} × {math.prod(shape[1:])}, for example." if count > 2 else ""
        raise _bad(f"{what} has {dimensions}{size}. Give an array with 2, rows and columns.{hint}")
    if 0 in shape:
        raise _bad(f"{what} is empty ({_times(shape)}). Give an array with at least one row and one column.")


def _times(shape: Sequence[int]) -> str:
    return " × ".join(str(length) for length in shape)


def _two(lengths: Sequence[int]) -> tuple[int, int]:
    rows, columns = lengths
    return int(rows), int(columns)
