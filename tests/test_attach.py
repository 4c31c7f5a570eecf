"""A scheduler that runs already: attached to, used, and left as it was."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

import workbench
from tests import other_python
from tests.bare import HIDING
from tests.waiting import until
from workbench import Session, threads
from workbench.cli import main
from workbench.clusters import control, dashboard, handle, records
from workbench.clusters.budget import budget
from workbench.clusters.handle import Handle, abouts
from workbench.clusters.plan import plan
from workbench.clusters.profiles.address import Attached, spec_of
from workbench.clusters.profiles.lookup import profile
from workbench.errors import BadInputError, ConflictError, FailedError, WorkbenchError
from workbench.hardware import inventory
from workbench.runs import store, submit
from workbench.sent_code import About, differing_versions


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a scheduler with a worker, in an environment without this package."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(HIDING)
    with other_python.cluster(sys.executable, n_workers=1, environment={"PYTHONPATH": str(folder)}) as found:
        with Client(found) as client:
            client.wait_for_workers(1)
        yield found


def test_a_cluster_of_somebody_else_is_used_from_the_terminal_and_goes_on(
    address: str, data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", address, "--name", "there", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["name"], told["status"], told["n_workers"]) == ("there", "ready", 1)
    assert told["scheduler_address"] == address
    assert main(["run", "compressed_svd", "--cluster", "there", "-p", "size=2MiB", "--json"]) == 0
    run = json.loads(capfd.readouterr().out)
    assert run["status"] == "done"
    assert run["check"]["passed"]
    assert run["spec"]["profile"] == "address"
    going = Session().run("array_sum", {"size": "24GiB", "chunks": 1000}, "there")
    until(lambda: store.get(going.id).status == "running")
    assert main(["down", "there"]) == 0
    detached, left = capfd.readouterr().out.splitlines()
    assert detached == "Detached: there. It goes on there."
    assert left == f"Runs that go on there: {going.id}. To end one: workbench cancel {going.id}"
    assert main(["cancel", going.id]) == 0
    assert store.get(going.id).status == "cancelled"
    assert records.names() == ()
    with Client(address) as client:
        assert client.submit(sum, [1, 2]).result() == 3


def test_python_attaches_forecasts_and_compares(address: str, data_folder: Path) -> None:
    session = Session()
    there = workbench.attach(address, name="there")
    assert there.client.submit(sum, [1, 2]).result() == 3
    forecast = session.forecast("array_sum", {"size": "8MiB"}, "there")
    assert forecast.verdict == "fits"
    on = [f"address --address {address}"]
    beside = workbench.compare("array_sum", on=on, parameters={"size": "8MiB"}, repeats=1, warmup=0)
    assert [row.reason for row in beside.rows] == [None]
    assert beside.status == "done", beside.error
    there.stop()
    with Client(address) as client:
        assert len(client.scheduler_info()["workers"]) == 1


def test_a_forecast_asks_an_address_what_it_has(
    address: str, data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = f"address --address {address}"
    assert main(["forecast", "array_sum", "--on", line, "-p", "size=8MiB", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["verdict"] == "fits"
    assert main(["forecast", "array_sum", "--on", "address --address tcp://127.0.0.1:1"]) == 2
    assert "Nothing listens at tcp://127.0.0.1:1" in capfd.readouterr().err
    assert records.names() == ()


def test_what_was_not_started_here_takes_nothing_of_this_machine_is_not_changed_and_goes_on_when_detached(
    address: str, data_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}))
    assert spec_of(str(file)) == spec_of(address)
    there = workbench.attach(file)
    assert there.record.scheduler_address == address
    # It was started with --no-dashboard.
    assert there.record.dashboard_address is None
    assert budget(inventory(), records.read_all()).promised == 0
    for change in (lambda: there.scale(1), lambda: there.adapt(1, 2)):
        with pytest.raises(ConflictError, match="started elsewhere"):
            change()
    pid = there.record.pid
    there.stop()
    assert pid is not None
    until(lambda: not psutil.pid_exists(pid))
    with Client(address) as client:
        assert len(client.scheduler_info()["workers"]) == 1
    assert [each.name for each in (data_folder / "clusters").iterdir()] == [".lock"]


def test_what_is_no_address_is_told_and_so_is_a_client_that_was_closed(address: str, data_folder: Path) -> None:
    with Client(address, set_as_default=False) as closed:
        pass
    for given in (3, None, [address], closed):
        with pytest.raises(BadInputError, match="Give a scheduler's address, its file, or a Client that is conn"):
            workbench.attach(given)  # type: ignore[arg-type]


def test_a_file_that_names_no_scheduler_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text("[]")
    with pytest.raises(BadInputError, match="holds no address"):
        spec_of(str(file))
    with pytest.raises(BadInputError, match="can't be read"):
        spec_of(str(tmp_path / "none.json"))


def test_its_code_connects_without_this_package(address: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(spec_of(address).code, names)
    with names["client"] as client:
        assert client.submit(sum, [1, 2]).result() == 3
    assert "workbench" not in spec_of(address).code


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("tcp://127.0.0.1:1", "Nothing listens at tcp://127.0.0.1:1 "),
        ("no-such-host.invalid:8786", "There is no host 'no-such-host.invalid'"),
        ("http://127.0.0.1:8787/status", "address is 'http://127.0.0.1:8787/status'. Give the address"),
        ("tcp://127.0.0.1:99999", "address is 'tcp://127.0.0.1:99999'. Give the address"),
        (":", "Give the address of a scheduler"),
        ("tls://127.0.0.1:1", "ca is missing"),
    ],
)
def test_an_address_that_is_no_good_ends_with_2_and_a_sentence(
    given: str, sentence: str, data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", given]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
    assert records.names() == ()


@contextlib.contextmanager
def listening(answer: bytes | None, *, first: bool = False) -> Iterator[str]:
    """Open a port that is silent, or sends this answer, at once or after a request."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    held.append(connection)
                    if answer is None:
                        continue
                    if first or b"GET" in connection.recv(64):
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        for connection in held:
            connection.close()


