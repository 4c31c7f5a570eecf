"""Live figures of a cluster in a notebook, for any Dask client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.errors import BadInputError, NotFoundError, quoted
from workbench.figures.totals import Totals
from workbench.markup import fragment, tag
from workbench.panels.static import StaticOutput, titled
from workbench.panels.thread import do, loop, soon
from workbench.panels.widget import Widget
from workbench.runs import store
from workbench.threads import in_thread
from workbench.views import watching
from workbench.views.drawing import document
from workbench.views.event_history import Past
from workbench.views.messages import check_theme
from workbench.views.page import OnScreen
from workbench.views.run_files import read_record

if TYPE_CHECKING:
    from distributed import Client

    from workbench.clusters.start import Cluster
    from workbench.monitor.events import Batch
    from workbench.monitor.feed import Feed
    from workbench.runs.run import Run

_log = logging.getLogger(__name__)

_MOST_BATCHES = 36_000
_MOST_TASKS = 200_000
"""Limits on past events for pages that open later: batches of an hour, and tasks drawn within a second."""

_LOOK = 0.5
"""Seconds between two checks of the client, which may lose its scheduler, or be closed."""

_CLOSED = "This was closed, so there is nothing more to watch."


class Figure(Widget):
    """A figure in a cell, and the base class of all figures; `watched` is its kind, such as "run", and its name.

    Parameters
    ----------
    theme
        "light" or "dark"; follows the page by default.
    """

    _view = "figure"

    def __init__(self, *watched: str, theme: str | None = None) -> None:
        self.theme = None if theme is None else check_theme(theme)
        kind, name = watched
        self._static = StaticOutput(self._content, self._is_final, lambda: self.is_shown)
        super().__init__({"watched": {kind: name}, "theme": theme, "static": self._static.id})

    def close(self) -> None:
        """Stop; the figure keeps its latest state."""

    async def watching(self) -> _Alone:
        """Return the screen's context, which shows only this figure."""
        return _Alone(self._begin)

    async def _act(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if name != "figure":
            raise NotFoundError(f"Unknown action {quoted(name)}. Available actions: figure.")
        return await in_thread(self._document, check_theme(arguments.get("theme")))

    async def _begin(self, theme: str, on_change: Callable[[], None]) -> OnScreen:
        """Return the state of a page in a theme, as `Watching` does."""
        raise NotImplementedError

    def _document(self, theme: str) -> dict[str, Any]:
        """Return the figure without its changing parts, and the scripts that draw it."""
        raise NotImplementedError

    def _content(self) -> tuple[str, str]:
        """Return the output that stays in the notebook, as HTML and as text."""
        raise NotImplementedError

    def _is_final(self) -> bool:
        """Return whether that output won't change any more."""
        return True


class _Live(Figure):
    """A figure of events: those before a page opened, and new ones as they arrive."""

    def __init__(self, name: str, **options: Any) -> None:
        self._name = name
        self._past = Past(_MOST_BATCHES, _MOST_TASKS)
        self._totals = Totals()
        super().__init__("cluster", name, **options)

    def take(self, batch: Batch) -> None:
        """Take in a batch of events, from any thread."""
        loop().call_soon_threadsafe(self._take, batch)

    def _take(self, batch: Batch) -> None:
        self._totals.feed([batch])
        self._past.take(batch)

    async def _begin(self, theme: str, on_change: Callable[[], None]) -> watching.Watch:
        figure = await in_thread(watching.live_figure, theme, self._name)
        watch = watching.Watch(figure, on_change, self._past)
        self._past.join(watch)
        return watch

    def _document(self, theme: str) -> dict[str, Any]:
        return document(theme, "")

    def _content(self) -> tuple[str, str]:
        return soon(titled, self._name, self._totals).result()


class Watch(_Live):
    """Task stream, progress, CPU, memory and GPUs of a client's cluster, on one time axis.

    Works with any Dask client, and together with any number of other figures: the scheduler collects events once, and
    only while a figure is open.

    Parameters
    ----------
    client
        Any Dask client.
    name
        Name of the cluster in an empty figure.
    options
        `theme`, as of `Figure`.

    Examples
    --------
    >>> client = workbench.connect("calm-otter")
    >>> Watch(client)
    """

    def __init__(self, client: Client | Cluster, *, name: str = "this cluster", **options: Any) -> None:
        from distributed import Client

        from workbench.clusters.start import client_of

        client = client_of(client)
        if not isinstance(client, Client):
            raise BadInputError(
                f"Watch shows what the cluster of a Dask client does, and {quoted(client)} is none. "
                "Give one, such as workbench.connect('calm-otter')."
            )
        self.client = client
        self._feed: Feed | None = None
        self._following: Future[Any] | None = None
        self._is_closed = False
        super().__init__(name, **options)
        self._wait(self._start())

    def close(self) -> None:
        """Stop watching until this is displayed again. The figure keeps everything until now."""
        self._is_closed = True
        self._wait(self._stop())

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self._is_closed = False
        self._wait(self._start())
        return super()._repr_mimebundle_(**options)

    def _on_shown(self) -> None:
        if not self._is_closed:
            self._start()

    def _on_hidden(self) -> None:
        self._stop()

    def _start(self) -> Future[Any] | None:
        if self._following is None:
            self._following = soon(self._follow_client)
        if self._feed is not None or self.client.status != "running":
            return None
        from workbench.monitor.feed import Feed

        self._feed = Feed(self.client, self.take)
        return self._in_its_loop(self._feed.astart())

    def _stop(self) -> Future[Any] | None:
        feed, self._feed = self._feed, None
        if feed is None or self.client.status != "running":
            if feed is not None:
                feed.close()
            self._end()
            return None
        stopping = self._in_its_loop(feed.aclose())
        stopping.add_done_callback(lambda _: self._end())
        return stopping

    def _wait(self, future: Future[Any] | None) -> None:
        """Wait for the client's loop, unless this may be running in it."""
        if future is not None and not self.client.asynchronous:
            future.result()

    def _in_its_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)

    def _end(self) -> None:
        if self._feed is not None:
            # Another page has opened since.
            return
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
        do(self._past.end, _CLOSED)

    async def _follow_client(self) -> None:
        if self._past.ended is not None:
            self._past.resume()
            self.send_to_all({"type": "load"})
        while self._past.ended is None:
            status = self.client.status
            self._past.wait("The scheduler doesn't answer; trying again." if status == "connecting" else None)
            if status not in ("running", "connecting", "newly-created"):
                self._past.end("The client is closed, so there is nothing more to watch.")
            await asyncio.sleep(_LOOK)

    def _is_final(self) -> bool:
        return self._following is None


