"""The Bokeh layout of a figure: plots, the columns that they draw, and the browser's reactions to changed columns.

Changes of a live figure travel as patches: columns of sources, and properties of models, by name. Playing changes only
the page, by functions of labext/src/figures within the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    BoxZoomTool,
    Column,
    ColumnDataSource,
    Div,
    FixedTicker,
    LinearAxis,
    Range1d,
    WheelZoomTool,
)

from workbench.figures import gpu_lines, replay
from workbench.figures.colors import THEMES, Theme, swatch
from workbench.figures.gpu_layout import gpu_section
from workbench.figures.patch import Patch, room_for
from workbench.figures.plots import draw_lines, hover, name_lanes, text_style, time_plot, words_style
from workbench.figures.replay import replay_bar
from workbench.markup import fragment

COLUMNS = {
    "tasks": (
        "left",
        "right",
        "y",
        "height",
        "color",
        "line",
        "alpha",
        "kind",
        "name",
        "more",
        "worker",
        "key",
        "duration",
        "nbytes",
    ),
    "workers_cpu": ("x0", "x1", "y0", "y1", "color", "worker", "text"),
    "workers_memory": ("x0", "x1", "y0", "y1", "color", "worker", "text"),
    "progress": ("y", "foot", "done", "erred", "processing", "color", "name", "count"),
    "lanes": ("label",),
    "limits": ("cpu", "memory"),
    "window": ("start", "end", "first", "last", "origin"),
    **replay.COLUMNS,
    **gpu_lines.COLUMNS,
}
"""Columns of each source. `window` holds the range to follow, the whole range, and the zero of the time axis,
in ms since the epoch."""

_PROGRESS_ROW = 22
_BAR_ALPHA = {"light": (0.2, 0.3), "dark": (0.12, 0.22)}
"""Opacity of tasks in progress, and on top of it of finished tasks: words on every color keep 4.5:1."""

_LANE_ROOM = 62
"""Pixels of the task stream in addition to its lanes: title and time axis."""

TITLES = {"tasks": "Tasks", "progress": "Progress", "cpu": "CPU, % of a core", "memory": "Memory, GiB"}


@cache
def item(theme: str) -> dict[str, Any]:
    """Return Bokeh's JSON of an empty figure, which a page embeds. Cached, because Bokeh takes half a second."""
    return dict(json_item(build(THEMES[theme])))


def titles(mark: str) -> Iterator[Patch]:
    """Yield the titles of all plots except GPU plots, which name their model; `mark` is appended to each."""
    for name, title in TITLES.items():
        yield Patch(f"{name}_title", "set", {"text": f"{title}{mark}"})


def progress_room(n_bars: int) -> Iterator[Patch]:
    """Yield the height of this many progress bars."""
    yield room_for(n_bars, "progress_range")
    yield Patch("progress_plot", "set", {"height": n_bars * _PROGRESS_ROW + 36, "visible": n_bars > 0})


def stream_height(n_lanes: int) -> tuple[int, float]:
    """Return the height of the task stream for this many lanes, and of each lane, in pixels."""
    lane = min(26.0, max(5.0, 420.0 / max(n_lanes, 1)))
    lane = max(lane, 100.0 / max(n_lanes, 1))
    return round(n_lanes * lane) + _LANE_ROOM, lane


def build(theme: Theme) -> Column:
    """Return an empty figure in the colors of a theme."""
    sources = {name: ColumnDataSource({key: [] for key in keys}, name=name) for name, keys in COLUMNS.items()}
    # Until the first samples give the origin of the axis, it counts from zero: not since 1970.
    time = Range1d(start=0, end=30_000, name="time")
    empty = Div(name="empty", visible=False, styles=words_style(theme), sizing_mode="stretch_width")
    workers = Div(name="worker_names", visible=False, styles=words_style(theme), sizing_mode="stretch_width")
    stream = _stream(theme, time, sources)
    cpu = _lines(theme, time, sources, "cpu", 112)
    memory = _lines(theme, time, sources, "memory", 1)
    gpus, gpu_plots = gpu_section(theme, time, sources)
    memory.xaxis.visible = True
    progress = _progress(theme, sources)
    kinds = Div(name="kinds", text=kinds_words(theme), styles=words_style(theme), sizing_mode="stretch_width")
    bar = replay_bar(theme, time, [stream, cpu, memory, *gpu_plots], sources["replay"], sources["progress"])
    return column(
        bar,
        stream,
        kinds,
        gpus,
        cpu,
        memory,
        workers,
        # Progress bars come and go during a run, so nothing is below them that would move.
        progress,
        empty,
        sizing_mode="stretch_both",
        styles={"background": theme.background},
        # A source that nothing draws must be in the document as well, to be found by its name.
        tags=[sources["window"]],
    )


