"""Periodic steps of a cluster's owner."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

logger = logging.getLogger("workbench.host")


async def repeat(step: Callable[[], Awaitable[None]], pause: float, sooner: asyncio.Event | None = None) -> NoReturn:
    """Await `step()` until canceled, `pause` seconds after its last end, or as soon as `sooner` is set.

    A failing step is retried: if the task ended, the record would stay as it is and look fine. Its error is logged once
    while it stays the same.
    """
    logged = ""
    while True:
        if sooner is not None:
            sooner.clear()
        try:
            await step()
            logged = ""
        except Exception as err:
            if repr(err) != logged:
                logger.exception("This is tried again every %g s", pause)
            logged = repr(err)
        if sooner is None:
            await asyncio.sleep(pause)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(sooner.wait(), pause)
