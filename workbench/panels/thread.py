"""The one thread that does all work for cells.

A cell that computes blocks the main thread of its kernel, and messages of a page may arrive in yet another. So all
requests are handled here, one after the other, while the kernel is busy.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_log = logging.getLogger(__name__)


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the panels' thread, which is started on first use."""
    new = asyncio.new_event_loop()
    threading.Thread(target=new.run_forever, name="workbench-panels", daemon=True).start()
    return new


def soon(act: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call `act`, a function or a coroutine function, in the panels' thread."""

    async def call() -> Any:
        outcome = act(*arguments)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return asyncio.run_coroutine_threadsafe(call(), loop())


def do(act: Callable[..., Any], *arguments: Any) -> None:
    """Call `soon` without waiting for the result; log unexpected errors."""

    def look(done: Future[Any]) -> None:
        if not done.cancelled() and done.exception() is not None:
            _log.error("A request of a panel failed", exc_info=done.exception())

    soon(act, *arguments).add_done_callback(look)
