"""Interface of engines, which start schedulers and workers: `Engine`, and the `Job` that a queue reports."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from workbench import formats
from workbench.clusters.reachability import ANSWERING, Place, asking, key_files
from workbench.clusters.spec import ClusterSpec

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.security import Security

Verb = Literal["scale", "adapt", "restart", "stop"]

VERBS: tuple[Verb, ...] = ("scale", "adapt", "restart", "stop")
"""Actions that a cluster may support. One that can't be stopped is left running: the user detaches from it."""

_CLOSING = 1.5  # seconds for a scheduler of ours to close cleanly


class Job(BaseModel, frozen=True):
    """A job as its queue reports it."""

    id: str
    state: Literal["pending", "running", "ended"]
    reason: str = ""
    """Reason for waiting, as the queue words it, or how the job ended."""
    start: float | None = None
    """Start expected by the queue, in seconds since the epoch."""
    waited: float | None = None
    """Seconds from submission to start; None while it waits, and if the queue doesn't report it."""
    workers: int = 1
    """Workers that the job starts; 0 if it is the cluster's scheduler."""


def queued(jobs: Iterable[Job]) -> str:
    """Summarize jobs that don't run: '6 pending: Priority, start estimated 14:20'."""
    all_jobs, parts = tuple(jobs), []
    for state in ("pending", "ended"):
        same = [job for job in all_jobs if job.state == state]
        reasons = Counter(job.reason for job in same if job.reason for _ in range(job.workers or 1)).most_common()
        words = ", ".join(reason if len(reasons) == 1 else f"{reason} ({n})" for reason, n in reasons)
        starts = [job.start for job in same if job.start is not None and state == "pending"]
        if starts:
            words += f"{', ' if words else ''}start estimated {formats.moment(min(starts))}"
        if same:
            parts.append(f"{sum(job.workers for job in same) or 'scheduler'} {state}{f': {words}' if words else ''}")
    return "; ".join(parts)


class Engine(ABC):
    """A way to start a scheduler and workers. The cluster's `Handle` asks the scheduler for everything else.

    `start`, `have`, `jobs` and `close` are all that most engines need.
    """

    can: tuple[Verb, ...] = VERBS
    """Supported verbs; without 'scale' and 'adapt', `have` is never called."""
    called: str = ""
    """Name of the cluster in the system that runs it, which may outlive this process."""
    group: int = 1
    """Number of workers that start and end together."""
    remedy: str = "See the log of the cluster."
    """Advice for a scheduler that doesn't answer from the start."""
    dashboard: str | None = None
    """Address of Dask's own dashboard: our socket, 'unix:<path>'."""
    scheduler: Scheduler | None = None
    """Scheduler, if it runs in this process."""
    place: Place = Place("")
    workers: Mapping[str, Mapping[str, Any]] = {}
    """Workers by address, as the scheduler last reported them. The handle sets this and `place`."""

    def __init__(
        self,
        spec: ClusterSpec,
        security: Security | None = None,
        folder: Path = Path(),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare to start the cluster; the arguments are those of `Profile.engine`."""
        self.spec, self.security, self.folder, self.changed = spec, security, folder, changed

    @abstractmethod
    async def start(self) -> Place:
        """Start the scheduler, and return its place when it can be reached: it may wait in a queue."""

    async def have(self, n: int) -> None:
        """Start or end workers until there are `n`; those that end first hand over their data.

        Raises FailedError with the system's message.
        """
        raise NotImplementedError

    async def jobs(self) -> tuple[Job, ...]:
        """Return the jobs of the workers, if a queue has some."""
        return ()

    async def close(self) -> None:
        """End the workers and the scheduler, or detach from an external one.

        Raises FailedError with instructions if something may be left.
        """
        if self.scheduler is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.scheduler.close(), _CLOSING)

    def check_room(self, n: int) -> None:  # noqa: B027  Most have room.
        """Raise FailedError if there is no room for `n` workers."""

    def check_start(self) -> None:  # noqa: B027  Most workers arrive.
        """Raise FailedError if the workers that were started will never arrive."""

    def started(self) -> int | None:
        """Return the number of workers that haven't ended for good; None if the system replaces those that end."""
        return None

    def trouble(self) -> str | None:
        """Return a message on workers that are missing, None if nothing is known."""
        return None

    async def gone(self) -> str | None:
        """Return why the scheduler will not answer again; None if it may."""
        return None

    def measured(self, spec: ClusterSpec, memory: int) -> ClusterSpec:
        """Return the spec with the sizes of the workers that arrived, if the plan didn't know them.

        `memory` is the bytes of their machines.
        """
        return spec

    def pids(self) -> tuple[int, ...]:
        """Return the pids of the workers, if they are on this machine."""
        return ()

    async def serve(self, **at: str) -> Place:
        """Start a scheduler in this process, at an address (`host`) or a network interface (`interface`)."""
        from distributed.scheduler import Scheduler

        scheduler = await Scheduler(
            protocol=f"{self.spec.protocol}://",
            port=0,
            security=self.security,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            **at,
        )
        return self.adopt(scheduler)

    def adopt(self, scheduler: Scheduler) -> Place:
        """Take over a scheduler in this process, and return its place."""
        from workbench.clusters import dashboard

        self.scheduler = scheduler
        self.dashboard = dashboard.hide(scheduler, self.folder)
        dashboard.connect_on_request(scheduler)
        _notify(scheduler, self.changed)
        addresses = [scheduler.address, *(each.contact_address for each in scheduler.listeners)]
        contact = next((each for each in addresses if each.startswith(("tcp:", "tls:"))), None)
        place = Place(scheduler.address, *(key_files(self.folder) if self.spec.encrypt else ()))
        return place if contact == place.address else place._replace(contact=contact)

    def rpc(self) -> Any:
        """Return Dask's RPC to the scheduler."""
        return asking(self.place.contact or self.place.address, self.place.security, ANSWERING)

    async def retire(self, units: Sequence[str], surplus: int) -> list[str]:
        """Retire the workers of `surplus` of these units, which are workers or groups of them; return the units.

        Units without a worker go first, latest first, then those with the fewest tasks.
        """
        if surplus <= 0:
            return []
        async with self.rpc() as scheduler:
            self.workers = (await scheduler.identity())["workers"]
            busy: dict[str, int] = dict.fromkeys(units, -1)
            for worker in self.workers.values():
                tasks = worker.get("metrics", {}).get("task_counts", {})
                if (name := self.unit_of(worker)) in busy:
                    busy[name] = max(0, busy[name]) + sum(n for state, n in tasks.items() if state != "memory")
            leaving = sorted(units, key=lambda name: (busy[name], -units.index(name)))[:surplus]
            names = [str(each["name"]) for each in self.workers.values() if self.unit_of(each) in leaving]
            if names:
                await scheduler.retire_workers(names=names, close_workers=True, remove=True)
        return leaving

    def unit_of(self, worker: Mapping[str, Any]) -> str:
        """Return the name of a worker's unit, to which Dask adds a number if there are several workers."""
        name = str(worker["name"])
        return name if self.group == 1 else name.rpartition("-")[0]


def _notify(scheduler: Scheduler, changed: Callable[[], None]) -> None:
    """Call a function when workers or clients of a scheduler in this process come or go."""
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Notifier(SchedulerPlugin):
        name = "workbench-host"

        def add_worker(self, *_: Any, **__: Any) -> None:
            changed()

        add_client = remove_worker = remove_client = add_worker

    scheduler.add_plugin(Notifier())
