"""Interactive pictures of an answer on a page: zoom, hover, and a click on a group's name to hide it."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import ColorBar, ColumnDataSource, HoverTool, LinearColorMapper, Plot, Whisker
from bokeh.palettes import RdBu11, Viridis256
from bokeh.plotting import figure

from workbench.figures.answers import Dots, Line, Map, Picture, top_of
from workbench.figures.colors import GROUPS, THEMES, Theme
from workbench.figures.plots import FONT, dress

_DOT = 6  # pixels
_MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "hex", "star")
"""Markers that distinguish labels of the same color."""


def answer_figure(picture: Picture, theme: str = "light") -> Plot:
    """Return the plot of a picture, in the colors of a theme."""
    look, drawn = THEMES[theme], picture.drawn
    plot = _plot(look, picture)
    if isinstance(drawn, Dots):
        _draw_dots(plot, drawn, look)
    elif isinstance(drawn, Map):
        _draw_map(plot, drawn, look)
    else:
        _draw_lines(plot, drawn, look)
        if picture.name in ("scree", "error"):
            plot.y_range.update(start=0, end=top_of(drawn))
            plot.xaxis.ticker = list(range(1, len(drawn[0].x) + 1, -(-len(drawn[0].x) // 20)))
    return plot


def _draw_lines(plot: Any, lines: tuple[Line, ...], look: Theme) -> None:
    for line, color in zip(lines, GROUPS[look.name], strict=False):
        legend = {"legend_label": line.name} if line.name else {}
        plot.line(line.x, line.y, color=color, line_width=1.5, **legend)
        if len(line.x) <= 100:
            plot.scatter(line.x, line.y, color=color, size=_DOT, **legend)
        if line.low is not None and line.high is not None and (line.high > line.low).any():
            source = ColumnDataSource({"x": line.x, "low": line.low, "high": line.high})
            plot.add_layout(Whisker(base="x", lower="low", upper="high", source=source, line_color=look.text))
    if any(line.name for line in lines):
        _dress_legend(plot, look)


def _draw_dots(plot: Any, dots: Dots, look: Theme) -> None:
    colors, labels = GROUPS[look.name], np.array(dots.labels or [""] * len(dots.x))
    for index, name in enumerate(dict.fromkeys(labels.tolist())):
        mine = labels == name
        columns: dict[str, Any] = {"x": dots.x[mine], "y": dots.y[mine], "label": labels[mine]}
        if dots.names:
            columns["name"] = np.array(dots.names)[mine]
        plot.scatter(
            "x",
            "y",
            source=ColumnDataSource(columns),
            marker=_MARKERS[index // len(colors) % len(_MARKERS)],
            size=_DOT + 1,
            fill_color=colors[index % len(colors)],
            line_color=look.background,
            line_width=0.5,
            **({"legend_label": str(name)} if name else {}),
        )
    tooltips = [("name", "@name")] * bool(dots.names) + [(dots.label, "@label")] * bool(dots.labels)
    plot.add_tools(HoverTool(tooltips=[*tooltips, ("at", "@x, @y")]))
    if dots.labels:
        _dress_legend(plot, look, dots.label)


def _draw_map(plot: Any, drawn: Map, look: Theme) -> None:
    low, high = drawn.range
    # Zero is white, and missing values are gray.
    palette = RdBu11 if low < 0 < high else Viridis256
    mapper = LinearColorMapper(palette=palette, low=low, high=high, nan_color=look.grid)
    left, width = _edges(drawn.x)
    bottom, height = _edges(drawn.y)
    # Bokeh draws the first row at the bottom and the first column at the left.
    rows = slice(None, None, -1 if len(drawn.y) > 1 and drawn.y[1] < drawn.y[0] else 1)
    columns = slice(None, None, -1 if len(drawn.x) > 1 and drawn.x[1] < drawn.x[0] else 1)
    image = drawn.values[rows, columns]
    plot.y_range.flipped = drawn.from_top
    plot.image([image], x=left, y=bottom, dw=width, dh=height, color_mapper=mapper)
    plot.add_layout(
        ColorBar(color_mapper=mapper, background_fill_color=look.background, major_label_text_color=look.muted), "right"
    )
    plot.add_tools(HoverTool(tooltips=[("value", "@image"), ("at", "$x, $y")]))


def _edges(centres: Any) -> tuple[float, float]:
    """Return the start and the length of an image, given the evenly spaced centers of its cells."""
    low, high = float(np.min(centres)), float(np.max(centres))
    cell = (high - low) / (len(centres) - 1) if len(centres) > 1 else 1.0
    return low - cell / 2, high - low + cell


def _dress_legend(plot: Any, look: Theme, title: str | None = None) -> None:
    plot.add_layout(plot.legend[0], "right")
    plot.legend[0].update(
        click_policy="hide",
        title=title,
        background_fill_color=look.background,
        border_line_color=None,
        label_text_color=look.text,
        label_text_font=FONT,
        title_text_color=look.muted,
        title_text_font=FONT,
        label_text_font_size="11px",
    )


def _plot(look: Theme, picture: Picture) -> Any:
    drawn = picture.drawn
    is_map = isinstance(drawn, Map)
    times = isinstance(drawn, tuple) and drawn[0].x.dtype.kind == "M"
    plot = figure(
        title=picture.title,
        x_axis_label=picture.across,
        y_axis_label=picture.up,
        x_axis_type="datetime" if times else "auto",
        match_aspect=is_map,
        width=760,
        height=340,
        # If there is less room, a map shrinks in both directions.
        sizing_mode="scale_width" if is_map else "stretch_width",
        max_width=760,
        tools="save" if picture.name in ("scree", "error") else "pan,wheel_zoom,reset,save",
        toolbar_location="above",
    )
    plot.toolbar.logo = None
    dress(plot, look)
    for axis in plot.axis:
        axis.update(axis_label_text_color=look.muted, axis_label_text_font=FONT, axis_label_text_font_style="normal")
    return plot
