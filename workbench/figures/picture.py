"""A computation as a static picture and a table: SVG and HTML that need no JavaScript. No Bokeh here.

It fits a light and a dark page, so that it can be saved in a notebook and viewed anywhere.
"""

from __future__ import annotations

import base64
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from workbench import formats
from workbench.errors import on_one_line
from workbench.figures.colors import (
    DISK,
    ERRED,
    THEIRS,
    TRANSFER,
    neutral_colors,
    neutral_line,
)
from workbench.figures.gpu_lines import GpuSeries
from workbench.figures.layout import LAUNCHED, PARTS, Part
from workbench.figures.live import MOST_NAMES, count_words, natural, progress_bars
from workbench.figures.samples import Samples, Segments
from workbench.figures.timeline import Timeline, arranged
from workbench.markup import tag
from workbench.monitor.events import KINDS, Batch, Tasks

WIDTH = 960
_LEFT, _RIGHT = 150, 14
_PLOT = WIDTH - _LEFT - _RIGHT
_RECTANGLES = 3_000
_SEGMENTS = 300
_LANES_HEIGHT = 200
_LINES_HEIGHT = 64
_BAR = 17
_TITLE = 18
_GREY = "#797979"
"""Gray that is equally legible on white and on nearly black."""
_COMPUTE, _TRANSFER = KINDS.index("compute"), KINDS.index("transfer")
_TICKS = (1, 2, 5)


@dataclass(slots=True)
class Row:
    """Totals of the tasks of one name."""

    name: str
    tasks: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    failed: int = 0


