"""Options that several commands share: parameters of a workload, settings of Dask, and a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from workbench.cli import completions
from workbench.cli.parsing import add_pairs, parameters_of
from workbench.errors import BadInputError

if TYPE_CHECKING:
    from workbench.session import Session


def workload_parameters(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the parameters of a workload from the options of `add_parameters`."""
    named = {"preset": arguments.preset, "scale": arguments.scale}
    return parameters_of(arguments.parameters) | {name: text for name, text in named.items() if text is not None}


def where(session: Session, arguments: argparse.Namespace) -> str:
    """Return the options of the cluster to start: those of --on, or else the profile that the preset's text used."""
    profile, preset = arguments.on, workload_parameters(arguments).get("preset")
    if profile is None:
        workload = session.workload(arguments.workload)
        profile = workload.preset(preset).profile if preset is not None else None
    if profile is None:
        ready = ", ".join(each.name for each in session.clusters() if each.status == "ready") or "none runs"
        raise BadInputError(
            f"No cluster was given. Give --cluster NAME ({ready}), or --on with a profile, such as --on cpu."
        )
    return str(profile)


def add_parameters(parser: argparse.ArgumentParser) -> None:
    """Add the options that give a workload's parameters."""
    parser.add_argument("--preset", metavar="NAME", help="parameters of a text's experiment; -p changes some of them")
    parser.add_argument("--scale", metavar="F", help="how many times as large as the preset, such as 0.01")
    said = "a parameter of the workload; may be given again for others"
    add_pairs(parser, "-p", "--parameter", dest="parameters", help=said, completer=completions.parameters)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the option for settings of Dask."""
    said = "a setting of Dask, such as array.rechunk.threshold=5; may be given again for others"
    add_pairs(parser, "--config", dest="settings", help=said)


def add_where(parser: argparse.ArgumentParser, on_help: str) -> None:
    """Add the options that name a cluster: a running one, or one to start."""
    named = parser.add_mutually_exclusive_group()
    named.add_argument("--cluster", metavar="NAME", help="a cluster that is up")
    named.add_argument("--on", metavar='"PROFILE …"', help=on_help)
