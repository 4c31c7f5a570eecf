"""Our pages look as before: coarse pictures are compared with those in `looks/`, which `make pictures` renews.

Only what is as large as a button is compared: its place and its colour. Another font passes; a section without its
margins, or a Start that lost its colour, doesn't.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter
from playwright.sync_api import Locator, Page, expect

from tests.ui.conftest import SCREENSHOTS, Lab
from tests.ui.pictures import theme, widen
from tests.ui.steps import MINUTE, choose_workload, hook, start_cluster
from workbench.errors import ConflictError
from workbench.hardware import inventory
from workbench.runs import store
from workbench.runs.run import Run

pytestmark = pytest.mark.usefixtures("nothing_left")

LOOKS = Path(__file__).with_name("looks")
COARSE = 8
"""Pixels of the screen, across and down, that make one here."""
DIFFERENT = 28
"""Shades of 256 from which on one counts as different."""
MOST = 0.015
"""Share of all that may be different: a monospaced font makes 0.012 so, a Start without its blue 0.017."""

# What a machine says of itself is as long as it is.
STEADY = """
[data-workbench=inventory], [data-workbench=budget], [data-workbench=plan], [data-workbench=needs] {
    visibility: hidden; height: 20px; overflow: hidden; white-space: nowrap;
}
"""


@pytest.mark.skipif(bool(inventory().gpus), reason="The pictures were taken where there is no GPU.")
def test_sidebar_and_tab_look_as_they_did(open_lab: Callable[[], Page]) -> None:
    for number, status in enumerate(("done", "failed", "cancelled")):
        ended = {"status": status, "seconds": 1.0, "result": {"value": 12.0}, "created": 1e9 + number}
        # Those of a first try are still there.
        with suppress(ConflictError):
            store.create(Run(id=f"sum-{number}", workload="array_sum", cluster="calm-otter", **ended))
    page = open_lab()
    page.add_style_tag(content=STEADY)
    page.evaluate("() => { window.jupyterapp.commands.execute('dask-workbench:open') }")
    sidebar = page.locator(".wb-Sidebar")
    expect(hook(sidebar, "needs")).to_be_attached(timeout=MINUTE)
    different = []
    page.set_viewport_size({"width": 1280, "height": 800})
    for pixels in (250, 350, 500):
        widen(page, pixels)
        different += compared(page, sidebar, f"sidebar-{pixels}")
    widen(page, 250)
    page.evaluate("() => { window.jupyterapp.commands.execute('dask-workbench:open-tab') }")
    tab = page.locator('[id="dask-workbench-tab-wide"]')
    expect(hook(tab, "needs")).to_be_attached(timeout=MINUTE)
    for width in (1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        different += compared(page, tab, f"tab-{width}")
    # JupyterLab has rules of its own for what is preformatted.
    fonts = "each => [each, each.parentElement].map(place => getComputedStyle(place).fontFamily)"
    assert len(set(sidebar.locator(".wb-Help").evaluate(fonts))) == 1, "help is for reading"
    assert not different, f"Look at tests/ui/screenshots, and take them anew if that is better: {different}"


def test_run_in_a_narrow_sidebar_covers_nothing_and_nothing_moves_while_it_loads(
    open_lab: Callable[[], Page], lab: Lab
) -> None:
    folder = lab.notebooks / "a-folder-with-a-long-name" / "results-of-the-second-experiment"
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "stations.npy", np.ones((200, 50)))
    page = open_lab()
    page.set_viewport_size({"width": 1280, "height": 800})
    start_cluster(page, "narrow-otter")
    widen(page, 250)
    needs, run = hook(page, "needs"), hook(page, "run-button")
    expect(needs).to_contain_text("Fits", timeout=MINUTE)
    expect(needs).to_be_in_viewport(ratio=1)
    expect(run).to_be_in_viewport(ratio=1)
    assert bottom(needs) <= top(run), "the bar of Run hides the verdict"

    choose_workload(page, "svd_of_file")
    hook(page, "field-path").fill(str(folder / "stations.npy"))
    fields = [*(hook(page, f"field-{name}") for name in ("path", "k", "tol")), page.locator("#wb-target")]
    fields[1].fill("99999999999")
    problem = hook(page, "field-k-problem")
    expect(problem).to_contain_text("at most the shorter side", timeout=MINUTE)
    for each in (*fields, problem):
        expect(each).to_be_in_viewport(ratio=1)
        assert bottom(each) <= top(run), "the bar of Run covers a field"
    assert len({(each.bounding_box()["x"], each.bounding_box()["width"]) for each in fields}) == 1, "not aligned"
    assert fields[0].evaluate("each => each.scrollLeft") > 0, "the end of a long path is hidden"
    expect(fields[0]).to_have_attribute("title", str(folder / "stations.npy"))

    choose_workload(page, "array_sum")
    expect(needs).to_contain_text("Fits", timeout=MINUTE)
    # Lab keeps its layout a second after it changed.
    page.wait_for_timeout(2_000)
    page.add_init_script(MOVED)
    page = open_lab()
    expect(needs).to_contain_text("Fits", timeout=MINUTE)
    page.wait_for_timeout(1_000)
    assert page.evaluate("window.moved") == []


def top(place: Locator) -> float:
    """Return the first pixel from above."""
    return float(place.bounding_box()["y"])


def bottom(place: Locator) -> float:
    return top(place) + float(place.bounding_box()["height"])


MOVED = """window.moved = []
new PerformanceObserver(list => list.getEntries().flatMap(each => each.sources).forEach(({node, currentRect}) => {
    const place = node?.parentElement?.closest('.wb-Page')
    if (place) window.moved.push([node.className, currentRect.y])
})).observe({type: 'layout-shift', buffered: true})"""
"""Elements that a page showed and then moved."""


def compared(page: Page, place: Locator, name: str) -> list[str]:
    """Names of those pictures that differ from what is kept, in both themes."""
    return [f"{name}-{each}" for each in ("light", "dark") if _differs(page, place, f"{name}-{each}", each)]


def _differs(page: Page, place: Locator, name: str, colors: str) -> bool:
    theme(page, colors)
    SCREENSHOTS.mkdir(exist_ok=True)
    taken = place.screenshot(path=SCREENSHOTS / f"look-{name}.png", animations="disabled")
    now = coarse(Image.open(io.BytesIO(taken)))
    kept = LOOKS / f"{name}.png"
    if os.environ.get("KEEP_LOOKS"):
        now.save(kept, optimize=True)
    with Image.open(kept) as before:
        return now.size != before.size or share(now, before) > MOST


def coarse(picture: Image.Image) -> Image.Image:
    """Shades of gray of what is as large as a button."""
    small = picture.convert("L").resize((picture.width // COARSE, picture.height // COARSE), Image.Resampling.BOX)
    return small.filter(ImageFilter.BoxBlur(1))


def share(one: Image.Image, other: Image.Image) -> float:
    """Return the share of pixels that differ between two pictures of one size."""
    shades = [np.asarray(each, dtype=float) for each in (one, other)]
    return float((abs(shades[0] - shades[1]) > DIFFERENT).mean())
