"""Zarr arrays whose reading runs nothing that a file says, and what a kill leaves in a store."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import BadInputError
from workbench.storage.places import Place, with_token

MARKS = (".zarray", ".zgroup", "zarr.json")
"""Files of which a folder of any name has one that is a Zarr array or group."""
HALF = ".partial"
"""What Zarr calls a file before it is whole."""


def is_marked(place: Place) -> bool:
    """Whether a folder is a Zarr array or group. A web server that can't list, or lists as a page, knows its files."""
    return any((place / mark).kind() == "file" for mark in MARKS)


def files_at(place: Place) -> tuple[Any, str]:
    """The file system that a Zarr group is in, which a .zip file is one of, and where in it."""
    import fsspec

    return (fsspec.filesystem("zip", fo=place.path), "") if _is_zip(place) else place.storage(whole=True)


@contextlib.contextmanager
def opened_at(place: Place) -> Iterator[Any]:
    """What Zarr and xarray open at a place: its path or URL, or the store in a .zip file."""
    if not _is_zip(place):
        yield place.path
        return
    from zarr.storage import ZipStore

    with ZipStore(place.path, mode="r") as store:
        yield store


def _is_zip(place: Place) -> bool:
    return not (place.is_url or Path(place.path).is_dir())


def images_of(fs: Any, root: str) -> dict[str, tuple[str, ...]]:
    """Images of a Zarr group of microscopy (OME-NGFF), finest first, with names of their dimensions; none of others."""
    for file in ("zarr.json", ".zattrs"):
        with contextlib.suppress(OSError, LookupError, ValueError, TypeError, AttributeError):
            said = json.loads(fs.cat_file(f"{root.rstrip('/')}/{file}"))
            said = said.get("attributes", said)
            first = said.get("ome", said)["multiscales"][0]
            axes = tuple(each if isinstance(each, str) else each["name"] for each in first.get("axes", ()))
            return {each["path"]: axes for each in first["datasets"]}
    return {}


def store_at(place: Place) -> Any:
    """A store to read from, which travels to workers as its place: so no graph holds what is asked for with a token."""
    from zarr.storage import FsspecStore

    class Store(FsspecStore):
        def __reduce__(self) -> tuple[Any, ...]:
            return store_at, (place,)

    return Store.from_url(place.path, with_token(place.path, place.options, whole=True), read_only=True)


@dataclass(frozen=True)
class OnDisk:
    """A Zarr array that is read where its folder is. Where a worker doesn't have that, Zarr would read zeros."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """Its number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """The type of its numbers."""
        return self.array.dtype

    def __getitem__(self, where: Any) -> Any:
        from zarr.storage import LocalStore

        if isinstance(self.array.store, LocalStore):
            folder = self.array.store.root / self.array.path
            if not any((folder / mark).exists() for mark in MARKS):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        return self.array[where]


def from_store(array: Any) -> Any:
    """A Zarr array as Dask's, in its blocks."""
    import dask.array as da

    return da.from_array(OnDisk(array), chunks=array.chunks)


def remove_halves(folder: Path) -> None:
    """Remove the halves of files that a kill left in a store."""
    for half in folder.rglob(f"*{HALF}"):
        half.unlink(missing_ok=True)


def safe(array: Any, place: object) -> Any:
    """`array`, unless one of its codecs unpickles, which runs whatever the file says.

    Of numcodecs' codecs `pickle` alone does; from 0.16.6 on it refuses by itself, unless a process allows it.

    Raises
    ------
    BadInputError
        It does.
    """
    if "pickle" in f"{array.filters} {array.compressors}".lower():
        raise BadInputError(
            f"{place} ({array.name}) is written with the codec pickle, which runs what a file says when it is read. "
            "Expected another codec: have who made it write it again, without objects."
        )
    return array
