"""Shares of the workers' time in a run: of the time of all threads, adding up to one.

Each moment of each thread counts once. A thread that doesn't compute waits, and its worker's activity shows for what:
the worker moves blocks from or to the disk, or fetches them from other workers. Without such activity, a short wait is
the hand-over of the next task, and in a long one the thread was idle, as long as others worked. If no thread of the
cluster is active, all wait for the scheduler, or for a worker that is slow to start. Before the first task of the run,
all wait for its graph. A worker that arrived during the run, from a queue or after a slow start, counts as arriving
until then. The time of a retired worker, for example by adaptive scaling, doesn't count until another replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.monitor.events import KINDS, Batch, Tasks, WorkerSample
from workbench.runs.run import SHARES

_AT_ONCE = 5.0
"""Seconds after the start within which an existing worker has its first sample or task."""

# A scheduler needs about a millisecond for a task, and a worker some more. A thread that has waited longer than it
# takes to serve all others is idle.
_HAND_OVER = 0.05  # seconds
_SERVED = 0.002  # seconds per thread

_COMPUTE, _TRANSFER, _READ, _WRITE, _DESERIALIZE = (
    KINDS.index(kind) for kind in ("compute", "transfer", "disk-read", "disk-write", "deserialize")
)


Interval = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Starts and ends of intervals."""


def shares_of(events: Batch, began: float, ended: float, threads: Mapping[str, int]) -> dict[str, float]:
    """Compute the shares of the time of all threads between two moments: a number for each of `SHARES`, with sum 1.

    Moments are seconds since the epoch by the scheduler's clock; `threads` has the threads by the worker's address.
    """
    spent = dict.fromkeys(SHARES, 0.0)
    tasks = events.tasks
    of_worker = {worker: code for code, worker in enumerate(tasks.worker.values)}
    computing = tasks.kind == _COMPUTE
    # After the last task threads wait until the answer is sent.
    first = float(tasks.start[computing].min(initial=ended).clip(began))
    last = float(tasks.stop[computing].max(initial=first).clip(first, ended))
    patience = max(_HAND_OVER, _SERVED * sum(threads.values()))
    somewhere = _union(tasks.start.clip(began, ended), tasks.stop.clip(began, ended))
    samples = _samples(events)
    for worker, n_threads in threads.items():
        mine = np.flatnonzero(tasks.worker.codes == of_worker.get(worker, -1))
        sampled = samples.get(worker, [])
        arrived = min([sampled[0].time if sampled else began, *tasks.start[mine], ended])
        arrived = began if arrived - began < _AT_ONCE else arrived
        spent["arriving"] += n_threads * (arrived - began)
        moments = (arrived, max(first, arrived), max(last, arrived), ended)
        found = _of_worker(tasks, mine, n_threads, moments, patience, somewhere, _absent(sampled, ended))
        for name, seconds in found.items():
            spent[name] += seconds
    total = sum(spent.values())
    return {name: seconds / total if total else 0.0 for name, seconds in spent.items()}


def _samples(events: Batch) -> dict[str, list[WorkerSample]]:
    """Return the samples of each worker, the oldest first."""
    found: dict[str, list[WorkerSample]] = {}
    for sample in sorted(events.samples, key=lambda sample: sample.time):
        found.setdefault(sample.worker, []).append(sample)
    return found


def _absent(samples: Sequence[WorkerSample], ended: float) -> Interval:
    """Return the intervals in which a worker was absent after it was retired: its samples have no threads."""
    ends = [*(sample.time for sample in samples[1:]), ended]
    known = any(sample.n_threads for sample in samples)
    absent = [(sample.time, end) for sample, end in zip(samples, ends, strict=False) if known and not sample.n_threads]
    start, stop = np.array(absent).reshape(-1, 2).T
    return start, stop


