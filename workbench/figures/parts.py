"""Figures of a part of what a live figure shows: the task stream alone, CPU and memory, or the GPUs."""

from __future__ import annotations

from typing import Literal

from workbench.figures import gpu_lines
from workbench.figures.layout import Layout

Part = Literal["tasks", "progress", "cpu", "memory", "gpus"]

PARTS: tuple[Part, ...] = ("tasks", "progress", "cpu", "memory", "gpus")

_ALWAYS = {"limits", "window", "mark"}
_SOURCES: dict[Part, set[str]] = {
    "tasks": {"tasks", "lanes", "replay"},
    "progress": {"progress"},
    "cpu": {"workers_cpu"},
    "memory": {"workers_memory"},
    "gpus": set(gpu_lines.COLUMNS),
}


def sources_of(parts: tuple[Part, ...]) -> frozenset[str]:
    """Return the names of the sources that a figure of these parts draws."""
    return frozenset(_ALWAYS.union(*(_SOURCES[part] for part in parts)))


def show_only(layout: Layout, parts: tuple[Part, ...]) -> None:
    """Take what isn't among the parts off a figure; the words that say why it is empty belong to the tasks."""
    plots = {"tasks": layout.stream, "progress": layout.progress, "cpu": layout.cpu, "memory": layout.memory}
    plots["gpus"] = layout.gpus.root
    kept = [*(plots[part] for part in parts)]
    if parts == ("gpus",):
        layout.gpus.show(range(len(layout.gpus.plots)))
    if "cpu" in parts or "memory" in parts:
        kept.append(layout.workers)
    if "tasks" in parts:
        kept.extend(child for child in layout.root.children if child not in (*plots.values(), layout.workers))
    layout.root.children = [child for child in layout.root.children if child in kept]
