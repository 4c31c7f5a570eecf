"""A run is exported, forgotten, imported and played in a browser without a network."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.ui.steps import MINUTE

HEAD = "() => { const head = Bokeh.documents.at(-1).get_model_by_name('head'); return head.value / head.end }"
SCRUB = "part => { const head = Bokeh.documents.at(-1).get_model_by_name('head'); head.value = part * head.end }"
PROGRESS = "() => Bokeh.documents.at(-1).get_model_by_name('progress').data.count"
COVERED = """() => {
  const document = Bokeh.documents.at(-1), time = document.get_model_by_name('time')
  const [cover] = [...document._all_models.values()].filter(model => model.type === 'BoxAnnotation' && model.visible)
  return cover ? (cover.left - time.start) / (time.end - time.start) : 1
}"""


@pytest.fixture
def offline(browser: Browser) -> Iterator[Callable[[str], Page]]:
    """Provide a function that opens a page in a browser without network; not even a failed request is allowed."""
    contexts, tried = [], []

    def open_page(address: str, **options: Any) -> Page:
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        context.route(lambda url: not url.startswith(("file:", "data:", "blob:")), lambda route: route.abort())
        page = context.new_page()
        page.on("request", lambda request: tried.append(request.url) if request.url[:4] == "http" else None)
        page.on("pageerror", lambda error: tried.append(str(error)))
        page.goto(address)
        expect(page.get_by_role("button", name="1×", exact=True)).to_be_visible(timeout=MINUTE)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert tried == []


def workbench(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_is_exported_wiped_imported_and_replayed_without_a_network(
    data_folder: Path, tmp_path: Path, offline: Callable[..., Page]
) -> None:
    run = workbench("run", "array_sum", "--on", "cpu --workers 1 --threads 2 --memory 512MiB", "-p", "size=64MiB")
    file = workbench("save", run["id"], str(tmp_path / "run.zip"))["path"]
    shutil.rmtree(data_folder)
    taken = workbench("import", file)
    assert taken["id"] == run["id"]
    assert taken["result"] == run["result"]
    assert taken["imported"]["machine"]
    page = Path(workbench("show", run["id"], "--report")["path"])

    shown = offline(page.as_uri())
    expect(shown.locator("body")).to_contain_text(f"imported from {taken['imported']['machine']}")
    final = shown.evaluate(PROGRESS)
    assert shown.evaluate(COVERED) == 1
    shown.evaluate(SCRUB, 0.4)
    assert 0.3 < shown.evaluate(COVERED) < 0.5
    assert shown.evaluate(PROGRESS) != final
    shown.evaluate(SCRUB, 0)
    assert all(words.startswith("0 / ") for words in shown.evaluate(PROGRESS))
    shown.get_by_role("button", name="10×").click()
    shown.get_by_role("button", name="▶ Play").click()
    shown.wait_for_function(f"({HEAD})() === 1", timeout=MINUTE)
    expect(shown.get_by_role("button", name="▶ Play")).to_be_visible()
    assert shown.evaluate(PROGRESS) == final


def test_a_replay_is_paused_and_begins_by_itself_where_the_address_says_so(
    tmp_path: Path, offline: Callable[..., Page]
) -> None:
    from tests.benchmarks.bench_views import batches
    from workbench.figures.report import report_html
    from workbench.monitor.record import Recorder, read_events
    from workbench.runs.run import Run

    with Recorder(tmp_path / "events.parquet") as recorder:
        for batch in batches(30_000):
            recorder.write(batch)
    path = tmp_path / "report.html"
    path.write_text(
        report_html(Run(id="a", workload="array_sum", cluster="c"), read_events(tmp_path / "events.parquet"))
    )
    shown = offline(f"{path.as_uri()}#replay", color_scheme="dark", viewport={"width": 500, "height": 800})
    shown.wait_for_function(f"({HEAD})() > 0.01 && ({HEAD})() < 1", timeout=MINUTE)
    shown.get_by_role("button", name="❚❚ Pause").click()
    at = shown.evaluate(HEAD)
    shown.wait_for_timeout(300)
    assert shown.evaluate(HEAD) == at < 1
    # Scrubbing by hand, as with the keyboard.
    handle = shown.locator(".noUi-handle")
    handle.focus()
    handle.press("Home")
    shown.wait_for_function(f"({HEAD})() < {at}")


def test_a_report_zoomed_into_a_pause_shows_no_task(tmp_path: Path, offline: Callable[..., Page]) -> None:
    from tests.feeds import tasks_of
    from workbench.figures.report import report_html
    from workbench.monitor.events import Batch, Task
    from workbench.runs.run import Run

    start = 1_700_000_000.0
    times = (start, start + 0.02, start + 9, start + 10)
    tasks = [Task(f"add-{n}", "add", "tcp://a:1", 1, "compute", at, at + 0.001, 8, "ok") for n, at in enumerate(times)]
    path = tmp_path / "report.html"
    run = Run(id="a", workload="array_sum", cluster="c")
    path.write_text(report_html(run, Batch(start + 10, tasks_of(tasks), recorded=True)))
    shown = offline(path.as_uri())

    def tinted() -> int:
        """Pixels of the task stream that are not gray."""
        picture = Image.open(io.BytesIO(shown.locator(".bk-Figure").first.screenshot())).convert("HSV")
        return int((np.asarray(picture)[..., 1] > 30).sum())

    assert tinted() > 0
    shown.evaluate(
        "([start, end]) => Bokeh.documents.at(-1).get_model_by_name('time').setv({start, end})",
        [1000 * (start + 3), 1000 * (start + 5)],
    )
    shown.wait_for_timeout(500)
    assert tinted() == 0


def test_on_a_phone_a_report_shows_all_columns_of_its_modes(tmp_path: Path, page: Page) -> None:
    from workbench.figures.report import report_html
    from workbench.runs.run import Run

    many = range(1, 11)
    result = {
        "singular_values": [12345.678 / each for each in many],
        "explained_variance": [123456.78 / each for each in many],
        "explained_variance_ratio": [0.2951 / each for each in many],
        "separated": [each < 5 for each in many],
        "certificate": {"bound": [4.4e-7 for _ in many], "sentence": "Right."},
    }
    path = tmp_path / "report.html"
    path.write_text(report_html(Run(id="a", workload="eofs", cluster="c", status="done", result=result), None))
    page.set_viewport_size({"width": 420, "height": 800})
    page.goto(path.as_uri())
    table = page.locator("[data-workbench=values]")
    expect(table).to_contain_text("Separated")
    assert table.evaluate("table => table.parentElement.scrollWidth <= table.parentElement.clientWidth")
