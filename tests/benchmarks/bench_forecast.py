"""How far forecasts miss: calibrate, forecast each template of the catalogue, run it, compare.

    python -m tests.benchmarks.bench_forecast [--workers 2] [--rounds 3] [--write]

Two forecasts are judged: the one that a calibration alone gives, by the median time of all rounds, and the one that has
learned from the first round, by the median time of those after it. Rounds go through all cases, so that what others do
on the machine meanwhile meets all of them; its load is noted.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import math
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy as np

from workbench.runs.forecasting.calibration import Calibration
from workbench.runs.forecasting.forecast import Forecast
from workbench.session import Session

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("array_sum", {"size": "512MiB"}),
    ("array_sum", {"size": "1GiB", "dtype": "float32"}),
    ("array_sum", {"size": "4GiB", "generator": "fast"}),
    ("array_sum", {"size": "512MiB", "generator": "RandomState"}),
    ("array_sum", {"size": "512MiB", "reduction": "mean"}),
    ("transpose_sum", {"size": "512MiB"}),
    ("tall_skinny_svd", {"size": "256MiB"}),
    ("tall_skinny_svd", {"shape": "2000000,20"}),
    ("tall_skinny_svd", {"shape": "2000000,20", "method": "dask"}),
    ("compressed_svd", {"size": "64MiB"}),
    ("compressed_svd", {"size": "256MiB", "dtype": "float64"}),
    ("compressed_svd", {"size": "64MiB", "method": "dask"}),
    ("svd_of_file", {"path": "m.npy"}),
    ("svd_of_file", {"path": "m.npy", "k": 10}),
    ("genotype_pca", {"n_variants": 100_000}),
)

_RESULTS = Path(__file__).parent / "results"


class Judged(NamedTuple):
    """One case: what was forecast from the calibration alone and after the first round, and what each round took."""

    name: str
    given: dict[str, Any]
    before: Forecast
    after: Forecast
    seconds: tuple[float, ...]

    @property
    def words(self) -> str:
        return "  ".join((self.name, ", ".join(f"{key}={value}" for key, value in self.given.items() if key != "path")))


def main() -> None:
    """Print the table, and keep it where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="keep the table in results")
    arguments = parser.parse_args()
    lines = []
    for line in _measured(arguments.workers, max(2, arguments.rounds)):
        print(line, flush=True)
        lines.append(line)
    if arguments.write:
        _write(lines)


def _measured(workers: int, rounds: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, dask.config.set({"workbench.data-folder": f"{folder}/data"}):
        os.environ["DASK_WORKBENCH__DATA_FOLDER"] = f"{folder}/data"
        np.save(f"{folder}/m.npy", np.random.default_rng(0).random((240_000, 100)))
        session = Session()
        spec = session.plan("cpu", n_workers=workers, threads_per_worker=1, memory="4GiB")
        session.start(spec, name="bench", force=True)
        try:
            asyncio.run(session.wait("bench", timeout=120))
            # Workers that have never computed anything first load what everything needs.
            session.delete_run(_run(session, "tall_skinny_svd", {"size": "16MiB"}).id)
            found = session.calibrate("bench")
            yield from _described(found)
            yield from _table(_judged(session, Path(folder), rounds))
        finally:
            asyncio.run(session.stop("bench"))


def _judged(session: Session, folder: Path, rounds: int) -> list[Judged]:
    cases = [
        (name, given | ({"path": str(folder / given["path"])} if "path" in given else {})) for name, given in CASES
    ]
    before = [session.forecast(name, given, "bench") for name, given in cases]
    first = [_seconds(session, name, given) for name, given in cases]
    after = [session.forecast(name, given, "bench") for name, given in cases]
    later = [[_seconds(session, name, given) for name, given in cases] for _ in range(1, rounds)]
    return [
        Judged(name, given, told, learned, times)
        for (name, given), told, learned, times in zip(
            cases, before, after, zip(first, *later, strict=True), strict=True
        )
    ]


def _described(found: Calibration) -> Iterator[str]:
    yield f"{found.describe()}; rounds of it {100 * found.spread:.0f} % apart"
    yield (
        f"a task {1000 * found.task_seconds:.2f} ms, a small computation {1000 * found.start_seconds:.0f} ms, "
        f"beside a run {1000 * found.beside_seconds:.0f} ms; load {os.getloadavg()[0]:.1f}"
    )


def _table(cases: Sequence[Judged]) -> Iterator[str]:
    for title, kind in (("from the calibration alone", "before"), ("after one run of each", "after")):
        misses, within = [], 0
        yield f"\n{title}\n{'workload':56}{'forecast':>9}{'range':>16}{'actual':>9}{'miss':>7}"
        for each in cases:
            told = each.before if kind == "before" else each.after
            seconds = statistics.median(each.seconds if kind == "before" else each.seconds[1:])
            assert told.seconds is not None
            low, high = told.seconds["low"], told.seconds["high"]
            middle = math.sqrt(low * high)
            misses.append(abs(middle / seconds - 1))
            within += low <= seconds <= high
            yield (
                f"{each.words:56}{middle:9.2f}{f'{low:.2f} – {high:.2f}':>16}{seconds:9.2f}{100 * misses[-1]:6.0f} %"
            )
        yield f"median miss {100 * statistics.median(misses):.0f} %, {within} of {len(misses)} within their range"
    yield f"\nload at the end {os.getloadavg()[0]:.1f}"


def _run(session: Session, name: str, given: dict[str, Any]) -> Any:
    started = session.run(name, given, "bench")
    done = asyncio.run(session.wait_run(started.id))
    assert done.seconds is not None, done.error
    return done


def _seconds(session: Session, name: str, given: dict[str, Any]) -> float:
    """Seconds that a run took."""
    seconds: float = _run(session, name, given).seconds
    return seconds


def _write(lines: Sequence[str]) -> None:
    """Add the table to the results of the day."""
    day = datetime.date.today().isoformat()
    path = _RESULTS / f"forecast-{day}.md"
    text = path.read_text() if path.exists() else f"# How far forecasts miss, {day}\n"
    now = datetime.datetime.now().strftime("%H:%M")
    path.write_text(f"{text}\n## At {now}\n\n```text\n{chr(10).join(lines)}\n```\n")
    print(f"\nAdded to {path}.")


if __name__ == "__main__":
    main()
