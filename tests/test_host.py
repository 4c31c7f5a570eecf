"""Real host processes with real workers: what runs, what is on disk, and that nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest

from tests.conftest import using_data_folder
from tests.views import html_of
from tests.waiting import until
from workbench.clusters import control, records, security
from workbench.clusters.connect import connect
from workbench.clusters.launch import launch
from workbench.clusters.plan import explained
from workbench.clusters.records import ClusterRecord
from workbench.clusters.requests import short
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, FailedError, MissingError, NotFoundError
from workbench.jobs import folders, processes

MIB = 2**20


def started(spec: ClusterSpec, **options: Any) -> ClusterRecord:
    return asyncio.run(control.wait(launch(spec, force=True, **options).name, timeout=30))


def family(record: ClusterRecord) -> list[psutil.Process]:
    """Return the host and all its descendants, workers included."""
    host = psutil.Process(record.pid)
    return [host, *host.children(recursive=True)]


def session(pid: int | None) -> list[int]:
    """Pids of living processes in the session that this process led."""
    assert pid is not None
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.Error):
            continue
    return found


def worker_pids(record: ClusterRecord) -> set[int]:
    with connect(record.name) as client:
        return set(client.run(os.getpid).values())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, spec: ClusterSpec) -> Iterator[ClusterRecord]:
    """Provide a cluster for tests that leave it unchanged, whose threads Dask samples as it does for users."""
    with using_data_folder(tmp_path_factory.mktemp("data")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "True")
        yield started(spec, name="calm-otter")


# Starting


def test_a_start_returns_at_once_and_passes_through_its_stages_until_sigterm(
    data_folder: Path, spec: ClusterSpec
) -> None:
    asked = time.perf_counter()
    record = launch(spec, force=True)
    assert time.perf_counter() - asked < 0.5
    assert (record.status, record.stage, record.n_workers_expected) == ("starting", "preparing", 2)
    seen: list[ClusterRecord] = []
    ready = asyncio.run(control.wait(record.name, seen.append))
    stages = [item.stage for item in seen]
    assert stages == sorted(stages, key=["preparing", "scheduler", "workers", "ready"].index)
    assert stages[0] == "preparing"
    assert stages[-1] == "ready"
    assert [item.n_workers for item in seen] == sorted(item.n_workers for item in seen)
    assert (ready.n_workers, ready.pid) == (2, record.pid)
    assert ready.versions["dask"] == dask.__version__
    assert str(ready.scheduler_address).startswith("tls://127.0.0.1:")
    os.kill(int(record.pid or 0), signal.SIGTERM)
    assert until(lambda: session(record.pid) == [])
    assert records.names() == ()


def test_workers_are_what_the_spec_says(running: ClusterRecord) -> None:
    with connect(running.name) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert [worker["nthreads"] for worker in workers] == [1, 1]
        assert [worker["memory_limit"] for worker in workers] == [512 * MIB] * 2
        blas = client.run(lambda: {key: os.environ[key] for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")})
    assert all(values == {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} for values in blas.values())


def test_the_host_belongs_to_nobody_who_could_take_it_along(running: ClusterRecord) -> None:
    assert running.pid is not None
    assert os.getsid(running.pid) == running.pid
    assert os.getsid(running.pid) != os.getsid(0)


def test_the_process_that_workers_are_forked_from_has_one_thread(running: ClusterRecord) -> None:
    # Forking a process with more is unsafe.
    workers = [process for process in family(running) if process.pid in worker_pids(running)]
    parents = {process.ppid() for process in workers}
    assert len(parents) == 1
    if sys.platform == "linux":
        threads = [path.read_text().strip() for path in Path(f"/proc/{parents.pop()}/task").glob("*/comm")]
        # Where pandas is installed Dask loads it, and so pyarrow, whose allocator stops its thread before each fork.
        assert [name for name in threads if name != "jemalloc_bg_thd"] == threads[:1]


def test_everything_listens_on_the_loopback_interface_only(running: ClusterRecord) -> None:
    sockets = [
        connection.laddr
        for process in family(running)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    # The scheduler, two nannies, two workers and the workers' ports for pages, which hold none.
    assert len(sockets) >= 7
    assert {address.ip for address in sockets} == {"127.0.0.1"}


def test_files_of_a_cluster_are_the_users_alone(running: ClusterRecord) -> None:
    folder = records.folder(running.name)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"record.json", "host.log", "ca.pem", "cert.pem", "key.pem"} <= {path.name for path in files}
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {path.name: "0o600" for path in files}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "tls").stat().st_mode & 0o777 == 0o700


def test_who_has_not_the_keys_is_refused(running: ClusterRecord) -> None:
    from distributed.core import rpc
    from distributed.security import Security

    address = str(running.scheduler_address)
    port = address.rsplit(":", 1)[1]

    async def ask(address: str, **arguments: Any) -> Any:
        async with rpc(address, timeout=2, **arguments) as scheduler:
            return await scheduler.identity()

    own = {"connection_args": security.load(running).get_connection_args("client")}  # type: ignore[union-attr]
    others = {"connection_args": Security.temporary().get_connection_args("client")}
    assert asyncio.run(ask(address, **own))["type"] == "Scheduler"
    with pytest.raises(OSError):
        asyncio.run(ask(f"tcp://127.0.0.1:{port}"))
    with pytest.raises(OSError):
        asyncio.run(ask(address, **others))


def test_dasks_own_dashboard_is_there_when_it_is_asked_for(running: ClusterRecord) -> None:
    path = Path(str(running.dashboard_address).removeprefix("unix:"))
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    # The first visitor is redirected to the same page, not to what looks like another server.
    assert asked(path, "/x/https:evil.example")[1]["Location"] == "./https:evil.example"
    status, _, page = asked(path, "/status")
    assert (status, b"Bokeh" in page) == (200, True)
    assert asked(path, "/info/main/workers.html")[0] == 200


def asked(path: Path, page: str) -> tuple[int, Any, bytes]:
    """Status, headers and content of a page at a socket."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    with contextlib.closing(connection), short(path.parent) as folder:
        connection.sock.connect(f"{folder}/{path.name}")
        connection.request("GET", page)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def test_no_port_of_a_cluster_shows_its_pages(running: ClusterRecord) -> None:
    host = psutil.Process(running.pid)
    ports = {
        each.laddr.port
        for process in (host, *host.children(recursive=True))
        for each in process.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }
    assert len(ports) > 2
    for port in ports:
        for page in ("status", "json/counts.json", "info/main/workers.html", "metrics", "health", "logs"):
            with pytest.raises((OSError, http.client.HTTPException)):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=20)


