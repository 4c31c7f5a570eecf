"""A host process that waits for its cluster: Dask imported and the workers' forkserver warm before somebody says Start.

A face that lives long, such as the Jupyter server, calls `keep` while a person looks at it, and `launch` takes the
spare where it fits. It ends by itself when nobody takes it for `PATIENCE`, or when the process that keeps it ends.
Waiting, it holds about 150 MB.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask.config

from workbench import config
from workbench.clusters import records
from workbench.clusters.spec import ClusterSpec
from workbench.hardware import memory
from workbench.jobs import processes

PATIENCE = 900.0
"""Seconds that a spare waits."""

_NEXT = 3.0  # seconds after one was taken: its cluster has the cores until then
_ROOM = 2 * 2**30  # bytes of memory that must be free for it to be worth having


class Spare(NamedTuple):
    """One process that waits."""

    process: subprocess.Popen[bytes]
    mark: str
    environment: Mapping[str, str]
    log: Path

    def become(self, name: str, folder: Path, cwd: str) -> bool:
        """Tell it which cluster it hosts, and where it works; False where it has ended and somebody else must."""
        try:
            self.log.replace(folder / "host.log")
            assert self.process.stdin is not None
            with self.process.stdin as orders:
                orders.write(json.dumps({"name": name, "cwd": cwd}).encode() + b"\n")
        except OSError:
            return False
        return self.process.poll() is None

    def end(self) -> None:
        """End it, and all that it started."""
        started = processes.leftovers(self.process.pid, self.mark)
        # It is among them, but for an instant in which it begins and has no environment yet.
        self.process.kill()
        processes.end(started)
        self.process.wait()
        records.remove_temporary()
        self.log.unlink(missing_ok=True)
        if self.process.stdin is not None:
            self.process.stdin.close()


_lock = threading.Lock()
_waiting: Spare | None = None
_preload: Sequence[str] | None = None
"""Modules beyond Dask that processes forked for the cluster will import; None where no spare is kept."""


def keep(preload: Sequence[str] = ()) -> None:
    """Have a spare from now on, with these modules imported where runs start, unless the settings say otherwise."""
    global _preload
    # Elsewhere workers aren't forked, and there is little to be had ready.
    if sys.platform != "linux" or not config.get("keep-warm"):
        return
    with _lock:
        _preload = preload
    _refill()


def take() -> Spare | None:
    """Spare whose environment is the one of now, None where there is none; soon there is another."""
    global _waiting
    with _lock:
        spare, _waiting = _waiting, None
        if _preload is not None:
            timer = threading.Timer(_NEXT, _refill)
            timer.daemon = True
            timer.start()
    if spare is None:
        return None
    if spare.process.poll() is None and spare.environment == environment(spare.mark):
        return spare
    spare.end()
    return None


def dismiss() -> None:
    """Have none any more."""
    global _preload, _waiting
    with _lock:
        spare, _waiting, _preload = _waiting, None, None
    if spare is not None:
        spare.end()


def _refill() -> None:
    global _waiting
    with _lock:
        there = _waiting is not None and _waiting.process.poll() is None
        if there or _preload is None or (memory().available or 0) < _ROOM:
            return
        # Without one a cluster starts as it always does.
        with contextlib.suppress(OSError):
            _waiting = _spawn(_preload)


def _spawn(preload: Sequence[str]) -> Spare:
    mark = f"spare#{os.getpid()}#{uuid.uuid4().hex}"
    log = records.clusters_folder() / f".spare-{uuid.uuid4().hex}.log"
    # Logs of spares that were killed while they waited.
    for path in log.parent.glob(".spare-*.log"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > 2 * PATIENCE:
                path.unlink()
    chosen = environment(mark)
    command = [sys.executable, "workbench.clusters.host", "--wait", str(PATIENCE), str(log), *preload]
    process = processes.begin(command, log=log, environment=chosen, stdin=subprocess.PIPE)
    return Spare(process, mark, chosen, log)


def environment(mark: str, spec: ClusterSpec | None = None) -> dict[str, str]:
    """Environment of a host process; without a spec, of one that waits for a cluster on the cpu profile."""
    settings = {
        **processes.same_folder(),
        "DASK_WORKBENCH__START_TIMEOUT": str(config.get("start-timeout")),
        processes.MARKER: mark,
        # setproctitle, which Dask uses where it is installed, would otherwise write over the marker.
        "SPT_NOENV": "1",
        "PYTHONUNBUFFERED": "1",
    }
    chosen = spec.ucx_variables() if spec else {}
    return {**_worker_environment(), **(_ucx_environment(spec) if spec else {}), **os.environ, **chosen, **settings}


def _ucx_environment(spec: ClusterSpec) -> dict[str, str]:
    """Return what UCX is told where the user doesn't tell it otherwise."""
    if spec.protocol != "ucx":
        return {}
    # ucxx sets a variable that its own UCX then complains of.
    quiet = {"UCX_WARN_UNUSED_ENV_VARS": "n"}
    if spec.devices:
        return quiet
    return {**quiet, "DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT": "False", "UCX_NET_DEVICES": "lo"}


def _worker_environment() -> dict[str, str]:
    """What Dask's nanny sets before it starts a worker: one BLAS thread per Dask thread, memory given back early.

    Set here since workers are forked from a process that has imported NumPy before the nanny comes to it.
    """
    defaults: dict[str, Any] = {
        "MALLOC_TRIM_THRESHOLD_": 65536,
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
        "PYTHONHASHSEED": 6640,
    }
    chosen = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    return {key: str(value) for key, value in {**defaults, **chosen}.items()}
