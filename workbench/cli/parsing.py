"""The options of the command line: their parsing, and those that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dask.utils import parse_bytes

from workbench.cli.completions import clusters, runs, workloads
from workbench.cli.help import add_help, of_workload
from workbench.errors import BadInputError, ConflictError

FORCE = "go past the memory budget that all clusters share"


class Parser(argparse.ArgumentParser):
    """An argparse parser with one-line error messages."""

    def error(self, message: str) -> NoReturn:
        """Raise BadInputError, for `main` to print."""
        raise BadInputError(f"{message}. See: {self.prog} --help")


def whole_number(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"given '{text}', allowed are whole numbers") from None


def size_given(text: str) -> int:
    """Read a number of bytes, such as '4GiB'."""
    try:
        return parse_bytes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"given '{text}', allowed are sizes such as 4GiB") from None


def parameters_of(pairs: Sequence[str], option: str = "-p", example: str = "size=2GiB") -> dict[str, str]:
    """Return parameters given by `-p KEY=VALUE`, or by another option."""
    parameters = {}
    for item in pairs:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise BadInputError(f"{option}: given '{item}', allowed is KEY=VALUE, such as {option} {example}.")
        if name.strip() in parameters:
            raise BadInputError(f"{option}: {name.strip()} is given twice. Give it once.")
        parameters[name.strip()] = value
    return parameters


def check_writable(path: Path, option: str = "--save") -> None:
    """Raise BadInputError if no file of this name can be written: better before minutes of work than after it."""
    if path.is_dir() or not path.parent.is_dir():
        why = "is a folder" if path.is_dir() else f"would lie in {path.parent}, which is no folder"
        raise BadInputError(
            f"{option}: given '{path}', which {why}. Give the name of a file in a folder that is there."
        )


def check_free(path: Path, replace: bool) -> None:
    """Raise BadInputError if a file of this name can't be written, and ConflictError if there is one already."""
    check_writable(path, "FILE")
    if path.exists() and not replace:
        raise ConflictError(f"There is a file {path} already. Give another name, or --replace.")


def add_command(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int], text: str, **options: Any
) -> argparse.ArgumentParser:
    """Add a command, which has `--json` like all commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", **options
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(command=command)
    return parser


def add_pairs(
    parser: argparse.ArgumentParser, *names: str, metavar: str = "KEY=VALUE", completer: Any = None, **options: Any
) -> None:
    """Add an option that may be repeated, for `parameters_of`."""
    _completed(parser.add_argument(*names, metavar=metavar, action="append", default=[], **options), completer)


def add_run_name(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a run."""
    _completed(parser.add_argument("run", metavar="RUN", help="its id, the beginning or end of it, or: last"), runs)


def add_cluster_name(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the argument that names a cluster, or with nargs="*" several."""
    name = "name" if nargs is None else "names"
    _completed(parser.add_argument(name, metavar="NAME", nargs=nargs), clusters)


def add_workload_name(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the argument that names a workload, and the help on its parameters."""
    named = parser.add_argument("workload", metavar="WORKLOAD", nargs=nargs, help="see: workbench workloads")
    _completed(named, workloads)
    add_help(parser, "workload", of_workload)


def _completed(action: argparse.Action, completer: Any) -> None:
    # argcomplete's way to name the function that completes an argument.
    action.completer = completer  # type: ignore[attr-defined]
