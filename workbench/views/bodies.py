"""Checks of the content of requests: each problem is one sentence that names the parameter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import BadInputError, quoted

THEMES = ("light", "dark")

_KINDS = {str: "text", dict: "an object", list: "a list", bool: "true or false", int: "a whole number"}
_KINDS |= {object: "an object, text or a number"}


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a request or message; an empty body is an empty object."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
        # A lone surrogate is valid JSON, but can't be encoded in an answer, a record or a file name.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as err:
        raise BadInputError("This holds half of a character (a lone surrogate). Send whole ones.") from err
    except (ValueError, RecursionError) as err:
        raise BadInputError(f"This is not JSON: {err}. Send an object such as {{}}.") from err
    if not isinstance(value, dict):
        raise BadInputError(f"Send a JSON object such as {{}}, not {_shown(value)}.")
    return value


def pick(given: dict[str, Any], required: dict[str, type], optional: dict[str, type] | None = None) -> dict[str, Any]:
    """Return `given` without nulls if its keys and their types are valid; only an optional key may be null.

    Raises BadInputError naming the key, its value and the allowed values.
    """
    allowed = required | (optional or {})
    for key in given:
        if key not in allowed:
            raise BadInputError(f"Unknown key {_shown(key)}. Allowed: {', '.join(allowed) or 'none'}.")
    for key in required:
        if key not in given:
            raise BadInputError(f"{key} is missing. Give {_KINDS[required[key]]}.")
    for key, value in given.items():
        if value is None and key not in required:
            continue
        if not _is(value, allowed[key]):
            raise BadInputError(f"{key} is {_shown(value)}. Give {_KINDS[allowed[key]]}.")
    return {key: value for key, value in given.items() if value is not None}


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"


def check_theme(theme: object) -> str:
    """Return the theme. Raises BadInputError if it is unknown."""
    if theme not in THEMES:
        raise BadInputError(f"theme is {quoted(theme)}. Give one of: {', '.join(THEMES)}.")
    return str(theme)


def check_range(given: dict[str, Any]) -> tuple[float, float, int]:
    """Return start and end (ms since the epoch) and the width in pixels of a page's range."""
    try:
        start, end, width = float(given["start"]), float(given["end"]), int(float(given["width"]))
    except (KeyError, TypeError, ValueError, OverflowError) as err:
        raise BadInputError(
            "A range needs start and end in milliseconds since the epoch, and width in pixels."
        ) from err
    if not (0 <= start < end < float("inf") and 0 < width <= 100_000):
        raise BadInputError(f"The range from {start:g} to {end:g} on {width} pixels is none: start must be before end.")
    return start, end, width


@dataclass(frozen=True)
class Asked:
    """The content of a request; `asked["run"]` is the part of its address for `{run}`."""

    names: Mapping[str, str]
    query: Mapping[str, str]
    content: bytes
    base_url: str

    def __getitem__(self, name: str) -> str:
        return self.names[name]

    def body(self, required: dict[str, type], optional: dict[str, type] | None = None) -> dict[str, Any]:
        """Return the JSON object of the request, checked by `pick`."""
        return pick(parse_object(self.content), required, optional)

    def theme(self) -> str:
        """Return the theme from the query."""
        return check_theme(self.query.get("theme", "light"))
