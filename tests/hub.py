"""A real JupyterHub on loopback with two users, on a machine of its own: its users, homes and processes end with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil
import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests.waiting import until

T = TypeVar("T")

USERS = {"ann": 40001, "bob": 40002}

_ROOT = Path(__file__).parents[1]
_ENVIRONMENT = _ROOT / ".venv-hub"
_ADMIN = "token-of-the-admin"

_CONFIGURATION = """
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}/"
c.JupyterHub.hub_port = {ports[1]}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
c.ConfigurableHTTPProxy.command = ["configurable-http-proxy"]
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {users!r}
c.JupyterHub.services = [{{"name": "admin", "api_token": "{admin}"}}]
c.JupyterHub.load_roles = [{{"name": "admin", "services": ["admin"]}}]
c.Spawner.cmd = ["{python}", "-m", "jupyterhub.singleuser"]
c.Spawner.environment = {environment!r}
"""

# In a mount namespace. What other users may not enter, such as root's home, is replaced by an empty folder that holds
# only what is needed of it, such as Python and this repository.
OPEN = """
set -e
for path in {needed}; do
    top=$path closed=
    while [ "$top" != / ]; do
        case $(stat -c %A "$top") in *x|*t) ;; *) closed=$top ;; esac
        top=$(dirname "$top")
    done
    if [ -n "$closed" ]; then
        mkdir -p {folder}/moved
        mount --bind "$path" {folder}/moved
        mount -t tmpfs -o mode=755 opened "$closed"
        mkdir -p "$path"
        mount --bind {folder}/moved "$path"
    fi
done
"""

_PREPARE = """
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/group /etc/group
mount -t tmpfs -o mode=755 home /home
mkdir -m 1777 /home/tmp
for user in {names}; do mkdir -m 700 /home/$user && chown $user:$user /home/$user; done
mkdir -m 755 /home/etc && cp -r {folder}/etc/. /home/etc
touch {folder}/prepared
"""


class Answer(NamedTuple):
    """Answer of a server: nothing is followed, and no status is an error."""

    status: int
    headers: HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Hub(NamedTuple):
    """The Hub, asked through its proxy."""

    port: int
    pid: int
    folder: Path

    def ask(
        self, verb: str, path: str, token: str | None = None, body: object = None, port: int | None = None
    ) -> Answer:
        connection = HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"token {token}"} if token else {})
        try:
            connection.request(verb, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def administer(self, verb: str, path: str, body: object = None) -> Answer:
        return self.ask(verb, f"/hub/api/{path}", _ADMIN, body)

    def token(self, user: str) -> str:
        """Return a token of this user, who is added if unknown."""
        self.administer("POST", f"users/{user}")
        answer = self.administer("POST", f"users/{user}/tokens", {})
        assert answer.status == 201, answer
        return str(answer.json()["token"])

    def start(self, *users: str) -> None:
        """Start their servers, and wait for all of them."""
        for user in users:
            answer = self.administer("POST", f"users/{user}/server")
            assert answer.status in (201, 202), answer
        until(lambda: rarely(all(self.server(user).get("ready") for user in users)), 90, self.log)

    def server(self, user: str) -> dict[str, Any]:
        """Return the Hub's information on a user's server; {} without one."""
        found: dict[str, Any] = self.administer("GET", f"users/{user}").json()["servers"].get("", {})
        return found

    def workbench(self, verb: str, user: str, path: str, token: str | None, body: object = None) -> Answer:
        """Answer of the Workbench in a user's server."""
        return self.ask(verb, f"/user/{user}/workbench/api/{path}", token, body)

    def state(self, user: str, token: str) -> dict[str, Any]:
        """Return the state that the Workbench sends to a page."""
        return asyncio.run(self._received(user, token, "state"))

    def act(self, user: str, token: str, name: str, /, **arguments: Any) -> None:
        """Have the Workbench perform an action."""
        message = {"type": "action", "id": 1, "name": name, "arguments": arguments}
        answer = asyncio.run(self._received(user, token, "answer", message))
        assert "value" in answer, answer

    async def _received(self, user: str, token: str, kind: str, *messages: object) -> dict[str, Any]:
        """Return the first message of a type, after sending some."""
        address = f"ws://127.0.0.1:{self.port}/user/{user}/workbench/api/stream"
        page = await websocket_connect(HTTPRequest(address, headers={"Authorization": f"token {token}"}))
        for message in messages:
            await page.write_message(json.dumps(message))
        async with asyncio.timeout(60):
            while text := await page.read_message():
                received: dict[str, Any] = json.loads(text)
                if received["type"] == kind:
                    page.close()
                    return received
        raise ConnectionError(f"the server of {user} closed the connection")

    def home(self, user: str) -> Path:
        """Home of a user, as root sees it from outside."""
        return Path(f"/proc/{self.pid}/root/home/{user}")

    def processes(self, user: str) -> list[psutil.Process]:
        """All processes of a user that run. What ended waits for the Hub, which is the first process, to notice."""
        of_all = psutil.process_iter(["uids", "status"])
        of_user = (each for each in of_all if each.info["uids"].real == USERS[user])
        return [each for each in of_user if each.info["status"] != psutil.STATUS_ZOMBIE]

    def run_as(self, user: str, *command: str) -> str:
        """Output of a command that a user runs."""
        number = str(USERS[user])
        words = ["nsenter", "-t", str(self.pid), "--mount", "--pid", "setpriv", "--reuid", number, "--regid", number]
        words += ["--clear-groups", "env", f"HOME=/home/{user}", "TMPDIR=/home/tmp", *command]
        done = subprocess.run(words, cwd="/", env=_variables(), capture_output=True, text=True, timeout=60)
        assert not done.returncode, done
        return done.stdout

    def cull(self, *users: str) -> None:
        """Let the idle culler end the servers of these users, none of which was used lately."""
        command = [str(python()), "-m", "jupyterhub_idle_culler", "--timeout=1", "--cull-every=1"]
        command += [f"--url=http://127.0.0.1:{self.port}/hub/api"]
        with (self.folder / "culler.log").open("wb") as log:
            culler = subprocess.Popen(command, env={**_variables(), "JUPYTERHUB_API_TOKEN": _ADMIN}, stderr=log)
            try:
                until(lambda: rarely(not any(map(self.server, users))), 60, self.log)
            finally:
                culler.terminate()
                culler.wait(10)

    def log(self) -> str:
        return (self.folder / "log").read_text()[-3000:]