def test_a_cluster_without_encryption_has_no_keys(data_folder: Path, spec: ClusterSpec) -> None:
    record = started(spec.model_copy(update={"protocol": "tcp", "n_workers": 1}), agreed=True)
    assert str(record.scheduler_address).startswith("tcp://127.0.0.1:")
    assert not (records.folder(record.name) / "tls").exists()
    with connect(record.name) as client:
        assert client.submit(sum, [1, 2]).result() == 3


def test_code_of_a_spec_gives_the_same_cluster_in_a_fresh_python(running: ClusterRecord, tmp_path: Path) -> None:
    script = tmp_path / "cluster.py"
    tell = """
    import json
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    print(json.dumps([cluster.scheduler_address.split(":")[0], *([w["nthreads"], w["memory_limit"]] for w in workers)]))
    client.close()
    cluster.close()
"""
    script.write_text(explained(running.spec).code + tell)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-P", str(script)], capture_output=True, text=True, timeout=60, env=environment, check=True
    )
    assert json.loads(run.stdout.splitlines()[-1]) == ["tls", [1, 512 * MIB], [1, 512 * MIB]]
    with connect(running.name) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        ours = [str(running.scheduler_address).split(":")[0], *([w["nthreads"], w["memory_limit"]] for w in workers)]
    assert ours == json.loads(run.stdout.splitlines()[-1])


