"""The sidebar: hardware, clusters, workloads, runs, comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from workbench.markup import fragment, paragraph, tag
from workbench.views.parts import action, button, figure, link, live, notice, section
from workbench.views.tour import tour

if TYPE_CHECKING:
    from workbench.views.context import Context


def sidebar(context: Context, _: str) -> Markup:
    """Return all sections, one below the other."""
    return tour(context) + live("trust") + fragment(*_sections(context))


def wide(context: Context, _: str) -> Markup:
    """Return the sections in three columns: resources, computations, runs."""
    hardware, clusters, work, runs, compare = _sections(context)
    columns = (tag("div", *each) for each in ((hardware, clusters), (work, compare), (runs,)))
    return tour(context) + live("trust") + tag("div", *columns, class_="wb-Columns")


def watch(_: Context, target: str) -> Markup:
    """Return the figure of `cluster:` or `run:` and a name."""
    kind, name = target.split(":", 1)
    return figure(**{kind: name})


def trust(context: Context, _: str) -> Markup:
    """Return the question whether to trust the definitions of the working folder, until the user has answered it."""
    waiting = context.session.untrusted()
    if waiting is None:
        return Markup("")
    if waiting.problem is not None:
        return tag("div", paragraph(waiting.problem, "wb-Problem"), class_="wb-Banner", data_workbench="trust")
    if context.choices.get("trust.later") == waiting.sha:
        again = link(f"Not trusted: {waiting}", data_choose={"trust.later": None}, data_workbench="trust-again")
        return tag("div", again, class_="wb-Banner", data_workbench="trust")
    later = button("Not now", data_choose={"trust.later": waiting.sha}, data_workbench="trust-later")
    yes = button(
        "Trust",
        kind="warn",
        title="Workloads are code that runs as you; profiles name programs and servers that get your credentials",
        **action("trust", sha=waiting.sha),
        data_workbench="trust-yes",
    )
    return tag(
        "div",
        tag("span", waiting.question, title=str(waiting.folder)),
        tag("div", later, yes, class_="wb-Row"),
        notice("trust", "trust-problem"),
        class_="wb-Banner",
        role="region",
        aria_label="Trust this folder",
        data_workbench="trust",
    )


def _sections(context: Context) -> tuple[str, str, str, str, str]:
    mark = tag("span", "SIMULATED GPUs", class_="wb-Simulated") if context.machine.inventory().simulated else ""
    return (
        section("hardware", "Hardware", live("hardware") + live("start"), note=mark),
        live("clusters"),
        section("workloads", "Workload", live("work")),
        section("runs", "Runs", live("runs")),
        section("compare", "Compare", live("compare")),
    )
