"""The process that owns one cluster: `python -m workbench.clusters.host NAME`.

Nothing but the standard library is imported here at first: while this process imports Dask, another does the same,
from which the workers are then forked. Two workers are up in two thirds of the time that importing Dask in each takes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from multiprocessing import forkserver
from pathlib import Path
from typing import NoReturn

_PRELOAD = ["distributed", "dask.array"]


def main(name: str) -> NoReturn:
    """Own the cluster `name`, whose record says 'starting', until it ends, and end this process with it.

    Expects a process of its own that leads its session, with the log as stdout and stderr; it may have been forked.
    """
    code = 1
    try:
        method = _warm_up_workers()
        sys.path.append(str(Path.cwd()))
        # Imported late, see above.
        from workbench.clusters.owner import own

        code = own(name, worker_start=method)
    except BaseException:  # noqa: BLE001  The log is the only one left to tell.
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: threads of tasks that were abandoned must not keep the process.
    os._exit(code)


def _warm_up_workers() -> str:
    """Start the process from which workers are forked; the start method for Dask's nannies."""
    # Elsewhere forking is unsafe (macOS) or missing.
    if sys.platform != "linux":
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOAD)
    forkserver.ensure_running()
    return "forkserver"


if __name__ == "__main__":
    main(sys.argv[1])
