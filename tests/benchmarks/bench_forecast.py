"""Errors of forecasts: measure a part of each workload, forecast it, run it six times, compare.

    python -m tests.benchmarks.bench_forecast [--workers 2] [--write]

Three forecasts of each case are judged: after a measurement alone, after one run, and after five. The first two are
compared with the median time of the runs, the third with the time of the sixth. Rounds go through all cases, so that
what others do on the machine meanwhile meets all of them; its load is noted. A small case is not measured.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy as np

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
_ROUNDS = 6
_WHEN = ("a measurement", "one run", "five runs")


class Judged(NamedTuple):
    """One case: its forecasts by what they rest on, and what each round took."""

    name: str
    given: dict[str, Any]
    forecasts: dict[str, Forecast]
    seconds: tuple[float, ...]

    @property
    def words(self) -> str:
        return "  ".join((self.name, ", ".join(f"{key}={value}" for key, value in self.given.items() if key != "path")))

    def actual(self, when: str) -> float:
        """Return the time that a forecast is compared with."""
        return self.seconds[-1] if when == "five runs" else statistics.median(self.seconds)


def main() -> None:
    """Print the tables, and keep them where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="keep the tables in results")
    arguments = parser.parse_args()
    lines = []
    for line in _measured(arguments.workers):
        print(line, flush=True)
        lines.append(line)
    if arguments.write:
        _write(lines)


def _measured(workers: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, dask.config.set({"workbench.data-folder": f"{folder}/data"}):
        os.environ["DASK_WORKBENCH__DATA_FOLDER"] = f"{folder}/data"
        np.save(f"{folder}/m.npy", np.random.default_rng(0).random((240_000, 100)))
        session = Session()
        spec = session.plan("cpu", n_workers=workers, threads_per_worker=1, memory="4GiB")
        session.start(spec, name="bench", force=True)
        try:
            session.wait("bench", timeout=120)
            # Workers that have never computed anything first load what everything needs.
            session.delete_run(_run(session, "tall_skinny_svd", {"size": "16MiB"}).id)
            yield f"{platform.machine()}, {spec.describe()}; load at the start {os.getloadavg()[0]:.1f}"
            yield from _tables(_judged(session, Path(folder)))
            yield f"\nload at the end {os.getloadavg()[0]:.1f}"
        finally:
            session.stop("bench")


def _judged(session: Session, folder: Path) -> list[Judged]:
    cases = [
        (name, given | ({"path": str(folder / given["path"])} if "path" in given else {})) for name, given in CASES
    ]
    for name, given in cases:
        if session.forecast(name, given, "bench").measure is not None:
            _ended(session, session.measure(name, given, "bench"))
    forecasts = {"a measurement": [session.forecast(name, given, "bench") for name, given in cases]}
    rounds = []
    for number in range(_ROUNDS):
        if number in (1, 5):
            forecasts[_WHEN[1 if number == 1 else 2]] = [session.forecast(*case, "bench") for case in cases]
        rounds.append([_run(session, name, given).seconds for name, given in cases])
    return [
        Judged(
            name, given, {when: told[place] for when, told in forecasts.items()}, tuple(each[place] for each in rounds)
        )
        for place, (name, given) in enumerate(cases)
    ]


def _tables(cases: Sequence[Judged]) -> Iterator[str]:
    for when in _WHEN:
        misses, within, claimed, unknown = [], 0, 0, 0
        yield f"\nafter {when}\n{'workload':56}{'forecast':>9}{'range':>18}{'actual':>9}{'miss':>7}"
        for each in cases:
            told, seconds = each.forecasts[when], each.actual(when)
            if told.seconds is None:
                unknown += 1
                yield f"{each.words:56}{'unknown':>9}{'':18}{seconds:9.2f}"
                continue
            low, high = told.seconds["low"], told.seconds["high"]
            middle = math.sqrt(low * high)
            misses.append(abs(middle / seconds - 1))
            claimed += not told.rough
            within += not told.rough and low <= seconds <= high
            span = f"{'~ ' if told.rough else ''}{low:.2f} – {high:.2f}"
            yield f"{each.words:56}{middle:9.2f}{span:>18}{seconds:9.2f}{100 * misses[-1]:6.0f} %"
        median = f"{100 * statistics.median(misses):.0f} %" if misses else "unknown"
        yield (
            f"median miss {median}, {within} of the {claimed} that say four in five within their range, "
            f"{len(misses) - claimed} orders of magnitude (~), {unknown} unknown"
        )


def _run(session: Session, name: str, given: dict[str, Any]) -> Any:
    return _ended(session, session.run(name, given, "bench"))


def _ended(session: Session, started: Any) -> Any:
    done = session.wait_run(started.id)
    assert done.seconds is not None, done.error
    return done


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
