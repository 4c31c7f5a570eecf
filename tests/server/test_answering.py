"""A Jupyter server as people start it, that is asked for paths which never answer, or slowly."""

from __future__ import annotations

import asyncio
import html
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask.array as da
import fsspec
import numpy as np
import pytest
import zarr
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

import workbench
from tests.waiting import until
from workbench.cli import main
from workbench.errors import ConflictError
from workbench.runs import answer_storage, background_saves, store
from workbench.runs.run import Run
from workbench.storage.variables import dataset

TOKEN = "a-token-for-tests"
PATIENCE = 120.0
LOGIN = {"Authorization": f"token {TOKEN}"}


@asynccontextmanager
async def opened(request: HTTPRequest) -> AsyncIterator[WebSocketClientConnection]:
    page = await websocket_connect(request)
    try:
        yield page
    finally:
        page.close()
        await asyncio.sleep(0.1)  # or the loop ends before this is sent


async def received(page: WebSocketClientConnection, kind: str) -> Any:
    """Return the next message of a type."""
    while text := await page.read_message():
        if (message := json.loads(text))["type"] == kind:
            return message
    raise ConnectionError("the server closed the connection")


async def viewed(request: HTTPRequest, view: str, choices: Mapping[str, str], timeout: float = PATIENCE) -> str:
    async with asyncio.timeout(timeout), opened(request) as page:
        await page.write_message(json.dumps({"type": "choose", "choices": choices}))
        await page.write_message(json.dumps({"type": "watch", "watch": "a", "view": view}))
        return str((await received(page, "patches"))["html"])


async def acted(request: HTTPRequest, name: str, arguments: Mapping[str, Any]) -> Any:
    async with asyncio.timeout(PATIENCE), opened(request) as page:
        await page.write_message(json.dumps({"type": "action", "id": 1, "name": name, "arguments": arguments}))
        return await received(page, "answer")


