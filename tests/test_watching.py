"""Computations of the user's own code on any Dask cluster are watched and saved as a run."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pytest
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster, span

import workbench
from tests.views import html_of
from tests.waiting import until
from workbench import remote
from workbench.errors import BadInputError, ConflictError
from workbench.monitor.record import read_events
from workbench.runs import recording, store
from workbench.sent_code import About, differences, machine_elsewhere, machine_words


def one_more(number: int) -> int:
    return number + 1


def failing(number: int) -> int:
    raise ValueError(f"{number} is no good")


@pytest.fixture(autouse=True)
def _own_folder(data_folder: Path) -> None:
    """Use an empty data folder for the runs of these tests."""


@pytest.fixture
def other_client(quick_cluster: Any) -> Any:
    with Client(quick_cluster, set_as_default=False) as client:
        yield client


def test_what_is_computed_in_the_block_becomes_a_run(quick_client: Client) -> None:
    x = da.ones((300, 300), chunks=100)
    with workbench.watch(name="turned") as run:
        total = (x + x.T).sum().compute()
        assert run.status == "running"
    assert total == 2 * 300 * 300
    kept = store.find("last")
    assert (kept.id, kept.workload, kept.status) == (run.id, "watched", "done")
    assert kept.parameters["name"] == "turned"
    assert kept.parameters["source"].splitlines()[1:] == [
        'with workbench.watch(name="turned") as run:',
        "        total = (x + x.T).sum().compute()",
        '        assert run.status == "running"',
    ]
    assert kept.seconds is not None
    assert kept.result is not None
    assert kept.result["tasks"] == kept.progress.total == kept.progress.done > 9
    assert kept.result["tasks_of_others"] == 0
    assert (kept.spec, kept.check, kept.needs, kept.bytes) == (None, None, None, None)
    assert kept.cluster == quick_client.scheduler.address
    assert kept.versions["dask"] == dask.__version__
    assert kept.diagnosis is not None


def test_a_run_keeps_what_its_workers_run_on(quick_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with workbench.watch() as here:
        pass
    assert here.inventory is not None
    assert here.inventory["topology"] is None or here.inventory["gpus"] is not None
    # To those who ask, the workers are on another machine than this one, whatever their address.
    monkeypatch.setattr(remote, "place", lambda: "here")
    with workbench.watch() as far:
        pass
    assert far.inventory is not None
    assert (far.inventory["host"], far.inventory["cpu"]["usable"]) == (platform.node(), CPU_COUNT)
    assert [each["name"] for each in far.inventory["gpus"]] == [name for _, name, _ in remote.gpus()]


def test_workers_of_two_machines_are_described_together() -> None:
    packages = remote.packages()
    about = About(
        "workers", "3.12.1", packages, [], False, [], None, False, "node-1", "boot-1 a", "Xeon", 8, 2**34, 0.5
    )
    other = about._replace(host="node-2", place="boot-2 a", processor="EPYC", cores=16)
    # Another container on the first machine has the same cores.
    container = about._replace(place="boot-1 b")
    found = machine_elsewhere([about._replace(role="scheduler"), about, about, container, other])
    assert found is not None
    assert (found["host"], found["cpu"]) == ("node-1, node-2", {"model": "EPYC and Xeon", "usable": 24})
    cards = [{"name": "NVIDIA H100"}] * 4
    told = machine_words(found | {"gpus": cards})
    assert told == "node-1, node-2: EPYC and Xeon, 24 cores, 32 GiB, 4 × NVIDIA H100"
    beside = about._replace(place=remote.place())
    assert machine_elsewhere([about._replace(role="scheduler"), beside, beside]) is None
    assert differences([about, other]) is None
    older = other._replace(packages=packages | {"dask": "2026.1.0"})
    assert (differences([about, older]) or "").endswith(f": dask is 2026.1.0 on node-2, and {packages['dask']} here.")


def test_it_has_a_diagnosis_and_no_task_is_another_for_being_watched(quick_client: Client) -> None:
    # Built before: in a span of ours what is made of it would no longer be fused with it.
    x = da.ones((400, 400), chunks=100)
    with workbench.watch() as run:
        (x + 1).sum().compute()
    assert run.diagnosis.workers == len(quick_client.scheduler_info()["workers"])
    (fused,) = dask.optimize((x + 1).sum())
    # Dask adds one that brings the answer home.
    assert run.result["tasks"] == len(dict(fused.__dask_graph__())) + 1


def test_what_is_computed_in_a_span_of_the_persons_own_is_recorded_too(quick_client: Client) -> None:
    with workbench.watch() as run, span("mine"):
        quick_client.submit(one_more, 1, pure=False).result()
    tasks = read_events(store.folder(run.id) / "events.parquet").tasks
    assert [task.name for task in tasks] == ["one_more"]
    assert run.diagnosis is not None


def test_what_was_before_and_what_others_do_is_not_counted(quick_client: Client, other_client: Client) -> None:
    quick_client.gather(quick_client.map(one_more, range(500, 520)))
    with workbench.watch(quick_client) as run:
        theirs = other_client.map(one_more, range(30))
        quick_client.gather(quick_client.map(one_more, range(100, 107)))
        other_client.gather(theirs)
    assert run.result == {"tasks": 7, "tasks_of_others": 30}
    assert (run.progress.done, run.progress.total) == (7, 7)
    tasks = read_events(store.folder(run.id) / "events.parquet").tasks
    assert {task.source for task in tasks if task.kind == "compute"} == {"", other_client.id}


def test_the_same_computation_twice_is_counted_twice(quick_client: Client) -> None:
    x = da.random.default_rng(0).random((100, 100), chunks=50).sum()
    with workbench.watch() as once:
        x.compute()
    with workbench.watch() as twice:
        x.compute()
        # What the scheduler still holds would not be computed again.
        while any(task.state != "released" for task in quick_client.cluster.scheduler.tasks.values()):
            time.sleep(0.01)
        x.compute()
    assert twice.progress.done == twice.progress.total == 2 * once.progress.total


def test_an_error_ends_it_and_goes_on_its_way(quick_client: Client) -> None:
    with pytest.raises(ValueError, match="3 is no good"), workbench.watch() as run:
        quick_client.submit(failing, 3).result()
    assert (run.status, run.error) == ("failed", "ValueError: 3 is no good")
    with pytest.raises(KeyboardInterrupt), workbench.watch() as interrupted:
        raise KeyboardInterrupt
    assert (interrupted.status, interrupted.error) == ("cancelled", None)


def test_a_client_that_is_closed_in_the_block_ends_the_record_and_nothing_else(quick_cluster: Any) -> None:
    client = Client(quick_cluster, set_as_default=False)
    with workbench.watch(client) as run:
        client.submit(one_more, 41).result()
        client.close()
    assert run.status == "done"


def test_without_a_client_it_says_what_to_do() -> None:
    with pytest.raises(BadInputError, match=r"no Dask client.*threads.*distributed\.Client\(\)"), workbench.watch():
        pass
    with pytest.raises(BadInputError, match="is not a Dask client"):
        workbench.watch("calm-otter")  # type: ignore[arg-type]
    assert store.select() == ()


def test_a_closed_client_and_a_name_of_no_use_are_refused(quick_cluster: Any, quick_client: Client) -> None:
    with pytest.raises(BadInputError, match="name: given ''"):
        workbench.watch(quick_client, name="")
    closed = Client(quick_cluster, set_as_default=False)
    closed.close()
    with pytest.raises(BadInputError, match="closed"):
        workbench.watch(closed)


def test_it_is_not_cancelled_from_outside_for_that_would_end_the_notebook(quick_client: Client) -> None:
    from workbench.runs.submit import cancel

    with workbench.watch() as run, pytest.raises(ConflictError, match="Interrupt it there"):
        cancel(run.id)
    assert run.status == "done"


def test_every_face_shows_it(quick_client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.cli import main
    from workbench.views.run_files import report

    with workbench.watch(name="of mine") as run:
        quick_client.submit(one_more, 1).result()
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out
    assert "watched" in listed
    assert main(["show", run.id]) == 0
    shown = capsys.readouterr().out
    assert "name=of mine" in shown
    assert "quick_client.submit(one_more, 1).result()" in shown
    assert "tasks_of_others" in report(run.run)
    assert "of mine" in html_of("runs")


def test_it_travels_as_any_run_does(quick_client: Client, tmp_path: Path) -> None:
    from workbench.runs.exchange import export_run, import_run

    with workbench.watch() as run:
        quick_client.submit(one_more, 2).result()
    path = export_run(run.run, tmp_path)
    store.delete(run.id)
    assert import_run(path).result == {"tasks": 1, "tasks_of_others": 0}


SCRIPT = """
import os, signal, time
import workbench
from distributed import Client
from workbench.runs import recording, store

