from __future__ import annotations

import asyncio
import platform
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from IPython.core.interactiveshell import InteractiveShell

import workbench
from tests.conftest import using_data_folder
from tests.waiting import until
from workbench.cli import main
from workbench.clusters import control, records, security
from workbench.clusters.connect import _compare_versions, connect
from workbench.clusters.launch import launch
from workbench.clusters.records import ClusterRecord
from workbench.clusters.requests import answering, short
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError, FailedError, MissingError, NotFoundError, WorkbenchError


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, spec: ClusterSpec) -> Iterator[ClusterRecord]:
    with using_data_folder(tmp_path_factory.mktemp("data")):
        record = launch(spec.model_copy(update={"n_workers": 1}), name="calm-otter", force=True)
        yield asyncio.run(control.wait(record.name, timeout=30))


def test_a_client_computes_and_becomes_the_default_one(running: ClusterRecord) -> None:
    with workbench.connect("calm-otter") as client:
        assert dask.delayed(sum)([1, 2, 3]).compute(scheduler=client) == 6
        assert client is distributed.default_client()


def test_a_client_can_be_awaited(running: ClusterRecord) -> None:
    async def compute() -> int:
        async with connect("calm-otter", asynchronous=True, client_name="mine") as client:
            assert client.id.startswith("Client-mine-")
            return int(await client.submit(sum, [1, 2]))

    assert asyncio.run(compute()) == 3


def test_a_notebook_whose_cluster_was_stopped_says_so(
    data_folder: Path, spec: ClusterSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = InteractiveShell.instance()
    launch(spec.model_copy(update={"n_workers": 1}), name="brief-otter", force=True)
    asyncio.run(control.wait("brief-otter", timeout=30))
    try:
        client = connect("brief-otter")
        shell.run_cell("1 + 1")
        assert "has ended" not in capsys.readouterr().err
        workbench.Session().stop("brief-otter")
        until(lambda: client.status != "running")
        shell.run_cell("1 + 1")
        assert "Cluster brief-otter has ended. Until you connect to another one" in capsys.readouterr().err
        shell.run_cell("1 + 1")
        assert "has ended" not in capsys.readouterr().err, "once is enough"
        client.close()
    finally:
        InteractiveShell.clear_instance()


def test_an_unknown_name_says_which_exist(running: ClusterRecord) -> None:
    with pytest.raises(NotFoundError, match=r"Unknown cluster 'warm-yak'. There are: calm-otter."):
        connect("warm-yak")


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        ("starting", ConflictError, "still starting .preparing, 0 of 2 workers"),
        ("stopping", ConflictError, "is being stopped"),
        ("failed", FailedError, "failed to start. No room."),
        ("lost", FailedError, "was lost. No room."),
    ],
)
def test_a_cluster_that_is_not_ready_says_why(
    data_folder: Path, spec: ClusterSpec, asleep: dict[str, Any], status: Any, error: type[Exception], says: str
) -> None:
    fields = {"n_workers_expected": 2, "message": "No room.", "created": time.time()}
    records.create(ClusterRecord(name="bold-heron", spec=spec, status=status, **fields, **asleep))
    with pytest.raises(error, match=f"Cluster bold-heron .*{says}"):
        connect("bold-heron")


def test_a_scheduler_that_does_not_answer_says_how_to_stop_it(
    data_folder: Path, spec: ClusterSpec, asleep: dict[str, Any]
) -> None:
    plain = spec.model_copy(update={"protocol": "tcp"})
    records.create(
        ClusterRecord(name="bold-heron", spec=plain, status="ready", scheduler_address="tcp://127.0.0.1:9", **asleep)
    )
    with pytest.raises(
        FailedError, match=r"bold-heron does not answer at tcp://127.0.0.1:9.*workbench down bold-heron"
    ):
        connect("bold-heron", timeout=0.2)


def test_a_scheduler_that_takes_a_connection_and_says_nothing_is_told(
    data_folder: Path, spec: ClusterSpec, asleep: dict[str, Any]
) -> None:
    plain = spec.model_copy(update={"protocol": "tcp"})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        records.create(
            ClusterRecord(name="bold-heron", spec=plain, status="ready", scheduler_address=address, **asleep)
        )
        with pytest.raises(FailedError, match=rf"bold-heron does not answer at {address} \(it says nothing\)"):
            connect("bold-heron", timeout=0.5)


