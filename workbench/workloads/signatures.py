"""Conversion of a function's signature to the JSON Schema of its form, and of form values to arguments.

The schema is made where the function is imported. Everything else, in whatever process, works on the schema alone.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from workbench.errors import quoted
from workbench.workloads.fields import Size, Sized
from workbench.workloads.forms import NotFittingError, branches, fitting, items

Schema = dict[str, Any]
"""JSON Schema of a form: an object whose properties have title, allowed, default, and bounds, unit and so on."""

_PLAIN = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
_BETWEEN = {
    ("minimum", "maximum"): "from {} to {}",
    ("exclusiveMinimum", "exclusiveMaximum"): "between {} and {}",
    ("minimum", "exclusiveMaximum"): "from {} to below {}",
    ("exclusiveMinimum", "maximum"): "above {} and at most {}",
}
_BOUND = {
    "minimum": "of at least",
    "exclusiveMinimum": "above",
    "maximum": "of at most",
    "exclusiveMaximum": "below",
    "multipleOf": "that is a multiple of",
    "minLength": "of a length of at least",
    "maxLength": "of a length of at most",
    "minItems": "of a length of at least",
    "maxItems": "of a length of at most",
    "pattern": "that matches",
}
_WORDS = ("title", "description", "unit", "examples", "if_empty", "allowed", "only", "instead", "path", "only_asked")
_PARAMETERS = re.compile(r"^Parameters\n-{3,}\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL)
_SEQUENCES = (list, tuple, Sequence)
_PLAIN_TYPES = (int, float, bool, str, types.NoneType)
_USE = "int, float, str, bool, Literal, pathlib.Path, X | None, or a list or tuple of them"
_REQUIRED = inspect.Parameter.empty


class NoFieldError(Exception):
    """A parameter can't be in a form; the message says why."""


class _JsonSchema(GenerateJsonSchema):
    def tuple_schema(self, schema: Any) -> dict[str, Any]:
        """Mark tuples: JSON has lists only, but the function gets a tuple."""
        return {**super().tuple_schema(schema), "tuple": True}


def schema(function: Callable[..., Any], titles: Mapping[str, str] = {}) -> Schema:
    """Return the JSON Schema of a function's parameters, in their order.

    Raises
    ------
    NoFieldError
        A parameter that can't be in a form, or a default that isn't allowed.
    """
    whose = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise NoFieldError(f"{whose} is asynchronous. Give a plain function.")
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as err:
        raise NoFieldError(f"The annotations of {whose} can't be read ({err}).") from err
    helps = _parameter_helps(inspect.getdoc(function) or "")
    fields: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise NoFieldError(
                    f"{name} of {whose} is positional-only, and parameters are given by name. Remove the / after it."
                )
            raise NoFieldError(f"{parameter} of {whose} has no name to be given by. Name each parameter.")
        if name.startswith("_"):
            raise NoFieldError(f"{name} of {whose} begins with an underscore. Choose another name.")
        annotation, default = hints.get(name), parameter.default
        try:
            annotation = _kind_of(default) if name not in hints else annotation
        except NoFieldError as err:
            raise NoFieldError(f"{name} of {whose} {err}") from None
        sized = next((mark for mark in _marks(annotation) if isinstance(mark, Sized)), None)
        if sized is not None:
            fields |= {"size": (Size, sized.size), name: (annotation | types.NoneType, None)}
        else:
            fields[name] = annotation, default
    result = of_fields(fields, whose, titles)
    for name, field in result["properties"].items():
        if name in helps:
            field.setdefault("description", helps[name])
    return result


def of_fields(fields: Mapping[str, tuple[Any, Any]], whose: str, titles: Mapping[str, str] = {}) -> Schema:
    """Return the JSON Schema of fields with an annotation and a default each. Raises NoFieldError."""
    properties = {}
    for name, (annotation, default) in fields.items():
        try:
            properties[name] = _property(annotation, titles.get(name, _title(name)))
        except NoFieldError as err:
            raise NoFieldError(f"{name} of {whose} {err}") from None
        if default is not _REQUIRED:
            properties[name]["default"] = _default(properties[name], default, f"{name} of {whose}")
    return _form(whose, properties)


