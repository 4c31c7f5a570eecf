"""The first hour on a GPU, with a Python that only writes down what it is asked to do, and on a simulated GPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import bench_gpu
from tests.gpu import hour
from tests.simulated import GIB, SimulatedNvml, computing
from tests.standin import on_host
from workbench.clusters import cuda

SCRIPT = Path(__file__).parent / "gpu" / "first-hour.sh"
AGAIN = ("smoke", "rates", "sum", "tall", "compressed")
"""Steps that the first minutes rehearse too, or that do what `small` does, at the posts' size."""
TOLD = re.findall(r"^#   (\w+) +\d+  ", SCRIPT.read_text(), re.MULTILINE)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that fails where the file `fails` says so."""
    path = tmp_path / "python3"
    path.write_text(
        f"#!/bin/sh\n"
        f'case "$1" in -c) exec python3 "$@" ;; esac\n'
        f'echo "$*" >>{tmp_path}/asked\n'
        f'[ ! -f {tmp_path}/fails ] || ! echo "$*" | grep -q "$(cat {tmp_path}/fails)"\n'
    )
    path.chmod(0o755)
    return path


def did(tmp_path: Path, python: Path, *steps: str) -> tuple[int, str, list[str]]:
    command = ["sh", str(SCRIPT), "out", *steps]
    env = {**os.environ, "PYTHON": str(python), "PART": "0.5"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    asked = (tmp_path / "asked").read_text().splitlines()
    return done.returncode, done.stdout, [line for line in asked if "workbench down" not in line]


def test_each_step_that_its_head_tells_of_is_done_in_that_order(tmp_path: Path, python: Path) -> None:
    code, said, asked = did(tmp_path, python)
    assert code == 0
    assert [line.partition(":")[0] for line in said.splitlines()] == TOLD
    assert len(TOLD) == 10
    assert asked[0] == f"-m tests.gpu.hour smoke --into {tmp_path}/out"
    assert any("--called small --part 0.025" in line for line in asked)
    assert asked[-1].startswith("-m tests.gpu.hour ucx")


def test_a_step_that_fails_is_told_and_holds_up_no_other(tmp_path: Path, python: Path) -> None:
    (tmp_path / "fails").write_text("hour smoke")
    code, said, _ = did(tmp_path, python)
    assert code == 1
    assert said.startswith("smoke: failed (1), see smoke.log")
    assert said.splitlines()[-2].startswith("ucx: done")
    assert said.endswith("failed: smoke\n")


def test_steps_can_be_named(tmp_path: Path, python: Path) -> None:
    _, said, asked = did(tmp_path, python, "tall", "rates")
    assert [line.partition(":")[0] for line in said.splitlines()] == ["rates", "tall"]
    assert len(asked) == 2


def test_what_it_measures_by_name_is_measured(tmp_path: Path, python: Path) -> None:
    _, _, asked = did(tmp_path, python)
    words = {word for line in asked for word in re.findall(r"--only (\w+)", line)}
    names = [each["name"] for each in bench_gpu.experiments(1.0)] + [bench_gpu.on_the_card(1.0, None)["name"]]
    assert words
    for word in words:
        assert any(word in name for name in names), word
    for name in names:
        assert any(word in name for word in words), f"nothing measures {name} at full size"


def test_a_step_that_breaks_off_leaves_what_is_known_until_then(tmp_path: Path, monkeypatch: Any) -> None:
    def breaks(told: Any) -> None:
        told["run"] = "done"
        raise RuntimeError("the card is gone")

    monkeypatch.setitem(hour.STEPS, "smoke", breaks)
    monkeypatch.setattr(bench_gpu, "head", lambda part, limit: {"devices": ["SIMULATED GPU 0"]})
    monkeypatch.setattr("sys.argv", ["hour", "smoke", "--into", str(tmp_path)])
    with pytest.raises(RuntimeError, match="the card is gone"):
        hour.main()
    told = json.loads((tmp_path / "smoke.json").read_text())
    assert told["error"] == "RuntimeError: the card is gone"
    assert told["devices"] == ["SIMULATED GPU 0"]
    assert told["run"] == "done"


@pytest.mark.timeout(900)
@pytest.mark.skipif(on_host.compiler() is None, reason="Kernels on a processor need a C++ compiler, and there is none.")
@pytest.mark.skipif(cuda.problem() is None, reason="There is a real GPU here, with a driver and a CuPy of its own.")
def test_it_runs_to_its_end_on_a_simulated_gpu_and_each_report_says_so(
    simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    pytest.importorskip("dask_cuda")
    env = computing(simulated_nvml.environment(memory=16 * GIB), tmp_path / "cuda")
    env |= {"PART": "0.01", "PYTHON": sys.executable}
    # Two at once, each with clusters of its own: one computes while the other waits for a process to start.
    steps = [each for each in TOLD if each not in AGAIN]
    halves = {tmp_path / "first": steps[:3], tmp_path / "second": steps[3:]}
    begun = [
        subprocess.Popen(["sh", str(SCRIPT), str(into), *steps], env=env, stdout=subprocess.PIPE, text=True)
        for into, steps in halves.items()
    ]
    said = "".join(each.communicate()[0] for each in begun)
    logs = [path for into in halves for path in into.glob("*.log")]
    assert [each.returncode for each in begun] == [0, 0], said + "".join(path.read_text()[-3000:] for path in logs)
    assert [line.partition(",")[0] for line in said.splitlines()] == [f"{name}: done" for name in steps]
    reports = {path.stem: json.loads(path.read_text()) for into in halves for path in into.glob("*.json")}
    assert {*reports, "tests"} == {*steps, "genotypes-tenth"}
    for told in reports.values():
        assert told["devices"] == ["SIMULATED GPU 0"]
        assert "no time here is a GPU's" in told["simulated"]
        assert told["sides_divided_by"] == bench_gpu.SIMULATED_SIDES
        assert told["limits"]["cupy"].endswith("+standin")
        assert "error" not in {*told, *told["limits"]}
        for each in told["experiments"]:
            assert each["name"].startswith("SIMULATED")
            assert not bench_gpu.failed(each), each
    assert [row["reason"] for row in reports["cores"]["comparison"]["rows"]] == [None] * 3
    assert [row["reason"] for row in reports["ucx"]["comparison"]["rows"]] == [None] * 3
    tests = Xml.parse(tmp_path / "first" / "tests.xml")
    assert {each.get("value") for each in tests.iterfind(".//property[@name='devices']")} == {"SIMULATED GPU 0"}
    assert {each.get("message", "").partition(":")[0] for each in tests.iter("skipped")} == {
        "The devices are SIMULATED"
    }
