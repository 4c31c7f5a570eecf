"""First steps: the tour, and where a list is still empty the click that begins it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.views import html_of
from workbench.clusters import control
from workbench.errors import BadInputError, ConflictError
from workbench.runs import store
from workbench.session import Session
from workbench.views.actions import perform
from workbench.views.service import Service


class Button(NamedTuple):
    """A button of a view, with the action of a click."""

    action: str
    arguments: dict[str, Any]
    then: dict[str, Any]

    def click(self) -> Any:
        """Have it done, and return the result."""

        async def done() -> Any:
            service = Service("/", logging.getLogger(__name__), Session)
            try:
                return await perform(service, self.action, self.arguments)
            finally:
                await service.close()

        return asyncio.run(done())


def button(hook: str, view: str, **choices: str) -> Button:
    """Return the button of a view with this hook."""
    (element,) = [each for each in re.findall(r"<button[^>]*>", html_of(view, choices)) if f'"{hook}"' in each]
    said = dict(re.findall(r'data-(action|arguments|then)="([^"]*)"', element))
    arguments, then = (json.loads(unescape(said.get(name, "{}"))) for name in ("arguments", "then"))
    return Button(said["action"], arguments, then)


def test_from_nothing_to_a_comparison_each_empty_list_has_the_click_that_begins_it(data_folder: Path) -> None:
    first = button("start-example", "clusters")
    assert button("start-for-run", "runs") == button("start-for-work", "work") == first
    first.click()
    (cluster,) = Session().clusters()
    cluster = asyncio.run(control.wait(cluster.name, timeout=60))
    assert (cluster.spec.n_workers, cluster.status) == (2, "ready")
    example = button("run-example", "runs")
    example.click()
    (run,) = store.select()
    run = Session().wait_run(run.id)
    assert (run.status, run.check and run.check.passed) == ("done", True)
    button("compare-example", "comparisons").click()
    (comparison,) = Session().comparisons()
    assert [row.spec and row.spec.n_workers for row in comparison.rows] == [1, 2]
    Session().cancel_comparison(comparison.id)
    assert "run-example" not in html_of("runs")
    assert "compare-example" not in html_of("comparisons")
    Session().stop_all()


def test_a_folder_without_a_file_offers_one_that_a_workload_can_read(tmp_path: Path, data_folder: Path) -> None:
    (tmp_path / "folder").mkdir()
    chosen = {"workload": "svd_of_file", "browse.path": str(tmp_path)}
    write = button("write-example", "work", **chosen)
    write.click()
    assert write.then == {"run.svd_of_file.path": str(tmp_path / "example.npy"), "browse.path": None}
    values = np.linalg.svd(np.load(tmp_path / "example.npy"), compute_uv=False)
    assert values[3] > 1.5 * values[4], "four values stand out"
    assert "write-example" not in html_of("work", chosen)
    with pytest.raises(ConflictError, match="is there already"):
        write.click()


def test_a_folder_without_a_function_offers_one_that_is_a_workload(tmp_path: Path, data_folder: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty.py").touch()
    in_file = button("write-example", "work", **{"browse.functions": str(tmp_path / "empty.py")})
    (tmp_path / "empty.py").unlink()
    in_folder = button("write-example", "work", **{"browse.functions": str(tmp_path)})
    assert in_file == in_folder
    in_folder.click()
    assert Session().workload(in_folder.then["workload"]).schema()["properties"].keys() >= {"n", "chunks"}


def test_the_tour_has_four_steps_and_is_dismissed_for_good(data_folder: Path) -> None:
    steps = [re.findall(r'data-tour="(\w+)"', html_of("sidebar", {"tour.step": step})) for step in (0, 1, 2, 3, 4, "x")]
    assert steps == [["hardware"], ["clusters"], ["workloads"], ["runs"], ["hardware"], ["hardware"]]
    button("tour-over", "sidebar").click()
    assert "data-tour" not in html_of("sidebar")
    assert "data-tour" not in html_of("wide")


@pytest.mark.parametrize("path", ["example.txt", "nowhere/example.npy", "s3://bucket/example.npy", "", "example.npy\0"])
def test_an_example_is_written_under_its_own_name_into_a_folder_that_is_there(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"Give example\.npy or example\.py"):
        Session().write_example(path)
    assert not list(tmp_path.iterdir())
