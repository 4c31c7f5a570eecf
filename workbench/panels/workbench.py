"""The whole of the workbench in a notebook cell."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import panel as pn

from workbench.errors import WorkbenchError
from workbench.panels import cells
from workbench.panels.clusters import Clusters
from workbench.panels.compare import Compare
from workbench.panels.hardware import Hardware
from workbench.panels.live import Replay, Watch
from workbench.panels.loading import load_once
from workbench.panels.look import STYLE, Notice, button, card, html, row
from workbench.panels.runs import SHOWN, Runs
from workbench.panels.thread import soon, wait_for
from workbench.panels.workloads import Workloads

if TYPE_CHECKING:
    from distributed import Client

    from workbench.clusters.records import ClusterRecord
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.session import Session

_log = logging.getLogger(__name__)

_PATIENCE = 0.1
"""Seconds between two looks at whether a page that shows it listens."""

_TICK = 2.0
"""Seconds after which the state is read though no file changed: elapsed time and countdowns change none."""


class Workbench(pn.viewable.Viewer):  # type: ignore[misc,unused-ignore]
    """Hardware, clusters, workloads, runs and what is watched, in a cell.

    Parameters
    ----------
    session
        Whose clusters and runs; those of this person by default.
    inline
        Take Panel's JavaScript from the installed package, so that it works without the internet.
    theme
        Colours of the figures, "light" or "dark"; found out from the page by default.
    """

    def __init__(self, session: Session | None = None, *, inline: bool = True, theme: str | None = None) -> None:
        super().__init__()
        load_once(inline)
        self.session = session or _own_session()
        self._theme = theme
        self.hardware = Hardware(self.session, self._changed)
        self.clusters = Clusters(self.session, self._watch)
        self.workloads = Workloads(self.session, self._changed)
        self.runs = Runs(self.session, self._replay)
        self.comparing = Compare(self.session, theme)
        self.watched: Watch | Replay | None = None
        self.notice = Notice()
        self._client: Client | None = None
        self._promised: tuple[tuple[str, int], ...] = ()
        self._figure = pn.Column(sizing_mode="stretch_width")
        self._title = html()
        self._watching = card(
            self._title,
            row(button("Close", self._unwatch)),
            self._figure,
            visible=False,
        )
        self._following: Future[None] | None = None
        self._awake = asyncio.Event()
        self._view = Shown(
            self.close,
            html(f"<h2>Workbench{' · SIMULATED GPUs' if self.hardware.simulated else ''}</h2>"),
            self.notice.view,
            pn.FlexBox(
                _column(self.hardware.view, self.workloads.view),
                _column(self.clusters.view, self.runs.view),
                sizing_mode="stretch_width",
                gap="0",
            ),
            self.comparing.view,
            self._watching,
            sizing_mode="stretch_width",
            stylesheets=[STYLE],
        )
        self._read()
        self.open()

    def __panel__(self) -> pn.viewable.Viewable:
        self.open()
        return self._view

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        cells.note(self)
        return wait_for(super()._repr_mimebundle_, include, exclude)

    def open(self) -> None:
        """Follow again after `close`. Whoever displays it needn't call this."""
        if self._following is None:
            self._following = soon(self._follow)

    def close(self) -> None:
        """Follow and watch no more; clusters and runs go on. Done by itself when its cell is run again."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
        wait_for(self._forget_watched)
        wait_for(self.comparing.hide)

    def compare(
        self,
        workload: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        on: Sequence[str] = ("cpu",),
        **options: Any,
    ) -> Comparison:
        """Start to compare architectures and show it here; `options` are those of `Session.compare`."""

        async def begin() -> Comparison:
            return await self.comparing.begin(workload, parameters, on=tuple(on), **options)

        return soon(begin).result()

    async def _refresh(self) -> None:
        """Show the clusters and runs as they are now."""
        with self._telling():
            clusters, runs = await asyncio.to_thread(_state, self.session)
            self._show(clusters, runs)

    async def _watch(self, cluster: str) -> None:
        """Show what a cluster does."""
        await self._unwatch()
        with self.clusters.notice.telling():
            record = self.session.cluster(cluster)
            client = await asyncio.to_thread(_client_of, record)
            try:
                watched = Watch(client, name=cluster, theme=self._theme)
            except BaseException:
                await asyncio.to_thread(client.close)
                raise
            self._client = client
            self._show_figure(watched, f"What {cluster} does")

    async def _replay(self, run: str) -> None:
        """Show what was recorded of a run."""
        found = self.session.show(run)
        figure = Replay(found, theme=self._theme)
        await self._unwatch()
        self._show_figure(figure, f"What {found.cluster} did in {found.id}")

    async def _unwatch(self) -> None:
        """Watch no more."""
        self._forget_watched()

    def _forget_watched(self) -> None:
        watched, client = self.watched, self._client
        self.watched = self._client = None
        self._watching.visible = False
        self._figure.objects = []
        if watched is not None:
            watched.close()
        if client is not None:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _show_figure(self, figure: Watch | Replay, title: str) -> None:
        self.watched = figure
        mark = "SIMULATED · " if self.hardware.simulated else ""
        self._title.object = f"<h3>{mark}{escape(title)}</h3>"
        self._figure.objects = [figure.__panel__()]
        self._watching.visible = True

    def _changed(self, _: Any) -> None:
        """Something was started: the lists needn't wait for the file system to tell."""
        self._awake.set()

    def _read(self) -> None:
        with self._telling():
            self._show(*_state(self.session))

    def _show(self, clusters: tuple[ClusterRecord, ...], runs: tuple[Any, ...]) -> None:
        self.clusters.show(clusters)
        self.workloads.show(clusters)
        self.runs.show(runs)
        self.comparing.refresh()
        held = _promised(clusters)
        if held != self._promised:
            self._promised = held
            self.hardware.refresh()

    @contextlib.contextmanager
    def _telling(self) -> Any:
        try:
            yield
        except WorkbenchError as err:
            self.notice.say(str(err), "bad")
        else:
            self.notice.clear()

    async def _follow(self) -> None:
        """Keep what is shown true."""
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                while not self._view.connected:
                    await asyncio.sleep(_PATIENCE)
                self._awake.clear()
                try:
                    await self._refresh()
                    await self.hardware.follow()
                except Exception:  # noqa: BLE001  One reading that goes wrong must not end the following.
                    _log.exception("The clusters and runs could not be read")
                    self.notice.say("The clusters and runs could not be read. The kernel's log says why.", "bad")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._awake.wait(), _TICK)
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        # Without it, such as where no inotify watch is left, the tick finds what changed.
        with contextlib.suppress(OSError, RuntimeError):
            async for _ in self.session.changes():
                self._awake.set()


