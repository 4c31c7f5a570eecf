"""Batches of events of one cluster, passed on as they come, and stored for pages that join later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from workbench.monitor.events import Batch

MOST_BATCHES = 6_000
MOST_TASKS = 50_000
"""Past for a page that joins later: ten minutes, and no more tasks than a figure draws smoothly."""


class Listener(Protocol):
    """A receiver of batches."""

    def add(self, batches: list[Batch], /) -> None:
        """Take in batches."""

    def wake(self) -> None:
        """Look at the feed's state, which has changed."""


class Past:
    """Batches of a cluster: passed to all watches as they arrive, and stored for later ones."""

    def __init__(self, most_batches: int = MOST_BATCHES, most_tasks: int = MOST_TASKS) -> None:
        self.ended: str | None = None
        """Reason why no more batches come."""
        self.waiting: str | None = None
        """Reason why there are no batches yet."""
        self._watches: set[Listener] = set()
        self._history: deque[Batch] = deque(maxlen=most_batches)
        self._most_tasks = most_tasks
        self._n_tasks = 0

    def join(self, watch: Listener) -> None:
        """Pass the stored batches to `watch`, and all later ones."""
        self._watches.add(watch)
        watch.add(list(self._history))

    def leave(self, watch: Listener) -> None:
        """Remove `watch`."""
        self._watches.discard(watch)

    def take(self, batch: Batch) -> None:
        """Store a batch and pass it to all watches."""
        if len(self._history) == self._history.maxlen:
            self._n_tasks -= len(self._history.popleft().tasks)
        self._history.append(batch)
        self._n_tasks += len(batch.tasks)
        while self._n_tasks > self._most_tasks and len(self._history) > 1:
            self._n_tasks -= len(self._history.popleft().tasks)
        for watch in self._watches:
            watch.add([batch])

    def wait(self, sentence: str | None) -> None:
        """Set the reason for waiting, or None, and notify all watches."""
        if sentence != self.waiting:
            self.waiting = sentence
            self._wake_all()

    def end(self, sentence: str) -> None:
        """Notify all watches that no more batches come."""
        if self.ended is None:
            self.ended = sentence
            self._wake_all()

    def resume(self) -> None:
        """Revoke the end."""
        self.ended = None

    def _wake_all(self) -> None:
        for watch in self._watches:
            watch.wake()