def _stream(theme: Theme, time: Range1d, sources: dict[str, ColumnDataSource]) -> Any:
    rows = Range1d(start=0.5, end=-0.5)
    height = stream_height(2)[0]
    plot = time_plot(theme, "tasks", TITLES["tasks"], time, rows, height, sources["window"])
    # In a figure with a fixed height, the stream takes the height that the other plots don't need.
    plot.update(sizing_mode="stretch_both", min_height=height)
    bars = plot.hbar(
        y="y",
        height="height",
        left="left",
        right="right",
        fill_color="color",
        fill_alpha="alpha",
        line_color="line",
        line_width=0.5,
        source=sources["tasks"],
    )
    plot.add_tools(
        hover(theme, bars, "@kind@name@more", ("@duration", "worker @worker", "@nbytes", "@key"), time="left")
    )
    wheel = WheelZoomTool(dimensions="width")
    plot.add_tools(wheel, BoxZoomTool(dimensions="width"))
    plot.toolbar.active_scroll = wheel
    name_lanes(plot, "tasks", sources["lanes"])
    # BokehJS draws the outline of a later task that isn't in view at the right edge of the plot. An axis covers it.
    cover = LinearAxis(ticker=FixedTicker(ticks=[]), axis_line_color=theme.background, axis_line_width=3)
    plot.add_layout(cover, "right")
    return plot


def _progress(theme: Theme, sources: dict[str, ColumnDataSource]) -> Any:
    source = sources["progress"]
    share, rows = Range1d(start=0, end=1), Range1d(start=0.5, end=-0.5)
    plot = time_plot(theme, "progress", TITLES["progress"], share, rows, 60, sources["window"])
    plot.update(visible=False, toolbar_location=None)
    plot.toolbar.tools = []
    plot.axis.visible = False
    plot.grid.visible = False
    bar: dict[str, Any] = {"y": "y", "height": 0.82, "source": source}
    processing, done = _BAR_ALPHA[theme.name]
    plot.hbar(left=0, right=1, fill_color=theme.track, line_color=None, **bar)
    plot.hbar(left=0, right="processing", fill_color="color", fill_alpha=processing, line_color=None, **bar)
    plot.hbar(left=0, right="done", fill_color="color", fill_alpha=done, line_color=None, **bar)
    # At the foot of the bar, where it covers nothing.
    bar |= {"y": "foot", "height": 0.2}
    plot.hbar(left="done", right="erred", fill_color=theme.erred, line_color=None, **bar)
    words = {"y": "y", "source": source, **text_style(theme, "11px", "middle")}
    # The chip shows the color as it is in the stream; the bar is paler, so that text on it is legible.
    chip = {"marker": "square", "size": 12, "fill_color": "color", "line_color": None}
    plot.scatter(x=0, y="y", source=source, **chip)
    plot.text(x=0, x_offset=14, text="name", **words)
    plot.text(x=1, x_offset=-6, text="count", text_align="right", **words)
    plot.min_border_bottom = 10
    return plot


def _lines(theme: Theme, time: Range1d, sources: dict[str, ColumnDataSource], name: str, top: float) -> Any:
    plot = time_plot(theme, name, TITLES[name], time, Range1d(start=0, end=top), 118, sources["window"])
    draw_lines(plot, theme, sources[f"workers_{name}"], "worker @worker", name, sources["limits"])
    plot.xaxis.visible = False
    plot.min_border_bottom = 8
    return plot


def kinds_words(theme: Theme, *, others: bool = False, gpus: bool = False) -> str:
    """Return the legend of the stream's colors that belong to no task; `others` adds other users' work.

    With `gpus`, it also explains the end of a GPU task.
    """
    kinds = {
        "copying between processes": theme.transfer,
        "memory full, using disk": theme.disk,
        "unpacking": theme.other,
        "failed": theme.erred,
    }
    if others:
        kinds["other computations"] = theme.theirs
    return fragment(*(swatch(color, name) for name, color in kinds.items()), LAUNCHED if gpus else "")


LAUNCHED = "On a GPU a task ends when its kernels are launched; runs of workloads then wait for it (wait-for-gpu)."
"""Explanation of the end of a GPU task. CuPy doesn't wait for the device, and waiting after each task would slow down
the run. A run waits once, at its end (`linalg.backend.WAITING`).
"""
