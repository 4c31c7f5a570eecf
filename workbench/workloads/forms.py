"""Conversion of user input, which may be text, to values that fit the JSON Schema of a form."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from workbench import formats
from workbench.workloads.values import BadParameterError

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NOTHING = {"", "none", "null"}
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")
_TYPES = {"null": type(None), "boolean": bool, "integer": int, "number": float, "string": str, "array": list}
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, bound: math.isclose(value / bound, round(value / bound), abs_tol=1e-9),
    "minLength": lambda value, bound: len(value) >= bound,
    "maxLength": lambda value, bound: len(value) <= bound,
    "minItems": lambda value, bound: len(value) >= bound,
    "maxItems": lambda value, bound: len(value) <= bound,
    "pattern": lambda value, bound: re.search(bound, value) is not None,
}


class NotFittingError(ValueError):
    """A value that a field doesn't allow."""


def read(form: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of all fields, from values that may be text.

    Raises
    ------
    BadParameterError
        An unknown name, or a value that the field doesn't allow.
    """
    workload, fields = form["title"], form["properties"]
    for name in raw:
        if name not in fields:
            hint = formats.meant(str(name), fields)
            raise BadParameterError(
                f"{workload} has no parameter {name!r}.{hint} Choose from: {', '.join(fields)}.", str(name)
            )
    values = {}
    for name, field in fields.items():
        if name not in raw:
            if "default" not in field:
                raise BadParameterError(f"{workload} needs {name}. Give {field['allowed']}.", name)
            values[name] = field["default"]
            continue
        value = from_text(raw[name], field)
        if not _finite(value):
            raise bad(workload, name, raw[name], f"{field['allowed']}, which neither nan nor infinity is")
        try:
            values[name] = fitting(field, value)
        except NotFittingError as err:
            raise bad(workload, name, raw[name], field["allowed"]) from err
    return values


def fitting(field: Mapping[str, Any], value: Any) -> Any:
    """Convert a value of JSON for a field: 1 to 1.0 where it takes floats. Raises NotFittingError."""
    values = list(_fits(field, value))
    if not values:
        raise NotFittingError(value)
    # If a field takes several types, the value keeps its own.
    return next((each for each in values if type(each) is type(value)), values[0])


def branches(field: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the kinds of value that a field takes, each a JSON Schema."""
    return [part for each in field["anyOf"] for part in branches(each)] if "anyOf" in field else (field,)


def items(part: Mapping[str, Any], value: Sequence[Any]) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Return each value of a sequence with the JSON Schema of its place."""
    places = part.get("prefixItems") or ()
    return zip([*places, *[part.get("items") or {}] * (len(value) - len(places))], value, strict=False)


def _fits(field: Mapping[str, Any], value: Any) -> Iterator[Any]:
    for each in branches(field):
        found = value
        # Skip a number that is too large, or an item that doesn't fit.
        with contextlib.suppress(OverflowError, NotFittingError):
            if type(value) is int and each.get("type") == "number":
                found = float(value)
            if _is_allowed(each, found):
                yield ([fitting(item, part) for item, part in items(each, value)] if isinstance(value, list) else found)


def _is_allowed(field: Mapping[str, Any], value: Any) -> bool:
    """Return whether a value is one of the choices, or of the type and within the bounds."""
    if "const" in field or "enum" in field:
        choices = field.get("enum", (field.get("const"),))
        return any(value == each and type(value) is type(each) for each in choices)
    kind = _TYPES.get(field.get("type", ""))
    # A field without a type takes any value.
    if type(value) not in ((kind,) if kind else _TYPES.values()):
        return False
    if field.get("format") == "path" and not value:
        return False
    return all(holds(value, field[name]) for name, holds in _BOUNDS.items() if name in field)


def _finite(value: Any) -> bool:
    """Return whether records, which are JSON, can hold the number."""
    return (
        all(map(_finite, value))
        if isinstance(value, list | tuple)
        else not isinstance(value, float) or math.isfinite(value)
    )


def bad(workload: str, name: str, given: Any, allowed: str) -> BadParameterError:
    """Return an error that names the parameter, the given value and the allowed ones."""
    return BadParameterError(f"{name} of {workload} is {_shown(given)}. Give {allowed}.", name)


def refuse_more(workload: str, name: str, given: int, most: int, why: str) -> None:
    """Raise BadParameterError if more is requested than there is."""
    if given > most:
        raise bad(workload, name, given, f"a whole number from 1 to {most}{why}")


def from_text(value: Any, field: Mapping[str, Any]) -> Any:
    """Return the value of a text if a field takes more than text; others as JSON has them."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else _without_numpy(value)
    if not isinstance(value, str):
        return list(value) if isinstance(value, tuple) else value
    text = value.strip()
    parts = branches(field)
    kinds = {each.get("type") for each in parts}
    if "null" in kinds and is_nothing(text):
        return None
    choices = [each for part in parts for each in part.get("enum", [part["const"]] if "const" in part else [])]
    if choices:
        return next((each for each in choices if str(each) == text), text)
    for kind, read_text in (("boolean", _bool), ("array", _lengths), ("integer", _int), ("number", _float)):
        if kind in kinds:
            number = read_text(text)
            if number is not None:
                return number
    if "array" in kinds and not ("string" in kinds and _listed(text) == [text]):
        return _listed(text)
    return text if "string" in kinds else value


def applies(only: str | None, values: Mapping[str, Any]) -> bool:
    """Return whether a field applies, given other fields' values: 'path', '!path', 'k and method=dask'."""
    return only is None or all(_holds(each, values) for each in only.split(" and "))


def _holds(condition: str, values: Mapping[str, Any]) -> bool:
    name, equals, value = condition.removeprefix("!").partition("=")
    if name not in values:
        return True
    is_met = str(values[name]) == value if equals else values[name] not in (None, "")
    return is_met is not condition.startswith("!")


def is_nothing(text: str) -> bool:
    """Return whether a text means no choice."""
    return text.strip().lower() in _NOTHING


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _bool(text: str) -> bool | None:
    lower = text.lower()
    return True if lower in _TRUE else False if lower in _FALSE else None


def _int(text: str) -> int | None:
    try:
        return int(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text)
    except ValueError:
        number = _float(text)
        # '1e6' is a whole number; '1000.5' is not.
        return int(number) if number is not None and number.is_integer() else None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _lengths(text: str) -> list[Any] | None:
    """Parse several whole numbers: '[1000, 1000]', '(1000, 1000)', '1000,1000', '1000x1000' or '1,000 × 1,000'."""
    inner = text.strip("[]() ").rstrip(",").replace("×", "x")
    # Next to ×, a comma separates thousands.
    parts = [part.replace(",", "").strip() for part in inner.split("x")] if "x" in inner else inner.split(",")
    if len(parts) == 1 and not text.startswith(("[", "(")):
        return None
    numbers = [_int(part) for part in parts]
    return None if None in numbers else numbers


def _listed(text: str) -> list[Any]:
    """Parse several values that are not all whole numbers, or one alone: '[0.1, 0.5]', '0.1, 0.5'."""
    parts = [part.strip() for part in text.strip("[]() ").split(",") if part.strip()]
    return [next((each for each in (_int(part), _float(part)) if each is not None), part) for part in parts]


def _without_numpy(value: Any) -> Any:
    """Convert NumPy's numbers and arrays to Python's."""
    if type(value).__module__ == "numpy" and hasattr(value, "ndim"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_without_numpy(item) for item in value]
    return value
