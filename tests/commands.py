"""Commands of the terminal, run in this process: a new one would import everything again, for 0.6 CPU seconds."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from workbench.cli import main


def run(*arguments: str) -> tuple[int, str, str]:
    """Run a command, and return its exit code and what it wrote to stdout and to stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def answer(*arguments: str, code: int = 0) -> Any:
    """Run a command with --json, and return its answer; with a code other than 0, what it wrote to stderr."""
    found, out, err = run(*arguments, "--json")
    assert found == code, err
    return json.loads(out) if code == 0 else err


def printed(*arguments: str) -> str:
    """Return the text that a command prints, in one line."""
    return " ".join(run(*arguments)[1].split())
