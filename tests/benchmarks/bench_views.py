"""Cost of views of a large run: bytes on disk, seconds to open, frames per second in Chromium, a long history.

`python -m tests.benchmarks views`, `make bench-views`, or this file with `--tasks N` and `--runs N`. The record is
made by the `Recorder` of batches as a scheduler sends them: 32 threads, keys of blocks and keys with a hash of their
own in turn, transfers, samples of workers, counts. What watching costs the scheduler is measured by `watch`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import dask
import numpy as np
from playwright.sync_api import Page, WebSocket, sync_playwright

from tests.test_app import app
from tests.ui.conftest import BROWSERS, chromium, running_lab, show_lab
from tests.ui.steps import hook, open_notebook, write_notebook
from workbench.clusters import records
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.jobs import processes
from workbench.monitor.events import Batch, Progress, Tasks, WorkerSample, make_tasks
from workbench.monitor.record import Recorder, read_events
from workbench.runs import store
from workbench.runs.run import Run
from workbench.session import Session

WORKERS = tuple(f"tcp://10.0.0.{number}:40{number:03}" for number in range(1, 9))
THREADS = 4
NAMES = ("normal", "sum", "sum-aggregate", "getitem", "dot")
BATCH = 0.1
MEAN = 0.01
"""Seconds of a batch, and of a task."""


def batches(n_tasks: int, seed: int = 0) -> Iterator[Batch]:
    """Batches of a run of so many tasks, a tenth of them with a transfer before."""
    random = np.random.default_rng(seed)
    began, hashes = 1_760_000_000.0, [token_hex(16) for _ in NAMES]
    a_batch = int(BATCH / MEAN * len(WORKERS) * THREADS)
    for first in range(0, n_tasks, a_batch):
        count = min(a_batch, n_tasks - first)
        now = began + BATCH * (first // a_batch + 1)
        yield Batch(
            now,
            _tasks(random, first, count, now - BATCH, hashes),
            tuple(_sample(random, number, worker, now) for number, worker in enumerate(WORKERS))
            if first // a_batch % 5 == 0
            else (),
            Progress(now, {name: _count(first + count, n_tasks) for name in NAMES}),
        )


def _tasks(random: Any, first: int, count: int, begin: float, hashes: list[str]) -> Tasks:
    number = first + np.arange(count)
    lane = np.arange(count) % (len(WORKERS) * THREADS)
    name = (number // 50_000 % len(NAMES)).astype(np.int32)
    length = random.gamma(4.0, MEAN / 5, count)
    start = begin + np.arange(count) // (len(WORKERS) * THREADS) * MEAN + random.uniform(0, 0.1 * MEAN, count)
    keys = [
        (f"{NAMES[kind]}-{hashes[kind]}", each // 1000, each % 1000) if kind % 2 else f"{NAMES[kind]}-{token_hex(16)}"
        for kind, each in zip(name.tolist(), number.tolist(), strict=True)
    ]
    moved = np.flatnonzero(random.random(count) < 0.1)
    order = np.concatenate([np.arange(count), moved])
    is_moved = np.arange(len(order)) >= count
    return make_tasks(
        key=[keys[index] for index in order.tolist()],
        name=np.array(NAMES)[name[order]],
        worker=np.array(WORKERS)[(lane // THREADS)[order]],
        thread=(140_000_000_000_000 + lane * 8_392_704)[order],
        kind=np.where(is_moved, "transfer", "compute"),
        start=np.where(is_moved, start[order] - 0.1 * MEAN, start[order]),
        stop=np.where(is_moved, start[order], (start + length)[order]),
        nbytes=np.full(len(order), 8_000_000),
        status=["ok"] * len(order),
    )


def _sample(random: Any, number: int, worker: str, now: float) -> WorkerSample:
    return WorkerSample(
        worker, str(number), now, 380 + 20 * random.random(), int(4e9 * (1 + random.random())), 2**34, 0, 4, THREADS
    )


def _count(done: int, total: int) -> dict[str, int]:
    return {"total": total // len(NAMES), "done": done // len(NAMES), "erred": 0, "processing": 32}


def measure_record(folder: Path, n_tasks: int) -> None:
    """Record a run, and print the bytes and the time it takes to read it and to draw it."""
    path, cpu = folder / "events.parquet", 0.0
    with Recorder(path) as recorder:
        for batch in batches(n_tasks):
            began = time.process_time()
            recorder.write(batch)
            cpu += time.process_time() - began
        began = time.process_time()
    print(f"  record: {path.stat().st_size / n_tasks:.1f} bytes a task on disk (goal: at most 40)")
    finish = time.process_time() - began
    print(f"  recording takes {1e6 * cpu / n_tasks:.1f} µs CPU a task beside the scheduler, closing {finish:.1f} s")
    from workbench.figures.live import LiveFigure

    seconds = []
    for _ in range(3):
        wall, began = time.perf_counter(), time.process_time()
        events = read_events(path)
        read = time.process_time() - began
        figure = LiveFigure()
        figure.feed([events])
        figure.patches()
        seconds.append((read, time.process_time() - began, time.perf_counter() - wall))
    read, cpu_seconds, wall = (statistics.median(column) for column in zip(*seconds, strict=True))
    print(f"  opening: {wall:.2f} s, {cpu_seconds:.2f} s CPU, of which reading {read:.2f} s (goal: at most 2 s)")


REPORT = "Bokeh.documents.at(-1)"
LAB = """[...jupyterapp.shell.widgets('main')]
  .filter(each => each.id.startsWith('dask-workbench'))
  .flatMap(each => Object.values(each.content))
  .find(each => each?.document?.get_model_by_name)?.document"""
"""Location of the figure's document, in a report and in JupyterLab's page."""

PAN = """async ([zoom, frames]) => {
  const document = DOCUMENT, time = document.get_model_by_name('time')
  const {start: [start], end: [end]} = document.get_model_by_name('replay').data
  const width = (end - start) / zoom
  let left = start + (end - start - width) / 2
  time.setv({start: left, end: left + width})
  await new Promise(done => setTimeout(done, 2000))
  const tick = () => new Promise(requestAnimationFrame)
  await tick()
  const began = performance.now()
  for (let frame = 0; frame < frames; frame++) {
    left += (frame < frames / 2 ? 1 : -1) * width / 200
    time.setv({start: left, end: left + width})
    await tick()
  }
  await tick()
  return [1000 * frames / (performance.now() - began), document.get_model_by_name('tasks').data.left.length]
}"""


def measure_frames(folder: Path) -> None:
    """Print the frames per second while a run is panned in Chromium, at several zooms: its report, and Lab's tab."""
    from workbench.figures.report import report_html
    from workbench.runs.run import Run

    page = folder / "report.html"
    began = time.process_time()
    page.write_text(report_html(Run(id="a", workload="made up", cluster="c"), read_events(folder / "events.parquet")))
    took = time.process_time() - began
    print(f"  report: {page.stat().st_size / 2**20:.1f} MiB with every task, written in {took:.1f} s CPU")
    if not any(map(shutil.which, BROWSERS)):
        print("  panning: Chromium isn't here. Debian and Ubuntu: apt install chromium")
        return
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        shown = browser.new_page(viewport={"width": 1400, "height": 900})
        shown.goto(page.as_uri())
        _pan(shown, REPORT, "report")
        shown.close()
        with running_lab(folder) as lab:
            run = store.create(Run(id="array_sum-million", workload="array_sum", cluster="a", status="done"))
            store.folder(run.id).mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / "events.parquet", store.folder(run.id))
            shown = browser.new_page(viewport={"width": 1400, "height": 900})
            shown.goto(lab.url)
            shown.wait_for_function("globalThis.jupyterapp !== undefined", timeout=120_000)
            shown.evaluate("jupyterapp.restored.then(() => jupyterapp.shell.collapseLeft())")
            # A person looks for it first, while the server gets ready.
            shown.wait_for_timeout(10_000)
            for said in ("first", "second"):
                began = time.perf_counter()
                shown.evaluate("id => jupyterapp.commands.execute('dask-workbench:watch', {run: id})", run.id)
                shown.wait_for_function(f"{LAB}?.get_model_by_name('tasks')?.data.left.length", timeout=120_000)
                took = time.perf_counter() - began
                print(f"  Lab tab: {took:.2f} s to show it, {said} time (goal: at most 2 s)")
                if said == "first":
                    shown.evaluate("jupyterapp.shell.currentWidget.dispose()")
            _pan(shown, LAB, "Lab tab")
        browser.close()


