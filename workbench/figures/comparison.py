"""A comparison as a figure: bars with their spread, the table, and the scaling curve, defined once for all pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from bokeh.embed import json_item
from bokeh.layouts import column, row
from bokeh.models import Button, Column, ColumnDataSource, Div, FixedTicker, Range1d

from workbench.figures.colors import THEMES, Theme, worker_color
from workbench.figures.patch import Patch, columns, named, room_for
from workbench.figures.plots import FONT, empty_plot, hover, text_style
from workbench.figures.reactions import reaction
from workbench.figures.report import figure_page
from workbench.figures.topology import topology_html, topology_of
from workbench.formats import duration
from workbench.markup import tag
from workbench.runs.comparing.comparisons import Comparison
from workbench.runs.comparing.scaling import efficiency_text
from workbench.runs.comparing.table import (
    Summary,
    as_markdown,
    bandwidth_text,
    cells,
    judged_text,
    remarks,
    summarise,
)
from workbench.runs.run import ON_SIMULATED

COLUMNS = {
    "rows": ("y", "foot", "median", "low", "high", "color", "text"),
    "samples": ("x", "y", "fill", "color", "text"),
    "curves": ("xs", "ys", "color", "dash"),
    "points": ("x", "y", "color", "text", "label"),
}
"""Columns of each source."""

_SECONDS = "Seconds: median (bar), range (line), runs (dots)"
_ROW = 46  # pixels of a bar with its name above
_ROOM = 64  # pixels of title and axis
_BAR = 0.36  # of the height of a row
_SCALING_HEIGHT = 280


class ComparisonFigure:
    """One comparison as a Bokeh layout; feed it with the comparison as it grows.

    As with `LiveFigure`, pass the result of `patches` to `apply`, or send it to a page that embedded `item`. A page
    that stands `alone` has no cells and perhaps no clipboard, so it gets no button.
    """

    def __init__(self, theme: str = "light", comparison: Comparison | None = None, *, alone: bool = False) -> None:
        self.theme = THEMES[theme]
        self._alone = alone
        self._comparison = comparison
        self._sent: dict[str, Patch] = {}
        self._sources = {name: ColumnDataSource({each: [] for each in of}, name=name) for name, of in COLUMNS.items()}
        self.model = self._built()
        self._named = named(self.model)

    def feed(self, comparison: Comparison) -> None:
        """Replace the comparison with its current state."""
        self._comparison = comparison

    def patches(self) -> list[Patch]:
        """Return the changes since the last call."""
        if self._comparison is None:
            return []
        changed = [each for each in _patches(self._comparison, self.theme) if self._sent.get(each.source) != each]
        self._sent.update({each.source: each for each in changed})
        return changed

    def apply(self, patches: Iterable[Patch]) -> None:
        """Change this figure's own document."""
        for patch in patches:
            if patch.source in self._named:
                patch.apply(self._named[patch.source])

    def item(self) -> dict[str, Any]:
        """Return Bokeh's JSON of the document with everything fed so far, for `Bokeh.embed.embed_item`."""
        self.apply(self.patches())
        return dict(json_item(self.model))

    def _built(self) -> Column:
        return column(
            self._div("head"),
            _bars(self.theme, self._sources),
            self._div("table"),
            self._div("below"),
            *([] if self._alone else [row(self._button())]),
            _scaling(self.theme, self._sources),
            *self._topology(),
            sizing_mode="stretch_width",
            styles={"background": self.theme.background},
        )

    def _div(self, name: str) -> Div:
        return Div(name=name, styles=_styles(self.theme), sizing_mode="stretch_width", disable_math=True)

    def _button(self) -> Button:
        """Return a button that puts the table, stored in its tags, into a cell, or else on the clipboard."""
        style = [_button_style(self.theme)]
        label = "Put the table into a cell"
        button = Button(label=label, name="cell", align="start", margin=(4, 12), stylesheets=style)
        button.js_on_click(reaction("cell", button=button, label=label))
        return button

    def _topology(self) -> list[Any]:
        """Return the topology between the GPUs, which is known before anything is measured."""
        found = self._comparison
        if found is None or not any(each.spec is not None and each.spec.devices for each in found.rows):
            return []
        topology = topology_of(found.inventory)
        if topology is None:
            return []
        return [Div(text=topology_html(topology, simulated=found.simulated), styles=_styles(self.theme))]


