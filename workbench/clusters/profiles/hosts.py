"""Machines reached by SSH: checked first, then given workers that are restarted if they fail."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import logging
import os
import platform
import shlex
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncssh
import dask
import psutil

from workbench import private, remote
from workbench.clusters.engine import Engine
from workbench.clusters.profiles import remote_worker
from workbench.clusters.reachability import Place
from workbench.clusters.spec import MOVES_TO_HOST, ClusterSpec, measured
from workbench.errors import BadInputError, FailedError, WorkbenchError, whole
from workbench.formats import count, duration
from workbench.sent_code import About, differing_versions

if TYPE_CHECKING:
    from distributed.security import Security

logger = logging.getLogger("workbench.host")
logging.getLogger("asyncssh").setLevel(logging.WARNING)

CONNECTING = 5.0
ANSWERING = 9.0
"""Seconds for a connection with its login, and for a machine to describe itself."""

_SIGN, _SIGNS = 5.0, 2
"""Seconds between two keep-alive messages over SSH, and the number that may be missed."""

_AGAIN = 5.0
"""Seconds before a lost worker is restarted."""

_CLOSING = 6.0
_TAIL = 20

_MAIN = "main(arguments, about, make_folder, remove_folders)"
# `python -c` of this reads its code from standard input: command lines are visible to all users.
_BEGIN = (
    "import json, sys; arguments = json.loads(sys.stdin.readline()); "
    "[exec(each, globals()) for each in arguments['texts']]"
)


class _Machine:
    """A machine to be reached by SSH."""

    def __init__(self, host: str, options: Mapping[str, Any]) -> None:
        self.host = host
        self._python = str(options.get("remote_python") or sys.executable)
        self._port, self._key = options.get("port"), options.get("key")
        connection_options = {
            "username": options.get("user"),
            "port": self._port,
            "client_keys": self._key and [self._key],
            "known_hosts": options.get("known_hosts"),
        }
        # The rest comes from ~/.ssh/config, the agent and asyncssh.
        self._options = {name: value for name, value in connection_options.items() if value is not None}

    async def connect(self) -> asyncssh.SSHClientConnection:
        """Log in. Raises BadInputError with the reason."""
        try:
            async with asyncio.timeout(CONNECTING + 1):
                return await asyncssh.connect(
                    self.host,
                    connect_timeout=CONNECTING,
                    login_timeout=CONNECTING,
                    keepalive_interval=_SIGN,
                    keepalive_count_max=_SIGNS,
                    **self._options,
                )
        except (OSError, TimeoutError, asyncssh.Error, ValueError) as err:
            raise BadInputError(self.why(err)) from err

    async def begin(self, connection: asyncssh.SSHClientConnection, arguments: Mapping[str, Any]) -> Any:
        """Start Python there and send it the arguments, with the code in `texts`; its standard input stays open."""
        python = self._python
        quoted = f"~/{shlex.quote(python[2:])}" if python.startswith("~/") else shlex.quote(python)
        process = await connection.create_process(f"{quoted} -c {shlex.quote(_BEGIN)}")
        process.stdin.write(json.dumps(arguments, default=str) + "\n")
        return process

    def no_worker(self, output: str, status: int | None) -> str:
        python, lines = self._python, output.strip().splitlines() or [f"it ended with {status} and said nothing"]
        if status in (126, 127) and "Error" not in output:
            return (
                f"{self.host} has no Python at {python} ({whole(lines[-1], 200)}). Give remote_python, the path of an "
                "interpreter there that has dask and distributed."
            )
        if "No module named" in output:
            package = output.rpartition("No module named")[2].strip().strip("'").split("'")[0].split(".")[0]
            return f"{python} on {self.host} has no {package}. Install it there: pip install {package}"
        return f"The worker on {self.host} did not start: {whole(lines[-1], 300)}"

    def why(self, err: Exception) -> str:
        at = self.host if self._port is None else f"{self.host}:{self._port}"
        if isinstance(err, socket.gaierror):
            return f"There is no host {self.host!r} ({err.strerror}). Check hosts."
        if isinstance(err, asyncssh.HostKeyNotVerifiable):
            return (
                f"{at} has a key of its own that isn't among the known hosts ({err.reason}). See that it is the right "
                f"machine and log in once by hand: ssh {f'-p {self._port} ' if self._port else ''}{self.host}"
            )
        if isinstance(err, asyncssh.PermissionDenied):
            return f"{at} let nobody in with this user and key ({err.reason}). Give user and key as for ssh."
        if isinstance(err, (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)):
            return f"The key {self._key} can't be used ({err}). Add one with a passphrase to an agent: ssh-add."
        if isinstance(err, FileNotFoundError) and err.filename:
            return f"There is no file {err.filename}. Give key and known_hosts as paths of this machine."
        if isinstance(err, TimeoutError) or "timeout" in str(err).lower():
            return (
                f"Nothing at {at} answered as an SSH server within {duration(CONNECTING)}. Check host and port, and "
                "firewalls between."
            )
        if isinstance(err, OSError):
            reason = os.strerror(err.errno) if err.errno else str(err)
            return f"No SSH server at {at} ({reason}). Check host and port."
        return f"{at} can't be used by SSH ({whole(str(err), 200)})."


async def ask(spec: ClusterSpec) -> list[About]:
    """Ask all machines to describe themselves.

    Raises BadInputError if one can't be reached, or its Python or Dask differs from ours; the message names the first.
    """
    machines = [_Machine(host, spec.options) for host in spec.options["hosts"]]
    answers = await asyncio.gather(*map(_ask, machines), return_exceptions=True)
    for each in answers:
        if isinstance(each, BaseException):
            raise each
    abouts = [each for each in answers if isinstance(each, About)]
    versions = [(f"on {machine.host}", about.versions[1]) for machine, about in zip(machines, abouts, strict=True)]
    # Another NumPy is reported once the cluster is up.
    if diff := differing_versions(
        versions, {"python": platform.python_version(), **remote.packages()}, loose=["numpy"]
    ):
        raise BadInputError(
            f"Tasks can't travel between these machines and this one: {diff}. Install the same there, or give "
            "remote_python, an interpreter there that has it."
        )
    n_gpus = spec.options.get("gpus") or 0
    for machine, about in zip(machines, abouts, strict=True):
        if n_gpus > len(about.gpus):
            raise BadInputError(
                f"gpus is {n_gpus}, and {machine.host} has {len(about.gpus)} that NVML can see from {about.python}. "
                "Give fewer, or install dask-cuda there."
            )
    return abouts


async def _ask(machine: _Machine) -> About:
    texts = [inspect.getsource(remote), "print(json.dumps(about()))"]
    try:
        async with asyncio.timeout(ANSWERING), await machine.connect() as connection:
            process = await machine.begin(connection, {"texts": texts})
            done = await process.wait(check=False)
    except TimeoutError as err:
        raise BadInputError(f"Python on {machine.host} didn't answer within {duration(ANSWERING)}.") from err
    except (OSError, asyncssh.Error) as err:
        raise BadInputError(machine.why(err)) from err
    # A shell there may first print its own text.
    lines = [line for line in str(done.stdout).splitlines() if line.startswith("{")]
    if done.exit_status != 0 or not lines:
        raise BadInputError(machine.no_worker(str(done.stderr), done.exit_status))
    return About("workers", **json.loads(lines[-1]))


class _Worker:
    """A worker on a machine: started, restarted if it fails, and ended."""

    def __init__(
        self,
        name: str,
        machine: _Machine,
        arguments: Mapping[str, Any],
        changed: Callable[[], None],
        lost: Callable[[str], Awaitable[None]],
    ) -> None:
        self.name, self.machine = name, machine
        self.about: About | None = None
        self.trouble: str | None = None
        self._seen = False
        self._arguments = arguments
        self._changed, self._lost = changed, lost
        self._said: deque[str] = deque(maxlen=_TAIL)
        self._tending = asyncio.create_task(self._tend())

    async def close(self) -> None:
        self._tending.cancel()
        await asyncio.wait({self._tending})

    async def _tend(self) -> None:
        while True:
            try:
                await self._live()
            except Exception as err:
                # A machine that can't be reached again after it was there counts as lost.
                away = isinstance(err, (OSError, asyncssh.Error)) or (self._seen and isinstance(err, BadInputError))
                self.trouble = str(err)
                if away:
                    self.trouble = (
                        f"{self.machine.host} is unreachable: it sent nothing for {duration(_SIGN * _SIGNS)} or "
                        f"longer. Its tasks go to other workers, and it is tried again every {duration(_AGAIN)}."
                    )
                logger.warning("%s", self.trouble, exc_info=not isinstance(err, WorkbenchError))
                if self.about is not None:
                    self.about = None
                    await self._lost(self.name)
            self._changed()
            await asyncio.sleep(_AGAIN)

    async def _live(self) -> None:
        """Run a worker there until it ends. Raises FailedError unless it ended normally."""
        self._said.clear()
        connection = await self.machine.connect()
        process, ended = None, False
        try:
            process = await self.machine.begin(connection, self._arguments)
            reading = asyncio.create_task(self._log(process.stderr))
            async for line in process.stdout:
                # A shell there may first print its own text.
                if line.startswith("{"):
                    ended = self._hear(json.loads(line)) or ended
            await process.wait_closed()
            await asyncio.wait({reading})
        finally:
            # It ends when its input does, even if this process dies.
            with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
                if process is not None:
                    process.stdin.write_eof()
                    await asyncio.wait_for(process.wait_closed(), _CLOSING)
            connection.close()
        if not ended and self.about is not None:
            raise FailedError(
                f"The worker on {self.machine.host} ended unexpectedly. It restarts in {duration(_AGAIN)}; the log of "
                "the cluster has its output."
            )
        if not ended:
            raise FailedError(self.machine.no_worker("\n".join(self._said), process.exit_status))

    def _hear(self, line: Mapping[str, Any]) -> bool:
        """Process a line of its output; return whether it reports a normal end."""
        if "unreachable" in line:
            raise FailedError(
                f"{self.machine.host} can't reach the scheduler at {self._arguments['scheduler']} "
                f"({line['unreachable']}). Give listen, an address of this machine that it can connect to, and see "
                "that no firewall is between."
            )
        if "up" in line:
            self.about = About("workers", **line["up"])
            self.trouble, self._seen = None, True
            self._changed()
        return "ended" in line

    async def _log(self, lines: Any) -> None:
        # The reader of the other lines reports a lost connection.
        with contextlib.suppress(OSError, asyncssh.Error):
            async for line in lines:
                self._said.append(line)
                logger.info("%s: %s", self.machine.host, line.rstrip())


class HostsEngine(Engine):
    """Workers on machines, with the scheduler in this process; a new one goes to the machine with the fewest."""

    remedy = "See that no firewall is between."

    def __init__(self, per_host: int, spec: ClusterSpec, security: Security | None, *args: Any) -> None:
        super().__init__(spec, security, *args)
        self._per_host = per_host
        self._workers: dict[str, _Worker] = {}
        self._machines = [_Machine(host, spec.options) for host in spec.options["hosts"]]
        self._gpus = bool(spec.options.get("gpus"))
        keys = ("tls_ca_file", "tls_worker_cert", "tls_worker_key")
        self._arguments = {
            "texts": [*map(inspect.getsource, (remote, private, remote_worker)), _MAIN],
            "config": {"distributed": dask.config.get("distributed")},
            "keys": {name: getattr(security, name) for name in keys} if security else None,
            "threads": spec.threads_per_worker,
            "memory": spec.memory_limit,
            "workers_per_host": per_host,
        }

    async def start(self) -> Place:
        """Start the scheduler at an address that the machines can reach."""
        listen = self.spec.options.get("listen")
        host = address_of(listen) if listen else await _outward(self._machines[0])
        return await self.serve(host=host)

    async def have(self, n: int) -> None:
        names = await self.retire(list(self._workers), len(self._workers) - n)
        await asyncio.gather(*(self._workers.pop(name).close() for name in names))
        while len(self._workers) < n:
            self._add()

    def _add(self) -> None:
        counts = Counter(each.machine.host for each in self._workers.values())
        machine = min(self._machines, key=lambda each: counts[each.host])
        number = next(n for n in itertools.count() if f"{machine.host}-{n}" not in self._workers)
        name, parts = f"{machine.host}-{number}", urlsplit(self.place.address)
        arguments = {
            **self._arguments,
            "scheduler": self.place.address,
            "name": name,
            "contact": (parts.hostname, parts.port),
            "gpu": number if self._gpus else None,
        }
        self._workers[name] = _Worker(name, machine, arguments, self.changed, self._forget)

    async def _forget(self, name: str) -> None:
        """Move its tasks elsewhere at once: Dask itself would notice after half a minute."""
        addresses = [address for address, each in self.workers.items() if each["name"] == name]
        async with self.rpc() as scheduler:
            for address in addresses:
                await scheduler.unregister(address=address, stimulus_id=f"workbench-away-{time.time()}")

    def check_start(self) -> None:
        """Raise FailedError with the message of the first that failed, once each has arrived or failed."""
        if all(each.about or each.trouble for each in self._workers.values()) and (trouble := self.trouble()):
            raise FailedError(trouble)

    def trouble(self) -> str | None:
        return " ".join(dict.fromkeys(each.trouble for each in self._workers.values() if each.trouble)) or None

    def measured(self, spec: ClusterSpec, memory: int) -> ClusterSpec:
        """Return the spec with the sizes of its workers and, from all machines that have answered, their GPUs."""
        abouts = {each.machine.host: each.about for each in self._workers.values() if each.about}
        cards = [card for about in abouts.values() for card in about.gpus[: spec.options.get("gpus") or 0]]
        updates = {"n_workers": self.spec.n_workers} | (
            {}
            if not cards
            else {
                "devices": tuple(uuid for uuid, _, _ in cards),
                "device_memory_limit": int(MOVES_TO_HOST * min(size for _, _, size in cards)),
                # The scheduler in this process also reads each graph.
                "cupy": find_spec("cupy") is not None and all(about.cupy for about in abouts.values()),
            }
        )
        return measured(spec, tuple(self.workers.values()), memory).model_copy(update=updates)

    async def close(self) -> None:
        """End the workers and the scheduler."""
        await asyncio.wait_for(asyncio.gather(*(each.close() for each in self._workers.values())), _CLOSING + 1)
        await super().close()

    def check_room(self, n: int) -> None:
        # A worker whose memory wasn't chosen takes its share of a machine, and existing workers keep theirs.
        threads, hosts = self.spec.threads_per_worker, self.spec.options["hosts"]
        cores = [each.about.cores for each in self._workers.values() if each.about]
        most = len(hosts) * max(self._per_host, min(cores, default=0) // threads if threads else 0)
        if self.spec.memory_limit is None and n > most:
            raise FailedError(
                f"{count(n, 'worker')} are too many: each takes a share of its machine's memory, as nobody "
                f"chose how much, and there are shares for {most}. Give at most {most}, or start the cluster anew with "
                "more workers, or with memory."
            )


def address_of(listen: str) -> str:
    """Return an address to listen at. Raises BadInputError if this machine has no such address."""
    addresses = [each.address for each in psutil.net_if_addrs().get(listen, ()) if each.family == socket.AF_INET]
    address = addresses[0] if addresses else listen
    try:
        socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET).close()
    except OSError as err:
        raise BadInputError(
            f"listen is {listen!r}, and this machine can't listen there ({err.strerror or err}). Give one of its "
            f"addresses or interfaces: {', '.join(psutil.net_if_addrs())}."
        ) from err
    return address


async def _outward(first: _Machine) -> str:
    """Return this machine's address on the way to another."""
    async with await first.connect() as connection:
        name = connection.get_extra_info("sockname")
    if not name:
        raise BadInputError(
            f"{first.host} is reached through another machine. Give listen, an address of this one that it can reach."
        )
    return str(name[0])
