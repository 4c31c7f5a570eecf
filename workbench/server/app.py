"""The extension that Jupyter loads: it registers the addresses and creates the `Service` that answers them.

Loading it must not slow Jupyter's start: Dask, pydantic and the session are imported by the first request.
"""

from __future__ import annotations

import asyncio
import contextlib

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from tornado.web import RequestHandler

from workbench.server.handlers import Pages, Script
from workbench.views.answers import API
from workbench.views.service import Service

CLOSING = 5.0
"""Limit in seconds for closing all watchers when the server stops."""


class WorkbenchApp(ExtensionApp):
    """Workbench inside a Jupyter server. Clusters and runs outlive it; only their watchers end with it."""

    name = "workbench"
    description = "Pick hardware, start the Dask cluster that matches it, run a workload, watch it live."

    def initialize_settings(self) -> None:
        """Add the `Service` to the settings of the web application."""
        makers = {f"make_{part}": self.settings.get(f"workbench_{part}") for part in ("session", "watching", "looking")}
        options = {name: make for name, make in makers.items() if make is not None}
        self.settings["workbench_service"] = Service(self.settings["base_url"], self.log, **options)

    def initialize_handlers(self) -> None:
        """Register the addresses."""
        self.handlers.extend(addresses())

    async def stop_extension(self) -> None:
        """Close all watchers within the time limit. Clusters and runs belong to the user and keep running."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settings["workbench_service"].close(), CLOSING)


def addresses() -> list[tuple[str, type[RequestHandler]]]:
    """Return addresses with their handlers, in order of precedence; Jupyter adds its base URL."""
    from workbench.server.dashboard import Dashboard, Sandboxed
    from workbench.server.stream import Stream

    name = r"([^/]+)"
    dashboards = {f"dashboard/{name}(/.*|)": Dashboard, f"dask/{name}(/.*|)": Sandboxed}
    below = {f"scripts/{name}": Script, "stream": Stream, **dashboards, "(.*)": Pages}
    return [(url_path_join(API, path), handler) for path, handler in below.items()]
