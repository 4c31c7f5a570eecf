"""From the signature of a person's function to plain data, and from these to fields of a form.

The first half runs where the function was imported, the second where nothing of a person's is: see `described`.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from workbench.errors import quoted
from workbench.workloads.fields import Words

Told = dict[str, Any]
"""An annotation as JSON: `type`, `literal`, `items` or `any`, with bounds and words beside it."""

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_NAMES: dict[str, Any] = {kind.__name__: kind for kind in _PLAIN} | {"NoneType": None, "path": str}
_BETWEEN = {
    ("ge", "le"): "from {} to {}",
    ("gt", "lt"): "between {} and {}",
    ("ge", "lt"): "from {} to below {}",
    ("gt", "le"): "above {} and at most {}",
}
_BOUND = {
    "ge": "of at least",
    "gt": "above",
    "le": "of at most",
    "lt": "below",
    "multiple_of": "that is a multiple of",
    "min_length": "of a length of at least",
    "max_length": "of a length of at most",
    "pattern": "that matches",
}
_WORDS = ("unit", "description", "examples", "allowed", "only", "instead", "title")
_PARAMETERS = re.compile(r"^Parameters\n-{3,}\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL)
_SEQUENCES = (list, tuple, Sequence)
_USE = "int, float, str, bool, Literal, pathlib.Path, X | None, or a list or tuple of them"


class NoFieldError(Exception):
    """A parameter that no form can ask for; the sentence says why."""


def told_parameters(function: Callable[..., Any]) -> dict[str, Told]:
    """Parameters of a function by name, each with what may be given, and its default where it has one.

    Raises NoFieldError.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise NoFieldError(f"{function.__name__} is asynchronous. Give a plain function.")
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as err:
        raise NoFieldError(f"The annotations of {function.__name__} can't be read ({err}).") from err
    helps = _parameter_helps(inspect.getdoc(function) or "")
    found: dict[str, Told] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise NoFieldError(
                    f"{name} of {function.__name__} is positional-only, and parameters are given by name. Remove the / "
                    "after it."
                )
            raise NoFieldError(f"{parameter} of {function.__name__} has no name to be given by. Name each parameter.")
        if name.startswith("_"):
            raise NoFieldError(f"{name} of {function.__name__} begins with an underscore. Choose another name.")
        try:
            told = told_annotation(hints[name] if name in hints else _kind_of(parameter.default))
        except NoFieldError as err:
            raise NoFieldError(f"{name} of {function.__name__} {err}") from None
        if parameter.default is not parameter.empty:
            whose = f"{name} of {function.__name__}"
            told["default"] = _fitting(told, parameter.default, whose)
        if not told.get("description") and name in helps:
            told["description"] = helps[name]
        found[name] = told
    return found


def told_annotation(annotation: Any) -> Told:
    """Return an annotation as JSON. Raises NoFieldError where no form can ask for such a value."""
    origin = get_origin(annotation)
    if origin is Annotated:
        told = told_annotation(annotation.__origin__)
        for mark in annotation.__metadata__:
            _add_mark(told, mark)
        return told
    if origin in (Union, types.UnionType):
        return {"any": [told_annotation(part) for part in get_args(annotation)]}
    if origin is Literal:
        return {"literal": list(get_args(annotation))}
    if annotation in _PLAIN:
        return {"type": annotation.__name__}
    if annotation is None or annotation is type(None):
        return {"type": "NoneType"}
    if isinstance(annotation, type) and issubclass(annotation, Path):
        return {"type": "path"}
    if (origin or annotation) in _SEQUENCES:
        return _told_sequence(origin or annotation, get_args(annotation))
    if inspect.isabstract(origin) and issubclass(list, origin):  # Iterable, Collection
        return _told_sequence(list, get_args(annotation))
    name = getattr(annotation, "__name__", None) or str(annotation)
    raise NoFieldError(f"is annotated with {name}, which a form can't ask for. Use {_USE}.")


