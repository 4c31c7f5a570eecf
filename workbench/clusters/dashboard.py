"""Dask's own dashboard, loaded when somebody first looks at it."""

from __future__ import annotations

import asyncio
import importlib

from distributed.scheduler import Scheduler
from tornado.web import Application, RequestHandler


def connect_when_asked(scheduler: Scheduler) -> None:
    """Let the scheduler's HTTP server load the dashboard on the first request for one of its pages.

    Most clusters' dashboards are never opened, and importing it delays a start by 0.4 s.
    """
    scheduler.http_application.add_application(
        Application([(r".*", _Loader, {"scheduler": scheduler})]),
    )


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
        # Relative, for the browser may know this page by a proxy's address.
        self.redirect((self.request.uri or "").rsplit("/", 1)[-1] or "./")
