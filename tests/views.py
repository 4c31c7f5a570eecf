"""Content of a view as a page shows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from workbench.session import Session
from workbench.views.desk import Desk


async def html_at(desk: Desk, view: str, choices: Mapping[str, object] | None = None) -> str:
    """HTML of a view as it is now."""
    return await (await desk.watching()).views.make(view, choices or {})


def html_of(view: str, choices: Mapping[str, object] | None = None) -> str:
    """HTML of a view as it is now, of this person's clusters and runs."""

    async def made() -> str:
        desk = Desk("/", logging.getLogger(__name__), Session)
        try:
            return await html_at(desk, view, choices)
        finally:
            await desk.close()

    return asyncio.run(made())
