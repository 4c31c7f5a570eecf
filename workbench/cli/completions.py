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


def add_profile_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the profile in the line to be completed to the parser of `up`."""
    words = os.environ.get("COMP_LINE", "").split()
    if "_ARGCOMPLETE" not in os.environ or "up" not in words:
        return
    from workbench.clusters.lines import options_of
    from workbench.clusters.profiles import registered
    from workbench.clusters.profiles.lookup import profile
    from workbench.hardware import inventory

    for name in registered().keys() & set(words):
        for option in options_of(profile(name), inventory()):
            # A choice of few values completes these as well.
            flag, _, kind = option.name.partition(" ")
            more: dict[str, Any] = (
                {"choices": kind.split("|") if "|" in kind else None} if kind else {"action": "store_true"}
            )
            parser.add_argument(flag, **more)


def parameters(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return parameters of the workload in the line, as 'k='."""
    from workbench.session import Session

    if getattr(parsed_args, "workload", None) is None:
        return []
    names = Session().workload(parsed_args.workload).schema()["properties"]
    return [f"{name}=" for name in names if name.startswith(prefix)]


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
    from workbench.clusters.profiles.saved_profiles import saved

    return [name for name in (*registered(), *saved()) if name.startswith(prefix)]
