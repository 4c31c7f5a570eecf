"""The profile kubernetes, with Dask's real operator and a stand-in for Kubernetes: see tests/kubernetes_here.py."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import dask
import pytest
import yaml

import workbench
from tests.commands import answer
from tests.waiting import until
from workbench.cli import main
from workbench.clusters import records
from workbench.clusters.plan import plan
from workbench.clusters.profiles.lookup import profile
from workbench.credentials import by_command
from workbench.errors import BadInputError, BadParameterError, FailedError, WorkbenchError
from workbench.hardware import inventory

pytestmark = pytest.mark.daemons

NODE_PORT = ("--service", "NodePort")
"""From here the names of its services lead nowhere, and ports can't be forwarded to it."""


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Path of a kubeconfig."""
    folder = tmp_path_factory.mktemp("kubernetes")
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kubernetes_here", str(folder)],
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[1],
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or (folder / "ready").exists())
        assert process.poll() is None, (folder / "log.txt").read_text()[-3000:]
        yield folder / "kubeconfig"
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a kubeconfig, of a Kubernetes that nobody asks."""
    path = tmp_path / "known"
    path.touch()
    monkeypatch.setenv("KUBECONFIG", str(path))


@pytest.fixture
def kubernetes(here: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Any]]:
    """Return a function that lists the objects of a kind."""
    monkeypatch.setenv("KUBECONFIG", str(here))
    address = yaml.safe_load(here.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]

    def there(plural: str) -> list[Any]:
        group = "/apis/kubernetes.dask.org/v1" if plural.startswith("dask") else "/api/v1"
        with urlopen(f"{address}{group}/{plural}") as answer:
            return list(json.loads(answer.read())["items"])

    return there


def test_pods_of_the_operator_are_started_used_changed_and_deleted(
    kubernetes: Callable[[str], list[Any]], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = (*NODE_PORT, "--memory", "1GiB", "--env", "{ANSWER: $AN_ANSWER}")
    monkeypatch.setenv("AN_ANSWER", "42")
    up = answer("up", "kubernetes", "--workers", "2", *choices, "--yes", "--name", "far_away")
    assert (up["status"], up["n_workers"]) == ("ready", 2)
    record = records.read("far_away")
    assert (record.spec.memory_limit, record.spec.threads_per_worker) == (2**29, 1)
    assert len(kubernetes("pods")) == 3
    (made,) = kubernetes("daskclusters")
    assert made["metadata"]["name"].startswith("far-away-")
    shown = (record.spec.preview or "").replace("my-dask", made["metadata"]["name"])
    assert yaml.safe_load(shown.replace("$AN_ANSWER", "'42'"))["spec"] == made["spec"]
    assert answer("run", "compressed_svd", "--cluster", "far_away", "-p", "size=8MiB")["check"]["passed"]

    def where(dask_worker: Any) -> str:
        return str(dask_worker.local_directory)

    with workbench.connect("far_away") as client:
        spilling = {Path(each).parents[1] for each in client.run(where).values()}
    assert [(each.name[:16], each.stat().st_mode & 0o777) for each in spilling] == [("workbench-spill-", 0o700)] * 2
    assert answer("scale", "far_away", "1")["n_workers"] == 1
    assert answer("scale", "far_away", "--adapt", "2", "2")["adaptive"] == [2, 2]
    until(lambda: records.read("far_away").n_workers == 2)
    assert answer("down", "far_away")["stopped"] == ["far_away"]
    until(lambda: not any(map(kubernetes, ("pods", "services", "daskclusters", "daskautoscalers"))))


def test_a_pod_that_never_will_run_is_told_and_nothing_is_left(kubernetes: Callable[[str], list[Any]]) -> None:
    with pytest.raises(FailedError, match=r"The pod \S+-scheduler-\S+ can't start: ErrImagePull. manifest unknown"):
        workbench.start("kubernetes", agreed=True, image="nosuch:1", service="NodePort")  # type: ignore[call-arg]
    until(lambda: not kubernetes("daskclusters"))


def test_a_pod_that_finds_no_room_is_told_when_the_time_is_over(kubernetes: Callable[[str], list[Any]]) -> None:
    with dask.config.set({"workbench.start-timeout": "8s"}), pytest.raises(FailedError) as caught:
        workbench.start("kubernetes", agreed=True, threads_per_worker=100, service="NodePort")  # type: ignore[call-arg]
    assert "waits: Unschedulable. 0/1 nodes are available: 1 Insufficient cpu." in str(caught.value)
    until(lambda: not kubernetes("daskclusters"))


def test_pods_for_which_there_is_no_room_are_told_beside_those_that_run(
    kubernetes: Callable[[str], list[Any]],
) -> None:
    with workbench.start("kubernetes", agreed=True, n_workers=5, service="NodePort") as far:  # type: ignore[call-arg]
        until(lambda: far.record.n_workers == 3)
        until(lambda: far.record.queued == "2 pending: Unschedulable")
        assert far.record.n_workers_expected == 5
        far.scale(1)
        until(lambda: far.record.n_workers_expected == 1)
    until(lambda: not kubernetes("daskclusters"))


def test_a_kubernetes_that_does_not_delete_it_is_told_with_what_deletes_it(
    kubernetes: Callable[[str], list[Any]], here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer("up", "kubernetes", "--workers", "1", *NODE_PORT, "--yes", "--name", "stays")
    (made,) = kubernetes("daskclusters")
    assert main(["down", "stays"]) == 1
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    said = capfd.readouterr().err
    assert "Kubernetes didn't delete it" in said
    assert f"may go on there. Delete it: kubectl delete daskcluster {name} --namespace {namespace}" in said
    assert records.read("stays").status == "lost"
    address = yaml.safe_load(here.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
    at = f"{address}/apis/kubernetes.dask.org/v1/namespaces/{namespace}/daskclusters/{name}?allowed=1"
    with urlopen(Request(at, method="DELETE")):
        until(lambda: not kubernetes("daskclusters"))


def test_its_code_starts_the_same_without_this_package(kubernetes: Callable[[str], list[Any]]) -> None:
    spec = plan("kubernetes", inventory(), n_workers=1, service="NodePort")  # type: ignore[call-arg]
    code = spec.code + "print(client.submit(sum, [1, 2]).result())\nclient.close()\ncluster.close()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert "\n3\n" in done.stdout, done.stderr
    assert not kubernetes("daskclusters")


def test_it_says_that_it_never_ran_on_a_real_one() -> None:
    assert "never yet on a real cluster" in profile("kubernetes").summary(inventory())
    assert any("never on a real cluster" in each for each in plan("kubernetes", inventory()).why)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"threads_per_worker": "0"}, "threads_per_worker is '0'. Give a whole number of threads for each worker"),
        ({"gpus": "-1"}, "gpus is '-1'. Input should be greater than or equal to 0"),
        ({"memory": "much"}, "memory is 'much'. Give the memory of all workers together"),
        ({"env": "["}, "env is to name where each value comes from"),
        ({"env": "{TOKEN: abc}"}, "env.TOKEN is or sets a secret, which would be stored"),
        ({"env": "{PLAIN: abc}"}, "Give a variable of this environment, such as {NAME: $NAME}"),
        ({"env": "{TOKEN: $NO_SUCH}"}, "this environment has no variable NO_SUCH"),
        ({"service": "None"}, "service is 'None'. Input should be 'ClusterIP', 'NodePort' or 'LoadBalancer'"),
        ({"pods": "3"}, "pods"),
    ],
)
def test_choices_that_can_not_be_are_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        plan("kubernetes", inventory(), **given)  # type: ignore[arg-type]
    assert sentence in str(caught.value)
    assert "abc" not in str(caught.value)


