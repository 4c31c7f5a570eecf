"""Watching a cluster from a test: what has come waits until it is taken."""

from __future__ import annotations

from typing import Any

from workbench.monitor import feed
from workbench.monitor.events import Batch


class Feed(feed.Feed):
    """A feed whose batches wait for `take`."""

    def __init__(self, client: Any, *, apart: bool = False) -> None:
        self._waiting: list[Batch] = []
        super().__init__(client, self._waiting.append, apart=apart)

    def take(self) -> list[Batch]:
        """Batches that came since the last call."""
        taken = self._waiting[:]
        del self._waiting[: len(taken)]
        return taken
