"""SVD, PCA and sums: ours and the peers in turn, with time, peak memory and accuracy of each in one table.

`make bench-svd`, or `python -m tests.benchmarks.bench_svd` with `--quick` (a few seconds a case), `--rounds N`,
`--minutes N` (rounds after the first end when a case has had its share), `--threads N`, `--only WORD` (cases whose
name holds it), `--large` (400 000 × 5 000 genotypes too, which takes 45 minutes more), `--certificate` (that alone) and
`--write` (keep results/svd-<date>.md and .json; with --only or --certificate that part of them, measured anew).

`--only biobank` is a forecast of 488 000 samples × 6 100 000 variants from slices timed here, on terms that
svd/biobank.py states. `--only eofs` is `bench_eofs`: xeofs and SVD-ROM.

Each measurement is a process of its own: it brings the data to memory, or drops them from the page cache, runs the
method on a small piece as a warm-up, and then once in full, until u, s and vh are there; of genotypes only s and vh,
which the samples' scores are made of. BLAS has one thread for each of Dask's, and as many as Dask has for those that
use no Dask; Blosc has one. "packed" starts from two bits each, as its files hold them; "bytes", like the peers, from
counts of a byte each, and to pack them is part of the time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks import bench_eofs
from tests.benchmarks.svd import biobank, certificate, tables, targets
from tests.benchmarks.svd.cases import Case, cases
from tests.benchmarks.svd.measuring import Row, in_a_process

RESULTS = Path(__file__).parent / "results"


class Data:
    """A folder with the data of one case after the other, made when they differ."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made, self._turn = folder, "", 0

    def of(self, case: Case) -> Path:
        wanted = f"{case.make} {case.size}"
        place = self._folder / str(self._turn)
        if wanted != self._made:
            if place.exists():
                _remove(place)
            self._made, self._turn = wanted, self._turn + 1
            place = self._folder / str(self._turn)
            place.mkdir()
            case.make(place)
        return place


def _remove(place: Path) -> None:
    import shutil

    shutil.rmtree(place)


def measure(case: Case, folder: Path, rounds: int, seconds: float, threads: int, quick: bool) -> list[Row]:
    """Every method once a round, in alternating order, until the time is up."""
    missing = {name: method.missing() for name, method in case.methods.items()}
    runs: dict[str, list[Row]] = {name: [] for name, why in missing.items() if not why}
    began, longest = time.monotonic(), 0.0
    for turn in range(2 * rounds if case.doubled else rounds):
        start = time.monotonic()
        if turn and start + longest - began > seconds:
            break
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            method = case.methods[name]
            if not any("failed" in run for run in runs[name]):
                runs[name].append(in_a_process(case.name, name, method, folder, threads, quick))
        longest = time.monotonic() - start
    found = []
    for name, method in case.methods.items():
        row = {"failed": f"skipped: {missing[name]}"} if missing[name] else summary(runs[name])
        found.append({"case": case.name, "size": case.size, "method": name, "ours": method.ours} | row)
    return found


def summary(runs: list[Row]) -> Row:
    """Medians, spread, and the worst accuracy."""
    for run in runs:
        if "failed" in run:
            return {"failed": f"failed: {run['failed']}"}
    found: Row = {
        field: statistics.median(run[field] for run in runs) for field in ("seconds", "cpu", "peak", "process")
    }
    seconds = [run["seconds"] for run in runs]
    found |= {"rounds": len(runs), "least": min(seconds), "most": max(seconds), "all": seconds}
    accuracy = ("error", "orthogonality", "sine", "bound", "passes", "deviation")
    return found | {field: max(run[field] for run in runs) for field in accuracy if field in runs[0]}


def main() -> None:
    given = _arguments()
    if given.only == "eofs":
        small = ["--times=400", "--grid", "31", "60", "--rounds=1"] if given.quick else [f"--rounds={given.rounds}"]
        bench_eofs.main([*small, f"--threads={given.threads}"])
        return
    rows: list[Row] = []
    took: dict[str, str] = {}
    told = _circumstances(given)
    print("\n".join(_head(told)), flush=True)
    chosen = [] if given.certificate else [c for c in cases(given.quick, given.large) if given.only in c.name]
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder))
        for case in chosen:
            began = time.monotonic()
            place = data.of(case)
            made = time.monotonic() - began
            seconds = given.minutes * 60 * case.share
            rows += measure(case, place, given.rounds, seconds, given.threads, given.quick)
            took[case.name] = f"{time.monotonic() - began:.0f} s, {made:.0f} of them to make the data"
            print(_part(case.name, rows, took), "\n", flush=True)
    if given.only == "biobank":
        print(biobank.forecast(given.threads, given.quick), flush=True)
    counted = None
    if given.certificate or not given.only:
        counted = certificate.intervals(4 if given.quick else certificate.SEEDS, given.threads)
        print(certificate.sentence(counted), "\n", flush=True)
    if rows:
        said = "What must be reached is said of the full sizes." if given.quick else targets.table(rows, counted)
        print(said, flush=True)
    if given.write:
        numbers = {"circumstances": told, "took": took, "rows": rows, "certificate": counted}
        _write(numbers, part=bool(given.only or given.certificate))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--large", "--write", "--certificate"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="")
    return parser.parse_args()


def _head(circumstances: str) -> list[str]:
    return [f"# SVD, PCA and sums on {datetime.date.today()}", "", circumstances, "", tables.NOTE, ""]


def _part(case: str, rows: list[Row], took: dict[str, str]) -> str:
    """Table of one case."""
    its = [row for row in rows if row["case"] == case]
    return tables.table(f"{case}, {its[0]['size']} ({took[case]})", its)


def _write(numbers: dict[str, Any], *, part: bool) -> None:
    stem = RESULTS / f"svd-{datetime.date.today()}"
    if part and stem.with_suffix(".json").exists():
        numbers = _renewed(json.loads(stem.with_suffix(".json").read_text()), numbers)
    rows, counted = numbers["rows"], numbers["certificate"]
    shown = _head(numbers["circumstances"])
    for case in dict.fromkeys(row["case"] for row in rows):
        shown += [_part(case, rows, numbers["took"]), ""]
    if counted is not None:
        shown += [certificate.sentence(counted), ""]
    shown.append(targets.table(rows, counted))
    stem.with_suffix(".md").write_text("\n".join(shown) + "\n")
    stem.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")


def _renewed(before: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """Return this day's results, with the newly measured cases in place of the earlier ones."""
    rows, took = list(before["rows"]), {case: f"{each}, anew" for case, each in numbers["took"].items()}
    for case in took:
        at = next((place for place, row in enumerate(rows) if row["case"] == case), len(rows))
        rows = [row for row in rows if row["case"] != case]
        rows[at:at] = [row for row in numbers["rows"] if row["case"] == case]
    counted = numbers["certificate"] or before["certificate"]
    return before | {"rows": rows, "took": before["took"] | took, "certificate": counted}


def _circumstances(given: argparse.Namespace) -> str:
    import dask
    import numpy
    import scipy
    import sklearn

    versions = ", ".join(f"{module.__name__} {module.__version__}" for module in (numpy, dask, scipy, sklearn))
    load = os.getloadavg()[0]
    return (
        f"At most {given.rounds} rounds in turn, of tall matrices {2 * given.rounds}, {given.threads} threads of "
        f"{os.cpu_count()} processors, load {load:.1f} at the start, Python {sys.version.split()[0]}, {versions}."
    )


if __name__ == "__main__":
    main()
