"""Replay of a record: a bar with play, speed and a slider, and covers that hide the future.

All of it runs in the page, by functions of labext/src/figures within the document, so it needs neither a server nor a
kernel. The drawing doesn't change: a cover lies over each plot from the playhead on, in a layer of its own, so that
moving it doesn't redraw thousands of rectangles. Progress is looked up in counts that are sent with the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from bokeh.layouts import row
from bokeh.models import (
    BoxAnnotation,
    Button,
    ColumnDataSource,
    Div,
    InlineStyleSheet,
    RadioButtonGroup,
    Range1d,
    Row,
    Slider,
    Span,
)

from workbench.figures.colors import Theme
from workbench.figures.patch import Patch
from workbench.figures.plots import FONT, LEFT
from workbench.figures.reactions import reaction
from workbench.monitor.events import KINDS, Tasks

COLUMNS = {"replay": ("start", "end", "counts")}
"""Columns with one row: start and end of the record (in ms), and its counts as JSON; see `counts_over_time`."""

STEPS = 400
"""Number of moments at which tasks are counted, more than the visible steps of a progress bar."""

SPEEDS = (1, 10, 100)
PLAY, PAUSE = "▶ Play", "❚❚ Pause"

_COMPUTE = KINDS.index("compute")


def at_the_end(seconds: float) -> Iterator[Patch]:
    """Yield the state of the bar for a record of this many seconds, which is shown whole."""
    digits = 2 if seconds < 10 else 1 if seconds < 100 else 0
    yield Patch("replay_clock", "set", {"text": f"{seconds:.{digits}f} of {seconds:.{digits}f} s"})
    yield Patch("replay_bar", "set", {"visible": seconds > 0})
    if seconds > 0:
        yield Patch("head", "set", {"end": seconds, "step": seconds / 1000, "value": seconds})


def replay_bar(
    theme: Theme, time: Range1d, plots: Sequence[Any], record: ColumnDataSource, progress: ColumnDataSource
) -> Row:
    """Return a bar that plays a record; it appears with the record.

    `plots` are covered from the playhead on, and their time axis follows when the playhead leaves it. `record` is the
    source of `COLUMNS`, and `progress` that of the progress bars.
    """
    covers = [BoxAnnotation(fill_color=theme.background, fill_alpha=1, **_NO_LINE) for _ in plots]
    heads = [Span(dimension="height", line_color=theme.text, line_width=1, **_OVER) for _ in plots]
    for plot, cover, head in zip(plots, covers, heads, strict=True):
        plot.add_layout(cover)
        plot.add_layout(head)
    style = [InlineStyleSheet(css=_style(theme))]
    button = Button(label=PLAY, name="play", width=92, stylesheets=style, margin=(0, 8, 0, 0))
    speed = RadioButtonGroup(labels=[f"{each}×" for each in SPEEDS], active=0, stylesheets=style, margin=(0, 12, 0, 0))
    slider = Slider(
        start=0,
        end=1,
        value=1,
        step=0.001,
        show_value=False,
        # The clock shows the value, and over the handle it would hide the buttons of a narrow page.
        tooltips=False,
        title="",
        html_attributes={"role": "group", "aria-label": "Time of the replay"},
        name="head",
        bar_color=theme.muted,
        sizing_mode="stretch_width",
        # A slider of a few pixels can't be moved; a tab may be narrower still.
        stylesheets=[*style, InlineStyleSheet(css=":host { min-width: min(150px, calc(100% - 16px)); }")],
        margin=(4, 8, 0, 8),
    )
    clock = Div(
        name="replay_clock",
        styles={"color": theme.muted, "font": f"12px {FONT}", "font-variant-numeric": "tabular-nums"},
        margin=(6, 0, 0, 8),
        width=104,
    )
    bar = row(
        button,
        speed,
        slider,
        clock,
        name="replay_bar",
        visible=False,
        sizing_mode="stretch_width",
        margin=(4, 12, 6, LEFT),
        stylesheets=[InlineStyleSheet(css=":host { flex-wrap: wrap; row-gap: 6px; }")],
        # Nothing draws it, but it must be in the document.
        tags=[record],
    )
    common = {"slider": slider, "record": record}
    moved = reaction("replayed", **common, covers=covers, heads=heads, clock=clock, progress=progress)
    slider.js_on_change("value", moved)
    buttons = {"button": button, "labels": [PLAY, PAUSE], "speed": speed, "speeds": list(SPEEDS)}
    play = reaction("play", **common, **buttons, time=time)
    button.js_on_event("button_click", play)
    # Lets a page start to play by itself.
    button.js_on_change("tags", play)
    return bar


def counts_over_time(
    tasks: Tasks, bars: Sequence[tuple[Sequence[str], Mapping[str, int]]], start: float, end: float
) -> list[dict[str, Any]]:
    """Count the started, done and failed tasks of each progress bar by the end of each of `STEPS` steps.

    `bars` are the task names of each bar, and its final counts. The returned numbers end with these: tasks that the
    scheduler counted but no worker reported are spread in proportion. Times are in seconds since the epoch.
    """
    counted = _TaskCounts(tasks, start, end)
    return [
        {
            "total": final["total"],
            "started": _fitted(counted.of(names, "started"), final["done"] + final["erred"]),
            "done": _fitted(counted.of(names, "done"), final["done"]),
            "erred": _fitted(counted.of(names, "erred"), final["erred"]),
        }
        for names, final in bars
    ]


def replay_columns(
    tasks: Tasks,
    bars: Sequence[tuple[Sequence[str], Mapping[str, int]]],
    bar_columns: Mapping[str, list[Any]],
    start: float,
    end: float,
) -> dict[str, list[Any]]:
    """Return the columns of the source `replay`; `bar_columns` are those of the final progress bars."""
    counts = {
        "steps": STEPS,
        "names": counts_over_time(tasks, bars, start, end),
        "final": {name: bar_columns[name] for name in ("done", "erred", "processing", "count")},
    }
    return {"start": [1000 * start], "end": [1000 * end], "counts": [json.dumps(counts, separators=(",", ":"))]}


_OVER: dict[str, Any] = {"level": "overlay", "visible": False}
_NO_LINE: dict[str, Any] = {"line_color": None, "left": 0, **_OVER}


class _TaskCounts:
    """Tasks of each name, by the step in which they started or ended."""

    def __init__(self, tasks: Tasks, start: float, end: float) -> None:
        self._place = {name: index for index, name in enumerate(tasks.name.values)}
        computed = tasks.kind == _COMPUTE
        self._by_kind = {
            "started": self._binned(tasks, tasks.start, computed, start, end),
            "done": self._binned(tasks, tasks.stop, computed & ~tasks.erred, start, end),
            "erred": self._binned(tasks, tasks.stop, computed & tasks.erred, start, end),
        }

    def _binned(self, tasks: Tasks, time: Any, rows: Any, start: float, end: float) -> npt.NDArray[np.int64]:
        step = np.clip((STEPS * (time[rows] - start) / max(end - start, 1e-9)).astype(np.int64), 0, STEPS - 1)
        slots = tasks.name.codes[rows].astype(np.int64) * STEPS + step
        return np.bincount(slots, minlength=STEPS * max(1, len(self._place))).reshape(-1, STEPS)

    def of(self, names: Sequence[str], kind: str) -> npt.NDArray[np.float64]:
        """Return the number of such tasks by the end of each step."""
        rows = [self._place[name] for name in names if name in self._place]
        return self._by_kind[kind][rows].sum(0).cumsum().astype(float)


def _fitted(counts: npt.NDArray[np.float64], final: int) -> list[int]:
    if counts[-1] == 0:
        return [0] * (STEPS - 1) + [final]
    return np.rint(counts * (final / counts[-1])).astype(int).tolist()


def _style(theme: Theme) -> str:
    return f"""
        .bk-btn-group {{ gap: 2px; }}
        .bk-btn {{
            font: 12px {FONT}; padding: 3px 9px; border-radius: 9px; border: 1px solid {theme.grid};
            color: {theme.text}; background: {theme.background};
        }}
        .bk-btn:hover {{ background: {theme.track}; }}
        .bk-btn.bk-active {{ background: {theme.track}; border-color: {theme.muted}; }}
        .noUi-target {{ background: {theme.track}; border-color: {theme.grid}; box-shadow: none; }}
        .noUi-handle {{ background: {theme.text}; border-color: {theme.background}; box-shadow: none; }}
    """
