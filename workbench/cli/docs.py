"""The command that shows the documentation: docs."""

from __future__ import annotations

import argparse
from typing import Any

from workbench.cli.answers import answer
from workbench.cli.words import add_command


def _docs(arguments: argparse.Namespace) -> int:
    from workbench.views.documentation import find, pages, title

    if arguments.page is None:
        titles = {name: title(name) for name in pages()}
        return answer(arguments, titles, lambda terminal: terminal.show_pages(titles))
    name = find(arguments.page)
    text = pages()[name]
    return answer(arguments, {"page": name, "text": text}, lambda terminal: terminal.show_markdown(text))


def add_docs(commands: Any) -> None:
    """Add the command that shows the documentation."""
    docs = add_command(
        commands,
        "docs",
        _docs,
        "show a page of the documentation, which the sidebar opens as well",
        epilog="Example: workbench docs slurm",
    )
    docs.add_argument("page", metavar="PAGE", nargs="?", help="its name; left out: list the pages")
