"""Compare in a notebook, driven through its widgets. Nothing starts here; tests/test_compare_runs.py does that."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cell import Cell
from tests.test_compare import comparison, row, times
from workbench.errors import FailedError
from workbench.figures.colors import DARK
from workbench.panels import Workbench
from workbench.panels.compare import Compare, Compared
from workbench.runs.comparing import comparisons
from workbench.session import Session


def until(true: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
    return found


def test_a_comparison_is_shown_in_the_colours_that_were_asked_for(data_folder: Path) -> None:
    comparisons.create(comparison(row("one", times(6)), row("two", times(3, seed=1))))
    with Compared("last", theme="dark") as figure:
        cell = Cell(figure, "dark")
        until(lambda: cell.column("rows", "median"))
        assert cell.column("rows", "median") == [pytest.approx(6, rel=0.05), pytest.approx(3, rel=0.05)]
        assert figure.theme == "dark"
        assert DARK.background in json.dumps(cell.asked("figures/comparison/last?theme=dark")["value"]["item"])


def test_what_can_not_be_compared_is_a_sentence(data_folder: Path) -> None:
    panel = Compare(Session())
    panel.on.value, panel.sweep.value = "cpu", "frob=1,2"
    panel.compare_button.clicks += 1
    assert "'frob' is no parameter" in until(lambda: panel.notice.text)
    panel.on.value, panel.sweep.value = "gpu", ""
    panel.compare_button.clicks += 1
    assert "None of these can be had" in until(lambda: "gpu profile" in panel.notice.text and panel.notice.text)


def test_an_earlier_comparison_is_shown_again(data_folder: Path) -> None:
    comparisons.create(comparison(row("one", times(6)), row("two", times(3, seed=1))))
    panel = Compare(Session(), theme="light")
    panel.earlier.value = "compare-array_sum-abcdef"
    assert until(lambda: panel.shown).comparison.id == "compare-array_sum-abcdef"
    assert not panel.cancel_button.visible
    panel.hide()
    assert panel.shown is None


def test_the_workbench_compares_from_a_cell(data_folder: Path) -> None:
    with Workbench(theme="light") as bench, pytest.raises(FailedError, match="None of these can be had"):
        bench.compare("array_sum", {"size": "8MiB"}, on=["gpu"])
