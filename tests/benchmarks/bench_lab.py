"""Costs of the extension for JupyterLab: JavaScript, start of the server, and delays in the sidebar.

`python -m tests.benchmarks lab`, or this file with `--repeats N`. The server is started with our extension and without
it, in turn, until its REST answers. A change is a record that another process writes; it has arrived when the
WebSocket that the sidebar listens to delivers it. In Chromium at 1280 × 800: seconds from Lab's own sidebar to ours,
from a key in a form to its verdict, and the clicks to a cluster, an answer and a comparison, without scrolling.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
from playwright.sync_api import Page, expect, sync_playwright
from tornado.websocket import websocket_connect

from tests.ui.conftest import chromium, running_lab, show_lab
from tests.ui.steps import MINUTE, hook, open_sidebar, section
from workbench.clusters import records
from workbench.clusters.spec import ClusterSpec

_STATIC = Path(__file__).parents[2] / "workbench" / "labextension" / "static"
_TOKEN = "bench"
_CHANGES = 20


def bundle() -> int:
    """Bytes of the extension's own JavaScript."""
    return sum(path.stat().st_size for path in _STATIC.glob("*.js"))


@contextmanager
def server(folder: Path, port: int, *, extension: bool = True) -> Iterator[float]:
    """Start a Jupyter server; seconds until it answered."""
    settings = folder / "config"
    settings.mkdir(exist_ok=True)
    enabled = {"ServerApp": {"jpserver_extensions": {"workbench": extension}}}
    (settings / "jupyter_server_config.json").write_text(json.dumps(enabled))
    environment = {
        **os.environ,
        "HOME": str(folder),
        "JUPYTER_CONFIG_DIR": str(settings),
        "DASK_WORKBENCH__DATA_FOLDER": str(folder / "data"),
    }
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable,
            *(
                "-m",
                "jupyter",
                "lab",
                "--no-browser",
                "--allow-root",
                f"--port={port}",
                f"--ServerApp.root_dir={folder}",
            ),
            f"--IdentityProvider.token={_TOKEN}",
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={_TOKEN}"):
                    break
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None:
                    raise SystemExit(f"JupyterLab ended with exit code {process.returncode}.") from None
                time.sleep(0.01)
        yield time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


async def changes(port: int, folder: Path) -> list[float]:
    """Return the milliseconds between the writing of a record and the message to the page."""
    socket = await websocket_connect(f"ws://127.0.0.1:{port}/workbench/api/stream?token={_TOKEN}")
    spec = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=2**28)
    record = records.ClusterRecord(name="bench-otter", spec=spec, status="failed", created=time.time())
    delays = []
    with dask.config.set({"workbench.data-folder": str(folder / "data")}):
        for number in range(_CHANGES + 1):
            await asyncio.sleep(0.3)
            # A page receives a cluster's name and status at once, and of the rest where a view shows it.
            new = record.model_copy(update={"name": f"bench-otter-{number}"})
            records.create(new)
            began = time.perf_counter()
            while new.name not in str(await asyncio.wait_for(socket.read_message(), 10)):
                pass
            delays.append(1000 * (time.perf_counter() - began))
    socket.close()
    return delays[1:]


_FILLED = """() => new Promise(done => {
  const ours = '[data-workbench="profile-cpu"]'
  const look = () => document.querySelector(ours) ? done(performance.now()) : setTimeout(look, 5)
  look()
})"""

_KEY = """text => new Promise(done => {
  const field = document.querySelector('[data-workbench="field-size"]')
  const verdict = () => document.querySelector('.wb-Go')?.textContent
  const before = verdict(), began = performance.now()
  const look = () => verdict() !== before ? done(performance.now() - began) : setTimeout(look, 1)
  field.focus()
  field.select()
  document.execCommand('insertText', false, text)
  look()
})"""


def sidebar(page: Page, url: str) -> float:
    """Open Lab with the sidebar as the user left it; return the seconds from Lab's own sidebar to ours."""
    show_lab(page, url)
    lab = float(page.evaluate("() => performance.now()"))
    return (float(page.evaluate(_FILLED)) - lab) / 1000


def keys(page: Page) -> list[float]:
    """Return the milliseconds from keys in the field Size to a new verdict."""
    section(page, "workloads", opened=True)
    # Each size is a third larger than the last, so that the forecast of its time is another.
    sizes = [f"{round(64 * 1.33 ** (number % _CHANGES))} MiB" for number in range(2 * _CHANGES)]
    return [float(page.evaluate(_KEY, size)) for size in sizes][2:]


def clicks(page: Page) -> str:
    """Start a cluster, run and compare with the buttons in view. Raises an error if one is out of view."""

    def click(name: str) -> None:
        button = hook(page, name).first
        expect(button).to_be_in_viewport(timeout=MINUTE)
        expect(button).to_be_enabled(timeout=MINUTE)
        box = button.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    click("start")
    expect(page.locator('[data-workbench="stage"]', has_text="ready")).to_be_visible(timeout=MINUTE)
    click("run-button")
    expect(page.locator(".wb-Result .wb-Checked").first).to_be_in_viewport(timeout=2 * MINUTE)
    click("compare-this")
    click("compare")
    expect(page.locator('[data-workbench^="comparison-"] [data-workbench="verdict"]').first).to_be_in_viewport(
        timeout=5 * MINUTE
    )
    return "a cluster after 1, an answer after 2, a comparison after 4"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    print(f"JavaScript of the extension: {bundle()} bytes   goal: at most 80 000")
    times: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for repeat in range(chosen.repeats + 1):
            for extension in (True, False) if repeat % 2 else (False, True):
                with server(folder, 18_400 + extension, extension=extension) as seconds:
                    if repeat:
                        times[extension].append(seconds)
        for extension, values in times.items():
            print(
                f"Jupyter's start {'with' if extension else 'without'} it: {statistics.median(values):.2f} s "
                f"({min(values):.2f} to {max(values):.2f})"
            )
        slower = statistics.median(a - b for a, b in zip(times[True], times[False], strict=True))
        print(f"  slower by {slower:.2f} s (pairs, median)   goal: at most 0.3 s")
        with server(folder, 18_402):
            delays = asyncio.run(changes(18_402, folder))
    spread = f"({min(delays):.0f} to {max(delays):.0f})"
    print(f"A change reaches the page after {statistics.median(delays):.0f} ms {spread}   goal: at most 100 ms")
    with tempfile.TemporaryDirectory() as name, running_lab(Path(name)) as lab, sync_playwright() as playwright:
        browser = chromium(playwright)
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        show_lab(page, lab.url)
        open_sidebar(page)
        page.wait_for_timeout(3000)  # Lab saves its layout
        filled = [sidebar(page, lab.url) for _ in range(chosen.repeats)]
        print(
            f"The sidebar is filled {statistics.median(filled):.2f} s after Lab's own "
            f"({min(filled):.2f} to {max(filled):.2f})   goal: at most 2 s"
        )
        print(f"Clicks: {clicks(page)}")
        waits = sorted(keys(page))
        print(
            f"A key reaches its verdict after {statistics.median(waits):.0f} ms, in 95 of 100 cases "
            f"{waits[int(0.95 * len(waits))]:.0f} ms   goal: at most 100 ms"
        )
        browser.close()


if __name__ == "__main__":
    main()
