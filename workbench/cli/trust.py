"""The command that trusts a folder, or revokes that, and the question that other commands ask."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.answers import agreed, answer
from workbench.cli.clusters import new_session
from workbench.cli.parsing import add_command
from workbench.errors import BadInputError, on_one_line

if TYPE_CHECKING:
    from workbench.named_choices import Definitions

_MEANING = "Workloads are code that runs as you; profiles name programs and servers that get your credentials."


def trusts_this_folder() -> bool:
    """Ask the user at the terminal whether to use the definitions in the working folder; if so, store that."""
    session = new_session()
    waiting = session.untrusted()
    if waiting is None or waiting.problem is not None or not agreed(_description(waiting), waiting.question):
        return False
    session.trust(waiting.sha, waiting.folder)
    return True


def _trust(arguments: argparse.Namespace) -> int:
    from workbench import named_choices, trust

    if arguments.list:
        return _list(arguments)
    folder = arguments.folder.absolute()
    if arguments.withdraw:
        was_trusted = trust.withdraw(folder)
        message = "was not trusted" if not was_trusted else "is trusted no longer. What runs of it goes on"
        return answer(arguments, {"folder": str(folder), "trusted": False}, f"{on_one_line(str(folder))} {message}.")
    if not folder.is_dir():
        raise BadInputError(f"There is no folder {folder}. Give the path of one.")
    defined = named_choices.definitions(folder)
    if defined is None:
        outcome = {"folder": str(folder), "trusted": False}
        return answer(arguments, outcome, f"{folder} defines no workloads, profiles or presets.")
    if defined.problem is None and not (arguments.yes or agreed(_description(defined), defined.question)):
        raise BadInputError(f"{folder} was not trusted. It defines {defined}. To trust it without a question: --yes")
    new_session().trust(defined.sha, folder)
    outcome = {"folder": str(folder), "trusted": True, "sha": defined.sha}
    return answer(arguments, outcome, f"Trusted until it changes: {on_one_line(str(folder))} with {defined}.")


def _list(arguments: argparse.Namespace) -> int:
    from workbench import named_choices, trust

    entries = []
    for folder, sha in trust.trusted().items():
        there = named_choices.definitions(folder)
        state = "trusted" if there and there.sha == sha else "changed since" if there else "defines nothing now"
        entries.append({"folder": str(folder), "sha": sha, "state": state})
    lines = "\n".join(f"{on_one_line(each['folder'])}: {each['state']}" for each in entries)
    return answer(arguments, entries, lines or "No folder is trusted.")


def _description(definitions: Definitions) -> str:
    return f"{on_one_line(str(definitions.folder))}\n{_MEANING}"


def add_trust(commands: Any) -> None:
    """Add the command that trusts a folder, or revokes that."""
    text = "use the workloads, profiles and presets that a folder defines, until they change"
    trust = add_command(commands, "trust", _trust, text)
    trust.add_argument("folder", metavar="FOLDER", type=Path, nargs="?", default=Path(), help="this one by default")
    what = trust.add_mutually_exclusive_group()
    what.add_argument("--yes", action="store_true", help="don't ask")
    what.add_argument("--withdraw", action="store_true", help="trust it no longer")
    what.add_argument("--list", action="store_true", help="list the folders that are trusted")