class Picture:
    """Collector of events, batch by batch, that draws the picture, or some parts of it, at any time."""

    def __init__(self, parts: Sequence[Part] = PARTS) -> None:
        self._parts = parts
        self.rows: dict[str, Row] = {}
        self.transferring = 0.0
        """Seconds, summed over all threads."""
        self.n_others = 0
        self._timeline = Timeline()
        self._samples = Samples()
        self._series = self._samples.series
        self._gpus: dict[str, GpuSeries] = {}
        self._simulated = False
        self._counts: Mapping[str, Mapping[str, int]] = {}
        self._began: float | None = None
        self._recorded = False
        self._latest = 0.0
        self._peak = 0

    def feed(self, batches: Iterable[Batch]) -> None:
        """Take in events."""
        for batch in batches:
            self._began = batch.time if self._began is None else self._began
            self._recorded = self._recorded or batch.recorded
            self._latest = max(self._latest, batch.time)
            self._timeline.feed(batch)
            self._count(batch.tasks)
            self._samples.add(batch.samples)
            for gpu in batch.gpus:
                self._gpus.setdefault(gpu.uuid, GpuSeries()).add(gpu)
                self._simulated = self._simulated or gpu.simulated
            if batch.samples:
                latest = [series.latest for series in self._series.values() if series.latest is not None]
                self._peak = max(self._peak, sum(sample.memory for sample in latest))
            if batch.progress is not None:
                self._counts = batch.progress.counts

    @property
    def n_tasks(self) -> int:
        """Number of its own finished tasks."""
        return sum(row.tasks for row in self.rows.values())

    def summary(self) -> str:
        """Return one line about the computation, such as '125 tasks on 2 workers, 1.2 s of computing'."""
        workers = len({self._samples.name(lane.worker) for lane in self._timeline.lanes} | set(self._series))
        parts = [
            f"{formats.count(self.n_tasks, 'task')} on {formats.count(workers, 'worker')}",
            f"{formats.duration(sum(row.seconds for row in self.rows.values()))} of computing",
        ]
        if self.transferring:
            parts.append(f"{formats.duration(self.transferring)} of transfers")
        if self._peak:
            parts.append(f"up to {formats.size(self._peak)} seen in the workers")
        if self.n_others:
            parts.append(f"next to {formats.count(self.n_others, 'task')} of other computations")
        return ", ".join(parts)

    def table(self) -> str:
        """Return the tasks by name, longest total first, as an HTML table; '' without any."""
        rows = sorted(self.rows.values(), key=lambda row: -row.seconds)
        if not rows:
            return ""
        shown, rest = rows[:MOST_NAMES], rows[MOST_NAMES:]
        if rest:
            shown.append(
                Row(
                    f"{formats.count(len(rest), 'more name')}",
                    *(sum(getattr(row, name) for row in rest) for name in ("tasks", "seconds", "nbytes", "failed")),
                )
            )
        any_failed = any(row.failed for row in rows)
        head = ("Task", "Number", "Computing", "Mean", "Results", *(("Failed",) if any_failed else ()))
        body = (_table_row("td", _cells(row)[: len(head)]) for row in shown)
        return tag("table", tag("thead", _table_row("th", head)), tag("tbody", *body))

    def svg(self) -> Markup:
        """Return progress, task stream, workers' memory, and use and memory of GPUs if there are any."""
        begin, end = self._window()
        canvas = _Canvas(begin, end)
        if self._simulated:
            canvas.title("All of this on SIMULATED GPUs")
        for part, draw in (
            ("progress", self._draw_progress),
            ("tasks", self._draw_stream),
            ("memory", self._draw_workers),
            ("gpus", self._draw_gpus),
        ):
            if part in self._parts:
                draw(canvas)
        return canvas.finished()

    def image(self) -> Markup:
        """Return the picture as HTML that embeds the SVG as an image, which even an untrusted notebook shows."""
        data = base64.b64encode(self.svg().encode()).decode()
        source, style = f"data:image/svg+xml;base64,{data}", "max-width:100%;height:auto"
        return tag("img", alt=self.summary(), width=WIDTH, style=style, src=source)

    # -- counting

    def _count(self, tasks: Tasks) -> None:
        if not len(tasks):
            return
        own = tasks.own
        computed = (tasks.kind == _COMPUTE) & own
        seconds, codes, n_names = tasks.stop - tasks.start, tasks.name.codes, len(tasks.name.values)
        sums = [
            np.bincount(codes[computed], weights, n_names)
            for weights in (None, seconds[computed], tasks.nbytes[computed], tasks.erred[computed])
        ]
        for name, number, took, nbytes, failed in zip(
            tasks.name.values, *(each.tolist() for each in sums), strict=True
        ):
            if number:
                row = self.rows.setdefault(name, Row(name))
                row.tasks += int(number)
                row.seconds += took
                row.nbytes += int(nbytes)
                row.failed += int(failed)
        self.transferring += float(seconds[(tasks.kind == _TRANSFER) & own].sum())
        self.n_others += int(((tasks.kind == _COMPUTE) & ~own).sum())

    def _window(self) -> tuple[float, float]:
        span = self._timeline.span()
        # Tasks that started before the recording are drawn from its beginning on. A record arrives after its end.
        begin = span[0] if self._recorded and span is not None else self._began or 0.0
        end = self._latest if span is None else max(span[1], self._latest)
        return begin, max(end, begin + 1e-3)

    # -- drawing

    def _draw_progress(self, canvas: _Canvas) -> None:
        bars = progress_bars(self._counts)
        if bars:
            canvas.title("Progress")
        for names, count in bars:
            if len(names) > 1:
                canvas.bar(f"{len(names)} more names", count, _GREY)
            else:
                canvas.bar(names[0], count, neutral_colors()[self._timeline.colors.index(names[0])])

    def _draw_stream(self, canvas: _Canvas) -> None:
        view = self._timeline.view(canvas.begin, canvas.end, _PLOT, limit=_RECTANGLES)
        kinds = set(view.category.tolist())
        legend = {TRANSFER: "copying", DISK: "using disk", ERRED: "failed", THEIRS: "other computations"}
        colors = neutral_colors()
        canvas.title("Task stream", [(colors[kind], word) for kind, word in legend.items() if kind in kinds])
        seen = set(view.lane.tolist())
        rows, _ = arranged(self._timeline.lanes, seen, self._samples.name, self._workers(), {})
        lanes = list({row: lane for lane, row in rows.items()}.values())
        if not lanes:
            canvas.note("No task has finished." if self._counts else "No task came to the cluster.")
            return
        height = min(18.0, max(2.0, _LANES_HEIGHT / len(lanes)))
        self._name_lanes(canvas, lanes, height)
        groups: dict[tuple[str, float], list[str]] = defaultdict(list)
        view = view.in_order()
        opacity = np.where(view.count == 1, 1.0, np.ceil(4 * (0.25 + 0.75 * view.fill)) / 4)
        for start, stop, lane, category, shade in zip(
            canvas.x(view.start).tolist(),
            canvas.x(view.stop).tolist(),
            view.lane.tolist(),
            view.category.tolist(),
            opacity.tolist(),
            strict=True,
        ):
            is_transfer = TRANSFER <= category < ERRED
            top = canvas.y + rows[lane] * height + (0.64 * height if is_transfer else 0.06 * height)
            tall = (0.3 if is_transfer else 0.88) * height
            groups[colors[category], shade].append(_rectangle(start, top, max(stop - start, 0.7), tall))
        for (color, shade), parts in groups.items():
            canvas.path("".join(parts), fill=color, opacity=shade)
        canvas.down(height * len(lanes))
        canvas.axis()

    def _name_lanes(self, canvas: _Canvas, lanes: Sequence[int], height: float) -> None:
        named, free = None, -1e9
        for index, lane in enumerate(lanes):
            worker = self._samples.name(self._timeline.lanes[lane].worker)
            y = canvas.y + index * height
            if worker != named and y - free >= 12:
                canvas.label(self._label(worker), y + max(height / 2, 5))
                named, free = worker, y

    def _workers(self) -> list[str]:
        return sorted(self._series, key=lambda each: natural(self._short(each)))

    def _short(self, worker: str) -> str:
        return self._samples.name(worker).rpartition("://")[2]

    def _label(self, worker: str) -> str:
        short = self._short(worker)
        return f"worker {short}" if len(short) <= 3 else short[-20:]

    def _draw_workers(self, canvas: _Canvas) -> None:
        lines, named = [], []
        for index, worker in enumerate(self._workers()):
            if len(segments := self._series[worker].segments("memory", canvas.begin, canvas.end, _SEGMENTS)):
                lines.append((neutral_line(index), segments))
                named.append((neutral_line(index), self._label(worker)))
        if lines:
            canvas.title("Worker memory", named if len(named) <= 6 else [])
            canvas.lines(lines, formats.size)

    def _draw_gpus(self, canvas: _Canvas) -> None:
        if not self._gpus:
            return
        gpus = [(neutral_line(index), gpu) for index, gpu in enumerate(self._gpus.values())]
        named = [(color, f"GPU {gpu.latest.index}") for color, gpu in gpus] if len(gpus) <= 8 else []
        lines = [(color, gpu.thinned(canvas.begin, canvas.end, _SEGMENTS).lines) for color, gpu in gpus]
        use = [(color, each["utilisation"]) for color, each in lines]
        canvas.title("GPU use", named)
        canvas.note(LAUNCHED)
        canvas.lines(use, lambda value: f"{value:.0f} %", top=100.0)
        canvas.title("GPU memory", named)
        canvas.lines([(color, each["memory_used"]) for color, each in lines], formats.size)


