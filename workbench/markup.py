"""Pieces of HTML shared by all pages. No Bokeh.

HTML is `markupsafe.Markup`: all other text is escaped where it enters an element, so none of it can become HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup, escape

_NUMBERS = "border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 4px 0 12px"
# Headers may take two lines, so that all columns fit a narrow sidebar.
_HEAD = "padding: 1px 10px 1px 0; text-align: right; vertical-align: bottom"
_CELL = "padding: 1px 10px 1px 0; text-align: right; white-space: nowrap"
_FULL = 0.85
"""Share of a memory above which it is shown as nearly full."""
_COMMAND = re.compile(r":\s+workbench [a-z]+[^.;]*")


def tag(name: str, /, *children: str, **attributes: Any) -> Markup:
    """Return an element with attributes and children.

    An attribute that is None or False is left out, True stands without a value, a mapping or a list is JSON; `class_`
    and `data_x` are written as `class` and `data-x`.
    """
    attributes_text = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    end = "" if name in ("input", "img") else f"</{name}>"
    return Markup(f"<{name}{attributes_text}>{fragment(*children)}{end}")


def fragment(*parts: str) -> Markup:
    """Return elements and text one after another."""
    return Markup("").join(parts)


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    # A tooltip may be HTML's text, and an attribute has no elements.
    return f" {name}" if value is True else f' {name}="{escape(str(text))}"'


def script_json(value: Any) -> str:
    """Return JSON for a script element of a page: no text in it can end the element or open a comment.

    These characters occur only within strings of JSON, where an escape means the same; json.dumps escapes U+2028.
    """
    text = json.dumps(value)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def with_code(text: str) -> Markup:
    """Return text in which names between backticks are code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def paragraph(text: str, class_: str = "wb-Muted", **attributes: Any) -> Markup:
    """Return a message as a paragraph; nothing for no text."""
    return tag("p", text, class_=class_, **attributes) if text else Markup("")


def facts(pairs: Mapping[str, str], **attributes: Any) -> Markup:
    """Return names and their descriptions side by side."""
    rows = (tag("dt", name) + tag("dd", body) for name, body in pairs.items())
    return tag("dl", *rows, class_="wb-Facts", **attributes)


def faint(text: str) -> Markup:
    """Return muted text."""
    return tag("span", text, class_="wb-Muted")


def code(text: str, hook: str | None = None, *, class_: str = "wb-Code") -> Markup:
    """Return program text with a button that copies it."""
    button = icon_button("copy", "Copy", data_copy=True)
    return tag("div", button, tag("pre", text, tabindex=0, data_workbench=hook), class_=class_)


def log(text: str, hook: str = "log") -> Markup:
    """Return the log of a process, scrolled to its end, with a button that copies it."""
    return code(text or "Nothing was logged.", hook, class_="wb-Code wb-Log")


def without_commands(sentence: str) -> str:
    """Return a sentence without the terminal command, for a page that has a button for it."""
    shortened = _COMMAND.sub("", sentence)
    return shortened if shortened == sentence or shortened.endswith(".") else f"{shortened}."


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Markup:
    """Return a table of numbers."""
    head = tag("tr", *(tag("th", name, style=_HEAD) for name in header))
    body = (tag("tr", *(tag("td", cell, style=_CELL) for cell in row)) for row in rows)
    return tag("table", tag("thead", head), tag("tbody", *body), style=_NUMBERS)


def folded(title: str, body: str, **attributes: Any) -> Markup:
    """Return what is folded below its title."""
    return tag("details", tag("summary", title), body, class_="wb-Details", **attributes)


def icon_button(icon: str, label: str, **attributes: Any) -> Markup:
    """Return a button with one of Lab's icons; `data_action`, `data_command` and `data_page` define its action."""
    drawn = tag("span", class_="wb-Icon", style=f"--wb-icon: var(--wb-{icon})")
    # Its title is its name; a question in its place is one for screen readers, too.
    return tag("button", drawn, type="button", class_="wb-IconButton", title=label, **attributes)


def meter(label: str, value: float, of: float, text: str, *, memory: bool = False) -> Markup:
    """Return a thin bar with its number next to it; a memory that is nearly full is a warning."""
    share = min(1.0, max(0.0, value / of)) if of > 0 else 0.0
    full = " wb-mod-full" if memory and share > _FULL else ""
    bar = tag(
        "div",
        tag("span", style=f"width: {100 * share:.1f}%"),
        class_=f"wb-Meter-bar{' wb-mod-memory' if memory else ''}{full}",
        role="meter",
        aria_label=label,
        aria_valuemin=0,
        aria_valuemax=100,
        aria_valuenow=round(100 * share),
        aria_valuetext=text,
    )
    return tag("div", bar, tag("span", text, class_="wb-Meter-text"), class_="wb-Meter", title=label)


def joined(parts: Iterable[str | None]) -> str:
    """Return the nonempty parts, separated by dots."""
    return " · ".join(part for part in parts if part)
