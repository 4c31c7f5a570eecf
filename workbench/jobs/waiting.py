"""Wait until a run or a comparison has ended, which another process writes down as it goes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar


class Lasting(Protocol):
    """What goes on until it has ended."""

    @property
    def active(self) -> bool:
        """Whether it is still going on."""
        ...


_Lasting = TypeVar("_Lasting", bound=Lasting)


async def wait(
    read: Callable[[], _Lasting],
    on_change: Callable[[_Lasting], Awaitable[None] | None] | None = None,
    *,
    timeout: float | None,
    poll: float,
) -> _Lasting:
    """What `read` gives when it has ended, or as it is after `timeout` seconds, looked at every `poll` seconds.

    `on_change` hears of it at the beginning, and each time that it is another.
    """
    deadline = _deadline(timeout)
    seen: _Lasting | None = None
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


def finish(read: Callable[[], _Lasting], *, timeout: float | None, poll: float) -> _Lasting:
    """Wait as `wait` does, where there is no event loop or another one is running, as in a notebook."""
    deadline = _deadline(timeout)
    while (found := read()).active and time.monotonic() < deadline:
        time.sleep(poll)
    return found


def _deadline(timeout: float | None) -> float:
    return math.inf if timeout is None else time.monotonic() + timeout
