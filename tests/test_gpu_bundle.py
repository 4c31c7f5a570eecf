from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import bench_gpu
from tests.gpu import bundle
from tests.test_backend import STANDIN
from workbench.clusters import cuda
from workbench.workloads import template


def test_a_bundle_is_one_file_whose_size_is_told(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.whl").write_bytes(bytes(2_000_000))
    bundle.tell(bundle.pack(tmp_path / "core"))
    assert capsys.readouterr().out == "core.tar: 2.0 MB\n"


def test_a_bundle_that_is_too_large_to_be_sent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.tar").write_bytes(bytes(bundle.MOST_BYTES))
    with pytest.raises(SystemExit, match=r"has 60\.0 MB, and 60 are allowed"):
        bundle.tell(tmp_path / "large.tar")


def test_the_script_for_a_host_without_a_network_is_one_that_sh_reads() -> None:
    subprocess.run(["sh", "-n", str(bundle.ROOT / "tests" / "gpu" / "offline.sh")], check=True)


@pytest.mark.parametrize("part", [1.0, 0.01])
def test_what_the_benchmark_runs_can_be_run(part: float) -> None:
    for each in bench_gpu.experiments(part):
        chosen = template(each["workload"])
        assert chosen.validate(each["parameters"], threads=1).resolved["shape"] == each["parameters"]["shape"]


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
def test_the_benchmark_says_where_there_is_no_gpu(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench_gpu"])
    bench_gpu.main()
    assert capsys.readouterr().out.startswith("There is no GPU to measure: the CUDA driver")
