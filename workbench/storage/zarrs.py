"""Zarr arrays that are safe to read, and leftovers of killed processes in a store."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import formats
from workbench.errors import BadInputError
from workbench.storage.places import Place, with_token

MARKS = ("zarr.json", ".zarray", ".zgroup")
"""Files that identify a folder of any name as a Zarr array or group."""
HALF = ".partial"
"""Zarr's suffix of a file before it is complete."""


_SLOW, _FRESH = 0.2, 20.0
"""Seconds from which on an answer is cached, and for how long: a form asks at each key."""
_ANSWERS: dict[Any, tuple[float, Any]] = {}
_OF_ARRAYS = (".zarray", ".zattrs")
_SEPARATOR = {"dimension_separator": "."}


def recent(ask: Callable[[], Any], kind: str, place: Place, *of: Any, slow: float = _SLOW) -> Any:
    """Return the result of `ask`, or for some seconds its last result if it takes `slow` seconds."""
    key, now = (kind, place.path, str(place.options), *of), time.monotonic()
    if key in _ANSWERS and now - _ANSWERS[key][0] < _FRESH:
        return _ANSWERS[key][1]
    _ANSWERS.pop(key, None)
    answer = ask()
    if time.monotonic() - now >= slow:
        if len(_ANSWERS) > 100:
            _ANSWERS.clear()
        _ANSWERS[key] = time.monotonic(), answer
    return answer


def outdated(place: Place, group: str | None = None) -> tuple[str, ...]:
    """Return the arrays of a group that its consolidated metadata describe otherwise than their own metadata do.

    Where there are some, the arrays' own metadata are used by all readers here: those that write an array write them
    first, and Zarr itself opens an array by them.
    """
    names: tuple[str, ...] = recent(lambda: _outdated(place, group), "outdated", place, group)
    return names


def _outdated(place: Place, group: str | None) -> tuple[str, ...]:
    fs, root = files_at(place)
    folder = "/".join(filter(None, (root.rstrip("/"), (group or "").strip("/"))))
    above = f"{folder}/" if folder else ""
    repeated = consolidated(fs, above)
    if not repeated:
        return ()
    names = {path.rpartition("/")[0] for path in repeated}
    try:
        own = fs.cat([above + path for path in repeated], on_error="omit")
        children = {str(each["name"]).rstrip("/").rpartition("/")[2] for each in fs.ls(folder or "/", detail=True)}
    except (OSError, NotImplementedError, ValueError):
        return ()
    if not children:
        return ()  # the server can't list
    own_texts = {str(path).removeprefix(above).lstrip("/"): text for path, text in own.items()}
    differ = {
        path.rpartition("/")[0]
        for path, each in repeated.items()
        if _comparable(each) != _comparable(_json(own_texts.get(path, b"{}")))
    }
    others = children - {name.partition("/")[0] for name in names}
    differ |= {name for name in others if not name.startswith(".") and _is_array(fs, f"{above}{name}")}
    return tuple(sorted(differ))


def consolidated(fs: Any, above: str) -> dict[str, Any]:
    """Return the metadata of arrays that a group's own file repeats, by the path of the file they come from."""
    with contextlib.suppress(OSError, LookupError, ValueError, TypeError, AttributeError):
        metadata = json.loads(fs.cat_file(f"{above}zarr.json"))
        arrays = metadata.get("consolidated_metadata", {}).get("metadata", {})
        return {f"{name}/zarr.json": each for name, each in arrays.items() if each["node_type"] == "array"}
    with contextlib.suppress(OSError, LookupError, ValueError, TypeError, AttributeError):
        metadata = json.loads(fs.cat_file(f"{above}.zmetadata"))["metadata"]
        names = {path.rpartition("/")[0] for path in metadata if path.endswith("/.zarray")}
        return {f"{name}/{file}": metadata.get(f"{name}/{file}", {}) for name in names for file in _OF_ARRAYS}
    return {}


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _comparable(metadata_raw: Any) -> str:
    """Return metadata as text, without empty values."""
    metadata = (_SEPARATOR if "chunks" in metadata_raw else {}) | metadata_raw
    return json.dumps({name: value for name, value in metadata.items() if value not in (None, [], {})}, sort_keys=True)