def _pan(shown: Page, document: str, place: str) -> None:
    shown.wait_for_function(
        f"{document.replace('Bokeh.', 'globalThis.Bokeh?.')}?.get_model_by_name('head')", timeout=120_000
    )
    shown.wait_for_timeout(3000)
    for zoom in (1, 4, 16, 256, 4096):
        rate, n_rectangles = shown.evaluate(PAN.replace("DOCUMENT", document), [zoom, 60])
        print(f"  panning the {place} at zoom {zoom:4}: {rate:5.1f} frames/s, {n_rectangles} rectangles (goal: 20)")


def measure_server(folder: Path) -> None:
    """Print what the server takes to answer a pan of the Lab tab, which draws no more than the report does."""
    from workbench.figures.live import LiveFigure

    figure = LiveFigure()
    figure.feed([read_events(folder / "events.parquet")])
    figure.patches()
    start, end = figure.window()
    for zoom in (1, 16, 4096):
        width, seconds = (end - start) / zoom, []
        for step in range(5):
            left = start + (end - start - width) * (0.4 + 0.01 * step)
            began = time.process_time()
            figure.show_range(left, left + width, 1200)
            seconds.append(time.process_time() - began)
        print(f"  Lab tab, detail after a pan at zoom {zoom:4}: {1000 * statistics.median(seconds):.0f} ms CPU")


