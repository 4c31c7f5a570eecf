"""From a function's signature to a form: its JSON Schema, and the values that a person's input stands for."""

from __future__ import annotations

import inspect
import json
import math
import os
import types
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from workbench import formats
from workbench.workloads.fields import TITLES, Size, Sized, Words
from workbench.workloads.signatures import allowed, told_annotation
from workbench.workloads.values import BadParameterError

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NOTHING = {"", "none", "null"}


def form(
    function: Callable[..., Any], first: Mapping[str, tuple[Any, Any]], last: Mapping[str, tuple[Any, Any]]
) -> type[BaseModel]:
    """Return the pydantic model of what a person may give for `function`, with fields of type and default around it."""
    fields = dict(first)
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = hints[name]
        marks = _marks(annotation)
        sized = next((mark for mark in marks if isinstance(mark, Sized)), None)
        if sized is not None:
            fields |= {"size": (Size, sized.size), name: (annotation | None, None)}
        else:
            fields[name] = annotation, ... if parameter.default is parameter.empty else parameter.default
    return model(function.__name__, {**fields, **last})


def model(name: str, fields: Mapping[str, tuple[Any, Any]]) -> type[BaseModel]:
    """Return such a model of fields with their types, which hold words, and defaults."""
    config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=False, protected_namespaces=())
    made: dict[str, Any] = {each: _field(each, annotation, default) for each, (annotation, default) in fields.items()}
    with warnings.catch_warnings():
        # A person may call a parameter as they like, also as pydantic calls something of its own.
        warnings.filterwarnings("ignore", message="Field name")
        return create_model(name, __config__=config, **made)


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of a form, its fields in the order of the signature."""
    # At each key that is typed a form is drawn anew.
    return deepcopy(_schema(model))


@lru_cache(maxsize=64)
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    found = model.model_json_schema()
    found.pop("title", None)
    return found


def read(model: type[BaseModel], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Values of all fields, from values that may be text.

    Raises
    ------
    BadParameterError
        An unknown name, or a value that the field doesn't allow.
    """
    workload = model.__name__
    for name in raw:
        if name not in model.model_fields:
            names, hint = ", ".join(model.model_fields), formats.meant(str(name), model.model_fields)
            raise BadParameterError(f"{workload} has no parameter {name!r}.{hint} Choose from: {names}.", str(name))
    values = {name: from_text(value, model.model_fields[name].annotation) for name, value in raw.items()}
    try:
        # What JSON has none for no field takes, so the sentence about the field is what the person sees.
        checked = model.model_validate_json(json.dumps(values, default=lambda value: {"not JSON": repr(value)}))
    except ValidationError as err:
        name = str(err.errors()[0]["loc"][0])
        if name not in raw:
            raise BadParameterError(f"{workload} needs {name}. Give {_allowed(model, name)}.", name) from err
        raise bad(workload, name, raw[name], _allowed(model, name)) from err
    found = {name: getattr(checked, name) for name in model.model_fields}
    for name in raw:
        if not _finite(found[name]):
            raise bad(workload, name, raw[name], f"{_allowed(model, name)}, which neither nan nor infinity is")
    return found


def _finite(value: Any) -> bool:
    """Whether JSON, as records are, has a number for it."""
    return (
        all(map(_finite, value))
        if isinstance(value, list | tuple)
        else not isinstance(value, float) or math.isfinite(value)
    )


def bad(workload: str, name: str, given: Any, allowed: str) -> BadParameterError:
    """Return the error that names the parameter, what was given and what is allowed."""
    return BadParameterError(f"{name} of {workload} is {_shown(given)}. Give {allowed}.", name)


def refuse_more(workload: str, name: str, given: int, most: int, why: str) -> None:
    """Raise BadParameterError where more is asked for than there is."""
    if given > most:
        raise bad(workload, name, given, f"a whole number from 1 to {most}{why}")


def from_text(value: Any, annotation: Any) -> Any:
    """Value that a text stands for where a field takes more than text; anything else comes back as it is."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else _without_numpy(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    kinds = _kinds(annotation)
    if type(None) in kinds and is_nothing(text):
        return None
    if Literal in kinds:
        return next((each for each in _choices(annotation) if str(each) == text), text)
    for kind, read_text in ((bool, _bool), (tuple, _lengths), (list, _lengths), (int, _int), (float, _float)):
        if kind in kinds:
            found = read_text(text)
            if found is not None:
                return found
    if list in kinds and not ({str} & kinds and _listed(text) == [text]):
        return _listed(text)
    return text if str in kinds else value


def is_nothing(text: str) -> bool:
    """Whether a text says that nothing is chosen."""
    return text.strip().lower() in _NOTHING


def _field(name: str, annotation: Any, default: Any) -> tuple[Any, FieldInfo]:
    words = next(mark for mark in _marks(annotation) if isinstance(mark, Words))
    extra = {
        "allowed": allowed(told_annotation(annotation)),
        "unit": words.unit,
        "only": words.only,
        "instead": words.instead,
        "path": words.path,
    }
    return annotation, Field(
        default,
        title=words.title or TITLES.get(name, name.removeprefix("n_").replace("_", " ").capitalize()),
        description=words.description or None,
        examples=list(words.examples) or None,
        json_schema_extra={key: value for key, value in extra.items() if value},
    )


def _marks(annotation: Any) -> tuple[Any, ...]:
    """Everything that is written beside the type, inside `X | None` too."""
    if get_origin(annotation) is Annotated:
        return tuple(annotation.__metadata__) + _marks(annotation.__origin__)
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(mark for part in get_args(annotation) for mark in _marks(part))
    return ()


def _kinds(annotation: Any) -> set[Any]:
    """Plain types that a field takes."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(annotation.__origin__)
    if origin in (Union, types.UnionType):
        return {kind for part in get_args(annotation) for kind in _kinds(part)}
    return {origin or annotation}


def _choices(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(each for part in get_args(annotation) for each in _choices(part))


def _allowed(model: type[BaseModel], name: str) -> str:
    extra = model.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return str(extra["allowed"])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _bool(text: str) -> bool | None:
    lower = text.lower()
    return True if lower in _TRUE else False if lower in _FALSE else None


def _int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        number = _float(text)
        # '1e6' is a whole number to whoever types it; '1000.5' is not.
        return int(number) if number is not None and number.is_integer() else None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _lengths(text: str) -> list[Any] | None:
    """Several whole numbers: '[1000, 1000]', '(1000, 1000)', '1000,1000' or '1000x1000'."""
    inner = text.strip("[]() ")
    for sign in ("×", "x"):
        inner = inner.replace(sign, ",")
    parts = [part.strip() for part in inner.rstrip(",").split(",")]
    if len(parts) == 1 and not text.startswith(("[", "(")):
        return None
    numbers = [_int(part) for part in parts]
    return None if None in numbers else numbers


def _listed(text: str) -> list[Any]:
    """Several values that are not all whole numbers, or one alone: '[0.1, 0.5]', '0.1, 0.5'."""
    parts = [part.strip() for part in text.strip("[]() ").split(",") if part.strip()]
    return [next((each for each in (_int(part), _float(part)) if each is not None), part) for part in parts]


def _without_numpy(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if type(value).__module__ == "numpy" and hasattr(value, "ndim"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_without_numpy(item) for item in value]
    return value
