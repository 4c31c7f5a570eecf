"""A view or a figure in a cell of a notebook: one Panel component, and messages both ways.

`Page(view, watching, act, options)` shows `view`, a name in VIEWS of labext/src/page/notebook.ts, which gets
`options`. Each place that shows it has a `Screen` of its own over the result of `watching`; its actions go to `act`.
The scripts of BokehJS come by an action, too: no server has them here.

Panel sends each message to all places, drops messages while it processes another, and delays those from before the
page listens. So each place has a name, the messages to it are numbered, and it requests those that it missed;
labext/src/page/messages.ts lists the messages. A reloaded page is a new place. Places that left without a message are
detected when a new one arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import param
from panel.custom import JSComponent

from workbench.clusters.connect import kernel
from workbench.errors import WorkbenchError
from workbench.panels.thread import do
from workbench.threads import in_thread, load_before_threads
from workbench.views.answers import to_json
from workbench.views.messages import check, parse_object
from workbench.views.screen import Act, Screen
from workbench.views.scripts import read

KEPT = 64
"""Number of sent messages kept in case the page missed one."""

CONFIRMED_AFTER = 0.2
"""Seconds from a page's message, which Panel has processed by then, to the reply with the number of messages sent."""

PATIENCE = 15.0
"""Seconds that the other pages have to respond after a new one has arrived."""

_FOLDER = Path(__file__).parent
_BUNDLE = next(_FOLDER.glob("page.*.js"), _FOLDER / "page.js")
"""Script of the page. Its name contains its hash, because browsers cache scripts by name."""

_CELL = (_FOLDER / "page.css").read_text(encoding="utf-8")
_VIEWS = (_FOLDER.parent / "views" / "page.raw.css").read_text(encoding="utf-8")

_tasks: set[asyncio.Task[None]] = set()
"""All running tasks: asyncio itself keeps only weak references."""


class Page(JSComponent):  # type: ignore[misc,unused-ignore]
    """Content of a cell, made of `view` and messages from Python."""

    view = param.String()
    options = param.String(doc="As JSON.")

    _bundle = _BUNDLE

    def __init__(
        self,
        view: str,
        watching: Callable[[], Awaitable[Any]],
        act: Act,
        options: dict[str, Any] | None = None,
    ) -> None:
        load_before_threads("distributed", "workbench.workloads.catalogue")
        sheets = [_CELL] if view == "figure" else [_VIEWS, _CELL]
        given = to_json({"kernel": kernel(), **(options or {})})
        super().__init__(view=view, options=given, sizing_mode="stretch_width", margin=0, stylesheets=sheets)
        # Panel documents this name for subclasses; only components of AnyWidget have a public one.
        self.pages = Pages(watching, act, self._send_msg)
        self.on_msg(lambda event: do(self.pages.receive, event.data))


