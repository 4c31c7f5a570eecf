"""%%watch in a real JupyterLab: live below its cell, and there when the kernel has gone."""

from __future__ import annotations

import re

import nbformat
from playwright.sync_api import Locator, expect

from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, OpenLab, Screenshot, change_theme, coloured, open_notebook, write_notebook
from tests.waiting import until
from workbench.runs import store

CELLS = (
    """from distributed import Client
client = Client(n_workers=1, threads_per_worker=2, memory_limit="400MiB", dashboard_address="127.0.0.1:0")
%load_ext workbench""",
    """%%watch --name "many naps"
import time
from pathlib import Path
def nap(number):
    time.sleep(0.2)
    return number
while not Path("seen").exists():
    client.gather(client.map(nap, range(4), pure=False))
'awake'""",
)


def test_a_watched_cell_is_seen_live_and_kept_when_the_kernel_has_gone(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot
) -> None:
    seen = lab.notebooks / "seen"
    seen.unlink(missing_ok=True)
    write_notebook(lab.notebooks / "naps.ipynb", CELLS)
    page = open_lab()
    cell = open_notebook(page, "naps.ipynb")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    output = cell.locator(".jp-OutputArea")
    # The kernel computes: what its page asks meanwhile is answered by a thread of ours.
    expect(output.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    until(lambda: coloured(output.locator(".bk-Figure").first) > 1_000, 20)
    expect(cell.locator(".jp-InputPrompt")).to_contain_text("[*]")
    screenshot("watch-cell-live")
    seen.touch()
    expect(output).to_contain_text("Done in", timeout=MINUTE)
    expect(output).to_contain_text("'awake'")
    expect(output.locator("table")).to_be_hidden()
    screenshot("watch-cell-light")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
    change_theme(page, "JupyterLab Dark")
    screenshot("watch-cell-dark")
    page.evaluate("async () => { await window.jupyterapp.serviceManager.sessions.shutdownAll() }")
    page = open_lab()
    expect_kept(open_notebook(page, "naps.ipynb"))
    assert store.select()[0].workload == "watched"

    # What somebody else sent is not trusted, and shows the same.
    notebook = nbformat.read(lab.notebooks / "naps.ipynb", as_version=4)
    notebook.metadata["sent"] = "by somebody"
    nbformat.write(notebook, lab.notebooks / "sent.ipynb")
    sent = open_notebook(page, "sent.ipynb")
    expect_kept(sent)
    screenshot("watch-cell-untrusted")


def expect_kept(cell: Locator) -> None:
    """Expect the totals of the cell and nothing of its figure."""
    expect(cell.locator("table")).to_contain_text("nap", timeout=MINUTE)
    expect(cell).to_contain_text(re.compile(r"many naps: \d+ tasks on 1 worker"))
    bar = cell.locator("td img").first
    assert bar.evaluate("async (each) => { await each.decode(); return each.naturalWidth }") == 100
    expect(cell.get_by_text("model not found")).to_be_hidden()
