"""From a JSON Schema to a form of Panel widgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import panel as pn

from workbench.panels.look import WIDGET, when_changed

_YES_NO = {"as the settings say": "", "yes": True, "no": False}


class Form:
    """Widgets for the properties of a JSON Schema, and the values that a person gave.

    The form doesn't judge: a value that can't be used is refused by those who use it, in words.

    Parameters
    ----------
    schema
        JSON Schema of an object.
    on_change
        Called after a value has changed.
    """

    def __init__(self, schema: Mapping[str, Any], on_change: Callable[[], Any] | None = None) -> None:
        self.widgets: dict[str, Any] = {
            name: _widget(name, _plain(field, schema)) for name, field in schema.get("properties", {}).items()
        }
        self._defaults = {name: widget.value for name, widget in self.widgets.items()}
        self._base = self._defaults
        if on_change is not None:
            for widget in self.widgets.values():
                when_changed(widget, on_change)
        self.view = pn.FlexBox(*self.widgets.values(), sizing_mode="stretch_width", gap="0 8px")

    def values(self) -> dict[str, Any]:
        """Values that differ from those it began from; what was left empty is left out."""
        return {
            name: value
            for name, widget in self.widgets.items()
            if (value := _given(widget.value)) is not None and value != self._base[name]
        }

    def begin_from(self, **values: Any) -> None:
        """Fill in these values, and the defaults of the others."""
        for name, value in self._defaults.items():
            self.widgets[name].value = value
        self.set(**values)
        self._base = {name: widget.value for name, widget in self.widgets.items()}

    def set(self, **values: Any) -> None:
        """Fill in these values."""
        for name, value in values.items():
            widget = self.widgets[name]
            left_open = value is None and "" in getattr(widget, "values", ())
            widget.value = _as_text(value) if left_open or isinstance(widget, pn.widgets.TextInput) else value


def _plain(field: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve references, and merge alternatives other than null into one field: its types and its choices."""
    if "$ref" in field:
        target = schema.get("$defs", {}).get(field["$ref"].rsplit("/", 1)[-1], {})
        field = {**_plain(target, schema), **{key: value for key, value in field.items() if key != "$ref"}}
    alternatives = [_plain(each, schema) for each in field.get("anyOf", field.get("oneOf", ()))]
    alternatives = [each for each in alternatives if each.get("type") != "null"]
    if len(alternatives) == 1:
        return {**alternatives[0], **{key: value for key, value in field.items() if key not in ("anyOf", "oneOf")}}
    return {**field, "type": "string"} if alternatives else dict(field)


def _widget(name: str, field: Mapping[str, Any]) -> Any:
    shared = {
        "label": field.get("title", name),
        "description": _help(field),
        "width": 200,
    } | WIDGET
    default = field.get("default")
    kind = field.get("type")
    if "enum" in field:
        options: dict[str, Any] = {"": ""} if default is None else {}
        options |= {str(option): option for option in field["enum"]}
        return pn.widgets.Select(options=options, value="" if default is None else default, **shared)
    if kind == "boolean":
        answers = {"yes": True, "no": False} if isinstance(default, bool) else _YES_NO
        return pn.widgets.Select(options=answers, value=default if isinstance(default, bool) else "", **shared)
    if kind == "integer":
        return pn.widgets.IntInput(value=default, placeholder=_example(field), **shared)
    if kind == "number":
        return pn.widgets.FloatInput(value=default, placeholder=_example(field), **shared)
    return pn.widgets.TextInput(value=_as_text(default), placeholder=_example(field), **shared)


def _help(field: Mapping[str, Any]) -> str | None:
    bounds = [
        text.format(field[key])
        for key, text in {
            "minimum": "at least {}",
            "exclusiveMinimum": "above {}",
            "maximum": "at most {}",
            "exclusiveMaximum": "below {}",
        }.items()
        if key in field
    ]
    described = field.get("description", "")
    allowed = f"Allowed: {', '.join(bounds)}." if bounds else ""
    return " ".join(filter(None, (described, allowed))) or None


def _example(field: Mapping[str, Any]) -> str:
    examples = field.get("examples") or ()
    return f"such as {_as_text(examples[0])}" if examples else ""


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(_as_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


def _given(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip() or None
    return value
