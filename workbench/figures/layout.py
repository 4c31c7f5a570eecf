"""The Bokeh layout of a figure: plots, the columns that they draw, and what the browser does when columns change.

All that changes while one watches travels as columns, so that a page which embeds the figure has one thing to do:
put columns into the sources that patches name. What follows from them (lanes and their labels, heights, the words in
an empty figure) is done here, by a few lines of JavaScript within the document.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from typing import Any

from bokeh.core.property.vectorization import value
from bokeh.layouts import column
from bokeh.models import (
    BasicTicker,
    BoxZoomTool,
    Column,
    ColumnDataSource,
    CustomJS,
    CustomJSTransform,
    Div,
    Range1d,
    TapTool,
    WheelZoomTool,
)
from bokeh.transform import transform

from workbench.figures import gpu_lines, replay
from workbench.figures.colors import Theme, swatch
from workbench.figures.gpu_layout import GpuSection, gpu_section
from workbench.figures.plots import FONT, hover, name_lanes, time_plot, words_style
from workbench.figures.replay import ReplayBar, replay_bar

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
    "progress": ("y", "foot", "done", "erred", "processing", "color", "name", "task", "count"),
    "lanes": ("label", "height", "worker"),
    "mark": ("task", "worker", "label"),
    "limits": ("cpu", "memory", "cpu_top", "memory_top"),
    "words": ("empty", "workers", "titles", "kinds"),
    "window": ("start", "end"),
    **replay.COLUMNS,
    **gpu_lines.COLUMNS,
}
"""Columns of each source. `window` holds the stretch of time to show while one follows, in ms since the epoch."""

_PROGRESS_ROW = 22
_BAR_ALPHA = {"light": (0.2, 0.3), "dark": (0.12, 0.22)}
"""Opacity of what is being computed, and on top of it of what is done: words on every colour keep 4.5:1."""

_LANE_ROOM = 62
"""Pixels of the task stream beside its lanes: title and time axis."""

_LANES_CHANGED = """
    const labels = lanes.data.label ?? []
    const n = labels.length
    ticker.ticks = labels.map((_, index) => index).filter((index) => labels[index])
    range.setv({start: Math.max(n, 1) - 0.5, end: -0.5})
    plot.height = lanes.data.height?.[0] ?? plot.height
"""

_PROGRESS_CHANGED = """
    const n = (progress.data.name ?? []).length
    range.setv({start: Math.max(n, 1) - 0.5, end: -0.5})
    plot.height = n * row + 36
    plot.visible = n > 0
"""

_LIMITS_CHANGED = """
    const {cpu_top, memory_top} = limits.data
    if (cpu_top?.length) cpu.end = cpu_top[0]
    if (memory_top?.length) memory.end = memory_top[0]
"""

_WORDS_CHANGED = """
    empty.text = words.data.empty?.[0] ?? ''
    empty.visible = empty.text !== ''
    workers.text = words.data.workers?.[0] ?? ''
    workers.visible = workers.text !== ''
    kinds.text = words.data.kinds?.[0] ?? kinds.text
    const mark = words.data.titles?.[0] ?? ''
    plots.forEach((plot, index) => { plot.title.text = titles[index] + mark })
"""

_DIMMED = """
    const wanted = columns.map(([key]) => mark.data[key]?.[0])
    const dim = (_, row) => wanted.some((value, i) => value && source.data[columns[i][1]]?.[row] !== value) ? least : 1
    return Array.from(xs, (alpha, row) => (typeof alpha === 'number' ? alpha : 1) * dim(alpha, row))
"""
"""Opacity of each row of a source: of what isn't marked little."""

_TAPPED = """
    const [row] = source.selected.indices
    if (row === undefined) return
    const task = source.data[name][row], label = source.data.worker?.[row] ?? ''
    const worker = label && (lanes.data.worker?.[Math.round(source.data.y[row])] ?? '')
    const again = mark.data.task?.[0] === task && mark.data.label?.[0] === label
    mark.data = {task: [again ? '' : task], worker: [again ? '' : worker], label: [again ? '' : label]}
    source.selected.indices = []
"""

_TITLES = ("Tasks", "Progress", "CPU, % of a core", "Memory, GiB")


