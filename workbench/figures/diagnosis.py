"""The diagnosis of a run as HTML that any page shows: one bar of shares, and suggestions. No Bokeh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.figures.colors import LIGHT
from workbench.figures.markup import paragraph, tag
from workbench.formats import percent
from workbench.runs.run import SHARE_TITLES, Peak

# Tasks, transfers and the disk have these colors in the task stream, too; all are visible on light and on dark pages.
COLORS = {
    "computing": "#2176b5",
    "transferring": LIGHT.transfer,
    "serialising": "#cc79a7",
    "spilling": LIGHT.disk,
    "scheduler": LIGHT.other,
    "idle": "transparent",
    "arriving": "#56b4e9",
}
MEANINGS = {
    "computing": "threads were in tasks",
    "transferring": "threads waited for blocks from other workers",
    "serialising": "threads waited for blocks to be packed or unpacked",
    "spilling": "threads waited for blocks that went to the disk for want of memory",
    "scheduler": "threads waited for the graph, the next task or the transfer of the answer",
    "idle": "others worked, and there was no task for them",
    "arriving": "workers were still in a queue, or starting",
}

_LEAST = 0.005
"""Share below which a piece would be invisible."""

_BAR = "display:flex;height:16px;max-width:900px;border:1px solid #8c8c8c;border-radius:3px;overflow:hidden"
_HATCHED = "repeating-linear-gradient(135deg,#8c8c8c66 0 2px,transparent 2px 7px)"


def diagnosis_html(diagnosis: Mapping[str, Any]) -> str:
    """Return the bar, legend, message and further suggestions of a `Diagnosis` as JSON."""
    shares = {name: share for name, share in diagnosis["shares"].items() if share >= _LEAST and name in COLORS}
    label = ", ".join(f"{SHARE_TITLES[name]} {percent(share)}" for name, share in shares.items())
    pieces = (
        tag(
            "span",
            style=f"flex:{share:.4f} 0 0;background:{_fill(name)}",
            title=f"{SHARE_TITLES[name]} {percent(share)}",
        )
        for name, share in shares.items()
    )
    bar = tag("div", *pieces, style=_BAR, role="img", aria_label=f"Of the workers' time: {label}")
    legend = tag("div", *(_entry(name, share) for name, share in shares.items()), style="margin:4px 0")
    return tag(
        "div",
        bar,
        legend,
        paragraph(diagnosis["sentence"], "diagnosis"),
        paragraph(f"Most memory: {Peak.model_validate(diagnosis['peak']).text()}." if diagnosis.get("peak") else ""),
        _further(diagnosis["suggestions"][1:]),
        data_workbench="diagnosis",
    )


def _entry(name: str, share: float) -> str:
    square = tag(
        "span",
        style=f"display:inline-block;width:9px;height:9px;margin-right:5px;border:1px solid #8c8c8c;"
        f"background:{_fill(name)}",
    )
    style = "display:inline-block;margin-right:14px;white-space:nowrap"
    return tag("span", square, f"{SHARE_TITLES[name]} {percent(share)}", style=style, title=MEANINGS[name])


def _further(suggestions: Any) -> str:
    if not suggestions:
        return ""
    items = (
        paragraph(f"{each['found'][:1].upper()}{each['found'][1:]}. Try: {each['change']}.") for each in suggestions
    )
    return tag("details", tag("summary", "What else could be better"), *items)


def _fill(name: str) -> str:
    return _HATCHED if name == "idle" else COLORS[name]
