"""How long a sweep of protocols took: a mark for each protocol and size of blocks, with the spread of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.figures.colors import THEMES, Theme, worker_color
from workbench.figures.plots import FONT, dress, hover
from workbench.runs.transfers import speeds
from workbench.workloads.sweep import PROTOCOLS

if TYPE_CHECKING:
    from bokeh.models import Plot

_ROOM = 0.6
"""Part of a block size's place across that its protocols share."""

_HEIGHT = 300  # pixels
_MARKERS = (("circle", 9), ("square", 8), ("triangle", 11))
"""And their size in pixels. Protocols differ in more than their colour."""


def protocols_figure(told: Mapping[str, Any], theme: str = "light") -> Plot:
    """Median seconds of each protocol at each size of blocks, with the quartiles as bars.

    Parameters
    ----------
    told
        Result of a sweep, as `workbench.runs.sweep.outcome` makes it.
    """
    from bokeh.models import ColumnDataSource, FactorRange, Legend, LegendItem, Range1d
    from bokeh.plotting import figure

    look, lines = THEMES[theme], told["summary"]
    there = [name for name in PROTOCOLS if any(line["protocol"] == name for line in lines)]
    plot = figure(
        title="Seconds: median and quartiles",
        x_range=FactorRange(*dict.fromkeys(_block(line) for line in lines)),
        x_axis_label="blocks, elements",
        y_axis_label="seconds",
        height=_HEIGHT,
        sizing_mode="stretch_width",
        max_width=760,
        tools="",
        toolbar_location=None,
        background_fill_color=look.background,
        border_fill_color=look.background,
        outline_line_color=None,
        name="protocols",
    )
    items = []
    for index, name in enumerate(there):
        shift = _ROOM * ((index + 0.5) / len(there) - 0.5)
        source = ColumnDataSource(_columns([line for line in lines if line["protocol"] == name], shift))
        items.append(LegendItem(label=name, renderers=[_drawn(plot, source, PROTOCOLS.index(name), look)]))
    plot.add_layout(Legend(items=items, orientation="horizontal"), "above")
    # What doesn't begin at nothing makes a mountain of any difference.
    plot.y_range = Range1d(start=0, end=1.08 * max(line["quartiles"][1] for line in lines))
    _dressed(plot, look)
    return plot


def _block(line: Mapping[str, Any]) -> str:
    return " × ".join(map(str, line["chunks"]))


def _columns(lines: list[Mapping[str, Any]], shift: float) -> dict[str, list[Any]]:
    low, high = zip(*(line["quartiles"] for line in lines), strict=True)
    return {
        # Bokeh's way of saying: this far beside the middle of the category.
        "x": [(_block(line), shift) for line in lines],
        "block": [_block(line) for line in lines],
        "protocol": [line["protocol"] for line in lines],
        "seconds": [line["seconds"] for line in lines],
        "low": list(low),
        "high": list(high),
        "text": [
            f"{line['seconds']:.3g} s ({first:.3g} – {third:.3g})"
            for line, first, third in zip(lines, low, high, strict=True)
        ],
        "speed": [speeds([line["bandwidth"]]) if line["bandwidth"] else "–" for line in lines],
        "transport": [line["transport"] for line in lines],
    }


def _drawn(plot: Any, source: Any, index: int, look: Theme) -> Any:
    from bokeh.models import TeeHead, Whisker

    color, (marker, size) = worker_color(index, look), _MARKERS[index]
    plot.add_layout(
        Whisker(
            base="x",
            lower="low",
            upper="high",
            source=source,
            line_color=color,
            line_width=1.5,
            lower_head=TeeHead(size=8, line_color=color, line_width=1.5),
            upper_head=TeeHead(size=8, line_color=color, line_width=1.5),
        )
    )
    marks = plot.scatter(
        "x", "seconds", source=source, marker=marker, size=size, fill_color=color, line_color=look.background
    )
    plot.add_tools(hover(look, marks, "@protocol", ("blocks of @block", "@text", "@speed MB/s", "over @transport")))
    return marks


def _dressed(plot: Any, look: Theme) -> None:
    dress(plot, look)
    plot.xgrid.grid_line_color = None
    for axis in plot.axis:
        axis.update(axis_label_text_color=look.muted, axis_label_text_font=FONT, axis_label_text_font_style="normal")
    plot.legend[0].update(
        background_fill_color=look.background,
        border_line_color=None,
        label_text_color=look.text,
        label_text_font=FONT,
        label_text_font_size="11px",
        padding=0,
        margin=4,
    )
