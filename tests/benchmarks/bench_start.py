"""From asking for a cluster of two processes to the first result: ours, and plain Dask in a script, in turn.

`python -m tests.benchmarks start`, or this file with `--repeats N`. Plain Dask: a fresh Python that imports Dask,
makes a LocalCluster and a Client and computes a small sum, from exec to its printed answer. Ours: what a click on
Start and one on Run do in a server that is up, from the request to the answer in the record, check included.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import subprocess
import sys
import time

from workbench.session import Session

_PARAMETERS = {"shape": [1000, 1000], "chunks": [500, 500], "generator": "RandomState"}
"""Those of the script."""

_SCRIPT = """
import dask.array as da
from dask.distributed import Client, LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    client = Client(cluster)
    x = da.random.RandomState(0).normal(10, 1, size=(1000, 1000), chunks=(500, 500))
    print((x + 1)[::2, ::2].sum().compute(), flush=True)
    import sys
    sys.stdin.readline()
    client.close()
    cluster.close()
"""


def plain() -> tuple[float, float]:
    """Seconds from exec to the answer of a plain script, and the answer."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        answer = float(process.stdout.readline())
        seconds = time.perf_counter() - began
        process.communicate(b"\n")
    return seconds, answer


async def ours(session: Session, *, answer: float) -> tuple[float, float]:
    """Seconds until the cluster was ready, and until the script's answer was in the record."""
    began = time.perf_counter()
    spec = session.plan("cpu", n_workers=2, threads_per_worker=1)
    name = session.start(spec).name
    await asyncio.to_thread(session.wait, name)
    ready = time.perf_counter() - began
    run = session.run("array_sum", _PARAMETERS, name)
    run = await asyncio.to_thread(session.wait_run, run.id)
    seconds = time.perf_counter() - began
    await asyncio.to_thread(session.stop, name)
    if run.status != "done":
        raise SystemExit(f"The run {run.id} is {run.status}: {run.error}")
    assert run.result is not None
    assert math.isclose(run.result["value"], answer, rel_tol=1e-12), f"{run.result}, the script says {answer}"
    return ready, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    session = Session()
    kinds = ("plain script, first result", "ready", "first result")
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for repeat in range(chosen.repeats + 1):
        alone, answer = plain()
        measured = (alone, *asyncio.run(ours(session, answer=answer)))
        for kind, seconds in zip(kinds, measured, strict=True):
            if repeat:
                times[kind].append(seconds)
    print(f"array_sum with {_PARAMETERS}, which answered {answer!r} each time")
    print(f"two processes, {chosen.repeats} interleaved repeats, median (least to most)")
    for kind, values in times.items():
        print(f"  {kind:28} {statistics.median(values):5.2f} s ({min(values):.2f} to {max(values):.2f})")
    pairs = zip(times[kinds[0]], times[kinds[2]], strict=True)
    print(f"  to plain                     {statistics.median(b / a for a, b in pairs):5.2f} (pairs, median)")
    print("goal: at most 1, then towards a third")


if __name__ == "__main__":
    main()
