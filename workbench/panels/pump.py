"""Drawing in the notebook's own loop while it is free, and beside it while a cell computes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

_GAP = 0.05
"""Seconds between two drawings at least."""

_PATIENCE = 0.15
"""Seconds for which the loop may be late before the drawing is done without it."""

_TICK = 1.0
"""Seconds after which there is a drawing though nothing came: whatever is watched may be gone."""


class Pump:
    """Calls `draw` soon after each `wake`.

    Panel sends what changed in three messages, and those of two threads must not mix. So the drawing is done in the
    event loop, where Panel answers clicks too. A loop that a computing cell holds up can't answer any: then it is
    done in a thread, and the figure moves below the running cell.
    """

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._closed = False
        self._loop = _running_loop()
        self._thread = threading.Thread(target=self._run, name="workbench-draw", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have something drawn; from any thread."""
        self._awake.set()

    def close(self) -> None:
        """Draw no more."""
        self._closed = True
        self._awake.set()

    def draw(self) -> None:
        """Draw now."""
        with self._lock:
            if not self._closed:
                self._draw()

    def _run(self) -> None:
        while not self._closed:
            self._awake.wait(_TICK)
            self._awake.clear()
            if not self._in_loop():
                self.draw()
            threading.Event().wait(_GAP)

    def _in_loop(self) -> bool:
        """Whether the loop did the drawing."""
        if self._loop is None or self._loop.is_closed():
            return False
        done = threading.Event()

        def turn() -> None:
            try:
                self.draw()
            finally:
                done.set()

        try:
            self._loop.call_soon_threadsafe(turn)
        except RuntimeError:
            return False
        return done.wait(_PATIENCE)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
