"""The handles of schedulers elsewhere: of somebody else's, and of one that an engine started for us."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import psutil

from workbench import remote
from workbench.clusters import dashboard
from workbench.clusters.handle import Handle, Job, State, Verb
from workbench.clusters.reaching import ANSWERING, CONNECTING, Place, ask, refuses
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError, whole
from workbench.formats import duration
from workbench.travelling import (
    About,
    apart,
    ask as ask_all,
    differences,
    machine_elsewhere,
    minor,
    missing,
    without_dasks_table,
)

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

_INTERVAL = 2.0  # seconds between two questions

_ARRIVING = 0.3  # seconds between two looks at workers that start
_BUSY = {"executing", "long-running", "ready", "constrained", "waiting", "fetch", "flight", "resumed"}
"""States of tasks on a worker that has something to do."""


class Attached(Handle):
    """A scheduler of somebody else's. Nothing is changed there."""

    def __init__(self, spec: ClusterSpec, place: Place) -> None:
        self.place = place
        self.address = self.place.address
        self._spec = spec
        self._identity: dict[str, Any] = {}
        self._machine: Mapping[str, Any] | None = None
        self._missing: Mapping[str, Mapping[str, int]] | None = None
        self._differ: str | None = None
        self._heard = time.monotonic()
        self._known: frozenset[str] = frozenset()
        self._asking: asyncio.Task[str] | None = None
        self._adapts = False

    async def begin(self) -> None:
        """Ask it for the first time. Raises FailedError where it doesn't answer, though it did a moment ago."""
        try:
            await self._ask()
        except (OSError, TimeoutError) as err:
            why = whole(str(err)) or f"nothing came within {duration(ANSWERING)}"
            raise FailedError(self.unreached(why)) from err

    def unreached(self, why: str) -> str:
        """Return what is to be said where it doesn't answer."""
        return f"The scheduler at {self.address} no longer answers ({why}). Attach to it again when it is back."

    async def find_dashboard(self) -> None:
        """Look for the dashboard that it serves itself."""
        self.dashboard = await dashboard.elsewhere(urlsplit(self.address).netloc.rpartition(":")[0], self._identity)

    async def fill(self) -> None:
        """Return at once: it has the workers that it has."""
        self._asking = asyncio.create_task(self._keep_asking())

    async def state(self) -> State:
        workers = list(self._identity.get("workers", {}).values())
        unheard = time.monotonic() - self._heard
        trouble = f"It hasn't answered for {duration(round(unheard))}." if unheard > 3 * _INTERVAL + ANSWERING else None
        if not workers and not self._adapts:
            trouble = trouble or "It has no workers."
        self._spec = measured(self._spec, workers, self._machine)
        return State(
            arrived=len(workers),
            requested=len(workers),
            trouble=trouble or another_python(self.versions.get("python", "")),
            warning=self._differ,
            spec=self._spec,
            machine=self._machine,
            missing=self._missing,
        )

    async def finished(self) -> str:
        assert self._asking is not None
        return await self._asking

    async def close(self) -> None:
        """Let go of it."""
        if self._asking is not None:
            self._asking.cancel()

    async def _keep_asking(self) -> str:
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                await self._ask()
            except (OSError, TimeoutError, ValueError) as err:
                # One that is only silent may sleep, or be cut off: it is asked until it is known to be gone.
                gone = await self._gone()
                if gone and time.monotonic() - self._heard > CONNECTING:
                    raise FailedError(gone) from err

    async def _gone(self) -> str | None:
        """Return why it will not answer again; None where it may."""
        # Dask tries again until its time is up, and then doesn't say why.
        if await asyncio.to_thread(refuses, self.place):
            return f"The scheduler at {self.address} has ended. Attach to it again when it is back."
        return None

    async def _ask(self) -> None:
        found = await ask(self.place)
        self._identity, self.versions = found.identity, {name: each for name, each in found.versions.items() if each}
        self._heard = time.monotonic()
        workers = frozenset(self._identity.get("workers", {}))
        if workers - self._known:
            with contextlib.suppress(OSError, TimeoutError):
                told = await asyncio.wait_for(asyncio.to_thread(self._abouts), ANSWERING)
                self._machine, self._differ = machine_elsewhere(told), differences(told)
                self._missing = missing(told)
        self._known = workers

    def _abouts(self) -> list[About]:
        try:
            return abouts(self.place)
        except TypeError as err:
            # An older one takes other arguments with the same questions.
            raise FailedError(
                f"The scheduler at {self.address} has Dask {self.versions.get('dask')}, which Dask "
                f"{remote.packages()['dask']} can't talk to ({err}). Work in an environment with the scheduler's "
                "version."
            ) from err


