"""Cost of many workers on one machine: 32 and 128 workers of one thread in one process, 8000 tasks a round.

`python -m tests.benchmarks scale`, or `make bench-scale`; `--workers 32,128`, `--tasks N`, `--repeats N`, `--write`.
Scheduler, workers, client and the page's part of the server (`views.screen.Screen`) are separate processes. Reported:
CPU time of the scheduler for a task, watched and not, in turn, and which part of it is spent in our code; bytes a
second to the page, as they are sent; memory of the owner of the cluster and of the server; and bytes that a pass of
`svd_compressed` and of `genotypes.pca` moves between workers, with the least that the sum of a pass takes. What it
comes to with 1000 workers is extrapolated, and says so. It takes a quarter of an hour: a cluster is watched for five
seconds after a page left it, and each round waits for that.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import psutil
from dask.distributed import Client, Worker, wait

import workbench
from tests.benchmarks.bench_watch import once
from tests.conftest import using_data_folder
from workbench import formats, genotypes, linalg
from workbench.clusters import records
from workbench.clusters.start import Cluster
from workbench.monitor import plugin
from workbench.server.stream import COMPRESSION
from workbench.session import Session
from workbench.views.answers import to_json
from workbench.views.screen import Screen
from workbench.views.watching import Watching

RESULTS = Path(__file__).parent / "results"
MANY = 1000
"""Workers of the extrapolation."""


class Told(NamedTuple):
    """A round of empty tasks: seconds, CPU seconds of the scheduler, and bytes that went to the page."""

    seconds: float
    cpu: float
    sent: int = 0


class Moved(NamedTuple):
    """Work of an algorithm: passes, tasks, bytes between workers, and those it can't avoid."""

    passes: int
    tasks: int
    bytes: int
    least: int


