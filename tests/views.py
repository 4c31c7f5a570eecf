"""What a page is shown."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from workbench.session import Session
from workbench.views.desk import Desk
from workbench.views.requests import answer


def html_of(view: str, choices: Mapping[str, object] | None = None) -> str:
    """HTML of a view as it is now, of this person's clusters and runs."""
    query = urlencode({"choices": json.dumps(choices or {})})

    async def made() -> str:
        desk = Desk("/", logging.getLogger(__name__), Session)
        try:
            return str((await answer(desk, "GET", f"views/{quote(view)}?{query}")).value["html"])
        finally:
            await desk.close()

    return asyncio.run(made())
