"""The sidebar's Compare: a form, and the comparisons with their bars, table and what can be done with each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from workbench.figures.markup import ago, folded, icon_button, joined, meter, paragraph, tag, unbroken
from workbench.runs.comparing.table import as_markdown, judged_text, seconds_text
from workbench.views.answers import API
from workbench.views.parts import confirmed

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.runs.comparing.table import RowSummary, Summary
    from workbench.views.page import Sight

SHOWN = 5

_WEAK = "Size grows with the workers swept"
_WEAK_TOLD = "Weak scaling: each worker has as much to do, however many there are. It needs a sweep of workers."

_AGREED = "The network is trusted, for UCX"
_AGREED_TOLD = "A cluster over UCX has no encryption and listens on all network interfaces: nothing else asks for this."

_WIDE = "grid-column: 1 / -1"


def pace(sight: Sight) -> float:
    """Seconds after which a comparison that goes on has moved."""
    return 1.0 if any(each.active for each in sight.session.comparisons(limit=SHOWN)) else 30.0


def compare(sight: Sight, _: str) -> str:
    """A form that starts a comparison, and the latest ones."""
    import time

    found = sight.session.comparisons(limit=SHOWN)
    listed = (_one(sight, each, time.time()) for each in found)
    return _form(sight) + tag("ul", *listed, class_="wb-Runs")


def _form(sight: Sight) -> str:
    workloads = [tag("option", escape(each.title), value=each.name) for each in sight.session.workloads()]
    styled = "jp-mod-styled"
    on = tag(
        "textarea",
        "cpu --workers 1 --threads 1\ncpu --workers 2 --threads 1",
        name="on",
        rows=3,
        spellcheck="false",
        style="width: 100%; box-sizing: border-box; resize: vertical; white-space: pre; overflow-x: auto; "
        "font: var(--jp-code-font-size) var(--jp-code-font-family); color: var(--jp-ui-font-color0); "
        "background: var(--jp-input-background, var(--jp-layout-color0)); border: 1px solid var(--jp-border-color1)",
        class_=styled,
        id="wb-compare-on",
        data_workbench="compare-on",
    )
    return tag(
        "form",
        tag(
            "div",
            _field("Workload", tag("select", *workloads, name="workload", class_=styled, id="wb-compare-workload")),
            tag("label", "On, one cluster a line (none: as a preset has it)", for_="wb-compare-on", style=_WIDE),
            tag("div", on, style=_WIDE),
            _field("Parameters", _text("parameters", "size=0.5GiB or preset=post")),
            _field("Sweep", _text("sweep", "workers=1,2,4")),
            _field("Repeats", _text("repeats", "5")),
            _box("weak", _WEAK, _WEAK_TOLD),
            _box("agreed", _AGREED, _AGREED_TOLD) if sight.session.hardware().ucx.installed else "",
            class_="wb-Form",
        ),
        tag(
            "button",
            "Compare",
            type="button",
            class_="wb-Button jp-mod-styled jp-mod-accept",
            style="margin: 8px 0",
            data_request="POST comparisons",
            data_workbench="compare",
        ),
        id="wb-compare-form",
    )


def _box(name: str, label: str, told: str) -> str:
    hook = f"compare-{name}"
    box = tag("input", type="checkbox", name=name, value="true", id=f"wb-{hook}", data_workbench=hook)
    return tag("label", box, label, class_="wb-Check", style=_WIDE, title=told)


def _field(label: str, control: str) -> str:
    return tag(
        "div",
        tag("label", escape(label), for_=f"wb-compare-{label.lower()}"),
        tag("span", control, class_="wb-Field-control"),
        class_="wb-Field",
    )


def _text(name: str, example: str) -> str:
    return tag(
        "input",
        type="text",
        name=name,
        placeholder=example,
        spellcheck="false",
        class_="jp-mod-styled",
        id=f"wb-compare-{name}",
        data_workbench=f"compare-{name}",
    )


def _one(sight: Sight, comparison: Comparison, now: float) -> str:
    summary = sight.session.summary(comparison)
    title = joined((comparison.title, None if comparison.status in ("done", "running") else comparison.status))
    when = "" if comparison.active else ago(comparison.stopped or comparison.created, now)
    return tag(
        "li",
        tag(
            "div",
            tag("span", class_="wb-Dot", title=comparison.status),
            tag("span", escape(title), class_="wb-Run-title"),
            tag("span", escape(when), class_="wb-Muted"),
            class_="wb-Run-line",
        ),
        _progress(comparison),
        "" if comparison.active else paragraph(summary.verdict, "wb-Compare-verdict", data_workbench="verdict"),
        _bars(summary),
        paragraph(comparison.error or "", "wb-Problem"),
        tag(
            "div",
            tag("span", class_="wb-Muted"),
            tag("span", *_buttons(comparison, summary), class_="wb-Icons"),
            class_="wb-Run-foot",
        ),
        _notes(summary),
        id=f"wb-comparison-{comparison.id}",
        class_=f"wb-Run wb-mod-{comparison.status}",
        aria_label=f"Comparison of {comparison.workload}, {comparison.status}",
        data_workbench=f"comparison-{comparison.id}",
        data_status=comparison.status,
    )


def _progress(comparison: Comparison) -> str:
    if not comparison.active:
        return ""
    done = f"{comparison.done} of {comparison.total}"
    return paragraph(comparison.now or comparison.stage or "beginning …") + meter(
        "Runs done", comparison.done, comparison.total, done
    )


def _bars(summary: Summary) -> str:
    longest = max((row.seconds.median for row in summary.rows if row.seconds is not None), default=1.0)
    rows = (tag("li", _bar(row, longest)) for row in summary.rows)
    return tag("ul", *rows, style="list-style: none; margin: 4px 0; padding: 0", data_workbench="compare-bars")


def _bar(row: RowSummary, longest: float) -> str:
    name = tag("span", unbroken(row.on), title=row.describe)
    if row.seconds is None:
        return name + paragraph(row.reason or "–")
    # Beside the bar, numbers of unequal length would make bars of unequal scale.
    text = joined((seconds_text(row.seconds.median), judged_text(row)))
    return name + tag("div", escape(text), class_="wb-Muted") + meter(row.on, row.seconds.median, longest, "")


def _notes(summary: Summary) -> str:
    from workbench.runs.comparing.table import remarks

    sentences = "".join(paragraph(each) for each in remarks(summary))
    return folded("Notes", sentences, id=f"wb-notes-{summary.id}") if sentences else ""


def _buttons(comparison: Comparison, summary: Summary) -> Iterator[str]:
    path = f"comparisons/{comparison.id}"
    if comparison.active:
        yield icon_button("close", "Cancel", data_request=f"POST {path}/cancel", data_workbench="cancel-comparison")
    yield icon_button(
        "watch",
        "Chart and table in a tab of Lab",
        data_command="dask-workbench:watch",
        data_args=json.dumps({"comparison": comparison.id}),
        data_workbench="watch-comparison",
    )
    yield icon_button(
        "file",
        "Open chart and table in a new tab",
        data_page=f"{API}/{path}/page",
        data_workbench="comparison-page",
    )
    if any(row.seconds is not None for row in summary.rows):
        yield icon_button(
            "copy",
            "Put the table into a cell",
            data_command="dask-workbench:cell",
            data_args=json.dumps({"text": as_markdown(summary)}),
            data_workbench="comparison-cell",
        )
    if not comparison.active:
        yield confirmed(
            "delete",
            "Delete this comparison",
            "Delete?",
            data_request=f"DELETE {path}",
            data_workbench="delete-comparison",
        )
