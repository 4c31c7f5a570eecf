"""How fast each worker received from each other one, as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.figures.colors import THEMES, VIRIDIS, contrast
from workbench.formats import count
from workbench.runs.transfers import labels, speeds

if TYPE_CHECKING:
    from bokeh.models import Plot

_WIDE, _NARROW, _HIGH = 140, 66, 48
"""Pixels of a cell that holds three quartiles, or the median alone."""

_MOST_WITH_QUARTILES = 5
_MOST_LABELLED = 14
_MOST_PIXELS = 900


def bandwidth_figure(told: Mapping[str, Any], theme: str = "light") -> Plot | None:
    """Heat map of `result["bandwidth"]` of a run; None where nothing above 1 MB was sent.

    Rows receive, columns send. The colour is the median; the cells of few workers hold the quartiles as well, the
    others show them to whoever points at them.
    """
    if not told["n_messages"]:
        return None
    from bokeh.models import ColorBar, ColumnDataSource, HoverTool, LinearColorMapper
    from bokeh.plotting import figure

    look, names = THEMES[theme], labels(told["workers"])
    columns = _columns(told, names)
    top = max(columns["median"])
    mapper = LinearColorMapper(palette=list(VIRIDIS), low=0, high=top)
    columns["ink"] = [_ink(value / top) for value in columns["median"]]
    source = ColumnDataSource(columns)
    few = len(names) <= _MOST_WITH_QUARTILES
    across = min((_WIDE if few else _NARROW) * len(names), _MOST_PIXELS)
    plot = figure(
        title="Bandwidth between workers, MiB/s",
        x_range=names,
        y_range=names[::-1],
        frame_width=across,
        frame_height=min(_HIGH * len(names), _MOST_PIXELS),
        toolbar_location=None,
        tools="",
        x_axis_label="sends",
        y_axis_label="receives",
        background_fill_color=look.track,
        border_fill_color=look.background,
        outline_line_color=None,
        name="bandwidth",
    )
    cells = plot.rect(
        x="sender",
        y="receiver",
        width=0.96,
        height=0.96,
        source=source,
        fill_color={"field": "median", "transform": mapper},
        line_color=None,
    )
    if len(names) <= _MOST_LABELLED:
        written = {"source": source, "text_align": "center", "text_baseline": "middle", "text_color": "ink"}
        shown = "quartiles" if few else "middle"
        plot.text(x="sender", y="receiver", text=shown, text_font_size="11px", y_offset=-7, **written)
        plot.text(x="sender", y="receiver", text="count", text_font_size="10px", y_offset=9, **written)
    plot.add_tools(
        HoverTool(
            renderers=[cells],
            tooltips=[("from", "@sender"), ("to", "@receiver"), ("MiB/s", "@quartiles"), ("messages", "@messages")],
        )
    )
    bar = ColorBar(
        color_mapper=mapper,
        width=10,
        background_fill_color=None,
        major_label_text_color=look.muted,
        major_tick_line_color=None,
    )
    plot.add_layout(bar, "right")
    plot.title.text_color = look.text
    plot.grid.grid_line_color = None
    for axis in plot.axis:
        axis.major_label_text_color = axis.axis_label_text_color = look.muted
        axis.axis_line_color = axis.major_tick_line_color = None
    return plot


def _columns(told: Mapping[str, Any], names: list[str]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in ("receiver", "sender", "median", "quartiles", "messages")}
    for receiver, row in zip(names, told["matrix"], strict=True):
        for sender, cell in zip(names, row, strict=True):
            if cell is not None:
                columns["receiver"].append(receiver)
                columns["sender"].append(sender)
                columns["median"].append(cell["bandwidth"][1] / 2**20)
                columns["quartiles"].append(speeds(cell["bandwidth"]))
                columns["messages"].append(cell["count"])
    columns["middle"] = [speeds([value * 2**20]) for value in columns["median"]]
    columns["count"] = [count(each, "message") for each in columns["messages"]]
    return columns


def _ink(share: float) -> str:
    """Black or white, whichever is read more easily on this part of the palette."""
    ground = VIRIDIS[min(int(share * len(VIRIDIS)), len(VIRIDIS) - 1)]
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, ground))
