"""Workers on machines that one reaches by SSH: a private sshd at two addresses of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, wait

import workbench
from tests import other_python, ssh_hosts
from tests.commands import answer
from tests.simulated import SimulatedNvml, computing
from tests.ssh_hosts import Hosts
from tests.views import html_at, html_of
from tests.waiting import until
from workbench.cli import main
from workbench.clusters import records
from workbench.clusters.plan import plan
from workbench.errors import BadInputError, MissingError
from workbench.hardware import inventory
from workbench.runs import recording, store
from workbench.session import Session
from workbench.views.actions import perform
from workbench.views.service import Service

pytestmark = pytest.mark.daemons


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two machines."""
    with ssh_hosts.running(tmp_path_factory.mktemp("ssh")) as found:
        yield found


def there(hosts: Hosts) -> list[psutil.Process]:
    """Return the processes that run on the machines."""
    return psutil.Process(hosts.pid).children(recursive=True)


SMALL = ("--threads", "1", "--memory", "1GiB")


def test_a_cluster_on_two_machines_computes_is_scaled_and_leaves_nothing_behind(
    hosts: Hosts, data_folder: Path
) -> None:
    up = answer("up", "ssh", *hosts.flags(), *SMALL, "--name", "far")
    assert (up["profile"], up["n_workers"], up["protocol"]) == ("ssh", 2, "tls")
    run = answer("run", "genotype_pca", "--cluster", "far", "-p", "n_variants=4000")
    assert (run["status"], run["check"]["passed"]) == ("done", True)
    machine = records.read("far").machine
    # Two addresses of one machine are one machine; another one than this only where it has processes of its own.
    assert machine is None or (machine["host"], machine["cpu"]["usable"]) == ("node", inventory().cpu.usable)
    assert os.getuid() != 0 or run["inventory"]["host"] == "node"
    key = (data_folder / "clusters" / "far" / "tls" / "key.pem").read_text()
    for process in there(hosts):
        words = " ".join([*process.cmdline(), *process.environ().values()])
        assert key.splitlines()[1] not in words
    before = {each.pid for each in there(hosts)}
    answer("scale", "far", "--restart")
    assert {each.pid for each in there(hosts)} - before
    assert answer("scale", "far", "--adapt", "1", "2")["adaptive"] == [1, 2]
    assert answer("scale", "far", "3")["n_workers_expected"] == 3
    until(lambda: records.read("far").n_workers == 3)
    assert answer("scale", "far", "1")["n_workers"] == 1
    started = there(hosts)
    assert answer("down", "far")["stopped"] == ["far"]
    until(lambda: not any(each.is_running() for each in started), 10)
    assert there(hosts) == []


