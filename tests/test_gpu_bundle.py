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
