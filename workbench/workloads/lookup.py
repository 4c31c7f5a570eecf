"""Search for workloads by name: ours, a user's functions, and those that packages and folders list."""

from __future__ import annotations

from typing import Any

from workbench import named_choices
from workbench.errors import BadInputError, NotFoundError, UntrustedError, quoted
from workbench.workloads.builtin import templates
from workbench.workloads.registry import Template


def template(name: str) -> Template:
    """Return one workload: of ours, a user's function as `mine.py:total`, or one that is listed.

    Raises
    ------
    NotFoundError
        There is none of that name; the message lists those available.
    UntrustedError
        The same, while the working folder has workloads that the user hasn't trusted yet.
    BadInputError
        It isn't a name.
    """
    from workbench.workloads import listing, user_functions

    if not isinstance(name, str):
        raise BadInputError(
            f"workload is {quoted(name)}. Give its name; a function of a notebook gets one by %%workload."
        )
    for each in templates():
        if each.name == name:
            return each
    theirs = user_functions.find(name)
    if theirs is not None:
        return theirs
    others = listing.listed()
    for each in others.workloads:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in (*templates(), *others.workloads))
    module, colon, function = name.partition(":")
    such = f"{module.replace('.', '/')}.py:{function}" if colon else "mine.py:total"
    waiting = named_choices.untrusted()
    if waiting is not None and waiting.workloads:
        raise UntrustedError(
            f"Unknown workload {quoted(name)}. Choose one of: {names}. This folder defines {waiting}, and you haven't "
            "trusted it yet. Look at it and trust it: workbench trust"
        )
    raise NotFoundError(
        f"Unknown workload {name!r}. Choose one of: {names}. A function of your own is named with its file, such as "
        f"{such}."
    )


def described(template: Template) -> dict[str, Any]:
    """Return the description of a workload for user interfaces, as JSON."""
    return {
        "name": template.name,
        "title": template.title,
        "summary": template.summary,
        "help": template.help,
        "schema": template.schema(),
        "source": template.source,
        "origin": template.origin,
        "presets": [preset.model_dump() for preset in template.offered],
    }