def python() -> Path:
    return _ENVIRONMENT / "bin" / "python"


def _variables() -> dict[str, str]:
    """Return the environment without variables that lead to the data of the user who runs the tests."""
    ours = ("DASK_", "JUPYTER", "PYTHON", "TMPDIR", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PATH": f"{_ENVIRONMENT}/proxy/node_modules/.bin:{_ENVIRONMENT}/bin:{os.environ['PATH']}"}


def _environment(folder: Path) -> dict[str, str]:
    """Variables of a user's server, which loads no extension but ours: JupyterLab's pages aren't asked for here."""
    ours = "jupyter_server_config.d/dask_workbench.json"
    (folder / "etc" / ours).parent.mkdir(parents=True)
    (folder / "etc" / ours).write_bytes(Path(sys.prefix, "etc", "jupyter", ours).read_bytes())
    app = {"JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp", "JUPYTER_CONFIG_PATH": "/home/etc"}
    return {**app, "TMPDIR": "/home/tmp"}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Hub]:
    """Run the Hub until the block ends; skip the test if it can't be installed."""
    if not (_ENVIRONMENT / ".installed").exists():
        pytest.skip("There is no JupyterHub: `make tools` installs one into .venv-hub, with its proxy from npm.")
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("A Hub starts servers as other users, which only root can, here in namespaces of Linux.")
    with contextlib.ExitStack() as free:
        sockets = [free.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [each.getsockname()[1] for each in sockets]
    entries = [f"{name}:x:{number}:{number}::/home/{name}:/bin/sh" for name, number in USERS.items()]
    _add("/etc/passwd", entries, folder / "passwd")
    _add("/etc/group", [f"{name}:x:{number}:" for name, number in USERS.items()], folder / "group")
    given = {"folder": folder, "ports": ports, "admin": _ADMIN, "python": python(), "users": {*USERS}}
    (folder / "config.py").write_text(_CONFIGURATION.format(environment=_environment(folder), **given))
    needed = " ".join(f"'{path}'" for path in dict.fromkeys((sys.base_prefix, str(_ROOT))))
    prepare = (OPEN + _PREPARE).format(folder=folder, needed=needed, names=" ".join(USERS))
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
    command += [f'{prepare} exec "$@"', "sh", str(python()), "-m", "jupyterhub", "-f", str(folder / "config.py")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=_variables(), stdout=log, stderr=log)
    try:
        until(lambda: (folder / "prepared").exists() or process.poll() is not None, 20)
        if not (folder / "prepared").exists():
            pytest.skip(f"No namespaces can be made here: {(folder / 'log').read_text()[-300:]}")
        (child,) = psutil.Process(process.pid).children()
        hub = Hub(ports[0], child.pid, folder)
        until(lambda: _answers(hub), 150, hub.log)
        yield hub
    finally:
        # The first of its processes, with which all of them end.
        for each in psutil.Process(process.pid).children() or [process]:
            each.kill()
        process.wait(10)


def _add(system: str, lines: list[str], path: Path) -> None:
    path.write_text("\n".join([Path(system).read_text(encoding="utf-8").rstrip(), *lines, ""]), encoding="utf-8")


def _answers(hub: Hub) -> bool:
    try:
        return rarely(hub.administer("GET", "users").status == 200)
    except OSError:
        return rarely(False)


def rarely(answer: T) -> T:
    """Return the answer after a pause: who asks without one keeps the Hub from what is waited for."""
    time.sleep(0.2)
    return answer
