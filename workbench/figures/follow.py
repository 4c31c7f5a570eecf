"""The time window that follows current work."""

from __future__ import annotations

from workbench.monitor.events import Batch

WINDOW = 30.0
"""Seconds in view while tasks are fast."""

LONGEST_WINDOW = 600.0

PAUSE = 5.0
"""Seconds without a task after which the window starts over with the next task."""

_SHORTEST = 0.2
_WITHOUT_TASKS = 10.0


class Follow:
    """The window that follows the work.

    It begins with the first task after a pause, so that a run of two seconds fills the view, and is never longer than
    `WINDOW`, or four of the longest tasks. While nothing is computed it stays on the latest work.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._first = float("inf")
        self._start = 0.0
        self._ended = 0.0
        self._longest = 0.0
        self._busy = False

    @property
    def is_empty(self) -> bool:
        """True if nothing has happened yet."""
        return self._now == 0.0

    @property
    def origin(self) -> float:
        """Zero of the time axis: start of the latest work, or of the first sample before any, in seconds."""
        return self._start if self._ended else min(self._first, self._now)

    def feed(self, batch: Batch) -> None:
        """Note the times of a batch's tasks and samples."""
        self._now = max(self._now, batch.time)
        for sample in batch.samples:
            self._first = min(self._first, sample.time)
        if batch.progress is not None:
            self._busy = any(count["processing"] for count in batch.progress.counts.values())
        if len(batch.tasks):
            self._take_in(float(batch.tasks.start.min()), float(batch.tasks.stop.max()))
            self._longest = max(self._longest, float((batch.tasks.stop - batch.tasks.start).max()))

    def _take_in(self, start: float, stop: float) -> None:
        self._first = min(self._first, start)
        if not self._ended or start > self._ended + PAUSE:
            self._start, self._longest = start, 0.0
        self._start = min(self._start, start)
        self._ended = max(self._ended, stop)

    def window(self) -> tuple[float, float]:
        """Return start and end, in seconds since the epoch."""
        if not self._ended:
            return max(min(self._first, self._now - _WITHOUT_TASKS), self._now - WINDOW), self._now
        end = self._now if self._busy else self._ended
        length = min(LONGEST_WINDOW, max(WINDOW, 4 * self._longest))
        return _with_margin(max(self._start, end - length), max(end, self._ended))

    def whole(self) -> tuple[float, float]:
        """Return start and end of everything that happened, with a margin."""
        if self._first == float("inf"):
            return self._now - _WITHOUT_TASKS, self._now
        return _with_margin(*self.edges())

    def edges(self) -> tuple[float, float]:
        """Return the time of the first event and of the last one."""
        return self._first, max(self._ended, self._now)


def _with_margin(start: float, end: float) -> tuple[float, float]:
    margin = 0.015 * max(end - start, _SHORTEST)
    return start - margin, max(end, start + _SHORTEST) + margin
