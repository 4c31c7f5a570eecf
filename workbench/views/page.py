"""Views: pieces of a page, made here as HTML and updated on each page that shows them.

A page requests a view by name, such as `runs` or `gpus:gpus` (the part after the colon is its maker's argument). A view
that no page shows costs nothing. To add a view, add a line to `known`; the page needs no change. Attributes of the HTML
define the effect of a click, see labext/src/page/page.ts. No tornado here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from markupsafe import Markup, escape

from workbench.errors import NotFoundError, WorkbenchError, quoted
from workbench.markup import paragraph, without_commands
from workbench.threads import in_thread
from workbench.views.context import HARDWARE_FOR, Choices, Context, Look, Machine, Maker
from workbench.views.parts import confirming
from workbench.views.state import StateWatcher

if TYPE_CHECKING:
    from workbench.session import Session

T = TypeVar("T")


class View(NamedTuple):
    """A view: the function that makes its HTML, and the seconds between updates without a change of the state."""

    make: Maker
    period: Callable[[Context], float] = lambda _: 30.0
    reads: tuple[str, ...] = ()
    """Prefixes of the names of choices that it depends on."""

    def chosen(self, choices: Choices) -> Choices:
        """Return the page's choices that this view reads."""
        return {name: value for name, value in choices.items() if name.startswith(self.reads)} if self.reads else {}


def every(seconds: float) -> Callable[[Context], float]:
    """Return a constant period."""
    return lambda _: seconds


@cache
def known() -> dict[str, View]:
    """Return all views by name."""
    from workbench.views import clusters, compare, comparisons, machine, result, runs, sidebar, work, workers

    return {
        "sidebar": View(sidebar.sidebar, reads=("tour.",)),
        "wide": View(sidebar.wide, reads=("tour.",)),
        "watch": View(sidebar.watch),
        "trust": View(sidebar.trust, every(5.0), ("trust.",)),
        "start": View(machine.start, reads=("profile", "plan.", "name")),
        "nearby": View(machine.nearby, every(10.0)),
        "plan-form": View(machine.plan_form, every(5.0), ("profile", "plan.", "keep.")),
        "clusters": View(clusters.clusters, clusters.pace, ("scale.", "notebooks", "clusters.")),
        "work": View(work.work, reads=("workload", "run.", "cluster", "browse.", "preset.", "settings.")),
        "hardware": View(machine.hardware, every(HARDWARE_FOR)),
        "machine": View(machine.machine, every(1.0)),
        "gpus": View(machine.gpus, every(1.0)),
        "code": View(clusters.code),
        "logs": View(clusters.logs, every(5.0), ("logs.",)),
        "workers": View(workers.workers, every(1.0), ("workers.",)),
        "runs": View(runs.runs, runs.pace, ("runs.",)),
        "importing": View(runs.importing, reads=("import.", "browse.import")),
        "latest": View(runs.latest, runs.pace),
        "run": View(result.run),
        "result": View(result.result, result.pace, ("result.",)),
        "log-tail": View(clusters.log_tail),
        "run-answer": View(result.pictures),
        "saving": View(result.saving, every(1.0), ("save.",)),
        "run-log": View(result.run_log, every(5.0)),
        "compare": View(compare.compare, reads=("compare.", "workload", "run.", "plan.", "settings.")),
        "comparisons": View(comparisons.comparisons, comparisons.pace, ("comparisons.",)),
        "comparison": View(comparisons.comparison, comparisons.pace),
    }


class Views:
    """The views on screens: each is made once for all pages that show it."""

    def __init__(
        self,
        session: Session,
        state: StateWatcher,
        log: Any,
    ) -> None:
        self._state = state
        self._session = session
        self._log = log
        self._machine = Machine(session)
        self._shown: dict[tuple[str, str], Shown] = {}
        self.look: Look | None = None
        """Caller of session methods that open a user's paths."""

    def watch(self, name: str, on_change: Callable[[], None], choices: Choices | None = None) -> ViewWatch:
        """Start showing a view. Raises NotFoundError for an unknown one."""
        return ViewWatch(self, name, on_change, choices or {})

    def shown(self, name: str, choices: Choices) -> Shown:
        """Return the view that pages with the same choices share, and start making it."""
        view, _ = self._find(name)
        chosen = view.chosen(choices)
        key = name, json.dumps(chosen, sort_keys=True)
        if key not in self._shown:
            self._shown[key] = Shown(key, chosen, self, self._state)
        return self._shown[key]

    async def make(self, name: str, choices: Choices | None = None) -> Markup:
        """Return the current HTML of a view."""
        if not self._state.value:
            await self._state.read()
        view, argument = self._find(name)
        try:
            context = self._context(view.chosen(choices or {}))
            # A coroutine moves its slow parts to threads or processes itself.
            if inspect.iscoroutinefunction(view.make):
                return escape(await view.make(context, argument))
            return escape(await in_thread(view.make, context, argument))
        except WorkbenchError as err:
            return paragraph(without_commands(str(err)), "wb-Problem") + confirming(err)

    def period(self, name: str) -> float:
        """Return the seconds until the next update of a view."""
        return self._find(name)[0].period(self._context({}))

    def forget(self, key: tuple[str, str]) -> None:
        """Remove a view that no page shows."""
        self._shown.pop(key, None)
        if not self._shown:
            self._machine.rest()

    def report(self, name: str) -> Markup:
        """Log an internal error, and return the message for the page."""
        self._log.exception("Workbench: the view %s could not be made", name)
        message = "This could not be drawn. The log of the Jupyter server says why."
        return paragraph(message, "wb-Problem wb-Banner")

    async def close(self) -> None:
        """Stop making all views."""
        tasks = [shown.end() for shown in tuple(self._shown.values())]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._shown.clear()
        self._machine.rest()

    def _context(self, choices: Choices) -> Context:
        return Context(self._session, self._state.value, self._machine, choices, self.look)

    def _find(self, name: str) -> tuple[View, str]:
        kind, _, argument = name.partition(":")
        views = known()
        if kind not in views:
            raise NotFoundError(f"There is no view {quoted(name)}. There are: {', '.join(views)}.")
        return views[kind], argument


