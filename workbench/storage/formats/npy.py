"""NumPy files: one array in a .npy, several in a .npz."""

from __future__ import annotations

import math
import os
import zipfile
from typing import IO, Any

import numpy as np
from dask.utils import SerializableLock

from workbench import formats
from workbench.storage.formats.base import Format, Found, Listed, bad, check, choose, held_as, known, lengths
from workbench.storage.places import Place

_HEADERS = SerializableLock("headers of .npy")
"""Lock for reading headers, which some versions of Python can't do in several threads at once."""


def npy_whole(place: Place) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, True if stored column by column, and dtype of a .npy. Raises BadInputError if it is cut short."""
    with place.open() as file:
        shape, fortran, dtype = npy_header(file)
        needed = file.tell() + math.prod(shape) * dtype.itemsize
        size = file.seek(0, os.SEEK_END)
    # The size of pickled objects is unknown; they are refused elsewhere.
    if size < needed and not dtype.hasobject:
        raise bad(
            f"{place} is cut short: an array of {formats.by(shape)} {dtype} needs {needed} bytes and it has {size}. "
            "Save or copy it again."
        )
    return shape, fortran, dtype


def find_npy(place: Place, array: str | None) -> Found:
    """Describe the array in a .npy."""
    shape, fortran, dtype = npy_whole(place)
    check(place, None, shape, dtype)
    if not place.is_url:
        return Found(place.path, None, "npy", lengths(shape), dtype)
    if fortran:
        raise bad(f"{place} is stored column by column (Fortran order), of which no rows can be fetched. Copy it here.")
    return Found(place.path, None, "npy-url", lengths(shape), dtype, chunks=(1, *shape[1:]))


def find_npz(place: Place, array: str | None) -> Found:
    """Describe an array in a .npz."""
    with place.open() as file, zipfile.ZipFile(file) as members:
        names = sorted(name.removesuffix(".npy") for name in members.namelist())
        arrays = [name for name in names if name != "mask" or array == "mask"]
        name = choose(place, array, arrays or names)
        with members.open(f"{name}.npy") as member:
            shape, _, dtype = npy_header(member)
        check(place, name, shape, dtype)
        masks = {"mask", f"{name}_mask", f"mask_{name}"}.intersection(names) - {name}
        hidden = sum(_hidden(members, mask, shape) for mask in masks)
    return Found(place.path, name, "npz", lengths(shape), dtype, whole=True, hidden=hidden)


def _hidden(members: zipfile.ZipFile, mask: str, shape: tuple[int, ...]) -> int:
    """Return the number of values that a mask of this shape hides, as NumPy's masked arrays mean it."""
    with members.open(f"{mask}.npy") as member:
        size, _, dtype = npy_header(member)
    if size != shape or dtype.kind != "b":
        return 0
    with members.open(f"{mask}.npy") as member:
        return int(np.lib.format.read_array(member, allow_pickle=False).sum())


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, True if stored column by column, and dtype."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"its header has the shape {shape}, and no length can be negative")
    return shape, fortran, dtype


def look_npy(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    shape, fortran, dtype = npy_whole(place)
    remarks = ("It is stored column by column (Fortran order).",) if fortran and len(shape) > 1 else ()
    return (held_as("", shape, dtype),), remarks


def look_npz(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    arrays = []
    with place.open() as file, zipfile.ZipFile(file) as members:
        for info in members.infolist():
            with members.open(info) as member:
                shape, _, dtype = npy_header(member)
            packed = "deflate" if info.compress_type != zipfile.ZIP_STORED else None
            arrays.append(held_as(info.filename.removesuffix(".npy"), shape, dtype, compression=packed))
    return tuple(arrays), ("Each of its arrays can only be read as a whole.",)


def read_npy(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of a .npy file, which is mapped into memory: only the block itself is read."""
    # Python before 3.11.8 and 3.12.2 raises a SystemError where threads read headers at once (gh-106905).
    with SerializableLock("headers of .npy"):
        stored = np.load(path, mmap_mode="r")
    return np.array(stored[where])


def read_npy_url(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of a .npy file that is somewhere else; only its rows are fetched."""
    import fsspec

    with fsspec.open(path, "rb", **known(path, options)) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with SerializableLock("headers of .npy"):
            shape, _, dtype = header(file)
        row = math.prod(shape[1:]) * dtype.itemsize
        file.seek(file.tell() + where[0].start * row)
        values = np.frombuffer(file.read((where[0].stop - where[0].start) * row), dtype)
    return values.reshape(-1, *shape[1:])[:, *where[1:]]


def read_npz(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of an array in a .npz file, which can only be read as a whole."""
    import fsspec

    with (
        fsspec.open(path, "rb", **known(path, options)) as file,
        np.load(file) as arrays,
        SerializableLock("headers of .npy"),
    ):
        return arrays[array][where]


def _names(place: Place) -> list[str]:
    with place.open() as file, zipfile.ZipFile(file) as members:
        return members.namelist()


def _is_npz(start: bytes, place: Place) -> bool:
    return start.startswith(b"PK") and bool(names := _names(place)) and all(name.endswith(".npy") for name in names)


NPY = Format(
    "NumPy array",
    look_npy,
    starts=lambda start, place: start.startswith(b"\x93NUMPY"),
    find=find_npy,
    readers={"npy": read_npy, "npy-url": read_npy_url},
)
NPZ = Format("NumPy arrays", look_npz, starts=_is_npz, find=find_npz, readers={"npz": read_npz})
