from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import simulated
from tests.benchmarks import bench_gpu
from tests.gpu import bundle
from tests.test_backend import STANDIN
from workbench.clusters import cuda
from workbench.workloads import template


def test_a_bundle_tells_its_size_with_the_tree(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(bytes(2 * 2**20))
    assert bundle.check(tmp_path, 3 * 2**20) == f"{tmp_path}: 1 wheels, 2.0 MiB, 5.0 MiB with the tree"


def test_a_bundle_too_large_for_one_transfer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.whl").write_bytes(bytes(bundle.MOST_BYTES - 2**20))
    with pytest.raises(SystemExit, match=r"64\.0 MiB with the tree\. One transfer takes less than 64 MiB"):
        bundle.check(tmp_path, 2**20)


def test_the_tree_is_what_git_knows_or_would_take_in(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("left-out\n")
    (tmp_path / "left-out").write_bytes(bytes(1000))
    (tmp_path / "taken").write_bytes(bytes(500))
    assert bundle.tree_bytes(tmp_path) == 509


def test_the_bundle_holds_all_that_the_host_lacks_and_nothing_that_it_has() -> None:
    sent, there = bundle.needed(), bundle.host_packages()
    assert not sent & there
    assert {"dask", "distributed", "dask-cuda", "rmm-cu13", "librmm-cu13", "pydantic-core", "tornado", "zict"} <= sent
    assert not sent & {"numba-cuda", "cupy-cuda13x", "jupyterlab", "panel", "bokeh"}
    # What those need in turn is sent, is there, or is for dashboards.
    for name in sent:
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate(bundle.on_host()):
                assert canonicalize_name(needed.name) in sent | there | bundle.LEFT_OUT, f"{name} requires {text}"


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
