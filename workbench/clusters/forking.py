"""Processes with a warm start: forked by the cluster's forkserver, which has already imported Dask.

The host forks them on request (see `requests`). A request names a module and its arguments, as for `python -m`. The new
process leads its own session, has no parent, and outlives the host. Importing Dask takes a second or more; this takes
a few hundredths. It has the environment and settings of the caller, like a cold process.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask

from workbench.clusters.requests import ask
from workbench.errors import FailedError
from workbench.jobs import processes
from workbench.packages import installations
from workbench.threads import finish

_PATIENCE = 2.0  # seconds for a host to answer
_AT_START = installations()


def start_warm(folder: Path, module: str, arguments: Sequence[str], *, log: Path) -> int | None:
    """Start `python -m module arguments` in the environment of the cluster in `folder`; return its pid, or None.

    None if there is no host. Its output is appended to `log`, and it has the working folder of this process.
    """
    request = {
        "module": module,
        "arguments": list(arguments),
        "log": str(log),
        "cwd": os.getcwd(),  # noqa: PTH109
        "environment": {**os.environ, **processes.same_folder()},
    }
    try:
        pid: int = finish(asyncio.wait_for(ask(folder, "fork", request=request), _PATIENCE))
    except (OSError, FailedError):
        # No host, one on another system, or a busy one: the caller has a slower way.
        return None
    return pid


async def fork(request: dict[str, Any]) -> int:
    """Start the requested process from the host, and return its pid."""
    # Elsewhere the host has no forkserver, and the caller starts a cold process.
    if sys.platform != "linux":
        raise FailedError("Nothing is forked here.")
    if installations() != _AT_START:
        raise FailedError("Packages have come or gone, which only a cold process finds.")
    return await asyncio.to_thread(_fork, request)


def _fork(request: dict[str, Any]) -> int:
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    first = context.Process(target=_leave_and_become, args=(request, sender))
    first.start()
    sender.close()
    try:
        pid: int = receiver.recv()
    finally:
        receiver.close()
        first.join()
    return pid


def _leave_and_become(request: dict[str, Any], sender: Any) -> None:
    """Fork once more, so that the second process has no parent, and end."""
    pid = os.fork()
    if pid:
        sender.send(pid)
        return
    sender.close()
    _become(request)


def _take_on(environment: dict[str, str]) -> None:
    """Apply the environment, paths and settings of a process that starts with these variables."""
    os.environ.clear()
    os.environ.update(environment)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    dask.config.refresh()


def _become(request: dict[str, Any]) -> None:
    code = 1
    try:
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.chdir(request["cwd"])
        _take_on(request["environment"])
        sys.argv = [request["module"], *request["arguments"]]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    except BaseException:  # noqa: BLE001  the log is the only place to report it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        # At once: the forkserver's own cleanup after a child returns must not run in this process.
        os._exit(code)
