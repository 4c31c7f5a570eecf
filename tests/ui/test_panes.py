"""Panes inside a cluster in a real JupyterLab: what is clicked in one is marked in the others."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.ui.conftest import finish
from tests.ui.test_main_job import MINUTE, _nothing_left, hook, open_sidebar  # noqa: F401
from workbench.clusters.connect import connect
from workbench.session import Session

CLUSTER = "calm"


def opened(page: Page, view: str) -> Locator:
    name = f"{view}:{CLUSTER}"
    page.evaluate("view => { jupyterapp.commands.execute('dask-workbench:view', {view, label: view}) }", name)
    pane = page.locator(f'[id="dask-workbench-tab-{name}"]')
    expect(pane.locator(".wb-Panes")).to_be_visible(timeout=MINUTE)
    return pane


def darkest(figure: Locator) -> Any:
    """Middle of the widest dark violet run of pixels."""
    pixels = np.asarray(Image.open(io.BytesIO(figure.screenshot())).convert("RGB"), dtype=int)
    violet = (pixels[..., 0] < 100) & (pixels[..., 1] < 40) & (pixels[..., 2] > 60)
    y = int(violet.sum(axis=1).argmax())
    runs = "".join(map(str, violet[y].astype(int))).split("0")
    widest = max(runs, key=len)
    return {"x": sum(len(each) + 1 for each in runs[: runs.index(widest)]) + len(widest) // 2, "y": y}


def test_a_click_arranges_the_panes_below_the_stream_and_a_reload_leaves_them_there(
    open_lab: Callable[[], Page], screenshot: Callable[[str], Path]
) -> None:
    session = Session()
    session.start(session.plan("cpu", n_workers=2, threads_per_worker=1), name="arranged")
    finish(session.wait("arranged"))
    page = open_lab()
    open_sidebar(page)
    hook(hook(page, "cluster-arranged"), "panes").click()
    panes = page.locator('#jp-main-dock-panel .lm-TabBar-tab[data-id$=":arranged"]')
    expect(panes).to_have_count(5)
    workers = page.locator('[id="dask-workbench-tab-workers:arranged"]')
    expect(workers.get_by_role("row")).to_have_count(3, timeout=MINUTE)
    stream = hook(page, "figure")
    expect(stream).to_contain_text("No tasks yet", timeout=MINUTE)
    screenshot("panes-arranged")
    # Lab saves its layout a moment later.
    panes.filter(has_text="Profile").click()
    page.wait_for_timeout(2000)
    page = open_lab()
    panes = page.locator('#jp-main-dock-panel .lm-TabBar-tab[data-id$=":arranged"]')
    expect(panes).to_have_count(5)
    expect(page.locator('[id="dask-workbench-tab-profile:arranged"]')).to_be_visible(timeout=MINUTE)
    expect(stream).to_be_visible()
    above, below = stream.bounding_box(), page.locator('[id="dask-workbench-tab-profile:arranged"]').bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"]


def test_a_task_or_worker_that_is_clicked_in_one_pane_is_marked_in_the_others(
    open_lab: Callable[[], Page], screenshot: Callable[[str], Path]
) -> None:
    import dask.array as da

    session = Session()
    session.start(session.plan("cpu", n_workers=2, threads_per_worker=1), name=CLUSTER)
    finish(session.wait(CLUSTER))
    page = open_lab()
    marks: list[str] = []
    page.on(
        "websocket", lambda socket: socket.on("framereceived", lambda frame: marks.append(str(frame).replace(" ", "")))
    )
    page.reload()
    page.wait_for_function("() => window.jupyterapp !== undefined", timeout=MINUTE)
    page.evaluate("async () => { await window.jupyterapp.restored }")
    graph = opened(page, "graph")
    page.evaluate("cluster => { jupyterapp.commands.execute('dask-workbench:watch', {cluster}) }", CLUSTER)
    figure = hook(page, "figure")
    # What is over before somebody watches is not seen.
    expect(figure).to_contain_text("No tasks yet", timeout=MINUTE)
    with connect(CLUSTER) as client:
        x = client.persist(da.random.random((3000, 3000), chunks=(750, 750)))
        client.compute((x + x.T).sum()).result()
        # In the graph, for the stream.
        node = graph.get_by_role("button", name="sum-partial", exact=True)
        node.click(timeout=MINUTE)
        expect(node).to_have_attribute("aria-pressed", "true")
        expect(figure.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
        screenshot("panes-graph")
        assert any('"source":"mark"' in each and '["sum-partial"]' in each for each in marks)
        # In the stream's progress, for the graph.
        bars = figure.locator(".bk-Figure").nth(1)
        bars.scroll_into_view_if_needed()
        first = bars.bounding_box()
        assert first is not None
        page.mouse.click(first["x"] + first["width"] / 2, first["y"] + 24 + 11)
        expect(node).to_have_attribute("aria-pressed", "false")
        expect(graph.locator("[aria-pressed=true]")).to_have_count(1)
        screenshot("panes-stream")
        # A rectangle of the stream, of the tasks that are marked, since all others are pale: for its worker as well.
        page.get_by_role("button", name="Pause").click()
        tasks = figure.locator(".bk-Figure").first
        tasks.click(position=darkest(tasks))
        workers = opened(page, "workers")
        marked = workers.locator("[aria-pressed=true]")
        expect(marked).to_have_count(1, timeout=MINUTE)
        marked.click()
        expect(marked).to_have_count(0)
        # A worker, in one table for another.
        bandwidth = opened(page, "bandwidth")
        bandwidth.get_by_role("button", name="1", exact=True).first.click(timeout=MINUTE)
        workers = opened(page, "workers")
        expect(workers.get_by_role("button", name="1", exact=True)).to_have_attribute("aria-pressed", "true")
        expect(workers.get_by_role("button", name="0", exact=True)).to_have_attribute("aria-pressed", "false")
        screenshot("panes-workers")
