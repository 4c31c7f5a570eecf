"""How far a computation is, as the scheduler sees it: what `remote.group_counts` tells.

The scheduler keeps the states of its tasks by group (one group for each collection in the graph). The groups of what
one client wants, and those they depend on, are one run's tasks, whatever else runs on the cluster. Counting them costs
the scheduler a look at a few dictionaries, however many tasks there are.

Tasks whose key is a string, such as those that bring a result together, are in one group for all clients: of these only
the client's own are counted, each for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.linalg.keys import pass_in
from workbench.runs.store import Count, Progress

GroupCount = tuple[str, str, int, int]
"""Name of the group, name of its kind, tasks done, tasks in it."""


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
        passes=max((pass_in(group) for group, _, _, _ in counts), default=0),
    )


def finished(progress: Progress) -> Progress:
    """`progress` of a computation that is known to have ended well, whenever it was last counted."""
    by_name = {name: Count(done=count.total, total=count.total) for name, count in progress.by_name.items()}
    return progress.model_copy(update={"done": progress.total, "by_name": by_name, "more": False})
