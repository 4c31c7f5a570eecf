"""Comparisons: their list with progress, bars and actions of each, and the tab of one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from markupsafe import Markup

from workbench.figures.topology import topology_html, topology_of
from workbench.formats import ago
from workbench.markup import faint, folded, fragment, icon_button, joined, meter, paragraph, tag
from workbench.runs.comparing.html import bars_html, summary_html
from workbench.runs.comparing.table import as_markdown, remarks
from workbench.views import examples
from workbench.views.answers import API
from workbench.views.forms import as_text
from workbench.views.parts import action, command, confirmed, foot, line, more, notice

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.runs.comparing.table import Summary
    from workbench.views.context import Context

SHOWN = 5
_MORE = 20
"""Number of comparisons that are listed at first, and number added by each click."""


def pace(context: Context) -> float:
    """Return the period of the view: short while a comparison runs."""
    return 1.0 if any(each.active for each in context.session.comparisons(limit=SHOWN)) else 30.0


def comparisons(context: Context, _: str) -> Markup:
    """Return the list of the latest comparisons, with a link for more."""
    shown = int(context.choices.get("comparisons.shown") or SHOWN)
    found = context.session.comparisons(limit=None)
    if not found:
        return examples.empty("Nothing has been compared yet.", examples.first_comparison())
    listed = tag("ul", *(_one(context, each, time.time()) for each in found[:shown]), class_="wb-Runs", data_stop=True)
    return listed + more("comparisons", shown, _MORE, len(found) - shown)


def comparison(context: Context, name: str) -> Markup:
    """Return the tab of a comparison: its progress or verdict, bars and tables."""
    found = context.session.comparison(name)
    summary = context.session.summary(found)
    head = tag(
        "header",
        tag("span", class_="wb-Dot"),
        tag("h2", summary.title, " ", faint(_parameters(found)), class_="wb-Card-title"),
        tag("span", *_buttons(found, summary, in_tab=True), class_="wb-Icons"),
        class_=f"wb-Row wb-mod-{found.status}",
    )
    body = summary_html(summary) + _topology(found)
    return tag("article", head, _progress(found), body, class_="wb-Result", data_workbench="compared")


def tab(comparison: Comparison) -> dict[str, str]:
    """Return arguments of the command that opens the tab of a comparison."""
    return {"view": f"comparison:{comparison.id}", "label": f"{comparison.title}, compared"}


def page(comparison: Comparison, summary: Summary) -> str:
    """Return a comparison as one HTML page, which opens without a network."""
    from workbench.figures.report import page

    title = f"{comparison.title}, compared"
    body = tag("h1", title) + paragraph(comparison.id) + summary_html(summary) + _topology(comparison)
    return page(title, tag("main", body, class_="wb-Sheet"))


def _topology(comparison: Comparison) -> Markup:
    """Return the links between the GPUs, which explain the times of rows that have several; '' without GPUs."""
    topology = topology_of(comparison.inventory)
    if topology is None or not any(row.spec and row.spec.devices for row in comparison.rows):
        return Markup("")
    return topology_html(topology, simulated=comparison.simulated)


def _one(context: Context, comparison: Comparison, now: float) -> Markup:
    summary = context.session.summary(comparison)
    words = _parameters(comparison)
    state = None if comparison.status in ("done", "running") else comparison.status
    when = None if comparison.active else ago(comparison.stopped or comparison.created, now)
    return line(
        f"comparison-{comparison.id}",
        f"Comparison of {summary.title}",
        comparison.status,
        [tag("span", summary.title, " ", faint(words), class_="wb-Run-title", title=words or None)],
        _progress(comparison),
        "" if comparison.active else paragraph(summary.verdict, "wb-Verdict", data_workbench="verdict"),
        bars_html(summary),
        paragraph(comparison.error or "", "wb-Problem"),
        _notes(summary),
        foot(joined((state, when)), _buttons(comparison, summary)),
        notice(f"comparison={comparison.id}"),
        id=f"wb-comparison-{comparison.id}",
    )


def _parameters(comparison: Comparison) -> str:
    parameters = comparison.request.parameters if comparison.request else {}
    return ", ".join(f"{name}={as_text(value)}" for name, value in parameters.items())


def _progress(comparison: Comparison) -> Markup:
    if not comparison.active:
        return Markup("")
    done = f"{comparison.done} of {comparison.total}"
    return paragraph(comparison.now or comparison.stage or "beginning …") + meter(
        "Runs done", comparison.done, comparison.total, done
    )


def _notes(summary: Summary) -> Markup:
    sentences = fragment(*map(paragraph, remarks(summary)))
    return folded("Notes", sentences, id=f"wb-notes-{summary.id}") if sentences else Markup("")


def _buttons(comparison: Comparison, summary: Summary, *, in_tab: bool = False) -> Iterator[Markup]:
    if comparison.active:
        cancel = action("cancel_comparison", comparison=comparison.id)
        yield icon_button("close", "Cancel", **cancel, data_workbench="cancel-comparison")
    if not in_tab:
        yield icon_button(
            "watch",
            "Open bars and tables in a tab",
            **command("view", **tab(comparison)),
            data_workbench="watch-comparison",
        )
    yield icon_button(
        "file",
        "Open bars and tables as a page",
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