def _told_sequence(kind: Any, args: tuple[Any, ...]) -> Told:
    fixed = kind is tuple and args and args[-1] is not Ellipsis
    items = [told_annotation(item) for item in args if item is not Ellipsis] or [{"any": [{"type": "float"}]}]
    told: Told = {"items": items, "tuple": kind is tuple}
    return told | ({"bounds": {"min_length": len(items), "max_length": len(items)}} if fixed else {})


def _add_mark(told: Told, mark: Any) -> None:
    """Take in what stands beside a type: pydantic's Field, bounds and units of annotated_types, Doc, or Words."""
    parts = (*getattr(mark, "metadata", ()), mark)
    bounds = {name: value for one in parts for name in _BOUND if (value := getattr(one, name, None)) is not None}
    if bounds:
        told["bounds"] = told.get("bounds", {}) | bounds
    words = {name: value for name in _WORDS if (value := getattr(mark, name, None))}
    words |= {"description": mark.documentation} if isinstance(getattr(mark, "documentation", None), str) else {}
    told |= {name: list(value) if name == "examples" else str(value) for name, value in words.items()}
    if getattr(mark, "path", None) is True:
        told["path"] = True


def _kind_of(default: Any) -> Any:
    """Annotation that a default stands for."""
    if default is inspect.Parameter.empty or default is None:
        raise NoFieldError("has neither an annotation nor a default that tells its type. Annotate it, such as n: int.")
    if isinstance(default, Path):
        return Path
    if isinstance(default, list | tuple):
        kinds = {type(each) for each in default}
        item = float if kinds == {int, float} else next(iter(kinds)) if len(kinds) == 1 else float
        return tuple[item, ...] if isinstance(default, tuple) else list[item]  # type: ignore[valid-type]
    return type(default)


def _fitting(told: Told, default: Any, whose: str) -> Any:
    """A default as its annotation has it: 1.0 of 1 for a float. Raises NoFieldError where it may not be given."""
    if default is None:
        return None
    try:
        as_json = json.dumps(default, default=os.fspath, allow_nan=False)
    except (TypeError, ValueError) as err:
        raise NoFieldError(f"The default of {whose} is {quoted(default)}, which isn't plain data. Use {_USE}.") from err
    try:
        return TypeAdapter(_annotation(told)).validate_json(as_json, strict=True)
    except ValidationError as err:
        raise NoFieldError(
            f"{whose} has the default {quoted(default)}, which can't be given. Use {allowed(told)}."
        ) from err


def told_help(function: Callable[..., Any]) -> str:
    """A function's docstring without the section Parameters, which its form tells, and others in one line each."""
    doc = _PARAMETERS.sub("", inspect.getdoc(function) or "")
    return re.sub(r"^(\S[^\n]*)\n-{3,}\n\s*", r"\1: ", doc, flags=re.MULTILINE).strip()


def _parameter_helps(doc: str) -> dict[str, str]:
    """What the section Parameters of a docstring in NumPy's style says of each."""
    section = _PARAMETERS.search(doc)
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else ():
        if line and not line[0].isspace():
            names = [name.strip().lstrip("*") for name in line.partition(":")[0].split(",")]
        elif line.strip():
            for name in names:
                found.setdefault(name, []).append(line.strip())
    return {name: " ".join(lines) for name, lines in found.items()}


def returned_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the variables of the tuple that a function returns; none where it returns something else."""
    try:
        (tree,) = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(function)}")).body
    except (OSError, SyntaxError, ValueError):
        return ()
    tuples = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    named = {
        tuple(each.id for each in value.elts if isinstance(each, ast.Name))
        for value in tuples
        if isinstance(value, ast.Tuple) and all(isinstance(each, ast.Name) for each in value.elts)
    }
    return named.pop() if len(named) == len(tuples) == 1 else ()


# -- where nothing of a person's is imported


def field(name: str, told: Mapping[str, Any]) -> tuple[Any, Any]:
    """Annotation and default of a form's field."""
    words = Words(
        allowed=allowed(told),
        description=told.get("description") or "",
        unit=_of_any(told, "unit"),
        examples=tuple(told.get("examples") or ()),
        only=told.get("only"),
        instead=told.get("instead"),
        path=is_path(told),
        title=told.get("title") or (name.replace("_", " ").capitalize() if len(name) > 1 else name),
    )
    return Annotated[_annotation(told), words], told.get("default", ...)


