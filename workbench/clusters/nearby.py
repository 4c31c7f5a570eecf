"""Dask schedulers of this user that were started outside dask-workbench, such as a notebook's LocalCluster.

They are found through the ports of this user's own Python processes: a scheduler greets each connection, and identifies
itself on request. Those that use TLS can't be recognized, since they send nothing first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from workbench.clusters import records
from workbench.clusters.profiles import Nearby, registered
from workbench.clusters.reachability import Place, ask, greeting, is_dask, is_scheduler
from workbench.errors import FailedError
from workbench.threads import finish

_PATIENCE = 0.3
"""Seconds for a port of this machine to greet."""

_MOST = 64
"""Number of ports checked at a time."""

_LONGEST = 60  # characters shown of a command


def schedulers() -> tuple[Nearby, ...]:
    """Return them within a few seconds, with those that engines list; ours are left out."""
    ours = {record.scheduler_address for record in records.read_all()}
    ports = [each for each in _ports() if each[0] not in ours]
    with ThreadPoolExecutor(_MOST) as threads:
        greeting = [each for each, is_one in zip(ports, threads.map(_greets, ports), strict=True) if is_one]
    answers = (each for each in finish(_greeted(greeting)) if each is not None)
    # A scheduler that listens on all interfaces is found on each.
    once = {each.pid: each for each in answers}
    listed = [*_of_a_client()]
    for profile in registered().values():
        # The list of profiles reports a broken third-party profile.
        with contextlib.suppress(FailedError):
            listed += [each for each in profile.running() if isinstance(each, Nearby)]
    others = {each.address: each for each in (*once.values(), *listed)}
    return tuple(each for each in others.values() if each.address not in ours)


def _of_a_client() -> Iterator[Nearby]:
    """Yield the scheduler of this process's default Client. Not over TLS, which needs its keys."""
    distributed = sys.modules.get("distributed")
    with contextlib.suppress(ValueError):
        scheduler = distributed.default_client().scheduler if distributed else None
        if scheduler is not None and not scheduler.address.startswith(("tls:", "inproc:")):
            yield Nearby(scheduler.address, None, None, "of the Client here")


def _ports() -> Iterator[tuple[str, int]]:
    """Yield the addresses at which this user's own Python processes listen, with their pids."""
    hosts = _processes_of_ours()
    for process in psutil.process_iter(["uids", "name"]):
        uids, name = process.info["uids"], process.info["name"] or ""
        runs_python = "python" in name.lower() or name.startswith(("dask", "jupyter", "ipykernel"))
        if uids is None or uids.real != os.getuid() or process.pid in hosts or not runs_python:
            continue
        with contextlib.suppress(psutil.Error):
            for each in process.net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN:
                    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(each.laddr.ip, each.laddr.ip)
                    yield f"tcp://{host}:{each.laddr.port}", process.pid


def _processes_of_ours() -> set[int]:
    """Return the pids of our clusters' hosts and workers, which needn't be checked."""
    pids = {os.getpid()}
    for record in records.read_all():
        host = records.host_process(record)
        with contextlib.suppress(psutil.Error):
            pids |= set() if host is None else {host.pid, *(each.pid for each in host.children(recursive=True))}
    return pids


def _greets(port: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(Place(port[0]).port, _PATIENCE) as plain:
            return is_dask(greeting(plain, _PATIENCE) or b"")
    except OSError:
        return False


async def _greeted(ports: list[tuple[str, int]]) -> list[Nearby | None]:
    return await asyncio.gather(*(_scheduler(address, pid) for address, pid in ports))


async def _scheduler(address: str, pid: int) -> Nearby | None:
    try:
        identity = (await ask(Place(address))).identity
    except (OSError, TimeoutError):
        return None
    if not is_scheduler(identity):
        return None
    return Nearby(address, len(identity.get("workers", ())), pid, _command(pid))


def _command(pid: int) -> str:
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return "?"
    text = shlex.join([Path(word).name for word in words if not word.startswith("-")])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
