"""Messages of one page: state, views and figures are sent to it, merged while the page is slow.

To the page: `state`, `patches` (of a figure or a view), `gone`, `error`, and for each action an `answer`: its `id` with
a `value`, or with a `message` and perhaps the `parameter` that it is about. From the page: `watch`, `unwatch`, `range`,
`choose` (choices and input that views are made from, by name; null removes one), and `action` with an `id`, a `name`
from views/actions.py and its `arguments`. No tornado here: the WebSocket of the server and the widget of a notebook are
thin wrappers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import BadInputError, WorkbenchError, printable, quoted
from workbench.views.answers import in_brief
from workbench.views.messages import Theme, check, refused
from workbench.views.page import OnScreen, ViewWatch

if TYPE_CHECKING:
    from workbench.views.watching import Watching

GAP = 0.005
"""Seconds between two rounds of sending state and views: changes in between are merged."""

FIGURES_GAP = 0.05
"""Seconds between two rounds of sending figures: a page that draws all the time doesn't respond to clicks."""

MOST_WATCHES = 64
MOST_MESSAGES = 200
MOST_CHOICES = 2000
MOST_ACTIONS = 32
"""Limits of one page."""

_FAILED = "Something went wrong. The log of the Jupyter server or kernel says more."

_TYPES = ("watch", "unwatch", "range", "choose", "action")

Act = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Function that returns the JSON-able result of an action by name and arguments. Raises WorkbenchError."""


class Screen:
    """The connection to one page, from its creation until `close`, both in the event loop of `watching`.

    Parameters
    ----------
    send
        Function that sends one message, and returns when the page can take the next: a slow page builds up no queue.
    act
        Function that performs the page's actions; `close` cancels those still running.
    """

    def __init__(self, watching: Watching, send: Callable[[dict[str, Any]], Awaitable[None]], act: Act) -> None:
        self._watching = watching
        self._send = send
        self._act = act
        self._acting: set[asyncio.Task[None]] = set()
        self._watches: dict[str, OnScreen] = {}
        self._choices: dict[str, Any] = {}
        self._notes: list[dict[str, Any]] = []
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST_MESSAGES)
        self._something = asyncio.Event()
        self._figures = asyncio.Event()
        self._sent_cursor: int | None = None
        self._sent_problem: str | None = None
        watching.state.subscribe(self._something.set)
        watching.listen(self.report)
        self._tasks = [asyncio.create_task(each) for each in (self._begin(), self._keep_listening())]

    def receive(self, message: dict[str, Any]) -> None:
        """Queue a request of the page."""
        self._watching.touched = time.monotonic()
        try:
            self._inbox.put_nowait(message)
        except asyncio.QueueFull:
            self._refuse(message, "This page sends more than can be done. The last message was dropped.")

    def report(self, message: str) -> None:
        """Send an error message to the page."""
        self._note(_error(message))

    def close(self) -> None:
        """Stop all work for this page."""
        for task in (*self._tasks, *self._acting):
            task.cancel()
        self._watching.state.unsubscribe(self._something.set)
        self._watching.unlisten(self.report)
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
            self.report(str(err))
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

    async def _send_watched(self, is_due: Callable[[OnScreen], bool]) -> None:
        for name, watch in tuple(self._watches.items()):
            if not is_due(watch):
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
            await self._send({"type": "state", **in_brief(state.value)})

    async def _keep_listening(self) -> None:
        while True:
            message = await self._inbox.get()
            try:
                await self._handle(message)
            except WorkbenchError as err:
                self._refuse(message, str(err))
            except Exception:  # One bad request must not end the connection.
                self._watching.log.exception("Workbench: a message of a page failed")
                self._refuse(message, _FAILED)

    def _refuse(self, message: dict[str, Any], why: str) -> None:
        """Send the reason why a message isn't handled, to the button if it is an action."""
        asks = message.get("type") == "action" and isinstance(message.get("id"), int)
        self._note({"type": "answer", "id": message["id"], "message": why} if asks else _error(why))

    async def _handle(self, message: dict[str, Any]) -> None:
        kind, arguments = message.get("type"), {name: value for name, value in message.items() if name != "type"}
        if kind not in _TYPES:
            raise BadInputError(f"Unknown type {quoted(kind)}. Send one of: {', '.join(_TYPES)}.")
        function = getattr(Screen, f"_on_{kind}")
        await function(self, **check(function, arguments))

    async def _on_action(self, id: int, name: str, arguments: dict[str, Any] | None = None) -> None:
        if len(self._acting) >= MOST_ACTIONS:
            raise BadInputError(f"This page waits for {MOST_ACTIONS} answers already. Try again later.")
        task = asyncio.create_task(self._answer(id, name, arguments or {}))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _answer(self, id: int, name: str, arguments: Mapping[str, Any]) -> None:
        answer: dict[str, Any]
        try:
            answer = {"value": await self._act(name, arguments)}
        except WorkbenchError as err:
            answer = refused(err)
        except Exception:  # The page must get an answer.
            self._watching.log.exception("Workbench: the action %s failed", quoted(name))
            answer = {"message": _FAILED}
        self._note({"type": "answer", "id": id, **answer})

    async def _on_choose(self, choices: dict[str, Any]) -> None:
        chosen = {name: value for name, value in {**self._choices, **choices}.items() if value is not None}
        if len(chosen) > MOST_CHOICES:
            raise BadInputError(f"This page has chosen {MOST_CHOICES} things already. Load it again.")
        self._choices = chosen
        for watch in self._watches.values():
            watch.choose(chosen)

    async def _on_range(self, watch: str, start: float, end: float, width: int) -> None:
        if watch not in self._watches:
            raise BadInputError(f"Nothing is watched as {quoted(watch)}. Send a message of the type watch first.")
        if not (0 <= start < end < float("inf") and 0 < width <= 100_000):
            raise BadInputError(
                f"The range from {start:g} to {end:g} on {width} pixels is none: start must be before end."
            )
        self._watches[watch].show_range(start, end, width)

    async def _on_unwatch(self, watch: str) -> None:
        self._unwatch(watch)

    async def _on_watch(
        self,
        watch: str,
        theme: Theme = "light",
        cluster: str | None = None,
        run: str | None = None,
        view: str | None = None,
    ) -> None:
        kinds = {"cluster": cluster, "run": run, "view": view}
        named = [(kind, name) for kind, name in kinds.items() if name is not None]
        if len(named) != 1:
            raise BadInputError("To watch, name one cluster, run or view.")
        self._unwatch(watch)
        if len(self._watches) >= MOST_WATCHES:
            raise BadInputError(f"This page already watches {MOST_WATCHES} figures and views. Close some.")
        try:
            self._watches[watch] = await self._open(*named[0], theme)
            self._watches[watch].choose(self._choices)
        except WorkbenchError as err:
            self._note({"type": "gone", "watch": watch, "message": str(err)})
        self._something.set()
        self._figures.set()

    async def _open(self, kind: str, name: str, theme: str) -> OnScreen:
        watching = self._watching
        if kind == "view":
            return watching.views.watch(name, self._something.set, self._choices)
        return await watching.watch(kind, name, theme, self._figures.set)

    def _unwatch(self, watch: str) -> None:
        removed = self._watches.pop(watch, None)
        if removed is not None:
            removed.leave()


def _error(message: str) -> dict[str, Any]:
    return {"type": "error", "message": printable(message)}
