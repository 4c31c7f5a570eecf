"""Processes of a record or a cluster, identified by the kernel's data and never by a guess."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from workbench import config
from workbench.remote import place as place

MARKER = "WORKBENCH_CLUSTER"
"""Environment variable of a host process and its children: the cluster's folder and the time of its request."""

_TOLERANCE = 1.0  # seconds; some marks of processes have whole seconds


def marker(folder: Path, created: float) -> str:
    """Return the value of MARKER for one cluster, never used twice."""
    return f"{folder.resolve()}#{created!r}"


def begin(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a Python module in its own session, in which it outlives this process.

    `command` is the interpreter, the module and its arguments. Raises OSError if the interpreter can't be started.
    """
    python, *words = command
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
        return subprocess.Popen(
            # -P: a user's file such as random.py must not replace the module of the standard library.
            [python, "-P", "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Its log is read as UTF-8, whatever the encoding of the terminal.
            env={**environment, "PYTHONIOENCODING": "utf-8:backslashreplace"},
            cwd=cwd,
            start_new_session=True,
        )


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process in a thread, so that it leaves the process table as soon as it ends."""
    threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()


def start_detached(python: str, module: str, argument: str, *, log: Path) -> int:
    """Start a module with one argument on the same data folder; return its pid. Raises OSError as `begin` does."""
    process = begin([python, module, argument], log=log, environment={**os.environ, **same_folder()})
    reap(process)
    return process.pid


def same_folder() -> dict[str, str]:
    """Return the environment that gives a process this one's data folder."""
    return {"DASK_WORKBENCH__DATA_FOLDER": str(config.data_folder())}


def created(pid: int) -> float | None:
    """Return the start time of a process, or None if there is no such process.

    On Linux that is seconds since boot, which no change of the clock affects; elsewhere seconds since the epoch.
    """
    if not 0 < pid < 2**31:  # from a damaged file
        return None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            # The name of the program, in brackets, may contain spaces and brackets.
            return int(stat.rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return None
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).create_time()
    return None


def here() -> dict[str, str]:
    """Return a record's fields that locate a process of this machine."""
    return {"place": place(), "node": platform.node()}


def itself() -> dict[str, Any]:
    """Return a record's fields that identify this process."""
    pid = os.getpid()
    return {"pid": pid, "pid_created": created(pid)}


def find(pid: int | None, pid_created: float | None) -> psutil.Process | None:
    """Return the living process with this pid and start time; None if it has ended.

    A zombie counts as ended, and so does a process whose pid now belongs to another.
    """
    if pid is None or pid_created is None or (started := created(pid)) is None:
        return None
    # Written so that NaN, from a damaged file, matches no process.
    if not abs(started - pid_created) <= _TOLERANCE:
        return None
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process if _runs(process) else None
    return None


def leftovers(session: int, mark: str) -> list[psutil.Process]:
    """Return the living processes in a host's session with its marker in their environment."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if (
                os.getsid(process.pid) == session
                and process.status() != psutil.STATUS_ZOMBIE
                and _is_marked(process, mark)
            ):
                processes.append(process)
    return processes


def children() -> list[psutil.Process]:
    """Return all descendants of this process except the resource tracker, which cleans up shared memory after them."""
    return [child for child in psutil.Process().children(recursive=True) if not _is_tracker(child)]


def end(processes: Iterable[psutil.Process], patience: float = 2.0) -> None:
    """Kill the processes and wait until they are gone.

    A resource tracker, which cleans up shared memory after them, is spared and ends by itself.
    """
    processes = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if not _is_tracker(process):
                process.kill()
    deadline = time.monotonic() + patience
    while any(_runs(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """Return whether a process runs. A zombie doesn't: its parent may never wait for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARKER) == mark
    except (psutil.Error, OSError):
        return False


def _is_tracker(process: psutil.Process) -> bool:
    return any("resource_tracker" in word for word in _command(process))


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
