"""What running through us costs: array_sum at 20 000² by hand and through a run, on the same cluster, in turn.

`python -m tests.benchmarks overhead`, or this file with `--repeats N` and `--side N`. The run is recorded and watched
by a second feed, as the sidebar does. Seconds are from the first line of Dask code to the answer.
"""

from __future__ import annotations

import argparse
import statistics
import time

import dask.array as da

import workbench
from workbench.monitor.feed import Feed
from workbench.session import Session


def by_hand(client: object, side: int, chunks: tuple[int, ...]) -> float:
    """Seconds of the post's code, typed by hand."""
    began = time.perf_counter()
    x = da.random.RandomState(0).normal(10, 1, size=(side, side), chunks=chunks)
    (x + 1)[::2, ::2].sum().compute(scheduler=client)
    return time.perf_counter() - began


def through_us(session: Session, name: str, side: int, chunks: tuple[int, ...]) -> tuple[float, float]:
    """Seconds of the same as a run: of its computation, and from asking for it to the end of the record."""
    began = time.perf_counter()
    run = workbench.run("array_sum", name, shape=[side, side], chunks=list(chunks))
    if run.seconds is None or run.check is None or not run.check.passed:
        raise SystemExit(f"The run {run.id} is {run.status}: {run.error}")
    return run.seconds, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--side", type=int, default=20_000)
    chosen = parser.parse_args()
    session = Session()
    chunks = tuple(session.needs("array_sum", {"shape": [chosen.side] * 2}).parameters["chunks"])
    hand, ours, whole = [], [], []
    with workbench.start("cpu") as cluster, workbench.connect(cluster.name) as client, Feed(client):
        for repeat in range(chosen.repeats + 1):
            seconds = by_hand(client, chosen.side, chunks)
            computed, waited = through_us(session, cluster.name, chosen.side, chunks)
            if repeat:
                hand.append(seconds)
                ours.append(computed)
                whole.append(waited)
    ratios = [b / a for a, b in zip(hand, ours, strict=True)]
    print(
        f"array_sum at {chosen.side}², blocks of {chunks}, {chosen.repeats} interleaved repeats, median (least to most)"
    )
    for name, values in (("by hand", hand), ("as a run, watched", ours), ("the same, from asking to record", whole)):
        print(f"  {name:32} {statistics.median(values):6.2f} s ({min(values):.2f} to {max(values):.2f})")
    overhead = 100 * (statistics.median(ratios) - 1)
    print(f"  overhead of the computation      {overhead:+.1f} % (pairs, median)   goal: at most 3 %")


if __name__ == "__main__":
    main()
