"""Steps of a person in JupyterLab, which several tests take."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.waiting import until
from workbench.runs import store

MINUTE = 60_000  # milliseconds
OpenLab = Callable[[], Page]
Screenshot = Callable[[str], Path]


def hook(place: Page | Locator, name: str) -> Locator:
    return place.locator(f'[data-workbench="{name}"]')


def open_sidebar(page: Page) -> None:
    page.evaluate("async () => { await window.jupyterapp.commands.execute('dask-workbench:open') }")
    section(page, "hardware", opened=True)
    expect(hook(page, "profile-cpu")).to_be_visible(timeout=MINUTE)


def section(page: Page, name: str, *, opened: bool) -> Locator:
    """One section of the sidebar, opened or closed."""
    found = hook(page, f"section-{name}")
    header = found.get_by_role("button").first
    if (header.get_attribute("aria-expanded") == "true") != opened:
        header.click()
    expect(header).to_have_attribute("aria-expanded", str(opened).lower())
    return found


def unfold(page: Page, name: str) -> None:
    found = hook(page, name)
    if found.get_attribute("aria-expanded") != "true":
        found.click()


def start_cluster(page: Page, name: str, **fields: str) -> Locator:
    open_sidebar(page)
    section(page, "hardware", opened=True)
    hook(page, "profile-cpu").click()
    if fields:
        unfold(page, "more-choices")
    for field, value in fields.items():
        hook(page, f"field-{field}").fill(value)
    hook(page, "field-name").fill(name)
    expect(hook(page, "start")).to_be_enabled()
    hook(page, "start").click()
    cluster = hook(page, f"cluster-{name}")
    expect(hook(cluster, "stage")).to_have_text("ready", timeout=MINUTE)
    return cluster


def choose_workload(page: Page, workload: str) -> None:
    hook(page, f"workload-{workload}").click()
    expect_form_of(page, workload)


def expect_form_of(page: Page | Locator, workload: str) -> None:
    """The workload is chosen, and Python has made its form."""
    expect(hook(page, f"workload-{workload}")).to_be_checked(timeout=MINUTE)
    expect(page.locator(f'[name^="run.{workload}."]').first).to_be_attached(timeout=MINUTE)


def run_workload(page: Page, workload: str, **fields: str) -> dict[str, Any]:
    """Run a workload from its form, and what is known of the run once the sidebar shows its check."""
    before = {run.id for run in store.select()}
    section(page, "hardware", opened=False)
    section(page, "workloads", opened=True)
    choose_workload(page, workload)
    unfold(page, "more-fields")
    for field, value in fields.items():
        control = hook(page, f"field-{field}")
        if control.get_attribute("type") == "checkbox":
            control.set_checked(value == "true")
        else:
            control.fill(value)
    expect(hook(page, "needs")).to_be_visible(timeout=MINUTE)
    expect(hook(page, "run-button")).to_be_enabled(timeout=MINUTE)
    hook(page, "run-button").click()
    section(page, "runs", opened=True)
    (new,) = wait_for_new(before)
    shown = hook(page, f"run-{new}")
    expect(hook(shown, "check-passed").or_(hook(shown, "check-failed")).or_(hook(shown, "run-error"))).to_be_visible(
        timeout=2 * MINUTE
    )
    return store.get(new).model_dump(mode="json")


def wait_for_new(before: set[str]) -> set[str]:
    return set(until(lambda: {run.id for run in store.select()} - before))


def coloured(figure: Locator) -> int:
    """Pixels of the figure that are strongly coloured: rectangles of tasks, not axes or text."""
    pixels = np.asarray(Image.open(io.BytesIO(figure.screenshot())).convert("HSV"))
    return int(((pixels[..., 1] > 120) & (pixels[..., 2] > 60)).sum())


def change_theme(page: Page, theme: str) -> None:
    page.evaluate(
        "async theme => { await window.jupyterapp.commands.execute('apputils:change-theme', {theme}) }", theme
    )
    is_light = str(theme == "JupyterLab Light").lower()
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", is_light, timeout=MINUTE)


def write_notebook(path: Path, cells: tuple[str, ...]) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [nbformat.v4.new_code_cell(text, id=f"cell-{index}") for index, text in enumerate(cells)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


def open_notebook(page: Page, name: str) -> Locator:
    page.evaluate(
        """async (path) => {
            const {commands} = window.jupyterapp
            const panel = await commands.execute('docmanager:open', {path, kernel: {name: 'python3'}})
            await panel.sessionContext.ready
        }""",
        name,
    )
    # Where other tests compute, too, a kernel may need a minute to start.
    kernel = "window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel"
    page.wait_for_function(f"() => ['idle', 'busy'].includes({kernel}?.status)", timeout=3 * MINUTE)
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").last


def run_cell(page: Page, cell: Locator) -> None:
    cell.locator(".jp-InputArea").click()
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell') }")
