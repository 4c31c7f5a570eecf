"""The WebSocket of a page. Its messages are documented in views/screen.py and rest-api.yml."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from workbench.errors import WorkbenchError
from workbench.server.handlers import Refusing
from workbench.views.answers import to_json
from workbench.views.bodies import parse_object
from workbench.views.screen import Screen

if TYPE_CHECKING:
    from workbench.views.desk import Desk


COMPRESSION = 3
_TRY_AGAIN = 1013


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
        desk: Desk = self.settings["workbench_desk"]
        try:
            watching = await desk.watching()
        except WorkbenchError:
            # The page then polls with POST, whose answer has the reason.
            self.close(_TRY_AGAIN)
            return
        desk.warm_up()
        self._screen = Screen(watching, self._send)

    def on_message(self, message: str | bytes) -> None:
        """Handle a request of the page."""
        if self._screen is None:
            return
        try:
            self._screen.receive(parse_object(message.encode() if isinstance(message, str) else message))
        except WorkbenchError as err:
            self._screen.tell(str(err))

    def on_close(self) -> None:
        """End everything that runs for this page."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        super().on_close()

    async def _send(self, message: dict[str, Any]) -> None:
        # Returns when the kernel has taken the bytes. On a closed connection, on_close is about to be called.
        with contextlib.suppress(WebSocketClosedError):
            await self.write_message(to_json(message))
