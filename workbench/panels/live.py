"""What a cluster does, live in a notebook, for any Dask client."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import panel as pn
from bokeh.core.property.descriptors import UnsetValueError
from bokeh.models import ColumnDataSource, CustomJS, Plot

from workbench.errors import BadInputError
from workbench.figures import samples
from workbench.panels import cells
from workbench.panels.loading import load_once
from workbench.panels.look import button, html, row, sentence
from workbench.panels.thread import Redraw, wait_for

if TYPE_CHECKING:
    from distributed import Client

    from workbench.figures.layout import Layout
    from workbench.figures.live import LiveFigure, Patch
    from workbench.monitor.events import Batch
    from workbench.monitor.feed import Feed
    from workbench.runs.store import Run

Part = Literal["tasks", "progress", "cpu", "memory", "gpus"]
PARTS: tuple[Part, ...] = ("tasks", "progress", "cpu", "memory", "gpus")

THEMES = ("light", "dark")

_KEPT = 36_000
"""Batches kept while nothing is drawn: an hour of them."""

_WIDTH = 1000
"""Pixels of the time axis before the browser has said how wide it is."""

_MEET = """
// Panel sends every change of the document to the kernel, those that came from there too: a stream of columns would
// come back as fast as it goes. What came from the kernel is marked, and stays here.
for (const root of cb_obj.document.roots()) {
  if (root.type.endsWith("CommManager") && !root.workbench) {
    const send = root._document_changed.bind(root)
    root._document_changed = (event) => event.sync === false ? undefined : send(event)
    root.workbench = true
  }
}
const tell = () => {
  const theme = document.body.dataset.jpThemeLight === "false" ? "dark" : "light"
  if (page.tags[0] !== theme) {
    page.tags = [theme]
  }
}
tell()
if (!page.workbench) {
  page.workbench = new MutationObserver(() => page.document ? tell() : page.workbench.disconnect())
  page.workbench.observe(document.body, {attributes: true, attributeFilter: ["data-jp-theme-light"]})
}
"""


class Figure(pn.viewable.Viewer):  # type: ignore[misc,unused-ignore]
    """A figure that batches of events are drawn into; what its subclasses share.

    Parameters
    ----------
    name
        What the figure calls the cluster when it has nothing to show.
    theme
        "light" or "dark"; follows the page by default.
    inline
        Take Panel's JavaScript from the installed package, so that it works without the internet.
    simulated
        Whether the GPUs are known to be simulated, which every title says.
    """

    parts: ClassVar[tuple[Part, ...]] = PARTS

    def __init__(
        self,
        *,
        name: str = "this cluster",
        theme: str | None = None,
        inline: bool = True,
        simulated: bool = False,
    ) -> None:
        if theme is not None and theme not in THEMES:
            raise BadInputError(f"theme is {theme!r:.40}. Give 'light' or 'dark', or leave it out to follow the page.")
        super().__init__()
        load_once(inline)
        self.following = True
        """Whether the time axis moves on."""
        self.paused = False
        self._waiting: deque[Batch] = deque(maxlen=_KEPT)
        self._follows_page, self._asks_page = theme is None, theme is None
        self._moved: tuple[float, float] | None = None
        self._ours = False
        self._returning = False
        self._wanted: str | None = None
        self._name = name
        self._simulated = simulated
        # One for all figures that take one another's place: what the page says of one that has gone would have Panel
        # drop all that comes with it.
        page = self._page = ColumnDataSource(name="page")
        page.on_change("tags", lambda attr, old, new: self._on_theme(new[0]))
        page.js_on_change("tags", CustomJS(args={"page": page}, code=_MEET))
        self._begin(self._first(theme or "light"))
        self._pane = pn.pane.Bokeh(self._figure.model, sizing_mode="stretch_width", margin=0, autodispatch=False)
        self._status = html()
        self._pause_button = button("Pause", self._toggle)
        self.toolbar = row(self._pause_button, pn.Column(self._status, styles={"flex": "1 1 200px"}))
        self._view = Shown(
            self.close,
            self.toolbar,
            self._pane,
            sizing_mode="stretch_width",
        )
        self._redraw = Redraw(self._draw)

    def __panel__(self) -> pn.viewable.Viewable:
        self.open()
        return self._view

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        cells.note(self)
        return wait_for(super()._repr_mimebundle_, include, exclude)

    def open(self) -> None:
        """Draw again after `close`. Whoever displays it needn't call this."""
        if not self._redraw.running:
            self._redraw.start()

    def pause(self) -> None:
        """Draw nothing more until `follow`; what happens meanwhile is kept."""
        self.paused = True
        self._redraw.wake()

    def follow(self) -> None:
        """Draw again, and let the time axis move on."""
        self.paused, self.following = False, True
        self._returning = True
        self._redraw.wake()

    def source(self, name: str) -> ColumnDataSource:
        """Columns behind a part of the figure: tasks, workers_cpu, workers_memory, progress, gpu_use or gpu_memory."""
        return self._figure.layout.sources[name]

    def close(self) -> None:
        """Draw what has come, and then no more: it stays. Done by itself when its cell is run again."""
        self._redraw.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _first(self, theme: str) -> LiveFigure:
        """Figure that nothing was fed to."""
        from workbench.figures.live import LiveFigure

        return LiveFigure(theme, self._name, simulated=self._simulated)

    def _begin(self, figure: LiveFigure) -> None:
        """Let this be what is fed and shown from now on."""
        _show_only(figure.layout, self.parts)
        figure.apply(figure.patches())
        self._range = figure.layout.time
        self._range.on_change("start", self._on_range)
        self._range.on_change("end", self._on_range)
        # Only now, for whoever looks at it in another thread: its layout is made when first asked for.
        self._figure, self.theme = figure, figure.theme.name
        self._meet_page()

    def _meet_page(self) -> None:
        """Have the page say whether it is dark when it is asked, and keep what came from here."""
        for plot in self._figure.model.select({"type": Plot}):
            plot.js_on_change("inner_width", CustomJS(args={"page": self._page}, code=_MEET))

    def _on_theme(self, theme: str) -> None:
        # Not here: Panel drops what changes while it takes in a message of the page.
        if theme in THEMES:
            self._wanted = theme
            self._redraw.wake()

    def _change_theme(self, theme: str) -> None:
        self._asks_page = False
        if not self._follows_page or theme == self.theme:
            return
        before = None if self.following else (self._range.start, self._range.end)
        self._begin(self._figure.in_theme(theme))
        if before is not None:
            self._move_to(*before)
        self._pane.object = self._figure.model

    def _on_range(self, attr: str, old: float, new: float) -> None:
        if self._ours:
            return
        self._moved = (self._range.start, self._range.end)
        self.following = False
        self._redraw.wake()

    def _toggle(self) -> None:
        if self.following and not self.paused:
            self.pause()
        else:
            self.follow()

    def _label(self) -> None:
        label = "Pause" if self.following and not self.paused else "Follow"
        if label != self._pause_button.label:
            self._pause_button.label = label

    def _receive(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self._redraw.wake()

    def _draw(self) -> bool:
        """Take what came into the figure, and send it to the page; false while that doesn't listen."""
        if not self._view.connected or _is_being_imported("pandas"):
            return False
        if self._wanted is not None:
            theme, self._wanted = self._wanted, None
            self._change_theme(theme)
        if self._asks_page and self._pane._models:
            self._page.tags = [f"asked {time.monotonic():.0f}"]
        self._tell()
        self._label()
        if not self.paused:
            batches = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if batches:
                self._take(batches)
            if self._returning:
                self._returning = False
                self._move_to(*self._figure.window())
            if self._moved is not None:
                (start, end), self._moved = self._moved, None
                self._apply(self._figure.show_range(start, end, self._width()))
        pn.io.push_notebook(self._pane)
        return True

    def _take(self, batches: list[Batch]) -> None:
        self._figure.feed(batches)
        self._apply(self._figure.patches())

    def _apply(self, patches: list[Patch]) -> None:
        self._ours = True
        self._figure.apply(patches, follow=self.following)
        self._ours = False

    def _move_to(self, start: float, end: float) -> None:
        self._ours = True
        self._range.update(start=start, end=end)
        self._ours = False

    def _width(self) -> int:
        try:
            return int(self._figure.layout.stream.inner_width) or _WIDTH
        except UnsetValueError:
            return _WIDTH

    def _tell(self) -> None:
        """Bring the line above the figure up to date."""


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


class Watch(Figure):
    """Task stream, progress, CPU and memory of a client's cluster, on one time axis.

    Works with any Dask client, and beside any number of others: the scheduler does the work once, and only while
    somebody watches.

    Parameters
    ----------
    client
        Any Dask client.
    options
        `name`, `theme` and `inline`, as of `Figure`.

    Examples
    --------
    >>> client = workbench.connect("calm-otter")
    >>> Watch(client)
    """

    def __init__(self, client: Client, **options: Any) -> None:
        from distributed import Client

        if not isinstance(client, Client):
            raise BadInputError(
                f"{type(self).__name__} shows what the cluster of a Dask client does, and {client!r:.60} is none. "
                "Give one, such as workbench.connect('calm-otter')."
            )
        super().__init__(simulated=_simulated(client), **options)
        self.client = client
        self._feed: Feed | None = None
        self._workers = samples.Workers()
        self._said = ""
        self.open()

    def open(self) -> None:
        """Watch again after `close`. Whoever displays it needn't call this."""
        super().open()
        if self._feed is not None or self.client.status != "running":
            return
        from workbench.monitor.feed import Feed

        self._feed = Feed(self.client, self._receive)
        if self.client.asynchronous:
            self._in_its_loop(self._feed.astart())
        else:
            self._feed.start()

    def close(self) -> None:
        """Watch no more. What happened until now is shown, and stays. Done by itself when its cell is run again."""
        feed, self._feed = self._feed, None
        if feed is not None and self.client.asynchronous:
            self._in_its_loop(feed.aclose()).add_done_callback(lambda _: self._redraw.stop())
            return
        if feed is not None:
            feed.close()
        super().close()

    def _in_its_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)

    def _take(self, batches: list[Batch]) -> None:
        super()._take(batches)
        for batch in batches:
            self._workers.feed(batch.samples)
        self._said = self._workers.status().get("summary", "")

    def _tell(self) -> None:
        text = {
            "running": self._said,
            "connecting": "The scheduler doesn't answer; trying again.",
        }.get(self.client.status, "The client is closed, so there is nothing more to watch.")
        self._pause_button.visible = self._redraw.running
        if sentence(text, "muted") != self._status.object:
            self._status.object = sentence(text, "muted")


