"""Arrays of Zarr 2 and 3, in a folder, in a .zip file or at a URL."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from workbench.storage.formats.base import (
    COUNTING,
    UNLISTED,
    Format,
    Found,
    Held,
    Listed,
    bad,
    check,
    choose,
    count_written,
    described,
    held_as,
    known,
    lengths,
)
from workbench.storage.places import Place
from workbench.storage.zarrs import consolidated, files_at, images_of, opened_at, outdated_remark, safe

_MOST_FOLDERS = 1000


def find_zarr(place: Place, array: str | None, kind: str = "zarr") -> Found:
    """Describe a Zarr array."""
    import zarr

    name, dims = _in_group(place, array)
    with opened_at(place) as store:
        stored = safe(zarr.open_array(store, path=name or "", mode="r", **place.zarr_options), place)
    dtype, shape = numpy_type(stored), lengths(stored.shape)
    check(place, name, shape, dtype)
    chunks, attributes = lengths(stored.shards or stored.chunks), stored.attrs.asdict()
    # In format 2, xarray (which writes names of dimensions) takes the fill value for "missing".
    fills = stored.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes
    fill, named_dims = stored.fill_value if fills else None, dims if len(dims) == len(shape) else None
    return Found(place.path, name, kind, shape, dtype, chunks, attributes=attributes, fill=fill, dims=named_dims)


def _in_group(place: Place, array: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the array's name, None if the store is one array, and the dimensions of an image."""
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
        raise bad(f"{place} is a Zarr group, and {UNLISTED}", "array")
    name = choose(place, array, names, lambda name: _is_coordinate(fs, root, name))
    return name, images.get(name, ())


def numpy_type(array: Any) -> np.dtype[Any]:
    """Return the dtype of a Zarr array; object where NumPy has no such type."""
    try:
        return np.dtype(array.dtype)
    except TypeError:
        return np.dtype(object)


def zarr_arrays(fs: Any, root: str) -> list[str]:
    """Return names of the arrays below a folder, '' for the folder itself.

    Where files can't be listed, those of the group's consolidated metadata; without these there are none.
    """
    names: list[str] = []
    folders = [""]
    for _ in range(_MOST_FOLDERS):
        if not folders:
            break
        folder = folders.pop(0)
        place_of = f"{root.rstrip('/')}/{folder}".rstrip("/") if root else folder
        listed = entries(fs, place_of)
        if _is_array(fs, place_of, listed):
            names.append(folder)
        else:
            folders += sorted(f"{folder}/{name}".lstrip("/") for name, kind in listed.items() if kind == "directory")
    above = f"{root.rstrip('/')}/" if root else ""
    return sorted(names or {path.rpartition("/")[0] for path in consolidated(fs, above)})


def entries(fs: Any, folder: str) -> dict[str, str]:
    """Return the entries of a folder: "file" or "directory" by name."""
    try:
        listed = fs.ls(folder, detail=True)
    except (OSError, NotImplementedError):
        return {}
    return {entry["name"].rstrip("/").rsplit("/", 1)[-1]: entry["type"] for entry in listed}


def _is_array(fs: Any, folder: str, listed: dict[str, str]) -> bool:
    if ".zarray" in listed or (not listed and fs.exists(f"{folder}/.zarray")):
        return True
    if "zarr.json" not in listed and (listed or not fs.exists(f"{folder}/zarr.json")):
        return False
    return json.loads(fs.cat_file(f"{folder}/zarr.json")).get("node_type") == "array"


def _is_coordinate(fs: Any, root: str, name: str) -> bool:
    """Return whether an array numbers one dimension and has its name, as xarray writes them."""
    folder = f"{root.rstrip('/')}/{name}" if root else name
    for file, key in (("zarr.json", "dimension_names"), (".zattrs", "_ARRAY_DIMENSIONS")):
        with contextlib.suppress(OSError, LookupError, ValueError, TypeError):
            if json.loads(fs.cat_file(f"{folder}/{file}"))[key] == [name.rpartition("/")[2]]:
                return True
    return False


def look_zarr(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    import zarr

    group = files_at(place)
    names, images = zarr_arrays(*group), images_of(*group)
    if not names and place.is_url and not place.names():
        return (), (UNLISTED.capitalize(),)
    until = time.monotonic() + COUNTING
    with opened_at(place) as store:
        opened = (zarr.open_array(store, path=name, mode="r", **place.zarr_options) for name in names)
        arrays = [
            replace(_of_zarr(name, each, images.get(name)), **count_written(place, "zarr", name, until))
            for name, each in zip(names, opened, strict=True)
        ]
    return tuple(arrays), outdated_remark(place)


def _of_zarr(name: str, array: Any, axes: tuple[str, ...] | None) -> Held:
    attributes = array.attrs.asdict()
    dims = axes or getattr(array.metadata, "dimension_names", None) or attributes.get("_ARRAY_DIMENSIONS")
    packed = ", ".join(_codec(each) for each in array.compressors) or None
    names = tuple(dims) if dims and all(isinstance(each, str) for each in dims) else None
    dtype = numpy_type(array)
    stored = {"chunks": array.chunks, "shards": array.shards, "compression": packed}
    return held_as(name, array.shape, dtype, dims=names, **stored, **described(dtype, attributes))


def _codec(codec: Any) -> str:
    """Return a compressor's name; Blosc's has that of the one inside."""
    inner = getattr(codec, "cname", None)
    name = getattr(codec, "codec_id", None) or type(codec).__name__.removesuffix("Codec").lower()
    return f"{name} ({getattr(inner, 'value', inner)})" if inner else str(name)


def read_zarr(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of a Zarr array in a folder or at a URL."""
    import zarr

    # For a path on this machine there are no options, and Zarr accepts none.
    server = known(path, options, whole=True) or None
    return plain(zarr.open_array(path, path=array, mode="r", storage_options=server))[where]


def read_zarr_zip(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of a Zarr array in a .zip file."""
    import zarr

    with zarr.storage.ZipStore(path, mode="r") as store:
        return plain(zarr.open_array(store, path=array, mode="r"))[where]


def plain(array: Any) -> Any:
    """Return the Zarr array, unless reading it unpickles, which runs code from the file."""
    if "pickle" in f"{array.filters} {array.compressors}".lower():
        raise ValueError(f"{array.store} is written with the codec pickle, which could run anything: it isn't read.")
    return array


ZARR = Format("Zarr", look_zarr, find=find_zarr, readers={"zarr": read_zarr}, modules=("zarr",), dims="some")
ZARR_ZIP = Format(
    "Zarr in a .zip file",
    look_zarr,
    starts=lambda start, place: start.startswith(b"PK"),
    find=partial(find_zarr, kind="zarr-zip"),
    readers={"zarr-zip": read_zarr_zip},
    modules=("zarr",),
    dims="some",
)
