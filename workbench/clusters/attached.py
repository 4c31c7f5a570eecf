"""Handles of schedulers that run elsewhere: external ones, and those that an engine started for us."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import psutil
from distributed.scheduler import Scheduler

from workbench import remote
from workbench.clusters import dashboard, security
from workbench.clusters.handle import Handle, Job, State, Verb, outgrown
from workbench.clusters.reaching import ANSWERING, CONNECTING, Place, ask, asking, refuses
from workbench.clusters.repeating import repeat
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError, whole
from workbench.formats import duration
from workbench.travelling import (
    About,
    Travelling,
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
    from distributed.security import Security

T = TypeVar("T")

_INTERVAL = 1.0
"""Seconds between two requests to a scheduler, and between two checks of its load."""
_ARRIVING = 0.2  # seconds between two checks for workers that start
_CLOSING = 1.5  # seconds for our scheduler to close cleanly
_PATIENT = 3
"""Number of checks in a row that ask for fewer workers before some leave, as in Dask's own Adaptive."""


class Attached(Handle):
    """A scheduler that was started outside dask-workbench. Nothing is changed there."""

    def __init__(self, spec: ClusterSpec, place: Place) -> None:
        self.place = place
        self.address = self.place.address
        self._spec = spec
        self._identity: dict[str, Any] = {}
        self._machine: Mapping[str, Any] | None = None
        self._missing: Mapping[str, Mapping[str, int]] | None = None
        self._differ: str | None = None
        self._heard: float | None = None
        self._known: frozenset[str] = frozenset()
        self._asking: asyncio.Task[str] | None = None

    async def begin(self) -> None:
        """Connect for the first time. Raises FailedError if it doesn't answer, though it did a moment ago."""
        try:
            await self._ask()
        except (OSError, TimeoutError) as err:
            why = whole(str(err)) or f"nothing came within {duration(ANSWERING)}"
            raise FailedError(self.unreached(why)) from err

    def unreached(self, why: str) -> str:
        """Return the message for a scheduler that doesn't answer."""
        return f"The scheduler at {self.address} no longer answers ({why}). Attach to it again when it is back."

    async def find_dashboard(self) -> None:
        """Find the dashboard that the scheduler serves itself."""
        self.dashboard = await dashboard.elsewhere(urlsplit(self.address).netloc.rpartition(":")[0], self._identity)

    async def fill(self) -> None:
        """Return at once: the workers are started elsewhere."""
        self._asking = asyncio.create_task(self._keep_asking())

    async def state(self) -> State:
        workers = list(self._identity.get("workers", {}).values())
        self._spec = measured(self._spec, workers, self._machine)
        return State(
            arrived=len(workers),
            requested=len(workers),
            trouble=self.silence() or self.without_workers() or another_python(self.versions.get("python", "")),
            warning=self._differ,
            spec=self._spec,
            machine=self._machine,
            missing=self._missing,
        )

    def silence(self) -> str | None:
        """Return a message on how long the scheduler has not answered; None if it answers."""
        unheard = 0.0 if self._heard is None else time.monotonic() - self._heard
        late = unheard > 3 * _INTERVAL + ANSWERING
        return f"Its scheduler hasn't answered for {duration(round(unheard))}." if late else None

    def without_workers(self) -> str | None:
        """Return a message if there are no workers; None if there are, or if some will arrive."""
        return None if self._identity.get("workers") else "It has no workers."

    async def finished(self) -> str:
        assert self._asking is not None
        return await self._asking

    async def close(self) -> None:
        """Detach from the scheduler."""
        if self._asking is not None:
            self._asking.cancel()

    async def _keep_asking(self) -> str:
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                await self._ask()
            except (OSError, TimeoutError, ValueError) as err:
                # A silent scheduler may be asleep or cut off: keep asking until it is known to have ended.
                gone = await self.gone()
                if gone and time.monotonic() - (self._heard or 0) > CONNECTING:
                    raise FailedError(gone) from err

    async def gone(self) -> str | None:
        """Return why the scheduler will not answer again; None if it may."""
        # Dask retries until its time is up, and then doesn't report the reason.
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
            # An older Dask takes other arguments for the same requests.
            raise FailedError(
                f"The scheduler at {self.address} has Dask {self.versions.get('dask')}, which Dask "
                f"{remote.packages()['dask']} can't talk to ({err}). Work in an environment with the scheduler's "
                "version."
            ) from err