class TaskStream(Watch):
    """What every thread of a client's cluster does when."""

    parts = ("tasks",)


class Progress(Watch):
    """How many tasks of each kind are done, of a client's cluster."""

    parts = ("progress",)


class Workers(Watch):
    """CPU and memory of each worker of a client's cluster."""

    parts = ("cpu", "memory")


class GpuMonitor(Watch):
    """Use, memory, power, temperature, clocks and throughput of each GPU of a client's cluster, on all its hosts.

    Where a value can't be had it says why.
    """

    parts = ("gpus",)

    def _begin(self, figure: LiveFigure) -> None:
        super()._begin(figure)
        layout = self._figure.layout
        layout.gpus.show(range(len(layout.gpus.plots)))

    def _take(self, batches: list[Batch]) -> None:
        super()._take(batches)
        self._said = self._figure.gpus.note() or self._figure.gpus.summary()


class Replay(Figure):
    """What was recorded of a run, to be looked at and played. NotFoundError when there is nothing.

    Parameters
    ----------
    run
        A run, or its id.
    options
        `theme` and `inline`, as of `Figure`.

    Examples
    --------
    >>> Replay("last")
    """

    def __init__(self, run: Run | str, **options: Any) -> None:
        batch = _recorded(_run(run))
        super().__init__(**options)
        self._pause_button.visible = False
        self._receive(batch)
        self.open()
        wait_for(self._draw)


