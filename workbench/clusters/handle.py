"""Handle of a cluster: its engine has the workers, and the scheduler answers the rest over Dask's RPC."""

from __future__ import annotations

import asyncio
import contextlib
import math
import pickle
import platform
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import psutil
from distributed.core import Status

from workbench import formats, remote
from workbench.clusters import dashboard
from workbench.clusters.engine import Engine, Job
from workbench.clusters.periodic import repeat
from workbench.clusters.reachability import ANSWERING, CONNECTING, Place, versions_in
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError, whole
from workbench.formats import duration
from workbench.sent_code import (
    About,
    Travelling,
    ask as ask_all,
    differences,
    differing_versions,
    machine_elsewhere,
    minor,
    missing,
    missing_here,
    without_dasks_table,
)

_INTERVAL = 1.0
"""Seconds between two checks of the load, as in Dask's own Adaptive."""
_ARRIVING = 0.05  # seconds between two checks for workers that start
_PATIENT = 3
"""Number of checks in a row that ask for fewer workers before some leave, as in Dask's own Adaptive."""
_AGAIN = 60.0
"""Seconds between two requests for the packages of workers that don't answer."""
_MISSES = 2
"""Number of requests in a row without an answer before the scheduler counts as silent: it may take in a large graph."""


class State(NamedTuple):
    """A cluster as its handle sees it now; fields of the same name are described in `records.ClusterRecord`."""

    arrived: int
    """Number of workers that have arrived."""
    requested: int
    """Number of workers that should be there."""
    pids: tuple[int, ...] = ()
    """Pids of the workers, if they are on this machine."""
    clients: tuple[str, ...] = ()
    idle_since: float | None = None
    """Start of the idle time, in seconds since the epoch; None while the cluster works."""
    trouble: str | None = None
    """Message on why it can't be used at the moment."""
    warning: str | None = None
    spec: ClusterSpec | None = None
    """Spec with what is known of the workers only since they arrived: sizes, missing modules."""
    machine: Mapping[str, Any] | None = None
    jobs: tuple[Job, ...] = ()
    called: str = ""
    ended: str | None = None
    """Reason, if it was ended by a client."""
    lost: str | None = None
    """Message, if it ended otherwise."""


