"""The plots of GPUs within a figure: shown where there are GPUs, and each only where it has something to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.layouts import column
from bokeh.models import (
    BasicTicker,
    CheckboxButtonGroup,
    Column,
    ColumnDataSource,
    CustomJS,
    Div,
    InlineStyleSheet,
    Range1d,
)

from workbench.figures.colors import Theme
from workbench.figures.gpu_lines import PLOTS, QUANTITIES, USE, Quantity
from workbench.figures.plots import FONT, LEFT, hover, name_lanes, time_plot, words_style

_AT_FIRST = (0, 1, 2)
"""Use, memory and power; the others are a click away."""

_ROOM = 34
"""Pixels of a plot beside its lanes: the title."""
_LINES_HEIGHT = 104
_TIME_AXIS = 22

_CHANGED = """
    const {title, shown, top} = axes.data
    const there = (title ?? []).map((_, index) => shown[index] && choice.active.includes(index))
    const last = there.lastIndexOf(true)
    plots.forEach((plot, index) => {
        if (title?.[index]) plot.title.text = title[index]
        plot.visible = there[index] ?? false
        plot.left[0].visible = plot.visible
        plot.below[0].visible = index === last
        if (index && top?.[index]) plot.y_range.end = top[index]
    })
    const n = (lanes.data.label ?? []).length
    plots[0].left[0].ticker.ticks = [...Array(n).keys()]
    plots[0].y_range.setv({start: Math.max(n, 1) - 0.5, end: -0.5})
    const extra = (index) => (index === last ? axis : 0)
    if (n) plots[0].height = lanes.data.height[0] + room + extra(0)
    plots.forEach((plot, index) => { if (index) plot.height = lines + extra(index) })
    words.text = said.data.text?.[0] ?? ''
    choice.visible = n > 0
    root.visible = words.text !== ''
"""


@dataclass(frozen=True, slots=True)
class GpuSection:
    """Models of the GPUs' part of a figure, and what follows from their columns."""

    root: Column
    plots: tuple[Any, ...]
    choice: CheckboxButtonGroup
    words: Div
    sources: dict[str, ColumnDataSource]

    def show(self, chosen: Sequence[int]) -> None:
        """Show these of `PLOTS`, where they have something to show."""
        self.choice.active = list(chosen)
        self.arrange("gpu_axes")

    def arrange(self, source: str) -> None:
        """Do in Python what the browser does when columns change."""
        axes, lanes = self.sources["gpu_axes"].data, self.sources["gpu_lanes"].data
        n_lanes = len(lanes["label"])
        there = [index for index, shown in enumerate(axes["shown"]) if shown and index in self.choice.active]
        for index, plot in enumerate(self.plots):
            last = bool(there) and index == there[-1]
            plot.visible = index in there
            # A hidden plot whose axis is not hidden computes the layout of all plots anew in every frame of a pan.
            plot.yaxis.visible = index in there
            plot.xaxis.visible = last
            if index < len(axes["title"]):
                plot.title.text = axes["title"][index]
            if index and index < len(axes["top"]):
                plot.y_range.end = axes["top"][index]
            height = _LINES_HEIGHT if index else (lanes["height"][0] if n_lanes else 0) + _ROOM
            plot.height = height + (_TIME_AXIS if last else 0)
        use = self.plots[0]
        use.yaxis[0].ticker.ticks = list(range(n_lanes))
        use.y_range.update(start=max(n_lanes, 1) - 0.5, end=-0.5)
        said = self.sources["gpu_words"].data["text"]
        self.words.text = said[0] if len(said) else ""
        self.choice.visible = n_lanes > 0
        self.root.visible = self.words.text != ""


def gpu_section(theme: Theme, time: Range1d, sources: dict[str, ColumnDataSource]) -> GpuSection:
    """Empty plots of GPUs, which appear when there is something to say of them."""
    plots = (_use(theme, time, sources), *(_lines(theme, time, quantity, sources) for quantity in QUANTITIES))
    words = Div(styles=words_style(theme), sizing_mode="stretch_width")
    choice = CheckboxButtonGroup(
        labels=[quantity.label for quantity in PLOTS],
        active=list(_AT_FIRST),
        visible=False,
        margin=(6, 12, 2, LEFT),
        stylesheets=[InlineStyleSheet(css=_choice_style(theme))],
    )
    section = GpuSection(
        root=column(choice, *plots, words, visible=False, sizing_mode="stretch_width", name="gpus"),
        plots=plots,
        choice=choice,
        words=words,
        sources=sources,
    )
    react = CustomJS(
        args={
            "axes": sources["gpu_axes"],
            "lanes": sources["gpu_lanes"],
            "said": sources["gpu_words"],
            "plots": list(plots),
            "choice": choice,
            "words": words,
            "root": section.root,
            "room": _ROOM,
            "lines": _LINES_HEIGHT,
            "axis": _TIME_AXIS,
        },
        code=_CHANGED,
    )
    for name in ("gpu_axes", "gpu_lanes", "gpu_words"):
        sources[name].js_on_change("data", react)
    choice.js_on_change("active", react)
    # Nothing draws these, and they must be in the document all the same.
    section.root.tags = [sources["gpu_axes"], sources["gpu_words"]]
    return section


def _use(theme: Theme, time: Range1d, sources: dict[str, ColumnDataSource]) -> Any:
    plot = _plot(theme, USE, time, Range1d(start=0.5, end=-0.5))
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
    plot.add_tools(hover(theme, bars, "@gpu", ("@text",)))
    name_lanes(plot, sources["gpu_lanes"])
    return plot


def _lines(theme: Theme, time: Range1d, quantity: Quantity, sources: dict[str, ColumnDataSource]) -> Any:
    plot = _plot(theme, quantity, time, Range1d(start=0, end=quantity.top))
    lines = plot.segment(
        x0="x0",
        y0="y0",
        x1="x1",
        y1="y1",
        color="color",
        line_alpha="alpha",
        line_width=1.8,
        source=sources[f"gpu_{quantity.name}"],
    )
    if quantity.limit:
        limit: dict[str, Any] = {"line_dash": "dashed", "line_width": 1, "line_alpha": 0.8}
        plot.hspan(y=quantity.name, line_color=theme.limit, source=sources["gpu_limits"], **limit)
    plot.add_tools(hover(theme, lines, "@text", ("@gpu",)))
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=4)
    plot.yaxis.minor_tick_line_color = None
    return plot


def _plot(theme: Theme, quantity: Quantity, time: Range1d, y_range: Range1d) -> Any:
    plot = time_plot(theme, quantity.title, time, y_range, _LINES_HEIGHT)
    plot.update(visible=False, name=f"gpu_{quantity.name}_plot")
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
