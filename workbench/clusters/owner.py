"""Owner: a cluster from its first worker to its end, as the host process sees it, and its record kept true."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import shutil
import signal
import time
from typing import Any

import dask
import dask.config
import distributed
import distributed.utils
import psutil
from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.spec import SpecCluster
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler

from workbench import __version__, config, formats
from workbench.clusters import cuda, dashboard, lost, metrics, processes, records, security
from workbench.clusters.control import DONE
from workbench.clusters.forking import forking
from workbench.clusters.launch import LAUNCHERS
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError, StorageError, WorkbenchError, whole

logger = logging.getLogger("workbench.host")

# What Dask gets to close workers in order; they hold nothing that is worth a longer wait.
_CLOSE_PATIENCE = 1.5
_WATCH_INTERVAL = 1.0
_NEVER = 1e9  # seconds
_DEVICES_INTERVAL = 3.0


def own(name: str, *, worker_start: str = "spawn") -> int:
    """Start the cluster whose record is on disk, keep the record true until it ends; the exit code of the process."""
    logging.basicConfig(format="%(asctime)s - %(name)s - %(levelname)s - %(message)s", level=logging.INFO)
    # Dask's own way of telling its forkserver what to import, which would import pandas here: ours runs already.
    distributed.utils._forkserver_preload_set = True
    settings: dict[str, Any] = {
        "distributed.worker.multiprocessing-method": worker_start,
        # So long after a worker left, Dask's cluster looks whether it is back, and if not ends what would have brought
        # it back: one that restarts for the second time just then never returned.
        "distributed.deploy.lost-worker-timeout": _NEVER,
        # Each worker has a port for its pages too, which any user of this machine can ask: without any page.
        "distributed.worker.http.routes": [],
    }
    if not metrics.answered():
        settings["distributed.diagnostics.nvml"] = False
    with dask.config.set(settings):
        # Not asyncio.run: at its end it waits for all that was left undone, and this process ends with it anyway.
        return asyncio.new_event_loop().run_until_complete(_own(name))


async def _own(name: str) -> int:
    return await _Owner(records.read(name)).run()


class _Owner:
    """The one writer of a cluster's record while its process lives."""

    def __init__(self, record: ClusterRecord) -> None:
        self.record = record
        self.cluster: SpecCluster | None = None
        self.adaptive: Adaptive | None = None
        self.ready_at = time.time()
        self.ended = asyncio.Event()
        self.why_ended = ""
        self.unwritten: str | None = None

    async def run(self) -> int:
        pid = os.getpid()
        self.update(pid=pid, pid_created=processes.created(pid), versions=_versions())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.end, "asked to by a signal")
        heartbeat = asyncio.create_task(self._beat())
        async with forking(records.folder(self.record.name)):
            problem = await self._start()
            if problem is None:
                await self._watch()
        heartbeat.cancel()
        if problem is None or self.ended.is_set():
            self.update(status="stopping", expires_at=None)
            await self._close()
            records.remove(self.record.name)
            logger.info("Ended: %s", self.why_ended)
            return 0
        await self._fail(problem)
        return 0

    def update(self, **changes: Any) -> None:
        """Change the record, here and on disk, or there as soon as it can be written.

        The folder having gone means that the cluster was dismissed.
        """
        record = self.record.model_copy(update=changes)
        if record == self.record and not self.unwritten:
            return
        self.record = record
        try:
            records.write(record)
            self.unwritten = None
        except FileNotFoundError:
            self.end("its folder was removed")
        except StorageError as err:
            if not self.unwritten:
                logger.warning("The cluster goes on without its record: %s", err)
            self.unwritten = str(err)

    def end(self, why: str) -> None:
        """End the cluster soon. May be called at any time, and twice."""
        if not self.ended.is_set():
            self.why_ended = why
            self.ended.set()

    async def _start(self) -> str | None:
        """Start scheduler and workers; why that failed, in a sentence, or None when it didn't or was called off."""
        limit = config.seconds("start-timeout")
        start = asyncio.create_task(self._start_scheduler_and_workers())
        ended = asyncio.create_task(self.ended.wait())
        await asyncio.wait({start, ended}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if self.ended.is_set() or not start.done():
            start.cancel()
            await asyncio.wait({start}, timeout=1)
            return None if self.ended.is_set() else self._too_late(limit or 0)
        error = start.exception()
        if error is None:
            return None
        logger.error("The cluster did not start", exc_info=error)
        return (
            str(error)
            if isinstance(error, WorkbenchError)
            else f"The cluster did not start: {whole(_innermost(error))}."
        )

    async def _start_scheduler_and_workers(self) -> None:
        spec = self.record.spec
        keys = security.make(self.record.name) if spec.encrypt else None
        cluster = self.cluster = await LAUNCHERS[spec.profile](spec, keys)
        scheduler: Scheduler = cluster.scheduler
        scheduler.add_plugin(_Watcher(self), name="workbench-host")
        scheduler.handlers.update(
            workbench_scale=self.scale,
            workbench_adapt=self.adapt,
            workbench_stop=self.stop,
            workbench_restart=self.restart,
        )
        pages = dashboard.hide(scheduler, records.folder(self.record.name))
        dashboard.connect_when_asked(scheduler)
        self.update(
            stage="scheduler",
            scheduler_address=scheduler.address,
            contact_address=await _side_entrance(scheduler) if spec.protocol == "ucx" else None,
            dashboard_address=pages,
        )
        self.update(stage="workers")
        cluster.scale(spec.n_workers)
        await cluster
        self._check_memory(cluster)
        while len(scheduler.workers) < spec.n_workers:
            await asyncio.sleep(0.02)
            self._check_memory(cluster)
        self.ready_at = time.time()
        warning = await asyncio.to_thread(_idle_gpus, spec)
        self.update(
            status="ready", stage="ready", warning=warning, can_compute=warning is None, worker_pids=self._worker_pids()
        )

    def _check_memory(self, cluster: SpecCluster) -> None:
        """Workers that fill their limit by merely being there would be killed and started for ever."""
        limit = self.record.spec.memory_limit
        share = dask.config.get("distributed.worker.memory.terminate") or 1.0
        used = max((_resident(nanny.pid) for nanny in cluster.workers.values() if nanny.pid), default=0)
        if used > share * limit:
            raise FailedError(
                f"A worker takes {formats.size(used)} before it does anything, but may use only {formats.size(limit)}. "
                "Give the cluster more memory, or fewer workers."
            )

    def _too_late(self, limit: float) -> str:
        there, expected = self.record.n_workers, self.record.n_workers_expected
        what = f"{there} of {expected} workers had arrived" if self.cluster else "the scheduler was not up"
        remedy = "See the log; on a slow machine raise the setting workbench.start-timeout."
        return f"After {formats.duration(limit)} {what}. {remedy}"

    async def _watch(self) -> None:
        """Until the cluster is to end: follow what changes without anybody telling."""
        assert self.cluster is not None
        scheduler: Scheduler = self.cluster.scheduler
        closed = asyncio.create_task(scheduler.finished())
        closed.add_done_callback(lambda _: self.end("the scheduler was closed, by a client's shutdown()"))
        timeout = self.record.spec.idle_timeout
        interval = min(_WATCH_INTERVAL, timeout / 4) if timeout else _WATCH_INTERVAL
        devices = asyncio.create_task(self._watch_devices())
        while not self.ended.is_set():
            self._look(scheduler, timeout)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), interval)
        devices.cancel()

    def _look(self, scheduler: Scheduler, timeout: float | None) -> None:
        self._forget_ended()
        self.update(worker_pids=self._worker_pids())
        if self.adaptive is not None and self.cluster is not None:
            self.update(n_workers_expected=len(self.cluster.plan))
        if timeout is None:
            return
        idle_since = scheduler.check_idle()
        expires_at = None if idle_since is None else max(idle_since, self.ready_at) + timeout
        self.update(expires_at=expires_at)
        if expires_at is not None and time.time() > expires_at:
            self.end(f"nothing to do for {formats.duration(timeout)}")

    def _worker_pids(self) -> tuple[int, ...]:
        nannies = self.cluster.workers.values() if self.cluster is not None else ()
        return tuple(sorted(nanny.pid for nanny in nannies if nanny.pid))

    def _forget_ended(self) -> None:
        """Have the cluster start a worker anew, when next it is to have more, where nothing would bring it back."""
        assert self.cluster is not None
        for name, nanny in list(self.cluster.workers.items()):
            if nanny.status in (Status.closed, Status.failed):
                del self.cluster.workers[name]

    async def _watch_devices(self) -> None:
        """Until the cluster ends: say which of its GPUs were lost."""
        devices = self.record.spec.devices
        if not devices:
            return
        called = await asyncio.to_thread(lost.names, devices)
        with lost.gauges(devices) as gauges:
            while True:
                warning = lost.warning(await asyncio.to_thread(gauges.read), called)
                if warning is not None:
                    self.update(warning=warning, can_compute=False)
                await asyncio.sleep(_DEVICES_INTERVAL)

    async def _beat(self) -> None:
        path = records.folder(self.record.name) / "heartbeat"
        while True:
            try:
                path.touch(mode=0o600)
            except FileNotFoundError:
                self.end("its folder was removed")
            except OSError:  # a full disk, or one that may not be written to: no reason to end
                pass
            await asyncio.sleep(records.HEARTBEAT)

    # What clients ask for over Dask's RPC.

    async def scale(self, n: int) -> str:
        """Have `n` workers, and end adapting. Workers that leave hand their data to the others first."""
        self._stop_adapting()
        assert self.cluster is not None
        self.update(n_workers_expected=n, adaptive=None)
        surplus = len(self.cluster.plan) - n
        if surplus > 0:
            workers = sorted(self.cluster.scheduler.workers.values(), key=lambda ws: (len(ws.processing), ws.nbytes))
            leaving = [ws.name for ws in workers[:surplus]]
            await self.cluster.scheduler.retire_workers(names=leaving, close_workers=True, remove=True)
            await self.cluster.scale_down(leaving)
        self._forget_ended()
        # Also drops workers that were asked for and have not come.
        self.cluster.scale(n)
        return DONE

    async def adapt(self, minimum: int, maximum: int) -> str:
        """Follow the load between two numbers of workers."""
        self._stop_adapting()
        assert self.cluster is not None
        self.adaptive = self.cluster.adapt(minimum=minimum, maximum=maximum)
        self.update(adaptive=(minimum, maximum))
        return DONE

    async def restart(self) -> str:
        """Start all workers anew; what they computed or hold is forgotten."""
        assert self.cluster is not None
        await self.cluster.scheduler.restart(stimulus_id=f"workbench-restart-{time.time()}")
        return DONE

    async def stop(self) -> None:
        """End the cluster."""
        self.update(status="stopping")
        self.end("asked to")

    def _stop_adapting(self) -> None:
        if self.adaptive is not None:
            self.adaptive.stop(reason="workbench")
            self.adaptive = None

    async def _close(self) -> None:
        """Close scheduler and workers in order as far as that is quick, then end what is left."""
        spilled: set[str] = set()
        if self.cluster is not None:
            spilled = {nanny.worker_dir for nanny in self.cluster.workers.values() if nanny.worker_dir}
            spilled.add(self.cluster.scheduler.local_directory)
            close = asyncio.ensure_future(self.cluster.close())
            await asyncio.wait({close}, timeout=_CLOSE_PATIENCE)
            error = close.exception() if close.done() and not close.cancelled() else None
            if error is not None:
                logger.warning("Closing the cluster: %s", _innermost(error))
        processes.end(_children())
        for path in spilled:
            shutil.rmtree(path, ignore_errors=True)

    async def _fail(self, sentence: str) -> None:
        tail = records.log_tail(self.record.name)
        await self._close()
        records.remove_keys(self.record.name)
        self.update(
            status="failed",
            message=sentence,
            log_tail=tail,
            n_workers=0,
            clients=(),
            scheduler_address=None,
            contact_address=None,
            dashboard_address=None,
        )


