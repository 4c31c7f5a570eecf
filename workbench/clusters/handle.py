"""Interface between a cluster's owner and the engine that started it: `Handle`, and the `State` that it reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from workbench import formats
from workbench.clusters.spec import ClusterSpec

Verb = Literal["scale", "adapt", "restart", "stop"]

VERBS: tuple[Verb, ...] = ("scale", "adapt", "restart", "stop")
"""Actions that a handle may support. A cluster that can't be stopped is left running: the user detaches from it."""


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
    known, said = tuple(jobs), []
    for state in ("pending", "ended"):
        these = [job for job in known if job.state == state]
        reasons = Counter(job.reason for job in these if job.reason for _ in range(job.workers or 1)).most_common()
        words = ", ".join(reason if len(reasons) == 1 else f"{reason} ({n})" for reason, n in reasons)
        starts = [job.start for job in these if job.start is not None and state == "pending"]
        if starts:
            words += f"{', ' if words else ''}start estimated {formats.moment(min(starts))}"
        if these:
            said.append(f"{sum(job.workers for job in these) or 'scheduler'} {state}{f': {words}' if words else ''}")
    return "; ".join(said)


def outgrown(events: Sequence[tuple[float, str]], memory_limit: int) -> str | None:
    """Return a warning about workers that Dask restarted because of their memory; None if there were none.

    An event is a time and the name of a worker.
    """
    if not events:
        return None
    at, worker = events[-1]
    who = f"Worker {worker} was started again at {formats.moment(at, time.time())}"
    before = f", and workers {formats.count(len(events) - 1, 'time')} before" if len(events) > 1 else ""
    return (
        f"{who}{before}: its data outgrew the {formats.size(memory_limit)} that it may use. What it held is computed "
        "once more. Use smaller chunks, fewer threads a worker, or more memory."
    )


class State(NamedTuple):
    """A cluster as its handle sees it now; fields of the same name are described in `records.ClusterRecord`."""

    arrived: int
    """Number of workers that have arrived."""
    requested: int
    """Number of workers that should be there."""
    pids: tuple[int, ...] = ()
    """Pids of the workers, if they are on this machine."""
    clients: tuple[str, ...] = ()
    idle_since: float | None = None
    """Start of the idle time, in seconds since the epoch; None while the cluster works."""
    trouble: str | None = None
    """Message on why it can't be used at the moment."""
    warning: str | None = None
    spec: ClusterSpec | None = None
    """Spec with the workers' actual sizes, if the handle didn't start them."""
    machine: Mapping[str, Any] | None = None
    missing: Mapping[str, Mapping[str, int]] | None = None
    jobs: tuple[Job, ...] = ()


class Handle:
    """A cluster that was started or attached to. Verbs that aren't in `can` are never called."""

    address: str
    """Address of the scheduler, for clients."""
    contact: str | None = None
    """TCP address of a scheduler that uses UCX."""
    dashboard: str | None = None
    """Address of Dask's own dashboard: our socket, 'unix:<path>', or a remote address."""
    called: str = ""
    """Name of the cluster in the engine that runs it elsewhere, independently of this process."""
    versions: Mapping[str, str] = {}
    """Versions of 'python' and 'dask' at the scheduler, if another Python may run it."""
    can: tuple[Verb, ...] = ()
    """Supported verbs."""

    async def reachable(self) -> None:
        """Return when the scheduler can be reached; it may wait in a queue."""

    async def fill(self) -> None:
        """Return when all workers of the spec have arrived, or some have while others wait in a queue."""

    async def state(self) -> State:
        """Return the state of the cluster."""
        raise NotImplementedError

    async def finished(self) -> str:
        """Return why it ended, if it was ended from outside. Raises FailedError if it is lost."""
        raise NotImplementedError

    async def scale(self, n: int) -> None:
        """Scale to `n` workers; return when leaving workers have handed over their data."""
        raise NotImplementedError

    async def adapt(self, minimum: int, maximum: int) -> None:
        """Adapt the number of workers to the load, between two bounds, until `scale` is called."""
        raise NotImplementedError

    async def restart(self) -> None:
        """Restart all workers."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the cluster, or detach from an external one."""
