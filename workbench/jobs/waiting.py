"""Waiting for the end of a run or a comparison, which another process records."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Generic

from workbench.jobs.folders import L


class Waiting(Generic[L]):
    """A wait for runs or comparisons by id, which reads the record every `poll` seconds.

    `reader` returns, for an id, the function that reads its record.
    """

    def __init__(self, reader: Callable[[str], Callable[[], L]], poll: float) -> None:
        self._reader, self._poll = reader, poll

    async def wait(self, id: str, *, timeout: float | None = None) -> L:
        """Wait for the end of a record, `timeout` seconds at most, and return it."""
        read, deadline = self._reader(id), _deadline(timeout)
        while (record := await asyncio.to_thread(read)).active and time.monotonic() < deadline:
            await asyncio.sleep(self._poll)
        return record

    def finish(self, id: str, on_change: Callable[[L], None] | None = None, *, timeout: float | None = None) -> L:
        """Wait as `wait` does, without an event loop; call `on_change` with the record first and after each change."""
        read, deadline = self._reader(id), _deadline(timeout)
        last: L | None = None
        while True:
            record = read()
            if record != last and on_change is not None:
                on_change(record)
            last = record
            if not record.active or time.monotonic() >= deadline:
                return record
            time.sleep(self._poll)


def _deadline(timeout: float | None) -> float:
    return math.inf if timeout is None else time.monotonic() + timeout