def _idle_gpus(spec: ClusterSpec) -> str | None:
    problem = cuda.problem() if spec.devices else None
    return f"Its GPUs can't compute: {problem}." if problem else None


async def _side_entrance(scheduler: Scheduler) -> str:
    """Address over TCP of a scheduler that speaks UCX.

    UCX initialises once in a process and belongs to one event loop there. Whoever stops or watches a cluster, as the
    Jupyter server does, stays free of it.
    """
    await scheduler.listen("tcp://127.0.0.1:0")
    address: str = scheduler.listeners[-1].contact_address
    return address


class _Watcher(SchedulerPlugin):
    """Tells the owner of workers and clients that come and go."""

    name = "workbench-host"

    def __init__(self, owner: _Owner) -> None:
        self.owner = owner

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self.owner.update(n_workers=len(scheduler.workers))

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        self.owner.update(n_workers=len(scheduler.workers))

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        self.owner.update(clients=tuple(sorted({*self.owner.record.clients, client})))

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        self.owner.update(clients=tuple(sorted({*self.owner.record.clients} - {client})))


def _children() -> list[psutil.Process]:
    """All processes started from here but the tracker, which removes what the others leave in shared memory."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if not any("resource_tracker" in word for word in _command(child))
    ]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".rstrip(". ")


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "workbench": __version__,
        "dask": dask.__version__,
        "distributed": distributed.__version__,
    }