def _annotation(told: Mapping[str, Any]) -> Any:
    if "any" in told:
        kind: Any = Union[tuple(_annotation(part) for part in told["any"])]  # noqa: UP007  of parts that are found here
    elif "literal" in told:
        kind = Literal[tuple(told["literal"])]
    elif "items" in told:
        kinds = list(dict.fromkeys(_annotation(item) for item in told["items"]))
        kind = list[Union[tuple(kinds)]]  # type: ignore[misc]  # noqa: UP007
    else:
        kind = _NAMES[told["type"]]
    bounds = told.get("bounds") or ({"min_length": 1} if told.get("type") == "path" else {})
    return Annotated[kind, Field(**bounds)] if bounds else kind


def allowed(told: Mapping[str, Any]) -> str:
    """What ends the sentence 'Give …' where a value can't be used."""
    if said := _of_any(told, "allowed"):
        return str(said)
    bounds = told.get("bounds") or {}
    if "any" in told:
        parts = [allowed(part) for part in told["any"] if part.get("type") != "NoneType"]
        words = " or ".join(dict.fromkeys(parts))
    elif "literal" in told:
        names = [str(each) for each in told["literal"]]
        words = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    elif "items" in told:
        of = allowed(told["items"][0]).removeprefix("a ")
        least, most = bounds.get("min_length"), bounds.get("max_length")
        number = f"{least} values" if least and least == most else "values"
        return f"{number} with commas between, each a {of}"
    else:
        words = "a path" if is_path(told) else _PLAIN.get(_NAMES[told["type"]], "nothing")
    example = f", such as {told['examples'][0]}" if told.get("examples") else ""
    return " ".join(filter(None, (words, _range(bounds)))) + example


def _range(bounds: Mapping[str, Any]) -> str:
    for (low, high), words in _BETWEEN.items():
        if low in bounds and high in bounds:
            return words.format(bounds[low], bounds[high])
    return " and ".join(f"{words} {bounds[name]}" for name, words in _BOUND.items() if name in bounds)


def _of_any(told: Mapping[str, Any], name: str) -> Any:
    """Words of a type, or of one of several."""
    return next(filter(None, (part.get(name) for part in (told, *told.get("any", ())))), None)


def is_path(told: Mapping[str, Any], *, as_text: bool = True) -> bool:
    """Whether a parameter is the path of something, `as_text` also where the function gets it as a text."""
    marked = told.get("type") == "path" or (as_text and "path" in told)
    return marked or any(is_path(part, as_text=as_text) for part in told.get("any", ()))


def argument(told: Mapping[str, Any], value: Any) -> Any:
    """Value as the function is to get it: tuples and paths, which JSON doesn't have."""
    if value is None or not isinstance(value, str | list):
        return value
    if isinstance(value, str):
        return Path(value) if is_path(told, as_text=False) and "://" not in value else value
    part = sequence(told)
    if part is None:
        return value
    values = [argument(item, each) for item, each in _items(part, value)]
    return tuple(values) if part["tuple"] else values


def absolute(told: Mapping[str, Any], value: Any, folder: Path) -> Any:
    """Value with its paths absolute, of a folder, which may be of the one in which this process works."""
    part = sequence(told)
    if isinstance(value, list) and part is not None:
        return [absolute(item, each, folder) for item, each in _items(part, value)]
    is_one = isinstance(value, str) and value and is_path(told) and "://" not in value
    return str((folder / Path(value).expanduser()).absolute()) if is_one else value


def sequence(told: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What is told of the sequence that a parameter is, or may be; None where it is none."""
    return next((each for each in (told, *told.get("any", ())) if "items" in each), None)


def _items(part: Mapping[str, Any], value: Sequence[Any]) -> Iterator[tuple[Mapping[str, Any], Any]]:
    items = part["items"] if len(part["items"]) == len(value) else part["items"][:1] * len(value)
    return zip(items, value, strict=True)