class Beside(pn.viewable.Viewer):  # type: ignore[misc,unused-ignore]
    """Records of two runs, one above the other on one time scale, each from its first task on; they play together.

    Parameters
    ----------
    run, other
        Runs, or their ids.
    theme
        "light" or "dark".
    inline
        As of `Figure`.
    """

    def __init__(self, run: Run | str, other: Run | str, *, theme: str = "light", inline: bool = True) -> None:
        from workbench.figures.beside import BesideFigure, Record

        if theme not in THEMES:
            raise BadInputError(f"theme is {theme!r:.40}. Give 'light' or 'dark'.")
        runs = [_run(run), _run(other)]
        records = [Record(f"{each.title} on {each.cluster}, {each.id}", _recorded(each), each.seconds) for each in runs]
        super().__init__()
        load_once(inline)
        self._pane = pn.pane.Bokeh(BesideFigure(records, theme).model, sizing_mode="stretch_width", margin=0)

    def __panel__(self) -> pn.viewable.Viewable:
        return self._pane


def _run(run: Run | str) -> Run:
    from workbench.runs import store

    return store.find(run) if isinstance(run, str) else run


def _simulated(client: Client) -> bool:
    """Whether GPUs of a cluster are simulated, as its scheduler knows before the first sample."""
    if client.asynchronous or client.status != "running":
        return False
    try:
        workers = client.scheduler_info(n_workers=1)["workers"].values()
    except OSError:  # who can't be reached is told of in the figure
        return False
    return any((worker.get("gpu") or {}).get("name", "").startswith("SIMULATED") for worker in workers)


def _show_only(layout: Layout, parts: tuple[Part, ...]) -> None:
    """Take what isn't among the parts off a figure; the words that say why it is empty stay."""
    plots = {"tasks": layout.stream, "progress": layout.progress, "cpu": layout.cpu, "memory": layout.memory}
    plots["gpus"] = layout.gpus.root
    kept = [*(plots[part] for part in parts)]
    if parts != ("gpus",):
        kept.append(layout.empty)
    if "cpu" in parts or "memory" in parts:
        kept.append(layout.workers)
    if "tasks" in parts:
        kept.extend(child for child in layout.root.children if child not in (*plots.values(), layout.workers))
    layout.root.children = [child for child in layout.root.children if child in kept]


def _recorded(run: Run) -> Batch:
    from workbench.errors import ConflictError, NotFoundError
    from workbench.monitor.record import read_events
    from workbench.runs import store

    if run.active:
        raise ConflictError(f"The run {run.id} is still going on: watch its cluster {run.cluster}.")
    try:
        return read_events(store.folder(run.id) / "events.parquet")
    except NotFoundError as err:
        raise NotFoundError(f"No events were recorded of the run {run.id} ({run.status}).") from err


def _is_being_imported(module: str) -> bool:
    """Whether a cell is importing this module: Bokeh uses pandas as soon as there is something of that name."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))
