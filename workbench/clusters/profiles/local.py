"""Engine of Dask's own cluster classes on this machine: scheduler in this process, workers in others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import dask
import psutil
from distributed import Nanny
from distributed.core import Status
from distributed.deploy.spec import SpecCluster

from workbench import formats
from workbench.clusters.engine import Engine
from workbench.clusters.reachability import Place
from workbench.errors import FailedError
from workbench.jobs import processes

# Seconds for Dask to close workers cleanly; they hold nothing that is worth a longer wait.
_CLOSE_PATIENCE = 1.5


class LocalEngine(Engine):
    """A `SpecCluster`, which `start` starts with its scheduler alone."""

    def __init__(self, start: Callable[[], Awaitable[SpecCluster]], *args: Any) -> None:
        super().__init__(*args)
        self._start = start
        self._cluster: SpecCluster | None = None

    async def start(self) -> Place:
        self._cluster = await self._start()
        return self.adopt(self._cluster.scheduler)

    async def have(self, n: int) -> None:
        """Start or end workers; those that have ended for good are replaced."""
        assert self._cluster is not None
        for name, nanny in list(self._cluster.workers.items()):
            if _has_ended(nanny):
                del self._cluster.workers[name]
        is_first, names = not self._cluster.worker_spec, {str(name): name for name in self._cluster.workers}
        if leaving := await self.retire(list(names), len(names) - n):
            await self._cluster.scale_down([names[each] for each in leaving])
        # Also drops requested workers that have not arrived.
        self._cluster.scale(n)
        if is_first:
            # Raises what a worker fails with.
            await self._cluster

    def started(self) -> int:
        if self._cluster is None:
            return 0
        ended = sum(map(_has_ended, self._cluster.workers.values()))
        return len(self._cluster.worker_spec) - ended

    def pids(self) -> tuple[int, ...]:
        nannies = self._cluster.workers.values() if self._cluster is not None else ()
        return tuple(sorted(each.pid for each in nannies if isinstance(each, Nanny) and each.pid))

    def check_start(self) -> None:
        """Raise FailedError if a worker exceeds its limit without any work: Dask would kill and restart it forever."""
        limit = self.spec.worker_memory
        share = dask.config.get("distributed.worker.memory.terminate") or 1.0
        used = max(map(_resident, self.pids()), default=0)
        if used > share * limit:
            raise FailedError(
                f"A worker takes {formats.size(used)} before it does anything, but may use only {formats.size(limit)}. "
                "Give the cluster more memory, or fewer workers."
            )

    async def close(self) -> None:
        """Close scheduler and workers cleanly if that is quick, then kill them."""
        if self._cluster is None:
            return
        close = asyncio.ensure_future(self._cluster.close())
        await asyncio.wait({close}, timeout=_CLOSE_PATIENCE)
        processes.end(processes.children())
        error = close.exception() if close.done() and not close.cancelled() else None
        if error is not None:
            raise error


def _has_ended(worker: object) -> bool:
    """Return whether a worker has ended and nothing restarts it."""
    return getattr(worker, "status", None) in (Status.closed, Status.failed)


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0
