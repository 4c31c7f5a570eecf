"""A person's own file and own function, by clicks: picked, looked into, run, drawn, opened, compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import xarray as xr
from playwright.sync_api import Page, expect

from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, hook, open_notebook, open_sidebar, section, unfold
from workbench.session import Session

FUNCTION = '''import dask.array as da

def total(n: int = 400, seed: int = 0):
    """Sum of a random square."""
    return da.random.default_rng(seed).random((n, n), chunks=200).sum()'''


NONE = """def first(n: int = 1):
    return held.read(n)"""


def write_winds(path: Path) -> None:
    """Two patterns of different strength, and a little noise."""
    time, lat, lon = np.arange(40), np.linspace(-60, 60, 9), np.arange(0, 360, 30.0)
    rng, angle = np.random.default_rng(0), np.deg2rad(lon)
    waves = [np.outer(np.cos(np.deg2rad(lat)), wave) for wave in (np.cos(angle), np.sin(2 * angle))]
    u = sum(
        size * rng.normal(size=(40, 1, 1)) * wave for size, wave in zip((3.0, 1.5), waves, strict=True)
    ) + 0.1 * rng.normal(size=(40, 9, 12))
    dims = ("time", "lat", "lon")
    coords = {"time": time, "lat": lat, "lon": lon}
    xr.Dataset({"u": (dims, u, {"units": "m/s"})}, coords).to_netcdf(path, engine="h5netcdf")


def test_a_file_is_picked_analysed_and_drawn_and_a_function_of_a_cell_run_twice_and_compared(
    lab: Lab, open_lab: Callable[[], Page], screenshot: Callable[[str], Path]
) -> None:
    write_winds(lab.notebooks / "winds.nc")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (FUNCTION, NONE)])
    nbformat.write(notebook, lab.notebooks / "own.ipynb")
    Session().start(Session().plan("cpu", n_workers=1), name="calm")
    page = open_lab()
    open_notebook(page, "own.ipynb")
    open_sidebar(page)
    section(page, "hardware", opened=False)
    runs = section(page, "runs", opened=True)
    done = runs.locator('[data-status="done"]')

    hook(page, "workload-eofs").click()
    hook(page, "browse-path").click()
    hook(page, "browsed").get_by_text("winds.nc").click()
    expect(hook(page, "field-path")).to_have_value(str(lab.notebooks / "winds.nc"), timeout=MINUTE)
    hook(page, "holds").locator("summary").click(timeout=MINUTE)
    expect(hook(page, "holds")).to_contain_text("time 40 × lat 9 × lon 12")
    screenshot("own-holds")
    hook(page, "run-button").click(timeout=MINUTE)
    expect(hook(done, "check-passed")).to_be_visible(timeout=MINUTE)

    result = page.locator(".wb-Result")
    with page.expect_download() as saved:
        hook(hook(result, "run-pictures"), "save-picture").click(timeout=MINUTE)
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    hook(result, "run-pictures").locator("[data-enlarge]").first.click()
    picture = page.locator("dialog.wb-Enlarged img")
    width = page.locator(".wb-Drawn img").first.evaluate("each => each.clientWidth")
    assert picture.evaluate("each => each.clientWidth") > 1.5 * width
    dialog = page.locator("dialog.wb-Enlarged")
    assert dialog.evaluate("each => each.clientWidth >= each.scrollWidth"), "the picture is cut off"
    page.keyboard.press("Escape")
    expect(picture).to_have_count(0)
    with page.expect_download() as html:
        hook(result, "save-report").click()
    assert html.value.suggested_filename.endswith(".html")
    hook(result, "export").click()
    expect(result).to_contain_text("A zip that another Workbench imports: parameters and result, the task stream")
    with page.expect_download() as file:
        hook(result, "export-zip").click()
    assert file.value.suggested_filename.endswith(".zip")
    with page.context.expect_page() as shown:
        hook(runs, "report").click()
    report = shown.value
    expect(report.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    report.close()
    hook(result, "open-run").click()
    page.locator(".lm-TabBar-tab", has_text=".ipynb").first.click()
    expect(page.locator(".jp-CodeCell", has_text=").arrays")).to_have_count(1)

    # What can't be one leaves the form as it is.
    page.locator(".jp-CodeCell", has_text="held.read").locator(".jp-InputArea").click()
    page.evaluate("async () => { await window.jupyterapp.commands.execute('dask-workbench:make-workload') }")
    expect(page.locator(".jp-CodeCell", has_text="held isn't defined in this cell")).to_be_visible()
    page.wait_for_timeout(3000)  # in which another form would come
    expect(hook(page, "field-path")).to_have_value(str(lab.notebooks / "winds.nc"))

    page.locator(".jp-CodeCell").first.locator(".jp-InputArea").click()
    page.evaluate("async () => { await window.jupyterapp.commands.execute('dask-workbench:make-workload') }")
    made = page.locator(".wb-Catalogue").get_by_role("radio", name="total", exact=False)
    expect(made).to_be_checked(timeout=MINUTE)
    expect(made).to_be_in_viewport()
    for number, n in enumerate(("400", "600")):
        hook(page, "field-n").fill(n)
        hook(page, "run-button").click(timeout=MINUTE)
        expect(done).to_have_count(number + 2, timeout=MINUTE)

    for number in (0, 1):
        hook(runs, "tick").nth(number).check()
    hook(page, "compare-ticked").click()
    comparison = page.locator('[data-workbench^="comparison-"]').first
    expect(hook(comparison, "verdict")).to_be_visible(timeout=MINUTE)
    expect(hook(comparison, "compare-bars").get_by_role("listitem")).to_have_count(2)
    comparison.scroll_into_view_if_needed()
    screenshot("own-compared")


def test_a_function_of_any_file_is_found_run_and_changed_and_its_paths_are_browsed_for(
    lab: Lab, open_lab: Callable[[], Page], screenshot: Callable[[str], Path]
) -> None:
    (lab.notebooks / "analysis.py").write_text(FUNCTION, encoding="utf-8")
    text = "from pathlib import Path\n\ndef mean(data: Path, path: int = 3):\n    return path\n"
    (lab.notebooks / "reads.py").write_text(text, encoding="utf-8")
    np.save(lab.notebooks / "in.npy", np.ones((3, 4)))
    broken = lab.data_folder / "workloads" / "uses_helper.py"
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_text(f"import helper_{'x' * 60}\n", encoding="utf-8")
    session = Session()
    if not session.clusters():
        session.start(session.plan("cpu", n_workers=1), name="calm")
    page = open_lab()
    open_sidebar(page)
    section(page, "hardware", opened=False)
    runs = section(page, "runs", opened=True)
    hook(page, "browse-functions").click()
    hook(page, "browsed").get_by_text("analysis.py").click(timeout=MINUTE)
    hook(page, "browsed").get_by_text("Total", exact=True).click(timeout=MINUTE)
    hook(page, "field-n").fill("300")
    hook(page, "run-button").click(timeout=MINUTE)
    first = runs.locator('[data-workbench^="run-"][data-status="done"]', has_text="analysis.py:total").first
    expect(first).to_be_visible(timeout=MINUTE)
    hook(page, "workload-eofs").click()
    expect(hook(page, "field-n")).to_have_count(0, timeout=MINUTE)
    hook(first, "run-more").click()
    hook(first, "run-change").click()
    expect(hook(page, "field-n")).to_have_value("300", timeout=MINUTE)

    # The tab of its answer leads to the form, too, though the sidebar is closed and its section folded.
    hook(page, "workload-eofs").click()
    expect(hook(page, "field-n")).to_have_count(0, timeout=MINUTE)
    section(page, "workloads", opened=False)
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    hook(page.locator(".wb-Wide"), "run-change").click()
    expect(hook(page, "field-n")).to_have_value("300", timeout=MINUTE)
    expect(hook(page, "field-n")).to_be_visible()

    # A path is browsed for whatever its parameter's name, and Esc closes that.
    hook(page, "browse-functions").click()
    hook(page, "browsed").get_by_text("reads.py").click(timeout=MINUTE)
    hook(page, "browsed").get_by_text("Mean", exact=True).click(timeout=MINUTE)
    expect(hook(page, "field-path")).to_have_value("3", timeout=MINUTE)
    expect(hook(page, "browse-path")).to_have_count(0)
    hook(page, "browse-data").click()
    hook(page, "browsed").get_by_text("in.npy").click(timeout=MINUTE)
    expect(hook(page, "field-data")).to_have_value(str(lab.notebooks / "in.npy"), timeout=MINUTE)
    expect(hook(page, "holds")).to_contain_text("NumPy array", timeout=MINUTE)
    hook(page, "browse-data").click()
    expect(hook(page, "browsed")).to_be_visible(timeout=MINUTE)
    screenshot("own-browsed")
    hook(page, "browsed").get_by_text("the folder above").click()
    expect(hook(page, "browsed")).to_contain_text("notebooks/", timeout=MINUTE)
    page.keyboard.press("Escape")
    expect(hook(page, "browsed")).to_have_count(0)
    expect(hook(page, "broken")).to_contain_text("No module named", timeout=MINUTE)
    assert hook(page, "broken").evaluate("it => it.scrollWidth <= it.clientWidth")


def test_the_menu_of_a_file_offers_what_can_be_done_with_it(lab: Lab, open_lab: Callable[[], Page]) -> None:
    np.save(lab.notebooks / "stations.npy", np.ones((200, 50)))
    np.save(lab.notebooks / "other.npy", np.ones(9))
    (lab.notebooks / "notes.txt").write_text("text")
    page = open_lab()
    page.evaluate("() => { window.jupyterapp.commands.execute('filebrowser:activate') }")
    menu = page.locator(".lm-Menu-item[data-command*=-file][data-command^=dask-workbench]")
    page.locator(".jp-DirListing-item", has_text="notes.txt").click(button="right")
    expect(page.locator(".lm-Menu-content")).to_be_visible()
    expect(menu.filter(visible=True)).to_have_count(0)
    page.keyboard.press("Escape")
    page.locator(".jp-DirListing-item", has_text="stations.npy").click(button="right")
    expect(menu).to_have_text(["Look", "SVD", "Mean"])
    menu.first.click()
    expect(hook(page, "field-path")).to_have_value(str(lab.notebooks / "stations.npy"), timeout=MINUTE)
    expect(hook(page, "holds")).to_contain_text("200 × 50, float64", timeout=MINUTE)
    expect(hook(page, "holds")).to_have_attribute("open", "")
    # What was chosen for one file doesn't fit another.
    unfold(page, "more-fields")
    hook(page, "field-over").fill("0")
    page.evaluate("() => { window.jupyterapp.commands.execute('filebrowser:activate') }")
    page.locator(".jp-DirListing-item", has_text="other.npy").click(button="right")
    menu.last.click()
    expect(hook(page, "field-path")).to_have_value(str(lab.notebooks / "other.npy"), timeout=MINUTE)
    expect(hook(page, "field-over")).to_have_value("")
