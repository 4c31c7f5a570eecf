"""Files and folders that genotypes are read from, on this machine or behind a URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from workbench.errors import BadInputError, FailedError, MissingError, WorkbenchError


def full(path: str | Path) -> str:
    """Absolute path, or the URL as it is."""
    if not isinstance(path, (str, PathLike)) or not str(path):
        raise BadInputError(f"A path or URL is needed, not {path!r}.")
    place = str(path).removeprefix("file://")
    return place.rstrip("/") if is_url(place) else str(Path(place).expanduser().absolute())


def is_url(place: str) -> bool:
    """Whether a place is on another machine, or in another kind of storage."""
    return "://" in place or "::" in place


def kind(place: str) -> str | None:
    """What is at a place: "file", "folder", or None for nothing."""
    fs, root = _storage(place)
    if fs.isfile(root):
        return "file"
    return "folder" if fs.isdir(root) else None


def size(place: str) -> int:
    """Bytes of a file."""
    fs, root = _storage(place)
    return int(fs.size(root))


def read(place: str, start: int | None = None, stop: int | None = None) -> bytes:
    """Bytes of a file, or a part of them."""
    fs, root = _storage(place)
    found = bytes(fs.cat_file(root, start=start, end=stop))
    if stop is not None and len(found) > stop - (start or 0):
        return found[start:stop]  # a web server that knows no ranges sends the whole file
    return found


def names_in(place: str) -> list[str]:
    """Names of what a folder holds; none where a server can't list."""
    fs, root = _storage(place)
    try:
        return [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(root, detail=False)]
    except (OSError, NotImplementedError):
        return []


def remove(place: str, *, folder: bool = False) -> None:
    """Remove a file, or a folder with all that is in it."""
    fs, root = _storage(place)
    fs.rm(root, recursive=folder)


@contextmanager
def sentences_about(place: str, expected: str) -> Iterator[None]:
    """Turn what reading a file can raise into one sentence: the place, what is wrong, what was expected."""
    try:
        yield
    except WorkbenchError:
        raise
    except PermissionError as err:
        raise BadInputError(f"{place} can't be opened: you have no permission. Change its mode, or copy it.") from err
    except FileNotFoundError as err:
        raise BadInputError(f"{place} isn't there. Expected {expected}.") from err
    except ImportError as err:
        raise MissingError(f"Reading {place} needs a package: {err}. Try: pip install 'dask-workbench[cloud]'") from err
    except Exception as err:  # the readers of each format and protocol raise what they like
        reason = " ".join(str(err).split())[:200] or type(err).__name__
        raise BadInputError(f"{place} can't be read ({reason}). Expected {expected}.") from err


@contextmanager
def writing_to(place: str) -> Iterator[None]:
    """Turn what the file system can refuse into one sentence."""
    try:
        yield
    except OSError as err:
        reason = " ".join(str(err).split())[:200]
        raise FailedError(f"{place} can't be written ({reason}). Make room there, or choose another path.") from err


def _storage(place: str) -> tuple[Any, str]:
    import fsspec

    fs, root = fsspec.core.url_to_fs(place)
    return fs, root
