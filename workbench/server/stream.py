"""The WebSocket of a page: it pushes state and watched figures, and merges what the page is slow to take.

From the server: `state`, `patches`, `gone`, `error`. From the page: `watch`, `unwatch`, `range`. See rest-api.yml.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from workbench.errors import BadInputError, WorkbenchError
from workbench.server.handlers import AUTH_RESOURCE, check_range, check_theme, refusal
from workbench.views.answers import in_brief, to_json
from workbench.views.bodies import parse_object, pick

if TYPE_CHECKING:
    from workbench.server.app import Shared
    from workbench.views.comparing import ComparisonWatch
    from workbench.views.page import FragmentWatch
    from workbench.views.watching import Watch, Watching

GAP = 0.05
"""Seconds between two rounds of sending: what happens meanwhile travels together."""

MOST_WATCHES = 64
MOST_WISHES = 200
"""What one page may ask for at a time."""

_WATCHED: dict[str, type] = {"cluster": str, "run": str, "fragment": str, "comparison": str}


class Stream(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One page's live connection."""

    auth_resource = AUTH_RESOURCE
    _tasks: tuple[asyncio.Task[None], ...] = ()
    _watching: Watching | None = None

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the connection."""
        shared: Shared = self.settings["workbench_shared"]
        try:
            self._watching = await shared.watching()
        except WorkbenchError as err:
            raise HTTPError(503, str(err)) from err
        await shared.keep_warm()
        shared.warm_up()
        await super().get(*args, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with one sentence what is refused before the connection is open."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else None
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        if status_code == 405:
            self.set_header("Allow", "GET")
        self.finish(to_json({"message": refusal(self.request.method, status_code, error, ["GET"])}))

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Begin to send and to listen."""
        super().open(*args, **kwargs)
        assert self._watching is not None
        self._watches: dict[str, Watch | FragmentWatch | ComparisonWatch] = {}
        self._notes: list[dict[str, Any]] = []
        self._wishes: asyncio.Queue[str | bytes] = asyncio.Queue(MOST_WISHES)
        self._something = asyncio.Event()
        self._sent_cursor: int | None = None
        self._sent_problem: str | None = None
        self._watching.state.subscribe(self._something.set)
        self._watching.listen(self._tell)
        self._tasks = (asyncio.create_task(self._keep_sending()), asyncio.create_task(self._keep_listening()))

    def on_message(self, message: str | bytes) -> None:
        """Take in what the page asks for."""
        try:
            self._wishes.put_nowait(message)
        except asyncio.QueueFull:
            self._tell("This page asks for more than can be done; the last wish was dropped.")

    def on_close(self) -> None:
        """End all that was done for this page."""
        for task in self._tasks:
            task.cancel()
        if self._tasks and self._watching is not None:
            self._watching.state.unsubscribe(self._something.set)
            self._watching.unlisten(self._tell)
            for watch in self._watches.values():
                watch.leave()
        self._tasks = ()
        super().on_close()

    def _tell(self, message: str) -> None:
        self._notes.append({"type": "error", "message": message})
        self._something.set()

    async def _keep_sending(self) -> None:
        with contextlib.suppress(WebSocketClosedError):
            await self._send_state(await self._read_state())
            while True:
                await self._something.wait()
                self._something.clear()
                await self._send_all()
                await asyncio.sleep(GAP)

    async def _read_state(self) -> bool:
        """Read the state afresh for a page that has just come; false when that isn't possible."""
        assert self._watching is not None
        try:
            await self._watching.state.read()
        except WorkbenchError as err:
            self._tell(str(err))
            return False
        return True

    async def _send_all(self) -> None:
        notes, self._notes = self._notes, []
        for note in notes:
            await self._send(note)
        await self._send_state(True)
        for name, watch in tuple(self._watches.items()):
            changed = await watch.take()
            if changed is not None and self._watches.get(name) is watch:
                await self._send({"type": "patches", "watch": name, **changed})
            if watch.gone is not None and self._watches.pop(name, None) is not None:
                await self._send({"type": "gone", "watch": name, "message": watch.gone})

    async def _send_state(self, is_read: bool) -> None:
        assert self._watching is not None
        state = self._watching.state
        if state.problem != self._sent_problem:
            self._sent_problem = state.problem
            if state.problem is not None:
                await self._send({"type": "error", "message": state.problem})
        if is_read and state.value and state.cursor != self._sent_cursor:
            self._sent_cursor = state.cursor
            await self._send({"type": "state", "cursor": state.cursor, **in_brief(state.value)})

    async def _send(self, message: dict[str, Any]) -> None:
        # Returns when the kernel has taken the bytes: a slow page holds this up, and nothing queues.
        await self.write_message(to_json(message))

    async def _keep_listening(self) -> None:
        while True:
            message = await self._wishes.get()
            try:
                await self._grant(message)
            except WorkbenchError as err:
                self._tell(str(err))
            except Exception:  # One bad wish must not end the connection.
                self.log.exception("Workbench: a message of a page failed")
                self._tell("Something went wrong in the server. The log of the Jupyter server says more.")

    async def _grant(self, message: str | bytes) -> None:
        wish = parse_object(message.encode() if isinstance(message, str) else message)
        match wish.pop("type", None):
            case "watch":
                await self._watch(**pick(wish, {"watch": str}, _WATCHED | {"theme": str}))
            case "unwatch":
                self._unwatch(pick(wish, {"watch": str})["watch"])
            case "range":
                self._known(wish.pop("watch", None)).show_range(*check_range(wish))
            case other:
                raise BadInputError(f"Unknown type {other!r:.40}. Send one of: watch, unwatch, range.")

    async def _watch(self, watch: str, theme: str = "light", **watched: str) -> None:
        assert self._watching is not None
        if len(watched) != 1:
            raise BadInputError("To watch, name one cluster, run, comparison or fragment.")
        check_theme(theme)
        self._unwatch(watch)
        if len(self._watches) >= MOST_WATCHES:
            raise BadInputError(f"This page already watches {MOST_WATCHES} figures and views. Close some.")
        try:
            self._watches[watch] = await self._begin(theme, **watched)
        except WorkbenchError as err:
            self._notes.append({"type": "gone", "watch": watch, "message": str(err)})
        self._something.set()

    async def _begin(
        self,
        theme: str,
        *,
        cluster: str | None = None,
        run: str | None = None,
        comparison: str | None = None,
        fragment: str | None = None,
    ) -> Watch | FragmentWatch | ComparisonWatch:
        assert self._watching is not None
        if cluster is not None:
            return await self._watching.watch_cluster(cluster, theme, self._something.set)
        if run is not None:
            return await self._watching.watch_run(run, theme, self._something.set)
        if comparison is not None:
            return await self._watching.watch_comparison(comparison, theme, self._something.set)
        return self._watching.fragments.watch(fragment or "", self._something.set)

    def _unwatch(self, watch: str) -> None:
        left = self._watches.pop(watch, None)
        if left is not None:
            left.leave()

    def _known(self, watch: object) -> Watch | FragmentWatch | ComparisonWatch:
        found = self._watches.get(watch) if isinstance(watch, str) else None
        if found is None:
            raise BadInputError(f"Nothing is watched as {watch!r:.40}. Send a message of the type watch first.")
        return found
