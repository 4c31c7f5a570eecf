"""Singular values and components of a run: how they fall, and where samples lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.figures.colors import THEMES, Theme
from workbench.figures.plots import FONT, dress

if TYPE_CHECKING:
    from bokeh.models import Plot

_DOT = 6  # pixels
_MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "hex", "star")
"""Labels that share a colour differ in their marker."""

_COLORS = {
    # Okabe and Ito's but for a grey, dark enough for a white page or light enough for a dark one (3:1).
    "light": ("#0072B2", "#D55E00", "#007A5A", "#A8497F", "#8A6D00", "#5A5A5A"),
    "dark": ("#56B4E9", "#E69F00", "#2EC49A", "#CC79A7", "#F0E442", "#B0B0B0"),
}


def scree_figure(result: Mapping[str, Any], theme: str = "light") -> Plot:
    """How singular values fall, or the shares of the variance where they are known; bounds as bars."""
    from bokeh.models import ColumnDataSource, Whisker

    look = THEMES[theme]
    shares = result.get("explained_variance_ratio")
    values = [100 * each for each in shares] if shares else list(result["singular_values"])
    bounds = (result.get("certificate") or {}).get("bound") or [0.0] * len(values)
    # A share is a square, and may be off by twice as much. What can't be told from zero is a dot on the axis.
    reach = [(2 if shares else 1) * (bound or 0.0) * value for bound, value in zip(bounds, values, strict=True)]
    source = ColumnDataSource(
        {
            "number": list(range(1, len(values) + 1)),
            "value": values,
            "low": [value - off for value, off in zip(values, reach, strict=True)],
            "high": [value + off for value, off in zip(values, reach, strict=True)],
        }
    )
    what = "Share of the variance, %" if shares else "Singular value"
    plot = _plot(look, "Scree plot", "Component", what, tools="")
    plot.line("number", "value", source=source, color=_COLORS[theme][0], line_width=1.5)
    plot.scatter("number", "value", source=source, color=_COLORS[theme][0], size=_DOT)
    if any(reach):
        ends = {"base": "number", "upper": "high", "lower": "low", "source": source, "line_color": look.text}
        plot.add_layout(Whisker(**ends))
    plot.y_range.start = 0
    plot.xaxis.ticker = list(range(1, len(values) + 1, -(-len(values) // 20)))
    return plot


def scatter_figure(result: Mapping[str, Any], theme: str = "light") -> Plot:
    """Samples along the first two components, coloured and marked by their label; a click on a label hides it."""
    from bokeh.models import ColumnDataSource, HoverTool

    look, told = THEMES[theme], result["scatter"]
    labels = told["labels"] or ["sample"] * len(told["samples"])
    across, up = told["scores"][0], told["scores"][1]
    shares = [100 * each for each in result["explained_variance_ratio"]]
    axes = [f"Component {i + 1} ({shares[i]:.2g} % of the variance)" for i in (0, 1)]
    plot = _plot(look, _title(told), *axes, tools="pan,wheel_zoom,reset")
    names, colors = list(dict.fromkeys(labels)), _COLORS[theme]
    for index, name in enumerate(names):
        mine = [i for i, label in enumerate(labels) if label == name]
        columns: dict[str, Sequence[Any]] = {
            "x": [across[i] for i in mine],
            "y": [up[i] for i in mine],
            "sample": [told["samples"][i] for i in mine],
            "label": [name] * len(mine),
        }
        plot.scatter(
            "x",
            "y",
            source=ColumnDataSource(columns),
            marker=_MARKERS[index // len(colors) % len(_MARKERS)],
            size=_DOT + 1,
            fill_color=colors[index % len(colors)],
            line_color=look.background,
            line_width=0.5,
            **({"legend_label": str(name)} if told["labels"] else {}),
        )
    plot.add_tools(HoverTool(tooltips=[("sample", "@sample"), (told["label"] or "label", "@label")]))
    if told["labels"]:
        plot.add_layout(plot.legend[0], "right")
        plot.legend[0].update(
            click_policy="hide",
            title=told["label"],
            background_fill_color=look.background,
            border_line_color=None,
            label_text_color=look.text,
            label_text_font=FONT,
            title_text_color=look.muted,
            title_text_font=FONT,
            label_text_font_size="11px",
        )
    return plot


def _title(told: Mapping[str, Any]) -> str:
    shown, of = len(told["samples"]), told["n_samples"]
    return f"{of} samples" if shown == of else f"{shown} of {of} samples, spread evenly over all"


def _plot(look: Theme, title: str, across: str, up: str, *, tools: str) -> Any:
    from bokeh.plotting import figure

    plot = figure(
        title=title,
        x_axis_label=across,
        y_axis_label=up,
        height=340,
        sizing_mode="stretch_width",
        max_width=760,
        tools=tools,
        toolbar_location=None,
        background_fill_color=look.background,
        border_fill_color=look.background,
        outline_line_color=None,
    )
    dress(plot, look)
    for axis in plot.axis:
        axis.update(axis_label_text_color=look.muted, axis_label_text_font=FONT, axis_label_text_font_style="normal")
    return plot
