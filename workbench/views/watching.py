"""Clusters whose figures are on a screen: the whole server shares one connection to each.

Nothing runs while no page shows a figure. No tornado here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from workbench.errors import ConflictError, FailedError, WorkbenchError
from workbench.figures.samples import Workers
from workbench.threads import in_thread, load
from workbench.views.event_history import MOST_BATCHES, Listener, Past
from workbench.views.page import OnScreen, Views
from workbench.views.run_files import on_simulated, read_record
from workbench.views.state import StateWatcher

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.figures.live import LiveFigure
    from workbench.monitor.events import Batch
    from workbench.runs.run import Run
    from workbench.session import Session

LINGER = 5.0
"""Seconds of watching a cluster after the last page left, so that a reloaded page finds its past."""

CONNECTING = 10.0
PARTING = 3.0
"""Timeouts in seconds for connecting to a scheduler and for disconnecting."""

FeedOpener = Callable[[str, Callable[["Batch"], None]], AbstractAsyncContextManager[Any]]
FigureMaker = Callable[[str, str, bool], "LiveFigure"]
"""Function that makes a figure from the theme, the cluster's name, and whether its GPUs are simulated."""


class Watching:
    """The state, the watched clusters, and their watchers."""

    def __init__(
        self,
        session: Session,
        base_url: str,
        log: Any,
        *,
        open_feed: FeedOpener | None = None,
        make_figure: FigureMaker | None = None,
        linger: float = LINGER,
    ) -> None:
        self.restarting = False
        """True while a server is stopping: its pages get no `gone`, so that they watch again if it restarts."""
        self._is_server = bool(base_url)
        self.touched = 0.0
        """Monotonic time of the user's last input on any page."""
        self.session = session
        self.log = log
        self.state = StateWatcher(session, base_url, log)
        self.views = Views(session, self.state, log)
        self._open_feed = open_feed or _open_feed
        self._make_figure = make_figure or live_figure
        self._linger = linger
        self._feeds: dict[str, ClusterFeed] = {}
        self._ending: set[ClusterFeed] = set()
        self._listeners: set[Callable[[str], None]] = set()

    # -- figures of clusters and runs

    async def watch_cluster(self, name: str, theme: str, on_change: Callable[[], None]) -> Watch:
        """Start watching a cluster; a starting one is watched as soon as it is ready.

        Raises a WorkbenchError if there is none of this name, or if it failed, was lost or is being stopped.
        """
        record = await in_thread(self.session.cluster, name)
        _check_alive(name, record.status, record.message)
        simulated = await in_thread(on_simulated, self.session, record)
        figure = await in_thread(self._make_figure, theme, name, simulated)
        feed = self._feed_of(record)
        watch = Watch(figure, on_change, feed)
        feed.join(watch)
        feed.notice(record.model_dump(mode="json"))
        return watch

    def _feed_of(self, record: ClusterRecord) -> ClusterFeed:
        feed = self._feeds.get(record.name)
        if feed is None or feed.created != record.created or feed.ended is not None:
            feed = self._new_feed(record.name, record.created)
        return feed

    async def watch(self, kind: str, name: str, theme: str, on_change: Callable[[], None]) -> OnScreen:
        """Start showing a 'cluster' or a 'run'. Raises a WorkbenchError if that isn't possible."""
        begin = self.watch_cluster if kind == "cluster" else self._watch_run
        return await begin(name, theme, on_change)

    async def _watch_run(self, run_id: str, theme: str, on_change: Callable[[], None]) -> Watch:
        run = await in_thread(self.session.show, run_id)
        return await watch_record(run, await in_thread(read_record, run), theme, on_change, self._make_figure)

    def _new_feed(self, name: str, created: float) -> ClusterFeed:
        replaced = self._feeds.pop(name, None)
        if replaced is not None:
            replaced.end(f"{name} was stopped, and another cluster has its name now.")
        if not self._feeds:
            self.state.subscribe(self._on_state)
        feed = ClusterFeed(name, created, self._open_feed, self.log, self._forget_feed, self._linger)
        self._feeds[name] = feed
        return feed

    def _forget_feed(self, feed: ClusterFeed) -> None:
        if self._feeds.get(feed.name) is feed:
            del self._feeds[feed.name]
        self._ending.add(feed)
        feed.task.add_done_callback(lambda _: self._ending.discard(feed))
        if not self._feeds:
            self.state.unsubscribe(self._on_state)

    def _on_state(self) -> None:
        clusters = {cluster["name"]: cluster for cluster in self.state.value.get("clusters", ())}
        for feed in tuple(self._feeds.values()):
            if self.state.read_at > feed.requested_at:
                feed.notice(clusters.get(feed.name))

    # -- errors outside of requests

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each later error message that belongs to no request."""
        self._listeners.add(listener)

    def unlisten(self, listener: Callable[[str], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.discard(listener)

    def report(self, message: str) -> None:
        """Send a message to all listeners."""
        for listener in tuple(self._listeners):
            listener(message)

    async def close(self) -> None:
        """Stop all watching in this server. The clusters keep running."""
        self.restarting = self._is_server
        await self.views.close()
        for feed in tuple(self._feeds.values()):
            feed.end("The Jupyter server was stopped.")
        await asyncio.gather(*(feed.task for feed in self._ending), return_exceptions=True)
        await self.state.close()


class ClusterFeed(Past):
    """One connection to a cluster, shared by all its watches; closed a few seconds after the last one left."""

    def __init__(
        self,
        name: str,
        created: float,
        open_feed: FeedOpener,
        log: Any,
        on_end: Callable[[ClusterFeed], None],
        linger: float = LINGER,
    ) -> None:
        super().__init__()
        self.name = name
        self.created = created
        self.requested_at = time.monotonic()
        self._open_feed = open_feed
        self._log = log
        self._on_end = on_end
        self._linger = linger
        self._is_ready = asyncio.Event()
        self._end = asyncio.Event()
        self._leaving: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(self._run())
        """Task that ends when the connection is closed."""

    def join(self, watch: Listener) -> None:
        """Pass the stored batches to `watch`, and all later ones."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        super().join(watch)

    def leave(self, watch: Listener) -> None:
        """Remove `watch`; the connection is closed if none joins soon."""
        super().leave(watch)
        if not self._watches and self.ended is None and self._leaving is None:
            self._leaving = asyncio.get_running_loop().call_later(self._linger, self.end, "Nobody watched any more.")

    def notice(self, cluster: dict[str, Any] | None) -> None:
        """Update the feed from the cluster's state."""
        if cluster is None or cluster["created"] != self.created or cluster["status"] == "stopping":
            self.end(f"{self.name} was stopped, so there is nothing more to watch.")
        elif cluster["status"] in ("failed", "lost"):
            self.end(_end_of(self.name, cluster["status"], cluster["message"]))
        elif cluster["status"] == "starting":
            self.wait(
                f"{self.name} is starting: {cluster['n_workers']} of {cluster['n_workers_expected']} workers"
                f"{cluster['queued'] and '; '}{cluster['queued']}."
            )
        elif cluster["status"] == "ready":
            self._is_ready.set()

    def end(self, sentence: str) -> None:
        """Notify all watches of the end, and close the connection."""
        if self.ended is not None:
            return
        super().end(sentence)
        self._end.set()
        self._is_ready.set()
        if self._leaving is not None:
            self._leaving.cancel()
        self._on_end(self)

    async def _run(self) -> None:
        await self._is_ready.wait()
        if self.ended is not None:
            return
        try:
            async with self._open_feed(self.name, self.take):
                self.wait(None)
                await self._end.wait()
        except (OSError, TimeoutError, WorkbenchError) as err:
            self.end(f"The connection to {self.name} ended: {err}")
        except Exception as err:  # noqa: BLE001  Watches must be notified of any error of the client.
            self._log.exception("Workbench: watching %s failed", self.name)
            self.end(f"Watching {self.name} failed: {err}")


