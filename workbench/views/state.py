"""State of the sidebar, read again after each change while it has subscribers. No tornado here."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.threads import in_thread
from workbench.views.answers import read_state

if TYPE_CHECKING:
    from workbench.session import Session

TICK = 2.0
"""Seconds after which the state is read even if no file changed: used memory changes no file."""

GAP = 0.03
"""Minimum of seconds between two readings of the state."""


class StateWatcher:
    """Clusters and runs, read again when files change; `cursor` counts the changes."""

    def __init__(self, session: Session, base_url: str, log: Any) -> None:
        self.value: dict[str, Any] = {}
        self.problem: str | None = None
        self.read_at = 0.0
        self.cursor = 0
        self._session = session
        self._base_url = base_url
        self._log = log
        self._subscribers: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._closed = False

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each reading of the state. Watching starts with the first subscriber."""
        self._subscribers.append(on_change)
        if not self._tasks and not self._closed:
            self._tasks = (asyncio.create_task(self._follow()), asyncio.create_task(self._keep_reading()))

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        """Stop calling `on_change`. Watching ends with the last subscriber."""
        if on_change in self._subscribers:
            self._subscribers.remove(on_change)
        if not self._subscribers:
            self._cancel()

    @property
    def watching(self) -> bool:
        """True while the state is watched."""
        return bool(self._tasks)

    async def read(self) -> None:
        """Read the state now and notify the subscribers. Raises WorkbenchError."""
        async with self._reading:
            started_at = time.monotonic()
            value = await in_thread(read_state, self._session, self._base_url)
            self.read_at = started_at
            changed = value != self.value or self.problem is not None
            self.value, self.problem = value, None
        if changed:
            self.cursor += 1
        self._notify()

    async def close(self) -> None:
        """Stop watching permanently; later subscribers don't restart it."""
        self._closed = True
        self._subscribers.clear()
        tasks = self._tasks
        self._cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = ()

    def _notify(self) -> None:
        for on_change in tuple(self._subscribers):
            on_change()

    async def _follow(self) -> None:
        try:
            async for _ in self._session.changes():
                self._changed.set()
        except (OSError, RuntimeError) as err:
            # For example, no inotify watches are left. The tick also finds changes, but later.
            self._log.warning(
                "Workbench: changes of the data folder can't be followed (%s); looking every %g s.", err, TICK
            )

    async def _keep_reading(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self.read()
            except WorkbenchError as err:
                self.problem = str(err)
                self._notify()
            except Exception:  # noqa: BLE001  A reading that fails must not end the watching.
                self._log.exception("Workbench: the state could not be read")
                self.problem = "The state could not be read. The log of the Jupyter server says why."
                self._notify()
            await asyncio.sleep(GAP)
            # Not wait_for: in Python 3.11 it loses a cancellation that coincides with a change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._changed.wait()