@dataclass(frozen=True, slots=True)
class Layout:
    """A figure's models: the root, the sources by name, and what follows from their columns."""

    root: Column
    sources: dict[str, ColumnDataSource]
    time: Range1d
    stream: Any
    progress: Any
    cpu: Any
    memory: Any
    empty: Div
    workers: Div
    kinds: Div
    gpus: GpuSection
    replay: ReplayBar

    @property
    def titled(self) -> tuple[Any, ...]:
        """Plots whose titles say what all figures have in common; those of GPUs name their model."""
        return self.stream, self.progress, self.cpu, self.memory

    def arrange(self, source: str) -> None:
        """Do in Python what the browser does when the columns of a source change, for the document as it is sent."""
        data = self.sources[source].data
        match source:
            case "lanes":
                self._arrange_lanes(list(data["label"]), list(data["height"]))
            case "progress":
                self._arrange_progress(len(data["name"]))
            case "limits" if len(data["cpu_top"]):
                self.cpu.y_range.end = data["cpu_top"][0]
                self.memory.y_range.end = data["memory_top"][0]
            case "words" if len(data["empty"]):
                self.empty.update(text=data["empty"][0], visible=bool(data["empty"][0]))
                self.workers.update(text=data["workers"][0], visible=bool(data["workers"][0]))
                self.kinds.text = data["kinds"][0]
                for plot, title in zip(self.titled, _TITLES, strict=True):
                    plot.title.text = title + data["titles"][0]
            case "replay":
                self.replay.arrange()
            case "gpu_lanes" | "gpu_axes" | "gpu_words":
                self.gpus.arrange(source)

    def _arrange_lanes(self, labels: list[str], height: list[int]) -> None:
        self.stream.yaxis[0].ticker.ticks = [index for index, label in enumerate(labels) if label]
        self.stream.y_range.update(start=max(len(labels), 1) - 0.5, end=-0.5)
        if height:
            self.stream.height = height[0]

    def _arrange_progress(self, n_names: int) -> None:
        self.progress.y_range.update(start=max(n_names, 1) - 0.5, end=-0.5)
        self.progress.update(height=n_names * _PROGRESS_ROW + 36, visible=n_names > 0)


def stream_height(n_lanes: int) -> tuple[int, float]:
    """Height of the task stream for so many lanes, and of each lane, in pixels."""
    lane = min(26.0, max(5.0, 420.0 / max(n_lanes, 1)))
    lane = max(lane, 100.0 / max(n_lanes, 1))
    return round(n_lanes * lane) + _LANE_ROOM, lane


def build(theme: Theme) -> Layout:
    """Empty figure in the colours of a theme."""
    sources = {name: ColumnDataSource({key: [] for key in keys}, name=name) for name, keys in COLUMNS.items()}
    now = 1000 * clock.time()
    time = Range1d(start=now - 30_000, end=now, name="time")
    empty = Div(name="empty", visible=False, styles=words_style(theme), sizing_mode="stretch_width")
    workers = Div(name="worker_names", visible=False, styles=words_style(theme), sizing_mode="stretch_width")
    stream = _stream(theme, time, sources)
    cpu = _lines(theme, _TITLES[2], time, sources, "cpu", 112)
    memory = _lines(theme, _TITLES[3], time, sources, "memory", 1)
    gpus = gpu_section(theme, time, sources)
    layout = Layout(
        root=column(sizing_mode="stretch_width", styles={"background": theme.background}),
        sources=sources,
        time=time,
        stream=stream,
        progress=_progress(theme, sources),
        cpu=cpu,
        memory=memory,
        empty=empty,
        workers=workers,
        kinds=Div(text=kinds_words(theme), styles=words_style(theme), sizing_mode="stretch_width"),
        gpus=gpus,
        replay=replay_bar(theme, time, [stream, cpu, memory, *gpus.plots], [sources["replay"]], [sources["progress"]]),
    )
    layout.memory.xaxis.visible = True
    # A source that nothing draws must be in the document all the same, to be found by its name.
    layout.root.tags = [sources["window"], sources["words"]]
    layout.root.children = [
        empty,
        layout.replay.root,
        layout.progress,
        layout.stream,
        layout.kinds,
        layout.gpus.root,
        layout.cpu,
        layout.memory,
        workers,
    ]
    _react(layout)
    return layout


def _react(layout: Layout) -> None:
    sources = layout.sources
    reactions: dict[str, tuple[str, dict[str, Any]]] = {
        "lanes": (
            _LANES_CHANGED,
            {"range": layout.stream.y_range, "ticker": layout.stream.yaxis[0].ticker, "plot": layout.stream},
        ),
        "progress": (
            _PROGRESS_CHANGED,
            {"range": layout.progress.y_range, "plot": layout.progress, "row": _PROGRESS_ROW},
        ),
        "limits": (_LIMITS_CHANGED, {"cpu": layout.cpu.y_range, "memory": layout.memory.y_range}),
        "words": (
            _WORDS_CHANGED,
            {
                "empty": layout.empty,
                "workers": layout.workers,
                "kinds": layout.kinds,
                "plots": list(layout.titled),
                "titles": list(_TITLES),
            },
        ),
    }
    for name, (code, models) in reactions.items():
        sources[name].js_on_change("data", CustomJS(args={name: sources[name], **models}, code=code))
    mark, lanes = sources["mark"], sources["lanes"]
    drawn = [sources[name] for name in ("tasks", "progress", "workers_cpu", "workers_memory")]
    mark.js_on_change("data", CustomJS(args={"drawn": drawn}, code="drawn.forEach(each => each.change.emit())"))
    for name, column_ in (("tasks", "name"), ("progress", "task")):
        args = {"source": sources[name], "name": column_, "mark": mark, "lanes": lanes}
        sources[name].selected.js_on_change("indices", CustomJS(args=args, code=_TAPPED))


