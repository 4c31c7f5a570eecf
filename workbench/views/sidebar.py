"""The sidebar: hardware, clusters, what can be computed, runs, comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.figures.markup import tag
from workbench.views.parts import live, section

if TYPE_CHECKING:
    from workbench.views.page import Sight


def sidebar(sight: Sight, _: str) -> str:
    """All sections, one below the other."""
    return "".join(_sections(sight))


def wide(sight: Sight, _: str) -> str:
    """The same side by side: what is there, what is to be computed, what was."""
    hardware, clusters, work, runs, compare = _sections(sight)
    columns = (tag("div", *each) for each in ((hardware, clusters), (work, compare), (runs,)))
    return tag("div", *columns, class_="wb-Columns")


def _sections(sight: Sight) -> tuple[str, str, str, str, str]:
    mark = tag("span", "SIMULATED GPUs", class_="wb-Simulated") if sight.machine.inventory().simulated else ""
    return (
        section("hardware", "Hardware", live("hardware") + live("start"), note=mark),
        live("clusters"),
        section("workloads", "Workload", live("work")),
        section("runs", "Runs", live("runs")),
        section("compare", "Compare", live("compare")),
    )
