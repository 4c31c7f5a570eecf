"""Checks of messages from pages: each problem is one sentence that names the argument."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from workbench.errors import BadInputError, BadParameterError, WorkbenchError, printable, quoted

Theme = Literal["light", "dark"]

_KINDS: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_KINDS |= {dict: "an object", list: "a list of texts", Any: "an object, text or a number"}


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a message."""
    try:
        value = json.loads(text)
        # A lone surrogate is valid JSON, but can't be encoded in an answer, a record or a file name.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as err:
        raise BadInputError("This holds half of a character (a lone surrogate). Send whole ones.") from err
    except (ValueError, RecursionError) as err:
        raise BadInputError(f"This is not JSON: {err}. Send an object such as {{}}.") from err
    if not isinstance(value, dict):
        raise BadInputError(f"Send a JSON object such as {{}}, not {_json(value)}.")
    return value


def check(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for a function, without nulls, if they fit its signature after its first parameter.

    Raises BadParameterError naming the argument, its value and what is allowed.
    """
    from pydantic import ValidationError

    model, hints = _model(function)
    try:
        values = model.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as err:
        first = err.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise BadParameterError(f"Unknown argument {quoted(name)}. Allowed: {', '.join(hints)}.", name) from err
        problem = "missing" if first["type"] == "missing" else _json(given[name])
        raise BadParameterError(f"{name} is {problem}. Give {_kind(hints[name])}.", name) from err
    return {name: getattr(values, name) for name in values.model_fields_set}


@cache
def _model(function: Callable[..., Any]) -> tuple[Any, dict[str, Any]]:
    """Return a model of a function's parameters after the first, and their types."""
    from pydantic import ConfigDict, create_model

    _, *parameters = inspect.signature(function).parameters.values()
    types = get_type_hints(function)
    hints = {each.name: types[each.name] for each in parameters}
    fields: Any = {
        each.name: (types[each.name], ... if each.default is each.empty else each.default) for each in parameters
    }
    return create_model(function.__name__, __config__=ConfigDict(strict=True, extra="forbid"), **fields), hints


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of: {', '.join(get_args(hint))}"
    return _KINDS.get(get_origin(hint) or hint) or _kind(get_args(hint)[0])


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "…"


def check_theme(theme: object) -> str:
    """Return the theme. Raises BadInputError if it is unknown."""
    if theme not in get_args(Theme):
        raise BadInputError(f"theme is {quoted(theme)}. Give {_kind(Theme)}.")
    return str(theme)


def refused(error: WorkbenchError) -> dict[str, str]:
    """Return the answer to an error: its message, and its parameter if it has one."""
    parameter = getattr(error, "parameter", None)
    return {"message": printable(str(error))} | ({"parameter": parameter} if parameter else {})
