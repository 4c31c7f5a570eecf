"""A Jupyter server as people start it, that is asked for paths which never answer."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import workbench

TOKEN = "a-token-for-tests"
PATIENCE = 120.0


class Server:
    """A Jupyter server of its own, asked over HTTP."""

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
        environment |= {"PYTHONPATH": str(Path(workbench.__file__).parent.parent), "HOME": str(folder)}
        command = [sys.executable, "-m", "jupyter_server", f"--port={self.port}", "--no-browser", "--allow-root"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    def ask(self, path: str, body: Any = None, timeout: float = PATIENCE) -> tuple[int, Any]:
        """Status and content of an answer below the root."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {TOKEN}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as err:
            return err.code, json.load(err)

    def answers(self) -> bool:
        try:
            return self.ask("api/status")[0] == 200
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
    """Processes that look at something for the server."""
    import psutil

    children = psutil.Process(server.process.pid).children(recursive=True)
    living = [each for each in children if each.status() != psutil.STATUS_ZOMBIE]
    parents = {each.pid for each in living if "workbench.views.looking" in " ".join(each.cmdline())}
    return [each.pid for each in living if each.ppid() in parents]


def wait_for(server: Server, n: int, seconds: float = PATIENCE) -> None:
    """Wait until so many processes look: one that has answered is still there for a moment."""
    deadline = time.monotonic() + seconds
    while len(looking(server)) != n:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ask_in_vain(server: Server, url: str) -> None:
    with suppress(OSError, http.client.HTTPException):
        server.ask("workbench/api/workloads/svd_of_file/needs", {"parameters": {"path": url}})


def test_the_server_answers_and_stops_though_eight_paths_never_answer(server: Server, tmp_path: Path) -> None:
    fifos = [tmp_path / f"fifo-{number}.npy" for number in range(8)]
    for fifo in fifos:
        os.mkfifo(fifo)
    for fifo in fifos:
        status, said = server.ask("workbench/api/workloads/svd_of_file/needs", {"parameters": {"path": str(fifo)}})
        assert (status, said["parameter"]) == (400, "path")
        assert "is a FIFO" in said["message"]
    with silent_servers(8) as urls:
        for url in urls:
            threading.Thread(target=ask_in_vain, args=(server, url), daemon=True).start()
        wait_for(server, 8)
        for path in ("api/kernelspecs", "workbench/api/state", "workbench/api/hardware"):
            assert server.ask(path, timeout=PATIENCE)[0] == 200
        ordinary = {"parameters": {"size": "1GiB"}}
        assert server.ask("workbench/api/workloads/array_sum/needs", ordinary, timeout=PATIENCE)[0] == 200
        wait_for(server, 8)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)


def test_a_page_that_goes_away_ends_what_looked_for_it(server: Server) -> None:
    ordinary = {"parameters": {"size": "1GiB"}}
    assert server.ask("workbench/api/workloads/array_sum/needs", ordinary)[0] == 200
    with silent_servers(1) as urls:
        with pytest.raises(TimeoutError):
            server.ask("workbench/api/workloads/svd_of_file/needs", {"parameters": {"path": urls[0]}}, timeout=2)
        wait_for(server, 0, 12)  # and not the 20 s after which it ends anyway


def test_what_never_answers_is_said_after_a_while(server: Server) -> None:
    with silent_servers(1) as urls:
        status, said = server.ask("workbench/api/workloads/svd_of_file/needs", {"parameters": {"path": urls[0]}}, 120)
    assert status == 409
    assert said["message"].startswith(f"No answer within 20 s. What was asked of '{urls[0]}' is on a disk or a server")