def _of_worker(
    tasks: Tasks,
    rows: npt.NDArray[np.intp],
    n_threads: int,
    moments: tuple[float, float, float, float],
    patience: float,
    somewhere: Interval,
    absent: Interval,
) -> dict[str, float]:
    began, first, last, ended = moments
    kind, start, stop = tasks.kind[rows], tasks.start[rows].clip(began, ended), tasks.stop[rows].clip(began, ended)
    computing = kind == _COMPUTE
    quiet_from, quiet_to = _quiet(tasks.thread[rows][computing], start[computing], stop[computing], n_threads, moments)
    intervals = (
        (start[computing], stop[computing]),
        (start[kind == _TRANSFER], stop[kind == _TRANSFER]),
        (start[(kind == _READ) | (kind == _WRITE)], stop[(kind == _READ) | (kind == _WRITE)]),
        (start[kind == _DESERIALIZE], stop[kind == _DESERIALIZE]),
        (np.minimum(quiet_from + patience, quiet_to), quiet_to),
        somewhere,
        absent,
    )
    times, counts = _count_open(intervals, began, first, last, ended)
    busy, fetching, on_disk, unpacking, quiet, others, away = (count[:-1] for count in counts)
    lengths = np.diff(times) * (away == 0)
    busy = np.minimum(busy, n_threads)
    waiting = (n_threads - busy) * lengths
    spilling = on_disk > 0
    serialising = ~spilling & (unpacking > 0)
    transferring = ~spilling & ~serialising & (fetching > 0)
    rest = ~spilling & ~serialising & ~transferring
    idle = np.minimum(quiet, n_threads - busy) * lengths * (others > 0)
    is_building = times[:-1] < first
    return {
        "computing": float((busy * lengths).sum()),
        "spilling": float(waiting[spilling].sum()),
        "serialising": float(waiting[serialising].sum()),
        "transferring": float(waiting[transferring].sum()),
        "idle": float(idle[rest].sum()),
        "building": float((waiting - idle)[rest & is_building].sum()),
        "scheduler": float((waiting - idle)[rest & ~is_building].sum()),
    }


def _union(start: npt.NDArray[np.float64], stop: npt.NDArray[np.float64]) -> Interval:
    """Return the union of intervals, as disjoint ones."""
    order = np.argsort(start)
    start, until = start[order], np.maximum.accumulate(stop[order])
    begins = np.r_[True, start[1:] > until[:-1]] if len(start) else np.zeros(0, bool)
    return start[begins], until[np.r_[begins[1:], True]] if len(start) else until


def _quiet(
    thread: npt.NDArray[np.int64],
    start: npt.NDArray[np.float64],
    stop: npt.NDArray[np.float64],
    n_threads: int,
    moments: tuple[float, float, float, float],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the starts and ends of the gaps in each thread's work, from the run's first task to its last."""
    _, first, last, _ = moments
    order = np.lexsort((start, thread))
    thread, start, stop = thread[order], start[order], stop[order]
    is_new = np.r_[True, thread[1:] != thread[:-1]] if len(thread) else np.zeros(0, bool)
    is_last = np.r_[is_new[1:], True] if len(thread) else np.zeros(0, bool)
    before = np.r_[first, stop[:-1]] if len(thread) else stop
    before = np.where(is_new, first, before)
    # A thread without any task was idle from the first task to the last.
    unseen = max(0, n_threads - int(is_new.sum()))
    begins = np.r_[before, stop[is_last], np.full(unseen, first)]
    ends = np.r_[start, np.full(int(is_last.sum()), last), np.full(unseen, last)]
    return begins, np.maximum(begins, ends)


def _count_open(intervals: Any, *moments: float) -> tuple[npt.NDArray[np.float64], list[npt.NDArray[np.int64]]]:
    """Return all moments of change, and for each kind the number of intervals that are open after each moment."""
    edges = [np.r_[start, stop] for start, stop in intervals]
    times = np.unique(np.r_[np.array(moments), *edges].clip(moments[0], moments[-1]))
    counts = []
    for start, stop in intervals:
        change = np.zeros(len(times), np.int64)
        np.add.at(change, np.searchsorted(times, start.clip(times[0], times[-1])), 1)
        np.add.at(change, np.searchsorted(times, stop.clip(times[0], times[-1])), -1)
        counts.append(np.cumsum(change))
    return times, counts
