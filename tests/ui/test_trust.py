"""The question whether to trust a folder, in Lab's sidebar and in a cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.ui.conftest import Lab
from tests.ui.pictures import theme
from tests.ui.steps import MINUTE, hook, open_notebook, open_sidebar, write_notebook

CELLS = ("from workbench.panels import Workbench\nWorkbench()",)


def test_the_sidebar_and_a_cell_ask_once_for_each_content_before_they_use_workloads_of_a_folder(
    lab: Lab, open_lab: Callable[[], Page], screenshot: Callable[[str], Path]
) -> None:
    ran = lab.folder / "ran"
    workload = lab.notebooks / "workloads" / "evil.py"
    workload.parent.mkdir()
    text = f"open({str(ran)!r}, 'a').write('.')\n\n\ndef steal(n=1):\n    return n\n"
    workload.write_text(text)
    (lab.notebooks / "workbench.yaml").write_text("workbench: {profiles: {night: {profile: cpu, n_workers: 2}}}\n")
    page = open_lab()
    open_sidebar(page)
    bar = page.locator("#dask-workbench")
    question = "This folder defines 1 workload file (evil.py) and 1 profile (night). Trust it?"
    expect(hook(bar, "trust")).to_contain_text(question, timeout=MINUTE)
    for name in ("light", "dark"):
        theme(page, name)
        screenshot(f"trust-{name}")
    theme(page, "light")
    hook(bar, "trust-later").click()
    expect(hook(bar, "trust-again")).to_contain_text("Not trusted")
    screenshot("trust-later")
    expect(hook(bar, "workload-array_sum")).to_be_visible(timeout=MINUTE)
    expect(hook(bar, "workload-steal")).to_have_count(0)
    assert not ran.exists()

    write_notebook(lab.notebooks / "trust.ipynb", CELLS)
    open_notebook(page, "trust.ipynb")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    cell = page.locator(".wb-Cell")
    expect(hook(cell, "trust")).to_contain_text(question, timeout=MINUTE)
    screenshot("trust-cell")
    assert not ran.exists()
    hook(cell, "trust-yes").click()
    for place in (cell, bar):
        expect(hook(place, "trust")).to_have_count(0, timeout=MINUTE)
        expect(hook(place, "workload-steal")).to_be_visible(timeout=MINUTE)
        expect(hook(place, "profile-night")).to_be_visible(timeout=MINUTE)
    assert ran.exists()
    workload.write_text(text.replace("n=1", "n=2"))
    expect(hook(bar, "trust-yes")).to_be_visible(timeout=MINUTE)
    expect(hook(bar, "workload-steal")).to_have_count(0, timeout=MINUTE)
