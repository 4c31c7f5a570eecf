"""Common parts of a figure's plots: time axis, style, and text next to them."""

from __future__ import annotations

from typing import Any

from bokeh.core.property.vectorization import value
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NoOverlap,
    PanTool,
    Range1d,
)
from bokeh.plotting import figure

from workbench.figures.colors import Theme
from workbench.figures.reactions import formatter, hovered, ticker

LEFT = 84
"""Pixels left of every plot, so that the time axes are aligned."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def time_plot(
    theme: Theme, name: str, title: str, x_range: Range1d, y_range: Range1d, height: int, window: ColumnDataSource
) -> Any:
    """Return an empty plot that is panned along the time axis, which counts from the origin of `window`."""
    y_range.name = f"{name}_range"
    looks = {"min_border_left": LEFT, "min_border_top": 4, "min_border_bottom": 4}
    plot = empty_plot(theme, name, x_range, y_range, height, title=title, tools=[PanTool(dimensions="width")], **looks)
    plot.title.update(offset=0, standoff=4)
    plot.xaxis.ticker = ticker("seconds", window=window)
    plot.xaxis.formatter = formatter("elapsed", window=window)
    plot.xaxis.major_label_policy = NoOverlap(min_distance=8)
    return plot


def empty_plot(theme: Theme, name: str, x_range: Range1d, y_range: Range1d, height: int, **looks: Any) -> Any:
    """Return an empty plot in the colors of a theme; the models that patches change are named after `name`."""
    plot = figure(
        name=f"{name}_plot",
        x_range=x_range,
        y_range=y_range,
        height=height,
        min_width=200,
        min_border_right=12,
        sizing_mode="stretch_width",
        toolbar_location=None,
        output_backend="canvas",
        # The Tab key stops at each plot, whose canvas has no name for screen readers.
        html_attributes={"role": "figure", "aria-label": looks.get("title") or name},
        **looks,
    )
    dress(plot, theme)
    plot.title.name = f"{name}_title"
    return plot


def dress(plot: Any, theme: Theme) -> None:
    """Apply the font and the colors of a theme to a plot, its title, axes and grid."""
    plot.update(background_fill_color=theme.background, border_fill_color=theme.background, outline_line_color=None)
    plot.title.update(text_color=theme.muted, text_font=FONT, text_font_size="12px", text_font_style="bold")
    for axis in plot.axis:
        axis.update(
            axis_line_color=theme.grid,
            major_tick_line_color=theme.grid,
            minor_tick_line_color=None,
            major_label_text_color=theme.muted,
            major_label_text_font=FONT,
            major_label_text_font_size="11px",
        )
    for grid in plot.grid:
        grid.grid_line_color = theme.grid


def name_lanes(plot: Any, name: str, lanes: ColumnDataSource) -> None:
    """Label the lanes that lie one below the other in a plot with the source's text for each."""
    plot.yaxis.ticker = FixedTicker(name=f"{name}_ticks", ticks=[])
    plot.yaxis.formatter = formatter("lane", lanes=lanes)
    plot.yaxis.major_tick_line_color = None
    plot.ygrid.visible = False


def draw_lines(
    plot: Any,
    theme: Theme,
    source: ColumnDataSource,
    whose: str,
    limit: str | None,
    limits: ColumnDataSource,
    *,
    alpha: float | str = 1.0,
) -> None:
    """Draw the segments of a source as lines, and the column `limit` of `limits` as dashed ones."""
    lines = plot.segment(
        x0="x0", y0="y0", x1="x1", y1="y1", color="color", line_alpha=alpha, line_width=1.8, source=source
    )
    if limit is not None:
        dashed: dict[str, Any] = {"line_dash": "dashed", "line_width": 1, "line_alpha": 0.8}
        plot.hspan(y=limit, line_color=theme.limit, source=limits, **dashed)
    plot.add_tools(hover(theme, lines, "@text", (whose,), time="x1"))
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=4)


def hover(
    theme: Theme, renderer: Any, title: str, lines: tuple[str, ...] = (), *, time: str | None = None
) -> HoverTool:
    """Return the tooltip of a renderer; with a column `time`, the tooltip ends with the time of the day."""
    if time is not None:
        lines = (*lines, f"at @{time}{{custom}}")
    rows = "".join(f"<div>{line}</div>" for line in lines)
    # Covers the padding of Bokeh's own box, which is white in every theme.
    style = (
        f"margin: -5px; padding: 6px 9px; background: {theme.track}; color: {theme.text}; "
        f"font: 12px/1.45 {FONT}; max-width: 320px; overflow-wrap: anywhere"
    )
    return HoverTool(
        renderers=[renderer],
        tooltips=f'<div style="{style}">{f"<b>{title}</b>{rows}" if lines else title}</div>',
        formatters={} if time is None else {f"@{time}": hovered("clock")},
        point_policy="follow_mouse",
        attachment="horizontal",
    )


def text_style(theme: Theme, size: str, baseline: str) -> dict[str, Any]:
    """Return the style of text within a plot."""
    return {"text_color": theme.text, "text_baseline": baseline, "text_font": value(FONT), "text_font_size": size}


def words_style(theme: Theme) -> dict[str, str]:
    """Return the styles of the text between plots."""
    return {
        "color": theme.muted,
        "font": f"12px {FONT}",
        "padding": f"2px 12px 6px {LEFT}px",
        "box-sizing": "border-box",
    }
