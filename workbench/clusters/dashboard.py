"""Dask's own dashboard: ours at a socket that only its owner may open, loaded on first use; those of others."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed.scheduler import Scheduler
from tornado.httpclient import AsyncHTTPClient, HTTPError
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from tornado.web import Application, RequestHandler

from workbench.clusters.requests import short

_SOCKET = "dashboard.sock"
_PATIENCE = 2.0  # seconds for a remote dashboard to identify its scheduler


def hide(scheduler: Scheduler, folder: Path) -> str | None:
    """Move the scheduler's pages from their port, which any user of this machine can open, to a socket in `folder`.

    Return their address, 'unix:<path>'; None if there can be no socket, and then there are no pages.
    """
    scheduler.http_server.stop()
    # The scheduler reports this port to clients, and nothing listens there any more.
    scheduler.http_server.port = 0
    try:
        with short(folder) as path:
            listening = bind_unix_socket(f"{path}/{_SOCKET}", mode=0o600)
    except (OSError, ValueError) as err:
        logging.getLogger("workbench.host").warning("No dashboard: a socket in %s is not possible (%s)", folder, err)
        return None
    HTTPServer(scheduler.http_application).add_socket(listening)
    return f"unix:{folder / _SOCKET}"


def connect_on_request(scheduler: Scheduler) -> None:
    """Let the scheduler's HTTP server load the dashboard on the first request for one of its pages.

    Most dashboards are never opened, and importing Dask's takes 0.4 s.
    """
    scheduler.http_application.add_application(
        Application([(r".*", _Loader, {"scheduler": scheduler})]),
    )


async def elsewhere(host: str, identity: Mapping[str, Any]) -> str | None:
    """Return the address of the dashboard of a scheduler on `host`, 'http://host:8787'; None if it can't be reached.

    Behind a tunnel, the same port may have another scheduler's dashboard or none: ask it for its scheduler's id.
    """
    address = f"http://{host}:{identity.get('services', {}).get('dashboard')}"
    fetch = AsyncHTTPClient().fetch
    try:
        answer = await fetch(f"{address}/json/identity.json", request_timeout=_PATIENCE)
        if json.loads(answer.body)["id"] != identity["id"]:
            return None
        # With --no-dashboard that port has other pages. Request the head only, to avoid rendering the page.
        page = await fetch(f"{address}/status", method="HEAD", request_timeout=_PATIENCE, raise_error=False)
        return None if page.code == 404 else address
    except (HTTPError, OSError, ValueError, LookupError, TypeError):
        return None


class _Loader(RequestHandler):
    """Handler of all pages before the dashboard is loaded: loads it, then redirects the browser to the same page."""

    def initialize(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    async def get(self) -> None:
        application = self.scheduler.http_application
        # In a thread, so that the scheduler keeps working.
        await asyncio.to_thread(importlib.import_module, "distributed.dashboard.scheduler")
        if self.application in application.applications:
            application.applications.remove(self.application)
            importlib.import_module("distributed.dashboard.scheduler").connect(
                application, self.scheduler.http_server, self.scheduler, prefix="/"
            )
        # Relative, since the browser may use a proxy's address; with './', or 'x:y' would be read as another server.
        self.redirect("./" + (self.request.uri or "").rsplit("/", 1)[-1])
