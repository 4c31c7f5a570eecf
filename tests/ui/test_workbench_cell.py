"""`Workbench()` in a cell of a notebook, and on the page of `workbench app`: the same clicks as in Lab's sidebar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, Request, expect

from tests.conftest import using_data_folder
from tests.test_app import app
from tests.ui.conftest import Lab
from tests.ui.steps import (
    MINUTE,
    change_theme,
    coloured,
    expect_form_of,
    hook,
    open_notebook,
    run_cell,
    unfold,
    write_notebook,
)
from workbench.session import Session

CELLS = ("from workbench.panels import Workbench\nWorkbench()",)


@pytest.fixture
def elsewhere(page: Page) -> list[str]:
    """Addresses on other machines that the page asked for."""
    found: list[str] = []

    def look(request: Request) -> None:
        if urlsplit(request.url).hostname not in (None, "127.0.0.1"):
            found.append(request.url)

    page.on("request", look)
    return found


def start(bench: Page | Locator, name: str, **fields: str) -> Locator:
    unfold(bench, "more-choices")
    for field, value in fields.items():
        hook(bench, f"field-{field}").fill(value)
    hook(bench, "field-name").fill(name)
    hook(bench, "start").click()
    cluster = hook(bench, f"cluster-{name}")
    expect(hook(cluster, "stage")).to_have_text("ready", timeout=MINUTE)
    return cluster


def run_array_sum(bench: Page | Locator, size: str) -> Locator:
    hook(bench, "workload-array_sum").click()
    hook(bench, "field-size").fill(size)
    expect(hook(bench, "run-button")).to_be_enabled()
    hook(bench, "run-button").click()
    return bench.locator(".wb-Run").first


def test_all_that_the_sidebar_does_is_done_in_a_cell(
    lab: Lab, open_lab: Callable[[], Page], screenshot: Callable[[str], Path], elsewhere: list[str]
) -> None:
    write_notebook(lab.notebooks / "bench.ipynb", CELLS)
    page = open_lab()
    page.set_viewport_size({"width": 1440, "height": 1300})
    open_notebook(page, "bench.ipynb")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    bench = page.locator(".wb-Cell")

    # Hardware, Start, Watch, Run.
    cluster = start(bench, "cell-otter", n_workers="2", threads_per_worker="1", memory="2GiB")
    expect(hook(cluster, "dashboard")).to_have_count(0)
    hook(cluster, "watch").click()
    figure = hook(bench, "watched-cell-otter")
    expect(figure).to_contain_text("2 workers", timeout=MINUTE)
    done = run_array_sum(bench, "256MiB")
    expect(hook(done, "check-passed")).to_be_visible(timeout=MINUTE)
    # The result takes the place of the cluster, with the task stream of the run.
    expect(figure).to_have_count(0)
    figure = bench.locator(".wb-Watched")
    expect(figure.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    page.wait_for_timeout(1000)
    assert coloured(figure) > 5_000
    screenshot("bench-light")
    with page.expect_download() as saved:
        figure.get_by_role("button", name="Save as PNG").click()
    assert Image.open(saved.value.path()).convert("RGB").getcolors(maxcolors=8) is None, "more colors than a blank page"
    change_theme(page, "JupyterLab Dark")
    expect(figure.locator(".wb-Figure-host > div").first).to_have_css(
        "background-color", "rgb(33, 33, 33)", timeout=MINUTE
    )
    page.wait_for_timeout(1000)
    screenshot("bench-dark")
    hook(figure, "close-figure").click()
    expect(figure).to_be_hidden()

    # A report in a tab of its own, which can't reach this page; a run as a file.
    with page.context.expect_page() as report:
        hook(done, "report").click()
    inside = report.value.frame_locator("iframe")
    expect(inside.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    assert inside.locator("body").evaluate("() => window.origin") == "null"
    report.value.close()
    # Pages of the documentation, whose links lead from one to the next.
    with page.context.expect_page() as pages:
        hook(hook(bench, "section-clusters"), "help").click()
    shown = pages.value.frame_locator("iframe").locator("article:visible")
    expect(shown.locator("h1")).to_have_text("Use a cluster")
    shown.get_by_role("link", name="attach to it").click()
    expect(shown.locator("h1")).to_have_text("Attach to a scheduler")
    pages.value.close()
    hook(done, "run-more").click()
    hook(done, "export").click()
    with page.expect_download() as file:
        hook(done, "export-zip").click()
    assert file.value.suggested_filename.endswith(".zip")

    # A preset; a parameter that is refused; a run that is deleted.
    hook(bench, "preset").select_option(index=1)
    expect(bench).to_contain_text("From: ")
    hook(bench, "preset").select_option(index=0)
    hook(bench, "field-size").fill("-3")
    expect(bench.locator(".wb-mod-wrong .wb-Problem")).to_contain_text("size")
    expect(hook(bench, "run-button")).to_be_disabled()
    hook(bench, "field-size").fill("8MiB")
    expect(hook(bench, "run-button")).to_be_enabled(timeout=MINUTE)
    for _ in range(2):
        hook(done, "delete-run").click()
    expect(bench.locator(".wb-Run")).to_have_count(0, timeout=MINUTE)

    # Code goes into a cell of this notebook.
    hook(cluster, "connect").click()
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    written = cells.locator(".jp-InputArea", has_text='workbench.connect("cell-otter")')
    expect(written).to_be_visible(timeout=MINUTE)
    unfold(bench, "workload-source")
    hook(bench, "insert-workload").click()
    expect(cells).to_have_count(3)

    # Scale and stop.
    hook(cluster, "scale").click()
    hook(cluster, "n-workers").fill("1")
    hook(cluster, "apply-scale").click()
    expect(hook(cluster, "scale")).to_contain_text("1 worker ×", timeout=MINUTE)
    hook(cluster, "stop").click()
    expect(cluster).to_have_count(0, timeout=MINUTE)

    # Compare.
    hook(bench, "compare-repeats").fill("2")
    hook(bench, "compare").click()
    compared = bench.locator('[data-workbench^="comparison-compare-array_sum"]')
    expect(hook(compared, "verdict")).to_be_visible(timeout=3 * MINUTE)
    hook(compared, "watch-comparison").click()
    expect(bench.locator(".wb-Watched")).to_contain_text("One core", timeout=MINUTE)
    screenshot("bench-compared")
    page.set_viewport_size({"width": 620, "height": 1300})
    page.wait_for_timeout(1000)
    screenshot("bench-narrow")
    assert page.evaluate("() => document.querySelector('.jp-Notebook').scrollWidth <= innerWidth")
    for _ in range(2):
        hook(compared, "delete-comparison").click()
    expect(compared).to_have_count(0, timeout=MINUTE)
    assert elsewhere == []


def test_it_is_live_while_the_kernel_computes_there_again_after_a_reload_and_tells_of_its_end(
    lab: Lab, open_lab: Callable[[], Page]
) -> None:
    write_notebook(lab.notebooks / "busy.ipynb", (*CELLS, "input('go on? ')"))
    page = open_lab()
    open_notebook(page, "busy.ipynb")
    cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")
    bench = cells.first.locator(".wb-Cell")
    # The page greets the kernel when it computes the second cell already.
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    answer = cells.nth(1).locator("input.jp-Stdin-input")
    expect(answer).to_be_visible(timeout=MINUTE)
    expect(hook(bench, "run-button")).to_be_visible(timeout=MINUTE)
    hook(bench, "workload-compressed_svd").click()
    expect_form_of(bench, "compressed_svd")
    expect(cells.nth(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    answer.fill("yes")
    answer.press("Enter")
    expect(cells.nth(1).locator(".jp-InputPrompt")).to_have_text("[2]:", timeout=MINUTE)

    # A cell that was run twice shows its page after a reload.
    run_cell(page, cells.first)
    expect(cells.first.locator(".jp-InputPrompt")).to_have_text("[3]:", timeout=MINUTE)
    expect(hook(bench, "run-button")).to_be_visible(timeout=MINUTE)
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
    page = open_lab()
    expect(hook(bench, "run-button")).to_be_visible(timeout=MINUTE)
    hook(bench, "workload-transpose_sum").click()
    expect_form_of(bench, "transpose_sum")

    # It doesn't look alive when its kernel no longer is.
    page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart() }")
    expect(bench).to_contain_text("The kernel of this cell has ended. Run the cell again.", timeout=MINUTE)
    run_cell(page, cells.first)
    expect(bench).not_to_contain_text("The kernel of this cell has ended.", timeout=MINUTE)
    expect(hook(bench, "run-button")).to_be_visible(timeout=MINUTE)

    # Nor does ipywidgets' message stand alone where its kernel was gone when the page was loaded.
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
    page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.shutdown() }")
    page = open_lab()
    expect(cells.first.get_by_text("Run the cell again.")).to_be_visible(timeout=MINUTE)
    missing = cells.first.get_by_text("model not found")
    expect(missing).to_be_attached(timeout=MINUTE)
    expect(missing).to_be_hidden()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Address of `workbench app`, with its token."""
    with using_data_folder(tmp_path), app() as address:
        yield address
        Session().stop_all()


