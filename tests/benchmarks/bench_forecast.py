"""How far forecasts miss: calibrate, forecast each template of the catalogue, run it once, compare.

    python -m tests.benchmarks.bench_forecast [--workers 2] [--rounds 2]

All forecasts of a round are made before its runs. The first round has the calibration alone, the next ones have learned
from the runs before. The machine's load is noted beside each time: what others do meanwhile can't be forecast.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import dask
import numpy as np

from workbench.session import Session

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("array_sum", {"size": "512MiB"}),
    ("array_sum", {"size": "1GiB", "dtype": "float32"}),
    ("array_mean", {"size": "512MiB"}),
    ("transpose_sum", {"size": "512MiB"}),
    ("tall_skinny_svd", {"size": "256MiB"}),
    ("tall_skinny_svd", {"shape": "2000000,20"}),
    ("compressed_svd", {"size": "64MiB"}),
    ("compressed_svd", {"size": "256MiB", "dtype": "float64"}),
    ("svd_of_file", {"path": "m.npy"}),
    ("svd_of_file", {"path": "m.npy", "k": 10}),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, dask.config.set({"workbench.data-folder": f"{folder}/data"}):
        os.environ["DASK_WORKBENCH__DATA_FOLDER"] = f"{folder}/data"
        np.save(f"{folder}/m.npy", np.random.default_rng(0).random((240_000, 100)))
        session = Session()
        spec = session.plan("cpu", n_workers=arguments.workers, threads_per_worker=1, memory="4GiB")
        session.start(spec, name="bench", force=True)
        try:
            asyncio.run(session.wait("bench", timeout=120))
            measure(session, Path(folder), arguments.rounds)
        finally:
            asyncio.run(session.stop("bench"))


def measure(session: Session, folder: Path, rounds: int) -> None:
    """Calibrate, then forecast and run each case, in rounds."""
    run(session, "tall_skinny_svd", {"size": "16MiB"})
    session.delete_run(session.show("last").id)
    calibration = session.calibrate("bench")
    print(f"{calibration.describe()}; rounds of it {100 * calibration.spread:.0f} % apart\n")
    cases = [
        (name, given | ({"path": str(folder / given["path"])} if "path" in given else {})) for name, given in CASES
    ]
    for number in range(rounds):
        told = [session.forecast(name, given, "bench") for name, given in cases]
        misses, within = [], 0
        print(f"round {number + 1}\n{'workload':58}{'forecast':>9}{'range':>16}{'actual':>9}{'miss':>7}{'load':>6}")
        for (name, given), forecast in zip(cases, told, strict=True):
            assert forecast.seconds is not None
            low, high = forecast.seconds["low"], forecast.seconds["high"]
            middle, load, seconds = math.sqrt(low * high), os.getloadavg()[0], run(session, name, given)
            misses.append(abs(middle / seconds - 1))
            within += low <= seconds <= high
            words = ", ".join(f"{key}={value}" for key, value in given.items() if key != "path")
            print(
                f"{f'{name}  {words}':58}{middle:9.2f}{f'{low:.2f} – {high:.2f}':>16}{seconds:9.2f}"
                f"{100 * misses[-1]:6.0f} %{load:6.1f}",
                flush=True,
            )
        print(f"median miss {100 * statistics.median(misses):.0f} %, {within} of {len(cases)} within their range\n")


def run(session: Session, name: str, given: dict[str, Any]) -> float:
    """Seconds that a run took."""
    started = session.run(name, given, "bench")
    done = asyncio.run(session.wait_run(started.id))
    assert done.seconds is not None, done.error
    return done.seconds


if __name__ == "__main__":
    main()
