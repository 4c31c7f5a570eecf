"""What the owner of a cluster holds, whatever started it: `Handle`, and the `State` that it tells."""

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
"""What a handle may be able to do. A cluster that can't be stopped is left alone: one detaches from it."""


class Job(BaseModel, frozen=True):
    """What a queue knows of one job."""

    id: str
    state: Literal["pending", "running", "ended"]
    reason: str = ""
    """Why it waits, in the queue's own word, or how it ended."""
    start: float | None = None
    """When the queue expects it to start, in seconds since the epoch."""
    waited: float | None = None
    """Seconds from its submission to its start; None while it waits, and where the queue doesn't tell."""
    workers: int = 1
    """That it brings: none where it is the cluster's scheduler."""


def queued(jobs: Iterable[Job]) -> str:
    """Return what is to be said of workers whose jobs give none: '6 pending: Priority, start estimated 14:20'."""
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
    """Return a sentence on workers that Dask started again because of their memory; None where there were none.

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
    """A cluster as its handle sees it now; fields of the same name in `records.ClusterRecord` say what they are."""

    arrived: int
    """Workers that are there."""
    requested: int
    """Workers that should be."""
    pids: tuple[int, ...] = ()
    """Processes of the workers, where they are on this machine."""
    clients: tuple[str, ...] = ()
    idle_since: float | None = None
    """Seconds since the epoch from which there was nothing to do; None while there is."""
    trouble: str | None = None
    """Why it can't be used at the moment, in one sentence."""
    warning: str | None = None
    spec: ClusterSpec | None = None
    """What the workers turned out to be, where the handle didn't start them."""
    machine: Mapping[str, Any] | None = None
    missing: Mapping[str, Mapping[str, int]] | None = None
    jobs: tuple[Job, ...] = ()


class Handle:
    """A cluster that was started, or one that was found. Verbs that aren't in `can` are never called."""

    address: str
    """Of the scheduler, for clients."""
    contact: str | None = None
    """Address over TCP of a scheduler that speaks UCX."""
    dashboard: str | None = None
    """Dask's own dashboard: the socket of ours, 'unix:<path>', or the address that another serves it at."""
    called: str = ""
    """What it is called by what started it elsewhere and goes on without us."""
    versions: Mapping[str, str] = {}
    """Of 'python' and 'dask' at the scheduler, where another Python than this one may run it."""
    can: tuple[Verb, ...] = ()
    """Verbs that may be called."""

    async def reachable(self) -> None:
        """Return when its scheduler can be reached, which may wait in a queue."""

    async def fill(self) -> None:
        """Return when the workers that the spec asks for are there, or some while others wait in a queue."""

    async def state(self) -> State:
        """Return how the cluster is."""
        raise NotImplementedError

    async def finished(self) -> str:
        """Return why it ended when somebody else ended it. Raises FailedError when it is lost."""
        raise NotImplementedError

    async def scale(self, n: int) -> None:
        """Have `n` workers; return when those that leave have handed over their data."""
        raise NotImplementedError

    async def adapt(self, minimum: int, maximum: int) -> None:
        """Follow the load between two numbers of workers, until `scale` is called."""
        raise NotImplementedError

    async def restart(self) -> None:
        """Start all workers anew."""
        raise NotImplementedError

    async def close(self) -> None:
        """End it, or let go of what one is only attached to."""
