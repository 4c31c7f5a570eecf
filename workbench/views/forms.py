"""HTML forms from a JSON Schema. The server checks the input, and its message appears next to the field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from workbench.errors import WorkbenchError
from workbench.formats import count
from workbench.markup import tag
from workbench.views.context import Choices
from workbench.views.parts import checkbox, confirming, drawer, fold, text_field

FIRST = (
    "path",
    "what",
    "to",
    "size",
    "n_variants",
    "n_samples",
    "n_rows",
    "k",
    "n_components",
    "tol",
    "memory",
    "n_workers",
)
"""Important fields: a form shows the first few of them at once, and the others under More."""

_AT_ONCE = 3


class Problem(NamedTuple):
    """An error message, and the field that it belongs to."""

    message: str
    parameter: str | None = None
    remedy: str = ""
    """HTML of a button that solves the problem."""

    @classmethod
    def of(cls, err: WorkbenchError) -> Problem:
        """Return the problem of an error: messages about one value start with its name."""
        parameter = getattr(err, "parameter", None) or re.split(r"\W", str(err), maxsplit=1)[0]
        return cls(str(err), parameter, confirming(err))


class Form(NamedTuple):
    """The content of a form.

    Attributes
    ----------
    prefix
        Prefix of the names of its choices.
    values
        Input of the user, by field; unchanged fields are absent.
    defaults
        Values of unchanged fields that differ from the schema's defaults.
    options
        Values and labels of fields whose schema doesn't have them.
    enter
        Id of the form whose button the Enter key presses in a field; by default that of the form around the field.
    silent
        True if messages appear elsewhere, and fields are only marked as wrong.
    """

    schema: Mapping[str, Any]
    prefix: str
    values: Mapping[str, Any]
    problem: Problem | None = None
    defaults: Mapping[str, str] = {}
    options: Mapping[str, Sequence[tuple[str, str]]] = {}
    enter: str | None = None
    silent: bool = False

    def html(self, fields: Iterable[str], below: Mapping[str, str] = {}) -> Markup:
        """Return fields in a grid, with the HTML to put below some of them."""
        return tag("div", *(self._field(name) + below.get(name, "") for name in fields), class_="wb-Form")

    def split(self, fields: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the fields to show at once and those under More; a wrong field is never hidden."""
        wrong = self.problem.parameter if self.problem else None
        required = self.schema.get("required", ())
        # A user's function may have none of these names.
        first = [name for name in FIRST if name in fields][:_AT_ONCE] or list(fields[:_AT_ONCE])
        first += [name for name in fields if name not in first and (name in required or name == wrong)]
        return [name for name in fields if name in first], [name for name in fields if name not in first]

    def elsewhere(self, fields: Sequence[str]) -> str | None:
        """Return the message of a problem that belongs to none of the fields; None without any."""
        problem = self.problem
        return self.in_words(problem.message) if problem and (problem.parameter or "") not in fields else None

    def in_words(self, sentence: str) -> str:
        """Return the sentence with parameters' names replaced by the fields' titles.

        A name that is a single word is replaced only at the beginning: elsewhere it may be an ordinary word.
        """
        for name, field in self.schema["properties"].items():
            # A user's title may contain backslashes, which re.sub would interpret.
            called = f"“{resolved(field, self.schema).get('title', name)}”".replace("\\", r"\\")
            sentence = re.sub(rf"^{re.escape(name)}\b( of \w+(?= is |:))?", called, sentence)
            sentence = re.sub(rf"^\w+ needs {re.escape(name)}\b", f"{called} is needed", sentence)
            if "_" in name:
                sentence = re.sub(rf"\b{re.escape(name)}\b(?!=)", called, sentence)
        return sentence

    def _field(self, name: str) -> Markup:
        field = resolved(self.schema["properties"][name], self.schema)
        id_ = f"wb-{self.prefix}{name}".replace(".", "-")
        required = name in self.schema.get("required", ())
        message = self.in_words(self.problem.message) if self.problem and self.problem.parameter == name else None
        # An empty field that has to be filled in is not wrong yet.
        empty = name not in self.values and (required or not self._default(name, field))
        wrong = message is not None and not empty
        about = f"{name}: {' '.join(filter(None, (field.get('description'), bounds(field))))}"
        title = field.get("title", name)
        return tag(
            "div",
            tag("label", title, " *" if required else "", for_=id_, title=about),
            tag("span", self._control(name, field, id_, wrong), _unit(field), class_="wb-Field-control"),
            tag(
                "span",
                message or about,
                id=f"{id_}-about",
                class_="wb-hidden" if not message or self.silent else "wb-Problem" if wrong else "wb-Field-hint",
                role="alert" if wrong else None,
                data_workbench=f"field-{name}-problem" if wrong else None,
            ),
            class_=f"wb-Field{' wb-mod-wrong' if wrong else ''}{' wb-mod-wide' if field.get('path') else ''}",
        )

    def _default(self, name: str, field: Mapping[str, Any]) -> str:
        return self.defaults.get(name, as_text(field.get("default")))

    def _control(self, name: str, field: Mapping[str, Any], id_: str, wrong: bool) -> Markup:
        default = self._default(name, field)
        typed = self.values.get(name)
        value = default if typed is None else as_text(typed)
        shared: dict[str, Any] = {
            "id": id_,
            "name": f"{self.prefix}{name}",
            "data_workbench": f"field-{name}",
            "aria_describedby": f"{id_}-about",
            "aria_invalid": "true" if wrong else None,
        }
        if field.get("type") == "boolean":
            return checkbox(checked=value.lower() == "true", **shared)
        options = self.options.get(name) or [(as_text(each), as_text(each)) for each in field.get("enum", ())]
        if options:
            if default not in dict(options):
                options = [(default, default or "automatic"), *options]
            return select(options, value, data_default=default, **shared)
        if field.get("instead"):
            shared["data_alone"] = f"{self.prefix}{field['instead']}"
        numeric = field.get("type") in ("integer", "number")
        examples = field.get("examples") or ()
        hint = field.get("if_empty") or (f"e.g. {as_text(examples[0])}" if examples else None)
        return text_field(
            label=None,
            value=value,
            inputmode="decimal" if numeric else None,
            placeholder=None if default else hint,
            data_default=default,
            data_step=field.get("type") == "integer",
            data_minimum=field.get("minimum"),
            data_drop=field.get("path"),
            form=self.enter,
            **shared,
        )


