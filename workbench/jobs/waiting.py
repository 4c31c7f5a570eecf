"""Wait until a run or a comparison has ended, which another process writes down as it goes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from workbench.jobs.folders import L


async def wait(
    read: Callable[[], L],
    on_change: Callable[[L], Awaitable[None] | None] | None = None,
    *,
    timeout: float | None,
    poll: float,
) -> L:
    """What `read` gives when it has ended, or as it is after `timeout` seconds, looked at every `poll` seconds.

    `on_change` hears of it at the beginning, and each time that it is another.
    """
    deadline = _deadline(timeout)
    seen: L | None = None
    while True:
        found = await asyncio.to_thread(read)
        if found != seen and on_change is not None:
            heard = on_change(found)
            if heard is not None:
                await heard
        seen = found
        if not found.active or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(poll)


def finish(read: Callable[[], L], *, timeout: float | None, poll: float) -> L:
    """Wait as `wait` does, where there is no event loop or another one is running, as in a notebook."""
    deadline = _deadline(timeout)
    while (found := read()).active and time.monotonic() < deadline:
        time.sleep(poll)
    return found


def _deadline(timeout: float | None) -> float:
    return math.inf if timeout is None else time.monotonic() + timeout
