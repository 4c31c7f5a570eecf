"""The steps of first-minutes.sh: each is a process with a limit of its own, writes one JSON file and fills some rows.

Only the standard library is imported here until a step runs, so that a host on which nothing can be imported still
says what is missing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Report = dict[str, Any]
"""Report of a step: `rows` for the table, device, versions, date, and other data that explain a figure."""

SIDE = 500_000
"""Rows and columns of the 2 TB array in "GPU Dask Arrays, first steps"."""
FEWER = 5
"""Factor by which a rehearsal has fewer blocks, since each costs a task."""
AS_POSTED = 60.0
"""Seconds that the 2 TB sum as posted may take; beyond, its time is extrapolated from the finished share."""
CLUSTER = "smoke"
"""Name of the cluster that `device.smoke` starts and all steps share."""
SHOWN = 40
"""Rows of the final table at most."""


# --- steps


def install(report: Report) -> None:
    """Compare what is installed with what the packages require, and import what everything else rests on."""
    from packaging.requirements import Requirement

    problems = []
    names = [each.name for each in importlib.metadata.distributions(path=[report["site"]])]
    for name in names:
        for text in importlib.metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.name == "bokeh" or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
                continue
            try:
                version = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                # Our own wheel requires what Jupyter and files need, too.
                if name != "dask-workbench":
                    problems.append(f"{name} requires {requirement}, which isn't installed")
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                problems.append(f"{name} requires {requirement}, and {version} is installed")
    report |= {"installed": sorted(names), "problems": problems}
    check = [sys.executable, "-c", "import cupy, distributed.protocol.cupy, rmm, dask_cuda, workbench.session"]
    done = subprocess.run(check, capture_output=True, text=True)
    if done.returncode:
        problems.append(done.stderr.strip().splitlines()[-1])
    report["rows"] = [_row("packages", f"{len(names)} wheels", check="; ".join(problems) or "complete")]
    if done.returncode:
        raise RuntimeError(problems[-1])


def smoke(report: Report) -> None:
    """Serialize a block, spill one and read it back, and sum an array on the profile "GPU"."""
    from tests.gpu import device

    began = time.perf_counter()
    device.smoke(report)
    report["rows"] = [_row("smoke: serialize, spill, sum 4000²", "", time.perf_counter() - began, check="passed")]


def sum_fused(report: Report) -> None:
    """Sum the 2 TB of normal numbers without storing any."""
    side, chunks = SIDE // report["fewer"], 50_000 // report["shorter"]
    run = _run(report, "array_sum", {"shape": [side, side], "chunks": [chunks] * 2, "generator": "fused"}, 30)
    report["rows"] = [_of_sum("2 TB sum, generator=fused", run, side, text="97 (V100), 19 (8 × V100)")]


def sum_as_posted(report: Report) -> None:
    """Sum the 2 TB as the post wrote it, for a minute, and extrapolate."""
    side, chunks = SIDE // report["fewer"], 10_000 // report["shorter"]
    run = _run(
        report, "array_sum", {"shape": [side, side], "chunks": [chunks] * 2, "generator": "RandomState"}, AS_POSTED
    )
    report["rows"] = [_of_sum("2 TB sum as posted", run, side, text="97 (V100), 19 (8 × V100)")]


def tall(report: Report) -> None:
    """Decompose a tall and skinny matrix that is held on the card."""
    rows, columns = 1_000_000 // report["fewer"], 1_000 // report["shorter"]
    given = {"shape": [rows, columns], "persist": True}
    # Dask's SVD of a held array in one block loses it (dask 2026.7.1): blocks are those of the post.
    as_posted = {"method": "dask", "chunks": [10_000 // report["shorter"], columns]}
    for name, more in (("", {}), (", Dask's method", as_posted)):
        for _ in range(1 if report["simulated"] or more else 2):
            run = _run(report, "tall_skinny_svd", {**given, **more}, 15)
        flops = 2 * rows * columns**2
        what = f"tall-skinny SVD{name}"
        report["rows"].append(_row(what, f"{rows} × {columns}", run, flops, "flops_64", check=_check(run)))


def compressed(report: Report) -> None:
    """Decompose 20 GB of uint8 that are held on the card, by our method and as the post did."""
    rows, columns = 1_000_000 // report["fewer"], 20_000 // report["shorter"]
    given = {"shape": [rows, columns], "persist": True, "k": 10}
    as_posted = {
        "method": "dask",
        "n_power_iter": 0,
        "tolerance": 1.0,
        "chunks": [20_000 // report["shorter"], 5_000 // report["shorter"]],
    }
    for name, more in (("", {}), (" as posted (no bound met)", as_posted)):
        run = _run(report, "compressed_svd", {**given, **more}, 22)
        passes = _passes(run)
        amount = rows * columns * passes if passes else None
        size = f"{rows} × {columns} bytes, k = 10" + (f", {passes} passes" if passes else "")
        row = _row(f"compressed SVD{name}", size, run, amount, "bytes", text="150 (laptop)", check=_check(run))
        report["rows"].append(row)


def genotypes(report: Report) -> None:
    """Compute components of genotypes in two bits each."""
    variants, samples = 1_000_000 // report["fewer"], 20_000 // report["shorter"]
    run = _run(report, "genotype_pca", {"n_variants": variants, "n_samples": samples}, 40)
    passes = _passes(run)
    amount = variants * math.ceil(samples / 4) * passes if passes else None
    size = f"{variants} × {samples}, 2 bits" + (f", {passes} passes" if passes else "")
    text = "15 (200 GB of bytes, 16 × V100)"
    report["rows"] = [_row("genotype PCA", size, run, amount, "bytes", text=text, check=_check(run))]


def rates(report: Report) -> None:
    """Measure what the card reaches: memory, products, random numbers."""
    from tests.benchmarks import bench_gpu
    from tests.gpu import device

    shorter = report["shorter"]
    report["limits"] = limits = bench_gpu.limits(shorter)
    report["part"], report["sides_divided_by"] = 1.0, shorter
    device.rates(report)
    report["rows"] += [
        _row("memory, copy", "", note=f"{limits['bytes_per_second'] / 1e9:.4g} GB/s"),
        _row("product, float64", "", note=f"{limits['float64_per_second'] / 1e9:.4g} GFLOP/s"),
    ]
    for name, measured in report.items():
        if isinstance(measured, dict) and "rate" in measured:
            found = measured["rate"]
            note = measured.get("error") or f"{found / 1e9:.4g} G/s"
            report["rows"].append(_row(name, "", note=note))


def tests(report: Report) -> None:
    """Run the tests that need a GPU until the first failure."""
    # The stand-in has no clocks, pools or sensors: of these tests, the rehearsal runs that of packing.
    chosen = ("packed_where",) if report["simulated"] else ("not ucx",)
    xml = Path(report["into"]) / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-x", "-q", "tests/gpu", "-p", "no:cacheprovider"]
    command += ["--junitxml", str(xml), "-k", *chosen]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    summary = done.stdout.strip().splitlines()[-1].strip("= ") if done.stdout.strip() else "no output"
    report["rows"] = [_row("pytest -m gpu -x", "", check=summary)]
    if done.returncode:
        raise RuntimeError(summary)


STEPS: dict[str, tuple[float, Callable[[Report], None]]] = {
    "install": (40, install),
    "smoke": (40, smoke),
    "sum_fused": (40, sum_fused),
    "sum_as_posted": (AS_POSTED + 20, sum_as_posted),
    "tall": (45, tall),
    "compressed": (60, compressed),
    "genotypes": (60, genotypes),
    "rates": (30, rates),
    "tests": (math.inf, tests),
}
"""Seconds after which a step is ended, and the step, by name; the most valuable first."""


# --- what they share


def _run(report: Report, workload: str, parameters: Report, limit: float) -> Report:
    """Run a workload on the cluster that all steps share; cancel it after its time limit, and report its progress.

    Returns seconds (None where the run failed), share (of the tasks that finished), result and check.
    """
    from workbench.runs import store
    from workbench.runs.submit import cancel, finish, submit

    run = finish(submit(workload, parameters, _cluster(), force=True).id, timeout=limit)
    found: Report = {"workload": workload, "parameters": parameters, "share": 1.0}
    if run.active:
        took = time.time() - (run.started or run.created)
        share = run.progress.done / run.progress.total if run.progress.total else 0.0
        cancel(run.id)
        finish(run.id, timeout=10)
        found |= {"seconds": took / share if share else None, "share": share, "error": f"stopped after {took:.0f} s"}
    elif run.status != "done":
        print((store.folder(run.id) / "log.txt").read_text()[-5000:])
        found |= {"seconds": None, "error": run.error}
    else:
        found |= {"seconds": run.seconds, "result": run.result, "check": run.check and run.check.model_dump()}
        found |= {"on_gpu": run.on_gpu and run.on_gpu.sentence, "joules": run.energy and run.energy.joules}
    report["runs"].append(found)
    return found


def _cluster() -> Any:
    """Return the record of the shared cluster, started by the first step and after one that was ended."""

    from workbench.session import Session

    session = Session()
    for record in session.clusters():
        if record.name == CLUSTER and record.status == "ready":
            return record
    session.start(session.plan("gpu"), name=CLUSTER, force=True)
    return session.wait(CLUSTER, timeout=40)


def _passes(run: Report) -> int | None:
    certificate = (run.get("result") or {}).get("certificate") or {}
    return certificate.get("passes")


def _check(run: Report) -> str:
    if run["seconds"] is None:
        return f"FAILED: {run['error']}"
    if run["share"] < 1:
        return f"extrapolated from {100 * run['share']:.0f} %"
    return "passed" if run["check"] and run["check"]["passed"] else f"FAILED: {(run['check'] or {}).get('what')}"


def _of_sum(what: str, run: Report, side: int, text: str) -> Report:
    return _row(what, f"{side} × {side} float64", run, side**2, "normals", text=text, check=_check(run))


def _row(
    what: str,
    size: str,
    took: Report | float | None = None,
    amount: float | None = None,
    unit: str | None = None,
    *,
    text: str = "",
    check: str = "",
    note: str = "",
) -> Report:
    """Return one row of the table; `amount` of `unit` (bytes, flops_64, normals) took the seconds."""
    seconds = took["seconds"] if isinstance(took, dict) else took
    rate = amount / seconds if amount and seconds else None
    return {
        "what": what,
        "size": size,
        "seconds": seconds,
        "rate": rate,
        "unit": unit,
        "text": text,
        "check": check,
        "note": note,
    }


def _step(name: str, into: Path, site: str) -> None:
    """Run one step in this process and write its report, whatever happens."""
    report: Report = {"step": name, "date": time.strftime("%Y-%m-%d"), "rows": [], "runs": [], "into": str(into)}
    report |= {"site": site, "simulated": False}
    began = time.perf_counter()
    try:
        try:
            from tests.benchmarks import bench_gpu
            from workbench.hardware import inventory

            there = inventory()
            devices = [gpu.name for gpu in there.visible_gpus()]
            simulated = bench_gpu.simulated(devices)
            report |= {"devices": devices, "driver": there.cuda.driver_version, "versions": bench_gpu.versions()}
            report |= {"simulated": simulated, "shorter": bench_gpu.SIMULATED_SIDES if simulated else 1}
            report["fewer"] = FEWER * report["shorter"] if simulated else 1
            if simulated:
                report["note"] = f"{bench_gpu.SIMULATED} Rows are {FEWER} times fewer than that, sides of the sums too."
        except ImportError as err:
            if name != "install":
                raise
            report["note"] = f"{type(err).__name__}: {err}"
        STEPS[name][1](report)
        failed = [row["check"] for row in report["rows"] if row["check"].startswith("FAILED")]
        if failed:
            raise RuntimeError(failed[0])
    except Exception as err:
        report["error"] = f"{type(err).__name__}: {err}"
        raise
    finally:
        report["seconds"] = time.perf_counter() - began
        if report.get("simulated"):
            for row in report["rows"]:
                row |= {"what": f"SIMULATED {row['what']}", "text": ""}
        path = into / f"{name}.json"
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


# --- one after another


def _all(names: list[str], into: Path, work: Path, began: float, limit: float) -> bool:
    """Run steps, each in a process of its own with its limit; return whether all of them succeeded."""
    reports = work / "reports"
    reports.mkdir(exist_ok=True)
    succeeded = True
    for name in names:
        left = began + limit - time.time()
        if left < 5:
            print(f"{name}: skipped, the {limit:g} s are used up", flush=True)
            succeeded = False
            continue
        started, allowed = time.monotonic(), min(STEPS[name][0], left)
        command = [sys.executable, "-m", "tests.gpu.minutes", "--step", name, "--into", str(reports)]
        ended = _within(allowed, [*command, "--work", str(work)], reports / f"{name}.log")
        took = time.monotonic() - started
        if ended:
            succeeded = False
            # A kernel that runs on can't be stopped otherwise.
            _within(20, [sys.executable, "-m", "workbench", "down", "--all"], work / "down.log")
        print(f"{name}: {ended or 'done'}, {took:.0f} s", flush=True)
        _write(reports, into)
    _within(20, [sys.executable, "-m", "workbench", "down", "--all"], work / "down.log")
    return succeeded


def _within(seconds: float, command: list[str], log: Path) -> str | None:
    """Run a command with all its children for so long at most; return how it failed, None where it succeeded."""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"stopped after {seconds:.0f} s"
    return f"failed ({code}), see {log.name}" if code else None


def _write(reports: Path, into: Path) -> None:
    """Write the table and pack all reports: a transfer from the host takes few files."""
    (into / "table.md").write_text("\n".join(table(reports)) + "\n", encoding="utf-8")
    partial = into / ".first-minutes.tar.gz"
    with tarfile.open(partial, "w:gz") as archive:
        for path in sorted(reports.iterdir()):
            archive.add(path, arcname=f"first-minutes/{path.name}")
    partial.replace(into / "first-minutes.tar.gz")


def table(reports: Path) -> Iterator[str]:
    """Yield the lines of the table of all steps that have reported."""
    told = [
        json.loads(path.read_text(encoding="utf-8")) for name in STEPS if (path := reports / f"{name}.json").exists()
    ]
    last = next((each for each in reversed(told) if "devices" in each), {})
    limits = _limits(next((each for each in told if each["step"] == "rates"), {}))
    yield f"{', '.join(last.get('devices', ['no device']))}, driver {last.get('driver')}, {last.get('date')}"
    yield ""
    yield "| step | size | seconds | rate | share of the card | the text's seconds | check |"
    yield "|---|---|---|---|---|---|---|"
    rows = [row for each in told for row in each["rows"]]
    rows += [
        _row(each["step"], "", check=f"FAILED: {each['error'][:200]}")
        for each in told
        if "error" in each and not any(row["check"].startswith("FAILED") for row in each["rows"])
    ]
    for row in rows[:SHOWN]:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.3g}"
        rate = row["note"] or ("" if row["rate"] is None else f"{row['rate'] / 1e9:.4g} {_UNITS[row['unit']]}")
        most = limits.get(row["unit"])
        # A simulated device has no limits.
        share = f"{100 * row['rate'] / most:.0f} %" if most and row["rate"] and not last.get("simulated") else ""
        cells = (row["what"], row["size"], seconds, rate, share, row["text"], row["check"])
        yield "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


_UNITS = {"bytes": "GB/s", "flops_64": "GFLOP/s", "normals": "G numbers/s"}


def _limits(rates_report: Report) -> dict[str | None, float]:
    """Return what the card reached in the step `rates`, by unit."""
    limits = rates_report.get("limits") or {}
    fused = (rates_report.get("normal numbers a second, fused and summed") or {}).get("rate")
    found = {
        "bytes": limits.get("bytes_per_second"),
        "flops_64": limits.get("float64_per_second"),
        "normals": fused,
    }
    return {unit: value for unit, value in found.items() if value}


def main() -> None:
    """Run all steps or those named; the exit code is 1 where one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="STEP", help=f"{', '.join(STEPS)} (all)")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--began", type=float, default=time.time())
    parser.add_argument("--limit", type=float, default=480.0)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step:
        _step(chosen.step, chosen.into, str(chosen.work / "site"))
        return
    unknown = [name for name in chosen.names if name not in STEPS]
    if unknown:
        parser.error(f"unknown step {unknown[0]!r}: choose among {', '.join(STEPS)}")
    names = [name for name in STEPS if not chosen.names or name in chosen.names or name == "install"]
    succeeded = _all(names, chosen.into, chosen.work, chosen.began, chosen.limit)
    print((chosen.into / "table.md").read_text(encoding="utf-8"))
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
