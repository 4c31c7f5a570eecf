"""Content of a view as a page shows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from urllib.parse import quote

from workbench.session import Session
from workbench.views.desk import Desk
from workbench.views.requests import answer


def html_of(view: str, choices: Mapping[str, object] | None = None) -> str:
    """HTML of a view as it is now, of this person's clusters and runs."""

    async def made() -> str:
        desk = Desk("/", logging.getLogger(__name__), Session)
        try:
            return str((await answer(desk, "POST", f"views/{quote(view)}", {"choices": choices or {}})).value["html"])
        finally:
            await desk.close()

    return asyncio.run(made())
