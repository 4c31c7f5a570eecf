"""The notebooks that come with the package, by Run All in a real JupyterLab, as the first thing a person does."""

from __future__ import annotations

import shutil

from playwright.sync_api import Page, expect

from tests.test_notebooks import ROOT
from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, OpenLab, Screenshot, change_theme, coloured, open_notebook


def run_all(lab: Lab, page: Page, name: str) -> None:
    for each in (name, "digits.npy"):
        shutil.copy(ROOT / "notebooks" / each, lab.notebooks)
    open_notebook(page, name)
    page.evaluate("async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells') }")


def test_run_all_of_the_start_page_shows_what_was_watched(lab: Lab, open_lab: OpenLab, screenshot: Screenshot) -> None:
    page = open_lab()
    run_all(lab, page, "start.ipynb")
    cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")
    expect(cells.last).to_contain_text("check passed:", timeout=2 * MINUTE)
    watch = cells.nth(3).locator(".jp-OutputArea")
    watch.scroll_into_view_if_needed()
    expect(watch).to_contain_text("nothing more to watch", timeout=MINUTE)
    expect(watch.get_by_role("button", name="Pause")).to_be_hidden()
    stream = watch.locator(".bk-Figure").first
    page.wait_for_timeout(500)
    screenshot("start-notebook-watch-light")
    assert coloured(stream) > 1_000
    # Where the kernel answers, the totals that are kept for other pages are hidden.
    expect(page.locator("[id^=wb-static]:visible")).to_have_count(0)
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    change_theme(page, "JupyterLab Dark")
    expect(watch.locator(".wb-Figure-host > div")).to_have_css("background-color", "rgb(33, 33, 33)", timeout=MINUTE)
    page.wait_for_timeout(500)
    screenshot("start-notebook-watch-dark")
    page.set_viewport_size({"width": 700, "height": 900})
    watch.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    screenshot("start-notebook-watch-narrow")
    assert coloured(stream) > 500