class Shown:
    """One view while pages show it: remade when the state changes, and periodically."""

    def __init__(self, key: tuple[str, str], choices: Choices, views: Views, state: StateWatcher) -> None:
        self.html: str | None = None
        self._key = key
        self._choices = choices
        self._views = views
        self._state = state
        self._changed = asyncio.Event()
        self._watches: set[ViewWatch] = set()
        self._task = asyncio.create_task(self._keep_making())
        state.subscribe(self._notice)

    def join(self, watch: ViewWatch) -> None:
        """Notify `watch` of every change."""
        self._watches.add(watch)

    def leave(self, watch: ViewWatch) -> None:
        """Remove `watch`; without any, the view ends."""
        self._watches.discard(watch)
        if not self._watches:
            self.end()
            self._views.forget(self._key)

    def end(self) -> asyncio.Task[None]:
        """Stop making the view."""
        self._state.unsubscribe(self._notice)
        self._task.cancel()
        return self._task

    def _notice(self) -> None:
        # The state is read every two seconds and is mostly unchanged.
        if self._state.cursor != self._cursor:
            self._changed.set()

    _cursor: int | None = None
    is_broken = False
    """True if `html` is only the message that the view failed."""

    async def _keep_making(self) -> None:
        while True:
            self._changed.clear()
            self._cursor = self._state.cursor
            try:
                html = await self._views.make(self._key[0], self._choices)
                period = self._views.period(self._key[0])
                self.is_broken = False
            except Exception:  # noqa: BLE001  A view that fails must not affect the others.
                html, period, self.is_broken = self._views.report(self._key[0]), 30.0, True
            if html != self.html:
                self.html = html
                for watch in tuple(self._watches):
                    watch.wake()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), period)


_ITEM = re.compile(r'<li id="([^"]+)"(?:(?!<li).)*?</li>', re.DOTALL)
"""Item of a list: a page that has it gets only its position. An item that contains items is sent in full."""


class OnScreen:
    """A view or a figure on one screen. Methods that do nothing here apply to few subclasses."""

    @property
    def gone(self) -> str | None:
        """Reason why no more changes will come; None while they may."""
        return None

    def choose(self, choices: Choices) -> None:
        """Show the view for these choices."""

    def show_range(self, start: float, end: float, width: int) -> None:
        """Show another time range, in ms since the epoch, on `width` pixels."""

    async def take(self) -> dict[str, Any] | None:
        """Return the changes for the screen; None without any."""

    def leave(self) -> None:
        """Stop showing it."""


class ViewWatch(OnScreen):
    """One view on one page: `take` returns its HTML."""

    def __init__(self, views: Views, name: str, on_change: Callable[[], None], choices: Choices) -> None:
        self.wake = on_change
        self._views = views
        self._name = name
        self._sent: str | None = None
        self._whole = ""
        """The latest HTML without an error."""
        self._parts: dict[str, str] = {}
        self._shown = views.shown(name, choices)
        self._shown.join(self)

    def choose(self, choices: Choices) -> None:
        """Show the view for these choices."""
        shown = self._views.shown(self._name, choices)
        if shown is not self._shown:
            before, self._shown = self._shown, shown
            shown.join(self)
            before.leave(self)
            self.wake()

    async def take(self) -> dict[str, Any] | None:
        """Return the changes for the screen; None without any."""
        html = self._shown.html
        if html and self._shown.is_broken:
            # Keep the input of the user.
            html += self._whole
        elif html:
            self._whole = html
        if html is None or html == self._sent:
            return None
        self._sent = html
        before, self._parts = self._parts, {}

        def shorten(part: re.Match[str]) -> str:
            name = self._parts.setdefault(part[1], part[0]) and part[1]
            return f'<li id="{name}" data-same></li>' if before.get(name) == part[0] else part[0]

        return {"html": _ITEM.sub(shorten, self._sent)}

    def leave(self) -> None:
        """Stop showing it."""
        self._shown.leave(self)
