"""Runs that are older than those which the sidebar is pushed, a page at a time: a fold with buttons for both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.figures.markup import paragraph, tag
from workbench.views.answers import LATEST_RUNS
from workbench.views.parts import live

if TYPE_CHECKING:
    from workbench.views.page import Sight


def older(sight: Sight) -> str:
    """A fold that asks for the first page when it is opened; nothing where there are no older runs."""
    total = sight.session.count_runs()
    if total <= LATEST_RUNS:
        return ""
    return tag(
        "details",
        tag("summary", f"{total - LATEST_RUNS:,} older".replace(",", " ")),
        live(_name(LATEST_RUNS)),
        id="wb-older",
        class_="wb-Details",
        data_workbench="older-runs",
    )


def page(sight: Sight, argument: str) -> str:
    """The page of runs that come after so many newer ones; a number of no use is that of the first page."""
    from workbench.views.runs import run_list

    offset = max(LATEST_RUNS, int(argument)) if argument.isdecimal() and len(argument) < 10 else LATEST_RUNS
    found = sight.session.runs(limit=LATEST_RUNS, offset=offset)
    if not found:
        return paragraph("There are no runs as old as that any more.") + _buttons(offset, 0)
    from workbench.views.answers import run_in_list

    total = sight.session.count_runs()
    where = f"{offset + 1:,} to {offset + len(found):,} of {total:,}".replace(",", " ")
    pager = tag("div", tag("span", where, class_="wb-Muted"), _buttons(offset, total), class_="wb-Row")
    return pager + run_list(sight, [run_in_list(run) for run in found]) + pager


def _buttons(offset: int, total: int) -> str:
    return _button("Newer", offset - LATEST_RUNS, total, "newer") + _button(
        "Older", offset + LATEST_RUNS, total, "older"
    )


def _button(label: str, offset: int, total: int, hook: str) -> str:
    """It shows another page in the place of this one; where there is none it stands there all the same."""
    there = offset >= LATEST_RUNS and (offset < total or hook == "newer")
    return tag("button", label, class_="wb-Link", disabled=not there, data_show=_name(offset), data_workbench=hook)


def _name(offset: int) -> str:
    return f"older-runs:{offset}"
