"""Cost of watching for the scheduler: 25 000 empty tasks, watched and not, in turn on one cluster.

`python -m tests.benchmarks watch`, or this file with `--repeats N` and `--tasks N`. Scheduler, worker, client and
watcher are processes of their own. The scheduler's CPU time is what watching costs it; the task rate also suffers
where the watcher takes a core that the others need.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

from distributed import Client, wait
from distributed.deploy import SubprocessCluster

from tests.feeds import Feed
from workbench.monitor.events import KINDS


def nothing(_: int) -> None:
    """Take no time."""


def watch(address: str, orders: Connection) -> None:
    """Watch the cluster from one order to the next, and tell how many tasks were seen."""
    with Client(address) as client:
        while orders.recv():
            seen = 0
            with Feed(client) as feed:
                orders.send(None)
                orders.recv()
                time.sleep(0.5)
                for batch in feed.take():
                    seen += int((batch.tasks.kind == KINDS.index("compute")).sum())
            orders.send(seen)


def scheduler_cpu(client: Client) -> float:
    """CPU seconds that the scheduler's process has used."""
    return float(client.run_on_scheduler(time.process_time))


def once(client: Client, n_tasks: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of the scheduler, from sending empty tasks until all are done."""
    cpu, began = scheduler_cpu(client), time.perf_counter()
    futures = client.map(nothing, range(n_tasks), pure=False)
    wait(futures)
    seconds, used = time.perf_counter() - began, scheduler_cpu(client) - cpu
    del futures
    while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
        time.sleep(0.1)
    return seconds, used


def watched(client: Client, n_tasks: int, orders: Connection) -> tuple[float, float]:
    """Do the same while another process watches, which must have seen every task."""
    orders.send(True)
    orders.recv()
    measured = once(client, n_tasks)
    orders.send(None)
    seen = orders.recv()
    if seen != n_tasks:
        raise SystemExit(f"The watcher saw {seen} of {n_tasks} tasks.")
    return measured


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=25_000)
    chosen = parser.parse_args()
    alone, seen = [], []
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    # All tasks are handed to the worker at once. Else each waits for the one before, and the scheduler for both.
    os.environ["DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION"] = "inf"
    with (
        SubprocessCluster(n_workers=1, threads_per_worker=1) as cluster,
        Client(cluster) as client,
    ):
        watcher = multiprocessing.get_context("spawn").Process(
            target=watch, args=(cluster.scheduler_address, theirs), daemon=True
        )
        watcher.start()
        once(client, chosen.tasks // 10)
        for repeat in range(chosen.repeats):
            # Now the one first, now the other: what drifts hits both.
            for is_watched in (True, False) if repeat % 2 else (False, True):
                if is_watched:
                    seen.append(watched(client, chosen.tasks, ours))
                else:
                    alone.append(once(client, chosen.tasks))
        ours.send(False)
        watcher.join()
    report(chosen.tasks, alone, seen)


def report(n_tasks: int, alone: list[tuple[float, float]], seen: list[tuple[float, float]]) -> None:
    """Print medians of both, and of what watching adds to each pair."""
    print(f"{n_tasks} empty tasks, {len(alone)} interleaved repeats, median (least to most)")
    for name, runs in (("not watched", alone), ("watched", seen)):
        rates = [n_tasks / seconds for seconds, _ in runs]
        cpus = [1e6 * cpu / n_tasks for _, cpu in runs]
        print(
            f"  {name:12} {statistics.median(rates):8.0f} tasks/s ({min(rates):.0f} to {max(rates):.0f})"
            f"   scheduler {statistics.median(cpus):6.1f} µs CPU a task ({min(cpus):.1f} to {max(cpus):.1f})"
        )
    for name, index in (("seconds", 0), ("scheduler's CPU time", 1)):
        added = [100 * (after[index] / before[index] - 1) for before, after in zip(alone, seen, strict=True)]
        print(
            f"  watching adds {statistics.median(added):+5.1f} % to the {name} ({min(added):+.1f} to {max(added):+.1f})"
        )
    print("  goal: at most 2 % of the scheduler's task rate")


if __name__ == "__main__":
    main()
