"""State of the files that a run reads, which must not change between submission and computation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import FailedError, WorkbenchError
from workbench.storage.places import Place, matches
from workbench.storage.servers import options_of
from workbench.threads import ended_after
from workbench.workloads.extensions import format_of

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

_MOST = 1000  # files that match a pattern
_ANSWERING = 30.0  # seconds for a disk or server


def states(template: Template, resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return the state of each file that parameters name; files with unknown state are omitted.

    The state of a file is its size and time, or what a server says of it. That of a folder, or of files that are read
    together such as a table with its index, is a hash of the states of its direct entries, or of all these files.
    """
    found = {}
    for name, field in template.schema()["properties"].items():
        path = resolved.get(name)
        if field.get("path") is True and isinstance(path, str):
            with ended_after(_ANSWERING, f"No answer within {_ANSWERING:g} s: the server or disk of {path} is silent."):
                found[name] = _state(path, resolved if name == "path" else {})
    return {name: state for name, state in found.items() if state}


def check_unchanged(template: Template, resolved: Mapping[str, Any], before: Mapping[str, str]) -> None:
    """Raise FailedError if a file has changed since `before` was recorded."""
    now = states(template, resolved) if before else {}
    for name, state in before.items():
        if now.get(name) != state:
            raise FailedError(
                f"{resolved[name]} was changed after the run was submitted ({state} then, {now.get(name, 'gone')} "
                "now). Run it again."
            )


def _state(path: str, resolved: Mapping[str, Any]) -> str:
    is_url, kind = Place(path).is_url, format_of(path)
    try:
        options = options_of("the run", path, resolved) if is_url else {}
        names = kind.files(path) if kind else [path] if is_url else matches(path)
        found = {
            name: state for each in names[:_MOST] for name, state in Place(each, options).state(deep=False).items()
        }
    except (OSError, ValueError, WorkbenchError):
        # The workload itself reports what is wrong with the file.
        return ""
    states = [", ".join(f"{key} {value}" for key, value in state.items()) for state in found.values()]
    if len(states) < 2:
        return "".join(states)
    lines = " ".join(map(" ".join, zip(found, states, strict=True)))
    return f"{len(states)} files with hash {hashlib.sha256(lines.encode()).hexdigest()[:16]}"
