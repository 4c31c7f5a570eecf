"""Overhead of a run: array_sum by hand and as a run, with the same parameters, on one cluster, in turn.

`python -m tests.benchmarks overhead`, or this file with `--repeats N`, `--side N` and `--generator NAME`. The run is
recorded and watched by a second feed, as the sidebar does. Seconds are from the first line of Dask code to the answer;
processor time is that of the scheduler, the workers and the client, and for a run also that of its start, its check
and its record. Both have the same parameters and must give the same answer.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, NamedTuple

import psutil

import workbench
from tests.feeds import Feed
from workbench.clusters import records
from workbench.session import Session
from workbench.workloads.array import array_sum
from workbench.workloads.registry import arguments

GOAL = 3.0


class Took(NamedTuple):
    """One computation: its seconds, those of all processors together, and what came out."""

    seconds: float
    processors: float
    answer: float


def by_hand(client: Any, parameters: dict[str, Any], host: psutil.Process) -> Took:
    """Compute it as one types it, without us."""
    before, began = _processors(host), time.perf_counter()
    x = array_sum(**arguments(parameters))
    answer = float(client.compute(x).result())
    seconds = time.perf_counter() - began
    return Took(seconds, _processors(host) - before, answer)


def through_us(name: str, parameters: dict[str, Any], host: psutil.Process) -> Took:
    """Compute the same as a run, and see that it was the same."""
    before = _processors(host)
    run = workbench.run("array_sum", name, **parameters)
    if run.seconds is None or run.result is None or run.check is None or not run.check.passed:
        raise SystemExit(f"The run {run.id} is {run.status}: {run.error}")
    assert run.resolved == parameters, f"run with {run.resolved}, by hand with {parameters}"
    return Took(run.seconds, _processors(host) - before, run.result["value"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--side", type=int, default=20_000)
    parser.add_argument("--generator", default="RandomState", help="as in the post, or another that array_sum has")
    chosen = parser.parse_args()
    given = {"shape": [chosen.side] * 2, "generator": chosen.generator}
    hand, ours = [], []
    with workbench.start("cpu") as cluster, workbench.connect(cluster.name) as client, Feed(client):
        record = records.read(cluster.name)
        parameters = Session().forecast("array_sum", given, record).parameters
        host = psutil.Process(record.pid)
        print(f"array_sum on {record.spec.describe()}, {chosen.repeats} interleaved repeats\n  both with {parameters}")
        for repeat in range(chosen.repeats + 1):
            pair = by_hand(client, parameters, host), through_us(cluster.name, parameters, host)
            assert pair[0].answer == pair[1].answer, f"different answers: {pair}"
            if repeat:
                hand.append(pair[0])
                ours.append(pair[1])
    report(hand, ours)


def report(hand: list[Took], ours: list[Took]) -> None:
    """Print medians of both, and of what a run adds to each pair."""
    print(f"  both answered {hand[0].answer!r}")
    for index, name, goal in ((0, "seconds", f"   goal: at most {GOAL:g} %"), (1, "processor seconds", "")):
        for who, took in (("by hand", hand), ("as a run, watched", ours)):
            values = [each[index] for each in took]
            told = f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"
            print(f"  {name:18} {who:18} {told}")
        added = [100 * (float(b[index]) / float(a[index]) - 1) for a, b in zip(hand, ours, strict=True)]
        spread = f"({min(added):+.1f} to {max(added):+.1f})"
        print(f"  {name:18} a run adds         {statistics.median(added):+.1f} % {spread} (pairs, median){goal}")


def _processors(host: psutil.Process) -> float:
    """Seconds of processor time of this process and of the cluster's host, with all whom they started."""
    # The host is one of those whom this process started, unless it was there before.
    found = {each.pid: each for root in (psutil.Process(), host) for each in (root, *root.children(recursive=True))}
    return sum(sum(each.cpu_times()[:4]) for each in found.values())


if __name__ == "__main__":
    main()
