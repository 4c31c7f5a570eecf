"""Answers to requests: address and method select a function in the table of `verbs`.

The Jupyter server calls this for its pages, and a notebook, which has no REST, calls it directly. No tornado here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

from workbench.errors import NotFoundError, WorkbenchError
from workbench.views.answers import API, JSON, Answer
from workbench.views.bodies import Asked
from workbench.views.desk import Desk
from workbench.views.verbs import LOOKING, TABLE, Verb


class VerbError(WorkbenchError):
    """A method that an address doesn't support."""

    status = 405

    def __init__(self, verb: str | None, possible: Sequence[str]) -> None:
        super().__init__(f"{verb} is not possible here. Possible: {', '.join(possible) or 'nothing'}.")


async def answer(
    desk: Desk,
    verb: str,
    path: str,
    body: bytes | Mapping[str, Any] | None = None,
    query: Mapping[str, str] | None = None,
) -> Answer:
    """Return the answer to a request such as POST, `runs/x/cancel`. Raises WorkbenchError.

    Cancellation ends reading requests. Requests that change something are completed: a click counts even if the page is
    closed right after it.

    Parameters
    ----------
    path
        Address below `workbench/api`, quoted as in a URL, with an optional query.
    body
        A JSON object, or bytes: encoded JSON, or a file.
    """
    # Imported by the first request, to keep Jupyter's start fast.
    from pydantic_core import to_jsonable_python

    path, _, text = path.partition("?")
    verbs, names = _find(path)
    if verb not in verbs:
        raise VerbError(verb, tuple(verbs))
    content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    asked = Asked(names, {**dict(parse_qsl(text)), **(query or {})}, content, desk.base_url)
    answering = verbs[verb](desk, asked)
    found = await (answering if verb == "GET" or verbs[verb] in LOOKING else desk.finish(answering))
    return found._replace(value=to_jsonable_python(found.value)) if found.kind == JSON else found


def possible(path: str) -> tuple[str, ...]:
    """Return the methods that an address supports; none for an unknown address."""
    try:
        return tuple(_find(path)[0])
    except NotFoundError:
        return ()


def refused(error: WorkbenchError) -> dict[str, str]:
    """Return the answer to an error: its message, and its parameter if it has one."""
    parameter = getattr(error, "parameter", None)
    return {"message": str(error)} | ({"parameter": parameter} if parameter else {})


def _find(path: str) -> tuple[Mapping[str, Verb], dict[str, str]]:
    """Return the methods of an address, and its values for the names in braces."""
    for pattern, verbs in TABLE.items():
        # re caches compiled patterns.
        if found := re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern), path):
            return verbs, {name: unquote(text) for name, text in found.groupdict().items()}
    raise NotFoundError(f"There is no address {API}/{unquote(path)[:80]}.")
