"""Two records one above the other on one time scale, each from its first task on: before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import BoxAnnotation, Div, Range1d, Span

from workbench.figures.colors import THEMES
from workbench.figures.live import LiveFigure
from workbench.figures.patch import named
from workbench.figures.plots import FONT, LEFT
from workbench.figures.reactions import formatter
from workbench.figures.replay import at_the_end, replay_bar
from workbench.formats import duration
from workbench.monitor.events import Batch, microseconds

ORIGIN = 11_574 * 86_400.0
"""When the first task of every record begins here; the time axis shows what has passed since.

The beginning of a day, or the ticks of a time axis would stand at 5 s, 20 s, 35 s.
"""


@dataclass(frozen=True, slots=True)
class Record:
    """What was recorded of a run, and what to call it."""

    title: str
    events: Batch
    seconds: float | None = None
    """What the run took to build and compute."""


class BesideFigure:
    """Task streams, CPU and memory of records, pair by pair on one time axis, with one bar that plays them together."""

    def __init__(self, records: Sequence[Record], theme: str = "light") -> None:
        self.theme = THEMES[theme]
        self.figures = [_figure(record, theme) for record in records]
        edges = [figure.window() for figure in self.figures]
        self.time = Range1d(start=min(start for start, _ in edges), end=max(end for _, end in edges), name="time")
        layouts = [figure.layout for figure in self.figures]
        plots = [plot for layout in layouts for plot in (layout.stream, layout.cpu, layout.memory)]
        for plot in plots:
            plot.x_range = self.time
            plot.xaxis.formatter = formatter("elapsed", origin=1000 * ORIGIN)
            plot.xaxis.visible = True
        for pair in ([layout.cpu for layout in layouts], [layout.memory for layout in layouts]):
            top = max(plot.y_range.end for plot in pair)
            for plot in pair:
                plot.y_range.end = top
        sources = [layout.sources for layout in layouts]
        replays, progress = ([each[name] for each in sources] for name in ("replay", "progress"))
        bar = replay_bar(self.theme, self.time, plots, replays, progress)
        starts, ends = ([edge for each in replays for edge in each.data[of]] for of in ("start", "end"))
        models = named(bar)
        for patch in at_the_end((max(ends) - min(starts)) / 1000 if starts else 0.0):
            patch.apply(models[patch.source])
        self.model = column(
            bar,
            *(
                part
                for index, (record, layout) in enumerate(zip(records, layouts, strict=True))
                for part in (self._heading(record, _letter(index)), layout.stream)
            ),
            layouts[0].kinds,
            *(
                _named(getattr(layout, part), record.title, _letter(index))
                for part in ("progress", "cpu", "memory")
                for index, (record, layout) in enumerate(zip(records, layouts, strict=True))
            ),
            max((layout.workers for layout in layouts), key=lambda words: len(words.text)),
            sizing_mode="stretch_width",
            styles={"background": self.theme.background},
        )

    def item(self) -> dict[str, Any]:
        """Bokeh's JSON of the document, for `Bokeh.embed.embed_item`."""
        return dict(json_item(self.model))

    def _heading(self, record: Record, letter: str) -> Div:
        took = "" if record.seconds is None else f" · {duration(record.seconds)}"
        return Div(
            text=f"<b>{letter}</b> {escape(record.title)}{escape(took)}",
            styles={
                "color": self.theme.text,
                "font": f"14px {FONT}",
                "padding": f"8px 12px 0 {LEFT}px",
                "box-sizing": "border-box",
                "overflow-wrap": "anywhere",
            },
            sizing_mode="stretch_width",
        )


def _figure(record: Record, theme: str) -> LiveFigure:
    figure = LiveFigure(theme)
    figure.feed([_aligned(record.events)])
    figure.apply(figure.patches())
    figure.layout.stream.title.visible = False
    # One bar plays all records, instead of each its own.
    figure.layout.sources["replay"].js_property_callbacks = {}
    for plot in (figure.layout.stream, figure.layout.cpu, figure.layout.memory):
        plot.center = [each for each in plot.center if not isinstance(each, BoxAnnotation | Span)]
    return figure


def _aligned(batch: Batch) -> Batch:
    """A record whose first task begins at `ORIGIN`."""
    first = float(batch.tasks.start.min()) if len(batch.tasks) else batch.time
    moved = ORIGIN - first
    tasks = batch.tasks.replace(start=microseconds(batch.tasks.start + moved))
    return replace(
        batch,
        time=batch.time + moved,
        tasks=tasks,
        samples=tuple(replace(sample, time=sample.time + moved) for sample in batch.samples),
        gpus=tuple(replace(sample, time=sample.time + moved) for sample in batch.gpus),
    )


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _named(plot: Any, title: str, letter: str) -> Any:
    plot.title.text = f"{letter} · {plot.title.text}"
    return plot
