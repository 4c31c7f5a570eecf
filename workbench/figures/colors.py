"""Colors of tasks and workers, following Dask, legible on a light and on a dark page.

A task name has its color on Dask's own dashboard, unless another name of the figure has that color already.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import md5

from markupsafe import Markup

from workbench.markup import tag

# Dask's palette: 18 steps of viridis, which color-blind readers distinguish by lightness.
VIRIDIS = (
    "#440154", "#471669", "#472A79", "#433C84", "#3C4D8A", "#355D8C", "#2E6C8E", "#287A8E", "#23898D",
    "#1E978A", "#20A585", "#2EB27C", "#45BF6F", "#64CB5D", "#88D547", "#AFDC2E", "#D7E219", "#FDE724",
)  # fmt: skip

# Okabe and Ito, Color Universal Design (2008), without black and yellow, each invisible on one of the two pages.
WORKERS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

GPUS = (*WORKERS, "#8C8C8C", "#882255")
"""Colors of GPUs, enough for most machines: the workers', gray, and the wine of Paul Tol's muted scheme (2021)."""

TRANSFER, DISK, OTHER, ERRED, THEIRS = range(len(VIRIDIS), len(VIRIDIS) + 5)
"""Categories besides ordinary computing. Lower numbers are indices into the palette.

`THEIRS` is work that was computed for other users of the same cluster.
"""

N_CATEGORIES = len(VIRIDIS) + 5

_FAR = 7
"""Steps of the palette between a taken color and the next candidate; prime to its length, so that all are reached."""

# WCAG requires 3:1 for parts of a graphic. Here neighbors differ in name as well, and a palette pressed into the
# range that 3:1 leaves would no longer have eighteen steps.
_LEAST_CONTRAST = 1.7
_LINE_CONTRAST = 3.0


@dataclass(frozen=True, slots=True)
class Theme:
    """Colors of a page, close to those of JupyterLab's own theme."""

    name: str
    background: str
    text: str
    muted: str
    grid: str
    track: str
    """Background of a progress bar."""
    transfer: str
    disk: str
    other: str
    erred: str
    theirs: str
    """Color of work that was computed for other users."""
    limit: str
    dimmed: float = 0.0
    """Share of the background in the colors of tasks: bright areas glare on a dark page."""


LIGHT = Theme(
    name="light",
    background="#ffffff",
    text="#212121",
    muted="#616161",
    grid="#e0e0e0",
    track="#eeeeee",
    transfer="#e0301e",
    disk="#ff8c00",
    other="#8c8c8c",
    erred="#000000",
    theirs="#b8b8b8",
    limit="#c62828",
)
DARK = Theme(
    name="dark",
    background="#212121",
    text="#e0e0e0",
    muted="#a8a8a8",
    grid="#3d3d3d",
    track="#303030",
    transfer="#ff5347",
    disk="#ffa033",
    other="#9e9e9e",
    # Black would be invisible.
    erred="#e6e6e6",
    theirs="#6a6a6a",
    limit="#ff6b60",
    dimmed=0.25,
)
THEMES = {"light": LIGHT, "dark": DARK}


@cache
def color_index(name: str) -> int:
    """Return the index of a task name in the palette, the same as on Dask's dashboard."""
    return int(md5(name.encode(), usedforsecurity=False).hexdigest()[:8], 16) % len(VIRIDIS)


class TaskColors:
    """Colors of the task names of one figure: each has one of its own, as long as the palette has enough."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}

    def index(self, name: str) -> int:
        """Return the index of a task name in the palette: Dask's, or a free one if it or its neighbor is used."""
        if name not in self._indices:
            first, used = color_index(name), set(self._indices.values())
            others = [(first + _FAR * step) % len(VIRIDIS) for step in range(len(VIRIDIS))]
            free = [each for each in others if each not in used]
            # Neighbors in the palette look alike.
            distant = (each for each in free if used.isdisjoint((each - 1, each + 1)))
            self._indices[name] = next(distant, free[0] if free else first)
        return self._indices[name]


@cache
def category_colors(theme: Theme) -> tuple[str, ...]:
    """Return the color of each category."""
    names = (_legible(_mix(color, theme.background, theme.dimmed), theme.background) for color in VIRIDIS)
    return (*names, theme.transfer, theme.disk, theme.other, theme.erred, theme.theirs)


@cache
def neutral_color(index: int) -> str:
    """Return the color of an index of the palette that suits a light and a dark page."""
    # Neither black nor white would be visible on both.
    return _legible(_legible(VIRIDIS[index], DARK.background), LIGHT.background)


def worker_color(index: int, theme: Theme) -> str:
    """Return the color of the index-th worker's line."""
    return _legible(WORKERS[index % len(WORKERS)], theme.background, _LINE_CONTRAST)


def gpu_color(index: int, theme: Theme) -> str:
    """Return the color of the index-th GPU, which is that of its worker as long as there are few."""
    return _legible(GPUS[index % len(GPUS)], theme.background, _LINE_CONTRAST)


def swatch(color: str, name: str) -> Markup:
    """Return a color and its meaning, as HTML."""
    square = tag("span", style=f"display:inline-block;width:9px;height:9px;margin-right:5px;background:{color}")
    return tag("span", square, name, style="display:inline-block;margin-right:14px;white-space:nowrap")


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colors, from 1 to 21, as WCAG 2 defines it."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def ink_on(color: str) -> str:
    """Return black or white, whichever is more readable on this color."""
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, color))


@cache
def _legible(color: str, background: str, least: float = _LEAST_CONTRAST) -> str:
    """Move `color` away from the background until it is visible on it, and return it."""
    away = "#000000" if _luminance(background) > 0.5 else "#ffffff"
    for step in range(20):
        moved = _mix(color, away, step / 20)
        if contrast(moved, background) >= least:
            return moved
    return away


def _mix(first: str, second: str, share: float) -> str:
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in _channels(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# Okabe and Ito's, with one gray, dark enough for a white page (3:1).
GROUPS = ("#0072B2", "#D55E00", "#007A5A", "#A8497F", "#8A6D00", "#5A5A5A")
"""Colors of groups in the picture of an answer."""