def joined(whose: str, *schemas: Schema) -> Schema:
    """Return one form of several, without the fields of earlier ones."""
    properties: dict[str, Any] = {}
    for each in schemas:
        properties |= {name: field for name, field in each["properties"].items() if name not in properties}
    return _form(whose, properties)


def _form(whose: str, properties: dict[str, Any]) -> Schema:
    required = [name for name, field in properties.items() if "default" not in field]
    return {
        "title": whose,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _property(annotation: Any, title: str) -> dict[str, Any]:
    _check_type(annotation)
    try:
        field = TypeAdapter(annotation).json_schema(schema_generator=_JsonSchema)
    except PydanticUserError as err:
        raise _no_field(annotation) from err
    marks = [part for mark in reversed(_marks(annotation)) for part in (mark, *getattr(mark, "metadata", ()))]
    for mark in marks:
        # json_schema_extra of a Field is in its place already.
        field |= {word: value for word in _WORDS if (value := getattr(mark, word, None))}
        if isinstance(text := getattr(mark, "documentation", None), str):  # Doc of typing_extensions
            field["description"] = text
    if "examples" in field:
        field["examples"] = list(field["examples"])
    field.setdefault("title", title)
    if is_path(field):
        field.setdefault("path", True)
    return field | {"allowed": field.get("allowed") or _allowed(field)}


def _title(name: str) -> str:
    return name if len(name) == 1 else name.removeprefix("n_").replace("_", " ").capitalize()


def _no_field(annotation: Any) -> NoFieldError:
    name = getattr(annotation, "__name__", None) or str(annotation)
    return NoFieldError(f"is annotated with {name}, which a form can't ask for. Use {_USE}.")


def _check_type(annotation: Any) -> None:
    """Raise NoFieldError if a value changes in a round trip through JSON."""
    origin = get_origin(annotation)
    if origin is Annotated:
        _check_type(annotation.__origin__)
    elif origin in (Union, types.UnionType) or (origin or annotation) in _SEQUENCES or _is_above_list(origin):
        for part in get_args(annotation):
            if part is not Ellipsis:
                _check_type(part)
    elif origin is not Literal and annotation not in _PLAIN_TYPES and not _is_path_type(annotation):
        raise _no_field(annotation)


def _is_path_type(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Path)


def _is_above_list(origin: Any) -> bool:
    """Return whether a list fits the annotation: Iterable, Collection."""
    return inspect.isabstract(origin) and issubclass(list, origin)


def _marks(annotation: Any) -> tuple[Any, ...]:
    """Return everything written next to the type, inside `X | None` too."""
    if get_origin(annotation) is Annotated:
        return tuple(annotation.__metadata__) + _marks(annotation.__origin__)
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(mark for part in get_args(annotation) for mark in _marks(part))
    return ()


def _kind_of(default: Any) -> Any:
    """Return the annotation that fits a default."""
    if default is _REQUIRED or default is None:
        raise NoFieldError("has neither an annotation nor a default that shows its type. Annotate it, such as n: int.")
    if isinstance(default, Path):
        return Path
    if isinstance(default, list | tuple):
        kinds = {type(each) for each in default}
        item = float if kinds == {int, float} else next(iter(kinds)) if len(kinds) == 1 else float
        return tuple[item, ...] if isinstance(default, tuple) else list[item]  # type: ignore[valid-type]
    return type(default)


def _default(field: Mapping[str, Any], default: Any, whose: str) -> Any:
    """Convert a default to its annotation: 1 to 1.0 for a float. Raises NoFieldError if that is impossible."""
    if default is None:
        return None
    try:
        as_json = json.loads(json.dumps(default, default=os.fspath, allow_nan=False))
    except (TypeError, ValueError) as err:
        raise NoFieldError(f"The default of {whose} is {quoted(default)}, which isn't plain data. Use {_USE}.") from err
    try:
        return fitting(field, as_json)
    except NotFittingError as err:
        raise NoFieldError(
            f"{whose} has the default {quoted(default)}, which can't be given. Use {field['allowed']}."
        ) from err


def help_of(function: Callable[..., Any]) -> str:
    """Return a function's docstring without the section Parameters, which its form shows; others on one line."""
    doc = _PARAMETERS.sub("", inspect.getdoc(function) or "")
    return re.sub(r"^(\S[^\n]*)\n-{3,}\n\s*", r"\1: ", doc, flags=re.MULTILINE).strip()


def _parameter_helps(doc: str) -> dict[str, str]:
    """Return the texts of the section Parameters of a docstring in NumPy's style."""
    section = _PARAMETERS.search(doc)
    helps: dict[str, list[str]] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else ():
        if line and not line[0].isspace():
            names = [name.strip().lstrip("*") for name in line.partition(":")[0].split(",")]
        elif line.strip():
            for name in names:
                helps.setdefault(name, []).append(line.strip())
    return {name: " ".join(lines) for name, lines in helps.items()}


def returned_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the variables of the tuple that a function returns; none if it returns something else."""
    try:
        (tree,) = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(function)}")).body
    except (OSError, SyntaxError, ValueError):
        return ()
    tuples = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    names = {
        tuple(each.id for each in value.elts if isinstance(each, ast.Name))
        for value in tuples
        if isinstance(value, ast.Tuple) and all(isinstance(each, ast.Name) for each in value.elts)
    }
    return names.pop() if len(names) == len(tuples) == 1 else ()


def _allowed(field: Mapping[str, Any]) -> str:
    """Return the end of the message 'Give …' for an invalid value."""
    parts = [each for each in branches(field) if each.get("type") != "null"]
    if len(parts) > 1 or parts[0] is not field:
        words = " or ".join(dict.fromkeys(map(_allowed, parts)))
    elif choices := field.get("enum") or ([field["const"]] if "const" in field else []):
        names = [str(each) for each in choices]
        words = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    elif field.get("type") == "array":
        of = _allowed((field.get("prefixItems") or [field.get("items") or {}])[0]).removeprefix("a ")
        least, most = field.get("minItems"), field.get("maxItems")
        number = f"{least} values" if least and least == most else "values"
        words = f"{number} with commas between" + (f", each a {of}" if of else "")
    else:
        words = "a path" if field.get("path") or is_path(field) else _PLAIN.get(field.get("type", ""), "")
    example = f", such as {field['examples'][0]}" if field.get("examples") else ""
    return " ".join(filter(None, (words, _range(field)))) + example


def _range(bounds: Mapping[str, Any]) -> str:
    for (low, high), words in _BETWEEN.items():
        if low in bounds and high in bounds:
            return words.format(bounds[low], bounds[high])
    return " and ".join(f"{words} {bounds[name]}" for name, words in _BOUND.items() if name in bounds)


def is_path(field: Mapping[str, Any]) -> bool:
    """Return whether the function gets a pathlib.Path."""
    return any(each.get("format") == "path" for each in branches(field))


def argument(field: Mapping[str, Any], value: Any) -> Any:
    """Convert a value for the function: tuples and paths, which JSON doesn't have."""
    if isinstance(value, str):
        return Path(value) if is_path(field) and "://" not in value else value
    part = sequence(field)
    if not isinstance(value, list) or part is None:
        return value
    values = [argument(item, each) for item, each in items(part, value)]
    return tuple(values) if part.get("tuple") else values


def arguments(form: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values of a form for the function."""
    fields = form["properties"]
    return {name: argument(fields[name], value) for name, value in values.items() if name in fields}


def absolute(field: Mapping[str, Any], value: Any, folder: Path) -> Any:
    """Return a value with its paths absolute, relative ones in a folder or in this process's working folder."""
    part = sequence(field)
    if isinstance(value, list) and part is not None:
        return [absolute(item, each, folder) for item, each in items(part, value)]
    is_one = isinstance(value, str) and value and (field.get("path") or is_path(field)) and "://" not in value
    return str((folder / Path(value).expanduser()).absolute()) if is_one else value


def sequence(field: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the part of a field that takes a sequence; None where none does."""
    return next((each for each in branches(field) if each.get("type") == "array"), None)
