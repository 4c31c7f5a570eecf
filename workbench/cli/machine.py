"""Commands for this machine: hardware, lab, app."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from typing import Any, NoReturn

from workbench.cli.answers import answer
from workbench.cli.clusters import new_session
from workbench.cli.parsing import add_command, whole_number
from workbench.errors import MissingError, install


def _hardware(arguments: argparse.Namespace) -> int:
    session = new_session()
    inventory = session.hardware()
    offered = session.profiles(inventory)
    facts = inventory.model_dump(include={"cpu", "memory", "gpus", "ucx"}) | {"profiles": offered}
    facts |= inventory.model_dump(include={"network", "topology", "cuda"})
    budget = session.budget(inventory)
    return answer(arguments, facts, lambda terminal: terminal.show_hardware(inventory, offered, budget))


def lab(arguments: argparse.Namespace) -> int:
    """Replace this process with JupyterLab."""
    _check_installed("jupyterlab", "JupyterLab")
    command = [sys.executable, "-P", "-m", "jupyterlab", *arguments.rest]
    if arguments.json:
        answer(arguments, {"command": command, "pid": os.getpid()}, "")
    _become(command)


def _app(arguments: argparse.Namespace) -> int:
    _check_installed("jupyter_server", "Jupyter's server, which serves the page,")
    options = {"port": arguments.port, "browser": arguments.browser, "json": arguments.json}
    _become([sys.executable, "-P", "-m", "workbench.server.standalone", json.dumps(options)])


def _check_installed(module: str, name: str) -> None:
    """Raise MissingError if a package of the extra `lab` isn't installed."""
    if importlib.util.find_spec(module) is None:
        raise MissingError(f"{name} isn't installed here. Try: {install('lab')}")


def _become(command: list[str]) -> NoReturn:
    # -P: modules in this folder, which anyone may have written, must not shadow installed ones.
    sys.stdout.flush()
    os.execv(command[0], command)


def add_hardware(commands: Any) -> None:
    """Add the command that shows this machine."""
    add_command(commands, "hardware", _hardware, "show what this machine has, and the profiles")


def add_lab(commands: Any) -> None:
    """Add the commands that open JupyterLab, and the Workbench without it."""
    text = "open JupyterLab with the Workbench in its sidebar"
    add_command(commands, "lab", lab, text, usage="workbench lab [-h] [--json] [what jupyter lab takes]").set_defaults(
        rest=[]
    )
    app = add_command(commands, "app", _app, "open the Workbench in a browser, without JupyterLab")
    app.add_argument("--port", type=whole_number, default=0, help="of this machine; any that is free by default")
    app.add_argument("--no-browser", dest="browser", action="store_false", help="only print the address")
