"""Bandwidth between each pair of workers, as a heat map in HTML: live, and for a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from workbench.figures.colors import VIRIDIS, ink_on
from workbench.formats import count
from workbench.markup import tag
from workbench.runs.transfers import labels, speeds

_MOST_WITH_QUARTILES = 5
_MOST_LABELLED = 14
"""Largest number of workers for which cells show a number, or three quartiles. Otherwise the tooltip has it."""

_CELL = "padding: 3px 6px; height: 20px; text-align: center; white-space: nowrap; border: 1px solid"


def heat_map(
    names: Sequence[str],
    cells: Mapping[tuple[int, int], tuple[float, str, str]],
    *,
    note: str = "",
) -> Markup:
    """Return a table with a row for each receiving worker and a column for each sending one.

    `cells`, by the indices of receiver and sender, hold bytes per second, the cell's text in MiB, and a further word.
    `note` is appended to the title.
    """
    top = max((speed for speed, *_ in cells.values()), default=0.0) or 1.0
    labelled = len(names) <= _MOST_LABELLED
    upright = "min-width: 44px" if labelled else "writing-mode: vertical-rl"

    def cell(receiver: int, sender: int) -> Markup:
        if (receiver, sender) not in cells:
            return tag("td", style=_CELL + " transparent")
        speed, text, more = cells[receiver, sender]
        color = VIRIDIS[min(int(speed / top * len(VIRIDIS)), len(VIRIDIS) - 1)]
        title = f"{names[sender]} to {names[receiver]}: {text} MiB/s{more and ', '}{more}"
        style = f"{_CELL} transparent; background: {color} padding-box; color: {ink_on(color)}"
        return tag("td", text if labelled else "", style=style, title=title)

    def head(text: str, scope: str, more: str = "") -> Markup:
        return tag("th", text, scope=scope, style=f"padding: 3px 6px; font-weight: 600; {more}")

    places = range(len(names))
    title = f"MiB/s, up to {speeds([top])}{note}: rows receive, columns send"
    rows = (tag("tr", head(names[row], "row"), *(cell(row, column) for column in places)) for row in places)
    return tag(
        "table",
        tag("caption", title, style="text-align: left; padding: 0 6px; white-space: nowrap"),
        tag("thead", tag("tr", tag("td"), *(head(each, "col", upright) for each in names))),
        tag("tbody", *rows),
        style="border-collapse: collapse; font-variant-numeric: tabular-nums",
        data_workbench="bandwidth",
    )


def bandwidth_html(bandwidth: Mapping[str, Any], note: str = "") -> Markup:
    """Return the heat map of `result["bandwidth"]` of a run, by medians; '' if no message was larger than 1 MB."""
    if not bandwidth["n_messages"]:
        return Markup("")
    with_quartiles = len(bandwidth["workers"]) <= _MOST_WITH_QUARTILES
    cells = {
        (receiver, sender): (
            cell["bandwidth"][1],
            speeds(cell["bandwidth"] if with_quartiles else cell["bandwidth"][1:2]),
            count(cell["count"], "message"),
        )
        for receiver, row in enumerate(bandwidth["matrix"])
        for sender, cell in enumerate(row)
        if cell is not None
    }
    return heat_map(labels(bandwidth["workers"]), cells, note=note)
