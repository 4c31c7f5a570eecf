"""A worker on another machine, in a process that ends when its standard input does.

This file is sent as text, and its arguments as one line of JSON. It may import only what the other machine has: the
standard library, psutil, dask and distributed. It prints lines of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_CONNECTING = 4.0
_REGISTERING = "30s"
_CLOSING = 2.0
"""Seconds to connect to the scheduler, to register a worker there, and to close the worker cleanly."""


def report(**values: Any) -> None:
    """Print a line of JSON for the process that started this one."""
    print(json.dumps(values), flush=True)


def main(
    arguments: Mapping[str, Any],
    about: Callable[[], Mapping[str, Any]],
    make_folder: Callable[[str, str | None], Path],
    remove_folders: Callable[[], None],
) -> None:
    """Run a worker until standard input or the worker ends. The functions are those of `remote` and `private`.

    The arguments are the scheduler's address, the worker's keys, name, threads, memory and GPU, and Dask's settings.
    """
    host, port = arguments["contact"]
    try:
        socket.create_connection((host, port), _CONNECTING).close()
    except OSError as err:
        report(unreachable=str(err.strerror or err))
        return
    import dask
    import psutil

    dask.config.update(dask.config.config, arguments["config"])
    # Our host process would fork its workers.
    dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})
    if arguments["gpu"] is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(arguments["gpu"])
    folder = make_folder("workbench-worker-", dask.config.get("temporary-directory", None))
    asyncio.run(_work(arguments, about, str(folder)))
    children = psutil.Process().children(recursive=True)
    for each in children:
        with contextlib.suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(children, _CLOSING)
    remove_folders()
    report(ended=True)
    sys.stdout.flush()
    # At once: threads of abandoned tasks must not keep it alive.
    os._exit(0)


async def _work(arguments: Mapping[str, Any], about: Callable[[], Mapping[str, Any]], folder: str) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def listen() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=listen, daemon=True).start()
    worker = _worker(arguments, folder)
    start, ended = asyncio.ensure_future(worker), asyncio.ensure_future(over.wait())
    await asyncio.wait({start, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not over.is_set():
        await start
        report(up=about())
        finished = asyncio.ensure_future(worker.finished())
        await asyncio.wait({finished, ended}, return_when=asyncio.FIRST_COMPLETED)
    with contextlib.suppress(Exception):
        await asyncio.wait_for(worker.close(timeout=_CLOSING), _CLOSING + 1)


def _worker(arguments: Mapping[str, Any], folder: str) -> Any:
    from dask.system import CPU_COUNT
    from distributed import Nanny
    from distributed.security import Security
    from distributed.system import MEMORY_LIMIT

    n_workers = arguments["workers_per_host"]
    threads, share = arguments["threads"] or max(1, CPU_COUNT // n_workers), 1 / n_workers
    # Dask would divide memory by threads, however many workers there are, and Dask-CUDA would give each all of it.
    share = min(share, threads / CPU_COUNT) if arguments["gpu"] is None else share
    options = {
        "name": arguments["name"],
        "nthreads": threads,
        "memory_limit": arguments["memory"] or int(MEMORY_LIMIT * share),
        "security": Security(require_encryption=True, **arguments["keys"]) if arguments["keys"] else None,
        "dashboard": False,
        "death_timeout": _REGISTERING,
        "local_directory": folder,
    }
    if arguments["gpu"] is None:
        return Nanny(arguments["scheduler"], **options)
    from dask_cuda import CUDAWorker

    return CUDAWorker(arguments["scheduler"], **options, pre_import="cupy" if find_spec("cupy") else None)
