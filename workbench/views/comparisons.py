"""The list of comparisons: progress, bars and actions of each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from workbench.formats import ago, duration
from workbench.markup import faint, folded, icon_button, joined, meter, paragraph, tag
from workbench.runs.comparing.table import as_markdown, judged_text, remarks
from workbench.views import examples
from workbench.views.answers import API
from workbench.views.forms import as_text
from workbench.views.parts import action, command, confirmed, foot, line, more, notice

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.runs.comparing.table import RowSummary, Summary, Times
    from workbench.views.page import Context

SHOWN = 5
_MORE = 20
"""Number of comparisons that are listed at first, and number added by each click."""


def pace(context: Context) -> float:
    """Return the period of the view: short while a comparison runs."""
    return 1.0 if any(each.active for each in context.session.comparisons(limit=SHOWN)) else 30.0


def comparisons(context: Context, _: str) -> str:
    """Return the list of the latest comparisons, with a link for more."""
    shown = int(context.choices.get("comparisons.shown") or SHOWN)
    found = context.session.comparisons(limit=None)
    if not found:
        return examples.empty("Nothing has been compared yet.", examples.first_comparison())
    listed = tag("ul", *(_one(context, each, time.time()) for each in found[:shown]), class_="wb-Runs", data_stop=True)
    return listed + more("comparisons", shown, _MORE, len(found) - shown)


def _one(context: Context, comparison: Comparison, now: float) -> str:
    summary = context.session.summary(comparison)
    given = comparison.request.parameters if comparison.request else {}
    words = ", ".join(f"{name}={as_text(value)}" for name, value in given.items())
    state = None if comparison.status in ("done", "running") else comparison.status
    when = None if comparison.active else ago(comparison.stopped or comparison.created, now)
    return line(
        f"comparison-{comparison.id}",
        f"Comparison of {summary.title}",
        comparison.status,
        [tag("span", escape(summary.title), " ", faint(words), class_="wb-Run-title", title=words or None)],
        _progress(comparison),
        "" if comparison.active else paragraph(summary.verdict, "wb-Verdict", data_workbench="verdict"),
        _bars(summary),
        paragraph(comparison.error or "", "wb-Problem"),
        _notes(summary),
        foot(joined((state, when)), _buttons(comparison, summary)),
        notice(f"comparison={comparison.id}"),
        id=f"wb-comparison-{comparison.id}",
    )


def _progress(comparison: Comparison) -> str:
    if not comparison.active:
        return ""
    done = f"{comparison.done} of {comparison.total}"
    return paragraph(comparison.now or comparison.stage or "beginning …") + meter(
        "Runs done", comparison.done, comparison.total, done
    )


def _bars(summary: Summary) -> str:
    measured = [row.seconds for row in summary.rows if row.seconds is not None]
    # Times of different work have no common scale.
    alike = all(row.ratio is not None for row in summary.rows if row.seconds is not None)
    longest = max((each.max for each in measured), default=1.0) if alike else None
    # For two rows, the verdict says the same.
    rows = (tag("li", _bar(row, longest, judged=len(measured) > 2)) for row in summary.rows)
    return tag("ul", *rows, class_="wb-Compared", data_workbench="compare-bars")


def _bar(row: RowSummary, longest: float | None, *, judged: bool) -> str:
    name = tag("span", escape(row.title), title=joined((row.on, row.describe)))
    if row.seconds is None:
        return name + paragraph(row.reason or "")
    took = duration(row.seconds.median)
    # Next to the bar, times of different width would give the bars different scales.
    said = tag("div", name, tag("span", took), class_="wb-Compared-row")
    if longest is None:
        return said
    return (
        said
        + tag(
            "div",
            meter(f"{row.title}: {took}", row.seconds.median, longest, ""),
            _whisker(row.seconds, longest),
            class_="wb-Compared-bar",
        )
        + (paragraph(judged_text(row)) if judged else "")
    )


def _whisker(seconds: Times, longest: float) -> str:
    """Return a line from the shortest to the longest time, drawn over the bar, which ends at the median."""
    if len(seconds.all) < 2:
        return ""
    left, right = 100 * seconds.min / longest, 100 * (longest - seconds.max) / longest
    title = f"from {duration(seconds.min)} to {duration(seconds.max)}"
    return tag("span", style=f"left: {left:.1f}%; right: {right:.1f}%", class_="wb-Whisker", title=title)


def _notes(summary: Summary) -> str:
    sentences = "".join(paragraph(each) for each in remarks(summary))
    return folded("Notes", sentences, id=f"wb-notes-{summary.id}") if sentences else ""


def _buttons(comparison: Comparison, summary: Summary) -> Iterator[str]:
    if comparison.active:
        cancel = action("cancel_comparison", comparison=comparison.id)
        yield icon_button("close", "Cancel", **cancel, data_workbench="cancel-comparison")
    yield icon_button(
        "watch",
        "Chart and table in a tab of Lab",
        **command("watch", comparison=comparison.id, title=f"{summary.title}, compared"),
        data_workbench="watch-comparison",
    )
    yield icon_button(
        "file",
        "Open chart and table in a new tab",
        data_page=f"{API}/comparisons/{comparison.id}/page",
        data_workbench="comparison-page",
    )
    if any(row.seconds is not None for row in summary.rows):
        yield icon_button(
            "copy",
            "Put the table into a cell",
            **command("cell", text=as_markdown(summary)),
            data_workbench="comparison-cell",
        )
    if not comparison.active:
        delete = action("delete_comparison", comparison=comparison.id)
        yield confirmed("delete", "Delete this comparison", "Delete?", "delete-comparison", **delete)
