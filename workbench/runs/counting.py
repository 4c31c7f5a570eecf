"""How far a computation is, and what is left of it on the workers, as the scheduler and the workers see it.

The scheduler keeps the states of its tasks by group (one group for each collection in the graph). The groups of what
one client wants, and those they depend on, are one run's tasks, whatever else runs on the cluster. Counting them costs
the scheduler a look at a few dictionaries, however many tasks there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.runs.store import Count, Progress

_DONE = ("memory", "released", "forgotten", "erred")

GroupCount = tuple[str, str, int, int]
"""Name of the group, name of its kind, tasks done, tasks in it."""


def group_counts(client_id: str, dask_scheduler: Any = None) -> list[GroupCount]:
    """Count the tasks that this client wants and all that they depend on; runs on the scheduler."""
    client = dask_scheduler.clients.get(client_id)
    groups = {task.group for task in client.wants_what} if client is not None else set()
    waiting = list(groups)
    while waiting:
        new = waiting.pop().dependencies - groups
        groups |= new
        waiting.extend(new)
    return [
        (group.name, group.prefix.name, sum(group.states[state] for state in _DONE), sum(group.states.values()))
        for group in groups
    ]


def worker_addresses(dask_scheduler: Any = None) -> list[str]:
    """Addresses of all workers; runs on the scheduler."""
    return list(dask_scheduler.workers)


def executing_keys(dask_worker: Any) -> list[Any]:
    """Keys of the tasks that the worker's threads are in, cancelled ones included; runs on the worker."""
    return [task.key for task in (*dask_worker.state.executing, *dask_worker.state.long_running)]


def unwanted(executing: dict[str, list[Any] | None], client_id: str, dask_scheduler: Any = None) -> list[str] | None:
    """Tell workers that are in a task which isn't theirs any more, or that don't answer; runs on the scheduler.

    Returns None while the client still wants something: then its cancellation hasn't come here yet.
    """
    client = dask_scheduler.clients.get(client_id)
    if client is not None and client.wants_what:
        return None
    processing = {
        address: {task.key for task in worker.processing}
        for address, worker in dask_scheduler.workers.items()
        if address in executing
    }
    return [
        address
        for address, keys in executing.items()
        if keys is None or not processing.get(address, set()).issuperset(keys)
    ]


def progress_of(counts: Sequence[GroupCount]) -> Progress:
    """Sum counts of groups by kind."""
    by_name: dict[str, Count] = {}
    for _, name, done, total in sorted(counts, key=lambda count: count[1]):
        before = by_name.get(name, Count())
        by_name[name] = Count(done=before.done + done, total=before.total + total)
    return Progress(
        done=sum(count.done for count in by_name.values()),
        total=sum(count.total for count in by_name.values()),
        by_name=by_name,
    )


def finished(progress: Progress) -> Progress:
    """`progress` of a computation that is known to have ended well, whenever it was last counted."""
    by_name = {name: Count(done=count.total, total=count.total) for name, count in progress.by_name.items()}
    return progress.model_copy(update={"done": progress.total, "by_name": by_name})
