"""The process that owns one cluster: `python -m workbench.clusters.host NAME`.

Nothing but the standard library is imported here at first: while this process imports Dask, another does the same,
from which the workers are then forked. Two workers are up in two thirds of the time that importing Dask in each takes.
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

FOLDER, SPILL = "workbench-host-", "workbench-spill-"
"""What the names of its temporary folders begin with: one for its sockets, one for the data that workers spill."""

CRASHED = "The process that holds the cluster crashed."

_LONGEST_FOLDER = 40
"""Characters, for the path of a socket may have a hundred."""


def main(name: str) -> NoReturn:
    """Own the cluster `name`, whose record says 'starting', until it ends, and end this process with it.

    Expects a process of its own that leads its session, with the log as stdout and stderr; it may have been forked.
    """
    code = 1
    # So that its log tells a crash from a kill.
    faulthandler.enable()
    try:
        # The folder that it works in is on no path of it or of what is forked for it: Dask would import a cupy.py or a
        # snappy.py that lies there. A user who connects from there brings it along, see connect.py.
        method = _warm_up_workers()
        # Imported late, see above.
        from workbench.clusters.owner import own

        code = own(name, worker_start=method)
    except BaseException:  # noqa: BLE001  The log is the only one left to tell.
        with contextlib.suppress(OSError):
            traceback.print_exc()
            print(CRASHED, flush=True)
    with contextlib.suppress(OSError):  # of a log on a full disk
        sys.stdout.flush()
        sys.stderr.flush()
    private.remove_folders()
    # At once: threads of tasks that were abandoned must not keep the process.
    os._exit(code)


def _warm_up_workers() -> str:
    """Start the process from which workers are forked; the start method for Dask's nannies."""
    # Elsewhere forking is unsafe (macOS) or missing.
    if sys.platform != "linux":
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOAD)
    with contextlib.suppress(OSError):
        _make_folder()
    forkserver.ensure_running()
    return "forkserver"


def _make_folder() -> None:
    """Have multiprocessing keep its sockets in a folder that is removed at the end, also by the next host.

    Its own would stay for ever, since this process ends at once, and a killed host's is like any other program's.
    """
    if len(tempfile.gettempdir()) > _LONGEST_FOLDER:
        return
    tempfile.tempdir = str(private.make_folder(FOLDER))
    multiprocessing.util.get_temp_dir()
    tempfile.tempdir = None


if __name__ == "__main__":
    main(sys.argv[1])
