"""The process that owns one cluster: `python -m workbench.clusters.host NAME`.

It imports Dask once, for all processes of the cluster: then it forks multiprocessing's forkserver, from which workers
and runs are forked. Multiprocessing would start that as a new interpreter, which imports Dask again: 1.3 seconds of a
core, and 90 MB.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import multiprocessing
import multiprocessing.util
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from typing import Any, NoReturn

from workbench import private

_SHARED = ("distributed", "dask.array")
"""Modules of all processes of a cluster."""

_LONGEST_FOLDER = 40
"""Characters, since the path of a socket is limited to about a hundred."""


def main(name: str) -> NoReturn:
    """Own the cluster `name`, whose record says 'starting', until it ends; then end this process.

    Expects a process that leads its own session, with the log as stdout and stderr; it may have been forked.
    """
    code = 1
    # So that the log shows a crash, as opposed to a kill.
    faulthandler.enable()
    try:
        # The working folder is on no path of this process or its forks: Dask would import a cupy.py or snappy.py from
        # there. A user who connects from there adds the folder, see connect.py.
        method = _warm_up_workers()
        # Imported late: what is imported before the fork must not start a thread.
        from workbench.clusters.owner import own

        code = own(name, worker_start=method)
    except BaseException:  # noqa: BLE001  The log is the only place to report it.
        with contextlib.suppress(OSError):
            traceback.print_exc()
            print(private.CRASHED, flush=True)
    with contextlib.suppress(OSError):  # of a log on a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    private.remove_folders()
    # At once: threads of abandoned tasks must not keep the process alive.
    os._exit(code)


def _warm_up_workers() -> str:
    """Start the process from which workers are forked; return the start method for Dask's nannies."""
    # Elsewhere forking is unsafe (macOS) or missing.
    if sys.platform != "linux":
        return "spawn"
    with contextlib.suppress(OSError):
        _make_folder()
    resource_tracker.ensure_running()
    for name in _SHARED:
        importlib.import_module(name)
    start = multiprocessing.util.spawnv_passfds
    try:
        multiprocessing.util.spawnv_passfds = _fork
        try:
            forkserver.ensure_running()
        finally:
            multiprocessing.util.spawnv_passfds = start
    except _Forked as fork:
        fork.serve()
    return "forkserver"


def _fork(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Fork this process instead of starting an interpreter, as `multiprocessing.util.spawnv_passfds` does."""
    if pid := os.fork():
        return pid
    raise _Forked(args[-1], {each: os.dup(each) for each in passfds})


class _Forked(BaseException):
    """Raised in the fork, so that it leaves all that multiprocessing holds: its lock and its descriptors."""

    def __init__(self, command: str, descriptors: Mapping[int, int]) -> None:
        self.command = command
        """Python code of the standard library that serves."""
        self.descriptors = descriptors
        """Copies of the descriptors that the command names."""

    def serve(self) -> NoReturn:
        """Run the command as a new interpreter would: with these descriptors, and without any other."""
        try:
            for number, copy in self.descriptors.items():
                os.dup2(copy, number)
            for each in set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2, *self.descriptors}:  # noqa: PTH208
                with contextlib.suppress(OSError):
                    os.close(each)
            exec(self.command, {})
        finally:
            os._exit(0)


def _make_folder() -> None:
    """Make multiprocessing keep its sockets in a folder that is removed at the end, or by the next host.

    Its own folder would stay forever, since this process exits at once, and after a kill nothing identifies it as ours.
    """
    if len(tempfile.gettempdir()) > _LONGEST_FOLDER:
        return
    tempfile.tempdir = str(private.make_folder(private.SOCKETS))
    multiprocessing.util.get_temp_dir()
    tempfile.tempdir = None


if __name__ == "__main__":
    main(sys.argv[1])