class _Canvas:
    """SVG that grows downward, with time from left to right."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, end
        self.y = 2.0
        self._parts: list[str] = []

    def x(self, time: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        share = (np.clip(time, self.begin, self.end) - self.begin) / (self.end - self.begin)
        return _LEFT + _PLOT * share

    def down(self, height: float) -> None:
        self.y += height

    def title(self, text: str, legend: Sequence[tuple[str, str]] = ()) -> None:
        self.down(4)
        self._text(text, 0, self.y + 12, weight=600)
        left = float(_LEFT)
        for color, word in legend:
            self.path(_rectangle(left, self.y + 4, 9, 9), fill=color)
            self._text(word, left + 13, self.y + 12)
            left += 26 + 6.4 * len(word)
        self.down(_TITLE)

    def note(self, text: str) -> None:
        self._text(text, _LEFT, self.y + 12)
        self.down(_TITLE)

    def label(self, text: str, middle: float) -> None:
        self._text(text, _LEFT - 8, middle + 4, anchor="end")

    def bar(self, name: str, count: Mapping[str, int], color: str) -> None:
        words = count_words(count)
        room = _PLOT - 130
        done, erred = (room * count[how] / count["total"] for how in ("done", "erred"))
        top, height = self.y + 3, _BAR - 6
        self.label(_short(name), self.y + _BAR / 2)
        self.path(_rectangle(_LEFT, top, room, height), fill=_GREY, opacity=0.2)
        self.path(_rectangle(_LEFT, top, done, height), fill=color)
        if erred:
            self.path(_rectangle(_LEFT + done, top, erred, height), fill=neutral_colors()[ERRED])
        self._text(words, _LEFT + room + 10, self.y + _BAR / 2 + 4)
        self.down(_BAR)

    def axis(self) -> None:
        seconds = self.end - self.begin
        step = _step(seconds / 8)
        for index in range(int(seconds / step) + 1):
            x = _LEFT + _PLOT * index * step / seconds
            self.path(f"M{x:.1f} {self.y:.1f}v4", stroke=_GREY)
            anchor = "end" if x > WIDTH - 40 else "middle"
            self._text(formats.duration(index * step) if index else "0", x, self.y + 15, anchor=anchor)
        self.down(20)

    def lines(self, lines: Sequence[tuple[str, Segments]], words: Callable[[float], str], top: float = 0.0) -> None:
        most = max([top, *(max(y0, y1) for _, segments in lines for _, y0, _, y1 in segments)]) or 1.0
        foot = self.y + _LINES_HEIGHT
        self.path(f"M{_LEFT} {foot:.1f}h{_PLOT}M{_LEFT} {self.y:.1f}h{_PLOT}", stroke=_GREY, opacity=0.3)
        self.label(words(most), self.y + 4)
        self.label("0", foot - 4)
        for color, segments in lines:
            parts, last = [], None
            for x0, y0, x1, y1 in segments:
                left, right = self.x(np.array([x0, x1])).tolist()
                if right <= left:
                    continue
                y_left, y_right = (foot - _LINES_HEIGHT * value / most for value in (y0, y1))
                if last != (left, y_left):
                    parts.append(f"M{left:.1f} {y_left:.1f}")
                parts.append(f"L{right:.1f} {y_right:.1f}")
                last = (right, y_right)
            self.path("".join(parts), stroke=color, stroke_width=1.6)
        self.down(_LINES_HEIGHT + 6)

    def path(
        self, data: str, *, fill: str = "none", stroke: str = "none", opacity: float = 1.0, stroke_width: float = 1.0
    ) -> None:
        if not data:
            return
        more = f' opacity="{opacity:g}"' if opacity < 1 else ""
        more += f' stroke="{stroke}" stroke-width="{stroke_width:g}"' if stroke != "none" else ""
        self._parts.append(f'<path d="{data}" fill="{fill}"{more}/>')

    def finished(self) -> Markup:
        height = math.ceil(self.y + 2)
        return Markup(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'font-family="system-ui,-apple-system,\'Segoe UI\',Roboto,Arial,sans-serif" font-size="12" '
            f'fill="{_GREY}">{"".join(self._parts)}</svg>'
        )

    def _text(self, text: str, x: float, y: float, anchor: str = "start", weight: int = 400) -> None:
        more = f' text-anchor="{anchor}"' if anchor != "start" else ""
        more += f' font-weight="{weight}"' if weight != 400 else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(on_one_line(text))}</text>')


def _short(name: str) -> str:
    # A wide font takes 7.5 pixels for each letter of the margin.
    return name if len(name) <= 18 else f"{name[:17]}…"


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"


def _step(least: float) -> float:
    size = 10 ** math.floor(math.log10(least))
    return next(size * factor for factor in (*_TICKS, 10) if size * factor >= least)


def _cells(row: Row) -> tuple[str, ...]:
    mean = formats.duration(row.seconds / row.tasks) if row.tasks else ""
    return (
        row.name,
        formats.count(row.tasks),
        formats.duration(row.seconds),
        mean,
        formats.size(row.nbytes),
        str(row.failed),
    )


def _table_row(kind: str, cells: Iterable[str]) -> str:
    return tag(
        "tr",
        *(tag(kind, cell, style=f"text-align:{'right' if place else 'left'}") for place, cell in enumerate(cells)),
    )
