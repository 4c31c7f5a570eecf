"""Entries of a folder, local or behind a URL, for users looking for a file."""

from __future__ import annotations

from typing import NamedTuple

from workbench.storage.places import Options, Place, full, sentences_about
from workbench.storage.zarrs import MARKS

MOST = 200
"""Limit of listed entries; for more, type the path."""

_STORES = (".zarr", ".vcz")
"""Endings of folders that contain one dataset, and are chosen like files."""


class Entry(NamedTuple):
    """A file, a folder to open, or a store that is chosen as a whole."""

    name: str
    path: str
    is_folder: bool
    n_bytes: int | None = None
    """None for folders and stores."""


class Folder(NamedTuple):
    """A folder: its path, its parent's path, folders and then files, and the number of further entries."""

    path: str
    above: str | None
    entries: tuple[Entry, ...]
    more: int = 0
    is_store: bool = False
    """True if the folder is itself a store that can be chosen."""


def browse(path: str, options: Options | None = None) -> Folder:
    """List the folder of a path or URL, or the one that a file is in.

    Raises
    ------
    BadInputError
        Nothing is there, or it can't be listed.
    """
    place = full(path, options)
    with sentences_about(place, "a folder"):
        if place.kind() == "file":
            place = _above(place) or place
        fs, root = place.storage()
        children = fs.ls(root, detail=True)
    names = {_last(each["name"]) for each in children}
    entries = (_entry(place, each) for each in children)
    ordered = sorted(
        (each for each in entries if each.name and not each.name.startswith(".")),
        key=lambda each: (not each.is_folder, each.name.lower()),
    )
    above = _above(place)
    return Folder(
        place.path,
        above.path if above else None,
        tuple(ordered[:MOST]),
        max(0, len(ordered) - MOST),
        not names.isdisjoint(MARKS) or any(name.endswith(".parquet") for name in names),
    )


def _entry(folder: Place, info: dict[str, object]) -> Entry:
    name = _last(info["name"])
    is_store = name.endswith(_STORES)
    n_bytes = info.get("size") if info["type"] == "file" else None
    return Entry(
        name,
        f"{folder.path.rstrip('/')}/{name}",
        info["type"] == "directory" and not is_store,
        n_bytes if isinstance(n_bytes, int) else None,
    )


def _last(path: object) -> str:
    return str(path).rstrip("/").rsplit("/", 1)[-1]


def _above(place: Place) -> Place | None:
    """Return the parent folder of a path; None for the root of a disk, a bucket or a server."""
    scheme, separator, rest = place.path.rpartition("://")
    inside = rest.rstrip("/")
    if separator:
        return Place(f"{scheme}://{inside.rsplit('/', 1)[0]}", place.options) if "/" in inside else None
    return Place(inside.rsplit("/", 1)[0] or "/") if inside else None