class Server:
    """A Jupyter server of its own."""

    def __init__(self, folder: Path) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        enabled = folder / "config" / "jupyter_server_config.d"
        enabled.mkdir(parents=True)
        others = ("jupyterlab", "notebook", "notebook_shim", "jupyter_lsp", "panel.io.jupyter_server_extension")
        extensions = {"workbench": True} | dict.fromkeys(others, False)
        (enabled / "zz.json").write_text(json.dumps({"ServerApp": {"jpserver_extensions": extensions}}))
        self.log = folder / "server.log"
        names = {name: str(folder / name.lower()) for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")}
        environment = os.environ | {f"JUPYTER_{name}": path for name, path in names.items()}
        environment |= {"JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTER_TOKEN": TOKEN}
        ours = [str(Path(workbench.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, ours)), "HOME": str(folder)}
        command = [sys.executable, "-m", "jupyter_server", f"--port={self.port}", "--no-browser", "--allow-root"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    def ask(self, path: str, timeout: float = PATIENCE) -> int:
        """Return the status of an answer below the root."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", headers=LOGIN)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as err:
            return err.code

    def view(self, name: str, timeout: float = PATIENCE, **choices: str) -> str:
        """Return the HTML of a view, as a page watches it."""
        return asyncio.run(viewed(self.open(), name, choices, timeout))

    def act(self, name: str, /, **arguments: Any) -> Any:
        """Return the answer to an action."""
        return asyncio.run(acted(self.open(), name, arguments))

    def open(self) -> HTTPRequest:
        return HTTPRequest(f"ws://127.0.0.1:{self.port}/workbench/api/stream", headers=LOGIN)

    def answers(self) -> bool:
        try:
            return self.ask("api/status") == 200
        except OSError:
            return False


@pytest.fixture
def server(tmp_path: Path, data_folder: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    try:
        deadline = time.monotonic() + PATIENCE
        while not found.answers():
            assert found.process.poll() is None, found.log.read_text()
            assert time.monotonic() < deadline, found.log.read_text()
            time.sleep(0.1)
        yield found
    finally:
        found.process.kill()
        found.process.wait()


@contextmanager
def silent_servers(n: int) -> Iterator[list[str]]:
    """Addresses of servers that take a connection and say nothing."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    try:
        yield [f"http://127.0.0.1:{each.getsockname()[1]}/x.zarr" for each in listening]
    finally:
        for each in listening:
            each.close()


def looking(server: Server) -> list[int]:
    """Return the pids of the server's processes that read folders or files."""
    children = children_of(server)
    parents = {pid for pid, _, line in children if LOOKING in line}
    return [pid for pid, parent, _ in children if parent in parents]


LOOKING = "workbench.views.path_process"


def children_of(server: Server) -> list[tuple[int, int, str]]:
    """Process, parent and command line of each that the server began."""
    import psutil

    children = []
    for each in psutil.Process(server.process.pid).children(recursive=True):
        with suppress(psutil.Error):  # One that has just ended has no command line any more.
            children.append((each.pid, each.ppid(), " ".join(each.cmdline())))
    return children


def wait_for_nobody(server: Server, seconds: float = PATIENCE) -> None:
    """Wait until no process looks any more: one that has answered is still there for a moment."""
    until(lambda: not looking(server), seconds)


def wait_for_all(server: Server, n: int) -> None:
    """Wait until processes look at so many paths. Of each a form asks what it holds and what a run needs, at once."""
    until(lambda: len(looking(server)) >= n, PATIENCE)


def form_of(server: Server, workload: str, timeout: float = PATIENCE, **parameters: str) -> str:
    """Return the form of a workload with these parameters."""
    chosen = {f"run.{workload}.{name}": value for name, value in parameters.items()}
    return html.unescape(server.view("work", timeout, workload=workload, **chosen))


def ask_in_vain(server: Server, url: str) -> None:
    with suppress(OSError):
        form_of(server, "svd_of_file", path=url)


def test_paths_are_looked_at_by_processes_that_end_and_the_server_answers_and_stops_though_eight_never_answer(
    server: Server, tmp_path: Path
) -> None:
    form_of(server, "array_sum")
    assert not any(LOOKING in line for *_, line in children_of(server))
    form_of(server, "svd_of_file")
    # A form that takes a path has it started before the path is typed.
    assert any(LOOKING in line for *_, line in children_of(server))
    assert "/nowhere.npy" in form_of(server, "svd_of_file", path="/nowhere.npy")
    with silent_servers(2) as (left, awaited):
        with pytest.raises(TimeoutError):
            form_of(server, "svd_of_file", timeout=2, path=left)
        wait_for_nobody(server, 12)  # and not the 20 s after which it ends anyway
        shown = form_of(server, "svd_of_file", path=awaited)
    assert f"No answer within 20 s: the disk or server of '{awaited}' does not respond." in shown
    os.mkfifo(tmp_path / "fifo.npy")
    assert "is a FIFO" in form_of(server, "svd_of_file", path=str(tmp_path / "fifo.npy"))
    with silent_servers(8) as urls:
        for url in urls:
            threading.Thread(target=ask_in_vain, args=(server, url), daemon=True).start()
        wait_for_all(server, 8)
        assert server.ask("api/kernelspecs") == 200
        assert "run-button" in form_of(server, "array_sum", size="1GiB")
        wait_for_all(server, 8)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)


_SLOW = """
import pathlib, time
from fsspec.implementations.local import LocalFileSystem

class Slow(LocalFileSystem):
    protocol = "slow"
    blocks = 0

    def __init__(self, **options):
        super().__init__(auto_mkdir=True, **options)

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(path.removeprefix("slow://"))

    def pipe_file(self, path, value, **options):
        if "/c/" in path:
            Slow.blocks += 1
            go = pathlib.Path(path.partition("/.out")[0], "go")
            end = time.monotonic() + 90  # of a test that failed
            while Slow.blocks > 3 and not go.exists() and time.monotonic() < end:
                time.sleep(0.02)
        super().pipe_file(path, value, **options)
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder behind `slow://`, in which a process writes three blocks, and more where there is a file go."""
    about = tmp_path / "packages" / "slow-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fsspec.specs]\nslow = slow_store:Slow\n")
    (tmp_path / "packages" / "slow_store.py").write_text(_SLOW)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    fsspec.register_implementation("slow", "slow_store.Slow", clobber=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path / "packages"), os.environ.get("PYTHONPATH", ""))))
    return tmp_path


