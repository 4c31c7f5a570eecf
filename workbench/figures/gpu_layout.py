"""The plots of GPUs within a figure, each visible only if it has something to show."""

from __future__ import annotations

from typing import Any

from bokeh.layouts import column
from bokeh.models import (
    CheckboxButtonGroup,
    Column,
    ColumnDataSource,
    Div,
    InlineStyleSheet,
    Range1d,
)

from workbench.figures.colors import Theme
from workbench.figures.gpu_lines import LINES_HEIGHT, PLOTS, QUANTITIES, USE, Quantity
from workbench.figures.plots import FONT, LEFT, draw_lines, hover, name_lanes, time_plot, words_style
from workbench.figures.reactions import reaction

_AT_FIRST = (0, 1, 2)
"""Plots that are shown first: use, memory and power; the others are a click away."""

_TIME_AXIS = 22


def gpu_section(theme: Theme, time: Range1d, sources: dict[str, ColumnDataSource]) -> tuple[Column, tuple[Any, ...]]:
    """Return the part of a figure that shows GPUs, and its plots, which appear with the first data."""
    plots = (_use(theme, time, sources), *(_lines(theme, time, quantity, sources) for quantity in QUANTITIES))
    words = Div(name="gpu_words", styles=words_style(theme), sizing_mode="stretch_width")
    choice = CheckboxButtonGroup(
        name="gpu_choice",
        labels=[quantity.label for quantity in PLOTS],
        active=list(_AT_FIRST),
        visible=False,
        margin=(6, 12, 2, LEFT),
        stylesheets=[InlineStyleSheet(css=_choice_style(theme))],
    )
    section = column(choice, *plots, words, visible=False, sizing_mode="stretch_width", name="gpus")
    axes = sources["gpu_axes"]
    react = reaction("gpus", axes=axes, plots=list(plots), choice=choice, time_axis=_TIME_AXIS)
    axes.js_on_change("data", react)
    choice.js_on_change("active", react)
    # Nothing draws it, but it must be in the document.
    section.tags = [axes]
    return section, plots


def _use(theme: Theme, time: Range1d, sources: dict[str, ColumnDataSource]) -> Any:
    plot = _plot(theme, USE, time, Range1d(start=0.5, end=-0.5), sources["window"])
    plot.hspan(y="foot", line_color=theme.grid, line_width=1, source=sources["gpu_lanes"])
    bars = plot.quad(
        left="left",
        right="right",
        bottom="bottom",
        top="top",
        fill_color="color",
        line_color="color",
        line_width=0.5,
        source=sources["gpu_use"],
    )
    plot.add_tools(hover(theme, bars, "@gpu", ("@text",), time="left"))
    name_lanes(plot, "gpu_use", sources["gpu_lanes"])
    return plot


def _lines(theme: Theme, time: Range1d, quantity: Quantity, sources: dict[str, ColumnDataSource]) -> Any:
    plot = _plot(theme, quantity, time, Range1d(start=0, end=quantity.top), sources["window"])
    limit = quantity.name if quantity.limit else None
    draw_lines(plot, theme, sources[f"gpu_{quantity.name}"], "@gpu", limit, sources["gpu_limits"], alpha="alpha")
    return plot


def _plot(theme: Theme, quantity: Quantity, time: Range1d, y_range: Range1d, window: ColumnDataSource) -> Any:
    plot = time_plot(theme, f"gpu_{quantity.name}", quantity.title, time, y_range, LINES_HEIGHT, window)
    plot.visible = False
    plot.axis.visible = False
    plot.min_border_bottom = 6
    return plot


def _choice_style(theme: Theme) -> str:
    return f"""
        .bk-btn-group {{ flex-wrap: wrap; gap: 2px; }}
        .bk-btn {{
            font: 11px {FONT}; padding: 2px 9px; border-radius: 9px; border: 1px solid {theme.grid};
            color: {theme.muted}; background: {theme.background};
        }}
        .bk-btn.bk-active {{ color: {theme.text}; background: {theme.track}; border-color: {theme.muted}; }}
    """
