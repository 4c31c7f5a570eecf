"""How far a computation is, counted by its scheduler.

The scheduler keeps the states of its tasks by group (one group for each collection in the graph). The groups that the
wanted keys depend on are exactly one run's tasks, whatever else runs on the cluster, and counting them costs the
scheduler a look at a few dictionaries, however many tasks there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.runs.store import Count, Progress

_DONE = ("memory", "released", "forgotten", "erred")

GroupCount = tuple[str, str, int, int]
"""Name of the group, name of its kind, tasks done, tasks in it."""


def group_counts(keys: Sequence[Any], dask_scheduler: Any = None) -> list[GroupCount]:
    """Count the tasks that `keys` depend on; runs on the scheduler. A key it doesn't know yet counts nothing."""
    tasks = (dask_scheduler.tasks.get(key) for key in keys)
    groups = {task.group for task in tasks if task is not None}
    waiting = list(groups)
    while waiting:
        new = waiting.pop().dependencies - groups
        groups |= new
        waiting.extend(new)
    return [
        (group.name, group.prefix.name, sum(group.states[state] for state in _DONE), sum(group.states.values()))
        for group in groups
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


def one_key_a_group(keys: Sequence[Any]) -> list[Any]:
    """As few of `keys` as name all their groups: a group is named by the first part of a key."""
    return list({key[0] if isinstance(key, tuple) else key: key for key in keys}.values())


def finished(progress: Progress) -> Progress:
    """`progress` of a computation that is known to have ended well, whenever it was last counted."""
    by_name = {name: Count(done=count.total, total=count.total) for name, count in progress.by_name.items()}
    return Progress(done=progress.total, total=progress.total, by_name=by_name)
