"""Processes or threads: the same array work on every even split of this machine's cores, side by side.

`python -m tests.benchmarks split`, or this file with `--repeats N`, `--scale F` (side lengths) and `--write` (keep the
table in results/split-<date>.md). All splits are up at once and take turns, so that what else the machine does falls
on each of them alike.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import psutil
from distributed import Client, LocalCluster
from distributed.security import Security

from workbench.hardware import inventory

Split = tuple[int, int]
Times = dict[str, dict[Split, list[float]]]


def strided_sum(scale: float) -> Any:
    """(x + 1)[::2, ::2].sum() on normal(10, 1), 1.6 GB at scale 1."""
    side = int(14_000 * scale)
    return (da.random.default_rng(0).normal(10, 1, size=(side, side), chunks=2_000) + 1)[::2, ::2].sum()


def transposed_sum(scale: float) -> Any:
    """(x + x.T).sum(), 0.8 GB at scale 1: every block off the diagonal meets its mirror image."""
    side = int(10_000 * scale)
    x = da.random.default_rng(0).random((side, side), chunks=1_000)
    return (x + x.T).sum()


def tall_skinny_svd(scale: float) -> Any:
    """Singular values of (400 000, 100), 0.3 GB at scale 1."""
    _, s, _ = da.linalg.svd(da.random.default_rng(0).random((int(400_000 * scale), 100), chunks=(20_000, 100)))
    return s


WORK: dict[str, Callable[[float], Any]] = {
    "(x + 1)[::2, ::2].sum()": strided_sum,
    "(x + x.T).sum()": transposed_sum,
    "svd, tall and skinny": tall_skinny_svd,
}


def splits(cores: int) -> list[Split]:
    """Every (processes, threads) whose product is `cores`."""
    return [(n, cores // n) for n in range(1, cores + 1) if cores % n == 0]


def measure(chosen: list[Split], repeats: int, scale: float) -> Times:
    """Seconds of each work on each split; one warm-up each, then turns in alternating order."""
    times: Times = {name: {split: [] for split in chosen} for name in WORK}
    answers: dict[str, Any] = {}
    with ExitStack() as stack:
        clients = {split: _client(stack, split) for split in chosen}
        for repeat in range(repeats + 1):
            for name, work in WORK.items():
                for split in chosen if repeat % 2 else chosen[::-1]:
                    start = time.perf_counter()
                    answer = clients[split].compute(work(scale), optimize_graph=True).result()
                    seconds = time.perf_counter() - start
                    # Rounding differs with the order in which parts are added.
                    np.testing.assert_allclose(answer, answers.setdefault(name, answer), rtol=1e-10, err_msg=name)
                    if repeat:
                        times[name][split].append(seconds)
    return times


def _client(stack: ExitStack, split: Split) -> Client:
    security = Security.temporary()
    cluster = stack.enter_context(
        LocalCluster(
            n_workers=split[0],
            threads_per_worker=split[1],
            memory_limit=0,
            protocol="tls",
            security=security,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        )
    )
    return stack.enter_context(Client(cluster))


def table(times: Times) -> str:
    """Markdown: a row for each work, median and range of seconds for each split."""
    chosen = list(next(iter(times.values())))
    lines = [
        "| work | " + " | ".join(f"{n} × {threads}" for n, threads in chosen) + " |",
        "|---|" + "---|" * len(chosen),
    ]
    for name, by_split in times.items():
        cells = [f"{statistics.median(s):.2f} s ({min(s):.2f} to {max(s):.2f})" for s in by_split.values()]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def heading(repeats: int, scale: float, load: tuple[float, float]) -> str:
    cpu = inventory().cpu
    return (
        f"Processes × threads per process, seconds: median (least to most) of {repeats} interleaved repeats at scale "
        f"{scale:g}.\n{cpu.model}, {cpu.usable} usable cores, Python {sys.version.split()[0]}, "
        f"dask {dask.__version__}, distributed {distributed.__version__}, TLS, one BLAS thread per Dask thread.\n"
        f"Load average of the machine before: {load[0]:.1f}; other processes took {load[1]:.0f} % of it meanwhile."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    before, load = psutil.cpu_times(), os.getloadavg()[0]
    start, ours = time.monotonic(), _own_seconds()
    times = measure(splits(inventory().cpu.usable), chosen.repeats, chosen.scale)
    others = _busy(psutil.cpu_times()) - _busy(before) - (_own_seconds() - ours)
    share = 100 * max(0.0, others) / ((time.monotonic() - start) * (os.cpu_count() or 1))
    text = f"{heading(chosen.repeats, chosen.scale, (load, share))}\n\n{table(times)}\n"
    print(text)
    if chosen.write:
        path = Path(__file__).parent / "results" / f"split-{datetime.date.today():%Y-%m-%d}.md"
        path.write_text(f"# Processes or threads\n\n{text}")
        print(f"Written to {path}.")


def _busy(times: Any) -> float:
    return float(times.user + times.system)


def _own_seconds() -> float:
    """CPU seconds of this process and of its children that have ended: the workers, once their clusters are closed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
