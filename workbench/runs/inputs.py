"""State of the files that a run reads: when the run computes it must be what it was when it was submitted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import FailedError, WorkbenchError
from workbench.storage.places import Place, matches
from workbench.storage.servers import options_of
from workbench.threads import ended_after

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

_MOST = 1000  # entries of a folder that are looked at: a Zarr array may have millions of chunks
_ANSWERING = 30.0  # seconds for a disk or server


def states(template: Template, resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return the state of each file that parameters name; files whose state can't be found are left out.

    The state of a file is its size and time, or what a server says of it. The state of a folder is a hash of the sizes
    and times of its direct entries.
    """
    found = {}
    for name, field in template.schema()["properties"].items():
        path = resolved.get(name)
        if field.get("path") is True and isinstance(path, str):
            with ended_after(_ANSWERING, f"No answer within {_ANSWERING:g} s: the server or disk of {path} is silent."):
                found[name] = _state(path, resolved if name == "path" else {})
    return {name: state for name, state in found.items() if state}


def check_unchanged(template: Template, resolved: Mapping[str, Any], before: Mapping[str, str]) -> None:
    """Raise FailedError where a file has changed since `before` was found."""
    now = states(template, resolved) if before else {}
    for name, state in before.items():
        if now.get(name) != state:
            raise FailedError(
                f"{resolved[name]} was changed after the run was submitted ({state} then, {now.get(name, 'gone')} "
                "now). Run it again."
            )


def _state(path: str, resolved: Mapping[str, Any]) -> str:
    try:
        if not Place(path).is_url:
            return _joined([_of_file(each) for each in _local(path)])
        options = options_of("the run", path, resolved)
        return ", ".join(each.removeprefix(f"{path} ") for each in Place(path, options).stamp(deep=False))
    except (OSError, ValueError, WorkbenchError):
        # The workload itself says what is wrong with it.
        return ""


def _local(path: str) -> Sequence[str]:
    """Return the file, the files that match a pattern, or the folder with what lies directly in it."""
    if not os.path.isdir(path):  # noqa: PTH112
        return matches(path)[:_MOST]
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries)
    return [path, *(f"{path}/{name}" for name in names[:_MOST])]


def _of_file(path: str) -> str:
    about = os.stat(path)  # noqa: PTH116
    return f"{about.st_size} bytes of {about.st_mtime_ns / 1e9:.6f}"


def _joined(states: Sequence[str]) -> str:
    if len(states) < 2:
        return "".join(states)
    return f"{len(states)} files with hash {hashlib.sha256(' '.join(states).encode()).hexdigest()[:16]}"
