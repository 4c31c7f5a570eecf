from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import simulated
from tests.benchmarks import bench_gpu
from tests.gpu import bundle
from tests.test_backend import STANDIN
from workbench.clusters import cuda
from workbench.workloads import template


def test_a_part_is_one_file_whose_size_is_told(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.whl").write_bytes(bytes(2 * 2**20 - 10_000))
    bundle.tell(bundle.pack(tmp_path / "core"), 3 * 2**20)
    assert capsys.readouterr().out == "core.tar: 2.0 MiB, 5.0 MiB with the tree\n"


def test_a_part_that_cannot_be_sent_together_with_the_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.tar").write_bytes(bytes(bundle.MOST_BYTES - 2**20))
    with pytest.raises(SystemExit, match=r"and the tree have 64\.0 MiB, and one transfer takes less than 64"):
        bundle.tell(tmp_path / "large.tar", 2**20)


def test_the_tree_is_what_git_knows_or_would_take_in(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("left-out\n")
    (tmp_path / "left-out").write_bytes(bytes(1000))
    (tmp_path / "taken").write_bytes(bytes(500))
    assert bundle.tree_bytes(tmp_path) == 509


def test_what_the_host_has_is_not_sent_again() -> None:
    sent = {name for packages in bundle.BUNDLES.values() for name in packages.split()}
    assert not sent & {"numba", "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings", "pyarrow", "pandas", "numpy"}


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """Environment of offline.sh where python3 is one that writes down what it is asked to do."""
    folder = tmp_path / "core"
    folder.mkdir()
    for name in ("dask_cuda-1.whl", "rapids_dask_dependency-1.whl", "dask_workbench-1.whl"):
        (folder / name).touch()
    subprocess.run(["tar", "czf", str(folder / "tests.tar.gz"), "-T", "/dev/null"], check=True)
    (folder / "offline.sh").write_text((bundle.ROOT / "tests" / "gpu" / "offline.sh").read_text())
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    # A new environment's Python is this one again; the benchmark and pytest leave what they leave beside their reports.
    python.write_text(
        f"""#!/bin/sh
echo "$(basename "$0") $*" | head -1 >>{tmp_path}/asked
case "$1 $2" in
  "-m venv") mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; mkdir -p {tmp_path}/site ;;
  "-c import sysconfig"*) echo {tmp_path}/site ;;
  "-c import distributed"*) [ -z "$LACKS" ] ;;
  "-m pytest") mkdir -p "$DASK_WORKBENCH__DATA_FOLDER"; echo told >"$7" ;;
  "-m tests.benchmarks.bench_gpu") echo "{{}}" >"$4/gpu-today.json" ;;
esac
"""
    )
    python.chmod(0o755)
    return {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "LACKS": ""}


def offline(tmp_path: Path, env: dict[str, str], *more: str) -> tuple[int, list[str]]:
    command = ["sh", "core/offline.sh", "out", *more]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    return done.returncode, (tmp_path / "asked").read_text().splitlines()


def test_a_host_without_a_network_keeps_two_reports_and_nothing_else(tmp_path: Path, host: dict[str, str]) -> None:
    code, asked = offline(tmp_path, host, "--only", "array_sum")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gpu-today.json", "junit.xml"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "bin", "core", "out", "site"]
    assert asked[-1].endswith("--only array_sum")


def test_such_a_host_is_asked_first_whether_blocks_can_be_spilled(tmp_path: Path, host: dict[str, str]) -> None:
    code, asked = offline(tmp_path, host | {"LACKS": "numba-cuda"})
    assert code == 1
    assert not any("pytest -m" in line or "bench_gpu" in line for line in asked)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_script_for_a_host_without_a_network_is_one_that_sh_reads() -> None:
    subprocess.run(["sh", "-n", str(bundle.ROOT / "tests" / "gpu" / "offline.sh")], check=True)


@pytest.mark.parametrize(("part", "shorter"), [(1.0, 1), (0.01, 1), (1.0, bench_gpu.SIMULATED_SIDES)])
def test_what_the_benchmark_runs_can_be_run(part: float, shorter: int) -> None:
    for each in bench_gpu.experiments(part, shorter):
        chosen = template(each["workload"])
        resolved = chosen.validate(each["parameters"], threads=1, on_gpu=True).resolved
        assert {name: resolved[name] for name in each["parameters"]} == each["parameters"]


def step(name: str, measured: Any) -> bench_gpu.Step:
    def measure() -> Any:
        if isinstance(measured, Exception):
            raise measured
        return measured

    return {"name": name, "n_gpus": 1, "post": {}, "plain": None}, measure


def test_each_experiment_is_written_when_it_is_done_whatever_became_of_those_before(
    tmp_path: Path, capsys: Any
) -> None:
    found: dict[str, Any] = {"experiments": []}
    path = tmp_path / "gpu.json"
    written = []

    def last() -> Any:
        written.extend(json.loads(path.read_text())["experiments"])
        return {"seconds": 3.0, "plain": {"seconds": None, "error": "out of memory"}}

    broken = step("second", RuntimeError("cudaErrorLaunchFailure"))
    bench_gpu.chained([step("first", {"seconds": 2.0}), broken, (step("third", None)[0], last)], found, path)
    assert [each["seconds"] for each in written] == [2.0, None]
    assert json.loads(path.read_text()) == found
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]
    assert [bench_gpu.failed(each) for each in found["experiments"]] == [False, True, True]
    lines = ["2.00 s", "failed: RuntimeError: cudaErrorLaunchFailure", "3.00 s, plain CuPy failed: out of memory"]
    assert [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()] == lines


def test_experiments_are_chosen_by_a_word_of_their_names() -> None:
    found = {"part": 1.0, "devices": ["H200"], "sides_divided_by": 1, "memory_total": None}
    told = bench_gpu.steps(found, bench_gpu.Clusters(), 90)
    assert [known["workload"] for known, _ in bench_gpu.chosen(told, ["sum", "200 GB"])] == [
        "array_sum",
        "array_sum",
        "compressed_svd",
    ]
    assert bench_gpu.chosen(told, []) == told
    with pytest.raises(SystemExit, match=r"No experiment has 'tal1' in its name\. There are: array_sum, 2 TB; "):
        bench_gpu.chosen(told, ["tal1"])


def test_what_is_simulated_is_as_many_times_shorter_as_it_says_and_is_beside_no_post() -> None:
    found = {"part": 1.0, "devices": ["SIMULATED GPU 0"], "sides_divided_by": 100, "memory_total": None}
    simulated = [known for known, _ in bench_gpu.steps(found, bench_gpu.Clusters(), 90)]
    real = [*bench_gpu.experiments(1.0), bench_gpu.on_the_card(1.0, None)]
    for each, there in zip(simulated, real, strict=True):
        assert each["name"] == f"SIMULATED, each side 1/100: {there['name']}"
        assert each["post"] == {}
        for name in {"shape", "chunks"} & set(there["parameters"]):
            assert [100 * side for side in each["parameters"][name]] == there["parameters"][name]


def test_what_takes_longer_than_its_limit_is_ended() -> None:
    # No Python has imported Dask in so short a time.
    told = bench_gpu.in_a_process("packed_components", {"shape": [300, 40], "k": 3}, 0.01)
    assert told == {"seconds": None, "error": "stopped after 0.01 s"}


def test_plain_cupy_that_answers_otherwise_counts_as_failed() -> None:
    assert bench_gpu.the_same({"seconds": 1.0, "answer": 2.0}, {"answer": 2.001})["seconds"] == 1.0
    told = bench_gpu.the_same({"seconds": 1.0, "answer": 2.0}, {"answer": 3.0})
    assert told == {"seconds": None, "error": "it answers 2.0, and the run 3.0"}


def test_genotypes_fill_a_card_no_further_than_they_may() -> None:
    goal = list(bench_gpu.PACKED)
    assert bench_gpu.packed_shape(1.0, None) == bench_gpu.packed_shape(1.0, 141 * 10**9) == goal
    assert bench_gpu.packed_shape(0.01, 141 * 10**9) == [goal[0] // 100, goal[1]]
    n_variants, n_samples = bench_gpu.packed_shape(1.0, 16 * 10**9)
    assert n_variants * n_samples / 4 == pytest.approx(0.6 * 16e9, rel=1e-3)


def test_components_of_packed_genotypes_are_found_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{STANDIN}{os.pathsep}{bundle.ROOT}")
    shape = [3_000, 203]
    found = bench_gpu.in_a_process("packed_components", {"shape": shape, "k": 3})
    assert "error" not in found, found["error"]
    assert found["reached"], found["certificate"]
    # The stand-in draws what NumPy draws.
    genotypes = bench_gpu.packed_genotypes("numpy", *shape, n_populations=4)
    assert found["packed_bytes"] == genotypes.packed.nbytes == 3_000 * 51
    counts = genotypes.counts().compute().astype("float64")
    frequency = counts.mean(axis=1, keepdims=True) / 2
    varies = ((frequency > 0) & (frequency < 1))[:, 0]
    scaled = (counts - 2 * frequency)[varies] / np.sqrt(frequency * (1 - frequency))[varies]
    expected = np.linalg.svd(scaled, compute_uv=False)
    np.testing.assert_allclose(found["singular_values"], expected[:3], rtol=1e-3)
    # Four populations apart: three components, and then the noise.
    assert expected[2] > 1.5 * expected[3]


@pytest.mark.skipif(cuda.problem() is None, reason="There is a GPU here.")
def test_where_there_is_a_gpu_a_missing_package_fails_its_tests(simulated_nvml: Any, tmp_path: Path) -> None:
    env = simulated.computing({**os.environ, "LD_LIBRARY_PATH": ""}, tmp_path)
    # Without the stand-in, so that nothing here is CuPy.
    env["PYTHONPATH"] = str(bundle.ROOT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "packed_where", "tests/gpu"]
    done = subprocess.run(command, cwd=bundle.ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert "There is a GPU here, and these tests can't use it without cupy" in done.stdout


@pytest.mark.skipif(cuda.problem() is None, reason="There is a GPU here.")
def test_the_benchmark_says_where_there_is_no_gpu(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench_gpu"])
    bench_gpu.main()
    assert capsys.readouterr().out.startswith("There is no GPU to measure: the CUDA driver")
