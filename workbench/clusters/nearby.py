"""Dask schedulers of this person that somebody else than us started, such as a notebook's LocalCluster.

Found by what the ports of this person's own Python processes say of themselves: a scheduler greets whoever connects,
and tells what it is when asked. Those that speak TLS can't be told from others, for they say nothing before we do.
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
from typing import NamedTuple

import psutil

from workbench import formats
from workbench.clusters import records
from workbench.clusters.profiles import registered
from workbench.clusters.reaching import Place, ask, greeting, is_dask, is_scheduler
from workbench.errors import FailedError
from workbench.threads import finish

_PATIENCE = 0.3
"""Seconds that a port of this machine has to greet."""

_MOST = 64
"""Ports that are asked at a time."""

_LONGEST = 60  # characters of a command that are shown


class Nearby(NamedTuple):
    """A scheduler that was found."""

    address: str
    n_workers: int | None
    """None where it can't be asked without being connected to."""
    pid: int | None
    command: str
    """What started it, in short."""

    def __str__(self) -> str:
        workers = None if self.n_workers is None else formats.count(self.n_workers, "worker")
        pid = None if self.pid is None else f"(pid {self.pid})"
        return "  ".join(filter(None, (self.address, workers, " ".join(filter(None, (self.command, pid))))))


def schedulers() -> tuple[Nearby, ...]:
    """Look for them, and for those of engines that list theirs, in a few seconds; ours are left out."""
    ours = {record.scheduler_address for record in records.read_all()}
    ports = [each for each in _ports() if each[0] not in ours]
    with ThreadPoolExecutor(_MOST) as threads:
        greeting = [each for each, is_one in zip(ports, threads.map(_greets, ports), strict=True) if is_one]
    found = (each for each in finish(_asked(greeting)) if each is not None)
    # One that listens on all interfaces is found on each.
    once = {each.pid: each for each in found}
    listed = [*_of_a_client()]
    for profile in registered().values():
        # Of a profile that somebody else wrote, which breaks, the list of profiles tells.
        with contextlib.suppress(FailedError):
            listed += [each for each in profile.running() if isinstance(each, Nearby)]
    others = {each.address: each for each in (*once.values(), *listed)}
    return tuple(each for each in others.values() if each.address not in ours)


def _of_a_client() -> Iterator[Nearby]:
    """The scheduler of the Client that a notebook has here. Over TLS a click isn't enough: that takes its keys."""
    distributed = sys.modules.get("distributed")
    with contextlib.suppress(ValueError):
        scheduler = distributed.default_client().scheduler if distributed else None
        if scheduler is not None and scheduler.address.startswith(("tcp://", "ucx://")):
            yield Nearby(scheduler.address, None, None, "of the Client here")


def _ports() -> Iterator[tuple[str, int]]:
    """Addresses at which this person's own Python processes listen, with the process."""
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
    """Hosts of our clusters and their workers, which needn't be asked."""
    found = {os.getpid()}
    for record in records.read_all():
        host = records.host_process(record)
        with contextlib.suppress(psutil.Error):
            found |= set() if host is None else {host.pid, *(each.pid for each in host.children(recursive=True))}
    return found


def _greets(port: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(Place(port[0]).port, _PATIENCE) as plain:
            return is_dask(greeting(plain, _PATIENCE) or b"")
    except OSError:
        return False


async def _asked(ports: list[tuple[str, int]]) -> list[Nearby | None]:
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
