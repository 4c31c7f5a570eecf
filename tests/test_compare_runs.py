"""Comparisons on real clusters, conducted by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import workbench
from tests.waiting import until
from workbench.cli import main
from workbench.clusters import records
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError
from workbench.runs import store
from workbench.runs.comparing import comparisons
from workbench.session import Session

ROOT = Path(__file__).parent.parent
SMALL = {"size": "4MiB"}
ONE = "cpu --workers 1 --threads 1 --memory 512MiB"


NAPS = """
def naps():
    import time

    import dask

    return [dask.delayed(time.sleep)(0.1) for _ in range(3000)]
"""


@pytest.fixture
def naps(tmp_path):
    """Return a workload that takes minutes, and no processor from what a test waits for."""
    (tmp_path / "naps.py").write_text(NAPS)
    return f"{tmp_path}/naps.py:naps"


def log_of(comparison):
    return (comparisons.folder(comparison.id) / "log.txt").read_text()


def test_architectures_are_measured_in_turn_agree_and_their_clusters_are_stopped(data_folder):
    session = Session()
    stages = []
    # Each has all the memory, as only one computes at a time.
    lines = ["cpu --workers 1 --threads 1", "cpu --workers 1 --threads 2", "gpu"]
    left = session.budget().left
    started = session.compare("array_sum", SMALL, on=lines, repeats=1, warmup=1)
    assert started.status == "starting"
    one, other = (row.spec.memory for row in started.rows[:2])
    assert other == pytest.approx(one, abs=2)
    assert one == pytest.approx(left, rel=0.2)
    ended = session.wait_comparison(started.id, lambda seen: stages.append(seen.stage))
    assert ended.status == "done", log_of(ended)
    assert {"starting clusters", "warming up", "measuring"} <= set(stages)
    assert (ended.done, ended.total) == (4, 4)
    assert [len(row.seconds) for row in ended.rows] == [1, 1, 0]
    assert records.read_all() == ()
    found = session.summary(ended)
    assert found.agree is True
    assert found.agreement == "All answers are the same."
    measured = sorted((store.get(sample.run).created, row.label) for row in ended.rows for sample in row.samples)
    order = ended.order([0, 1], 0)
    assert [label for _, label in measured] == [ended.rows[place].label for place in order]
    assert len(store.select()) == 4


def test_a_cluster_that_runs_is_measured_with_a_preset_at_a_scale_and_left_alone(data_folder):
    session = Session()
    spec = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=2**29)
    session.start(spec, name="calm-otter")
    session.wait("calm-otter", timeout=60)
    # NumPy's own generator draws other numbers where the blocks are others.
    post = {"preset": "post", "scale": 0.00001}
    found = workbench.compare(
        "array_sum", on=["--cluster calm-otter"], parameters=post, sweep={"chunks": [500, 1000]}, repeats=1, warmup=0
    )
    assert [row.on for row in found.rows] == [f"--cluster calm-otter, chunks={n}" for n in (500, 1000)]
    assert found.agree is True
    assert "each passed its own check" in found.agreement
    told = next(note for note in found.notes if note.startswith("GPU Dask Arrays, first steps (2019): 2 h 39 min on"))
    assert "Here differ: 1e-05 of its numbers, 1,581 × 1,581" in told
    assert {(run.preset, run.resolved["generator"]) for run in store.select()} == {("post", "RandomState")}
    assert [record.name for record in records.read_all()] == ["calm-otter"]
    with pytest.raises(ConflictError, match="has ended already"):
        session.cancel_comparison("last")


def test_comparisons_wait_one_that_waits_is_cancelled_and_one_that_is_killed_leaves_no_cluster(
    data_folder: Path, naps: str
) -> None:
    session = Session()
    plain = ONE.replace("--memory 512MiB ", "")
    first = session.compare(naps, on=[plain], repeats=1, warmup=0)
    until(lambda: any(run.progress.done for run in store.select()))
    second, third = (session.compare("array_sum", SMALL, on=[plain], repeats=1, warmup=0) for _ in range(2))
    # Not from what the cluster of another leaves, which is gone by then.
    assert second.rows[0].spec.memory == pytest.approx(first.rows[0].spec.memory, rel=0.2)
    for waiting in (second, third):
        until(lambda id=waiting.id: comparisons.get(id).stage == "waiting for another comparison")
    session.cancel_comparison(third.id)
    assert session.wait_comparison(third.id, timeout=20).status == "cancelled"
    assert comparisons.get(second.id).stage == "waiting for another comparison"
    (cluster,) = records.names()
    os.kill(comparisons.get(first.id).pid, signal.SIGKILL)
    until(lambda: comparisons.get(first.id).status == "lost")
    assert "What was measured until then is kept" in session.comparison(first.id).error
    until(lambda: cluster not in records.names())
    ended = session.wait_comparison(second.id)
    assert ended.status == "done", log_of(ended)
    assert records.names() == ()


def test_what_no_limit_can_be_held_against_is_refused_before_it_is_measured(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "array_sum", "--on", ONE, "--fail-if-slower", "10%"]
    assert main([*command, "--sweep", "seed=1,2", "--repeats", "3"]) == 2
    assert "With a limit give --repeats 4 or more." in capsys.readouterr().err
    assert main(command) == 2
    assert f"There is one row only, {ONE}, and nothing to compare it with." in capsys.readouterr().err
    assert comparisons.select() == ()


def test_a_gate_tells_of_rows_none_of_which_can_be_had(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "array_sum", "--on", "gpu", "--on", "gpus", "--fail-if-slower", "10%"]
    assert main(command) == 1
    assert "gpus: its time can't be judged. It can't be had" in capsys.readouterr().err


def test_ctrl_c_stops_what_was_started_and_keeps_what_was_measured(data_folder, naps):
    command = [sys.executable, "-m", "workbench", "compare", naps, "--on", ONE, "--warmup", "0", "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        run = until(lambda: next((run for run in store.select() if run.progress.done), None))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert store.get(run.id).status == "cancelled"
    assert comparisons.find("last").status == "cancelled"
    assert records.read_all() == ()


def test_a_conductor_that_is_killed_before_it_begins_is_lost_at_once(data_folder, monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr("workbench.jobs.processes.start_detached", lambda *_, **__: ended.pid)
    started = Session().compare("array_sum", SMALL, on=[ONE])
    assert comparisons.get(started.id).status == "lost"


def test_rows_that_fail_are_lost_or_refused_are_no_success_and_are_named(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "workbench.yaml").write_text("workbench: {profiles: {night: {profile: cpu}}}")
    (tmp_path / "mine.py").write_text("def third(n: int = 1):\n    return 6 / n\n")
    monkeypatch.chdir(tmp_path)

    def kill() -> None:
        (killed,) = until(lambda: [each for each in records.read_all() if each.name.endswith("-2") and each.pid])
        os.kill(killed.pid, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    lines = [word for line in (ONE, f"{ONE} --threads 2", "night") for word in ("--on", line)]
    assert main(["compare", "mine.py:third", "-p", "n=0", *lines, "--repeats", "1", "--warmup", "0"]) == 1
    killing.join()
    out, err = capsys.readouterr()
    # The table says why, and stderr for who keeps that.
    assert (out.count("ZeroDivisionError"), err.count("ZeroDivisionError")) == (1, 1)
    assert Session().summary(comparisons.find("last")).agree is None
    assert "2 threads, memory 512MiB was not measured: Cluster compare-" in err
    assert " was not measured: " in err.splitlines()[-1]
    assert "workbench.yaml of this folder, which you haven't trusted yet" in err.splitlines()[-1]
