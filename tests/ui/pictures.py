"""Pictures of every view in a real Lab: `make pictures`; those of the README are saved next to this file.

Light and dark, the sidebar at 250, 350 and 500 pixels, tabs at 1280 and 1920. They are for somebody to look at.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tests.simulated import build, environment
from tests.ui.conftest import SCREENSHOTS, Lab, chromium, running_lab, show_lab
from tests.ui.steps import MINUTE, change_theme, choose_workload, hook, section

README = Path(__file__).with_name("pictures")
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
LEFT = 33
"""Width in pixels of Lab's own bar next to the sidebar."""


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Lab, Page]]:
    """Start a Lab, and open it in a page."""
    with running_lab(folder) as lab, sync_playwright() as playwright:
        browser = chromium(playwright)
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        show_lab(page, lab.url)
        yield lab, page
        browser.close()


def command(page: Page, name: str, **args: str) -> None:
    page.evaluate("([name, args]) => window.jupyterapp.commands.execute(name, args)", [name, args])


def theme(page: Page, name: str) -> None:
    change_theme(page, THEMES[name])
    page.wait_for_timeout(800)
    # A figure is drawn anew for another theme.
    expect(page.get_by_text("Loading …")).to_have_count(0, timeout=MINUTE)


def widen(page: Page, pixels: int) -> None:
    """Drag the sidebar's edge until it is so wide."""
    box = page.locator("#dask-workbench").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] + 1, 400)
    page.mouse.down()
    page.mouse.move(LEFT + pixels, 400, steps=4)
    page.mouse.up()


def keep(page: Page, name: str, folder: Path = SCREENSHOTS) -> None:
    """Keep what the page shows, with no more colours than it needs."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.png"
    page.screenshot(path=path)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)


def in_both(page: Page, name: str, folder: Path = SCREENSHOTS) -> None:
    for each in THEMES:
        theme(page, each)
        keep(page, f"{name}-{each}", folder)


def compared(page: Page) -> None:
    """Two choices of hardware, measured in turn, in a tab."""
    choose_workload(page, "array_sum")
    hook(page, "field-size").fill("1GiB")
    for name in ("compare-this", "compare"):
        expect(hook(page, name)).to_be_enabled(timeout=MINUTE)
        hook(page, name).click()
    shown = page.locator('[data-workbench^="comparison-compare-"]').first
    expect(hook(shown, "verdict")).to_be_visible(timeout=5 * MINUTE)
    hook(shown, "watch-comparison").click()
    expect(hook(page, "compared")).to_contain_text("relative time", timeout=MINUTE)
    shown.scroll_into_view_if_needed()
    in_both(page, "comparison", README)


def simulated_gpus() -> None:
    """Simulate eight GPUs, and show them in a tab next to the sidebar."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ |= environment(build(Path(folder) / "nvml"), preset="dgx1", load="wave")
        with opened(Path(folder)) as (_, page):
            command(page, "dask-workbench:open")
            command(page, "dask-workbench:view", view="machine", label="This machine")
            expect(hook(page, "usage")).to_be_visible(timeout=MINUTE)
            for launcher in page.locator(".lm-TabBar-tab", has_text="Launcher").all():
                launcher.locator(".lm-TabBar-tabCloseIcon").click()
            hook(page, "profile-gpus").click(timeout=MINUTE)
            page.wait_for_timeout(3000)
            in_both(page, "gpus", README)


def main(readme_alone: bool) -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, opened(Path(folder)) as (_, page):
        command(page, "dask-workbench:open")
        expect(hook(page, "start")).to_be_enabled(timeout=MINUTE)
        if not readme_alone:
            in_both(page, "first-screen")
        hook(page, "field-name").fill("calm-otter")
        hook(page, "start").click()
        cluster = hook(page, "cluster-calm-otter")
        expect(hook(cluster, "stage")).to_have_text("ready", timeout=MINUTE)
        hook(cluster, "watch").click()
        expect(hook(page, "figure")).to_be_visible(timeout=MINUTE)
        page.locator(".lm-TabBar-tab", has_text="Launcher").locator(".lm-TabBar-tabCloseIcon").click()
        section(page, "hardware", opened=False)
        for number, workload in enumerate(("array_sum", "compressed_svd")):
            choose_workload(page, workload)
            expect(hook(page, "needs")).to_contain_text("Fits", timeout=MINUTE)
            hook(page, "run-button").click()
            expect(hook(page, "check-passed")).to_have_count(number + 1, timeout=2 * MINUTE)
            page.wait_for_timeout(2000)
        page.locator(".lm-TabBar-tab", has_text="calm-otter").click()
        in_both(page, "workbench", README)
        compared(page)
        if readme_alone:
            return
        for pixels in (250, 350, 500):
            widen(page, pixels)
            in_both(page, f"sidebar-{pixels}")
        command(page, "dask-workbench:open-tab")
        for width in (1280, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            in_both(page, f"tab-{width}")


if __name__ == "__main__":
    main("--readme" in sys.argv)
    simulated_gpus()
