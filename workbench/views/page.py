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
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from markupsafe import Markup, escape

from workbench.errors import NotFoundError, WorkbenchError, quoted
from workbench.markup import paragraph
from workbench.threads import in_thread
from workbench.views.state import StateWatcher

if TYPE_CHECKING:
    from workbench.clusters.environments import Environment
    from workbench.hardware import Gpu, Inventory
    from workbench.hardware.gauges import Gauges, GpuSample, Meter, Usage
    from workbench.hardware.values import Memory
    from workbench.session import Session
    from workbench.views.gpu_samples import LatestSamples

T = TypeVar("T")

HARDWARE_FOR = 5.0
"""Seconds for which a reading of the machine's hardware is recent enough for a screen."""

GAUGES_FOR = 0.5
"""Seconds for which a reading of the use and memory of cores and GPUs is recent enough."""

_FIRST_LOOK = 0.1
"""Seconds of measurement before the first values of use are shown."""


class Machine:
    """Readings of the hardware for views, each cached for a short time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Any]] = {}
        self._gauges: Gauges | None = None
        self._gauged: tuple[Gpu, ...] = ()
        self._meter: Meter | None = None
        self._finding: threading.Thread | None = None
        self._pythons: tuple[Environment, ...] = ()

    def inventory(self) -> Inventory:
        """Return the hardware of this machine."""
        return self._lately("inventory", HARDWARE_FOR, self._session.hardware)

    def pythons(self) -> tuple[Environment, ...]:
        """Return Pythons for clusters, none until a thread has found them: each is started once to inspect it."""
        with self._lock:
            if self._finding is None:
                self._finding = threading.Thread(target=self._find_pythons, name="find-pythons", daemon=True)
                self._finding.start()
            return self._pythons

    def _find_pythons(self) -> None:
        self._pythons = self._session.environments()

    def gauges(self) -> dict[str, GpuSample]:
        """Return the use of its GPUs, by UUID."""
        gpus = self.inventory().gpus
        return self._lately("gauges", GAUGES_FOR, lambda: self._read_gauges(gpus))

    def _read_gauges(self, gpus: tuple[Gpu, ...]) -> dict[str, GpuSample]:
        from workbench.hardware.gauges import Gauges

        if self._gauges is None or self._gauged != gpus:
            self._close()
            self._gauges, self._gauged = Gauges(gpus), gpus
        return self._gauges.read()

    def usage(self) -> tuple[Usage, Memory]:
        """Return the use of its cores, disks and network since the last reading, and its memory now."""
        return self._lately("usage", GAUGES_FOR, self._measure)

    def _measure(self) -> tuple[Usage, Memory]:
        from workbench.hardware.gauges import Meter

        if self._meter is None:
            self._meter = Meter()
            time.sleep(_FIRST_LOOK)
        return self._meter.read(), self._session.hardware().memory

    def rest(self) -> None:
        """Close NVML while no page shows a view."""
        with self._lock:
            self._meter = None
            self._kept.pop("usage", None)
            self._close()

    def _lately(self, what: str, seconds: float, read: Callable[[], T]) -> T:
        """Return a reading of the last `seconds`, or a new one."""
        with self._lock:
            when, found = self._kept.get(what, (-seconds, None))
            if time.monotonic() - when >= seconds:
                found = read()
                self._kept[what] = time.monotonic(), found
            return cast("T", found)

    def _close(self) -> None:
        if self._gauges is not None:
            self._gauges.__exit__(None, None, None)
            self._gauges = None


class Context(NamedTuple):
    """The context of a view: everything that it is made from."""

    session: Session
    state: Mapping[str, Any]
    """Clusters and runs, as sent to pages."""
    machine: Machine
    gpu_samples: Callable[[str], Awaitable[LatestSamples]]
    """Function that returns the latest GPU samples of a cluster."""
    choices: Choices = MappingProxyType({})
    """The page's choices that the view reads."""
    look: Look | None = None
    """Caller of session methods that open a user's paths; None calls them in a thread of this process."""

    def clusters(self, status: str) -> list[dict[str, Any]]:
        """Return the clusters in a state such as 'starting' or 'ready'."""
        return [each for each in self.state.get("clusters", ()) if each["status"] == status]

    def ready(self) -> list[dict[str, Any]]:
        """Return the ready clusters, except those that end with a running comparison."""
        return [each for each in self.clusters("ready") if each["name"] not in self.state.get("comparing", ())]

    async def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return the result of a session's method that may open a user's paths."""
        if self.look is not None:
            return await self.look(method, *args, **kwargs)
        return await in_thread(partial(getattr(self.session, method), *args, **kwargs))


Choices = Mapping[str, Any]
"""Choices and input of a page, by names such as `profile` or `plan.cpu.n_workers`: text, booleans and lists."""

Look = Callable[..., Awaitable[Any]]
Maker = Callable[[Context, str], "Markup | Awaitable[Markup]"]


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
        "trust": View(sidebar.trust, every(5.0), ("trust.",)),
        "start": View(machine.start, reads=("profile", "plan.", "name")),
        "nearby": View(machine.nearby, every(10.0)),
        "plan-form": View(machine.plan_form, every(5.0), ("profile", "plan.", "keep.")),
        "clusters": View(clusters.clusters, clusters.pace, ("scale.", "notebooks", "clusters.")),
        "work": View(work.work, reads=("workload", "run.", "cluster", "browse.", "preset.", "settings.")),
        "hardware": View(machine.hardware, every(HARDWARE_FOR)),
        "machine": View(machine.machine, every(1.0)),
        "gpus": View(machine.gpus, every(1.0)),
        "cluster": View(clusters.gpus, every(1.0)),
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
        gpu_samples: Callable[[str], Awaitable[LatestSamples]],
    ) -> None:
        self._state = state
        self._gpu_samples = gpu_samples
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
            from workbench.markup import without_commands
            from workbench.views.parts import confirming

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
        said = "This could not be drawn. The log of the Jupyter server says why."
        return paragraph(said, "wb-Problem wb-Banner")

    async def close(self) -> None:
        """Stop making all views."""
        tasks = [shown.end() for shown in tuple(self._shown.values())]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._shown.clear()
        self._machine.rest()

    def _context(self, choices: Choices) -> Context:
        return Context(self._session, self._state.value, self._machine, self._gpu_samples, choices, self.look)

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
        if self._state.cursor != self._seen:
            self._changed.set()

    _seen: int | None = None
    is_broken = False
    """True if `html` is only the message that the view failed."""

    async def _keep_making(self) -> None:
        while True:
            self._changed.clear()
            self._seen = self._state.cursor
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

        def as_sent(part: re.Match[str]) -> str:
            name = self._parts.setdefault(part[1], part[0]) and part[1]
            return f'<li id="{name}" data-same></li>' if before.get(name) == part[0] else part[0]

        return {"html": _ITEM.sub(as_sent, self._sent)}

    def leave(self) -> None:
        """Stop showing it."""
        self._shown.leave(self)
