"""Clusters of Dask's own cluster classes on this machine: scheduler in this process, workers in others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import dask
import psutil
from distributed import Nanny
from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.spec import SpecCluster
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler, WorkerState

from workbench import formats
from workbench.clusters import dashboard
from workbench.clusters.handle import VERBS, Handle, State, outgrown
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError
from workbench.jobs import processes
from workbench.travelling import missing_here

# Seconds for Dask to close workers cleanly; they hold nothing that is worth a longer wait.
_CLOSE_PATIENCE = 1.5
_ARRIVING = 0.02  # seconds between two checks for workers that start


class LocalHandle(Handle):
    """A `SpecCluster` with its scheduler in this process; calls `changed` when workers or clients come or go."""

    can = VERBS
    patience = _CLOSE_PATIENCE
    together: Callable[[WorkerState], str] | None = None
    """Function that returns the same value for workers that can only leave together."""

    following: type[Adaptive] = Adaptive
    """Class that adapts the number of workers to the load."""

    def __init__(
        self, cluster: SpecCluster, spec: ClusterSpec, folder: Path, changed: Callable[[], None], contact: str | None
    ) -> None:
        scheduler: Scheduler = cluster.scheduler
        self.address = scheduler.address
        self.contact = contact
        self._cluster = cluster
        self._scheduler = scheduler
        self._spec = spec
        self._requested = spec.n_workers
        self._adaptive: Adaptive | None = None
        self._clients: set[str] = set()
        self._outgrown: list[tuple[float, str]] = []
        self._for_good: set[object] = set()
        self._filled = False
        # A scheduler elsewhere is queried instead.
        if isinstance(scheduler, Scheduler):
            self.dashboard = dashboard.hide(scheduler, folder)
            dashboard.connect_when_asked(scheduler)
            scheduler.add_plugin(_Watcher(scheduler, self._clients, self._outgrown, changed), name="workbench-host")

    @classmethod
    async def of(cls, cluster: SpecCluster, spec: ClusterSpec, folder: Path, changed: Callable[[], None]) -> Self:
        """Return the handle of a cluster whose scheduler is up."""
        contact = None
        if spec.protocol == "ucx":
            # UCX initializes once in a process and belongs to one event loop there. Processes that stop or watch a
            # cluster, such as the Jupyter server, need not load it.
            await cluster.scheduler.listen("tcp://127.0.0.1:0")
            contact = cluster.scheduler.listeners[-1].contact_address
        return cls(cluster, spec, folder, changed, contact)

    async def fill(self) -> None:
        """Return when all workers of the spec have arrived. Raises FailedError if they can't stay alive."""
        self._cluster.scale(self._spec.n_workers)
        await self._cluster
        self._check()
        while len(self._scheduler.workers) < self._spec.n_workers:
            await asyncio.sleep(_ARRIVING)
            self._check()
        self._filled = True

    async def state(self) -> State:
        if self._filled:
            self._forget_ended()
        return State(
            arrived=len(self._scheduler.workers),
            requested=self._requested if self._adaptive is None else len(self._cluster.plan),
            pids=tuple(sorted(nanny.pid for nanny in self._nannies() if nanny.pid)),
            clients=tuple(sorted(self._clients)),
            idle_since=self._scheduler.check_idle(),
            warning=outgrown(self._outgrown, self._spec.memory_limit) or self._ended_for_good(),
            # They are forked from this process, or started by its Python.
            missing=missing_here(len(self._scheduler.workers)),
        )

    def _ended_for_good(self) -> str | None:
        if not self._for_good or self._adaptive is not None:
            return None
        return (
            f"{formats.count(len(self._for_good), 'worker')} ended for good. Restart the workers, or "
            f"scale, to have {self._requested}."
        )

    async def finished(self) -> str:
        """Return when the scheduler was closed."""
        await self._scheduler.finished()
        return "the scheduler was closed, by a client's shutdown()"

    async def scale(self, n: int) -> None:
        """Scale to `n` workers; those that leave first hand their data to the others."""
        self._check_room(n)
        self._stop_adapting()
        self._requested = n
        leaving = self._leaving(n)
        if leaving:
            await self._scheduler.retire_workers(names=leaving, close_workers=True, remove=True)
            await self._cluster.scale_down(leaving)
        self._forget_ended()
        # Also drops requested workers that have not arrived.
        self._cluster.scale(n)
        self._for_good.clear()

    async def adapt(self, minimum: int, maximum: int) -> None:
        self._check_room(maximum)
        self._stop_adapting()
        self._adaptive = self._cluster.adapt(self.following, minimum=minimum, maximum=maximum, worker_key=self.together)

    async def restart(self) -> None:
        self._outgrown.clear()
        self._forget_ended()
        self._for_good.clear()
        if self._adaptive is None:
            self._cluster.scale(self._requested)
        await self._scheduler.restart(stimulus_id=f"workbench-restart-{time.time()}")

    async def close(self) -> None:
        """Close scheduler and workers cleanly if that is quick, then kill them."""
        close = asyncio.ensure_future(self._cluster.close())
        await asyncio.wait({close}, timeout=self.patience)
        processes.end(processes.children())
        error = close.exception() if close.done() and not close.cancelled() else None
        if error is not None:
            raise error

    def _check_room(self, n: int) -> None:
        """Raise FailedError if there is no room for `n` workers."""

    def _leaving(self, n: int) -> list[object]:
        """Return the names of the workers to end so that `n` stay: those with the fewest tasks."""
        workers = sorted(self._scheduler.workers.values(), key=lambda ws: (len(ws.processing), ws.nbytes))
        return [ws.name for ws in workers[: max(0, len(workers) - n)]]

    def _nannies(self) -> list[Nanny]:
        return [each for each in self._cluster.workers.values() if isinstance(each, Nanny)]

    def _stop_adapting(self) -> None:
        if self._adaptive is not None:
            self._adaptive.stop(reason="workbench")
            self._adaptive = None

    def _forget_ended(self) -> None:
        """Drop ended workers that nothing restarts, so that the cluster replaces them when it next scales up."""
        for name, nanny in list(self._cluster.workers.items()):
            if nanny.status in (Status.closed, Status.failed):
                del self._cluster.workers[name]
                self._for_good.add(name)

    def _check(self) -> None:
        """Raise FailedError if a worker exceeds its limit without any work: Dask would kill and restart it forever."""
        limit = self._spec.memory_limit
        share = dask.config.get("distributed.worker.memory.terminate") or 1.0
        used = max((_resident(nanny.pid) for nanny in self._nannies() if nanny.pid), default=0)
        if used > share * limit:
            raise FailedError(
                f"A worker takes {formats.size(used)} before it does anything, but may use only {formats.size(limit)}. "
                "Give the cluster more memory, or fewer workers."
            )


class _Watcher(SchedulerPlugin):
    """Plugin that reports workers and clients that come and go, and workers that exceeded their memory."""

    name = "workbench-host"

    def __init__(
        self,
        scheduler: Scheduler,
        clients: set[str],
        outgrown: list[tuple[float, str]],
        changed: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._clients = clients
        self._outgrown = outgrown
        self._changed = changed

    def log_event(self, topic: str, msg: Any) -> None:
        # Dask's nannies report this before they end a worker.
        if topic == "worker-restart-memory":
            worker = self._scheduler.workers.get(msg["worker"])
            self._outgrown.append((time.time(), str(worker.name) if worker else msg["worker"]))
            self._changed()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._changed()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        self._changed()

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        self._clients.add(client)
        self._changed()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        self._clients.discard(client)
        self._changed()


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0