def _dimmed(sources: dict[str, ColumnDataSource], name: str, field: str, least: float = 0.15, **columns: str) -> Any:
    """Opacity of what a source draws: less where a task or worker is marked that isn't the one in these columns."""
    args = {"mark": sources["mark"], "source": sources[name], "columns": list(columns.items()), "least": least}
    return transform(field, CustomJSTransform(args=args, v_func=_DIMMED))


def _stream(theme: Theme, time: Range1d, sources: dict[str, ColumnDataSource]) -> Any:
    plot = time_plot(theme, _TITLES[0], time, Range1d(start=0.5, end=-0.5), stream_height(2)[0])
    bars = plot.hbar(
        y="y",
        height="height",
        left="left",
        right="right",
        fill_color="color",
        fill_alpha=_dimmed(sources, "tasks", "alpha", task="name", label="worker"),
        line_color="line",
        line_width=0.5,
        source=sources["tasks"],
    )
    bars.nonselection_glyph = None
    plot.add_tools(hover(theme, bars, "@kind@name@more", ("@duration", "worker @worker", "@nbytes", "@key")))
    wheel = WheelZoomTool(dimensions="width")
    plot.add_tools(wheel, BoxZoomTool(dimensions="width"), TapTool(renderers=[bars]))
    plot.toolbar.active_scroll = wheel
    name_lanes(plot, sources["lanes"])
    return plot


def _progress(theme: Theme, sources: dict[str, ColumnDataSource]) -> Any:
    source, dimmed = sources["progress"], _dimmed(sources, "progress", "name", 0.5, task="task")
    plot = time_plot(theme, _TITLES[1], Range1d(start=0, end=1), Range1d(start=0.5, end=-0.5), 60)
    plot.update(visible=False, toolbar_location=None, name="progress_plot")
    plot.toolbar.tools = [TapTool()]
    plot.axis.visible = False
    plot.grid.visible = False
    bar: dict[str, Any] = {"y": "y", "height": 0.82, "source": source}
    processing, done = _BAR_ALPHA[theme.name]
    plot.hbar(left=0, right=1, fill_color=theme.track, line_color=None, **bar)
    plot.hbar(left=0, right="processing", fill_color="color", fill_alpha=processing, line_color=None, **bar)
    plot.hbar(left=0, right="done", fill_color="color", fill_alpha=done, line_color=None, **bar)
    # At the foot of the bar, where it is in nobody's way.
    bar |= {"y": "foot", "height": 0.2}
    plot.hbar(left="done", right="erred", fill_color=theme.erred, line_color=None, **bar)
    words: dict[str, Any] = {
        "y": "y",
        "source": source,
        "text_baseline": "middle",
        "text_color": theme.text,
        "text_alpha": dimmed,
        "text_font": value(FONT),
        "text_font_size": "11px",
    }
    # The chip shows the colour as it is in the stream; the bar is paler, so that it can be written on.
    chip = {"marker": "square", "size": 12, "fill_color": "color", "fill_alpha": dimmed, "line_color": None}
    plot.scatter(x=0, y="y", source=source, **chip)
    plot.text(x=0, x_offset=14, text="name", **words)
    plot.text(x=1, x_offset=-6, text="count", text_align="right", **words)
    for renderer in plot.renderers:
        renderer.nonselection_glyph = None
    plot.min_border_bottom = 10
    return plot


def _lines(theme: Theme, title: str, time: Range1d, sources: dict[str, ColumnDataSource], name: str, top: float) -> Any:
    source, limits = sources[f"workers_{name}"], sources["limits"]
    alpha = _dimmed(sources, f"workers_{name}", "worker", label="worker")
    plot = time_plot(theme, title, time, Range1d(start=0, end=top), 118)
    lines = plot.segment(
        x0="x0", y0="y0", x1="x1", y1="y1", color="color", line_alpha=alpha, line_width=1.8, source=source
    )
    plot.hspan(y=name, line_color=theme.limit, line_dash="dashed", line_width=1, line_alpha=0.8, source=limits)
    plot.add_tools(hover(theme, lines, "@text", ("worker @worker",)))
    plot.xaxis.visible = False
    plot.min_border_bottom = 8
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=4)
    plot.yaxis.minor_tick_line_color = None
    return plot


def kinds_words(theme: Theme, *, others: bool = False, gpus: bool = False) -> str:
    """What the colours of the stream mean that are of no task; `others` where some were computed for others.

    With `gpus`, what the end of a task means there, too.
    """
    kinds = {
        "transfer": theme.transfer,
        "spill to or from disk": theme.disk,
        "deserialize": theme.other,
        "failed": theme.erred,
    }
    if others:
        kinds["other computations"] = theme.theirs
    return "".join(swatch(color, name) for name, color in kinds.items()) + (LAUNCHED if gpus else "")


LAUNCHED = "On a GPU a task ends when its kernels are launched; runs of workloads then wait for it (wait-for-gpu)."
"""CuPy doesn't wait for the device, and to wait for it after each task would slow down what is watched: a run waits
once, at its end (`linalg.backend.WAITING`)."""
