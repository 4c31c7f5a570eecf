"""Workloads of this package, and their groups in lists. The catalogue is imported on first use: it loads Dask."""

from __future__ import annotations

from workbench.threads import load
from workbench.workloads.registry import Template


def templates() -> tuple[Template, ...]:
    """Return all workloads of ours, in the order in which they are shown."""
    load("workbench.workloads.catalogue")
    from workbench.workloads.catalogue import TEMPLATES

    return TEMPLATES


def group_of(name: str) -> str:
    """Return the title of the group of a workload in lists."""
    load("workbench.workloads.catalogue")
    from workbench.workloads.catalogue import GROUPS

    return next((title for title, group in GROUPS.items() if any(each.name == name for each in group)), "Yours")