def host_workers(address: str, n_workers: int, up: Connection) -> None:
    """Have so many workers of one thread in this process, until it is ended."""

    async def main() -> None:
        workers = [Worker(address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(n_workers)]
        await asyncio.gather(*workers)
        up.send(None)
        await asyncio.gather(*(each.finished() for each in workers))

    logging.getLogger("distributed").setLevel(logging.ERROR)
    asyncio.run(main())


def serve_page(name: str, orders: Connection) -> None:
    """Be what a page has at the server, watching from one order to the next; tell bytes and memory."""

    async def main() -> None:
        sent = 0
        # As the server's connection does it.
        deflate = zlib.compressobj(COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)

        async def send(message: dict[str, Any]) -> None:
            nonlocal sent
            sent += len(deflate.compress(to_json(message).encode()) + deflate.flush(zlib.Z_SYNC_FLUSH))

        async def act(name: str, arguments: Mapping[str, Any]) -> None: ...

        loop, watching = asyncio.get_running_loop(), Watching(Session(), "/", logging.getLogger("bench"))
        while await loop.run_in_executor(None, orders.recv):
            sent, screen = 0, Screen(watching, send, act)
            screen.receive({"type": "watch", "watch": "figure", "cluster": name, "theme": "light"})
            # The first document is no part of a round.
            while not sent:
                await asyncio.sleep(2)
            sent = 0
            orders.send(None)
            await loop.run_in_executor(None, orders.recv)
            orders.send((sent, psutil.Process().memory_info().rss))
            screen.close()

    asyncio.run(main())


def _is_watched(dask_scheduler: Any) -> bool:
    return plugin.NAME in dask_scheduler.plugins


def _begin_sampling(dask_scheduler: Any) -> None:
    """Look every few milliseconds of CPU time whether it goes into watching, or into what is sent to who watches.

    By a timer of CPU time and not by a clock around each call, which would cost more than what it measures.
    """
    monitor = dask_scheduler.plugins[plugin.NAME]
    file, seen = type(monitor).transition.__code__.co_filename, {"all": 0, "ours": 0}
    comms = [dask_scheduler.client_comms[client].comm for client in monitor.watchers]

    def look(_: int, frame: Any) -> None:
        seen["all"] += 1
        while frame is not None:
            code = frame.f_code
            if code.co_filename == file or (code.co_name == "write" and frame.f_locals.get("self") in comms):
                seen["ours"] += 1
                return
            frame = frame.f_back

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
    dask_scheduler.bench_seen = seen


def _end_sampling(dask_scheduler: Any) -> tuple[int, int]:
    signal.setitimer(signal.ITIMER_PROF, 0)
    return dask_scheduler.bench_seen["ours"], dask_scheduler.bench_seen["all"]


@contextmanager
def running(n_workers: int) -> Iterator[Cluster]:
    """Start a scheduler with `n_workers` workers, and attach to it."""
    spawn = multiprocessing.get_context("spawn")
    # One thread each in BLAS, too, as Dask's nannies have it.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "scheduler.json"
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
        command += ["--no-dashboard", "--scheduler-file", str(file)]
        scheduler = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        stack.callback(scheduler.wait)
        stack.callback(scheduler.terminate)
        while not file.exists():
            time.sleep(0.05)
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            address = str(client.scheduler.address)
        ours, theirs = spawn.Pipe()
        workers = spawn.Process(target=host_workers, args=(address, n_workers, theirs), daemon=True)
        workers.start()
        stack.callback(workers.terminate)
        ours.recv()
        there = workbench.attach(address)
        stack.callback(there.stop)
        yield there


def tasks(there: Cluster, n_tasks: int, repeats: int) -> dict[str, Any]:
    """Run rounds of empty tasks, watched by a page and not, and measure the memory."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    page = multiprocessing.get_context("spawn").Process(target=serve_page, args=(there.name, theirs), daemon=True)
    page.start()
    # What workers log grows until it is full, and tasks take longer.
    once(there.client, n_tasks)
    alone: list[Told] = []
    watched: list[Told] = []
    sampled: list[tuple[int, int]] = []
    memory = 0
    for repeat in range(repeats):
        # Now the one first, now the other: what drifts hits both. Sampling takes time, so it has rounds of its own.
        for how in ("sampled", "watched", "alone") if repeat % 2 else ("alone", "watched", "sampled"):
            if how == "alone":
                # A cluster is watched for a while after the last page left.
                while there.client.run_on_scheduler(_is_watched):
                    time.sleep(0.5)
                alone.append(Told(*once(there.client, n_tasks)))
                continue
            ours.send(True)
            ours.recv()
            if how == "sampled":
                there.client.run_on_scheduler(_begin_sampling)
                once(there.client, n_tasks)
                sampled.append(there.client.run_on_scheduler(_end_sampling))
            else:
                watched.append(Told(*once(there.client, n_tasks)))
            ours.send(None)
            sent, memory = ours.recv()
            if not sent:
                raise SystemExit("Nothing was sent to the page.")
            if how == "watched":
                watched[-1] = watched[-1]._replace(sent=sent)
    ours.send(False)
    page.join()
    owner = records.host_process(records.read(there.name))
    return {
        "alone": alone,
        "watched": watched,
        "sampled": sampled,
        "server": memory,
        "owner": owner.memory_info().rss if owner else 0,
        "scheduler": there.client.run_on_scheduler(lambda: psutil.Process().memory_info().rss),
    }


def _begin_counting(dask_worker: Any) -> None:
    dask_worker.transfer_incoming_log.clear()
    dask_worker.bench_before = dask_worker.state.executed_count


def _counted(dask_worker: Any) -> tuple[int, int]:
    moved = sum(each["total"] for each in dask_worker.transfer_incoming_log)
    return int(moved), dask_worker.state.executed_count - dask_worker.bench_before


def moved(client: Client, n_workers: int, what: str) -> Moved:
    """Bytes between workers, and tasks, of an algorithm over blocks that the workers hold.

    A pass brings the sum of A^T A Q, of `columns` rows, together from all workers but one. Q comes from the client.
    """
    rows, columns, k, more = 64 * n_workers * 8, 2000, 10, 10
    if what == "svd_compressed":
        held = da.random.default_rng(0).random((rows, columns), chunks=(rows // (2 * n_workers), columns)).persist()
        wait(held)
        client.run(_begin_counting)
        made = linalg.svd_compressed(held, k, n_oversamples=more, tol=0.1)
        da.compute(*made[:3])
        certificate = made.certificate
    else:
        blocks = (rows // (2 * n_workers), columns)
        held = da.random.default_rng(0).binomial(2, 0.3, (rows, columns), chunks=blocks).astype("u1").persist()
        wait(held)
        client.run(_begin_counting)
        certificate = genotypes.pca(held, k, n_oversamples=more, tol=0.1).certificate
    counts_of = client.run(_counted).values()
    least = certificate.passes * (n_workers - 1) * columns * (k + more) * np.dtype(certificate.dtype).itemsize
    return Moved(certificate.passes, sum(n for _, n in counts_of), sum(n for n, _ in counts_of), least)


def measure(n_workers: int, n_tasks: int, repeats: int) -> dict[str, Any]:
    """All of it with so many workers."""
    with running(n_workers) as there:
        found = tasks(there, n_tasks, repeats)
        with there.client.as_current():
            names = ("svd_compressed", "genotypes.pca")
            found["moved"] = {each: moved(there.client, n_workers, each) for each in names}
        there.client.close()
    return found


def spread(values: list[float], digits: int = 3) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):.{digits}g} ({min(values):.{digits}g} to {max(values):.{digits}g})"


def table(found: dict[int, dict[str, Any]], n_tasks: int) -> str:
    """All figures, with what they come to for many workers."""
    lines = [
        f"# Scale, {date.today()}",
        "",
        f"{os.cpu_count()} cores, Python {platform.python_version()}. All workers in one process, one thread each; "
        f"{n_tasks} empty tasks a round, rounds watched and not in turn: median (least to most).",
        "",
        f"| | {' | '.join(f'{n} workers' for n in found)} | {MANY}, extrapolated |",
        f"|{'---|' * (len(found) + 2)}",
    ]

    def row(title: str, told: list[str], more: str = "–") -> None:
        lines.append(f"| {title} | {' | '.join(told)} | {more} |")

    def grown(values: list[float]) -> float:
        """By a straight line through the first and the last, and never less than the last: noise may fall."""
        sizes = list(found)
        slope = (values[-1] - values[0]) / (sizes[-1] - sizes[0]) if len(sizes) > 1 else 0
        return values[-1] + max(0.0, slope) * (MANY - sizes[-1])

    each = list(found.values())
    for name in ("alone", "watched"):
        cpu = [[1e6 * one.cpu / n_tasks for one in one_size[name]] for one_size in each]
        title = f"scheduler, µs of CPU a task, {'watched' if name == 'watched' else 'not watched'}"
        row(title, list(map(spread, cpu)), f"{grown([statistics.median(one) for one in cpu]):.3g}")
    pairs = [list(zip(one["alone"], one["watched"], strict=True)) for one in each]
    row("watching adds, %", [spread([100 * (b.cpu / a.cpu - 1) for a, b in pair], 2) for pair in pairs])
    parts = [[100 * ours / seen for ours, seen in one["sampled"]] for one in each]
    row("of the scheduler's CPU for watching, by samples, %", [spread(part, 2) for part in parts])
    sent = [[one.sent / one.seconds / 1000 for one in one_size["watched"]] for one_size in each]
    row("to the page, kB/s", list(map(spread, sent)), f"{grown([statistics.median(one) for one in sent]):.3g}")
    for name, what in (("scheduler", "scheduler"), ("server", "server"), ("owner", "owner of the cluster")):
        values = [float(one[name]) for one in each]
        row(f"memory of the {what}", list(map(formats.size, values)), formats.size(grown(values)))
    for what in each[0]["moved"]:
        done = [one["moved"][what] for one in each]
        row(f"{what}: tasks a pass", [f"{one.tasks / one.passes:.0f} ({one.passes} passes)" for one in done])
        ratio = [one.bytes / one.least for one in done]
        told = [f"{formats.size(one.bytes / one.passes)} ({r:.2g} ×)" for one, r in zip(done, ratio, strict=True)]
        row(f"{what}: moved a pass, and times the least", told, f"{grown(ratio):.2g} ×")
    lines += ["", "Goals: watching at most 2 % of the scheduler, and 200 kB/s to the page, at any number of workers."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="32,128", help="numbers of workers")
    parser.add_argument("--tasks", type=int, default=8_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write results/scale-DATE.md")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, using_data_folder(Path(folder, "data")):
        found = {int(n): measure(int(n), chosen.tasks, chosen.repeats) for n in chosen.workers.split(",")}
    told = table(found, chosen.tasks)
    print(told)
    if chosen.write:
        (RESULTS / f"scale-{date.today()}.md").write_text(told)


if __name__ == "__main__":
    main()