def select(options: Iterable[tuple[str, str]], current: str, **attributes: Any) -> Markup:
    """Return a drop-down list of values with their labels."""
    items = (tag("option", label, value=value, selected=value == current) for value, label in options)
    return tag("select", *items, class_="jp-mod-styled", **attributes)


def search(
    prefix: str,
    label: str,
    hook: str,
    lists: Mapping[str, tuple[str, Iterable[tuple[str, str]], str]],
    *more: str,
    folded: bool | None = None,
) -> Markup:
    """Return a search field, and lists that filter the results.

    Parameters
    ----------
    lists
        Title, values with their labels, and chosen value of each list, by name.
    folded
        True for lists in a closed fold, False for an open one, None for no fold.
    """
    text = text_field(f"{prefix}text", label, type="search", placeholder=label, data_workbench=f"{hook}-search")
    narrowing = (
        select(
            options,
            current,
            name=f"{prefix}{name}",
            data_default="",
            aria_label=title,
            data_workbench=f"{hook}-{name}",
        )
        for name, (title, options, current) in lists.items()
    )
    if folded is None:
        return tag("div", text, *narrowing, *more, class_="wb-Search")
    id_ = f"wb-{hook}-filter"
    word = fold(id_, "Filter", is_open=not folded, data_workbench=f"{hook}-filter")
    lists_ = tag("div", *narrowing, *more, class_="wb-Search")
    return tag("div", text, word, class_="wb-Row") + drawer(id_, lists_, is_open=not folded)


def given(choices: Choices, prefix: str) -> dict[str, Any]:
    """Return the choices whose names start with `prefix`, by the rest of the name."""
    return {name.removeprefix(prefix): value for name, value in choices.items() if name.startswith(prefix)}


def resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field with references resolved and the null alternative removed."""
    merged = {**schema.get("$defs", {}).get(field.get("$ref", "").removeprefix("#/$defs/"), {}), **field}
    others = [resolved(each, schema) for each in merged.pop("anyOf", ()) if each.get("type") != "null"]
    return {**others[0], **merged} if len(others) == 1 else merged


def bounds(field: Mapping[str, Any]) -> str:
    """Return the bounds of a field, such as 'From 1 to 64.'; '' without any."""
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum", field.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f"From {count(low)} to {count(high)}."
    return f"At least {count(low)}." if low is not None else f"At most {count(high)}." if high is not None else ""


def as_text(value: Any) -> str:
    """Return a value as a user would type it."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _unit(field: Mapping[str, Any]) -> Markup:
    unit = field.get("unit") if field.get("type") in ("integer", "number") else None
    return tag("span", unit, class_="wb-Field-unit") if unit and unit != "relative" else Markup("")
