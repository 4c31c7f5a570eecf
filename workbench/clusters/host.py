"""The process that owns one cluster: `python -m workbench.clusters.host NAME`.

At first it imports only the standard library: while this process imports Dask, so does a second one, from which the
workers are then forked. Two workers start in two thirds of the time that they need if each imports Dask.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.util
import os
import sys
import tempfile
import traceback
from multiprocessing import forkserver
from typing import NoReturn

from workbench import private

_PRELOAD = ["distributed", "dask.array"]

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
        # Imported late, see above.
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
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOAD)
    with contextlib.suppress(OSError):
        _make_folder()
    forkserver.ensure_running()
    return "forkserver"


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
