"""The list of runs: progress, time, answer, check."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import panel as pn

from workbench import formats
from workbench.figures.diagnosis import diagnosis_html
from workbench.figures.markup import values_html
from workbench.panels.look import STYLE, Notice, bar, busy, button, card, code, folded, html, row, sentence, sentences
from workbench.runs.store import SIMULATED

if TYPE_CHECKING:
    from workbench.runs.store import Run
    from workbench.session import Session

SHOWN = 5
"""How many of the latest runs are listed."""


class Runs:
    """The latest runs, each with what can be done with it.

    Parameters
    ----------
    on_replay
        Called with the id of a run whose recorded events are to be shown.
    """

    def __init__(self, session: Session, on_replay: Callable[[str], Any]) -> None:
        self._session = session
        self._on_replay = on_replay
        self.items: dict[str, RunItem] = {}
        self.notice = Notice()
        self._empty = html(sentence("Nothing was run yet.", "muted"))
        self._list = pn.Column(self._empty, sizing_mode="stretch_width")
        self.view = card("Runs", self._list, self.notice.view)

    def show(self, runs: tuple[Run, ...]) -> None:
        """List these runs."""
        items = {run.id: self.items.get(run.id) or RunItem(run.id, self) for run in runs}
        for run in runs:
            items[run.id].show(run)
        if list(items) != list(self.items) or not self._list.objects:
            self._list.objects = [item.view for item in items.values()] or [self._empty]
        self.items = items

    async def cancel(self, run: str) -> None:
        """Cancel a run that is going on."""
        with self.notice.telling():
            await self._session.cancel(run)

    async def replay(self, run: str) -> None:
        """Show what was recorded of a run."""
        with self.notice.telling():
            await self._on_replay(run)


class RunItem:
    """One run in the list."""

    def __init__(self, run: str, runs: Runs) -> None:
        self._id = run
        self._runs = runs
        self._text = html()
        self.cancel_button = button("Cancel", self._cancel)
        self.replay_button = button("Show", self._replay)
        self._buttons = row(self.cancel_button, self.replay_button)
        self.view = pn.Column(
            self._text,
            self._buttons,
            sizing_mode="stretch_width",
            stylesheets=[STYLE],
            css_classes=["item"],
        )

    @property
    def text(self) -> str:
        """What is shown of the run, as HTML."""
        return str(self._text.object)

    def show(self, run: Run) -> None:
        """Show the run as it is now."""
        text = _described(run)
        if text != self._text.object:
            self._text.object = text
        self.cancel_button.visible = run.active
        self.replay_button.visible = not run.active and run.started is not None

    async def _cancel(self) -> None:
        with busy(self.cancel_button):
            await self._runs.cancel(self._id)

    async def _replay(self) -> None:
        with busy(self.replay_button):
            await self._runs.replay(self._id)


def _origin(run: Run) -> str:
    return f", imported from {run.imported.machine}" if run.imported else ""


def _described(run: Run) -> str:
    tone = {"done": "good", "failed": "bad", "lost": "bad"}.get(run.status, "muted")
    mark = SIMULATED if run.simulated else ""
    head = (
        f'<p><span class="name">{escape(mark + run.title)}</span> on {escape(run.cluster)}'
        f'<span class="tag {tone}">{escape(run.status)}</span> <small>{escape(run.id + _origin(run))}</small></p>'
    )
    if run.active:
        return head + _progress(run)
    if run.error:
        first, _, rest = run.error.partition("\n")
        return head + sentence(first, "bad") + (code(rest) if rest else "")
    return (
        head
        + _answer(run)
        + sentence(run.beside_text or "", "muted")
        + _check(run)
        + _accuracy(run)
        + _where(run)
        + _details(run)
    )


def _progress(run: Run) -> str:
    so_far = "" if run.started is None else f", {formats.duration(round(time.time() - run.started))}"
    told = run.progress
    label = f"{told.words()}{so_far}" if told.total else f"{run.status} …"
    if told.more:
        return sentence(label)
    parts = "".join(bar(count.done, count.total, f"{name} {count.done}/{count.total}") for name, count in _kinds(run))
    return bar(told.done, told.total, label) + (folded("By kind", parts) if parts else "")


def _kinds(run: Run) -> list[tuple[str, Any]]:
    return sorted(run.progress.by_name.items())


def _answer(run: Run) -> str:
    took = [formats.duration(run.seconds)] if run.seconds is not None else []
    took += [formats.rate(run.bytes_per_second)] if run.bytes_per_second else []
    result = run.result or {}
    if "value" in result:
        took.append(f"value {result['value']:.10g}")
    values = result.get("singular_values")
    shown = ", ".join(f"{value:.4f}" for value in values or ())
    mark = SIMULATED if run.simulated else ""
    return sentence(mark + " · ".join(took)) + (sentence(f"Singular values: {shown}") if values else "")


def _check(run: Run) -> str:
    if run.check is None:
        return ""
    return sentence(("✓ " if run.check.passed else "✗ ") + run.check.what, "good" if run.check.passed else "bad")


def _accuracy(run: Run) -> str:
    table = values_html(run.result or {})
    return folded("How accurate each value is", table) if table else ""


def _where(run: Run) -> str:
    if run.diagnosis is None:
        return ""
    return folded("Where the time went", diagnosis_html(run.diagnosis.model_dump()))


def _details(run: Run) -> str:
    given = ", ".join(f"{name}={value}" for name, value in run.resolved.items())
    return folded("Parameters", sentences(given, *run.notes, tone="muted"))
