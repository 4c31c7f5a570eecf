"""Watching a cluster from a test: what has come waits until it is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.monitor import feed
from workbench.monitor.events import Batch, Task, Tasks, make_tasks


class Feed(feed.Feed):
    """A feed whose batches wait for `take`."""

    def __init__(self, client: Any, *, separate: bool = False) -> None:
        self._waiting: list[Batch] = []
        super().__init__(client, self._waiting.append, separate=separate)

    def take(self) -> list[Batch]:
        """Batches that came since the last call."""
        taken = self._waiting[:]
        del self._waiting[: len(taken)]
        return taken


def tasks_of(rows: Sequence[Task]) -> Tasks:
    """Return `rows` as a table."""
    columns = ("key", "name", "worker", "thread", "kind", "start", "stop", "nbytes", "status")
    found = {name: [getattr(row, name) for row in rows] for name in columns}
    return make_tasks(**found, source=[row.source or None for row in rows])
