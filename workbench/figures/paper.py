"""Pictures of an answer as files for a paper: PNG, SVG or PDF, drawn by Matplotlib, without a browser."""

from __future__ import annotations

import base64
import io
import textwrap
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from workbench.errors import MissingError, install
from workbench.figures.answers import Dots, Line, Map, Picture, top_of
from workbench.figures.colors import GROUPS, LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LACKING = f"There are no pictures: they need the extra pictures ({install('pictures')})."
"""Message where Matplotlib isn't installed."""

_INCHES = (6.3, 4.2)
_PLAIN: dict[str, Any] = {"text.parse_math": False}
"""Settings against TeX: Matplotlib would interpret dollars in names, and fail."""
_ON_PAGE: dict[str, Any] = {
    "figure.figsize": (6.3, 3.2),
    "figure.dpi": 200,
    "font.size": 8,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#888888"),
}
"""Style of a picture on a page, which may be light or dark."""
_SMALL = _ON_PAGE | {"figure.figsize": (4.8, 2.3)}
_LETTERS = 115
"""Letters of one point that fit an inch of a figure: each is 0.55 times as wide as high, and there is a margin."""
_MARKERS = "osD^vPX*"
_DPI = 200
_MOST_NAMED = 24
"""Largest number of groups in a legend."""


def write_picture(picture: Picture, file: BinaryIO, kind: str) -> None:
    """Write one picture as a kind of `targets.PICTURES`. Raises MissingError if Matplotlib isn't installed."""
    if not can_write():
        raise MissingError(LACKING)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_PLAIN):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = _draw(figure, picture)
        axes.set_title(picture.title)
        figure.savefig(file, format=kind, dpi=_DPI)


def can_write() -> bool:
    """Return whether Matplotlib is installed."""
    return find_spec("matplotlib") is not None


def page_png(picture: Picture, *, is_small: bool = False) -> str:
    """Return one picture as a PNG in base64, without title and background; a small one doesn't name groups of dots."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_PLAIN | (_SMALL if is_small else _ON_PAGE)):
        figure = Figure(layout="constrained")
        legend = _draw(figure, picture).get_legend()
        if is_small and legend is not None and isinstance(picture.drawn, Dots):
            legend.remove()
        file = io.BytesIO()
        figure.savefig(file, format="png", transparent=True)
    return base64.b64encode(file.getvalue()).decode()


def _draw(figure: Figure, picture: Picture) -> Axes:
    axes = figure.add_subplot()
    # A small picture is lower than a long label. Matplotlib's own wrapping would interpret dollars in it.
    letters = round(_LETTERS * figure.get_figheight() / float(axes.yaxis.label.get_fontsize()))
    axes.set(xlabel=picture.across, ylabel=textwrap.fill(picture.up, letters))
    drawn = picture.drawn
    if isinstance(drawn, Dots):
        _draw_dots(axes, drawn)
    elif isinstance(drawn, Map):
        _draw_map(figure, axes, drawn)
    else:
        _draw_lines(axes, drawn)
        if picture.name in ("scree", "error"):
            axes.set_ylim(0, top_of(drawn))
            axes.locator_params(axis="x", integer=True)
    return axes


def _draw_lines(axes: Axes, lines: tuple[Line, ...]) -> None:
    for line, color in zip(lines, GROUPS, strict=False):
        style = "o-" if len(line.x) <= 100 else "-"
        axes.plot(line.x, line.y, style, color=color, markersize=4, linewidth=1.2, label=line.name or None)
        if line.low is not None and line.high is not None:
            off = np.array([line.y - line.low, line.high - line.y])
            axes.errorbar(line.x, line.y, yerr=off, fmt="none", ecolor="black", elinewidth=0.8)
    if any(line.name for line in lines):
        # The legend is above the plot, where it hides no line.
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(lines), borderaxespad=0)


def _draw_dots(axes: Axes, dots: Dots) -> None:
    labels = np.array(dots.labels or [""] * len(dots.x))
    names = list(dict.fromkeys(labels.tolist()))
    for index, name in enumerate(names):
        mine = labels == name
        look: dict[str, Any] = {
            "s": 10,
            "color": GROUPS[index % len(GROUPS)],
            "marker": _MARKERS[index // len(GROUPS) % len(_MARKERS)],
            # No reader opens a file with a hundred thousand dots as vectors.
            "rasterized": len(dots.x) > 2000,
        }
        axes.scatter(dots.x[mine], dots.y[mine], linewidths=0, label=name or None, **look)
    if dots.labels and len(names) <= _MOST_NAMED:
        axes.legend(title=dots.label, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")


def _draw_map(figure: Any, axes: Axes, drawn: Map) -> None:
    low, high = drawn.range
    colors = "RdBu_r" if low < 0 < high else "viridis"
    axes.set_facecolor(LIGHT.grid)  # missing values
    look: dict[str, Any] = {"cmap": colors, "vmin": low, "vmax": high, "shading": "nearest", "rasterized": True}
    if drawn.from_top:
        axes.invert_yaxis()
    figure.colorbar(axes.pcolormesh(drawn.x, drawn.y, drawn.values, **look), ax=axes)