class Started(Attached):
    """A scheduler that an engine started, with workers that `have` starts and ends."""

    can: tuple[Verb, ...] = ("scale", "adapt", "stop")

    def __init__(self, spec: ClusterSpec, place: Place) -> None:
        super().__init__(spec, place)
        self._requested: int | None = None
        self._idle_since: float | None = time.time()
        self._clients: tuple[str, ...] = ()
        self._restarted = 0.0
        self._outgrown: tuple[tuple[float, str], ...] = ()
        self._following: asyncio.Task[NoReturn] | None = None
        self._fewer = 0
        self._is_filled = False

    async def fill(self) -> None:
        """Return when all requested workers have arrived, or some have and the others are known to wait."""
        if "stop" in self.can:
            await self._have(self._spec.n_workers)
            while not await self.is_up():
                await asyncio.sleep(_ARRIVING)
                await self._ask()
        self._is_filled = True
        await super().fill()

    async def is_up(self) -> bool:
        """Return whether it can be used: with all workers, or with some while others wait."""
        there = len(self._identity["workers"])
        return there >= (self._requested or 0) or (there > 0 and any(job.reason for job in await self.jobs()))

    async def state(self) -> State:
        state = await super().state()
        return state._replace(
            requested=state.arrived if self._requested is None else self._requested,
            clients=self._clients,
            idle_since=self._idle_since,
            warning=outgrown(self._outgrown, self._spec.memory_limit) or state.warning,
            jobs=await self.jobs(),
        )

    def without_workers(self) -> str | None:
        """Return a message if all workers have ended though some should run."""
        if self._identity.get("workers") or not self._is_filled or self._following is not None:
            return None
        if not self._requested:
            return super().without_workers()
        return "All of its workers have ended. Scale it to start others, or stop it."

    async def jobs(self) -> tuple[Job, ...]:
        """Return the jobs that are waiting to become workers, if that can be queried."""
        return ()

    async def scale(self, n: int) -> None:
        self._follow_no_more()
        await self._have(n)
        await self._ask()

    async def adapt(self, minimum: int, maximum: int) -> None:
        """Adapt the number of workers to the load that the scheduler reports."""
        self._follow_no_more()
        self._following = asyncio.create_task(repeat(partial(self._follow, minimum, maximum), _INTERVAL))

    async def restart(self) -> None:
        self._restarted = time.time()
        async with self._scheduler_rpc() as scheduler:
            await scheduler.restart(stimulus_id=f"workbench-restart-{time.time()}")

    async def close(self) -> None:
        self._follow_no_more()
        await super().close()

    async def have(self, n: int) -> None:
        """Start or end workers until there are `n`. Raises FailedError with the engine's message."""
        raise NotImplementedError

    def rounded(self, n: int) -> int:
        """Return the number of workers for a request of `n`, if they can only be started in groups."""
        return n

    def started(self) -> int:
        """Return the number of workers that were started, arrived or not."""
        return self._requested or 0

    async def _have(self, n: int) -> None:
        before, self._requested = self._requested, self.rounded(n)
        try:
            await self.have(self._requested)
        except FailedError:
            self._requested = before
            raise

    async def _follow(self, minimum: int, maximum: int) -> None:
        """Start as many workers as the load needs: more at once, fewer only after several checks."""
        async with self._scheduler_rpc() as scheduler:
            target = await scheduler.adaptive_target()
        n = self.rounded(min(max(target, minimum), maximum))
        self._fewer = self._fewer + 1 if n < self.started() else 0
        if n != self.started() and self._fewer in (0, _PATIENT):
            self._fewer = 0
            await self._have(n)

    def _follow_no_more(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    def _scheduler_rpc(self) -> Any:
        return asking(self.place.address, self.place.security, ANSWERING)

    async def _ask(self) -> None:
        await super()._ask()
        async with asyncio.timeout(ANSWERING), self._scheduler_rpc() as scheduler:
            self._idle_since = await scheduler.check_idle()
            events = await scheduler.events(topic="worker-restart-memory")
            answer = await scheduler.run_function(function=pickle.dumps(Travelling(remote.clients)))
        self._clients = tuple(sorted(answer.get("result", ())))
        names = {address: str(each["name"]) for address, each in self._identity.get("workers", {}).items()}
        # Dask's nannies report this before they end a worker.
        self._outgrown = tuple(
            (at, names.get(event["worker"], event["worker"])) for at, event in events if at > self._restarted
        )


class Served(Started):
    """A scheduler that runs in this process, or that an engine starts elsewhere."""

    def __init__(self, spec: ClusterSpec, folder: Path) -> None:
        super().__init__(spec, Place("", *(security.files(folder) if spec.encrypt else ())))
        self._planned, self._folder = spec, folder
        self._requested = spec.n_workers
        self._here: Scheduler | None = None

    async def serve(self, keys: Security | None, **at: str) -> None:
        """Start the scheduler in this process, at an address (`host`) or a network interface (`interface`)."""
        self._here = await Scheduler(
            protocol=f"{self._planned.protocol}://",
            port=0,
            security=keys,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            **at,
        )
        self.found(self._here.address)
        self.dashboard = dashboard.hide(self._here, self._folder)
        dashboard.connect_when_asked(self._here)

    def found(self, address: str) -> None:
        """Set the address of the scheduler, once it is known."""
        self.address, self.place = address, self.place._replace(address=address)

    async def finished(self) -> str:
        assert self._here is not None
        await self._here.finished()
        return "the scheduler was closed, by a client's shutdown()"

    async def gone(self) -> str | None:
        return None  # `finished` reports it

    async def close(self) -> None:
        await super().close()
        if self._here is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._here.close(), _CLOSING)

    def owner_of(self, worker: Mapping[str, Any]) -> str:
        """Return the name of the unit, such as a job, that the engine started for this worker."""
        return str(worker["name"])

    def leaving(self, names: Sequence[str], surplus: int) -> list[str]:
        """Return the units to end: first those without a worker, latest first, then those with the fewest tasks."""
        busy = dict.fromkeys(names, -1)
        for worker in self._identity.get("workers", {}).values():
            tasks = worker.get("metrics", {}).get("task_counts", {})
            if (name := self.owner_of(worker)) in busy:
                busy[name] = max(0, busy[name]) + sum(n for state, n in tasks.items() if state != "memory")
        return sorted(names, key=lambda name: (busy[name], -names.index(name)))[:surplus]

    async def retire(self, names: Sequence[str]) -> None:
        """Retire the workers of these units: they hand over their data and leave."""
        workers = [each["name"] for each in self._identity.get("workers", {}).values() if self.owner_of(each) in names]
        if workers:
            async with self._scheduler_rpc() as scheduler:
                await scheduler.retire_workers(names=workers, close_workers=True, remove=True)