class Watch(OnScreen):
    """One figure on one screen, with the batches that arrived since it was last drawn."""

    def __init__(self, figure: LiveFigure, on_change: Callable[[], None], feed: Past | None = None) -> None:
        self.figure = figure
        self._feed = feed
        self._on_change = on_change
        self._batches: list[Batch] = []
        self._range: tuple[float, float, int] | None = None
        self._workers = Workers()
        self._status: dict[str, Any] = {}
        self._is_new = True
        self._drawing = asyncio.Lock()

    @property
    def gone(self) -> str | None:
        """Reason why no more changes will come; None while they may."""
        return self._feed.ended if self._feed else None

    def add(self, batches: list[Batch]) -> None:
        """Store batches until they are drawn."""
        self._batches.extend(batches)
        # A screen that takes nothing for minutes gets only the latest minutes afterwards.
        del self._batches[:-MOST_BATCHES]
        self.wake()

    def show_range(self, start: float, end: float, width: int) -> None:
        """Show another time range; the last request counts."""
        self._range = (start, end, width)
        self.wake()

    def wake(self) -> None:
        """Notify the screen's sender of a change."""
        self._on_change()

    def leave(self) -> None:
        """Stop showing the figure."""
        if self._feed is not None:
            self._feed.leave(self)

    async def take(self) -> dict[str, Any] | None:
        """Return the changes for the screen, `{"patches", "status"}`; None without any."""
        async with self._drawing:
            batches, self._batches = self._batches, []
            range_, self._range = self._range, None
            waiting = self._feed.waiting if self._feed else None
            quiet = not batches and range_ is None and not self._is_new
            if quiet and waiting == self._status["message"]:
                return None
            self._is_new = False
            for batch in batches:
                self._workers.feed(batch.samples)
            self._status = {"summary": self._workers.summary(), "message": waiting}
            # In a thread: thinning a busy cluster's batch takes tens of milliseconds.
            patches = await in_thread(self._draw, batches, range_)
        return {"patches": patches, "status": self._status}

    def _draw(self, batches: list[Batch], range_: tuple[float, float, int] | None) -> list[dict[str, Any]]:
        self.figure.feed(batches)
        patches = list(self.figure.patches())
        if range_ is not None:
            patches.extend(self.figure.show_range(*range_))
        return [each.values() for each in patches]