@pytest.mark.parametrize(
    ("answer", "first", "sentence"),
    [
        (None, False, "said nothing within"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", False, "is a web server"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", True, "is an SSH server"),
        (struct.pack("<Q", 100) + b"\xff" * 100, True, "is no message of Dask's"),
    ],
)
def test_what_listens_and_is_no_scheduler_is_told(
    answer: bytes | None, first: bool, sentence: str, data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with listening(answer, first=first) as found:
        assert main(["up", found]) == 2
    assert sentence in capfd.readouterr().err


def test_one_that_falls_silent_between_its_check_and_the_start_is_told_in_a_sentence(data_folder: Path) -> None:
    with listening(None) as silent:
        one = Handle(spec_of(silent), Attached(spec_of(silent)))
        with pytest.raises(FailedError, match=r"doesn't answer \(nothing came within 4 s\)\. Attach to it again when"):
            asyncio.run(one.reachable())


def test_workers_that_do_not_say_what_they_have_are_asked_again(
    address: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def answer(place: Any) -> list[About]:
        asked.append(True)
        if len(asked) == 1:
            raise TimeoutError
        return abouts(place)

    async def ask(times: int) -> None:
        one = Handle(spec_of(address), Attached(spec_of(address)))
        for _ in range(times):
            await one.reachable()

    monkeypatch.setattr(handle, "abouts", answer)
    asyncio.run(ask(2))
    assert len(asked) == 1, "not at once: busy workers would hold up all else"
    monkeypatch.setattr(handle, "_AGAIN", 0.0)
    asked.clear()
    asyncio.run(ask(4))
    assert len(asked) == 2


def test_a_worker_is_no_scheduler(address: str, data_folder: Path) -> None:
    with Client(address) as client:
        worker = next(iter(client.scheduler_info()["workers"]))
    with pytest.raises(BadInputError, match="is a Dask worker"):
        workbench.attach(worker)


def test_schedulers_on_this_machine_are_found_but_for_our_own(
    address: str, data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "cpu", "--workers", "1", "--memory", "512MiB", "--json"]) == 0
    ours = json.loads(capfd.readouterr().out)
    assert main(["ls", "--nearby", "--json"]) == 0
    found = {each["address"]: each for each in json.loads(capfd.readouterr().out)}
    assert found[address]["n_workers"] == 1
    assert "scheduler" in found[address]["command"]
    assert ours["scheduler_address"] not in found
    assert main(["ls", "--nearby"]) == 0
    assert f"{address}  1 worker  " in capfd.readouterr().out


def test_the_scheduler_of_a_notebooks_client_is_found_and_the_client_itself_attached(
    address: str, data_folder: Path
) -> None:
    with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=":0") as made, Client(made):
        found = {each.address: each for each in Session().nearby()}
        assert found[made.scheduler_address].command == "of the Client here"
    assert made.scheduler_address not in {each.address for each in Session().nearby()}
    with Client(address, set_as_default=False) as client:
        there = workbench.attach(client)
    assert there.record.scheduler_address == address
    there.stop()


