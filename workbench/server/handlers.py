"""Handlers of pages and files, and the base of all handlers: access and errors.

A WorkbenchError becomes a response with its status and `{"message"}`; any other error is logged and becomes a 500.
"""

from __future__ import annotations

import functools
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError, RequestHandler, authenticated

from workbench.errors import WorkbenchError
from workbench.threads import in_thread
from workbench.views.answers import API, to_json
from workbench.views.files import HTML, read_file
from workbench.views.messages import refused

AUTH_RESOURCE = "workbench"

CUT_OFF = "sandbox allow-scripts allow-downloads; default-src 'unsafe-inline' 'unsafe-eval' data: blob:"
"""Policy that lets a page run its own scripts, isolated from the Jupyter server."""


_OWN_SITES = (None, "none", "same-origin")
"""Allowed values of Sec-Fetch-Site: header absent, an address that was typed, or a page of this server."""


class ForeignSiteError(WorkbenchError):
    """A request by a page of another site, or of another port of this machine."""

    status = 403

    def __init__(self) -> None:
        super().__init__("Another site requested this page. Open it from the Workbench, or type its address.")


class Refusing(RequestHandler):
    """Handler that answers each error with its status and one sentence, and refuses other sites."""

    auth_resource = AUTH_RESOURCE
    SUPPORTED_METHODS: tuple[str, ...] = ("GET",)

    async def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Raise ForeignSiteError for a request by another site, with any method."""
        self.check_site()
        if (prepared := super().prepare(*args, **kwargs)) is not None:
            await prepared

    def check_site(self) -> None:
        """Raise ForeignSiteError if the browser says that the request comes from another site."""
        if self.request.headers.get("Sec-Fetch-Site") not in _OWN_SITES:
            raise ForeignSiteError

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Send a WorkbenchError with its own status."""
        error = _error(kwargs)
        super().send_error(error.status if isinstance(error, WorkbenchError) else status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write the error message as JSON."""
        error = _error(kwargs)
        if status_code == 405:
            self.set_header("Allow", ", ".join(self.SUPPORTED_METHODS))
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        if isinstance(error, WorkbenchError):
            self.finish(to_json(refused(error)))
        else:
            self.finish(to_json({"message": self._refusal(status_code, error)}))

    def _refusal(self, status_code: int, error: BaseException | None) -> str:
        """Return the message for any error but a WorkbenchError: Jupyter's, tornado's, or an unexpected one."""
        if status_code == 405:
            return f"{self.request.method} is not possible here. Possible: {', '.join(self.SUPPORTED_METHODS)}."
        if status_code == 403 and error is not None and not getattr(error, "log_message", None):
            return "Log in to this Jupyter server first."
        if isinstance(error, HTTPError):
            sentence = error.log_message % error.args if error.log_message and error.args else error.log_message
            return sentence or error.reason or "This was refused."
        return f"Something went wrong in the server ({type(error).__name__}). The log of the Jupyter server says more."

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log unexpected errors only; a WorkbenchError is an answer."""
        if not isinstance(value, WorkbenchError):
            super().log_exception(typ, value, tb)


def _error(kwargs: dict[str, Any]) -> BaseException | None:
    return kwargs["exc_info"][1] if "exc_info" in kwargs else None


class Pages(Refusing, APIHandler):
    """Handler of pages and files. GET only reads records, since another site can make a browser send it."""

    @authenticated
    @authorized
    async def get(self, _: str) -> None:
        """Send a page or a file."""
        path = self.request.path.removeprefix(url_path_join(self.base_url, API, "/"))
        file = await read_file(self.settings["workbench_service"], path)
        self.set_header("Cache-Control", "no-store")
        if file.kind == HTML:
            self.set_header("Content-Security-Policy", CUT_OFF)
        if file.name is not None:
            self.set_header("Content-Disposition", f'attachment; filename="{file.name}"')
        self.finish(file.content, set_content_type=file.kind)


class Script(Refusing, APIHandler):
    """Handler of our script, and of BokehJS's files, read from the installed bokeh so that versions match."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        """Send the script, gzipped if the browser accepts that."""
        from workbench.views.scripts import read

        compressed = "gzip" in self.request.headers.get("Accept-Encoding", "")
        content = await in_thread(functools.partial(read, name, compressed=compressed))
        if compressed:
            self.set_header("Content-Encoding", "gzip")
        self.set_header("Vary", "Accept-Encoding")
        # The address includes the version, or a hash.
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        self.finish(content, set_content_type="text/javascript; charset=UTF-8")