def test_it_works_where_there_is_no_jupyter(
    served: str, page: Page, screenshot: Callable[[str], Path], elsewhere: list[str]
) -> None:
    page.goto(served)
    cluster = start(page, "served-otter", n_workers="1", threads_per_worker="1", memory="1GiB")
    done = run_array_sum(page, "64MiB")
    expect(hook(done, "check-passed")).to_be_visible(timeout=MINUTE)
    hook(done, "watch-run").click()
    figure = page.locator(".wb-Watched")
    expect(figure.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    page.wait_for_timeout(1000)
    screenshot("bench-served")
    assert coloured(figure) > 1_000
    assert figure.bounding_box()["y"] < 500
    # Run stays in view above what is watched, and a column has what is below its end as well.
    run = hook(page, "run-button").bounding_box()
    assert run["y"] + run["height"] <= figure.bounding_box()["y"]
    expect(page.locator("[data-live=comparisons]").locator("[data-workbench=compare-example]")).to_have_count(1)
    expect(hook(page, "tour")).to_be_hidden()
    hook(page, "close-figure").click()
    expect(hook(page, "tour")).to_be_visible()
    run = hook(page, "run-button").bounding_box()
    assert run["y"] + run["height"] <= page.viewport_size["height"]
    screenshot("bench-toured")
    hook(cluster, "stop").click()
    expect(cluster).to_have_count(0, timeout=MINUTE)
    assert urlsplit(page.url).query == ""
    assert elsewhere == []
