"""Figures in cells of a notebook: live while a cell computes, paused, in the page's theme, after a reload."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, OpenLab, Screenshot, change_theme, coloured, open_notebook, run_cell, write_notebook
from tests.waiting import until

CELLS = (
    """import time
from pathlib import Path
from distributed import Client
from workbench.panels import Watch
client = Client(n_workers=1, threads_per_worker=2, memory_limit="400MiB", dashboard_address="127.0.0.1:0")
def nap(number):
    time.sleep(0.1)
    return number
def naps(seconds):
    sum(client.gather(client.map(nap, range(int(20 * seconds)), pure=False)))""",
    """watch = Watch(client, name="forty naps")
watch""",
    "Watch(client)",
    "naps(1)",
)


COUNTED = """cell => [...Bokeh.index].find(view => cell.contains(view.el))
    ?.model.document.get_model_by_name('progress').data.count.join()"""


def find_bokeh(page: Page) -> None:
    """Make the BokehJS that all figures of the page share a variable of the page."""
    page.wait_for_function("() => window.__dask_workbench_bokeh__?.size", timeout=MINUTE)
    page.evaluate("async () => { window.Bokeh = await [...window.__dask_workbench_bokeh__.values()][0] }")


def counted(cell: Locator) -> str:
    """Return the progress in the figure of a cell, such as "3 / 20"; it is drawn only while it is in view."""
    cell.locator(".wb-Figure").scroll_into_view_if_needed()
    return str(cell.evaluate(COUNTED))


def wait_for_count(cell: Locator, end: str) -> None:
    until(lambda: counted(cell).endswith(end), MINUTE / 1000)


def test_figures_are_live_in_cells_and_there_again_after_a_reload(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot
) -> None:
    seen = lab.notebooks / "seen"
    seen.unlink(missing_ok=True)
    write_notebook(lab.notebooks / "cells.ipynb", CELLS)
    page = open_lab()
    open_notebook(page, "cells.ipynb")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")
    watch, stream = cells.nth(1).locator(".wb-Cell"), cells.nth(2).locator(".wb-Cell")
    expect(watch).to_contain_text("1 worker", timeout=MINUTE)
    expect(stream.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    expect(cells.nth(3).locator(".jp-InputPrompt")).to_have_text("[4]:", timeout=MINUTE)
    find_bokeh(page)
    wait_for_count(watch, "20 / 20")
    page.wait_for_timeout(500)
    assert coloured(watch) > 1_000
    assert coloured(stream) > 1_000

    # While the kernel computes, figures go on: they need no message from the page.
    cells.nth(3).locator(".cm-content").fill("naps(10)\nwhile not Path('seen').exists(): time.sleep(0.1)")
    run_cell(page, cells.nth(3))
    wait_for_count(watch, " / 200")
    expect(cells.nth(3).locator(".jp-InputPrompt")).to_have_text("[*]:")
    screenshot("cells-light")

    # Paused, a figure stands still and catches up.
    watch.get_by_role("button", name="Pause").click()
    before = counted(watch)
    page.wait_for_timeout(1_000)
    assert counted(watch) == before
    watch.get_by_role("button", name="Follow").click()
    seen.touch()
    expect(cells.nth(3).locator(".jp-InputPrompt")).to_have_text("[5]:", timeout=MINUTE)
    wait_for_count(watch, "200 / 200")

    change_theme(page, "JupyterLab Dark")
    host = watch.locator(".wb-Figure-host > div")
    expect(host).to_have_css("background-color", "rgb(33, 33, 33)", timeout=MINUTE)
    wait_for_count(watch, "200 / 200")
    page.wait_for_timeout(500)
    screenshot("cells-dark")

    # After a reload both are there again, with all that was seen.
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
    page = open_lab()
    expect(watch).to_contain_text("1 worker", timeout=MINUTE)
    find_bokeh(page)
    wait_for_count(watch, "200 / 200")

    # Run again, the cell shows another figure, and the first one watches no more; nothing is left when the last closes.
    run_cell(page, cells.nth(2))
    cells.nth(3).locator(".cm-content").fill(
        "watch.close()\nlist(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins)))"
    )
    run_cell(page, cells.nth(3))
    expect(watch).to_contain_text("nothing more to watch", timeout=MINUTE)
    expect(watch.get_by_role("button", name="Pause")).to_be_hidden()

    # And long after it was closed, when its kernel has let go of the page, it still follows the theme.
    page.wait_for_timeout(6_000)
    change_theme(page, "JupyterLab Light")
    expect(host).to_have_css("background-color", "rgb(255, 255, 255)", timeout=MINUTE)
    wait_for_count(watch, "200 / 200")
    screenshot("cells-closed")
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
