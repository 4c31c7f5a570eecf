"""The command `workbench`: hardware, clusters, workloads and runs from a terminal.

Exit codes: 0 for success, even if the reader closes the output early; 1 for a failed cluster, run or row of a
comparison; 2 for bad input (with one line on stderr); 130 after Ctrl-C. With `--json`, stdout holds the answer or the
error as JSON, and nothing else. Each family of commands has a file of its own, which adds them to the parser.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence

from workbench import __version__
from workbench.cli.answers import complain, print_text
from workbench.cli.clusters import add_cluster_commands
from workbench.cli.compare import add_compare_commands
from workbench.cli.completions import complete
from workbench.cli.doctor import add_doctor
from workbench.cli.forecast import add_forecast_commands, add_look
from workbench.cli.machine import add_hardware, add_lab
from workbench.cli.parsing import Parser
from workbench.cli.records import add_record_commands
from workbench.cli.runs import add_run_commands
from workbench.cli.trust import add_trust, trusts_this_folder
from workbench.credentials import by_command
from workbench.errors import BadInputError, FailedError, UntrustedError, WorkbenchError, quoted

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the terminal's encoding lacks, such as … in Latin-1, are no reason to fail.
            stream.reconfigure(errors="replace")
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader closed the output. Buffered text must go nowhere, or Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        arguments = _parse(words)
        try:
            with by_command():
                code: int = arguments.command(arguments)
        except UntrustedError:
            if not trusts_this_folder():
                raise
            with by_command():
                code = arguments.command(arguments)
        return code
    except WorkbenchError as err:
        text = str(err) if isinstance(err, FailedError) else " ".join(str(err).split())
        return _refuse(text, err.exit_code, words, getattr(err, "parameter", None))
    except SystemExit as err:
        return err.code if isinstance(err.code, int) else 0
    except KeyboardInterrupt:
        return _refuse("interrupted", _INTERRUPTED, words)
    except BrokenPipeError:
        raise
    except OSError as err:
        return _refuse(f"{err.strerror or err}{f': {err.filename}' if err.filename else ''}", 1, words)


def _refuse(message: str, code: int, words: Sequence[str], parameter: str | None = None) -> int:
    """Print an error on stderr, with --json as JSON on stdout too, and return the exit code."""
    complain(message)
    if "--json" in words:
        error = {"message": message, "exit_code": code} | ({"parameter": parameter} if parameter else {})
        print_text(json.dumps({"error": error}, indent=2))
    return code


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    complete(parser)
    _check_text(words)
    arguments, unknown = parser.parse_known_args(words)
    if unknown and hasattr(arguments, "rest"):
        if unknown[0] == words[1] and "profile" in arguments:
            raise BadInputError(f"Given {quoted(words[1])} first. Give the profile before its options.")
        arguments.rest = unknown
    elif unknown:
        if "parameters" in arguments and "=" in unknown[0] and not unknown[0].startswith("-"):
            raise BadInputError(f"Given {quoted(unknown[0])} alone. A parameter is given as -p {unknown[0]}.")
        raise BadInputError(f"Unknown: {' '.join(unknown)}. See: workbench {words[0]} --help")
    return arguments


def _check_text(words: Sequence[str]) -> None:
    for each in words:
        try:
            each.encode()
        except UnicodeEncodeError as err:
            raise BadInputError(f"{each!a} is not in UTF-8. Give text and names of files that are.") from err


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="workbench",
        description="Pick hardware, start the Dask cluster that matches it, run a workload, watch it.",
        epilog="Example: workbench run array_sum --on cpu -p size=1GiB",
    )
    parser.add_argument("--version", action="version", version=f"dask-workbench {__version__}")
    parser.set_defaults(command=lambda _: print_text(parser.format_help().rstrip()))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    add_hardware(commands)
    add_cluster_commands(commands)
    add_look(commands)
    add_run_commands(commands)
    add_record_commands(commands)
    add_forecast_commands(commands)
    add_compare_commands(commands)
    add_trust(commands)
    add_lab(commands)
    add_doctor(commands)
    return parser
