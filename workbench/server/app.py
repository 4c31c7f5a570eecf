"""The extension that Jupyter loads: it names the addresses and holds the desk at which they ask.

Loading it must cost Jupyter's start next to nothing: Dask, pydantic and the session are imported by the first request.
"""

from __future__ import annotations

import asyncio
import contextlib

from jupyter_server.extension.application import ExtensionApp

from workbench.server.handlers import addresses
from workbench.views.desk import Desk

CLOSING = 5.0
"""Seconds that ending what watches may take of the server's own end."""


class WorkbenchApp(ExtensionApp):
    """Workbench inside a Jupyter server. Clusters and runs outlive it; only what watches them ends with it."""

    name = "workbench"
    description = "Pick hardware, start the Dask cluster that matches it, run a workload, watch it live."

    def initialize_settings(self) -> None:
        """Put the desk into the settings of the web application."""
        given = {f"make_{part}": self.settings.get(f"workbench_{part}") for part in ("session", "watching", "looking")}
        made_by = {name: make for name, make in given.items() if make is not None}
        self.settings["workbench_desk"] = Desk(self.settings["base_url"], self.log, **made_by)

    def initialize_handlers(self) -> None:
        """Name the addresses."""
        self.handlers.extend(addresses())

    async def stop_extension(self) -> None:
        """End what watches, and wait for nobody; clusters and runs belong to the person and go on."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settings["workbench_desk"].close(), CLOSING)
