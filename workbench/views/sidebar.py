"""The sidebar: hardware, clusters, what can be computed, runs, comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.figures.markup import tag
from workbench.views.parts import live, section

if TYPE_CHECKING:
    from workbench.views.page import Sight


def sidebar(sight: Sight, _: str) -> str:
    """All sections, one below the other."""
    mark = tag("span", "SIMULATED GPUs", class_="wb-Simulated") if sight.machine.inventory().simulated else ""
    return (
        section("hardware", "Hardware", live("hardware") + live("start"), note=mark)
        + live("clusters", class_="wb-mod-whole")
        + section("workloads", "Workload", live("work"))
        + section("runs", "Runs", live("runs"))
        + section("compare", "Compare", live("compare"))
    )