@pytest.mark.parametrize("verb", ["scale bold-heron 1", "scale bold-heron --adapt 0 1", "scale bold-heron --restart"])
def test_a_verb_that_nobody_hears_is_an_error(
    verb: str, data_folder: Path, spec: ClusterSpec, asleep: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    records.create(ClusterRecord(name="bold-heron", spec=spec, status="ready", **asleep))
    assert main(verb.split()) != 0
    assert "Nothing was done: the process that owns bold-heron doesn't answer" in capsys.readouterr().err


def test_an_owner_that_is_stuck_is_told_and_one_of_another_version_says_so(
    data_folder: Path, spec: ClusterSpec, asleep: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.clusters.requests._PATIENCE", 0.2)
    record = ClusterRecord(name="bold-heron", spec=spec, status="ready", **asleep)
    records.create(record)

    async def refuse() -> None:
        raise FailedError("No.")

    async def story() -> None:
        async with answering(records.folder("bold-heron"), {"restart": refuse}):
            with pytest.raises(FailedError, match=r"^No\.$"):
                await control.restart_workers(record.name)
            with pytest.raises(FailedError, match="of another version of dask-workbench, knows no 'scale'"):
                await control.scale(record.name, 1)
        with socket.socket(socket.AF_UNIX) as silent, short(records.folder("bold-heron")) as path:
            (records.folder("bold-heron") / "owner.sock").unlink(missing_ok=True)
            silent.bind(f"{path}/owner.sock")
            silent.listen()
            with pytest.raises(FailedError, match=r"doesn't answer .it is stuck"):
                await control.restart_workers(record.name)

    asyncio.run(story())


def test_only_its_person_may_ask_an_owner(running: ClusterRecord) -> None:
    assert (records.folder(running.name) / "owner.sock").stat().st_mode & 0o777 == 0o600


def test_a_cluster_whose_keys_are_gone_says_so(data_folder: Path, spec: ClusterSpec, asleep: dict[str, Any]) -> None:
    records.create(ClusterRecord(name="bold-heron", spec=spec, status="ready", **asleep))
    with pytest.raises(MissingError, match="keys of bold-heron are gone"):
        security.load(records.read("bold-heron"))


def test_a_cluster_without_encryption_needs_no_keys(spec: ClusterSpec) -> None:
    assert security.load(ClusterRecord(name="calm-otter", spec=spec.model_copy(update={"protocol": "tcp"}))) is None


def test_another_dask_is_warned_of(running: ClusterRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "__version__", "2020.1.0")
    with pytest.warns(UserWarning, match=r": dask is \S+ on calm-otter, and 2020\.1\.0 here\. Work in"):
        connect("calm-otter").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connect("calm-otter", client_name="run-of-ours").close()


def test_another_python_is_warned_of(spec: ClusterSpec) -> None:
    record = ClusterRecord(name="calm-otter", spec=spec, versions={"python": "3.99.1", "dask": dask.__version__})
    with pytest.warns(UserWarning, match=r"may end .*: python is 3\.99\.1 on calm-otter, and 3\."):
        _compare_versions(record)
    same = record.model_copy(update={"versions": {"python": platform.python_version()}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _compare_versions(same)


def test_the_same_dask_is_not_warned_of(running: ClusterRecord) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connect("calm-otter").close()


def test_a_notebooks_client_is_named_after_its_kernel(running: ClusterRecord) -> None:
    code = """
import sys
from ipykernel.kernelapp import IPKernelApp
app = IPKernelApp.instance(connection_file="/nowhere/kernel-0815-4711.json")
import workbench
client = workbench.connect("calm-otter")
print(client.id)
client.close()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.startswith("Client-kernel-0815-4711-")


# workbench.start


def test_start_gives_a_cluster_that_its_block_stops_also_where_an_event_loop_runs(data_folder: Path) -> None:
    seen: list[str] = []
    small = {"n_workers": 1, "threads_per_worker": 1, "memory": "512MiB"}

    async def cell() -> None:
        with workbench.start("cpu", **small, on_change=lambda record: seen.append(record.stage)) as cluster:  # type: ignore[arg-type]
            assert cluster.record.status == "ready"
            assert cluster.client.submit(sum, [1, 2]).result() == 3
            assert cluster.client is cluster.client
            assert repr(cluster) == f"<Cluster {cluster.name}: ready, {cluster.record.spec.describe()}>"
        assert seen[-1] == "ready"
        assert records.names() == ()
        assert repr(cluster) == f"<Cluster {cluster.name}: stopped>"
        cluster.stop()

    asyncio.run(cell())


def test_a_start_that_is_not_waited_for_long_enough_is_called_off(data_folder: Path) -> None:
    with pytest.raises(FailedError, match="still starting after 0 s"):
        workbench.start("cpu", n_workers=1, memory="512MiB", timeout=0)
    assert records.names() == ()


def test_a_bad_choice_starts_nothing(data_folder: Path) -> None:
    with pytest.raises(WorkbenchError, match="tpu"):
        workbench.start("tpu")
    with pytest.raises(WorkbenchError, match="n_workers"):
        workbench.start("cpu", n_workers=-1)
    assert records.names() == ()


def test_importing_workbench_loads_nothing_heavy() -> None:
    code = "import sys, workbench; print([m for m in ('dask', 'distributed', 'bokeh', 'pydantic') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(getattr(workbench, name) is not None for name in workbench.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        workbench.nonsense  # noqa: B018
