"""A view or a figure in a cell of a notebook: a Jupyter widget, and messages both ways over its comm.

The base of `Workbench` and of all figures. Each place that shows a widget has a name, because its messages go to all
places; labext/src/page/kernel.ts lists them. A place has a `Screen` of its own. A reloaded page is a new place. Places
that left without a message are detected when a new one opens.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import anywidget
import comm.base_comm
import traitlets
from ipykernel.jsonutil import json_clean
from ipykernel.kernelbase import Kernel

from workbench.clusters.connect import kernel
from workbench.errors import WorkbenchError
from workbench.panels.static import StaticOutput
from workbench.panels.thread import do
from workbench.threads import in_thread, load_before_threads
from workbench.views.answers import to_json
from workbench.views.messages import check, parse_object
from workbench.views.screen import Screen
from workbench.views.scripts import PAGE, read, styles

PATIENCE = 15.0
"""Seconds that the other places have to respond after a new one has opened."""

LINGER = 5.0
"""Seconds after the last place has closed in which another may open: a cell that is moved is drawn anew."""

_tasks: set[asyncio.Task[None]] = set()
"""All running tasks: asyncio itself keeps only weak references."""


class Widget(anywidget.AnyWidget):
    """An object that cells display, and other widgets contain.

    Parameters
    ----------
    options
        Options of `view`, a name in VIEWS of labext/src/page/notebook.ts.
    """

    _esm = PAGE
    view = traitlets.Unicode().tag(sync=True)
    options = traitlets.Dict().tag(sync=True)
    styles = traitlets.Unicode().tag(sync=True)

    _view: ClassVar[str]
    _static: StaticOutput

    def __init__(self, options: dict[str, Any]) -> None:
        load_before_threads("distributed", "workbench.workloads.catalogue")
        self._seats: dict[str, Seat] = {}
        all_options = {"kernel": kernel(), **options}
        super().__init__(view=self._view, options=all_options, styles=styles(self._view))
        self.on_msg(lambda _, text, __: do(self.receive, text))

    def open(self) -> None:
        """Open the comm, in a kernel one whose messages are handled while the kernel computes."""
        if not Kernel.initialized():
            super().open()
            return
        # The package comm has this variable for kernels to set.
        usual, comm.create_comm = comm.create_comm, _Comm
        try:
            super().open()
        finally:
            comm.create_comm = usual

    def _repr_mimebundle_(self, **options: Any) -> Any:
        data, metadata = super()._repr_mimebundle_(**options)
        # Where nothing is alive, the output above it says what is to be said.
        return (data | {"text/plain": ""} if self._static.show() else data), metadata

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: a notebook shows it where it ends a cell; without one there is workbench app>"

    def __del__(self) -> None:
        """Do nothing: ipywidgets would call `close`, which needs what a failed constructor has not made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receive(self, text: str) -> None:
        """Handle a message of a place, in the panels' thread."""
        message = parse_object(text)
        name, kind = message.pop("page"), message["type"]
        seat = self._seats.get(name)
        if kind == "hello":
            if seat is None:
                self._open_seat(name)
            self.post(name, {"type": "ready"})
        elif kind == "bye":
            self._close_seats([name])
        elif seat is None:
            self.post(name, {"type": "again"})
        else:
            seat.receive(message)

    def post(self, name: str, message: dict[str, Any]) -> None:
        """Send a message to one place."""
        self.send(to_json({"page": name, **message}))

    def send_to_all(self, message: dict[str, Any]) -> None:
        """Send a message to each place."""
        for name in self._seats:
            self.post(name, message)

    @property
    def is_shown(self) -> bool:
        """True if a page shows it."""
        return bool(self._seats)

    async def act(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the result of an action of a page."""
        if name == "script":
            return await _script(self, **check(_script, arguments))
        if name == "figure":
            await in_thread(wait_for_import, "pandas")
        return await self._act(name, arguments)

    async def watching(self) -> Any:
        """Return the part of `Watching` that a Screen needs."""
        raise NotImplementedError

    async def _act(self, name: str, arguments: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def _on_shown(self) -> None:
        """Start what only a page needs: the first one shows this now."""

    def _on_hidden(self) -> None:
        """Stop what only a page needs: no page shows this any more."""

    def _open_seat(self, name: str) -> None:
        others = dict(self._seats)
        if not others:
            self._on_shown()
        self._seats[name] = Seat(name, self)
        for other, seat in others.items():
            seat.has_answered = False
            self.post(other, {"type": "here"})
        if others:
            asyncio.get_running_loop().call_later(PATIENCE, self._forget, others)

    def _forget(self, seats: dict[str, Seat]) -> None:
        self._close_seats([name for name, seat in seats.items() if not seat.has_answered])

    def _close_seats(self, names: list[str]) -> None:
        closed = [self._seats.pop(name) for name in names if name in self._seats]
        for seat in closed:
            seat.close()
        if closed and not self._seats:
            asyncio.get_running_loop().call_later(LINGER, self._leave)

    def _leave(self) -> None:
        if not self._seats:
            self._on_hidden()


class _Comm(comm.base_comm.BaseComm):
    """A comm whose messages are handled by the subshell that JupyterLab chooses.

    The comm of ipykernel 7.4 hands them to the thread that last sent a message to the page: the one that computes.
    """

    def publish_msg(
        self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
    ) -> None:
        """Send a message to the pages of this kernel."""
        kernel = Kernel.instance()
        kernel.session.send(
            kernel.iopub_socket,
            msg_type,
            json_clean({"data": data or {}, "comm_id": self.comm_id, **keys}),
            metadata=json_clean(metadata or {}),
            parent=kernel.get_parent(),
            ident=self.topic,
            buffers=buffers,
        )


class Seat:
    """Connection of one place: its messages and its requests."""

    def __init__(self, name: str, widget: Widget) -> None:
        self.has_answered = True
        self._name = name
        self._widget = widget
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._serving = asyncio.create_task(self._serve())
        _tasks.add(self._serving)
        self._serving.add_done_callback(_tasks.discard)

    def receive(self, message: dict[str, Any]) -> None:
        """Handle a message of the place."""
        self.has_answered = True
        if message["type"] in ("choose", "action"):
            self._widget.post(self._name, {"type": "received"})
        if message["type"] != "here":
            self._inbox.put_nowait(message)

    def close(self) -> None:
        """Stop serving this place."""
        self._serving.cancel()

    async def _send(self, message: dict[str, Any]) -> None:
        self._widget.post(self._name, message)

    async def _serve(self) -> None:
        try:
            watching = await self._widget.watching()
        except WorkbenchError as err:
            await self._send({"type": "error", "message": str(err)})
            return
        with contextlib.closing(Screen(watching, self._send, self._widget.act)) as screen:
            while True:
                screen.receive(await self._inbox.get())


async def _script(_: Widget, name: str) -> str:
    """Return a script of BokehJS: no server has it here."""
    return (await in_thread(read, name, compressed=False)).decode()


def wait_for_import(module: str) -> None:
    """Return when no cell is importing this module: Bokeh would use it before it is complete."""
    if module in sys.modules:
        importlib.import_module(module)
