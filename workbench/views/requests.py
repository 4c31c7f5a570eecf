"""Whatever a face asks for is asked here: an address and a verb find their function in the table of `verbs`.

The Jupyter server asks for its pages, and a notebook, which has no REST, for its own. No tornado here.
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
    """A verb that an address doesn't have."""

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
    """Return what is answered to a request such as POST, `runs/x/cancel`. Raises WorkbenchError.

    Cancelled, it looks no longer. What changes something is finished all the same: a click counts though the page is
    closed right after it.

    Parameters
    ----------
    path
        Address below `workbench/api`, quoted as in a URL; a query may follow.
    body
        A JSON object, or bytes: the same as text, or a file.
    """
    # Not before the first request: Jupyter's start would wait for it.
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
    """Return the verbs that an address has; none where there is no such address."""
    try:
        return tuple(_find(path)[0])
    except NotFoundError:
        return ()


def refused(error: WorkbenchError) -> dict[str, str]:
    """Return what is answered to an error: one sentence, and the parameter that it is about where it knows one."""
    parameter = getattr(error, "parameter", None)
    return {"message": str(error)} | ({"parameter": parameter} if parameter else {})


def _find(path: str) -> tuple[Mapping[str, Verb], dict[str, str]]:
    """Return the verbs of an address, and what stands in it for names in braces."""
    for pattern, verbs in TABLE.items():
        # re keeps what it has compiled.
        if found := re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern), path):
            return verbs, {name: unquote(text) for name, text in found.groupdict().items()}
    raise NotFoundError(f"There is no address {API}/{unquote(path)[:80]}.")