def test_the_dashboard_that_a_scheduler_serves_is_found_and_not_that_of_another(data_folder: Path) -> None:
    with LocalCluster(n_workers=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=":0") as made:
        there = workbench.attach(made.scheduler_address)
        assert there.record.dashboard_address == made.dashboard_link.removesuffix("/status")
        there.stop()
        other = {"id": "Scheduler-other", "services": {"dashboard": made.scheduler.services["dashboard"].port}}
        assert asyncio.run(dashboard.elsewhere("127.0.0.1", other)) is None


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of a scheduler that speaks TLS, and of somebody else's."""
    folder, made, other = tmp_path_factory.mktemp("keys"), Security.temporary(), Security.temporary()
    texts = {
        "ca": made.tls_ca_file,
        "cert": made.tls_client_cert,
        "key": made.tls_client_key,
        "wrong": other.tls_ca_file,
    }
    for name, text in texts.items():
        (folder / f"{name}.pem").write_text(text)
    return {name: str(folder / f"{name}.pem") for name in texts}


@pytest.fixture(scope="module")
def encrypted(keys: dict[str, str]) -> Iterator[str]:
    """Start a scheduler that uses TLS, with one worker."""
    options = ("--tls-ca-file", keys["ca"], "--tls-cert", keys["cert"], "--tls-key", keys["key"])
    with other_python.cluster(sys.executable, *options, "--protocol", "tls", n_workers=1) as found:
        yield found


def test_a_scheduler_with_tls_wants_its_keys(
    encrypted: str, address: str, keys: dict[str, str], data_folder: Path
) -> None:
    own = {name: keys[name] for name in ("ca", "cert", "key")}
    refused = {
        "speaks TLS. Use tls://": (encrypted.replace("tls", "tcp"), {}),
        "didn't sign": (encrypted, own | {"ca": keys["wrong"]}),
        "It may ask for a certificate of yours": (encrypted, {"ca": keys["ca"]}),
        "speaks no TLS that fits": (address.replace("tcp", "tls"), own),
        "can't be read": (encrypted, own | {"key": "/no/such.pem"}),
        "can't be used": (encrypted, own | {"key": __file__}),
        "isn't encrypted. Use tls://": (address, own),
        "key is missing": (encrypted, {"ca": keys["ca"], "cert": keys["cert"]}),
    }
    for sentence, (where, files) in refused.items():
        with pytest.raises(BadInputError, match=sentence):
            workbench.attach(where, **files)
    named = {"tls_ca_file": own["ca"], "tls_client_cert": own["cert"], "tls_client_key": own["key"]}
    in_memory = {name: Path(path).read_text(encoding="utf-8") for name, path in named.items()}
    for given, sentence in ((named, None), (in_memory, "ca of this Client is in memory only")):
        with Client(encrypted, security=Security(**given), set_as_default=False) as client:
            if sentence is None:
                there = workbench.attach(client)
                continue
            with pytest.raises(BadInputError, match=sentence):
                workbench.attach(client)
    run = Session().run("array_sum", {"size": "4MiB"}, there.name)
    until(lambda: not Session().show(run.id).active)
    assert Session().show(run.id).status == "done", Session().show(run.id).error
    there.stop()


