"""Records whose every text tries to leave its place, in a real browser: no script of theirs runs, and all is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.hostile import keep_hostile_run
from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, OpenLab, hook, open_sidebar
from workbench.runs.run import Run
from workbench.session import Session
from workbench.views.run_files import write


@pytest.fixture(scope="module")
def runs(lab: Lab) -> list[Run]:
    return [keep_hostile_run(), keep_hostile_run("hostile-2")]


def assert_drawn_and_harmless(page: Page) -> None:
    """Check that a figure has tasks, point at it all over, and that nothing of the record has run."""
    expect(page.locator("table").first).to_be_visible(timeout=MINUTE)
    page.wait_for_function(
        """() => Bokeh.documents.some(each => each.get_model_by_name('tasks')?.data.left.length > 0)""", timeout=MINUTE
    )
    assert page.evaluate("() => globalThis.hostile ?? null") is None
    for canvas in page.locator("canvas").all()[:12]:
        box = canvas.bounding_box()
        for share in (0.2, 0.4, 0.6, 0.8) if box else ():
            page.mouse.move(box["x"] + share * box["width"], min(890, box["y"] + box["height"] / 2))
    page.wait_for_timeout(500)
    assert page.evaluate("() => globalThis.hostile ?? null") is None
    assert page.locator("wb-hostile, img[src='x']").count() == 0


def test_a_saved_report_shows_a_hostile_record_and_runs_none_of_it(
    lab: Lab, runs: list[Run], page: Page, screenshot: Callable[[str], Path]
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(write(runs[0]).as_uri())
    assert_drawn_and_harmless(page)
    screenshot("hostile-report")
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_servers_pages_show_a_hostile_record_and_run_none_of_it(lab: Lab, runs: list[Run], page: Page) -> None:
    page.goto(f"{lab.root}workbench/api/runs/{runs[0].id}/report?token={lab.token}")
    assert_drawn_and_harmless(page)
    comparison = Session().compare_runs([each.id for each in runs])
    page.goto(f"{lab.root}workbench/api/comparisons/{comparison.id}/page?token={lab.token}")
    expect(page.locator("table").first).to_be_visible(timeout=MINUTE)
    assert page.evaluate("() => globalThis.hostile ?? null") is None


def test_lab_shows_a_hostile_record_and_runs_none_of_it(
    runs: list[Run], open_lab: OpenLab, screenshot: Callable[[str], Path]
) -> None:
    page = open_lab()
    open_sidebar(page)
    line = hook(page, f"run-{runs[0].id}")
    hook(line, "run-more").click()
    hook(line, "run-log").click()
    expect(line.locator(".wb-Log")).to_contain_text("after", timeout=MINUTE)
    hook(line, "watch-run").click()
    expect(page.locator(".wb-Figure canvas, .jp-MainAreaWidget canvas").first).to_be_visible(timeout=MINUTE)
    page.wait_for_timeout(1000)
    screenshot("hostile-lab")
    assert page.evaluate("() => globalThis.hostile ?? null") is None
    assert page.locator("wb-hostile, img[src='x']").count() == 0