class Started(Attached):
    """A scheduler elsewhere that was started from here: asked as any, and changed through what started it."""

    can: tuple[Verb, ...] = ("scale", "adapt", "stop")

    def __init__(self, spec: ClusterSpec, place: Place) -> None:
        super().__init__(spec, place)
        self._requested: int | None = None
        self._busy = time.time()

    async def fill(self) -> None:
        """Return when the workers that were asked for are there, or some while it is known that others wait."""
        if "stop" in self.can:
            self._requested = self._spec.n_workers
            await self.ask_for(self._requested)
            while (there := len(self._identity["workers"])) < self._requested:
                if there and any(job.reason for job in await self.jobs()):
                    break
                await asyncio.sleep(_ARRIVING)
                await self._ask()
        await super().fill()

    async def state(self) -> State:
        state = await super().state()
        workers = self._identity.get("workers", {}).values()
        if any(_BUSY.intersection(each.get("metrics", {}).get("task_counts", ())) for each in workers):
            self._busy = time.time()
        requested = self._requested or state.arrived
        return state._replace(requested=requested, idle_since=self._busy, jobs=await self.jobs())

    async def jobs(self) -> tuple[Job, ...]:
        """Return what waits to become a worker, where that can be asked."""
        return ()

    async def scale(self, n: int) -> None:
        before, self._requested, self._adapts = (self._requested, self._adapts), n, False
        try:
            await self.ask_for(n)
        except FailedError:
            self._requested, self._adapts = before
            raise

    async def adapt(self, minimum: int, maximum: int) -> None:
        """Have what started it follow the load."""
        await self.ask_to_follow(minimum, maximum)
        self._requested, self._adapts = None, True

    async def ask_for(self, n: int) -> None:
        """Ask what started it for `n` workers. Raises FailedError with what that says."""
        raise NotImplementedError

    async def ask_to_follow(self, minimum: int, maximum: int) -> None:
        """Ask it to follow the load. Raises FailedError with what it says."""
        raise NotImplementedError


def another_python(theirs: str) -> str | None:
    """Return what another minor version of Python means; None where it is the same, or not known."""
    said = apart([("there", {"python": theirs})], {"python": platform.python_version()}) if theirs else None
    return said and (
        f"It can be watched, but what runs sends code, which works only in the same minor version: {said}. Work in an "
        f"environment with Python {minor(theirs)}."
    )


def abouts(place: Place) -> list[About]:
    """Return what the scheduler and the workers run on."""
    return _asked(place, ask_all)


def _asked(place: Place, question: Callable[[Client], T]) -> T:
    from distributed import Client

    client: Client
    without_dasks_table()
    with Client(place.address, security=place.security, timeout=ANSWERING, set_as_default=False) as client:
        return question(client)


def measured(spec: ClusterSpec, workers: list[dict[str, Any]], machine: Mapping[str, Any] | None) -> ClusterSpec:
    """Return what the workers turned out to be; where they differ, each counts for the smallest."""
    if not workers:
        return spec
    total = machine["memory"]["total"] if machine else psutil.virtual_memory().total
    # What one without a limit of its own may take.
    without = max(1, total // len(workers))
    measured = spec.measured([(int(each["nthreads"]), int(each["memory_limit"] or without)) for each in workers])
    return measured.model_copy(update={"n_workers": len(workers)})
