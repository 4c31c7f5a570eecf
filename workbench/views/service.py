"""Services for all requests: the session, watchers, reading of paths, and running actions. No tornado here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.errors import FailedError, WorkbenchError
from workbench.threads import in_thread, load

if TYPE_CHECKING:
    from workbench.session import Session
    from workbench.views.path_process import Looking
    from workbench.views.watching import Watching

T = TypeVar("T")

WARM_AFTER = 3.0
"""Seconds of waiting before the imports for records, since the first page is drawn meanwhile."""

UNTOUCHED = 2.0
"""Seconds without a key or a click before the next of these imports, which delay responses."""

_LOOK = 0.5
"""Seconds between two checks for input."""


def _make_session() -> Session:
    from workbench.session import Session
    from workbench.views.page import known

    # Imported in this thread, not in the event loop that all of Jupyter shares.
    known()
    return Session()


class Service:
    """Services shared by all requests of a process. Each is created on first use, in the event loop of its caller."""

    def __init__(
        self,
        base_url: str,
        log: Any,
        make_session: Callable[[], Session] = _make_session,
        make_watching: Callable[[Session, str, Any], Watching] | None = None,
        make_looking: Callable[[Session], Looking] | None = None,
    ) -> None:
        self.base_url = base_url
        self.log = log
        self._make_session = make_session
        self._make_watching = make_watching
        self._make_looking = make_looking
        self._session: Session | None = None
        self._watching: Watching | None = None
        self._looking: Looking | None = None
        self._lock = asyncio.Lock()
        self._actions: set[asyncio.Task[Any]] = set()
        self._warm = False
        self._closed = False

    async def session(self) -> Session:
        """Return the session, created by the first call in a thread, because that imports Dask."""
        async with self._lock:
            if self._session is None:
                self._session = await in_thread(self._make_session)
        return self._session

    async def ask(self, function: Callable[[Session], T]) -> T:
        """Return the result of `function(session)`, in a thread: it reads disks, processes and devices."""
        return await in_thread(function, await self.session())

    async def look(self, method: str | None, *args: Any, **kwargs: Any) -> Any:
        """Return the result of a session's method that opens a user's paths; cancellation ends its process.

        With None, only start the process that later calls need.
        """
        session = await self.session()
        if self._looking is None:
            from workbench.views.path_process import Looking

            self._looking = self._make_looking(session) if self._make_looking else Looking()
        return await self._looking.ask(method, *args, **kwargs) if method else self._looking.begin()

    async def watching(self) -> Watching:
        """Return the `Watching` that all pages and sockets share.

        Raises FailedError when the server is stopping: a watch that started then would never end, and its thread would
        keep the server from ending.
        """
        session = await self.session()
        if self._closed:
            raise FailedError("The Jupyter server is stopping.")
        if self._watching is None:
            from workbench.views.watching import Watching

            self._watching = (self._make_watching or Watching)(session, self.base_url, self.log)
            self._watching.views.look = self.look
        return self._watching

    def warm_up(self) -> None:
        """Start the imports for the first page, then those for a record."""
        if not self._warm:
            self._warm = True
            self._go(self._warm_up())

    async def _warm_up(self) -> None:
        await in_thread(load, "workbench.workloads.catalogue")
        await asyncio.sleep(WARM_AFTER)
        await self._untouched()
        await in_thread(load, "workbench.views.drawing")
        from workbench.views.drawing import WARM_UP

        for load_part in WARM_UP:
            await self._untouched()
            await in_thread(load_part)

    async def _untouched(self) -> None:
        """Wait until the user neither types nor clicks."""
        while self._watching is not None and time.monotonic() < self._watching.touched + UNTOUCHED:
            await asyncio.sleep(_LOOK)

    async def finish(self, action: Coroutine[Any, Any, T]) -> T:
        """Return the result of an action. On cancellation it continues, and reports errors to the watchers."""
        task = self._go(action)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._report_error)
            raise

    def _go(self, action: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(action)
        self._actions.add(task)
        task.add_done_callback(self._actions.discard)
        return task

    def _report_error(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, WorkbenchError):
            self.log.error("Workbench: an action failed", exc_info=error)
        if self._watching is not None:
            self._watching.report(str(error) or type(error).__name__)

    async def close(self) -> None:
        """Cancel all actions here, and start no more. Clusters and runs belong to the user and keep running."""
        self._closed = True
        tasks = tuple(self._actions)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._looking is not None:
            self._looking.close()
        if self._watching is not None:
            await self._watching.close()
            self._watching = None
