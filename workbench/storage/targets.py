"""Targets of saved arrays: the kind of file that a name means, and protection from overwriting."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.errors import BadInputError, ConflictError, MissingError, NotFoundError, install, quoted
from workbench.paths import check_openable
from workbench.storage import places
from workbench.storage.places import Place
from workbench.storage.zarrs import MARKS

KINDS = {
    "zarr": ".zarr, or a folder",
    "npz": ".npz",
    "npy": ".npy",
    "nc": ".nc",
}
"""Kinds of files that a run saves its arrays as, and the endings that mean them."""

PICTURES = ("png", "svg", "pdf")

SAVED = (*KINDS, "tsv", *PICTURES)
"""All kinds of files that any run's answer can be written as later."""

_READ_ONLY = ("http", "https")

COPYING = ".workbench-copying"
"""Suffix next to the blocks of a store behind a URL during the copy: it marks the remains of a killed process."""


@dataclass(frozen=True)
class Target:
    """A path or URL, and the kind of file to write there."""

    place: Place
    kind: str
    replace: bool = False

    def __str__(self) -> str:
        return self.place.path


def target(path: Any, kind: str | None = None, *, replace: bool = False, kinds: Sequence[str] = tuple(KINDS)) -> Target:
    """Return the target that a path or URL names; without a kind, the ending decides.

    Raises
    ------
    BadInputError
        Nothing can be written there, or the ending is unknown.
    ConflictError
        Something is there that must not be replaced, or is of another kind.
    MissingError
        The package that writes files of this kind isn't installed.
    """
    place = places.full(path, _server(path))
    target_kind = kind or _kind(place, kinds)
    if target_kind not in kinds:
        raise BadInputError(f"Arrays can't be saved as {quoted(target_kind)}. Choose one of: {', '.join(kinds)}.")
    if target_kind == "nc" and find_spec("h5netcdf") is None:
        raise MissingError(f"To write NetCDF takes h5netcdf, which isn't installed: {install('files')}")
    if place.is_url:
        _check_url(place)
    else:
        _check_folder(Path(place.path).parent)
    existing = what_is_at(place)
    if existing is not None:
        _check_replaced(place, target_kind, existing, replace=replace)
    return Target(place, target_kind, replace)


def _server(path: Any) -> places.Options | None:
    """Return the s3:// server in this process's environment, which workers may lack."""
    url = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return {"endpoint_url": url} if url and str(path).startswith("s3://") else None


def kind_of(path: str) -> str:
    """Return the kind of file that a path's ending means: a folder's is "zarr"."""
    return Path(path).suffix.lower().removeprefix(".") or "zarr"


def _kind(place: Place, kinds: Sequence[str]) -> str:
    ending = kind_of(place.path)
    if ending in kinds:
        return ending
    endings = ", ".join(KINDS.get(each, f".{each}") for each in kinds)
    raise BadInputError(f"{place} has an unknown ending. Give a name that ends with one of: {endings}.")


def _check_url(place: Place) -> None:
    if "memory" in place.path.partition("://")[0].split("::"):
        raise BadInputError(f"{place} would be lost with the process that writes it. Give a path, or s3://bucket/name.")
    if place.path.startswith(tuple(f"{each}://" for each in _READ_ONLY)):
        raise BadInputError(f"{place} can be read, but not written to. Give a path, or a URL such as s3://bucket/name.")


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise NotFoundError(f"There is no folder {folder}. Make it first, or give another one.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInputError(f"{folder} may not be written to: it is read-only, or not yours. Give another folder.")


def what_is_at(place: Place) -> str | None:
    """Return what is there, "file" or "folder", or None for nothing."""
    with places.sentences_about(place, "a place to write to"):
        if place.is_url:
            return place.kind()
        path = Path(place.path)
        check_openable(path)
        return None if not os.path.lexists(path) else "folder" if path.is_dir() else "file"


def _check_replaced(place: Place, kind: str, existing: str, *, replace: bool) -> None:
    if not replace:
        raise ConflictError(f"{place} is there already. Give another path, or replace it (replace=true, --replace).")
    if (existing == "folder") != (kind == "zarr"):
        raise ConflictError(f"{place} is a {existing}, which {kind} doesn't replace. Give another path.")
    if existing == "folder":
        # Replace nothing else: a mistyped path may be a home directory.
        names = set(place.names())
        if names and names.isdisjoint((*MARKS, COPYING)):
            raise ConflictError(f"{place} is a folder, and no Zarr store: it isn't replaced. Give another path.")
