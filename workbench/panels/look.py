"""How the panels look: texts, buttons and cards in the colours of the page that they are shown in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Literal

import panel as pn

from workbench.errors import WorkbenchError
from workbench.figures import gpus
from workbench.panels.thread import do

STYLE = Path(__file__).with_name("style.css").read_text() + gpus.STYLE

WIDGET: dict[str, Any] = {"margin": (2, 4), "stylesheets": [STYLE]}
"""How every widget looks that takes what a person gives."""

Tone = Literal["plain", "muted", "good", "bad"]


class _Html(pn.pane.HTML):  # type: ignore[misc,unused-ignore]
    """Pane whose text changes and whose style doesn't.

    Panel sends the style sheets again with each new text, and then as addresses on the internet even where all else
    is inline.
    """

    def _update(self, ref: str, model: Any) -> None:
        properties = self._get_properties(model.document)
        properties.pop("stylesheets", None)
        model.update(**properties)


def html(body: str = "", **params: Any) -> pn.pane.HTML:
    """Pane of HTML that is ours: what comes from elsewhere is escaped by who writes `body`."""
    return _Html(body, stylesheets=[STYLE], sizing_mode="stretch_width", margin=(2, 8), **params)


def sentence(text: str, tone: Tone = "plain") -> str:
    """One paragraph of plain text, as HTML."""
    return f'<p class="{tone}">{escape(text)}</p>' if text else ""


def prose(text: str) -> str:
    """One paragraph of a docstring, as HTML: `code` in it looks like code."""
    marked = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
    return f"<p>{marked}</p>"


def sentences(*texts: str, tone: Tone = "plain") -> str:
    """Several paragraphs of plain text, as HTML."""
    return "".join(sentence(text, tone) for text in texts)


def code(text: str) -> str:
    """Program text, as HTML."""
    return f"<pre>{escape(text)}</pre>"


def folded(title: str, body: str) -> str:
    """HTML that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def bar(done: float, total: float, label: str) -> str:
    """Progress bar, as HTML."""
    share = 100 * done / total if total else 0
    return f'<div class="bar"><i style="width: {share:.1f}%"></i><span>{escape(label)}</span></div>'


def button(label: str, act: Callable[..., Any], *, primary: bool = False, **params: Any) -> pn.widgets.Button:
    """Button that has `act`, a function or a coroutine function of no arguments, called in the panels' thread."""
    made = pn.widgets.Button(
        label=label,
        color="primary" if primary else "default",
        **WIDGET,
        **params,
    )
    made.on_click(lambda _: do(act))
    return made


def consent(label: str, **params: Any) -> pn.widgets.Checkbox:
    """Box in which a person agrees to what isn't done otherwise; not checked."""
    return pn.widgets.Checkbox(label=label, value=False, margin=(8, 4), stylesheets=[STYLE], **params)


def when_changed(widget: pn.widgets.Widget, act: Callable[..., Any]) -> None:
    """Have `act` called in the panels' thread after the widget's value has changed."""
    widget.param.watch(lambda _: do(act), "value")


def row(*children: Any, **params: Any) -> pn.FlexBox:
    """Children side by side, on a further line where the page is narrow."""
    return pn.FlexBox(*children, align_items="center", sizing_mode="stretch_width", gap="2px 4px", **params)


def card(title: str | pn.pane.HTML, *children: Any, **params: Any) -> pn.Column:
    """Children below a title."""
    return pn.Column(
        html(f"<h3>{escape(title)}</h3>") if isinstance(title, str) else title,
        *children,
        sizing_mode="stretch_width",
        stylesheets=[STYLE],
        css_classes=["card"],
        margin=(4, 4),
        **params,
    )


class Notice:
    """The line in which a part of the panel says what went wrong, or what was done."""

    def __init__(self) -> None:
        self.view = html(visible=False)
        self.text = ""

    def say(self, text: str, tone: Tone = "plain") -> None:
        """Show this text; lines after the first are those of a log."""
        self.text = text
        first, _, rest = text.partition("\n")
        self.view.object = sentence(first, tone) + (code(rest) if rest else "")
        self.view.visible = bool(text)

    def clear(self) -> None:
        """Show nothing."""
        if self.text:
            self.say("")

    @contextmanager
    def telling(self, tone: Tone = "bad") -> Iterator[None]:
        """Show what goes wrong within, when it is something that a person can mend."""
        self.clear()
        try:
            yield
        except WorkbenchError as err:
            self.say(str(err), tone)


@contextmanager
def busy(*buttons: pn.widgets.Button) -> Iterator[None]:
    """Take no clicks while what was clicked is going on."""
    for each in buttons:
        each.disabled = True
    try:
        yield
    finally:
        for each in buttons:
            each.disabled = False
