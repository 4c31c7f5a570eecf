"""Measuring on a GPU: steps that fail, the table, and all of it on a simulated GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import bench_gpu
from tests.gpu import bundle, minutes
from tests.simulated import GIB, SimulatedNvml, computing
from tests.standin import on_host
from workbench.clusters import cuda

SCRIPT = Path(__file__).parent / "gpu" / "first-minutes.sh"


def report(step: str, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"step": step, "date": "2026-11-26", "devices": ["H200"], "driver": "580", "rows": list(rows), **more}


def written(folder: Path, *reports: dict[str, Any]) -> list[str]:
    for each in reports:
        (folder / f"{each['step']}.json").write_text(json.dumps(each))
    return list(minutes.table(folder))


def test_the_table_divides_what_was_reached_by_what_the_card_reaches(tmp_path: Path) -> None:
    run = {"seconds": 0.5, "share": 1.0, "check": {"passed": True}}
    row = minutes._row("tall", "10 × 2", run, 2e12, "flops_64", check=minutes._check(run))
    limits = {"float64_per_second": 16e12, "bytes_per_second": 4e12}
    lines = written(tmp_path, report("tall", row), report("rates", limits=limits))
    assert lines[0] == "H200, driver 580, 2026-11-26"
    assert lines[-1] == "| tall | 10 × 2 | 0.5 | 4000 GFLOP/s | 25 % |  | passed |"


def test_a_step_that_failed_has_a_row_that_says_so(tmp_path: Path) -> None:
    lines = written(tmp_path, report("smoke", error="RuntimeError: no device"))
    assert lines[-1] == "| smoke |  |  |  |  |  | FAILED: RuntimeError: no device |"


def test_a_run_that_was_stopped_is_extrapolated_and_one_that_failed_is_not() -> None:
    stopped = {"seconds": 120.0, "share": 0.5, "check": None, "error": "stopped after 60 s"}
    assert minutes._check(stopped) == "extrapolated from 50 %"
    failed = {"seconds": None, "share": 0.0, "error": "stopped after 60 s"}
    assert minutes._check(failed) == "FAILED: stopped after 60 s"


def test_a_command_beyond_its_limit_is_ended_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    assert minutes._within(3, [sys.executable, "-c", child], log) == "stopped after 3 s"
    pid = int(log.read_text())
    for _ in range(50):
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "State:\tZ" in status.read_text(encoding="utf-8"):
            return
        time.sleep(0.1)
    pytest.fail("the child is still there")


def test_a_step_that_cannot_import_says_what_is_missing(tmp_path: Path) -> None:
    """As on a host to which no wheels were sent."""
    env = {**os.environ, "PYTHON": sys.executable, "WHEELS": str(tmp_path), "PYTHONPATH": ""}
    done = subprocess.run(
        ["sh", str(SCRIPT), str(tmp_path / "out"), "install"], env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip failed" in done.stdout
    # Where CuPy can be imported there is a device, and the next thing to fail is named.
    assert "| packages | 0 wheels |" in done.stdout
    assert "ModuleNotFoundError: No module named 'cupy'" in done.stdout


@pytest.fixture
def on_simulated(simulated_nvml: SimulatedNvml, tmp_path: Path) -> dict[str, str]:
    """Environment of a process that computes on a simulated GPU."""
    if on_host.compiler() is None:
        pytest.skip("Kernels on a processor need a C++ compiler, and there is none.")
    if cuda.problem() is None:
        pytest.skip("There is a real GPU here, with a driver and a CuPy of its own.")
    pytest.importorskip("dask_cuda")
    return computing(simulated_nvml.environment(memory=16 * GIB), tmp_path / "cuda")


@pytest.mark.timeout(300)
def test_steps_run_on_a_simulated_gpu_and_each_result_says_so(on_simulated: dict[str, str], tmp_path: Path) -> None:
    """`make first-minutes-simulated` runs all of them; the posts' decomposition is in the test below."""
    steps = ("smoke", "rates")
    bundle.add_ours(tmp_path / "wheels")
    env = on_simulated | {"PYTHON": sys.executable, "WHEELS": str(tmp_path / "wheels")}
    command = ["sh", str(SCRIPT), str(tmp_path / "out"), "install", *steps]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["first-minutes.tar.gz", "table.md"]
    rows = (tmp_path / "out" / "table.md").read_text().splitlines()[4:]
    assert len(steps) <= len(rows) <= minutes.SHOWN
    assert all(row.startswith("| SIMULATED ") for row in rows)
    with tarfile.open(tmp_path / "out" / "first-minutes.tar.gz") as archive:
        reports = {
            name: json.load(archive.extractfile(f"first-minutes/{name}.json"))  # type: ignore[arg-type]
            for name in steps
        }
    for each in reports.values():
        assert each["devices"] == ["SIMULATED GPU 0"]
        assert "no time here is a GPU's" in each["note"]
        assert "error" not in each
        assert all(run["share"] == 1 and run["check"]["passed"] for run in each["runs"]), each["runs"]
    assert reports["smoke"]["run"]["on_gpu"]["share"] == 1
    assert all(each["rate"] for name, each in reports["rates"].items() if " a second" in name)


@pytest.mark.timeout(300)
def test_the_benchmark_of_the_posts_runs_on_a_simulated_gpu(on_simulated: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.bench_gpu", "--part", "0.01", "--only", "tall_skinny_svd"]
    done = subprocess.run([*command, "--into", str(tmp_path)], env=on_simulated, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("gpu-*.json")
    found = json.loads(path.read_text())
    assert found["devices"] == ["SIMULATED GPU 0"]
    assert "no time here is a GPU's" in found["simulated"]
    assert found["sides_divided_by"] == bench_gpu.SIMULATED_SIDES
    assert all(each["name"].startswith("SIMULATED") and not bench_gpu.failed(each) for each in found["experiments"])