if __name__ == "__main__":
    client = Client(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    with workbench.watch(client, name="killed") as run:
        client.submit(sum, [1, 2]).result()
        print(run.id, flush=True)
        while not (store.folder(run.id) / "events.arrows").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_script_that_is_killed_the_run_is_lost_and_its_events_are_there(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=60)
    run = store.get(ended.stdout.strip())
    assert run.status == "lost"
    assert run.parameters["source"].startswith("# script.py, line 9\nwith workbench.watch(client, name=")
    assert (store.folder(run.id) / "events.arrows").exists()


def test_the_record_of_a_short_run_tells_of_its_workers_until_its_end(quick_client: Client) -> None:
    with workbench.watch() as run:
        quick_client.submit(time.sleep, 0.25, pure=False).result()
    found = read_events(store.folder(run.id) / "events.parquet")
    ended = max(task.stop for task in found.tasks)
    latest = {sample.worker: sample.time for sample in found.samples}
    assert set(latest) == set(quick_client.scheduler_info()["workers"])
    assert min(latest.values()) > ended - 0.11


class Slow:
    """Takes as long to be measured as what goes to the disk does."""

    def __sizeof__(self) -> int:
        time.sleep(0.02)
        return 100


def test_the_disk_is_seen_where_values_went_there_and_nowhere_else(quick_client: Client) -> None:
    def kinds(run: Any) -> set[str]:
        return {task.kind for task in read_events(store.folder(run.id) / "events.parquet").tasks}

    with workbench.watch() as run:
        quick_client.submit(Slow, pure=False).result()
    assert kinds(run) == {"compute"}
    thresholds = {f"distributed.worker.memory.{name}": False for name in ("spill", "pause", "terminate")}
    small: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "memory_limit": "400MB"}
    with (
        dask.config.set(thresholds | {"distributed.worker.memory.target": 0.1}),
        LocalCluster(**small, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        workbench.watch(client) as run,
    ):
        client.gather(client.map(len, client.map(bytes, [30_000_000 + n for n in range(6)])))
    assert {"compute", "disk-write"} <= kinds(run) <= {"compute", "disk-write", "disk-read"}


def test_what_the_cluster_had_when_watching_began_is_another_computation(quick_client: Client) -> None:
    before = quick_client.map(slowly, range(12), pure=False)
    kept = quick_client.submit(one_more, quick_client.submit(one_more, 100))
    kept.result()
    with workbench.watch() as nothing:
        pass
    assert nothing.progress.total == nothing.progress.done == nothing.result["tasks"] == 0
    before += quick_client.map(slowly, range(50), pure=False)
    with workbench.watch() as run:
        more = quick_client.map(slowly, range(50, 53), pure=False)
        quick_client.gather(more)
        quick_client.gather(before)
        # It was let go of, and is made again for this.
        assert quick_client.submit(one_more, 100).result() == 101
    assert run.result["tasks"] == run.progress.done == run.progress.total
    tasks = read_events(store.folder(run.id) / "events.parquet").tasks
    own = [task.name for task in tasks if task.kind == "compute" and not task.source]
    assert sorted(own) == ["one_more", *3 * ["slowly"]]
    assert run.result["tasks_of_others"] > 0


def slowly(number: int) -> int:
    time.sleep(0.1)
    return number


def test_a_run_on_a_cluster_whose_workers_are_gone_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_STILL", 1.0)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        workbench.watch(client) as run,
    ):
        waits = client.submit(one_more, 1)
        until(lambda: store.get(run.id).progress.waits == "The cluster has no workers. This goes on once it has one.")
        cluster.scale(1)
        assert waits.result() == 2
        until(lambda: store.get(run.id).progress.waits is None)
