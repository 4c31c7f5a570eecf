"""The WebSocket of a page, which carries all that it shows and does. views/screen.py documents the messages."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from workbench.errors import WorkbenchError
from workbench.server.handlers import Refusing
from workbench.views.actions import READING, perform
from workbench.views.answers import to_json
from workbench.views.messages import parse_object
from workbench.views.screen import Screen

if TYPE_CHECKING:
    from workbench.views.service import Service


COMPRESSION = 3
_TRY_AGAIN = 1013


class ForbiddenError(WorkbenchError):
    """An action of a user who may only read."""

    status = 403

    def __init__(self) -> None:
        super().__init__("You may read this server's pages, and change nothing here. Ask its owner.")


class Stream(Refusing, WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One page's live connection."""

    _screen: Screen | None = None

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the connection, unless the page is of another origin."""
        await super().get(*args, **kwargs)

    def get_compression_options(self) -> dict[str, Any]:
        """Return options that compress messages: columns of figures shrink to a tenth, for a thousandth of a core."""
        return self.settings.get("websocket_compression_options") or {"compression_level": COMPRESSION}

    async def open(self, *args: Any, **kwargs: Any) -> None:
        """Start sending and receiving, after the handshake has checked the origin of the page."""
        super().open(*args, **kwargs)
        service: Service = self.settings["workbench_service"]
        try:
            watching = await service.watching()
        except WorkbenchError as err:
            await self._send({"type": "error", "message": str(err)})
            self.close(_TRY_AGAIN)
            return
        service.warm_up()
        self._screen = Screen(watching, self._send, partial(self._act, service))

    def on_message(self, message: str | bytes) -> None:
        """Handle a request of the page."""
        if self._screen is None:
            return
        try:
            self._screen.receive(parse_object(message))
        except WorkbenchError as err:
            self._screen.report(str(err))

    def on_close(self) -> None:
        """End everything that runs for this page."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        super().on_close()

    async def _act(self, service: Service, name: str, arguments: Mapping[str, Any]) -> Any:
        if name not in READING and not await self._may_write():
            raise ForbiddenError
        return await perform(service, name, arguments)

    async def _may_write(self) -> bool:
        user = self.current_user
        return user is not None and await ensure_async(
            self.authorizer.is_authorized(self, user, "write", self.auth_resource)
        )

    async def _send(self, message: dict[str, Any]) -> None:
        # Returns when the kernel has taken the bytes. On a closed connection, on_close is about to be called.
        with contextlib.suppress(WebSocketClosedError):
            await self.write_message(to_json(message))