def columns_of(summary: Summary, theme: Theme) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of each source."""
    measured = _measured(summary)
    return {"rows": _rows(measured, theme), "samples": _samples(measured, theme), **_curves(summary, theme)}


def _patches(comparison: Comparison, theme: Theme) -> Iterator[Patch]:
    summary = summarise(comparison)
    for name, drawn in columns_of(summary, theme).items():
        yield Patch(name, "replace", drawn)
    words = {"head": _head(comparison, summary, theme), "table": table_html(summary, theme)}
    for name, text in (words | {"below": _remarks(summary, theme)}).items():
        yield Patch(name, "set", {"text": text})
    yield Patch("cell", "set", {"tags": [as_markdown(summary)]})
    mark = ON_SIMULATED if comparison.simulated else ""
    measured = _measured(summary)
    longest = max((each.seconds.max for each in measured), default=1.0)
    yield Patch("bars_title", "set", {"text": f"{_SECONDS}{mark}"})
    yield Patch("bars_plot", "set", {"height": _ROOM + _ROW * max(len(measured), 1), "visible": bool(measured)})
    yield Patch("bars_range", "set", {"end": 1.06 * longest})
    yield room_for(len(measured), "bars_rows")
    points = [(each.points[0].cores, point) for each in summary.scaling for point in each.points]
    most = max((point.cores for _, point in points), default=0)
    gain = max((max(point.cores / first, point.speedup) for first, point in points), default=1)
    yield Patch("scaling_title", "set", {"text": f"Speed-up over cores, with efficiency (dashed: ideal){mark}"})
    yield Patch("scaling_plot", "set", {"visible": most > 0})
    yield Patch("scaling_range", "set", {"end": 1.08 * most})
    yield Patch("scaling_rows", "set", {"end": 1.2 * gain})


def _measured(summary: Summary) -> list[Any]:
    return [each for each in summary.rows if each.seconds is not None]


def table_html(summary: Summary, theme: Theme) -> str:
    """Return the table, which scrolls sideways on a narrow page."""
    header, body = cells(summary)
    edge = f"border-bottom: 1px solid {theme.grid}; padding: 4px 14px 4px 0; vertical-align: top"
    numbers = range(1, len(header) - 1)
    heads = (tag("th", escape(each), style=f"{edge}; text-align: {_side(i, numbers)}") for i, each in enumerate(header))

    def line(row: Sequence[str]) -> str:
        # A row without a time has only a reason at its end: the reason takes the room of the empty cells.
        reason = len(header) - 2 if not any(row[2:-1]) and row[-1] else 0
        shown = [*row[:2], row[-1]] if reason else row
        found = (
            tag(
                "td",
                escape(each),
                style=f"{edge}; text-align: {'left' if reason and i == 2 else _side(i, numbers)}; "
                f"{_wrap(each) if i else _NAME}",
                colspan=reason if reason and i == 2 else None,
            )
            for i, each in enumerate(shown)
        )
        return tag("tr", *found)

    return _scrolling(tag("tr", *heads), *map(line, body), style="; font-variant-numeric: tabular-nums")


def _scrolling(*rows: str, style: str = "") -> str:
    table = tag("table", *rows, style=f"border-collapse: collapse{style}")
    return tag("div", table, style="overflow-x: auto")


def page(comparison: Comparison) -> str:
    """Return the comparison as one self-contained HTML page."""
    return figure_page(
        f"{comparison.title} compared",
        '<div id="figure"></div>',
        lambda theme: ComparisonFigure(theme, comparison, alone=True).item(),
    )


# -- columns


def _rows(measured: Sequence[Any], theme: Theme) -> dict[str, list[Any]]:
    places = range(len(measured))
    return {
        "y": [index + 0.12 for index in places],
        "foot": [index - 0.16 for index in places],
        "median": [each.seconds.median for each in measured],
        "low": [each.seconds.min for each in measured],
        "high": [each.seconds.max for each in measured],
        "color": [worker_color(index, theme) for index in places],
        "text": [_bar_text(each) for each in measured],
    }


def _bar_text(each: Any) -> str:
    judged = judged_text(each)
    judgment = f", {judged}{' as the first' if each.difference in ('faster', 'slower') else ''}" if judged else ""
    between = f", {bandwidth_text(each)}" if each.bandwidth else ""
    return f"{each.title}: {duration(each.seconds.median)}{judgment}{between}"


def _samples(measured: Sequence[Any], theme: Theme) -> dict[str, list[Any]]:
    rows = []
    for index, each in enumerate(measured):
        for run, seconds in zip(each.runs, each.seconds.all, strict=False):
            rows.append((seconds, index + 0.12, theme.background, theme.text, f"{run}: {duration(seconds)}"))
    return columns(COLUMNS["samples"], rows)


def _curves(summary: Summary, theme: Theme) -> dict[str, dict[str, list[Any]]]:
    curves, points = [], []
    for index, each in enumerate(summary.scaling):
        color = worker_color(index, theme)
        cores = [float(point.cores) for point in each.points]
        curves.append((cores, [point.speedup for point in each.points], color, "solid"))
        curves.append((cores, [count / cores[0] for count in cores], theme.muted, "dashed"))
        for point in each.points:
            text = (
                f"{each.what}: {point.cores} cores, {duration(point.seconds)}, {point.speedup:.2f} times, "
                f"efficiency {efficiency_text(point)}"
            )
            points.append((point.cores, point.speedup, color, text, f"{100 * point.efficiency:.0f} %"))
    return {"curves": columns(COLUMNS["curves"], curves), "points": columns(COLUMNS["points"], points)}


def _head(comparison: Comparison, summary: Summary, theme: Theme) -> str:
    title = f'<b style="font-size: 15px; color: {theme.text}">{escape(comparison.title)}</b>'
    if comparison.active:
        share = 100 * comparison.done / comparison.total if comparison.total else 0
        words = escape(comparison.now or comparison.stage or "beginning …")
        bar = (
            f'<div style="height: 4px; background: {theme.track}; margin: 6px 0"><div style="height: 4px; '
            f'width: {share:.1f}%; background: {worker_color(0, theme)}"></div></div>'
        )
        return f"{title}<div>{words}, {comparison.done} of {comparison.total} runs</div>{bar}"
    state = "" if comparison.status == "done" else f" ({comparison.status})"
    return f'{title}{state}<div style="font-size: 14px; color: {theme.text}">{escape(summary.verdict)}</div>'


def _remarks(summary: Summary, theme: Theme) -> str:
    found = "".join(f"<li>{escape(each)}</li>" for each in remarks(summary))
    return f'<ul style="margin: 8px 0; padding-left: 18px">{found}</ul>{_differences(summary, theme)}'


def _differences(summary: Summary, theme: Theme) -> str:
    if not summary.differences:
        return ""
    edge = f"border-bottom: 1px solid {theme.grid}; padding: 3px 14px 3px 0; vertical-align: top; text-align: left"

    def line(kind: str, *texts: str) -> str:
        return tag("tr", *(tag(kind, escape(text), style=edge) for text in texts))

    lines = (line("td", f"{each.kind}: {each.name}", *each.texts) for each in summary.differences)
    return _scrolling(line("th", "differs", *(row.title for row in summary.rows)), *lines)


# -- plots


def _bars(theme: Theme, sources: Mapping[str, ColumnDataSource]) -> Any:
    plot = _plot(theme, "bars", Range1d(start=0.5, end=-0.5), _ROOM + _ROW)
    rows, samples = sources["rows"], sources["samples"]
    plot.hbar(
        y="y", height=_BAR, left=0, right="median", fill_color="color", fill_alpha=0.35, line_color=None, source=rows
    )
    plot.segment(x0="low", x1="high", y0="y", y1="y", line_color="color", line_width=2.5, source=rows)
    dots = plot.scatter(
        x="x", y="y", size=7, fill_color="fill", line_color="color", fill_alpha=0.9, line_width=1.2, source=samples
    )
    plot.text(x=0, y="foot", text="text", source=rows, **text_style(theme, "12px", "bottom"))
    plot.add_tools(hover(theme, dots, "@text"))
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    return plot


def _scaling(theme: Theme, sources: Mapping[str, ColumnDataSource]) -> Any:
    plot = _plot(theme, "scaling", Range1d(start=0, end=1), _SCALING_HEIGHT)
    plot.visible = False
    plot.multi_line(xs="xs", ys="ys", line_color="color", line_dash="dash", line_width=1.8, source=sources["curves"])
    dots = plot.scatter(x="x", y="y", size=8, fill_color="color", line_color=None, source=sources["points"])
    plot.text(
        x="x",
        y="y",
        text="label",
        y_offset=-9,
        text_align="center",
        source=sources["points"],
        **text_style(theme, "12px", "bottom"),
    )
    plot.add_tools(hover(theme, dots, "@text"))
    plot.xaxis.axis_label = "cores"
    plot.xaxis.ticker = FixedTicker(ticks=[1, 2, 4, 8, 16, 32, 64, 128, 256])
    plot.xaxis.axis_label_text_color = theme.muted
    return plot


def _plot(theme: Theme, name: str, rows: Range1d, height: int) -> Any:
    rows.name = f"{name}_rows"
    across = Range1d(start=0, end=1, name=f"{name}_range")
    return empty_plot(theme, name, across, rows, height, title="", tools=[], min_border_left=12)


def _styles(theme: Theme) -> dict[str, str]:
    return {
        "color": theme.muted,
        "font": f"12.5px/1.5 {FONT}",
        "padding": "6px 12px",
        "box-sizing": "border-box",
        "overflow-x": "auto",
        # A wide table must not widen its container: it scrolls instead.
        "contain": "inline-size",
    }


def _button_style(theme: Theme) -> str:
    return (
        f".bk-btn, .bk-btn:hover {{ background: {theme.track}; color: {theme.text}; border: 1px solid {theme.grid}; }} "
        f".bk-btn:hover, .bk-btn:focus-visible {{ border-color: {theme.muted}; }}"
    )


def _side(index: int, numbers: range) -> str:
    return "right" if index in numbers else "left"


_NAME = "min-width: 120px"
"""Style of a column that gives way to the numbers next to it if there is little room."""


def _wrap(text: str) -> str:
    """Return the style of a cell: long text takes several lines, and numbers stay together."""
    return "min-width: 260px" if len(text) > 60 else "min-width: 150px" if len(text) > 20 else "white-space: nowrap"
