"""The one thread in which all is done that is shown in cells.

A cell that computes holds up the main thread of its kernel, and messages of a page may come in yet another. So whatever
is asked for is done here, one thing after the other, while the kernel does something else.
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


def do(act: Callable[..., Any], *arguments: Any) -> None:
    """`soon`, where nobody waits for the outcome: what goes wrong for reasons of ours is written to the log."""

    def look(done: Future[Any]) -> None:
        if not done.cancelled() and done.exception() is not None:
            _log.error("A panel could not do what it was asked for", exc_info=done.exception())

    soon(act, *arguments).add_done_callback(look)