class CellWatch(_Live):
    """Figure of the Dask work of one cell; `title` names the cell."""

    def __init__(self, title: str) -> None:
        self._outcome = ""
        super().__init__(title)

    def end(self, outcome: str) -> None:
        """Set the sentence that says how the cell ended, and expect no more events."""
        self._outcome = outcome
        do(self._past.end, outcome)

    def text(self) -> str:
        """Return the totals and the outcome as text."""
        return self._content()[1]

    def _content(self) -> tuple[str, str]:
        html, text = super()._content()
        return fragment(html, tag("p", self._outcome)), f"{text} {self._outcome}"

    def _is_final(self) -> bool:
        return bool(self._outcome)


class Replay(Figure):
    """Recorded events of a run, to be inspected and played. Raises NotFoundError if there are none.

    Parameters
    ----------
    run
        A run, or its id.
    options
        `theme`, as of `Figure`.

    Examples
    --------
    >>> Replay("last")
    """

    def __init__(self, run: Run | str, **options: Any) -> None:
        self._run = _run(run)
        self._record = read_record(self._run)
        super().__init__("run", self._run.id, **options)

    async def _begin(self, theme: str, on_change: Callable[[], None]) -> watching.Watch:
        return await watching.watch_record(self._run, self._record, theme, on_change)

    def _document(self, theme: str) -> dict[str, Any]:
        return document(theme, "")

    def _content(self) -> tuple[str, str]:
        totals = Totals()
        totals.feed([self._record])
        return titled(f"{self._run.title} on {self._run.cluster}", totals)


class _Alone:
    """The part of the interface of `Watching` that the Screen of a single figure needs."""

    log = _log
    value: ClassVar[dict[str, Any]] = {}
    problem = None
    cursor = 0
    restarting = False
    touched = 0.0

    def __init__(self, begin: Callable[[str, Callable[[], None]], Awaitable[OnScreen]]) -> None:
        self._begin = begin
        self.state = self

    async def watch(self, kind: str, name: str, theme: str, on_change: Callable[[], None]) -> OnScreen:
        """Start to watch."""
        return await self._begin(theme, on_change)

    async def read(self) -> None:
        """Do nothing: the page shows no state."""

    def subscribe(self, _: Callable[..., None]) -> None:
        """Do nothing."""

    unsubscribe = listen = unlisten = subscribe


def _run(run: Run | str) -> Run:
    return store.find(run) if isinstance(run, str) else run
