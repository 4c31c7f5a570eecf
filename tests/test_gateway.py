"""A real Dask-Gateway on this machine, whose clusters are processes: its options, its clusters, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import html
import http.server
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import dask
import pytest
from dask_gateway import BasicAuth, Gateway

import workbench
from tests.bare import HIDING
from tests.commands import answer
from tests.views import html_at
from tests.waiting import until
from workbench.cli import main
from workbench.clusters import records
from workbench.clusters.plan import plan
from workbench.clusters.profiles.lookup import profile
from workbench.credentials import by_command
from workbench.errors import BadInputError, BadParameterError, FailedError
from workbench.hardware import inventory
from workbench.session import Session
from workbench.views.actions import perform
from workbench.views.service import Service

pytestmark = pytest.mark.daemons

SERVER = """
import sys
from pathlib import Path
from dask_gateway_server.auth import SimpleAuthenticator, unauthorized
from dask_gateway_server.options import Bool, Float, Integer, Mapping, Options, Select, String

c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
class Expiring(SimpleAuthenticator):
    async def authenticate(self, request):
        if Path("{folder}/expired").exists():
            raise unauthorized("Basic")
        return await super().authenticate(request)

c.DaskGateway.authenticator_class = Expiring
c.SimpleAuthenticator.password = "sesame"
c.Authenticator.cache_max_age = 0
c.DaskGateway.address = "127.0.0.1:{api}"
c.Proxy.address = "127.0.0.1:{http}"
c.Proxy.tcp_address = "127.0.0.1:{tcp}"
c.LocalBackend.clusters_directory = "{folder}"
c.ClusterConfig.cluster_max_workers = 2
# Those that it would call by itself are no longer installed.
c.ClusterConfig.scheduler_cmd = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = [sys.executable, "-m", "distributed.cli.dask_worker"]
c.Backend.cluster_options = Options(
    Float("worker_cores", default=1, min=1, max=2, label="Worker cores"),
    Select("memory", [("small", 2**29), ("large", 2**30)], label="Memory"),
    Integer("patience", default=3, min=0),
    Bool("quick", default=True),
    String("image", default="daskgateway"),
    Mapping("environment", label="Environment"),
    handler=lambda told: {{"worker_memory": told.memory, "environment": told.environment}},
)
"""
_closed: list[Gateway] = []
SECRET = "hunter2hunter2"
PASSWORD = {"gateway.auth.kwargs": {"password": "sesame"}}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the gateway's files."""
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[dict[str, str]]:
    """Addresses of a gateway and of its proxy for schedulers."""
    with contextlib.ExitStack() as free:
        ports = [free.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(3)]
    named = dict(zip(("api", "http", "tcp"), ports, strict=True))
    (folder / "config.py").write_text(SERVER.format(**named, folder=folder))
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask_gateway_server", "-f", str(folder / "config.py")],
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{named['http']}"
    try:
        until(lambda: process.poll() is not None or _answers(f"{address}/api/health"))
        assert process.poll() is None, (folder / "log.txt").read_text()
        yield {"address": address, "proxy_address": f"gateway://127.0.0.1:{named['tcp']}"}
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urlopen(url, timeout=5) as answered:
        return bool(answered.status == 200)
    return False


@pytest.fixture(scope="session")
def client(server: dict[str, str]) -> Iterator[Gateway]:
    """dask-gateway's own client."""
    found = Gateway(**server, auth=BasicAuth(password="sesame"))
    yield found
    found.close()
    # Where it is collected before the end, it closes itself again, and fails.
    _closed.append(found)


@pytest.fixture
def gateway(
    server: dict[str, str], client: Gateway, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gateway]:
    """Provide a client of the gateway that Dask's configuration names, here and in new processes."""
    told = {**{f"gateway.{name.replace('_', '-')}": each for name, each in server.items()}, **PASSWORD}
    monkeypatch.setenv("DASK_GATEWAY__ADDRESS", server["address"])
    monkeypatch.setenv("DASK_GATEWAY__PROXY_ADDRESS", server["proxy_address"])
    monkeypatch.setenv("DASK_GATEWAY__AUTH__KWARGS__PASSWORD", "sesame")
    with dask.config.set(told):
        yield client
        for each in client.list_clusters():
            client.stop_cluster(each.name)


