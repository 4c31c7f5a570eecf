"""Tour of the sidebar in four steps, until the user ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from workbench import named_choices
from workbench.markup import faint, paragraph, tag
from workbench.views.parts import action, button, link, notice

if TYPE_CHECKING:
    from workbench.views.context import Context


class _Step(NamedTuple):
    section: str
    title: str
    text: str


_STEPS = (
    _Step(
        "hardware",
        "Choose hardware",
        "CPU uses the cores of this machine. The bold line says which cluster you get, and Change lets you alter it.",
    ),
    _Step(
        "clusters",
        "Start a cluster",
        "Click Start above, or Start two CPU workers here. The cluster is ready after a few seconds.",
    ),
    _Step(
        "workloads",
        "Run a workload",
        "Choose a computation. The line next to Run says whether it fits into memory. Click Run.",
    ),
    _Step(
        "runs",
        "Read the answer",
        "The run appears here with its answer, and a ✓ where that was checked. Click it: Save as… writes it to a file. "
        "Compare, below, measures other hardware.",
    ),
)


def tour(context: Context) -> Markup:
    """Return the current step of the tour, in an element that stays after its end."""
    return tag("div", "" if named_choices.is_tour_over() else _card(context), id="wb-tour", class_="wb-Tour")


def _card(context: Context) -> Markup:
    chosen = context.choices.get("tour.step")
    number = chosen if isinstance(chosen, int) and 0 <= chosen < len(_STEPS) else 0
    step, following = _STEPS[number], _STEPS[number + 1 : number + 2]
    position = faint(f"{number + 1} of {len(_STEPS)}")
    text = tag("div", tag("strong", step.title), " ", position, paragraph(step.text, ""), role="status")
    over = {**action("end_tour"), "data_workbench": "tour-over"}
    buttons = [button("Done", kind="accept", **over)]
    if following:
        go = {"data_choose": {"tour.step": number + 1}, "data_reveal": f"wb-section-{following[0].section}"}
        # The first button stays first, so that the keyboard's focus moves from Next to Done.
        buttons = [button("Next", kind="accept", **go, data_workbench="tour-next"), link("Don’t show again", **over)]
    row = tag("div", *buttons, class_="wb-Row")
    return tag(
        "div",
        text,
        row,
        notice("end_tour"),
        class_="wb-Banner",
        role="region",
        aria_label="First steps",
        data_tour=step.section,
        data_workbench="tour",
    )
