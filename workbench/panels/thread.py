"""The one thread in which panels change.

A kernel takes in clicks in a thread of their own, and a cell that computes holds up its main thread. Panel sends each
change in three messages, and those of two threads would mix. So whatever is asked for from outside is done here, one
thing after the other, while the kernel does something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

_GAP = 0.08
"""Seconds between two drawings at least: a page that draws all the time answers no click."""

_TICK = 1.0
"""Seconds after which there is a drawing though nothing came: what is watched may have ended."""


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """Event loop of the panels' thread, started when first asked for."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="workbench-panels", daemon=True).start()
    return made


def soon(act: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Have `act`, a function or a coroutine function, called in the panels' thread."""

    async def call() -> Any:
        outcome = act(*arguments)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return asyncio.run_coroutine_threadsafe(call(), loop())


def wait_for(act: Callable[..., T], *arguments: Any) -> T:
    """What `act` returns when it is called in the panels' thread."""
    if is_here():
        return act(*arguments)
    outcome: T = soon(act, *arguments).result()
    return outcome


def is_here() -> bool:
    """Whether this is the panels' thread."""
    try:
        return asyncio.get_running_loop() is loop()
    except RuntimeError:
        return False


class Redraw:
    """Calls `draw` in the panels' thread soon after each `wake`, and now and then, from `start` until `stop`.

    Parameters
    ----------
    draw
        Returns whether it could draw: a page listens only when the cell that displays it has ended. What came before
        `stop` is drawn when it does, which may be later.
    """

    def __init__(self, draw: Callable[[], bool]) -> None:
        self.running = False
        self._draw = draw
        self._awake = asyncio.Event()
        self._task: Future[Any] | None = None

    def start(self) -> None:
        """Begin to draw."""
        self.running = True
        if self._task is not None:
            self._task.cancel()
        self._task = soon(self._run)

    def stop(self) -> None:
        """Draw what has come, and then no more; from any thread."""
        self.running = False
        self.wake()

    def wake(self) -> None:
        """Have something drawn; from any thread."""
        loop().call_soon_threadsafe(self._awake.set)

    async def _run(self) -> None:
        while True:
            self._awake.clear()
            is_last = not self.running
            if self._drawn() and is_last:
                return
            await asyncio.sleep(_GAP)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), _TICK)

    def _drawn(self) -> bool:
        try:
            return self._draw()
        except Exception:  # noqa: BLE001
            # One drawing that goes wrong must not end the watching, and nobody waits for it.
            _log.exception("A figure could not be drawn")
            return True