class Shown(pn.Column):  # type: ignore[misc,unused-ignore]
    """What a cell displays: a column that lives in the panels' thread.

    `on_gone` is called when no page shows it any more: its cell was run again or deleted.
    """

    def __init__(self, on_gone: Any, *objects: Any, **params: Any) -> None:
        self._on_gone = on_gone
        super().__init__(*objects, **params)

    @property
    def connected(self) -> bool:
        """Whether every page that shows it listens: they can't say so before the cell has ended that displayed it.

        What is changed before that would be sent later, in no certain order.
        """
        comms = [pn.state._views[ref][3] for ref in self._models if ref in pn.state._views]
        return all(comm._comm is not None for comm in comms if comm is not None)

    def _on_msg(self, ref: str, manager: Any, msg: Any) -> None:
        # Panel throws away what changes while it takes in a message: nothing may, so it is done in the same thread.
        wait_for(super()._on_msg, ref, manager, msg)

    def _cleanup(self, root: Any = None) -> None:
        shown = bool(self._models)
        super()._cleanup(root)
        if shown and not self._models:
            self._on_gone()


def _column(*children: Any) -> pn.Column:
    return pn.Column(*children, styles={"flex": "1 1 420px", "min-width": "300px"}, margin=0)


def _own_session() -> Session:
    from workbench.session import Session

    return Session()


def _state(session: Session) -> tuple[tuple[ClusterRecord, ...], tuple[Any, ...]]:
    return session.clusters(), session.runs(limit=SHOWN)


def _promised(records: tuple[ClusterRecord, ...]) -> tuple[tuple[str, int], ...]:
    from workbench.clusters.budget import promised

    return tuple((record.name, promised(record)) for record in records)


def _client_of(record: ClusterRecord) -> Client:
    """Return a client for looking only: what a cell computes must not go to it by default."""
    from distributed import Client

    from workbench.clusters.connect import security
    from workbench.errors import FailedError

    try:
        return Client(
            record.contact,
            security=security(record),
            set_as_default=False,
            name="workbench-panel",
            timeout=10,
        )
    except OSError as err:
        raise FailedError(f"Cluster {record.name} does not answer at {record.contact} ({err}). Stop it.") from err
