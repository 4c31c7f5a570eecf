"""Names that the shell completes after Tab. Each function returns those of one kind that begin with what is typed.

`register-python-argcomplete workbench` prints what a shell's start-up file has to evaluate.
"""

from __future__ import annotations

import argparse
import os
from typing import Any


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end this process if the shell asks for completions; return otherwise."""
    # The shell sets this variable, for this process alone.
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options="long")


def clusters(prefix: str, **_: Any) -> list[str]:
    """Return names of clusters."""
    from workbench.clusters import records

    return [each.name for each in records.read_all() if each.name.startswith(prefix)]


def runs(prefix: str, **_: Any) -> list[str]:
    """Return ids of the newest runs."""
    from workbench.runs import store

    return [each.id for each in store.select(limit=50) if each.id.startswith(prefix)]


def workloads(prefix: str, **_: Any) -> list[str]:
    """Return names of workloads, except those that aren't loaded yet."""
    from workbench.session import Session

    return [each.name for each in Session().workloads(wait=False) if each.name.startswith(prefix)]


def profiles(prefix: str, **_: Any) -> list[str]:
    """Return names of profiles."""
    from workbench.clusters.profiles import registered
    from workbench.clusters.profiles.own import saved

    return [name for name in (*registered(), *saved()) if name.startswith(prefix)]
