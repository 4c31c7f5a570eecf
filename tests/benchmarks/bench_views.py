"""What views of a large run cost: bytes on disk, seconds to open, frames per second in Chromium, and a long history.

`python -m tests.benchmarks views`, `make bench-views`, or this file with `--tasks N` and `--runs N`. The record is
made by the `Recorder` of batches as a scheduler sends them: 32 threads, keys of blocks and keys with a hash of their
own in turn, transfers, samples of workers, counts. What watching costs the scheduler is measured by `watch`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from workbench.monitor.events import KINDS, Batch, Labels, Progress, Tasks, WorkerSample
from workbench.monitor.record import Recorder, read_events

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
    return Tasks(
        key=[keys[index] for index in order.tolist()],
        name=Labels(NAMES, name[order]),
        worker=Labels(WORKERS, (lane // THREADS).astype(np.int32)[order]),
        thread=(140_000_000_000_000 + lane * 8_392_704)[order],
        kind=np.where(is_moved, KINDS.index("transfer"), KINDS.index("compute")).astype(np.int8),
        start=np.where(is_moved, start[order] - 0.1 * MEAN, start[order]),
        stop=np.where(is_moved, start[order], (start + length)[order]),
        nbytes=np.full(len(order), 8_000_000),
        erred=np.zeros(len(order), bool),
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
