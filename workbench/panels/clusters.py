"""The list of clusters: their state, how to connect, scale, watch and stop them."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import panel as pn

from workbench import formats
from workbench.panels.look import STYLE, WIDGET, Notice, bar, busy, button, card, code, folded, html, row, sentence

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.session import Session

_NEAR = 600.0  # seconds before the end of a lease at which the countdown is shown


class Clusters:
    """All clusters, each with what can be done with it.

    Parameters
    ----------
    on_watch
        Called with the name of a cluster that is to be watched.
    """

    def __init__(self, session: Session, on_watch: Callable[[str], Any]) -> None:
        self._session = session
        self._on_watch = on_watch
        self.items: dict[str, ClusterItem] = {}
        self.notice = Notice()
        self._empty = html(sentence("No cluster is running. Choose a profile and press Start.", "muted"))
        self._list = pn.Column(self._empty, sizing_mode="stretch_width")
        self.view = card("Clusters", self._list, self.notice.view)

    def show(self, records: tuple[ClusterRecord, ...]) -> None:
        """List these clusters."""
        known = {record.name: record for record in records}
        items = {name: self.items.get(name) or ClusterItem(name, self) for name in known}
        for name, record in known.items():
            items[name].show(record)
        if list(items) != list(self.items) or not self._list.objects:
            self._list.objects = [item.view for item in items.values()] or [self._empty]
        self.items = items

    async def stop(self, name: str) -> None:
        """Stop a cluster, or dismiss what is left of it."""
        with self.notice.telling():
            await self._session.stop(name)

    async def scale(self, name: str, n_workers: int | None) -> None:
        """Have another number of workers."""
        with self.notice.telling():
            if n_workers is None:
                return
            await self._session.scale(name, n_workers)

    def watch(self, name: str) -> Any:
        """Show what this cluster does."""
        return self._on_watch(name)


class ClusterItem:
    """One cluster in the list."""

    def __init__(self, name: str, clusters: Clusters) -> None:
        self.name = name
        self._clusters = clusters
        self._record: ClusterRecord | None = None
        self._text = html()
        self.n_workers = pn.widgets.IntInput(value=None, width=64, **WIDGET)
        self.scale_button = button("Scale", self._scale)
        self.watch_button = button("Watch", self._watch)
        self.stop_button = button("Stop", self._stop)
        self._ready_only = (self.n_workers, self.scale_button, self.watch_button)
        self.view = pn.Column(
            self._text,
            row(self.watch_button, self.n_workers, self.scale_button, self.stop_button),
            sizing_mode="stretch_width",
            stylesheets=[STYLE],
            css_classes=["item"],
        )

    def show(self, record: ClusterRecord) -> None:
        """Show the cluster as it is now."""
        text = _described(record)
        if text != self._text.object:
            self._text.object = text
        if record == self._record:
            return
        was, self._record = self._record, record
        for widget in self._ready_only:
            widget.visible = record.status == "ready"
        self.stop_button.label = {"starting": "Cancel", "failed": "Dismiss", "lost": "Dismiss"}.get(
            record.status, "Stop"
        )
        self.stop_button.disabled = record.status in ("stopping", "unknown")
        if was is None or was.n_workers_expected != record.n_workers_expected:
            self.n_workers.value = record.n_workers_expected or record.spec.n_workers

    async def _scale(self) -> None:
        with busy(self.scale_button):
            await self._clusters.scale(self.name, self.n_workers.value)

    async def _stop(self) -> None:
        with busy(self.stop_button):
            await self._clusters.stop(self.name)

    async def _watch(self) -> None:
        with busy(self.watch_button):
            await self._clusters.watch(self.name)


def _described(record: ClusterRecord) -> str:
    tone = {"ready": "good", "failed": "bad", "lost": "bad"}.get(record.status, "muted")
    head = (
        f'<p><span class="name">{escape(record.name)}</span><span class="tag {tone}">{escape(record.status)}</span></p>'
    )
    if record.status == "starting":
        return head + bar(*_stage(record))
    if record.status in ("failed", "lost"):
        tail = folded("Last lines of its log", code("\n".join(record.log_tail))) if record.log_tail else ""
        return head + sentence(record.message or "", "bad") + tail
    if record.status == "unknown":
        return head + sentence(record.message or "", "muted")
    return head + sentence(_size(record), "muted") + _lease(record) + folded("Connect", _connecting(record))


def _stage(record: ClusterRecord) -> tuple[float, float, str]:
    expected = record.n_workers_expected or record.spec.n_workers
    # Preparing and the scheduler take as long as a worker does, more or less.
    if record.stage == "preparing":
        return 0.5, expected + 2, "preparing"
    if record.stage == "scheduler":
        return 1, expected + 2, "scheduler up"
    return 2 + record.n_workers, expected + 2, f"workers {record.n_workers} of {expected}"


def _size(record: ClusterRecord) -> str:
    from workbench.clusters.records import memory_words

    spec = record.spec
    there = (
        f"{record.n_workers} of {record.n_workers_expected}" if record.n_workers != record.n_workers_expected else ""
    )
    adaptive = f", adapting between {record.adaptive[0]} and {record.adaptive[1]}" if record.adaptive else ""
    n_workers = there or str(record.n_workers)
    workers = "worker" if n_workers == "1" else "workers"
    threads = "thread" if spec.threads_per_worker == 1 else "threads"
    memory = f"{memory_words(record)} ({formats.size(spec.memory_limit)} each)"
    return f"{n_workers} {workers}{adaptive} × {spec.threads_per_worker} {threads}, {memory}, {spec.protocol}"


def _lease(record: ClusterRecord) -> str:
    left = None if record.expires_at is None else record.expires_at - time.time()
    if left is None or left > _NEAR:
        return ""
    return sentence(f"Idle: it ends itself in {max(1, round(left / 60))} min.", "bad")


def _connecting(record: ClusterRecord) -> str:
    return code(f'import workbench\n\nclient = workbench.connect("{record.name}")\nclient')