def live_figure(theme: str, name: str, simulated: bool = False) -> LiveFigure:
    """Make a figure of the cluster `name`."""
    from workbench.figures.live import LiveFigure

    return LiveFigure(theme, name, simulated=simulated)


async def watch_record(
    run: Run,
    record: Batch,
    theme: str,
    on_change: Callable[[], None],
    make_figure: FigureMaker = live_figure,
) -> Watch:
    """Show the recorded events of a run."""
    watch = Watch(await in_thread(make_figure, theme, run.cluster, run.simulated), on_change)
    watch.add([record])
    return watch


def _check_alive(name: str, status: str, message: str | None) -> None:
    if status in ("failed", "lost"):
        raise FailedError(_end_of(name, status, message))
    if status in ("stopping", "unknown"):
        raise ConflictError(f"{name} is being stopped." if status == "stopping" else f"{name} is unknown. {message}")


def _end_of(name: str, status: str, message: str | None) -> str:
    what = "failed to start" if status == "failed" else "was lost"
    return f"{name} {what}. {message or ''}".strip()


@asynccontextmanager
async def _open_feed(name: str, on_batch: Callable[[Batch], None]) -> AsyncIterator[Any]:
    """Connect to a cluster and pass its batches to `on_batch`."""
    await in_thread(load, "distributed", "workbench.monitor.feed", "workbench.monitor.record")
    from distributed import Client

    from workbench.clusters import security
    from workbench.clusters.records import read
    from workbench.monitor.feed import Feed
    from workbench.monitor.record import fill_first_table

    await in_thread(fill_first_table)
    record = await in_thread(read, name)
    # Not connect(): it would make this client the default of the whole Jupyter server.
    client = Client(
        record.contact,
        security=security.load(record),
        name="workbench-watch",
        asynchronous=True,
        set_as_default=False,
        timeout=CONNECTING,
    )
    feed = Feed(client, on_batch)
    try:
        await client
        await feed.astart()
        yield client
    finally:
        await _within(PARTING, feed.aclose())
        await _within(PARTING, client.close())


async def _within(seconds: float, parting: Awaitable[Any]) -> None:
    """Disconnect with a time limit, since a scheduler that ended doesn't answer."""
    with contextlib.suppress(TimeoutError, OSError):
        await asyncio.wait_for(parting, seconds)
