"""Check of paths before they are opened: opening a FIFO or a device may wait forever."""

from __future__ import annotations

import stat
from pathlib import Path

from workbench.errors import BadInputError

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def check_openable(path: str | Path) -> None:
    """Raise BadInputError for an existing path that is neither a file nor a folder."""
    try:
        kind = _KINDS.get(stat.S_IFMT(Path(path).stat().st_mode))
    except (OSError, ValueError):
        # Opening it gives a better message.
        return
    if kind is not None:
        raise BadInputError(f"{path} is {kind}, which may never answer. Give the path of a file or a folder.")