def write_history(n_runs: int) -> None:
    """Keep so many runs of twenty workloads, as if they had been made on 300 clusters."""
    from workbench.hardware import inventory

    machine = inventory().model_dump(mode="json")
    first = store.create(Run(id="run-0", workload="array_sum", cluster="a", status="done", inventory=machine))
    record = json.loads((store.folder(first.id) / "record.json").read_text())
    for n in range(1, n_runs):
        chosen = {"id": f"run-{n}", "created": n, "workload": f"workload_{n % 20}", "cluster": f"cluster-{n % 300}"}
        chosen["status"] = "done" if n % 50 else "failed"
        folder = store.folder(chosen["id"])
        folder.mkdir(mode=0o700)
        (folder / "record.json").write_text(json.dumps(record | chosen))


def measure_history(folder: Path, n_runs: int) -> None:
    """Print what listing and filtering a long history takes."""
    with dask.config.set({"workbench.data-folder": str(folder / "data")}):
        write_history(n_runs)
        began = time.perf_counter()
        store.count()
        print(f"  {n_runs} runs, first look: {1000 * (time.perf_counter() - began):.0f} ms; goal: 1000 ms for 10,000")
        for asked in ({}, {"workload": "workload_7"}, {"status": "failed"}, {"cluster": "cluster-7"}, {"text": "r-7"}):
            seconds = []
            for _ in range(7):
                began = time.perf_counter()
                found = store.select(**asked)
                seconds.append(time.perf_counter() - began)
            said = ", ".join(f"{name}={value}" for name, value in asked.items()) or "the latest"
            print(f"  {n_runs} runs, {said}: {1000 * statistics.median(seconds):.1f} ms for {len(found)}")
    print("  goal: at most 300 ms for a page of 50 of 10,000, 200 ms for a search")


SHOWN = """() => ['.wb-Run', '[data-workbench^=cluster-]', '[data-workbench=start]', '[data-workbench=run-button]']
  .every(each => document.querySelector(`.wb-Sidebar ${each}`)?.offsetParent)"""


