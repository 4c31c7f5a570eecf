"""Which processes belong to a record, or a cluster: told by what the kernel knows of them, never by guess."""

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
"""Environment variable of a host process and all it starts: the cluster's folder and when it was asked for."""

# The time of boot, from which psutil reckons, follows the clock, which may be set by a second or so in between.
_CLOCK_TOLERANCE = 2.0


def marker(folder: Path, created: float) -> str:
    """Value of MARKER for one cluster, never used twice."""
    return f"{folder.resolve()}#{created!r}"


def begin(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a module of Python's in a session of its own, where it outlives who starts it.

    Raises OSError where the interpreter, which is the first word of `command`, can't be started.
    """
    python, *words = command
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
        return subprocess.Popen(
            # -P: a file of the user's called, say, random.py must not stand in for Python's own.
            [python, "-P", "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Its log is read as UTF-8, whatever the terminal has that started it.
            env={**environment, "PYTHONIOENCODING": "utf-8:backslashreplace"},
            cwd=cwd,
            start_new_session=True,
        )


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for it in a thread, which takes the ended process out of the process table at once."""
    threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()


def start_apart(python: str, module: str, argument: str, *, log: Path) -> int:
    """Start a module with one argument on the same data folder; its pid. Raises OSError as `begin` does."""
    process = begin([python, module, argument], log=log, environment={**os.environ, **same_folder()})
    reap(process)
    return process.pid


def same_folder() -> dict[str, str]:
    """Environment in which a process has the data folder of this one."""
    return {"DASK_WORKBENCH__DATA_FOLDER": str(config.data_folder())}


def created(pid: int) -> float | None:
    """Return when the process started, None when there is no such process.

    On Linux that is seconds since boot, which no change of the clock moves; elsewhere seconds since the epoch.
    """
    try:
        return _since_boot(pid) or _process(pid).create_time()
    except psutil.Error:
        return None


def _since_boot(pid: int) -> float | None:
    """Start of a process as the kernel counts it; None where it doesn't tell, or there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name of the program, in brackets, may hold spaces and brackets.
    return int(stat.rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def here() -> dict[str, str]:
    """Return by what a record of a process of this machine tells where that is."""
    return {"place": place(), "node": platform.node()}


def itself() -> dict[str, Any]:
    """Return by what a record of this process tells it from others."""
    pid = os.getpid()
    return {"pid": pid, "pid_created": created(pid)}


def find(pid: int | None, pid_created: float | None, mark: str = "") -> psutil.Process | None:
    """The living process that was given this pid at this time, None when it has ended or the pid is another's.

    An entry of the process table that nobody asks for is none.
    """
    if pid is None:
        return None
    try:
        process = _process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        # Records of older versions hold seconds since the epoch. Where the clock was set since, the marker tells.
        starts = (_since_boot(pid), process.create_time())
        same = pid_created is not None and any(
            start is not None and abs(start - pid_created) < _CLOCK_TOLERANCE for start in starts
        )
        return process if same or (mark and _is_marked(process, mark)) else None
    except psutil.Error:
        return None


def _process(pid: int) -> psutil.Process:
    """Process of a pid that was read somewhere: 0, -1 and what no system gives are of none."""
    if not 0 < pid < 2**31:
        raise psutil.NoSuchProcess(pid)
    return psutil.Process(pid)


def leftovers(session: int, mark: str) -> list[psutil.Process]:
    """Living processes in the session that a host led and with its marker in their environment."""
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
    """All processes started from here but the tracker, which removes what the others leave in shared memory."""
    return [child for child in psutil.Process().children(recursive=True) if not _is_tracker(child)]


def end(processes: Iterable[psutil.Process], patience: float = 2.0) -> None:
    """Kill the processes and wait until they are gone.

    A tracker, which removes what the others leave in shared memory, ends by itself after them.
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
    """Return whether it is more than an entry in the process table, which its parent may never ask for."""
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