class Pages:
    """The places that show one component; `post` sends a text to all. Everything runs in the panels' thread."""

    def __init__(self, watching: Callable[[], Awaitable[Any]], act: Act, post: Callable[[str], None]) -> None:
        self.watching = watching
        self._act = act
        self.post = post
        self._standing: dict[str, Any] | None = None
        self._seats: dict[str, Seat] = {}

    def receive(self, text: str) -> None:
        """Handle a message of a page."""
        message = parse_object(text)
        name, kind = message.pop("page"), message["type"]
        seat = self._seats.get(name)
        if seat is None:
            if kind == "hello":
                self._sit(name)
            elif kind != "bye":
                self.post(to_json({"page": name, "n": 0, "type": "again"}))
            return
        if kind == "bye":
            self._seats.pop(name).close()
        else:
            seat.receive(message)

    def send_to_all(self, message: dict[str, Any]) -> None:
        """Send a message to each page."""
        for seat in self._seats.values():
            seat.send_soon(message)

    def stand(self, message: dict[str, Any]) -> None:
        """Send a message to each page, and to those that open later."""
        self._standing = message
        self.send_to_all(message)

    @property
    def is_shown(self) -> bool:
        """True if a page shows it."""
        return bool(self._seats)

    def is_quiet(self, seconds: float) -> bool:
        """Return whether no page has sent anything for this time, and none waits for an answer."""
        since = asyncio.get_running_loop().time() - seconds
        return all(seat.last_message <= since and not seat.is_answering for seat in self._seats.values())

    async def act(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the result of an action."""
        if name == "script":
            return await _script(self, **check(_script, arguments))
        if name == "figure":
            await in_thread(wait_for_import, "pandas")
        return await self._act(name, arguments)

    def begin_again(self) -> None:
        """Have all places request their content again."""
        self.post(to_json({"page": "", "n": 0, "type": "again"}))

    def close(self) -> None:
        """Stop sending. A page that sends a request later starts over."""
        while self._seats:
            self._seats.popitem()[1].close()

    def _sit(self, name: str) -> None:
        others = dict(self._seats)
        self._seats[name] = Seat(name, self)
        for message in filter(None, ({"type": "ready"}, self._standing)):
            self._seats[name].send_soon(message)
        for seat in others.values():
            seat.has_answered = False
            seat.send_soon({"type": "here"})
        if others:
            asyncio.get_running_loop().call_later(PATIENCE, self._forget, others)

    def _forget(self, asked: dict[str, Seat]) -> None:
        for name, seat in asked.items():
            if not seat.has_answered and self._seats.get(name) is seat:
                self._seats.pop(name).close()


class Seat:
    """Connection of one place: its messages and its requests."""

    def __init__(self, name: str, pages: Pages) -> None:
        self.has_answered = True
        self.last_message = asyncio.get_running_loop().time()
        self._name = name
        self._pages = pages
        self._n = 0
        self._sent: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._screen: Screen | None = None
        self._confirming: asyncio.TimerHandle | None = None
        self._serving = asyncio.create_task(self._serve())
        _tasks.add(self._serving)
        self._serving.add_done_callback(_tasks.discard)

    @property
    def is_answering(self) -> bool:
        """True if the page waits for an answer."""
        return not self._inbox.empty() or (self._screen is not None and self._screen.is_acting)

    def receive(self, message: dict[str, Any]) -> None:
        """Handle a message of the page."""
        self.has_answered = True
        loop = asyncio.get_running_loop()
        self.last_message = loop.time()
        if self._confirming is not None:
            self._confirming.cancel()
        self._confirming = loop.call_later(CONFIRMED_AFTER, self._confirm)
        match message.pop("type"):
            case "hello" | "here":
                pass
            case "missed":
                self._send_again(int(message["after"]))
            case kind:
                self._inbox.put_nowait({"type": kind, **message})

    def send_soon(self, message: dict[str, Any]) -> None:
        """Send a message under the next number."""
        self._n += 1
        text = to_json({"page": self._name, "n": self._n, **message})
        self._sent.append((self._n, text))
        self._pages.post(text)

    def close(self) -> None:
        """Stop serving this page."""
        if self._confirming is not None:
            self._confirming.cancel()
        self._serving.cancel()

    async def _send(self, message: dict[str, Any]) -> None:
        self.send_soon(message)

    async def _serve(self) -> None:
        try:
            watching = await self._pages.watching()
        except WorkbenchError as err:
            self.send_soon({"type": "error", "message": str(err)})
            return
        with contextlib.closing(Screen(watching, self._send, self._pages.act)) as self._screen:
            while True:
                self._screen.receive(await self._inbox.get())

    def _confirm(self) -> None:
        self._pages.post(to_json({"page": self._name, "n": self._n, "type": "received"}))

    def _send_again(self, after: int) -> None:
        if self._sent and self._sent[0][0] > after + 1:
            self._pages.receive(to_json({"page": self._name, "type": "bye"}))
            self._pages.post(to_json({"page": self._name, "n": 0, "type": "again"}))
            return
        for number, text in tuple(self._sent):
            if number > after:
                self._pages.post(text)


async def _script(_: Pages, name: str) -> str:
    """Return a script of BokehJS."""
    return (await in_thread(read, name, compressed=False)).decode()


def wait_for_import(module: str) -> None:
    """Return when no cell is importing this module: Bokeh would use it before it is complete."""
    if module in sys.modules:
        importlib.import_module(module)