def measure_sidebar(folder: Path, n_runs: int, n_clusters: int = 50) -> None:
    """Print how soon the sidebar is shown with a long history and many clusters, and how many bytes are sent for it."""
    spec = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**29)
    with running_lab(folder) as lab, sync_playwright() as playwright, subprocess.Popen(["sleep", "600"]) as host:
        write_history(n_runs)
        alive = {"pid": host.pid, "pid_created": processes.created(host.pid), "place": processes.place()}
        for number in range(n_clusters):
            records.create(ClusterRecord(name=f"cluster-{number}", spec=spec, status="ready", created=number, **alive))
        browser = chromium(playwright)
        quiet = folder / "config" / "settings" / "dask-workbench"
        quiet.mkdir()
        (quiet / "sidebar.jupyterlab-settings").write_text('{"openOnStart": "never"}')
        for said in ("first", "second", "third"):
            sizes: list[int] = []

            def listen(socket: WebSocket, sizes: list[int] = sizes) -> None:
                if "workbench" in socket.url:
                    socket.on("framereceived", lambda text: sizes.append(len(text)))

            shown = browser.new_page(viewport={"width": 1280, "height": 800})
            shown.on("websocket", listen)
            show_lab(shown, lab.url)
            shown.wait_for_timeout(5000)
            sizes.clear()
            began = time.perf_counter()
            shown.evaluate("() => { jupyterapp.commands.execute('dask-workbench:open') }")
            shown.wait_for_function(SHOWN, timeout=60_000)
            took, sent = time.perf_counter() - began, sum(sizes) / 1000
            if said is not None:
                print(
                    f"  sidebar beside {n_runs} runs, {n_clusters} clusters, {said} time: {took:.2f} s, {sent:.0f} kB"
                )
            shown.evaluate("() => { jupyterapp.commands.execute('filebrowser:activate') }")
            shown.wait_for_timeout(3000)
            shown.close()
        print("  goal: at most 1 s until hardware, clusters, the workload and runs are there")
        browser.close()
        host.kill()


TYPED = """verdict => {
  const root = verdict.getRootNode()
  const said = () => root.querySelector('[data-workbench=needs]')?.textContent
  window.typed = []
  window.addEventListener('keydown', event => {
    const before = said(), began = event.timeStamp
    const observer = new MutationObserver(() => {
      if (said() !== before) {
        observer.disconnect()
        requestAnimationFrame(() => window.typed.push(performance.now() - began))
      }
    })
    observer.observe(root, {subtree: true, childList: true, characterData: true})
  }, true)
}"""


def measure_typing(folder: Path, n_keys: int = 60) -> None:
    """Print what passes from a key in a form to the verdict: in the sidebar, in a notebook's cell and without Lab."""
    with running_lab(folder) as lab, app() as address, sync_playwright() as playwright:
        session = Session()
        session.start(session.plan("cpu", n_workers=1), name="typed")
        browser = chromium(playwright)
        write_notebook(lab.notebooks / "bench.ipynb", ("from workbench.panels import Workbench\nWorkbench()",))
        for where, name in ((".wb-Sidebar", "the sidebar"), (".wb-Cell", "a notebook's cell"), ("body", "the app")):
            shown = browser.new_page(viewport={"width": 1440, "height": 1300})
            if where == "body":
                shown.goto(address)
            elif where == ".wb-Cell":
                show_lab(shown, lab.url)
                open_notebook(shown, "bench.ipynb")
                shown.evaluate("() => { jupyterapp.shell.collapseLeft() }")
                shown.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells') }")
            else:
                show_lab(shown, lab.url)
                shown.evaluate("() => { jupyterapp.commands.execute('dask-workbench:open') }")
            place = shown.locator(where)
            hook(place, "workload-array_sum").click(timeout=60_000)
            field = hook(place, "field-size")
            field.fill("1GiB")
            hook(place, "needs").wait_for(timeout=60_000)
            shown.wait_for_timeout(3000)
            field.press("Home")
            hook(place, "needs").evaluate(TYPED)
            for number in range(n_keys):
                shown.keyboard.press("Backspace" if number % 2 else str(2 + number // 2 % 8))
                shown.wait_for_timeout(500)
            took = shown.evaluate("window.typed")
            late = np.percentile(took, 95)
            print(
                f"  a key in {name} to the verdict: median {statistics.median(took):.0f} ms, 95 % within {late:.0f}, "
                f"at most {max(took):.0f} ms, {len(took)} of {n_keys} keys (goal: 95 % within 100 ms)"
            )
            shown.close()
        browser.close()


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=10_000)
    chosen = parser.parse_args()
    print(f"A run of {chosen.tasks} tasks")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        measure_record(folder, chosen.tasks)
        measure_server(folder)
        measure_frames(folder)
        measure_history(folder, chosen.runs)
    for measure in (measure_typing, lambda place: measure_sidebar(place, chosen.runs)):
        with tempfile.TemporaryDirectory() as place:
            measure(Path(place))


if __name__ == "__main__":
    main()