def test_a_cluster_runs_in_the_environment_that_the_spec_names(
    data_folder: Path, spec: ClusterSpec, tmp_path: Path
) -> None:
    try:
        importlib.metadata.version("dask-workbench")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("dask-workbench runs from its folder here, and is in no environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    here, there = (
        Path(sysconfig.get_path("purelib", vars={"base": str(base)})) for base in (sys.prefix, tmp_path / "env")
    )
    (there / "here.pth").write_text(f"import site; site.addsitedir({str(here)!r})\n")
    record = started(spec.model_copy(update={"n_workers": 1, "python": str(tmp_path / "env" / "bin" / "python")}))
    with connect(record.name) as client:
        assert list(client.run(lambda: sys.prefix).values()) == [str(tmp_path / "env")]


def test_a_host_may_be_forked_from_a_process_that_is_warm(data_folder: Path, spec: ClusterSpec) -> None:
    record = ClusterRecord(name="calm-otter", spec=spec, created=time.time(), place=processes.place())
    records.create(record)
    code = """
import os
from workbench.clusters import host
if os.fork() == 0:
    os.setsid()
    host.main("calm-otter")
"""
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    ready = asyncio.run(control.wait("calm-otter", timeout=30))
    assert ready.n_workers == 2
    asyncio.run(control.stop(ready))
    assert until(lambda: session(ready.pid) == [], 2)


# While it runs


def test_clients_that_come_and_go_are_in_the_record(running: ClusterRecord) -> None:
    with connect(running.name, client_name="kernel-4711") as client:
        assert client.id.startswith("Client-kernel-4711-")
        assert until(lambda: client.id in records.read(running.name).clients)
    assert until(lambda: client.id not in records.read(running.name).clients)


def test_logs_of_host_scheduler_and_workers_can_be_read(running: ClusterRecord) -> None:
    with connect(running.name) as client:
        client.run_on_scheduler(int)
    logs = asyncio.run(control.logs(running.name))
    assert "function 'int'" not in logs["host"] + logs["scheduler"]  # a page asks several times a second
    assert "Scheduler at:" in logs["host"]
    assert "Scheduler at:" in logs["scheduler"]
    assert {key.partition(", tls://")[0] for key in logs} == {"host", "scheduler", "worker 0", "worker 1"}


def test_scaling_changes_the_workers_and_keeps_the_data(running: ClusterRecord) -> None:
    with connect(running.name) as client:
        data = client.scatter({f"key-{number}": number for number in range(20)}, hash=False)
        asyncio.run(control.scale(running.name, 3, force=True))
        assert until(lambda: records.read(running.name).n_workers == 3)
        asyncio.run(control.scale(running.name, 1))
        assert until(lambda: records.read(running.name).n_workers == 1)
        assert records.read(running.name).n_workers_expected == 1
        assert client.gather(data) == {f"key-{number}": number for number in range(20)}
        asyncio.run(control.scale(running.name, 2, force=True))
        assert until(lambda: records.read(running.name).n_workers == 2)


def test_adapting_stays_between_its_bounds_and_scaling_ends_it(running: ClusterRecord) -> None:
    asyncio.run(control.adapt(running.name, 1, 3, force=True))
    assert records.read(running.name).adaptive == (1, 3)
    assert until(lambda: records.read(running.name).n_workers == 1)
    with connect(running.name) as client:
        tasks = client.map(lambda _: time.sleep(2), range(30), pure=False)
        assert until(lambda: records.read(running.name).n_workers == 3)
        del tasks
    asyncio.run(control.scale(running.name, 2, force=True))
    assert until(lambda: records.read(running.name).n_workers == 2)
    time.sleep(1.5)
    record = records.read(running.name)
    assert (record.adaptive, record.n_workers, record.n_workers_expected) == (None, 2, 2)


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "2"])
def test_a_number_of_workers_that_is_none_is_refused(running: ClusterRecord, n: Any) -> None:
    with pytest.raises(BadInputError, match=r"n_workers is .* whole number, 1 or more"):
        asyncio.run(control.scale(running.name, n))


def test_bounds_the_wrong_way_round_are_refused(running: ClusterRecord) -> None:
    with pytest.raises(BadInputError, match=r"maximum is 1.* 3 or more"):
        asyncio.run(control.adapt(running.name, 3, 1))


def test_scaling_beyond_the_memory_is_refused_with_the_numbers(running: ClusterRecord) -> None:
    with pytest.raises(ConflictError, match=r"GiB|worker"):
        asyncio.run(control.scale(running.name, 100_000))
    assert records.read(running.name).n_workers_expected == 2


