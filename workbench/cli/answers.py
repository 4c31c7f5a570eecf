"""Output of commands: text or JSON on stdout, complaints on stderr."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from workbench.errors import printable


def print_text(text: str) -> int:
    """Print text, which may come from outside; return exit code 0."""
    print(printable(text))
    return 0


def answer(arguments: argparse.Namespace, value: Any, text: str | Callable[[Any], object]) -> int:
    """Print `value` as JSON with --json, or else `text`; return exit code 0.

    `text` may be a function that shows the answer with `workbench.terminal`, which is imported only then.
    """
    if arguments.json:
        from pydantic_core import to_jsonable_python

        # JSON escapes everything that `print_text` would remove, except this character.
        return print_text(json.dumps(to_jsonable_python(value), indent=2).replace("\x7f", "\\u007f"))
    if isinstance(text, str):
        return print_text(text)
    from workbench import terminal

    text(terminal)
    return 0


@contextlib.contextmanager
def shown(how: str, what: Any, arguments: argparse.Namespace, every: float = 60.0) -> Iterator[Any]:
    """Show progress until the block ends, and yield the function to call with changes.

    On a terminal, that is one of the functions of `terminal`. Elsewhere a line is printed every minute, with --json on
    stderr.
    """
    from workbench import terminal

    if sys.stderr.isatty():
        with getattr(terminal, how)(what) as on_change:
            yield on_change
        return
    from workbench.jobs.folders import meanwhile

    latest: tuple[Any, ...] = (what,)

    def hear(*changed: Any) -> None:
        nonlocal latest
        latest = changed

    def line() -> None:
        # The reader may be gone, which is no reason to stop the work.
        with contextlib.suppress(OSError, ValueError):
            to = sys.stderr if arguments.json else sys.stdout
            print(printable(terminal.LINES[how](*latest)), file=to, flush=True)

    with meanwhile(line, every, "line"):
        yield hear


def agreed(message: str, question: str = "Go on?") -> bool:
    """Return whether the user at the terminal agrees; False if no one can answer."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{printable(message)}\n{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def complain(text: str) -> None:
    """Print an error on stderr."""
    with contextlib.suppress(OSError):
        print(f"workbench: {printable(text)}", file=sys.stderr)
