"""Messages of one page: state, views and figures are sent to it, merged while the page is slow.

To the page: `state`, `patches` (of a figure or a view), `gone`, `error`. From the page: `watch`, `unwatch`, `range`,
`choose` (choices and input that views are made from, by name; null removes one). See server/rest-api.yml. No tornado
here: the WebSocket of the server and the widget of a notebook are thin wrappers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from workbench.errors import BadInputError, WorkbenchError, quoted
from workbench.views.answers import in_brief
from workbench.views.bodies import check_range, check_theme, pick
from workbench.views.page import OnScreen, ViewWatch

if TYPE_CHECKING:
    from workbench.views.watching import Watching

GAP = 0.005
"""Seconds between two rounds of sending state and views: changes in between are merged."""

FIGURES_GAP = 0.05
"""Seconds between two rounds of sending figures: a page that draws all the time doesn't respond to clicks."""

MOST_WATCHES = 64
MOST_WISHES = 200
MOST_CHOICES = 2000
"""Limits of one page."""

_WATCHED: dict[str, type] = {"cluster": str, "run": str, "view": str, "comparison": str}


class Screen:
    """The connection to one page, from its creation until `close`, both in the event loop of `watching`.

    Parameters
    ----------
    send
        Function that sends one message, and returns when the page can take the next: a slow page builds up no queue.
    """

    def __init__(self, watching: Watching, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._watching = watching
        self._send = send
        self._watches: dict[str, OnScreen] = {}
        self._choices: dict[str, Any] = {}
        self._notes: list[dict[str, Any]] = []
        self._wishes: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST_WISHES)
        self._something = asyncio.Event()
        self._figures = asyncio.Event()
        self._sent_cursor: int | None = None
        self._sent_problem: str | None = None
        watching.state.subscribe(self._something.set)
        watching.listen(self.tell)
        self._tasks = [asyncio.create_task(each) for each in (self._begin(), self._keep_listening())]

    def receive(self, message: dict[str, Any]) -> None:
        """Queue a request of the page."""
        self._watching.touched = time.monotonic()
        try:
            self._wishes.put_nowait(message)
        except asyncio.QueueFull:
            self.tell("This page asks for more than can be done; the last wish was dropped.")

    def tell(self, message: str) -> None:
        """Send an error message to the page."""
        self._note({"type": "error", "message": message})

    def close(self) -> None:
        """Stop all work for this page."""
        for task in self._tasks:
            task.cancel()
        self._watching.state.unsubscribe(self._something.set)
        self._watching.unlisten(self.tell)
        for name in tuple(self._watches):
            self._unwatch(name)

    def _note(self, note: dict[str, Any]) -> None:
        self._notes.append(note)
        self._something.set()

    async def _begin(self) -> None:
        """Send the state, newly read; then send changes."""
        is_read = True
        try:
            await self._watching.state.read()
        except WorkbenchError as err:
            self.tell(str(err))
            is_read = False
        await self._send_state(is_read)
        await asyncio.gather(
            self._keep_sending(self._something, self._send_all, GAP),
            self._keep_sending(self._figures, self._send_figures, FIGURES_GAP),
        )

    async def _keep_sending(self, changed: asyncio.Event, send: Callable[[], Awaitable[None]], gap: float) -> None:
        while True:
            await changed.wait()
            changed.clear()
            await send()
            await asyncio.sleep(gap)

    async def _send_all(self) -> None:
        notes, self._notes = self._notes, []
        for note in notes:
            await self._send(note)
        await self._send_state(True)
        await self._send_watched(lambda watch: isinstance(watch, ViewWatch))

    async def _send_figures(self) -> None:
        await self._send_watched(lambda watch: not isinstance(watch, ViewWatch))

    async def _send_watched(self, is_meant: Callable[[OnScreen], bool]) -> None:
        for name, watch in tuple(self._watches.items()):
            if not is_meant(watch):
                continue
            changed = await watch.take()
            if changed is not None and self._watches.get(name) is watch:
                await self._send({"type": "patches", "watch": name, **changed})
            if watch.gone is not None and not self._watching.restarting and self._watches.get(name) is watch:
                del self._watches[name]
                await self._send({"type": "gone", "watch": name, "message": watch.gone})

    async def _send_state(self, is_read: bool) -> None:
        state = self._watching.state
        if state.problem != self._sent_problem:
            self._sent_problem = state.problem
            if state.problem is not None:
                await self._send({"type": "error", "message": state.problem})
        if is_read and state.value and state.cursor != self._sent_cursor:
            self._sent_cursor = state.cursor
            await self._send({"type": "state", "cursor": state.cursor, **in_brief(state.value)})

    async def _keep_listening(self) -> None:
        while True:
            wish = await self._wishes.get()
            try:
                await self._grant(wish)
            except WorkbenchError as err:
                self.tell(str(err))
            except Exception:  # One bad request must not end the connection.
                self._watching.log.exception("Workbench: a message of a page failed")
                self.tell("Something went wrong. The log of the Jupyter server or kernel says more.")

    async def _grant(self, wish: dict[str, Any]) -> None:
        wish = dict(wish)
        match wish.pop("type", None):
            case "watch":
                await self._watch(**pick(wish, {"watch": str}, _WATCHED | {"theme": str}))
            case "unwatch":
                self._unwatch(pick(wish, {"watch": str})["watch"])
            case "range":
                self._known(wish.pop("watch", None)).show_range(*check_range(wish))
            case "choose":
                self._choose(pick(wish, {"choices": dict})["choices"])
            case other:
                raise BadInputError(f"Unknown type {quoted(other)}. Send one of: watch, unwatch, range, choose.")

    def _choose(self, changed: dict[str, Any]) -> None:
        kept = {name: value for name, value in {**self._choices, **changed}.items() if value is not None}
        if len(kept) > MOST_CHOICES:
            raise BadInputError(f"This page has chosen {MOST_CHOICES} things already. Load it again.")
        self._choices = kept
        for watch in self._watches.values():
            watch.choose(kept)

    async def _watch(self, watch: str, theme: str = "light", **watched: str) -> None:
        if len(watched) != 1:
            raise BadInputError("To watch, name one cluster, run, comparison or view.")
        check_theme(theme)
        self._unwatch(watch)
        if len(self._watches) >= MOST_WATCHES:
            raise BadInputError(f"This page already watches {MOST_WATCHES} figures and views. Close some.")
        ((kind, name),) = watched.items()
        try:
            self._watches[watch] = await self._found(kind, name, theme)
            self._watches[watch].choose(self._choices)
        except WorkbenchError as err:
            self._note({"type": "gone", "watch": watch, "message": str(err)})
        self._something.set()
        self._figures.set()

    async def _found(self, kind: str, name: str, theme: str) -> OnScreen:
        watching = self._watching
        if kind == "view":
            return watching.views.watch(name, self._something.set, self._choices)
        return await watching.watch(kind, name, theme, self._figures.set)

    def _unwatch(self, watch: str) -> None:
        left = self._watches.pop(watch, None)
        if left is not None:
            left.leave()

    def _known(self, watch: object) -> OnScreen:
        found = self._watches.get(watch) if isinstance(watch, str) else None
        if found is None:
            raise BadInputError(f"Nothing is watched as {quoted(watch)}. Send a message of the type watch first.")
        return found
