"""Commands for this machine: hardware, lab."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from workbench.cli.answers import tell_json
from workbench.cli.clusters import new_session
from workbench.cli.words import add_command


def _hardware(arguments: argparse.Namespace) -> int:
    from workbench.hardware import ucx_transports

    session = new_session()
    inventory = session.hardware()
    offered = session.profiles(inventory)
    transports = ucx_transports() if arguments.transports else None
    if arguments.json:
        told = inventory.model_dump(mode="json", include={"cpu", "memory", "gpus", "ucx"})
        told |= {"profiles": [profile.model_dump(mode="json") for profile in offered]}
        told |= inventory.model_dump(mode="json", include={"network", "topology", "cuda"})
        return tell_json(told | ({"transports": transports.model_dump(mode="json")} if transports else {}))
    from workbench import terminal

    terminal.show_hardware(inventory, offered, session.budget(inventory), transports)
    return 0


def lab(arguments: argparse.Namespace) -> int:
    """Become JupyterLab."""
    command = [sys.executable, "-m", "jupyterlab", *arguments.passed_on]
    if arguments.json:
        tell_json({"command": command, "pid": os.getpid()})
    sys.stdout.flush()
    os.execv(command[0], command)


def add_hardware(commands: Any) -> None:
    """Add the command that shows this machine."""
    hardware = add_command(commands, "hardware", _hardware, "show what this machine has, and the profiles")
    hardware.add_argument(
        "--transports", action="store_true", help="ask UCX as well what it can move data over here (half a second)"
    )


def add_lab(commands: Any) -> None:
    """Add the command that opens JupyterLab."""
    text = "open JupyterLab with the Workbench in its sidebar"
    add_command(commands, "lab", lab, text, usage="workbench lab [-h] [--json] [what jupyter lab takes]")
