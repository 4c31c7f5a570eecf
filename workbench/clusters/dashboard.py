"""Dask's own dashboard: ours at a socket that only its owner may open, loaded when it is first looked at; others'."""

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

from workbench.clusters.asking import short

_SOCKET = "dashboard.sock"
_PATIENCE = 2.0  # seconds for a dashboard elsewhere to say whose it is


def hide(scheduler: Scheduler, folder: Path) -> str | None:
    """Take the scheduler's pages from their port, which any user of this machine can ask, to a socket in `folder`.

    Their address, 'unix:<path>'; None where there can be no socket, and then there are no pages.
    """
    scheduler.http_server.stop()
    # What it says of itself to clients: nobody listens there any more.
    scheduler.http_server.port = 0
    try:
        with short(folder) as path:
            listening = bind_unix_socket(f"{path}/{_SOCKET}", mode=0o600)
    except (OSError, ValueError) as err:
        logging.getLogger("workbench.host").warning("No dashboard: a socket in %s is not possible (%s)", folder, err)
        return None
    HTTPServer(scheduler.http_application).add_socket(listening)
    return f"unix:{folder / _SOCKET}"


def connect_when_asked(scheduler: Scheduler) -> None:
    """Let the scheduler's HTTP server load the dashboard on the first request for one of its pages.

    Most clusters' dashboards are never opened, and importing it delays a start by 0.4 s.
    """
    scheduler.http_application.add_application(
        Application([(r".*", _Loader, {"scheduler": scheduler})]),
    )


async def elsewhere(host: str, identity: Mapping[str, Any]) -> str | None:
    """Return the address of the dashboard of a scheduler on `host`, 'http://host:8787', None where none can be seen.

    At the same port behind a tunnel there may be that of another, or no dashboard at all: it is asked whose it is.
    """
    address = f"http://{host}:{identity.get('services', {}).get('dashboard')}"
    fetch = AsyncHTTPClient().fetch
    try:
        answer = await fetch(f"{address}/json/identity.json", request_timeout=_PATIENCE)
        if json.loads(answer.body)["id"] != identity["id"]:
            return None
        # With --no-dashboard there are other pages at that port. A head, for the page itself would be made.
        page = await fetch(f"{address}/status", method="HEAD", request_timeout=_PATIENCE, raise_error=False)
        return None if page.code == 404 else address
    except (HTTPError, OSError, ValueError, LookupError, TypeError):
        return None


class _Loader(RequestHandler):
    """Answers any page that isn't there yet: loads the dashboard, then sends the browser to the page again."""

    def initialize(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    async def get(self) -> None:
        application = self.scheduler.http_application
        # In a thread, so that tasks are scheduled meanwhile.
        await asyncio.to_thread(importlib.import_module, "distributed.dashboard.scheduler")
        if self.application in application.applications:
            application.applications.remove(self.application)
            importlib.import_module("distributed.dashboard.scheduler").connect(
                application, self.scheduler.http_server, self.scheduler, prefix="/"
            )
        # Relative, for the browser may know this page by a proxy's address; with './', or 'x:y' were another server.
        self.redirect("./" + (self.request.uri or "").rsplit("/", 1)[-1])
