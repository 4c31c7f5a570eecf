"""One-click examples for lists that are still empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from workbench.clusters.profiles import DEFAULT_PROFILE
from workbench.markup import paragraph, tag
from workbench.views.parts import action, button, notice

if TYPE_CHECKING:
    from workbench.views.context import Context

_SMALL = {"size": "1GiB"}
"""Parameters with which a workload takes about a second on two cores."""

_FILES = {"data": ("example.npy", ""), "function": ("example.py", ":spread")}
"""File names of examples that are written on request, with suffixes for the choice of a part."""


def empty(sentence: str, *actions: str) -> Markup:
    """Return a message that a list is empty, with buttons that change that."""
    return tag("div", paragraph(sentence), *actions, class_="wb-Empty")


def start_workers(hook: str = "start-example", label: str = "Start two CPU workers", **looks: Any) -> Markup:
    """Return a button that starts a small cluster."""
    body = {"profile": DEFAULT_PROFILE, "choices": {"n_workers": 2, "threads_per_worker": "1"}}
    return button(label, **action("start", **body), data_workbench=hook, **looks)


def run_on(cluster: str, label: str = "Run the first example", workload: str = "array_sum") -> Markup:
    """Return a button that runs a workload on a random array on a cluster."""
    return button(
        label,
        title=f"{workload} of 1 GiB of random numbers on {cluster}",
        **action("run", workload=workload, parameters=_SMALL, cluster=cluster),
        data_workbench="run-example",
    ) + notice("run")


def first_run(context: Context) -> Markup:
    """Return a button for the first run: it starts a cluster, or runs an example on one."""
    if ready := context.ready():
        return run_on(max(ready, key=lambda each: each["created"])["name"])
    if context.clusters("starting"):
        return tag("span", "An example can run as soon as the cluster is ready.", class_="wb-Muted")
    return start_workers("start-for-run")


def first_comparison() -> Markup:
    """Return a button that measures the speedup by a second worker."""
    on = [f"cpu --workers {n} --threads 1" for n in (1, 2)]
    return button(
        "Compare 1 and 2 workers",
        title="Sum a random array of 1 GiB on one worker and on two, three times each",
        **action("compare", workload="array_sum", parameters=_SMALL, on=on, repeats=3),
        data_workbench="compare-example",
    ) + notice("compare")


def write_file(kind: str, folder: str, chosen: str, then: Mapping[str, None]) -> Markup:
    """Return a button that writes an example into a local folder and chooses it; '' for a URL.

    `chosen` is the name of the choice that is set to the file, `then` contains further choices.
    """
    if "://" in folder:
        return Markup("")
    name, part = _FILES[kind]
    path = f"{folder.rstrip('/')}/{name}"
    return button(
        f"Write {name} and open it",
        title=f"A small example: {path}",
        **action("write_example", path=path),
        data_then={chosen: f"{path}{part}", **then},
        data_workbench="write-example",
    ) + notice("write_example")
