"""Scatter plots of principal components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes.values import as_text, grouped

if TYPE_CHECKING:
    from workbench.genotypes.pca import GenotypePCA

Matrix = np.ndarray[Any, Any]

LABELS = 20
"""Groups that are told apart."""


def scatter(result: GenotypePCA, color: Any, components: tuple[int, int]) -> Any:
    """A Bokeh figure of two components, with a legend whose entries hide their samples."""
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure

    across, up = _checked(result, components)
    shares = 100 * result.explained_variance_ratio
    title = "Principal components of samples"
    plot = figure(
        title=title,
        x_axis_label=f"Component {across} ({shares[across - 1]:.2g} % of the variance)",
        y_axis_label=f"Component {up} ({shares[up - 1]:.2g} % of the variance)",
        tooltips=[("sample", "@sample"), ("label", "@label")],
        sizing_mode="stretch_width",
        height=420,
    )
    labels = _labels(result, color)
    names = _by_size(labels)
    for name, fill in zip(names, _colors(len(names)), strict=True):
        mask = labels == name
        source = ColumnDataSource(
            {
                "x": result.scores[mask, across - 1],
                "y": result.scores[mask, up - 1],
                "sample": np.asarray(result.samples)[mask].tolist(),
                "label": labels[mask].tolist(),
            }
        )
        named = {} if color is None else {"legend_label": str(name)}
        plot.scatter("x", "y", source=source, size=6, fill_color=fill, line_color=None, fill_alpha=0.75, **named)
    if color is not None:
        plot.add_layout(plot.legend[0], "right")
        plot.legend[0].click_policy = "hide"
    return plot


def _checked(result: GenotypePCA, components: tuple[int, int]) -> tuple[int, int]:
    most = result.scores.shape[1]
    chosen = tuple(components) if isinstance(components, Sequence) else ()
    if len(chosen) != 2 or not all(isinstance(number, (int, np.integer)) and 1 <= number <= most for number in chosen):
        raise BadInputError(f"components={components!r} must be two numbers from 1 to {most}.")
    across, up = chosen
    return across, up


def _labels(result: GenotypePCA, color: Any) -> Matrix:
    if color is None:
        return np.full(len(result.samples), "sample")
    if isinstance(color, str):
        if color not in result.sample_table:
            known = ", ".join(result.sample_table) or "there are none"
            raise BadInputError(
                f"The samples have no column {color!r}. Choose one of: {known}; or give a label for each."
            )
        color = result.sample_table[color]
    labels = as_text(color)
    if labels.shape != (len(result.samples),):
        raise BadInputError(f"color has {labels.size} labels for {len(result.samples)} samples.")
    return grouped(labels, LABELS)


def _by_size(labels: Matrix) -> Matrix:
    names, sizes = np.unique(labels, return_counts=True)
    return names[np.argsort(-sizes, kind="stable")]


def _colors(n: int) -> list[str]:
    from bokeh.palettes import Category20, Colorblind

    return list(Colorblind[8][:n]) if n <= 8 else list(Category20[20][:n])
