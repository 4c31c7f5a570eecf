"""Content of a view as a page shows it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

from workbench.session import Session
from workbench.views.service import Service


async def html_at(service: Service, view: str, choices: Mapping[str, object] | None = None) -> str:
    """HTML of a view as it is now."""
    html = await (await service.watching()).views.make(view, choices or {})
    # A piece of HTML that was made as text would be read by people.
    doubled = re.search(r"&lt;/?(p|div|span|ul|li|dl|dd|details|button|table|tr|td)\b", html)
    assert doubled is None, html[max(0, doubled.start() - 200) : doubled.end() + 100]
    return html


def html_of(view: str, choices: Mapping[str, object] | None = None) -> str:
    """HTML of a view as it is now, of this person's clusters and runs."""

    async def made() -> str:
        service = Service("/", logging.getLogger(__name__), Session)
        try:
            return await html_at(service, view, choices)
        finally:
            await service.close()

    return asyncio.run(made())
