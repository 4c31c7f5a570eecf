"""Owner of a cluster: runs it in the host process from its first worker to its end, and keeps its record current."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
import time
from typing import Any, Literal

import dask
import dask.config
import distributed
import distributed.utils

from workbench import config, formats, private
from workbench.clusters import cuda, records, security
from workbench.clusters.engine import Engine
from workbench.clusters.forking import fork
from workbench.clusters.handle import Handle, State
from workbench.clusters.periodic import repeat
from workbench.clusters.profiles import of_cluster
from workbench.clusters.records import ClusterRecord
from workbench.clusters.requests import answering
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError, StorageError, WorkbenchError, named
from workbench.jobs import folders, processes
from workbench.sent_code import versions

logger = logging.getLogger("workbench.host")

_WATCH_INTERVAL = 1.0
_NEVER = 1e9  # seconds


def own(name: str, *, worker_start: str = "spawn") -> int:
    """Start the cluster whose record is on disk and keep the record current until it ends; return the exit code."""
    logging.basicConfig(format="%(asctime)s - %(name)s - %(levelname)s - %(message)s", level=logging.INFO)
    # Dask logs each question of ours to the scheduler, several a second while a page shows the cluster.
    logging.getLogger("distributed.worker").addFilter(lambda record: "out-of-band" not in str(record.msg))
    # Before its first worker Dask imports all that its forkserver might preload (pandas: a second, 67 MB), though ours
    # already runs. No setting prevents that; a Dask without this name only starts more slowly.
    distributed.utils._forkserver_preload_set = True
    settings: dict[str, Any] = {
        "distributed.worker.multiprocessing-method": worker_start,
        # Dask's cluster removes the nanny of a worker that is still lost after this time: a worker that was just
        # restarting for the second time then never returned.
        "distributed.deploy.lost-worker-timeout": _NEVER,
        # Each worker's HTTP port can be opened by any user of this machine, so it serves no page.
        "distributed.worker.http.routes": [],
    }
    if not cuda.answered():
        settings["distributed.diagnostics.nvml"] = False
    with dask.config.set(settings), folders.signs_of_life(records.folder(name)):
        # Not asyncio.run: it would wait for unfinished work at its end, and this process ends anyway.
        return asyncio.new_event_loop().run_until_complete(_Owner(records.read(name)).run())


class _Owner:
    """The only writer of a cluster's record while its process lives."""

    def __init__(self, record: ClusterRecord) -> None:
        self.record = record
        self.handle: Handle | None = None
        self.ready_at = time.time()
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()
        self.why_ended = ""
        self.lost: str | None = None
        self.reported: tuple[str | None, str | None] = (None, None)
        self.idle: tuple[float | None, float] = (None, 0.0)
        self.looked = time.monotonic()
        self.unwritten: str | None = None
        self.tasks: list[asyncio.Task[Any]] = []

    async def run(self) -> int:
        self.update(**processes.itself(), versions=versions())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.end, "requested by a signal")
        self.tasks.append(asyncio.create_task(repeat(self._end_without_folder, folders.HEARTBEAT)))
        actions = (self.scale, self.adapt, self.restart, self.stop, fork)
        async with answering(records.folder(self.record.name), {each.__name__: each for each in actions}):
            problem = await self._start()
            if problem is None:
                await self.ended.wait()
        for task in self.tasks:
            task.cancel()
        if self.lost is not None:
            await self._over("lost", self.lost)
        elif problem is None or self.ended.is_set():
            self.update(status="stopping", expires_at=None)
            leftover = await self._close()
            if leftover is None:
                records.remove(self.record.name)
                logger.info("Ended: %s", self.why_ended)
            else:
                self._leave("lost", leftover)
        else:
            await self._over("failed", problem)
        return 0

    def update(self, **changes: Any) -> None:
        """Change the record, in memory and on disk, or on disk as soon as it can be written.

        If the folder is gone, the cluster was dismissed.
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
        """End the cluster soon. May be called at any time, and repeatedly."""
        if not self.ended.is_set():
            self.why_ended = why
            self.ended.set()

    async def _start(self) -> str | None:
        """Start scheduler and workers; return a message if that failed, or None if it succeeded or was canceled."""
        limit = config.seconds("start-timeout")
        start = asyncio.create_task(self._start_scheduler_and_workers())
        ended = asyncio.create_task(self.ended.wait())
        deadline = time.monotonic() + (limit or _NEVER)
        while not (start.done() or ended.done()) and (wait := deadline - time.monotonic()) > 0:
            began = time.monotonic()
            await asyncio.wait({start, ended}, timeout=min(wait, _WATCH_INTERVAL), return_when=asyncio.FIRST_COMPLETED)
            # Don't count time in which this process was suspended.
            deadline += max(0.0, time.monotonic() - began - 2 * _WATCH_INTERVAL)
            if any(job.state == "pending" for job in self.record.jobs):
                # Waiting in a queue doesn't count.
                deadline = time.monotonic() + (limit or _NEVER)
        ended.cancel()
        if self.ended.is_set() or not start.done():
            start.cancel()
            await asyncio.wait({start}, timeout=1)
            return None if self.ended.is_set() else self._too_late(limit or 0)
        error = start.exception()
        if error is None:
            return None
        if isinstance(error, WorkbenchError):
            return str(error)
        logger.error("The cluster did not start", exc_info=error)
        return f"The cluster did not start: {_innermost(error)}."

    async def _start_scheduler_and_workers(self) -> None:
        spec = self.record.spec
        started = of_cluster(spec.profile)
        keys = security.make(self.record.name) if spec.encrypt and not started.attaches else None
        if not started.attaches:
            dask.config.set({"temporary-directory": _make_spill_folder()})
        folder = records.folder(self.record.name)
        engine = started.engine(spec, keys, folder, self.changed.set)
        if not isinstance(engine, Engine):
            raise FailedError(f"engine() of the {started.name} profile gave {engine!r}, which is no Engine.")
        self.handle = handle = Handle(spec, engine)
        # At once: the scheduler may wait in a queue, and must be found by this name if this process is killed.
        self.update(can=engine.can, called=engine.called)
        # A lease shorter than a second is checked more often.
        interval = min(_WATCH_INTERVAL, (spec.idle_timeout or _NEVER) / 4)
        self.tasks.append(asyncio.create_task(repeat(self._look, interval, self.changed)))
        await handle.reachable()
        self.update(
            stage="scheduler",
            scheduler_address=handle.place.address,
            contact_address=handle.place.contact,
            dashboard_address=handle.dashboard,
            versions={**self.record.versions, **handle.versions},
        )
        self.update(stage="workers")
        await handle.fill()
        self.ready_at = time.time()
        warning = await asyncio.to_thread(_idle_gpus, spec)
        self._take(await handle.state())
        if warning is not None:
            self.update(warning=warning, can_compute=False)
        self.update(status="ready", stage="ready")

    async def _look(self) -> None:
        """Update the record."""
        assert self.handle is not None
        self._take(await self.handle.state())

    def _take(self, state: State) -> None:
        """Record the state of the cluster, and end it if it is over or its lease has run out."""
        if state.ended is not None or state.lost is not None:
            self.lost = state.lost
            self.end(state.lost or state.ended or "")
            return
        changes: dict[str, Any] = {
            "n_workers": state.arrived,
            "n_workers_expected": state.requested,
            "worker_pids": state.pids,
            "clients": state.clients,
            "machine": state.machine,
            "jobs": state.jobs,
            "called": state.called,
        }
        if state.spec is not None:
            changes["spec"] = state.spec
        reported = (state.trouble, state.warning)
        if reported != self.reported:
            self.reported = reported
            changes |= {"warning": state.trouble or state.warning, "can_compute": state.trouble is None}
        timeout, idle = self.record.spec.idle_timeout, self._idle_for(state.idle_since)
        if timeout is None or self.record.status != "ready":
            self.update(**changes)
            return
        expires_at = None if state.idle_since is None else max(state.idle_since, self.ready_at) + timeout
        self.update(**changes, expires_at=expires_at)
        if expires_at is not None and time.time() > expires_at and idle >= timeout:
            self.end(f"nothing to do for {formats.duration(timeout)}")

    def _idle_for(self, since: float | None) -> float:
        """Return the seconds for which it was seen idle.

        Changes of the clock, and time in which the machine or this process was suspended, don't count.
        """
        now = time.monotonic()
        passed, self.looked = min(now - self.looked, 2 * _WATCH_INTERVAL), now
        self.idle = (since, self.idle[1] + passed if since is not None and since == self.idle[0] else 0.0)
        return self.idle[1]

    def _too_late(self, limit: float) -> str:
        arrived, expected = self.record.n_workers, self.record.n_workers_expected
        problem = (
            f"{arrived} of {expected} workers had arrived"
            if self.record.scheduler_address
            else "the scheduler was not up"
        )
        remedy = "See the log; on a slow machine raise the setting workbench.start-timeout."
        return f"After {formats.duration(limit)} {problem}. {remedy}"

    async def _end_without_folder(self) -> None:
        if not records.folder(self.record.name).exists():
            self.end("its folder was removed")

    async def scale(self, n: int) -> None:
        """Scale to `n` workers, and end adapting. Leaving workers first hand their data to the others."""
        assert self.handle is not None
        before = self.record.n_workers_expected
        # First, so that the same memory isn't promised to another cluster.
        self.update(n_workers_expected=max(n, before))
        try:
            await self.handle.scale(n)
        except BaseException:
            self.update(n_workers_expected=before)
            raise
        self.update(n_workers_expected=n, adaptive=None)

    async def adapt(self, minimum: int, maximum: int) -> None:
        assert self.handle is not None
        before = self.record.adaptive
        self.update(adaptive=(minimum, maximum))
        try:
            await self.handle.adapt(minimum, maximum)
        except BaseException:
            self.update(adaptive=before)
            raise

    async def restart(self) -> None:
        assert self.handle is not None
        await self.handle.restart()

    async def stop(self) -> None:
        self.update(status="stopping")
        self.end("requested")

    async def _close(self) -> str | None:
        """Close the cluster cleanly if that is quick, else kill it; return a message on what still runs elsewhere."""
        problem = None
        if self.handle is not None:
            try:
                await self.handle.close()
            except FailedError as err:
                problem = str(err)
            except Exception as err:  # noqa: BLE001  It must end, whatever fails.
                logger.warning("Closing the cluster: %s", _innermost(err))
        processes.end(processes.children())
        return problem

    async def _over(self, status: Literal["failed", "lost"], sentence: str) -> None:
        """End the rest of the cluster, and leave the record to explain why."""
        tail = records.log_tail(self.record.name)
        problem = await self._close()
        if problem is None:
            self.update(called="")
        self._leave(status, " ".join(filter(None, (sentence, problem))), tail)

    def _leave(self, status: Literal["failed", "lost"], sentence: str, tail: tuple[str, ...] = ()) -> None:
        records.remove_keys(self.record.name)
        self.update(status=status, message=sentence, log_tail=tail, **records.GONE)


def _make_spill_folder() -> str:
    """Make the folder to which scheduler and workers spill, on the disk that Dask's own setting names.

    Dask's own subfolder, dask-scratch-space, has a name that another user could claim first, to read and forge spilled
    data. SSH workers, jobs and pods make theirs where they run. Workers of a gateway spill where its own settings
    say: its administrator decides on their environment and command.
    """
    parent = dask.config.get("temporary-directory", None)
    try:
        return str(private.make_folder(private.SPILL, parent))
    except OSError as err:
        raise FailedError(
            f"Nothing can be spilled to {parent or tempfile.gettempdir()} ({err.strerror}). Set temporary-directory in "
            "Dask's configuration to a folder of yours."
        ) from err


def _idle_gpus(spec: ClusterSpec) -> str | None:
    problem = cuda.problem() if spec.devices else None
    return f"Its GPUs can't compute: {problem}." if problem else None


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return named(error)
