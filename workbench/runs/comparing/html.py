"""A comparison as HTML: verdict, bars with intervals, and tables, the same in a tab, a notebook and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from workbench import formats
from workbench.markup import joined, paragraph, tag
from workbench.runs.comparing.table import RowSummary, Summary, Times, judged_text, remarks, tables

# JupyterLab's colors, with fallbacks for other pages.
_BAR = "height: 8px; border-radius: 2px; background: var(--jp-brand-color1, #2176b5)"
_TRACK = "position: relative; margin: 2px 0 6px; border-radius: 2px; background: var(--jp-layout-color3, #8883)"
_LINE = "var(--jp-ui-font-color1, currentcolor)"
_WHISKER = (
    f"position: absolute; top: -2px; height: 12px; box-sizing: border-box; border: solid {_LINE}; border-width: 0 1px; "
    f"background: linear-gradient({_LINE}, {_LINE}) center / 100% 1px no-repeat"
)
_HEAD = "display: flex; flex-wrap: wrap; gap: 0 12px; justify-content: space-between"
_CELL = "padding: 3px 14px 3px 0; vertical-align: top; border-bottom: 1px solid #8884"
_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 4px 0"


def bars_html(summary: Summary) -> Markup:
    """Return a line for each row: name, median time, judgment, and a bar with the range of the times."""
    measured = [row.seconds for row in summary.rows if row.seconds is not None]
    # Times of different work have no common scale.
    alike = all(row.ratio is not None for row in summary.rows if row.seconds is not None)
    longest = max((each.max for each in measured), default=1.0) if alike else None
    rows = (tag("li", *_row(row, longest), style="list-style: none") for row in summary.rows)
    return tag("ul", *rows, style="margin: 4px 0; padding: 0; max-width: 900px", data_workbench="compare-bars")


def _row(row: RowSummary, longest: float | None) -> Iterator[Markup]:
    name = tag("span", row.title, title=joined((row.on, row.describe)))
    if row.seconds is None:
        yield name + paragraph(row.reason or "")
        return
    took = formats.duration(row.seconds.median)
    # Not next to the bar: texts of different width would give the bars different scales.
    yield tag("div", name, tag("span", joined((took, judged_text(row)))), style=_HEAD)
    if longest is not None:
        bar = tag("div", style=f"{_BAR}; width: {100 * row.seconds.median / longest:.1f}%")
        label = f"{row.title}: {took}"
        yield tag("div", bar, _whisker(row.seconds, longest), style=_TRACK, role="img", aria_label=label)


def _whisker(seconds: Times, longest: float) -> Markup:
    """Return a line from the shortest to the longest time, drawn over the bar, which ends at the median."""
    if len(seconds.all) < 2:
        return Markup("")
    left, right = 100 * seconds.min / longest, 100 * (longest - seconds.max) / longest
    title = f"from {formats.duration(seconds.min)} to {formats.duration(seconds.max)}"
    return tag("span", style=f"left: {left:.1f}%; right: {right:.1f}%; {_WHISKER}", title=title)


def summary_html(summary: Summary) -> Markup:
    """Return verdict, bars, tables and remarks."""
    # The first table has no title.
    parts = ((tag("h3", title) if title else "") + _table(*found) for title, found in tables(summary).items())
    notes = [tag("li", each) for each in remarks(summary)]
    return tag(
        "div",
        paragraph(summary.verdict, "wb-Verdict"),
        bars_html(summary),
        *parts,
        tag("ul", *notes, style="margin: 8px 0; padding-left: 18px; list-style: disc") if notes else "",
    )


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> Markup:
    """Return a table that scrolls sideways on a narrow page."""
    rows = (tag("tr", *(_cell("td", *each) for each in enumerate(row))) for row in body)
    head = tag("tr", *(_cell("th", *each) for each in enumerate(header)))
    return tag("div", tag("table", head, *rows, style=_TABLE), style="overflow-x: auto; contain: inline-size")


def _cell(kind: str, column: int, text: str) -> Markup:
    """Return a cell in which long text takes several lines, and numbers stay together."""
    wrap = "min-width: 120px" if column == 0 else "white-space: nowrap" if len(text) < 30 else "min-width: 240px"
    return tag(kind, text, style=f"{_CELL}; text-align: left; {wrap}")