def test_a_worker_that_is_killed_comes_back(running: ClusterRecord) -> None:
    before = worker_pids(running)
    os.kill(min(before), signal.SIGKILL)
    assert until(lambda: records.read(running.name).n_workers == 1)
    assert until(lambda: records.read(running.name).n_workers == 2)
    after = worker_pids(running)
    assert len(after & before) == 1


def _hold(n_bytes: int) -> None:
    held = []
    while sum(map(len, held)) < n_bytes:
        held.append(b"x" * (16 * MIB))
        time.sleep(0.02)
    time.sleep(10)


def test_a_worker_that_outgrew_its_memory_is_told_of_until_a_restart(running: ClusterRecord) -> None:
    with connect(running.name) as client:
        worker = min(client.scheduler_info()["workers"])
        task = client.submit(_hold, 600 * MIB, workers=[worker], pure=False)
        assert until(lambda: records.read(running.name).warning)
        task.cancel()
    said = str(records.read(running.name).warning)
    assert re.match(r"Worker \d was started again at \d\d:\d\d", said)
    assert "its data outgrew the 512 MiB that it may use" in said
    assert until(lambda: records.read(running.name).n_workers == 2)
    asyncio.run(control.restart_workers(running.name))
    assert until(lambda: records.read(running.name).warning is None)


def test_a_worker_that_is_slow_to_come_back_is_waited_for(
    data_folder: Path, spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "60ms")
    record = started(spec)
    os.kill(min(worker_pids(record)), signal.SIGKILL)
    assert until(lambda: records.read(record.name).n_workers == 1)
    assert until(lambda: records.read(record.name).n_workers == 2)
    time.sleep(1)  # Dask's cluster ended it as it had just come
    assert records.read(record.name).n_workers == 2


def test_a_worker_that_a_client_retired_returns_when_asked_for(running: ClusterRecord) -> None:
    with connect(running.name) as client:
        client.retire_workers(workers=list(client.scheduler_info()["workers"])[:1], close_workers=True)
    assert until(lambda: records.read(running.name).n_workers == 1)

    def asked() -> bool:
        asyncio.run(control.scale(running.name, 2))
        return records.read(running.name).n_workers == 2

    gone = "1 worker ended for good. Restart the workers, or scale, to have 2."
    assert until(lambda: records.read(running.name).warning == gone)
    assert until(asked)
    assert until(lambda: records.read(running.name).warning is None)


def test_a_restart_brings_back_workers_that_have_ended(running: ClusterRecord) -> None:
    with connect(running.name) as client:
        client.retire_workers(workers=list(client.scheduler_info()["workers"]), close_workers=True)
    assert until(lambda: "2 workers ended" in str(records.read(running.name).warning))
    asyncio.run(control.restart_workers(running.name))
    assert until(lambda: records.read(running.name).n_workers == 2)
    assert until(lambda: records.read(running.name).warning is None)


def test_restarting_gives_new_workers(running: ClusterRecord) -> None:
    before = worker_pids(running)
    asyncio.run(control.restart_workers(running.name))
    assert until(lambda: records.read(running.name).n_workers == 2)
    assert worker_pids(running).isdisjoint(before)


def test_one_worker_is_restarted_and_the_other_left_alone(running: ClusterRecord) -> None:
    # Their names count on where another test has scaled.
    one, other = (each.address for each in asyncio.run(control.workers(running.name)))
    with connect(running.name) as client:
        pids = client.run(os.getpid)
        asyncio.run(control.restart_worker(running.name, one))
        # The scheduler may know the old process for a moment longer.
        after = until(lambda: len(now := client.run(os.getpid, on_error="ignore")) == 2 and now != pids and now)
    assert after[other] == pids[other]
    assert len({*after.values(), *pids.values()}) == 3
    with pytest.raises(NotFoundError, match="has no worker tcp://nobody:1"):
        asyncio.run(control.restart_worker(running.name, "tcp://nobody:1"))


def test_threads_memory_and_silence_of_each_worker_are_told(running: ClusterRecord) -> None:
    workers = asyncio.run(control.workers(running.name))
    assert {each.threads for each in workers} == {1}
    assert all(0 < each.memory < each.memory_limit and each.silent_for < 5 for each in workers)