def test_one_without_workers_says_so_and_gets_them_and_one_that_is_stuck_or_has_ended_is_told(
    data_folder: Path,
) -> None:
    with other_python.cluster(sys.executable, n_workers=0) as found, contextlib.ExitStack() as running:
        there = workbench.attach(found)
        assert there.record.warning == "It has no workers."
        with pytest.raises(WorkbenchError, match=f"Nothing can be run on {there.name}. It has no workers."):
            Session().run("array_sum", {"size": "4MiB"}, there.name)
        with pytest.raises(ConflictError, match=f"The scheduler at {found} has no workers"):
            profile("address").seen(spec_of(found))
        command = [sys.executable, "-m", "dask", "worker", found, "--no-nanny", "--nthreads", "3", "--no-dashboard"]
        worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.callback(worker.wait)
        running.callback(worker.terminate)
        until(lambda: there.record.can_compute)
        assert (there.record.n_workers, there.record.spec.threads_per_worker) == (1, 3)
        (scheduler,) = [
            each
            for each in psutil.process_iter(["cmdline"])
            if "scheduler" in (each.info["cmdline"] or ()) and _listens(each, found)
        ]
        psutil.Process(worker.pid).suspend()
        logs = threads.finish(control.logs(there.name))
        assert [text for name, text in logs.items() if "worker" in name or "tcp" in name] == [
            "It didn't answer within 3 s."
        ]
        assert "Scheduler at:" in logs["scheduler"]
        psutil.Process(worker.pid).resume()
        scheduler.suspend()
        until(lambda: "hasn't answered" in (there.record.warning or ""))
        assert not there.record.can_compute
        logs = threads.finish(control.logs(there.name))
        assert f"does not answer at {found} (within 5 s)" in logs["scheduler"]
        scheduler.resume()
        until(lambda: there.record.warning is None)
        scheduler.send_signal(signal.SIGTERM)
        until(lambda: there.record.status == "lost")
        assert f"The scheduler at {found} has ended" in (there.record.message or "")
    there.stop()
    assert records.names() == ()


def _listens(process: psutil.Process, address: str) -> bool:
    return any(each.laddr.port == int(address.rpartition(":")[2]) for each in process.net_connections())


def test_other_versions_there_are_told_in_one_sentence(data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as found\nof = found.version\n"
        "found.version = lambda name: '2020.1.0' if name == 'numpy' else of(name)\n"
    )
    with other_python.cluster(sys.executable, n_workers=1, environment={"PYTHONPATH": str(tmp_path)}) as found:
        there = workbench.attach(found)
        until(lambda: there.record.warning and there.record.can_compute)
        told = f"numpy is 2020.1.0 at the scheduler and on {socket.gethostname()}, and {np.__version__} here."
        assert (there.record.warning or "").endswith(told)
        run = submit.finish(Session().run("array_sum", {"size": "4MiB"}, there.name).id, timeout=100)
        assert (run.status, run.versions["numpy"]) == ("done", "2020.1.0")
        with workbench.watch(there.client) as watched:
            assert there.client.submit(sum, [1, 2]).result() == 3
        assert store.get(watched.id).versions["numpy"] == "2020.1.0"
        there.stop()


def test_a_package_that_is_missing_there_is_told() -> None:
    there = [("at the scheduler", {"dask": "1"}), ("on node-2", {"dask": "1"})]
    assert differing_versions(there, {"dask": "1", "numpy": "2"}) == "no numpy at the scheduler; no numpy on node-2"


def test_a_scheduler_that_is_too_old_for_our_client_is_refused_in_one_sentence(
    data_folder: Path, tmp_path: Path
) -> None:
    """Before 2025 one was asked for its workers without saying of how many."""
    (tmp_path / "old.py").write_text(
        "def dask_setup(scheduler):\n    scheduler.handlers['identity'] = lambda: scheduler.identity()\n"
    )
    old = {"DASK_DISTRIBUTED__SCHEDULER__PRELOAD": f"['{tmp_path / 'old.py'}']"}
    told = r"has Dask [\d.]+, which Dask [\d.]+ can't talk to .*n_workers"
    with (
        other_python.cluster(sys.executable, n_workers=1, environment=old) as found,
        pytest.raises(FailedError, match=told),
    ):
        workbench.attach(found)


def test_a_scheduler_that_only_its_own_process_reaches_is_refused_with_the_reason() -> None:
    with pytest.raises(BadInputError, match=r"address is 'inproc://.*'\. Only the process that started"):
        plan("address", inventory(), address="inproc://127.0.0.1/12/1")  # type: ignore[call-arg]
