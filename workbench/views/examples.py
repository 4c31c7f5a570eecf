"""What works with one click where a list is still empty."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.figures.markup import paragraph, tag
from workbench.views.parts import button, notice

if TYPE_CHECKING:
    from workbench.views.page import Sight

_SMALL = {"size": "1GiB"}
"""Parameters with which a workload takes about a second on two cores."""

_FILES = {"data": ("example.npy", ""), "function": ("example.py", ":spread")}
"""Names of examples that are written on request, and what is chosen of each."""


def empty(sentence: str, *actions: str) -> str:
    """Say that nothing is here yet, with what changes that."""
    return tag("div", paragraph(sentence), *actions, class_="wb-Empty")


def start_workers(hook: str = "start-example", label: str = "Start two CPU workers", **looks: Any) -> str:
    """Button that starts a small cluster."""
    body = {"profile": "cpu", "choices": {"n_workers": 2, "threads_per_worker": "1"}}
    return button(label, data_request="POST clusters", data_body=body, data_workbench=hook, **looks)


def run_on(cluster: str, label: str = "Run the first example", workload: str = "array_sum") -> str:
    """Button that runs a workload on a random array on a cluster."""
    return button(
        label,
        title=f"{workload} of 1 GiB of random numbers on {cluster}",
        data_request="POST runs",
        data_body={"workload": workload, "parameters": _SMALL, "cluster": cluster},
        data_workbench="run-example",
    ) + notice("POST runs")


def first_run(sight: Sight) -> str:
    """What makes a first run: a cluster to begin with, then an example on it."""
    if ready := sight.ready():
        return run_on(max(ready, key=lambda each: each["created"])["name"])
    if sight.clusters("starting"):
        return tag("span", escape("An example can run as soon as the cluster is ready."), class_="wb-Muted")
    return start_workers("start-for-run")


def first_comparison() -> str:
    """Button that measures what a second worker brings."""
    on = [f"cpu --workers {n} --threads 1" for n in (1, 2)]
    return button(
        "Compare 1 and 2 workers",
        title="Sum a random array of 1 GiB on one worker and on two, three times each",
        data_request="POST comparisons",
        data_body={"workload": "array_sum", "parameters": _SMALL, "on": on, "repeats": 3},
        data_workbench="compare-example",
    ) + notice("POST comparisons")


def write_file(kind: str, folder: str, chosen: str, then: Mapping[str, None]) -> str:
    """Button that writes an example into a folder of this machine and chooses it; nothing for a URL.

    `chosen` is the name of the choice that becomes the file, `then` what else is chosen.
    """
    if "://" in folder:
        return ""
    name, part = _FILES[kind]
    path = f"{folder.rstrip('/')}/{name}"
    return button(
        f"Write {name} and open it",
        title=f"A small example: {path}",
        data_request="POST examples",
        data_body={"path": path},
        data_then={chosen: f"{path}{part}", **then},
        data_workbench="write-example",
    ) + notice("POST examples")
