"""The extension that Jupyter loads: it names the addresses and holds what the handlers share.

Loading it must cost Jupyter's start next to nothing: Dask, pydantic and the session are imported by the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp

from workbench.errors import FailedError, WorkbenchError
from workbench.server.handlers import addresses
from workbench.threads import in_thread

if TYPE_CHECKING:
    from workbench.session import Session
    from workbench.views.looking import Looking
    from workbench.views.watching import Watching

WARM_AFTER = 3.0
"""Seconds after the first page came before what opening a record needs is loaded: Lab itself is being opened then."""

CLOSING = 5.0
"""Seconds that ending what watches may take of the server's own end."""

QUICK = 0.5
"""Seconds that an action may take before it is answered with 202 and goes on by itself: most failures show sooner."""


class WorkbenchApp(ExtensionApp):
    """Workbench inside a Jupyter server. Clusters and runs outlive it; only what watches them ends with it."""

    name = "workbench"
    description = "Pick hardware, start the Dask cluster that matches it, run a workload, watch it live."

    def initialize_settings(self) -> None:
        """Put what the handlers share into the settings of the web application."""
        self.settings["workbench_shared"] = Shared(
            self.settings["base_url"],
            self.log,
            make_session=self.settings.get("workbench_session", _make_session),
            make_watching=self.settings.get("workbench_watching", _make_watching),
            make_looking=self.settings.get("workbench_looking", _make_looking),
        )

    def initialize_handlers(self) -> None:
        """Name the addresses."""
        self.handlers.extend(addresses())

    async def stop_extension(self) -> None:
        """End what watches, and wait for nobody; clusters and runs belong to the person and go on."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settings["workbench_shared"].close(), CLOSING)


def _make_looking(_: Session) -> Looking:
    from workbench.views.looking import Looking

    return Looking()


class Shared:
    """What all requests of one server share: the session, the watchers, and actions that are still under way."""

    def __init__(
        self,
        base_url: str,
        log: Any,
        make_session: Callable[[], Session],
        make_watching: Callable[[Session, str, Any], Watching],
        make_looking: Callable[[Session], Looking] = _make_looking,
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
        self._warming: asyncio.Task[None] | None = None
        self._closed = False

    async def session(self) -> Session:
        """Return the session, made by the first who asks: in a thread, because that imports Dask."""
        async with self._lock:
            if self._session is None:
                self._session = await in_thread(self._make_session)
        return self._session

    async def watching(self) -> Watching:
        """Return what watches clusters and runs for all pages and sockets.

        Raises FailedError when the server is stopping: it still answers then, and a watch that began would never end,
        nor would the server with its thread.
        """
        session = await self.session()
        if self._closed:
            raise FailedError("The Jupyter server is stopping.")
        if self._watching is None:
            self._watching = self._make_watching(session, self.base_url, self.log)
        return self._watching

    def looking(self, session: Session) -> Looking:
        """Return what opens paths of a person's, in processes of their own."""
        if self._looking is None:
            self._looking = self._make_looking(session)
        return self._looking

    async def keep_warm(self) -> None:
        """Have the next cluster start sooner, now that somebody looks."""
        session = await self.session()
        task = asyncio.ensure_future(in_thread(session.keep_warm))
        self._actions.add(task)
        task.add_done_callback(self._actions.discard)

    def warm_up(self) -> None:
        """Have the first record open as quickly as the others: load what that needs, once Lab is there."""
        if self._warming is None:
            self._warming = asyncio.ensure_future(self._warm_up())

    async def _warm_up(self) -> None:
        await asyncio.sleep(WARM_AFTER)
        await in_thread(_warm_up)

    async def begin(self, action: Coroutine[Any, Any, Any]) -> None:
        """Start an action and return: its error when it fails quickly, else it goes on and tells the watchers."""
        task = asyncio.ensure_future(action)
        self._actions.add(task)
        task.add_done_callback(self._actions.discard)
        done, _ = await asyncio.wait({task}, timeout=QUICK)
        if done:
            task.result()
        else:
            task.add_done_callback(self._tell)

    def _tell(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, WorkbenchError):
            self.log.error("Workbench: an action failed", exc_info=error)
        if self._watching is not None:
            self._watching.tell(str(error) or type(error).__name__)

    async def close(self) -> None:
        """Cancel what still runs in this server, and begin nothing more."""
        self._closed = True
        tasks = (*self._actions, *([self._warming] if self._warming is not None else []))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._looking is not None:
            self._looking.close()
        if self._watching is not None:
            await self._watching.close()
            self._watching = None
        if self._session is not None:
            await in_thread(self._session.let_go)


def _warm_up() -> None:
    from workbench.views.drawing import warm_up

    warm_up()


def _make_session() -> Session:
    from workbench.session import Session

    return Session()


def _make_watching(session: Session, base_url: str, log: Any) -> Watching:
    from workbench.views.watching import Watching

    return Watching(session, base_url, log)
