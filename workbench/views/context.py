"""The context that views are made from: state, readings of this machine, and a page's choices. No tornado here."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from markupsafe import Markup

from workbench.threads import in_thread

if TYPE_CHECKING:
    from workbench.clusters.environments import Environment
    from workbench.hardware import Gpu, Inventory
    from workbench.hardware.gauges import Gauges, GpuSample, Meter, Usage
    from workbench.hardware.values import Memory
    from workbench.session import Session

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
        self._readings: dict[str, tuple[float, Any]] = {}
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
            self._readings.pop("usage", None)
            self._close()

    def _lately(self, what: str, seconds: float, read: Callable[[], T]) -> T:
        """Return a reading of the last `seconds`, or a new one."""
        with self._lock:
            when, value = self._readings.get(what, (-seconds, None))
            if time.monotonic() - when >= seconds:
                value = read()
                self._readings[what] = time.monotonic(), value
            return cast("T", value)

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