def test_a_cluster_of_a_gateway_is_started_used_changed_and_stopped(
    gateway: Gateway, data_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", SECRET)
    options = ("--memory", "large", "--environment", "{HARMLESS: $A_SECRET}")
    up = answer("up", "gateway", "--workers", "1", *options, "--name", "far")
    assert (up["status"], up["n_workers"]) == ("ready", 1)
    (there,) = gateway.list_clusters()
    assert there.options["memory"] == "large"
    assert there.options["environment"] == {"HARMLESS": SECRET}
    assert records.read("far").spec.options["cluster_options"]["environment"] == {"HARMLESS": "$A_SECRET"}
    assert up["scheduler_address"] == there.scheduler_address
    assert records.read("far").spec.memory_limit == 2**30
    keys = [path for path in (records.folder("far") / "tls").iterdir() if path.stat().st_mode & 0o777 == 0o600]
    assert {path.name for path in keys} == {"ca.pem", "cert.pem", "key.pem"}
    svd = answer("run", "compressed_svd", "--cluster", "far", "-p", "size=8MiB")
    assert (svd["status"], svd["check"]["passed"]) == ("done", True)
    assert answer("scale", "far", "2")["n_workers"] == 2
    assert "distributed" in answer("logs", "far")["logs"]["scheduler"]
    assert main(["scale", "far", "3"]) == 1
    assert "The gateway says: Scale request of 3 workers would exceed resource limit of 2" in capfd.readouterr().err
    assert main(["scale", "far", "--restart"]) != 0
    assert "far can't restart. It can: scale, adapt, stop." in capfd.readouterr().err
    files = [path for path in data_folder.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert answer("down", "far") == {"stopped": ["far"], "detached": [], "dismissed": []}
    assert gateway.list_clusters() == []


def test_workers_that_follow_the_load_of_a_persons_function_come_and_compute_where_this_package_is_not(
    gateway: Gateway, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH_THERE", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    (tmp_path / "beside.py").write_text(
        "import time\n\n\ndef nap(n):\n    from distributed import get_worker\n\n    time.sleep(0.3)\n"
        "    return get_worker().address\n"
    )
    (tmp_path / "mine.py").write_text(
        "import dask\nimport beside\n\n\ndef naps(n=100):\n"
        "    return dask.delayed(set)([dask.delayed(beside.nap)(each) for each in range(n)])\n"
    )
    bare = "{PYTHONPATH: $PATH_THERE}"
    answer("up", "gateway", "--workers", "1", "--environment", bare, "--name", "far")
    assert answer("scale", "far", "--adapt", "0", "2")["adaptive"] == [0, 2]
    until(lambda: records.read("far").n_workers == 0)
    run = answer("run", f"{tmp_path}/mine.py:naps", "--cluster", "far")
    assert (run["status"], run["error"]) == ("done", None)
    assert str(run["result"]).count("tls://") == 2
    answer("down", "far")


def test_a_cluster_of_somebody_else_is_found_and_left_alive(
    gateway: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = gateway.submit()
    until(lambda: gateway.get_cluster(theirs).status.name == "RUNNING")
    address = gateway.get_cluster(theirs).scheduler_address
    assert address in {each["address"] for each in answer("ls", "--nearby")}
    there = workbench.attach(address)
    assert there.record.warning == "It has no workers."
    there.scale(1)
    until(lambda: there.record.n_workers == 1)
    assert there.client.submit(sum, [1, 2]).result() == 3
    assert answer("down", there.name)["detached"] == [there.name]
    assert gateway.get_cluster(theirs).status.name == "RUNNING"
    with pytest.raises(BadInputError, match=f"cluster is 'nobodys', .* There are: {theirs}"):
        workbench.start("gateway", cluster="nobodys")  # type: ignore[call-arg]


def test_one_that_the_gateway_ends_is_lost_with_a_sentence(gateway: Gateway) -> None:
    far = workbench.start("gateway", n_workers=1)
    (there,) = gateway.list_clusters()
    gateway.stop_cluster(there.name)
    until(lambda: far.record.status == "lost")
    assert f"The gateway ended {there.name}, which is stop" in (far.record.message or "")


def test_a_start_that_fails_leaves_nothing_there(gateway: Gateway) -> None:
    with pytest.raises(FailedError, match=r"failed to start\. The gateway says: Scale request of 3 workers"):
        workbench.start("gateway", n_workers=3)
    until(lambda: not gateway.list_clusters())


def test_its_code_starts_the_same_without_this_package(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", SECRET)
    given: Any = {"memory": "large", "environment": {"HARMLESS": "$A_SECRET"}}
    with pytest.raises(BadParameterError, match="A_SECRET isn't among the variables that a form may name"):
        plan("gateway", inventory(), n_workers=1, **given)
    with by_command():
        spec = plan("gateway", inventory(), n_workers=1, **given)
    code = spec.code + "client.wait_for_workers(1)\nprint(client.submit(sum, [1, 2]).result())\ncluster.shutdown()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("\n3\n"), done.stderr
    assert 'memory="large"' in code
    assert """{"HARMLESS": os.environ["A_SECRET"]}""" in code
    assert SECRET not in f"{code}{spec}"
    with dask.config.set({"gateway.cluster.options": {"environment": {"HARMLESS": SECRET}}}):
        assert SECRET not in str(plan("gateway", inventory()))


def test_the_options_that_its_server_declares_are_the_form(gateway: Gateway) -> None:
    fields = profile("gateway").choices(inventory()).model_json_schema()["properties"]
    assert fields["worker_cores"] | {"description": ""} == {
        "title": "Worker cores", "type": "number", "default": 1, "minimum": 1, "maximum": 2, "description": "",
    }  # fmt: skip
    assert (fields["memory"]["enum"], fields["quick"]["type"]) == (["small", "large"], "boolean")
    assert fields["address"]["default"] == gateway.address
    with dask.config.set({"gateway.cluster.options": {"memory": "large"}}):
        again = profile("gateway").choices(inventory()).model_json_schema()["properties"]
    assert again["memory"]["default"] == "large"


def test_the_form_asks_for_an_address_first_and_then_has_the_options(
    server: dict[str, str], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("A_SECRET", SECRET)
    service = Service("/", logging.getLogger(__name__), make_session=Session)

    async def story() -> None:
        async def view(name: str, **typed: str) -> str:
            choices = {"profile": "gateway", **{f"plan.gateway.{each}": value for each, value in typed.items()}}
            return await html_at(service, name, choices)

        assert 'data-workbench="field-address"' in await view("start")
        assert "worker_cores" not in await view("plan-form")
        assert "nothing can be reached there" in await view("start", address="http://127.0.0.1:1")
        with dask.config.set(PASSWORD):
            asks = await view("start", **server)
            assert "worker_cores" not in await view("plan-form", **server), "no password for an address that was typed"
            sent = re.search(r'data-arguments="([^"]+)"[^>]*data-workbench="confirm-sending"', asks)
            assert sent is not None
            assert f"Send your name and password for gateways to {server['address']}" in asks
            await perform(service, "confirm", json.loads(html.unescape(sent[1])))
            assert 'data-workbench="field-worker_cores"' in await view("plan-form", **server)
            assert "2 workers at http" in await view("start", **server)
            assert f"Send HF_TOKEN to {server['address']}" in await view(
                "start", **server, environment="{A: $HF_TOKEN}"
            )
            refused = await view("start", **server, environment="{A: $A_SECRET}")
            assert "A_SECRET isn't among" in html.unescape(refused), refused
            assert "less than or equal to 2" in await view("plan-form", **server, worker_cores="5")
        await service.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "address is missing. Address of its server"),
        ({"address": "ftp://there"}, "address is 'ftp://there'. Give the address of a Dask-Gateway"),
        ({"address": "http://127.0.0.1:1"}, "address is 'http://127.0.0.1:1', and nothing can be reached there"),
        ({"address": "http://no-such-host.invalid"}, "nothing can be reached there"),
        ({"proxy_address": "8786"}, "proxy_address is '8786'. Give host and port"),
        ({"worker_cores": "5"}, "worker_cores is '5'. Input should be less than or equal to 2"),
        ({"memory": "huge"}, "memory is 'huge'. Input should be 'small' or 'large'"),
        ({"environment": "["}, "environment is to name where each value comes from"),
        ({"environment": "{HARMLESS: hunter2}"}, "Give a variable of this environment, such as {NAME: $NAME}"),
        ({"environment": "{NAME: secret/mine/key}"}, "environment is to name where each value comes from"),
        ({"environment": "{NAME: $NO_SUCH}"}, "environment.NAME is $NO_SUCH, and this environment has no variable"),
        ({"sugar": "1"}, "sugar is '1', and the gateway profile takes no sugar"),
        ({"proxy_address": "127.0.0.1:1"}, "proxy_address is 'gateway://127.0.0.1:1', where clients would reach"),
        ({"proxy_address": None}, "what listens there speaks no TLS, as the gateway's web server does"),
        ({"auth": "jupyterhub"}, "No JupyterHub API token provided"),
        ({"auth": "kerberos"}, "auth is kerberos, which needs a package"),
    ],
)
def test_what_can_not_be_is_told_before_anything_starts(
    server: dict[str, str], data_folder: Path, given: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    there = {**(server if given else {}), **given}
    kwargs = {} if "auth" in given else PASSWORD["gateway.auth.kwargs"]
    with dask.config.set({"gateway.auth.kwargs": kwargs}), pytest.raises(workbench.errors.WorkbenchError) as caught:
        workbench.start("gateway", **{name: each for name, each in there.items() if each is not None})
    assert sentence in str(caught.value)
    assert records.names() == ()


def test_who_is_not_let_in_is_told(server: dict[str, str], data_folder: Path) -> None:
    with by_command(), pytest.raises(BadInputError, match=r"doesn't let you in \(401 Unauthorized\)"):
        plan("gateway", inventory(), **server)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", "nobody answered there within 3 s"),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", "where a web server answers, and no Dask-Gateway"),
    ],
)
def test_what_is_no_gateway_is_told_in_time(data_folder: Path, said: bytes, sentence: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(connection: socket.socket) -> None:
            connection.recv(4096)
            connection.sendall(said)
            connection.close()

        async def story() -> None:
            if said:
                task = asyncio.create_task(asyncio.to_thread(lambda: serve(listening.accept()[0])))
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with pytest.raises(BadInputError, match=sentence):
                await asyncio.to_thread(plan, "gateway", inventory(), address=address)
            if said:
                await task

        asyncio.run(story())


def an_option(**changes: Any) -> dict[str, Any]:
    about = {"field": "n", "label": "N", "default": 1, "spec": {"type": "int", "min": 0, "max": 3}}
    return {"cluster_options": [{**about, **changes}]}


@pytest.mark.parametrize(
    ("options", "clusters"),
    [
        ({"cluster_options": "abc"}, {}),
        ({"cluster_options": [1]}, {}),
        ({"cluster_options": [{}]}, {}),
        (an_option(field="model_config"), {}),
        (an_option(field=[]), {}),
        (an_option(label=3), {}),
        (an_option(default=10**400, spec={"type": "int"}), {}),
        (an_option(spec={"type": "int", "min": "x"}), {}),
        (an_option(spec={"type": "select", "options": []}), {}),
        (an_option(), [1]),
        (an_option(), {"a": {"name": 3}}),
        (b"[" * 100_000, {}),
        (an_option(), b"[" * 100_000),
    ],
    ids=lambda part: str(part)[:30],
)
def test_a_gateway_that_sends_nonsense_is_told_and_breaks_no_form(
    data_folder: Path, options: Any, clusters: Any
) -> None:
    class Nonsense(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = options if "options" in self.path else clusters
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said if isinstance(said, bytes) else json.dumps(said).encode())

        def log_message(self, *_: Any) -> None:
            pass

    async def view(address: str) -> Any:
        service = Service("/", logging.getLogger(__name__), make_session=Session)
        choices = {"profile": "gateway", "plan.gateway.address": address}
        found = await html_at(service, "start", choices)
        await service.close()
        return found

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        with pytest.raises(BadInputError, match=rf"(gateway at|address is) '?{address}"):
            plan("gateway", inventory(), address=address)  # type: ignore[call-arg]
        assert address in asyncio.run(view(address))
        server.shutdown()


def test_a_killed_owner_leaves_its_cluster_which_can_still_be_stopped(
    gateway: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    far = workbench.start("gateway", n_workers=1)
    pid = far.record.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: far.record.status == "lost")
    assert "What it started elsewhere may still run" in (far.record.message or "")
    assert len(gateway.list_clusters()) == 1
    assert main(["down", far.name]) == 0
    assert capfd.readouterr().out == f"Stopped: {far.name}\n"
    until(lambda: not gateway.list_clusters())


def test_an_expired_login_is_told_and_what_goes_on_there_is_not_said_to_be_stopped(
    gateway: Gateway, server: dict[str, str], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workbench.start("gateway", n_workers=1, name="far")
    expired = folder / "expired"
    expired.touch()
    try:
        assert main(["scale", "far", "2"]) == 1
        assert "no longer lets you in (401): your login has expired" in capfd.readouterr().err
        assert Session().cluster("far").status == "ready"
        assert main(["down", "far"]) == 1
        assert f'dask_gateway.Gateway("{server["address"]}").stop_cluster("' in capfd.readouterr().err
        assert Session().cluster("far").status == "lost"
    finally:
        expired.unlink()
    assert len(gateway.list_clusters()) == 1
    assert main(["down", "far"]) == 0