def _is_array(fs: Any, folder: str) -> bool:
    for mark in (".zarray", "zarr.json"):
        with contextlib.suppress(OSError, LookupError, ValueError, TypeError, AttributeError):
            return bool(json.loads(fs.cat_file(f"{folder}/{mark}")).get("node_type", "array") == "array")
    return False


def outdated_remark(place: Place, group: str | None = None) -> tuple[str, ...]:
    """Return a message about consolidated metadata that aren't used, if there are such."""
    names = outdated(place, group)
    if not names:
        return ()
    return (
        f"The consolidated metadata of {place.path} are out of date ({formats.shortened(names, 5)}): the metadata of "
        "each array itself are used. To write them again: zarr.consolidate_metadata(path).",
    )


def is_marked(place: Place) -> bool:
    """Return whether a folder is a Zarr array or group.

    A web server that can't list, or lists as a page, knows its files.
    """
    fs, root = place.storage()
    return any(fs.isfile(f"{root}/{mark}") for mark in MARKS)


def files_at(place: Place) -> tuple[Any, str]:
    """Yield the file system of a Zarr group, which may be a .zip file, and the path in it."""
    import fsspec

    return (fsspec.filesystem("zip", fo=place.path), "") if _is_zip(place) else place.storage(whole=True)


@contextlib.contextmanager
def opened_at(place: Place) -> Iterator[Any]:
    """Open a place for Zarr and xarray: its path or URL, or the store in a .zip file."""
    if not _is_zip(place):
        yield place.path
        return
    from zarr.storage import ZipStore

    with ZipStore(place.path, mode="r") as store:
        yield store


def _is_zip(place: Place) -> bool:
    return not (place.is_url or Path(place.path).is_dir())


def images_of(fs: Any, root: str) -> dict[str, tuple[str, ...]]:
    """Return images of a Zarr group of microscopy (OME-NGFF), finest first, with their dimensions' names; else none."""
    for file in ("zarr.json", ".zattrs"):
        try:
            text = fs.cat_file(f"{root.rstrip('/')}/{file}")
        except (OSError, LookupError, ValueError, TypeError, AttributeError):
            continue
        with contextlib.suppress(LookupError, ValueError, TypeError, AttributeError):
            attributes = json.loads(text)
            attributes = attributes.get("attributes", attributes)
            first = attributes.get("ome", attributes)["multiscales"][0]
            axes = tuple(each if isinstance(each, str) else each["name"] for each in first.get("axes", ()))
            return {each["path"]: axes for each in first["datasets"]}
        return {}
    return {}


def store_at(place: Place) -> Any:
    """Return a store to read from, sent to workers as its place, so that no graph holds token requests."""
    from zarr.storage import FsspecStore

    class Store(FsspecStore):
        def __reduce__(self) -> tuple[Any, ...]:
            return store_at, (place,)

    return Store.from_url(place.path, with_token(place.path, place.options, whole=True), read_only=True)


@dataclass(frozen=True)
class OnDisk:
    """A Zarr array that is read in place. If a worker lacks its folder, Zarr would read zeros."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        """Its number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """Its dtype."""
        return self.array.dtype

    def __getitem__(self, where: Any) -> Any:
        from zarr.storage import LocalStore

        if isinstance(self.array.store, LocalStore):
            folder = self.array.store.root / self.array.path
            if not any((folder / mark).exists() for mark in MARKS):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        return self.array[where]


def from_store(array: Any) -> Any:
    """Return a Zarr array as a Dask array with the same blocks."""
    import dask.array as da

    return da.from_array(OnDisk(array), chunks=array.chunks)


def remove_halves(folder: Path) -> None:
    """Remove incomplete files that a killed process left in a store."""
    for half in folder.rglob(f"*{HALF}"):
        half.unlink(missing_ok=True)


def safe(array: Any, place: object) -> Any:
    """Return `array`, unless one of its codecs unpickles, which runs any code in the file.

    Among numcodecs' codecs only `pickle` does; since 0.16.6 it refuses by itself, unless a process allows it.

    Raises
    ------
    BadInputError
        It does.
    """
    if "pickle" in f"{array.filters} {array.compressors}".lower():
        raise BadInputError(
            f"{place} ({array.name}) is written with the codec pickle, which runs what a file says when it is read. "
            "Expected another codec: ask its author to write it again, without objects."
        )
    return array
