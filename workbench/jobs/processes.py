"""Processes of a record or a cluster, identified by the kernel's data and never by a guess."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
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

# psutil computes with the time of boot, which follows the clock, and that may be adjusted by a second or so.
_CLOCK_TOLERANCE = 2.0


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
            # -P: a file of the user named, say, random.py must not replace the one of the standard library.
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


def start_apart(python: str, module: str, argument: str, *, log: Path) -> int:
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
    try:
        return _since_boot(pid) or _process(pid).create_time()
    except psutil.Error:
        return None


def _since_boot(pid: int) -> float | None:
    """Return the start of a process by the kernel's count, or None if that or the process doesn't exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name of the program, in brackets, may contain spaces and brackets.
    return int(stat.rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def here() -> dict[str, str]:
    """Return a record's fields that locate a process of this machine."""
    return {"place": place(), "node": platform.node()}


def itself() -> dict[str, Any]:
    """Return a record's fields that identify this process."""
    pid = os.getpid()
    return {"pid": pid, "pid_created": created(pid)}


def find(pid: int | None, pid_created: float | None, mark: str = "") -> psutil.Process | None:
    """Return the living process with this pid and start, or None if it has ended or the pid now belongs to another.

    A zombie counts as ended.
    """
    if pid is None:
        return None
    try:
        process = _process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        # Records of older versions hold seconds since the epoch. If the clock was set since, the marker decides.
        starts = (_since_boot(pid), process.create_time())
        same = pid_created is not None and any(
            start is not None and abs(start - pid_created) < _CLOCK_TOLERANCE for start in starts
        )
        return process if same or (mark and _is_marked(process, mark)) else None
    except psutil.Error:
        return None


def _process(pid: int) -> psutil.Process:
    """Return the process of a pid from a file; raise NoSuchProcess for 0, -1 and impossible numbers."""
    if not 0 < pid < 2**31:
        raise psutil.NoSuchProcess(pid)
    return psutil.Process(pid)


def leftovers(session: int, mark: str) -> list[psutil.Process]:
    """Return the living processes in a host's session with its marker in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if (
                os.getsid(process.pid) == session
                and process.status() != psutil.STATUS_ZOMBIE
                and _is_marked(process, mark)
            ):
                found.append(process)
    return found


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
