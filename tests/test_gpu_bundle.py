from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import bench_gpu
from tests.gpu import bundle
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


@pytest.mark.skipif(cuda.problem() is None, reason="There is a GPU here.")
def test_the_benchmark_says_where_there_is_no_gpu(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench_gpu"])
    bench_gpu.main()
    assert capsys.readouterr().out.startswith("There is no GPU to measure: the CUDA driver")
