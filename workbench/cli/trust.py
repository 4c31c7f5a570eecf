"""The command that trusts a folder, and the question that others ask."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.answers import agreed, answer
from workbench.cli.clusters import new_session
from workbench.cli.words import add_command
from workbench.errors import BadInputError

if TYPE_CHECKING:
    from workbench.kept import Definitions

_MEANING = "Workloads are code that runs as you; profiles name programs and servers that get your credentials."


def trusts_this_folder() -> bool:
    """Ask the user at the terminal whether to use what the working folder defines; if so, store that."""
    session = new_session()
    waiting = session.untrusted()
    if waiting is None or waiting.problem is not None or not agreed(_told(waiting), waiting.question):
        return False
    session.trust(waiting.sha, waiting.folder)
    return True


def _trust(arguments: argparse.Namespace) -> int:
    from workbench import kept

    folder = arguments.folder.absolute()
    if not folder.is_dir():
        raise BadInputError(f"There is no folder {folder}. Give the path of one.")
    found = kept.definitions(folder)
    if found is None:
        told = {"folder": str(folder), "trusted": False}
        return answer(arguments, told, f"{folder} defines no workloads, profiles or presets.")
    if found.problem is None and not (arguments.yes or agreed(_told(found), found.question)):
        raise BadInputError(f"{folder} was not trusted. It defines {found}. To trust it without a question: --yes")
    new_session().trust(found.sha, folder)
    told = {"folder": str(folder), "trusted": True, "sha": found.sha}
    return answer(arguments, told, f"Trusted until it changes: {folder} with {found}.")


def _told(found: Definitions) -> str:
    return f"{found.folder}\n{_MEANING}"


def add_trust(commands: Any) -> None:
    """Add the command that trusts a folder."""
    text = "use the workloads, profiles and presets that a folder defines, until they change"
    trust = add_command(commands, "trust", _trust, text)
    trust.add_argument("folder", metavar="FOLDER", type=Path, nargs="?", default=Path(), help="this one by default")
    trust.add_argument("--yes", action="store_true", help="don't ask")