def test_saving_goes_on_without_the_server_and_every_face_says_how_far_it_is(
    slow: Path, data_folder: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.arange(240.0).reshape(120, 2)
    run = store.create(Run(id="mine-1", workload="mine", cluster="otter", status="done"))
    kept = answer_storage.leave(run.id, dataset({"x": (("row", "column"), da.from_array(x, chunks=(10, 2)))}), None)
    store.update(run.id, answers=kept.answers)

    def save(name: str) -> Any:
        return server.act("save_run", run="mine-1", path=name)

    assert "nowhere" in save(str(slow / "nowhere" / "out.npz"))["message"]
    (slow / "taken.npz").write_text("somebody's")
    assert "taken.npz" in save(str(slow / "taken.npz"))["message"]
    assert (slow / "taken.npz").read_text() == "somebody's"
    assert save(f"slow://{slow}/out.zarr")["value"] is None
    until(lambda: background_saves.get(run.id).done == 3, about=lambda: background_saves.get(run.id))
    told = f"Saving to slow://{slow}/out.zarr …: 3 of 12 blocks"
    assert background_saves.get(run.id).sentence == told
    assert told in server.view("saving:mine-1")
    assert main(["show", run.id]) == 0
    assert "3 of 12 blocks" in " ".join(capsys.readouterr().out.split())
    assert "Wait until it has ended, or cancel it" in save(str(slow / "other.npz"))["message"]
    server.process.kill()
    server.process.wait()
    (slow / "go").touch()
    until(lambda: not background_saves.get(run.id).active, about=lambda: background_saves.get(run.id))
    assert background_saves.get(run.id).sentence == f"Saved to slow://{slow}/out.zarr."
    np.testing.assert_array_equal(zarr.open(slow / "out.zarr")["x"][...], x)


def test_saving_that_is_cancelled_killed_or_fails_says_so(slow: Path, data_folder: Path) -> None:
    run = store.create(Run(id="mine-1", workload="mine", cluster="otter", status="done"))
    kept = answer_storage.leave(run.id, dataset({"x": (("row", "column"), da.ones((120, 2), chunks=(10, 2)))}), None)
    run = store.update(run.id, answers=kept.answers)

    def ended() -> background_saves.Saving:
        until(lambda: not background_saves.get(run.id).active, about=lambda: background_saves.get(run.id))
        return background_saves.get(run.id)

    def held(name: str) -> int:
        background_saves.start(run, f"slow://{slow}/{name}.zarr")
        until(lambda: background_saves.get(run.id).done == 3, about=lambda: background_saves.get(run.id))
        return background_saves.get(run.id).pid or 0

    os.kill(held("out-1"), signal.SIGKILL)
    assert (ended().status, "Nothing was changed: save again." in ended().sentence) == ("lost", True)
    assert not (slow / "out-1.zarr").exists()
    held("out-2")
    background_saves.cancel(run.id)
    (slow / "go").touch()
    assert ended().status == "cancelled"
    assert not (slow / "out-2.zarr").exists()
    with pytest.raises(ConflictError, match=r"There is nothing to cancel. Saving to .* was cancelled"):
        background_saves.cancel(run.id)
    store.update(
        run.id, answers=answer_storage.leave(run.id, dataset({"x": (("row", "column"), _noise())}), None).answers
    )
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
    try:
        background_saves.start(store.get(run.id), slow / "full.zarr")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (ended().status, "Make room there, or choose another path" in ended().sentence) == ("failed", True)
    assert list(slow.glob("*full*")) == []


def _noise() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random((100, 100))