def another_python(theirs: str) -> str | None:
    """Return a message if the scheduler has another minor version of Python; None if not, or if it is unknown."""
    said = apart([("there", {"python": theirs})], {"python": platform.python_version()}) if theirs else None
    return said and (
        f"It can be watched, but what runs sends code, which works only in the same minor version: {said}. Work in an "
        f"environment with Python {minor(theirs)}."
    )


def abouts(place: Place) -> list[About]:
    """Return the environments of the scheduler and the workers."""
    return _asked(place, ask_all)


def _asked(place: Place, question: Callable[[Client], T]) -> T:
    from distributed import Client

    client: Client
    without_dasks_table()
    with Client(place.address, security=place.security, timeout=ANSWERING, set_as_default=False) as client:
        return question(client)


def measured(spec: ClusterSpec, workers: list[dict[str, Any]], machine: Mapping[str, Any] | None) -> ClusterSpec:
    """Return the spec with the workers' actual sizes; if they differ, the smallest counts for each."""
    if not workers:
        return spec
    total = machine["memory"]["total"] if machine else psutil.virtual_memory().total
    # Memory that a worker without a limit may use.
    without = max(1, total // len(workers))
    measured = spec.measured([(int(each["nthreads"]), int(each["memory_limit"] or without)) for each in workers])
    return measured.model_copy(update={"n_workers": len(workers)})