# Stopping


def test_stopping_does_not_wait_for_work_and_leaves_nothing(data_folder: Path, spec: ClusterSpec) -> None:
    record = started(spec)
    assert len(session(record.pid)) >= 3
    with connect(record.name) as client:
        work = client.submit(time.sleep, 60)
        assert until(lambda: any(client.processing().values()))
        asked = time.perf_counter()
        asyncio.run(control.stop(record))
        assert time.perf_counter() - asked < 6
        del work
    assert until(lambda: session(record.pid) == [], 2)
    assert records.names() == ()
    assert [path.name for path in (data_folder / "clusters").iterdir()] == [".lock"]
    with pytest.raises(NotFoundError):
        connect(record.name)


@pytest.mark.parametrize("delay", [0.0, 0.45])
def test_a_start_can_be_called_off_at_any_moment(data_folder: Path, spec: ClusterSpec, delay: float) -> None:
    record = launch(spec, force=True)
    time.sleep(delay)
    asyncio.run(control.stop(record))
    assert until(lambda: session(record.pid) == [], 2)
    assert records.names() == ()


def test_a_host_that_does_not_listen_is_killed(data_folder: Path, spec: ClusterSpec) -> None:
    record = started(spec)
    os.kill(int(record.pid or 0), signal.SIGSTOP)
    asyncio.run(control.stop(record, timeout=0.3))
    assert until(lambda: session(record.pid) == [])
    assert records.names() == ()


def test_a_busy_scheduler_still_gives_signs_of_life(data_folder: Path, spec: ClusterSpec) -> None:
    def blocked(path: str, seconds: float) -> float:
        import os
        import time

        began = time.time()
        time.sleep(seconds)
        return os.stat(path).st_mtime - began  # noqa: PTH116

    record = started(spec)
    with connect(record.name) as client:
        path = str(records.folder(record.name) / "heartbeat")
        assert client.run_on_scheduler(blocked, path, folders.HEARTBEAT + 2) > 0


def test_a_clients_shutdown_ends_the_cluster(data_folder: Path, spec: ClusterSpec) -> None:
    record = started(spec)
    connect(record.name).shutdown()
    assert until(lambda: records.names() == ())
    assert until(lambda: session(record.pid) == [])


def test_removing_the_folder_by_hand_ends_the_cluster_at_its_next_word(data_folder: Path, spec: ClusterSpec) -> None:
    record = started(spec)
    client = connect(record.name)
    records.remove(record.name)
    client.close()
    assert until(lambda: session(record.pid) == [])
    assert records.names() == ()


def test_an_idle_cluster_ends_itself_though_a_client_is_connected(data_folder: Path, spec: ClusterSpec) -> None:
    record = started(spec.model_copy(update={"idle_timeout": 1.0, "n_workers": 1}))
    with connect(record.name) as client:
        assert until(lambda: records.read(record.name).expires_at is not None, 2)
        work = client.submit(time.sleep, 2.5)
        time.sleep(2)
        busy = records.read(record.name)
        assert (busy.status, busy.expires_at) == ("ready", None)
        work.result()
        assert until(lambda: session(record.pid) == [], 6)
    assert records.names() == ()


# Dying and failing


def test_a_killed_host_takes_its_workers_along_and_the_next_reader_finds_the_truth(
    data_folder: Path, spec: ClusterSpec
) -> None:
    record = started(spec)
    members = family(record)
    assert len(members) >= 4
    members[0].kill()
    assert until(lambda: session(record.pid) == [], 10)
    found = records.read(record.name)
    assert (found.status, found.n_workers) == ("lost", 0)
    assert "was killed (signal 9)" in str(found.message)
    assert found.log_tail
    assert not (records.folder(record.name) / "tls").exists()
    with pytest.raises(FailedError, match=rf"{record.name} was lost.*Start the cluster again"):
        connect(record.name)
    asyncio.run(control.stop(found))
    assert records.names() == ()


