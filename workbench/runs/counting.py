"""How far a computation is, and what is left of it on the workers, as the scheduler and the workers see it.

The scheduler keeps the states of its tasks by group (one group for each collection in the graph). The groups of what
one client wants, and those they depend on, are one run's tasks, whatever else runs on the cluster. Counting them costs
the scheduler a look at a few dictionaries, however many tasks there are.

Tasks whose key is a string, such as those that bring a result together, are in one group for all clients: of these only
the client's own are counted, each for itself.
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
    if client is None:
        return []
    groups, tasks = wanted(client, dask_scheduler)
    own: dict[Any, list[bool]] = {}
    for task in tasks:
        own.setdefault(task.group, []).append(task.state in _DONE)
    return [
        (group.name, group.prefix.name, sum(group.states[state] for state in _DONE), sum(group.states.values()))
        for group in groups
    ] + [(group.name, group.prefix.name, sum(done), len(done)) for group, done in own.items()]


def wanted(client: Any, scheduler: Any) -> tuple[set[Any], set[Any]]:
    """The groups that hold what a client wants, and what that depends on; and its tasks in groups of all clients."""
    look, tasks, groups = list(client.wants_what), set(client.wants_what), set()
    while look:
        task = look.pop()
        if _has_tasks_of_all(task.group):
            new = task.dependencies - tasks
            tasks |= new
            look.extend(new)
        else:
            groups.add(task.group)
    # Which tasks of all clients' groups a collection needs isn't known by group: all of them, or none beside others.
    alone = not any(other.wants_what for other in scheduler.clients.values() if other is not client)
    waiting = list(groups)
    while waiting:
        for group in waiting.pop().dependencies - groups:
            # A group of all clients goes on depending on those of clients that left, which the scheduler has forgotten.
            live = scheduler.task_groups.get(group.name) is group
            if live and (alone or not _has_tasks_of_all(group)):
                groups.add(group)
                waiting.append(group)
    return groups, {task for task in tasks if task.group not in groups}


def _has_tasks_of_all(group: Any) -> bool:
    """Whether a group holds tasks of all clients: those with keys that are strings, by what these begin with."""
    return bool(group.name == group.prefix.name)


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