def test_code_and_preview_name_where_values_of_variables_come_from(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "abc")
    given = {"env": "{TOKEN: $A_TOKEN, KEY: secret/mine/key}"}
    with pytest.raises(BadParameterError, match="A_TOKEN isn't among the variables that a form may name"):
        plan("kubernetes", inventory(), **given)  # type: ignore[arg-type]
    with by_command():
        spec = plan("kubernetes", inventory(), **given)  # type: ignore[arg-type]
    assert spec.options["env"] == {"TOKEN": "$A_TOKEN", "KEY": "secret/mine/key"}
    shown = yaml.safe_load(profile("kubernetes").preview(spec) or "")
    (worker,) = shown["spec"]["worker"]["spec"]["containers"]
    made = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "key"}}}
    assert [each for each in worker["env"] if each["name"] in given["env"]] == [
        {"name": "TOKEN", "value": "$A_TOKEN"},
        made,
    ]
    assert """'value': os.environ["A_TOKEN"]""" in spec.code
    assert "abc" not in f"{shown}{spec.code}{spec}"


def test_gpus_get_workers_of_dask_cuda() -> None:
    shown = profile("kubernetes").preview(plan("kubernetes", inventory(), gpus=2)) or ""  # type: ignore[call-arg]
    (worker,) = yaml.safe_load(shown)["spec"]["worker"]["spec"]["containers"]
    assert worker["args"][4:7] == ["dask", "cuda", "worker"]
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": "2"}


class Without(http.server.BaseHTTPRequestHandler):
    """A Kubernetes without Dask's operator, or one that lets nobody in."""

    code = 404

    def do_GET(self) -> None:
        code = 200 if self.path.startswith("/version") else self.code
        self.send_response(code)
        self.end_headers()
        told = {"major": "1", "minor": "30", "gitVersion": "v1.30.0"} if code == 200 else {"message": "no, said it"}
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_: Any) -> None:
        pass


class Forbidden(Without):
    code = 403


@contextlib.contextmanager
def answering(kind: type[Without]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextlib.contextmanager
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (contextlib.nullcontext(""), "There is no kubeconfig ("),
        (contextlib.nullcontext("http://127.0.0.1:1"), "Kubernetes can't be reached"),
        (silent(), "Kubernetes didn't answer within 8 s"),
        (answering(Without), "Kubernetes has no Dask operator. Its administrator installs it with: helm"),
        (answering(Forbidden), "doesn't let you list Dask's clusters in the namespace default (403: no, said it)"),
    ],
)
def test_what_is_wrong_with_kubernetes_is_told_before_anything_starts(
    server: Any, sentence: str, here: Path, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with server as address:
        if address:
            config = yaml.safe_load(here.read_text(encoding="utf-8"))
            config["clusters"][0]["cluster"]["server"] = address
            (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        began = time.monotonic()
        with pytest.raises(WorkbenchError) as caught:
            workbench.start("kubernetes", agreed=True)
        assert time.monotonic() - began < 60
    assert sentence in str(caught.value)
    assert records.names() == ()