class Handle:
    """A cluster that was started or attached to. Verbs that its engine lacks are never called."""

    def __init__(self, spec: ClusterSpec, engine: Engine) -> None:
        self.engine = engine
        self.place = Place("")
        self.dashboard: str | None = None
        """Address of Dask's own dashboard: our socket, 'unix:<path>', or a remote address."""
        self.versions: Mapping[str, str] = {}
        """Versions of 'python' and 'dask' at the scheduler."""
        self._planned = self._spec = spec
        self._requested: int | None = spec.n_workers if "stop" in engine.can else None
        self._lock = asyncio.Lock()
        self._known: frozenset[str] = frozenset()
        self._next_abouts = 0.0
        self._names: dict[str, str] = {}
        self._machine: Mapping[str, Any] | None = None
        self._missing: Mapping[str, Mapping[str, int]] | None = None
        self._differ: str | None = None
        self._answered = time.monotonic()
        self._misses = 0
        self._clients: tuple[str, ...] = ()
        self._idle_since: float | None = time.time()
        self._restarted = 0.0
        self._outgrown: tuple[tuple[float, str], ...] = ()
        self._following: asyncio.Task[NoReturn] | None = None
        self._fewer = 0
        self._is_filled = False

    async def reachable(self) -> None:
        """Start the scheduler, and return when it answers. Raises FailedError if it doesn't."""
        self.place = self.engine.place = await self.engine.start()
        try:
            identity = await self._ask()
        except (OSError, TimeoutError) as err:
            why = whole(str(err)) or f"nothing came within {duration(ANSWERING)}"
            raise FailedError(
                f"The scheduler at {self.place.address} doesn't answer ({why}). {self.engine.remedy}"
            ) from err
        host = urlsplit(self.place.address).netloc.rpartition(":")[0]
        self.dashboard = self.engine.dashboard
        if not self.engine.can:
            self.dashboard = await dashboard.elsewhere(host, identity)

    async def fill(self) -> None:
        """Return when all workers of the spec have arrived, or some have and the others are known to wait."""
        if "stop" in self.engine.can:
            await self._have(self._planned.n_workers)
            async with self.engine.rpc() as scheduler:
                while not await self._is_up():
                    await asyncio.sleep(_ARRIVING)
                    self.engine.workers = (await asyncio.wait_for(scheduler.identity(), ANSWERING))["workers"]
        self._is_filled = True

    async def _is_up(self) -> bool:
        self.engine.check_start()
        absent = (self._requested or 0) - len(self.engine.workers)
        waiting = sum(job.workers for job in await self.engine.jobs() if job.reason)
        return absent <= 0 or (len(self.engine.workers) > 0 and waiting >= absent)

    async def state(self) -> State:
        """Ask for the state of the cluster."""
        ended = lost = None
        if self.place.address:
            try:
                await self._ask()
            except (OSError, TimeoutError, ValueError):
                # A silent scheduler may be asleep or cut off: keep asking until it is known to have ended.
                self._misses += 1
                ended, lost = await self._over()
        arrived, workers = len(self.engine.workers), self.engine.workers.values()
        requested = arrived if self._requested is None else self._requested
        if workers:
            total = self._machine["memory"]["total"] if self._machine else psutil.virtual_memory().total
            self._spec = self.engine.measured(self._spec, total)
        # Workers of this machine are forked from this process, or started by its Python.
        lacking = self._missing if self._planned.elsewhere else missing_here(arrived)
        trouble = None if arrived else self._without_workers()
        return State(
            arrived=arrived,
            requested=requested,
            pids=self.engine.pids(),
            clients=self._clients,
            idle_since=self._idle_since if self.engine.can else None,
            trouble=self._silence() or trouble or another_python(self.versions.get("python", "")),
            warning=self.engine.trouble() or outgrown(self._outgrown, self._spec) or self._ended() or self._differ,
            spec=self._spec.model_copy(update={"missing": lacking}),
            machine=self._machine,
            jobs=await self.engine.jobs(),
            called=self.engine.called,
            ended=ended,
            lost=lost,
        )

    def _silence(self) -> str | None:
        """Return a message on how long the scheduler has not answered; None if it answers."""
        if self._misses < _MISSES:
            return None
        return f"Its scheduler hasn't answered for {duration(round(time.monotonic() - self._answered))}."

    def _without_workers(self) -> str | None:
        """Return a message on why there are no workers; None if some will arrive."""
        if message := self.engine.trouble():
            return message
        if not self._is_filled or self._following is not None:
            return None
        if not self._requested:
            return "It has no workers."
        return self._ended() or "All of its workers have ended. Scale it to start others, or stop it."

    def _ended(self) -> str | None:
        """Return a message on workers that nothing replaces."""
        started = self.engine.started()
        if started is None or not self._is_filled or self._following is not None:
            return None
        absent = (self._requested or 0) - started
        if absent <= 0:
            return None
        return (
            f"{formats.count(absent, 'worker')} ended for good. Restart the workers, or scale, to have "
            f"{self._requested}."
        )

    async def _over(self) -> tuple[str | None, str | None]:
        """Return why the cluster ended, if a client ended it, and why it is lost otherwise."""
        if not self._is_filled:
            return None, None
        scheduler = self.engine.scheduler
        if scheduler is not None:
            closed = scheduler.status in (Status.closing, Status.closed, Status.failed)
            return "the scheduler was closed, by a client's shutdown()" if closed else None, None
        reason = await self.engine.gone()
        return None, reason if time.monotonic() - self._answered > CONNECTING else None

    async def scale(self, n: int) -> None:
        """Scale to `n` workers; return when leaving workers have handed over their data."""
        self._follow_no_more()
        await self._have(n)
        await self._ask()

    async def adapt(self, minimum: int, maximum: int) -> None:
        """Adapt the number of workers to the load, between two bounds, until `scale` is called."""
        self.engine.check_room(maximum)
        self._follow_no_more()
        self._following = asyncio.create_task(repeat(partial(self._follow, minimum, maximum), _INTERVAL))

    async def restart(self) -> None:
        """Restart all workers, and replace those that have ended."""
        self._restarted = time.time()
        if self._following is None and self._requested is not None:
            await self._have(self._requested)
        async with self.engine.rpc() as scheduler:
            await scheduler.restart(stimulus_id=f"workbench-restart-{time.time()}")

    async def close(self) -> None:
        """End the cluster, or detach from an external one."""
        self._follow_no_more()
        await self.engine.close()

    async def _have(self, n: int) -> None:
        before, self._requested = self._requested, self._rounded(n)
        try:
            self.engine.check_room(self._requested)
            await self.engine.have(self._requested)
        except FailedError:
            self._requested = before
            raise

    def _rounded(self, n: int) -> int:
        return self.engine.group * math.ceil(n / self.engine.group)

    async def _follow(self, minimum: int, maximum: int) -> None:
        """Start as many workers as the load needs: more at once, fewer only after several checks."""
        async with self.engine.rpc() as scheduler:
            target = await scheduler.adaptive_target()
        n, started = self._rounded(min(max(target, minimum), maximum)), self.engine.started()
        started = (self._requested or 0) if started is None else started
        self._fewer = self._fewer + 1 if n < started else 0
        if n != started and self._fewer in (0, _PATIENT):
            self._fewer = 0
            await self._have(n)

    def _follow_no_more(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def _ask(self) -> dict[str, Any]:
        """Ask the scheduler for its identity, which is returned, workers, clients and idle time."""
        async with asyncio.timeout(ANSWERING), self.engine.rpc() as scheduler:
            identity: dict[str, Any] = await scheduler.identity()
            if not self.versions:
                self.versions = versions_in(await scheduler.versions())
            if self.engine.can:
                self._idle_since = await scheduler.check_idle()
                events = await scheduler.events(topic="worker-restart-memory")
                answer = await scheduler.run_function(function=pickle.dumps(Travelling(remote.clients)))
                self._clients = tuple(sorted(answer.get("result", ())))
                # Dask's nannies report this before they end a worker.
                self._names |= {address: str(each["name"]) for address, each in identity["workers"].items()}
                self._outgrown = tuple(
                    (at, self._names.get(event["worker"], event["worker"]))
                    for at, event in events
                    if at > self._restarted
                )
        self.engine.workers = identity["workers"]
        self._answered, self._misses = time.monotonic(), 0
        # A second request at the same time waits for the answers, too.
        async with self._lock:
            is_new = self._planned.elsewhere and bool(frozenset(identity["workers"]) - self._known)
            if is_new and time.monotonic() >= self._next_abouts:
                # Workers that compute without a pause may not answer in time.
                self._next_abouts = time.monotonic() + _AGAIN
                with contextlib.suppress(OSError, TimeoutError):
                    answers = await asyncio.wait_for(asyncio.to_thread(self._abouts), ANSWERING)
                    self._known, self._next_abouts = frozenset(identity["workers"]), 0.0
                    self._machine, self._differ = machine_elsewhere(answers), differences(answers)
                    self._missing = missing(answers)
        return identity

    def _abouts(self) -> list[About]:
        try:
            return abouts(self.place)
        except TypeError as err:
            # An older Dask takes other arguments for the same requests.
            raise FailedError(
                f"The scheduler at {self.place.address} has Dask {self.versions.get('dask')}, which Dask "
                f"{remote.packages()['dask']} can't talk to ({err}). Work in an environment with the scheduler's "
                "version."
            ) from err


def outgrown(events: Sequence[tuple[float, str]], spec: ClusterSpec) -> str | None:
    """Return a warning about workers that Dask restarted because of their memory; None if there were none.

    An event is a time and the name of a worker.
    """
    if not events or spec.memory_limit is None:
        return None
    at, worker = events[-1]
    who = f"Worker {worker} was started again at {formats.moment(at, time.time())}"
    before = f", and workers {formats.count(len(events) - 1, 'time')} before" if len(events) > 1 else ""
    return (
        f"{who}{before}: its data outgrew the {formats.size(spec.memory_limit)} that it may use. What it held is "
        "computed once more. Use smaller chunks, fewer threads a worker, or more memory."
    )


def another_python(theirs: str) -> str | None:
    """Return a message if the scheduler has another minor version of Python; None if not, or if it is unknown."""
    diff = (
        differing_versions([("there", {"python": theirs})], {"python": platform.python_version()}) if theirs else None
    )
    return diff and (
        f"It can be watched, but what runs sends code, which works only in the same minor version: {diff}. Work in an "
        f"environment with Python {minor(theirs)}."
    )


def abouts(place: Place) -> list[About]:
    """Return the environments of the scheduler and the workers."""
    from distributed import Client

    client: Client
    without_dasks_table()
    with Client(place.address, security=place.security, timeout=ANSWERING, set_as_default=False) as client:
        return ask_all(client)
