"""A cluster that goes on elsewhere, and whose server can't be reached: it is never forgotten by mistake."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_records import dead_process
from workbench.cli import main
from workbench.clusters import records
from workbench.clusters.profiles import gateway
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.jobs import processes

DEAD = "http://127.0.0.1:1"  # a port at which nobody listens


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a kubeconfig, and SLURM commands, that never answer."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": DEAD}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for name in ("scancel", "squeue"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("profile", "options", "package", "says", "status"),
    [
        *(
            ("gateway", {"address": DEAD, "cluster_options": {}}, "dask_gateway", f"The gateway at {DEAD}", status)
            for status in ("lost", "ready")
        ),
        ("kubernetes", {"image": "x"}, "kr8s", "kubectl delete daskcluster there-1 --namespace default", "lost"),
        ("slurm", {"walltime": 60}, "dask_jobqueue", "Jobs named there-1 may be left in the queue", "lost"),
        ("nomad", {}, "dask", "There is no profile 'nomad' here any more", "lost"),
    ],
)
def test_a_cluster_whose_server_is_unreachable_stays_listed_until_it_is_ended_or_given_up(
    data_folder: Path,
    unreachable: None,
    capsys: pytest.CaptureFixture[str],
    profile: str,
    options: dict[str, Any],
    package: str,
    says: str,
    status: Any,
) -> None:
    pytest.importorskip(package)
    spec = ClusterSpec(
        n_workers=1, threads_per_worker=1, memory_limit=1, profile=profile, elsewhere=True, options=options
    )
    about = {"called": "there-1", "created": 1.0, **processes.here(), **dead_process()}
    records.create(ClusterRecord(name="far", spec=spec, status=status, **about))
    for _ in range(2):
        assert main(["down", "far"]) == 1
        said = capsys.readouterr().err
        assert "far is still there" in said
        assert says in said
        assert "workbench down far --forget" in said
        assert "Traceback" not in said
    assert (records.read("far").status, records.read("far").called) == ("lost", "there-1")
    assert main(["down", "far", "--forget"]) == 0
    assert says in capsys.readouterr().out
    assert records.names() == ()


def test_a_gateway_that_takes_an_order_and_never_answers_is_not_waited_for(
    data_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask_gateway")
    monkeypatch.setattr(gateway, "_CHANGING", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"address": address, "cluster_options": {}}
        spec = ClusterSpec(
            n_workers=1, threads_per_worker=1, memory_limit=1, profile="gateway", elsewhere=True, options=options
        )
        about = {"called": "there-1", "created": 1.0, **processes.here(), **dead_process()}
        records.create(ClusterRecord(name="far", spec=spec, status="lost", **about))
        began = time.monotonic()
        assert main(["down", "far"]) == 1
    assert time.monotonic() - began < 30
    assert f"The gateway at {address} doesn't answer" in capsys.readouterr().err
    assert records.names() == ("far",)