def test_what_a_killed_host_could_not_take_along_is_ended_by_the_next_reader(
    data_folder: Path, spec: ClusterSpec
) -> None:
    record = started(spec)
    workers = worker_pids(record)
    stuck = min(workers)
    os.kill(stuck, signal.SIGSTOP)
    os.kill(int(record.pid or 0), signal.SIGKILL)
    assert until(lambda: workers.intersection(session(record.pid)) == {stuck})
    assert records.read(record.name).status == "lost"
    assert until(lambda: session(record.pid) == [])


def test_workers_that_find_no_room_fail_the_start_with_the_numbers(data_folder: Path, spec: ClusterSpec) -> None:
    record = launch(spec.model_copy(update={"memory_limit": 20 * MIB}), force=True)
    with pytest.raises(FailedError, match="may use only 20 MiB"):
        asyncio.run(control.wait(record.name, timeout=30))
    failed = records.read(record.name)
    assert (failed.status, failed.scheduler_address) == ("failed", None)
    assert failed.log_tail
    assert until(lambda: session(record.pid) == [])
    assert not (records.folder(record.name) / "tls").exists()


def test_a_start_that_takes_too_long_has_failed(data_folder: Path, spec: ClusterSpec) -> None:
    with dask.config.set({"workbench.start-timeout": "50ms"}):
        record = launch(spec, force=True)
    with pytest.raises(FailedError, match=r"failed to start. After 50 ms .*workbench.start-timeout"):
        asyncio.run(control.wait(record.name, timeout=30))
    assert until(lambda: session(record.pid) == [])
    assert records.read(record.name).status == "failed"


def test_a_host_that_can_not_import_dask_fails_with_its_last_words(
    data_folder: Path, spec: ClusterSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "distributed.py").write_text("raise RuntimeError('half an installation')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    record = launch(spec, force=True)
    with pytest.raises(FailedError, match="half an installation"):
        asyncio.run(control.wait(record.name, timeout=30))
    assert until(lambda: session(record.pid) == [])


def test_a_python_that_is_not_there_starts_nothing(data_folder: Path, spec: ClusterSpec) -> None:
    with pytest.raises((BadInputError, MissingError), match="nowhere"):
        launch(spec.model_copy(update={"python": "/nowhere/bin/python"}), force=True)
    assert records.names() == ()


def test_markers_differ_between_two_clusters_of_one_name(data_folder: Path) -> None:
    folder = records.folder("calm-otter")
    assert processes.marker(folder, 1.0) != processes.marker(folder, 2.0)


def test_every_face_tells_the_memory_of_the_workers_and_none_that_of_the_host(running: ClusterRecord) -> None:
    from workbench.cli.clusters import cluster_json
    from workbench.views.answers import cluster_answer

    assert until(lambda: len(records.read(running.name).worker_pids) == 2)
    record = records.read(running.name)
    assert set(record.worker_pids) == worker_pids(record)
    with connect(record.name) as client:
        held = sum(client.run(lambda: psutil.Process().memory_info().rss).values())
    # They may let go of some, or take some, between two looks; the host holds as much as both.
    told = {cluster_answer(record, "/")["memory_used"], cluster_json(record)["memory_used"]}
    assert told
    assert all(abs(each - held) < 0.2 * held for each in told)
    assert re.search(r">\d+ MiB of 1 GiB<", html_of("clusters"))
    assert records.memory_used(record.model_copy(update={"worker_pids": ()})) is None


def test_nothing_stays_in_the_temporary_folder_not_even_of_a_killed_host(
    data_folder: Path, spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short, for a socket's path may have a hundred characters.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:

        def there(pattern: str) -> set[Path]:
            return {path for path in Path(folder).glob(pattern) if path.is_dir()}

        monkeypatch.setenv("TMPDIR", folder)
        killed = started(spec.model_copy(update={"n_workers": 1}))
        left = there("workbench-*")
        assert len(left) == 2, "of the host's sockets, and of what is spilled"
        host = psutil.Process(killed.pid)
        host.kill()
        # Until it is gone it holds the lock on its folder.
        host.wait(30)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        assert records.read(killed.name).status == "lost"
        assert not there("workbench-*")
        other = started(spec.model_copy(update={"n_workers": 1}), name="bold-heron")
        asyncio.run(control.stop(other))
        assert not there("workbench-*") | there("dask-scratch-space") | there("pymp-*")
