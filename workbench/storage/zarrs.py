"""Zarr arrays whose reading runs nothing that a file says, and what a kill leaves in a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.errors import BadInputError

MARKS = (".zarray", ".zgroup", "zarr.json")
"""Files of which a folder of any name has one that is a Zarr array or group."""
HALF = ".partial"
"""What Zarr calls a file before it is whole."""


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