def test_more_workers_than_machines_have_shares_for_are_refused(
    hosts: Hosts, data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "ssh", *hosts.flags(hosts="127.0.0.2"), "--workers", "2", "--name", "far"]) == 0
    spec = records.read("far").spec
    assert spec.threads_per_worker == max(1, inventory().cpu.usable // 2)
    assert main(["scale", "far", "1"]) == 0
    assert main(["scale", "far", "2"]) == 0
    capfd.readouterr()
    for more in (["3"], ["--adapt", "1", "3"]):
        assert main(["scale", "far", *more]) == 1
        assert "there are shares for 2. Give at most 2" in capfd.readouterr().err
    assert (records.read("far").n_workers_expected, records.read("far").adaptive) == (2, None)
    assert records.read("far").spec == spec


def test_a_machine_that_hangs_is_told_and_comes_back_and_nothing_stays_there_where_the_owner_is_killed(
    hosts: Hosts, data_folder: Path
) -> None:
    assert main(["up", "ssh", *hosts.flags(), *SMALL, "--name", "far"]) == 0
    client = workbench.connect("far")
    waiting = client.map(time.sleep, [0.2] * 100, pure=False)
    server = psutil.Process(hosts.pid)
    # A session has its connection's other end, and the shell, Python and worker that it began.
    (session,) = (each for each in server.children() if is_of("127.0.0.3", each))
    gone = [server, session, *session.children(recursive=True)]
    for each in gone:
        each.suspend()
    until(lambda: "127.0.0.3 is unreachable: it sent nothing" in (records.read("far").warning or ""))
    assert records.read("far").can_compute
    client.gather(waiting)
    for each in gone:
        each.resume()
    until(lambda: records.read("far").n_workers == 2 and records.read("far").warning is None)
    until(lambda: not any(each.is_running() for each in gone[1:]))
    client.close()
    started = there(hosts)
    os.kill(records.read("far").pid or 0, signal.SIGKILL)
    until(lambda: not any(each.is_running() for each in started), 15)
    assert records.read("far").status == "lost"


def is_of(address: str, process: psutil.Process) -> bool:
    """Return whether it is the session of a connection to this address."""
    own = [process, *process.children()]
    return any(each.laddr.ip == address for one in own if "sshd" in one.name() for each in one.net_connections())


def python_of(folder: Path, *words: str, customize: str = "") -> str:
    """Path of a Python that differs from this one."""
    (folder / "sitecustomize.py").write_text(customize)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return str(script)


ANOTHER_DASK = """
import importlib.metadata as found
of = found.version
found.version = lambda name: "2020.1.0" if name == "dask" else of(name)
"""


def test_another_numpy_there_is_told_and_a_worker_that_was_killed_is_started_anew(
    hosts: Hosts, data_folder: Path, tmp_path: Path
) -> None:
    python = python_of(tmp_path, sys.executable, customize=ANOTHER_DASK.replace('"dask"', '"numpy"'))
    where = hosts.flags(hosts="127.0.0.2", remote_python=python)
    assert main(["up", "ssh", *where, *SMALL, "--name", "far"]) == 0
    told = f": numpy is 2020.1.0 on {hosts.name}, and {np.__version__} here."
    assert (records.read("far").warning or "").endswith(told)
    assert records.read("far").can_compute
    (begun,) = (each for each in there(hosts) if "arguments" in " ".join(each.cmdline()) and "sh" not in each.name())
    begun.kill()
    until(lambda: "The worker on 127.0.0.2 ended" in (records.read("far").warning or ""))
    until(lambda: records.read("far").can_compute and records.read("far").n_workers == 1)
    assert main(["run", "array_sum", "--cluster", "far", "-p", "size=4MiB"]) == 0


def test_what_is_wrong_with_a_machine_is_told_before_anything_is_started(
    hosts: Hosts, data_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    strange = tmp_path / "known"
    address, port = "127.0.0.2", hosts.port
    strange.write_text(f"[{address}]:{port} {(hosts.folder / 'stranger.pub').read_text()}")
    folders = [tmp_path / name for name in ("bare", "old")]
    for each in folders:
        each.mkdir()
    with socket.create_server(("127.0.0.2", 0)) as silent:
        wrong: list[tuple[dict[str, object], str]] = [
            ({"hosts": "no-such-host.invalid"}, "There is no host 'no-such-host.invalid'"),
            ({"port": 1}, "No SSH server at 127.0.0.2:1 (Connection refused). Check host and port."),
            ({"port": silent.getsockname()[1]}, "answered as an SSH server within 5 s"),
            ({"known_hosts": strange}, "has a key of its own that isn't among the known hosts"),
            ({"key": hosts.folder / "stranger"}, "let nobody in with this user and key"),
            ({"key": "/no/such/key"}, "There is no file /no/such/key"),
            ({"key": __file__}, f"The key {__file__} can't be used"),
            ({"remote_python": "/no/such/python"}, "has no Python at /no/such/python"),
            (
                {"remote_python": python_of(folders[0], sys.executable, "-S")},
                "has no dask. Install it there",
            ),
            (
                {"remote_python": python_of(folders[1], sys.executable, customize=ANOTHER_DASK)},
                ": dask is 2020.1.0 on 127.0.0.2, and ",
            ),
            ({"listen": "192.0.2.1"}, "listen is '192.0.2.1', and this machine can't listen there"),
            ({"gpus": 8}, "gpus is 8, and 127.0.0.2 has "),
        ]
        for given, sentence in wrong:
            assert main(["up", "ssh", *hosts.flags(**{"hosts": address, **given}), *SMALL]) == 2, sentence
            out, err = capfd.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert sentence in err
    assert records.names() == ()


def test_another_python_there_is_told(hosts: Hosts, data_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "ssh", *hosts.flags(remote_python=other_python.python_or_skip())]) == 2
    err = capfd.readouterr().err
    assert all(
        each in err for each in ("Tasks can't travel", ": python is 3.", "on 127.0.0.2 and on 127.0.0.3, and 3.")
    )


def test_a_machine_that_cant_reach_the_scheduler_is_told(
    hosts: Hosts, data_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    without_network = ("unshare", "-r", "-n")
    if subprocess.run([*without_network, "true"], capture_output=True).returncode:
        pytest.skip("Processes without a network can't be made here: unshare -r -n is refused.")
    python = python_of(tmp_path, *without_network, sys.executable)
    assert main(["up", "ssh", *hosts.flags(remote_python=python), *SMALL, "--name", "far"]) == 1
    assert "127.0.0.2 can't reach the scheduler at tls://127.0.0.1:" in capfd.readouterr().err
    assert there(hosts) == []


def test_the_plan_shares_workers_out_and_says_what_is_asked_later() -> None:
    spec = plan("ssh", inventory(), hosts="a, b  c", n_workers=5)  # type: ignore[call-arg]
    assert (spec.n_workers, spec.options["hosts"], spec.elsewhere) == (5, ["a", "b", "c"], True)
    assert spec.describe() == "5 workers, sized by their machines"
    assert (spec.preview or "").count("ssh a ") == 2
    assert "ssh -p 2222 a " in (plan("ssh", inventory(), hosts="a", port=2222).preview or "")  # type: ignore[call-arg]
    assert spec.why[0].startswith("5 workers, as chosen: 2 on a, 2 on b, 1 on c.")
    assert plan("ssh", inventory(), hosts=["a"], gpus=4).n_workers == 4  # type: ignore[call-arg, list-item]
    with pytest.raises(MissingError, match="Needs asyncssh: pip install 'asyncssh"):
        plan("ssh", inventory(), version=lambda name: None, hosts="a")  # type: ignore[call-arg]
    for given in ("", "a;rm", "-oProxyCommand=x", "a,$(b)"):
        with pytest.raises(BadInputError, match="hosts is "):
            plan("ssh", inventory(), hosts=given)  # type: ignore[call-arg]


def test_its_code_is_the_textbooks() -> None:
    code = plan("ssh", inventory(), hosts="a,b", gpus=2, user="me").code  # type: ignore[call-arg]
    assert "worker_class='dask_cuda.CUDAWorker'" in code
    lines = ("a: dask scheduler", *(f"{each}: dask cuda worker tcp://a:8786 --nthreads 1" for each in "ab"))
    assert "".join(f"# {each}\n" for each in lines) in code
    code = plan("ssh", inventory(), hosts="a,b", n_workers=4, threads_per_worker=2, memory="8GiB").code  # type: ignore[call-arg]
    assert "# b: dask worker tcp://a:8786 --nworkers 2 --nthreads 2 --memory-limit 2GiB\n" in code


def test_its_code_starts_the_same_without_this_package(hosts: Hosts) -> None:
    spec = plan("ssh", inventory(), **hosts.choices(threads_per_worker=1, memory="1GiB"))  # type: ignore[arg-type]
    code = spec.code + "    print(client.submit(sum, [1, 2]).result())\n    client.shutdown()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "3", done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="Only root can hide a folder from the machines of these tests.")
def test_a_path_that_a_machine_cant_read_is_told(
    hosts: Hosts, data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = hosts.folder / "here" / "x.npy"
    np.save(file, np.ones((100, 10)))
    assert main(["up", "ssh", *hosts.flags(hosts="127.0.0.2"), *SMALL, "--name", "far"]) == 0
    assert main(["run", "svd_of_file", "--cluster", "far", "-p", f"path={file}", "-p", "k=2"]) == 1
    out, err = capfd.readouterr()
    assert f"node: {inventory().cpu.model}" in " ".join(out.split())
    assert f"node can't read {file} (No such file or directory). Its workers read it" in err
    np.save(hosts.folder / "x.npy", np.ones((100, 10)))
    assert main(["run", "svd_of_file", "--cluster", "far", "-p", f"path={hosts.folder}/x.npy", "-p", "k=1"]) == 0


def test_machines_with_gpus_have_a_worker_of_dask_cuda_for_each(
    hosts: Hosts, data_folder: Path, tmp_path: Path, simulated_nvml: SimulatedNvml
) -> None:
    pytest.importorskip("dask_cuda")
    environ = computing(simulated_nvml.environment(2), tmp_path / "cuda")
    told = [f"{name}={value}" for name, value in environ.items() if os.environ.get(name) != value]
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec env {shlex.join([*told, sys.executable])} "$@"\n')
    python.chmod(0o755)

    def workbench(*words: str) -> Any:
        command = [sys.executable, "-m", "workbench", *words, "--json"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    where = hosts.flags(hosts="127.0.0.2", gpus=2, remote_python=python)
    workbench("up", "ssh", *where, "--memory", "2GiB", "--name", "cards")
    spec = records.read("cards").spec
    assert (len(set(spec.devices)), spec.n_workers, spec.threads_per_worker, spec.cupy) == (2, 2, 1, True)
    run = workbench("run", "array_sum", "--cluster", "cards", "-p", "shape=1000,1000", "-p", "chunks=500")
    assert (run["status"], run["check"]["passed"], run["on_gpu"]["share"]) == ("done", True, 1)
    assert main(["scale", "cards", "3"]) == 2


def test_no_more_workers_than_gpus_are_planned() -> None:
    with pytest.raises(BadInputError, match="n_workers is 3, and 1 machine with 2 GPUs each"):
        plan("ssh", inventory(), hosts="a", gpus=2, n_workers=3)  # type: ignore[call-arg]


def test_it_is_started_from_the_page_and_removes_what_a_killed_worker_had_on_the_disk_and_nothing_of_the_living(
    hosts: Hosts, data_folder: Path
) -> None:
    dead, living = (Path(tempfile.mkdtemp(prefix="workbench-worker-")) for _ in range(2))
    for folder in (dead, living):
        (folder / "spilled").write_bytes(b"0" * 100)
    held = os.open(living, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    # Which another user may have put there, and whose opening would never return.
    fifo = living.with_name(f"{living.name}-fifo")
    os.mkfifo(fifo)
    service = Service("/", logging.getLogger(__name__), make_session=Session)

    async def view(name: str, **chosen: object) -> str:
        return await html_at(service, name, chosen)

    async def story() -> None:
        assert 'data-workbench="field-hosts"' in await view("start", profile="ssh")
        body = {"profile": "ssh", "name": "far", "choices": hosts.choices(threads_per_worker="1", memory="1GiB")}
        with pytest.raises(BadInputError, match="No SSH server at"):
            await perform(service, "start", {**body, "choices": hosts.choices(port="1")})
        await perform(service, "start", body)
        await asyncio.to_thread(until, lambda: records.read("far").status == "ready")
        await service.close()

    asyncio.run(story())
    html = html_of("clusters")
    assert "2 workers × 1 thread" in html
    assert os.getuid() != 0 or f"node: {inventory().cpu.model}" in html
    assert (dead.exists(), living.exists()) == (False, True)
    os.close(held)
    shutil.rmtree(living)
    fifo.unlink()


def test_a_cut_link_is_told_and_the_worker_beyond_it_comes_back_when_it_is_mended(
    hosts: Hosts, data_folder: Path
) -> None:
    with ssh_hosts.linked(hosts) as machine:
        where = hosts.flags(hosts=f"127.0.0.2,{machine.address}", listen=machine.ours)
        assert main(["up", "ssh", *where, *SMALL, "--name", "far"]) == 0
        client = workbench.connect("far")
        waiting = client.map(time.sleep, [0.2] * 100, pure=False)
        beyond = psutil.Process(machine.pid).children(recursive=True)
        machine.cut()
        until(lambda: f"{machine.address} is unreachable: it sent nothing" in (records.read("far").warning or ""))
        client.gather(waiting)
        machine.mend()
        until(lambda: records.read("far").n_workers == 2 and records.read("far").warning is None)
        until(lambda: not any(each.is_running() for each in beyond))
        client.close()
        assert main(["down", "far"]) == 0


def test_a_link_that_is_cut_between_workers_alone_is_told_while_a_run_waits_for_it(
    hosts: Hosts, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_STILL", 2.0)
    worker = [sys.executable, "-m", "dask", "worker", "--no-nanny", "--nthreads", "1", "--no-dashboard"]
    near = "198.18.78.1"
    with (
        contextlib.ExitStack() as ended,
        ssh_hosts.linked(hosts) as machine,
        other_python.cluster(sys.executable, n_workers=0, host=machine.ours) as address,
    ):
        beyond = ["nsenter", f"--net=/proc/{machine.pid}/ns/net"]
        route = [*beyond, "ip", "route", "replace"]
        subprocess.run(["ip", "address", "add", f"{near}/32", "dev", "lo"], check=True)
        ended.callback(subprocess.run, ["ip", "address", "del", f"{near}/32", "dev", "lo"], check=True)
        subprocess.run([*route, near, "via", machine.ours], check=True)
        places = {"near": [*worker, "--host", near], "far": [*beyond, *worker, "--host", machine.address]}
        for name, command in places.items():
            command += ["--name", name, address]
            started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
            ended.callback(started.wait)
            ended.callback(started.terminate)
        with Client(address) as client, workbench.watch(client) as run:
            client.wait_for_workers(2)
            made = client.submit(np.ones, 1000, workers="near")
            wait(made)
            subprocess.run([*route, "blackhole", near], check=True)
            told = client.submit(np.sum, made, workers="far")
            until(lambda: f"can't reach the worker at tcp://{near}:" in (store.get(run.id).progress.waits or ""))
            assert "so no block can travel between them" in html_of("runs")
            subprocess.run([*beyond, "ip", "route", "del", "blackhole", near], check=True)
            subprocess.run([*route, near, "via", machine.ours], check=True)
            assert told.result(timeout=60) == 1000
        assert store.get(run.id).progress.waits is None


def test_machines_that_cant_reach_each_other_are_told_before_a_run_waits_for_ever(
    hosts: Hosts, data_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = [sys.executable, "-m", "dask", "worker", "--no-nanny", "--nthreads", "1", "--no-dashboard"]
    with (
        contextlib.ExitStack() as workers,
        ssh_hosts.linked(hosts) as machine,
        other_python.cluster(sys.executable, n_workers=0, host=machine.ours) as address,
    ):
        beyond = ["nsenter", f"--net=/proc/{machine.pid}/ns/net"]
        # From beyond the link 127.0.0.2 is another place.
        for command in ([*worker, "--host", "127.0.0.2"], [*beyond, *worker, "--host", machine.address]):
            started = subprocess.Popen([*command, address], cwd=tmp_path, stderr=subprocess.DEVNULL)
            workers.callback(started.wait)
            workers.callback(started.terminate)
        there = workbench.attach(address, name="split")
        until(lambda: there.record.n_workers == 2)
        assert main(["run", "transpose_sum", "--cluster", "split", "-p", "size=1MiB"]) == 1
        assert "can't reach the worker at tcp://127.0.0.2:" in capfd.readouterr().err
        there.stop()
