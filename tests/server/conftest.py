"""A Jupyter server with the extension on it, and a session that starts nothing.

pytest-jupyter is imported here, not named as a plugin, so that its autouse fixtures stay in this folder.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403
from traitlets.config import Config

from tests.views import html_at
from workbench import credentials
from workbench.clusters.budget import Budget
from workbench.clusters.control import Worker
from workbench.clusters.environments import Environment
from workbench.clusters.plan import check_agreed, plan
from workbench.clusters.profiles.lookup import profiles
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, FailedError, NotFoundError
from workbench.figures.patch import Patch
from workbench.hardware import inventory
from workbench.runs import exchange
from workbench.runs.array_budget import Room
from workbench.runs.background_saves import Saving
from workbench.runs.comparing.compare import read_request
from workbench.runs.comparing.comparisons import Comparison, Row, Sample
from workbench.runs.comparing.table import summarise
from workbench.runs.forecasting.forecast import Forecast
from workbench.runs.run import Marks, Run
from workbench.runs.settings import read_settings
from workbench.session import Change
from workbench.storage.formats.base import Held
from workbench.views.service import Service
from workbench.views.watching import Watching
from workbench.workloads.contents import Contents, Dimension

_INVENTORY = inventory()

PATIENCE = 40.0


class FakeTemplate(NamedTuple):
    name: str = "array_sum"
    title: str = "Sum or mean of an array"
    summary: str = "Sums every other number."
    help: str = "Sums every other number of a random array."
    source: str = "def array_sum(size): ..."
    origin: str = "dask-workbench"
    presets: tuple[Any, ...] = ()
    offered: tuple[Any, ...] = ()
    alone: Any = True
    paths: tuple[str, ...] = ("path",)
    pinned: Any = None

    def schema(self) -> dict[str, Any]:
        size, path = {"type": "string", "default": "1GiB"}, {"type": "string", "default": None, "path": True}
        return {"type": "object", "properties": {"size": size, "path": path}}


class FakeSession:
    """A stand-in for Session over two dicts; `touch` replaces a change on disk."""

    def __init__(self) -> None:
        self.records: dict[str, ClusterRecord] = {}
        self.all_runs: dict[str, Run] = {}
        self.all_comparisons: dict[str, Comparison] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.reads = 0
        self.readings = 0
        """Number of times that the machine was read."""
        self.listening = 0
        self.delay = 0.0
        self.told: str | None = None
        """Warning that the user must accept before a run."""
        self.failure: Exception | None = None
        self._touched: deque[asyncio.Event] = deque()

    def add(self, name: str, **fields: Any) -> ClusterRecord:
        spec = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**29)
        values = {"status": "ready", "stage": "ready", "n_workers": 2, "n_workers_expected": 2, "created": time.time()}
        self.records[name] = ClusterRecord(name=name, spec=spec, **(values | fields))
        return self.records[name]

    def change(self, name: str, **fields: Any) -> None:
        self.records[name] = self.cluster(name).model_copy(update=fields)
        self.touch()

    def add_run(self, run_id: str, **fields: Any) -> Run:
        self.all_runs[run_id] = Run(**{"id": run_id, "workload": "array_sum", "cluster": "calm-otter"} | fields)
        return self.all_runs[run_id]

    def touch(self) -> None:
        for event in self._touched:
            event.set()

    def hardware(self) -> Any:
        self.readings += 1
        return _INVENTORY

    def profiles(self, inventory: Any = _INVENTORY) -> Any:
        return profiles(inventory)

    def keep_profile(self, name: str, profile: str, **choices: Any) -> ClusterSpec:
        self.calls.append(("keep", name, profile))
        return self.plan(profile, **choices)

    def write_example(self, path: str) -> None:
        self.calls.append(("write example", path))

    def keep_preset(self, workload: str, name: str, parameters: dict[str, Any]) -> None:
        self.calls.append(("keep preset", workload, name))

    def forget_preset(self, workload: str, name: str) -> None:
        self.calls.append(("forget preset", workload, name))

    def forget_profile(self, name: str) -> None:
        self.calls.append(("forget", name))

    def untrusted(self) -> None:
        return None

    def trust(self, sha: str) -> None:
        self.calls.append(("trust", sha))

    def environments(self) -> tuple[Environment, ...]:
        return (Environment(python="/usr/bin/python3", name="python3", title="Python 3"),)

    def budget(self, inventory: Any = None) -> Budget:
        if inventory is None:
            self.hardware()
        promised = sum(record.spec.memory for record in self.records.values())
        return Budget(limit=8 * 2**30, reserve=2**30, promised=promised, left=7 * 2**30 - promised)

    def plan(self, profile: str, inventory: Any = None, /, **choices: Any) -> ClusterSpec:
        if inventory is None:
            self.hardware()
        return plan(profile, _INVENTORY, **choices)

    def start(
        self, spec: ClusterSpec, *, name: str | None = None, force: bool = False, agreed: bool = False
    ) -> ClusterRecord:
        self.calls.append(("start", name, force))
        check_agreed(self.told, agreed)
        if name in self.records:
            raise ConflictError(f"There is a cluster {name!r} already.")
        self.records[name or "calm-otter"] = ClusterRecord(name=name or "calm-otter", spec=spec, created=time.time())
        self.touch()
        return self.records[name or "calm-otter"]

    confirm = staticmethod(credentials.confirm)

    def clusters(self) -> tuple[ClusterRecord, ...]:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return tuple(self.records.values())

    def cluster(self, name: str) -> ClusterRecord:
        if name not in self.records:
            raise NotFoundError(f"There is no cluster {name!r}. There are: {', '.join(self.records) or 'none'}.")
        return self.records[name]

    @property
    def control(self) -> FakeSession:
        """Object that the server uses to control clusters."""
        return self

    async def scale(self, name: str, n_workers: int, *, force: bool = False) -> ClusterRecord:
        if n_workers < 0:
            raise BadInputError(f"n_workers is {n_workers}. Give a whole number, 0 or more.")
        await asyncio.sleep(self.delay)
        self.change(name, n_workers_expected=n_workers)
        return self.records[name]

    async def adapt(self, name: str, minimum: int, maximum: int, *, force: bool = False) -> ClusterRecord:
        self.change(name, adaptive=(minimum, maximum))
        return self.records[name]

    async def restart_workers(self, name: str) -> ClusterRecord:
        self.calls.append(("restart", self.cluster(name).name))
        await asyncio.sleep(self.delay)
        if self.delay:
            raise FailedError(f"The workers of {name} did not come back.")
        return self.records[name]

    async def restart_worker(self, name: str, worker: str) -> ClusterRecord:
        self.calls.append(("restart", (self.cluster(name).name, worker)))
        return self.records[name]

    async def workers(self, name: str) -> list[Worker]:
        self.cluster(name)
        return [Worker(f"tcp://{n}", str(n), 1, 50.0 - n, 2**30 + n, 2**31, 0, n, 0.5) for n in range(3)]

    async def profile(self, name: str) -> dict[str, Any]:
        frame = {"description": {"name": "<dot>", "filename": "a.py", "line_number": 7}, "count": 3, "children": {}}
        return {"count": 4, "children": {"dot": frame}}

    async def logs(self, name: str) -> dict[str, str]:
        return {"host": f"{self.cluster(name).name} started", "scheduler": "", "tls://127.0.0.1:40001": "a worker"}

    async def stop(self, record: ClusterRecord) -> None:
        await asyncio.sleep(self.delay)
        del self.records[record.name]
        self.touch()

    async def stop_all(self) -> tuple[str, ...]:
        names = tuple(self.records)
        self.records.clear()
        self.touch()
        return names

    def workloads(self, *, wait: bool = True) -> tuple[FakeTemplate, ...]:
        return (FakeTemplate(),)

    def workload(self, name: str) -> FakeTemplate:
        return FakeTemplate()

    def look(self, path: str, **server: Any) -> Contents:
        if path != "winds.nc":
            raise BadInputError(f"{path} isn't there.")
        held = Held(name="u", shape=(3, 4), dtype="float64", n_bytes=96, dims=("time", "lat"))
        dimensions = (Dimension(name="time", length=3, first="1990", last="1992"), Dimension(name="lat", length=4))
        choices = {"variable": ("u",), "samples": ("time", "lat")}
        return Contents(path=path, format="HDF5", n_bytes=100, arrays=(held,), dimensions=dimensions, choices=choices)

    def broken_workloads(self, *, wait: bool = True) -> tuple[Any, ...]:
        return ()

    def forecast(self, workload: str, parameters: dict[str, Any], cluster: str | None = None) -> Forecast:
        if workload != "array_sum":
            raise NotFoundError(f"There is no workload {workload!r}. There are: array_sum.")
        if parameters.keys() - {"size"}:
            raise BadInputError("Unknown parameter. Allowed: size.")
        fits = None if cluster is None else True
        given = {"size": "1GiB", **parameters}
        return Forecast(given, ("Chunks of 128 MiB.",), {"input_bytes": 2**30}, fits, "1 GiB.", None)

    def run(
        self, workload: str, parameters: dict[str, Any], cluster: str, *, force: bool = False, settings: Any = None
    ) -> Run:
        read_settings(settings or {})
        self.cluster(cluster)
        self.forecast(workload, parameters)
        return self.add_run(f"run-{len(self.all_runs)}", parameters=parameters)

    def measure(self, workload: str, parameters: dict[str, Any], cluster: str) -> Run:
        return self.run(workload, parameters, cluster)

    def runs(
        self,
        *,
        limit: int | None = 50,
        offset: int = 0,
        workload: str | None = None,
        status: str | None = None,
        cluster: str | None = None,
        text: str | None = None,
    ) -> tuple[Run, ...]:
        if status not in (None, "starting", "running", "done"):
            raise BadInputError(f"status: given {status!r}, allowed are starting, running, done.")
        found = [run for run in self.all_runs.values() if status in (None, run.status) and (text or "") in run.id]
        found = [run for run in found if cluster in (None, run.cluster)]
        return tuple(found[offset:][:limit])

    def count_runs(self, **asked: str | None) -> int:
        return len(self.runs(limit=None, **asked))

    def mark_run(self, run: str, **marks: Any) -> Run:
        kept = Marks.model_validate({key: value for key, value in marks.items() if value is not None})
        return self.add_run(run, marks=kept, status=self.show(run).status)

    def show(self, run: str) -> Run:
        if run not in self.all_runs:
            raise NotFoundError(f"There is no run {run!r}.")
        return self.all_runs[run]

    def log(self, run: str) -> str:
        return f"log of {self.show(run).id}"

    def cancel(self, run: str) -> Run:
        self.all_runs[run] = self.show(run).model_copy(update={"status": "cancelled"})
        return self.all_runs[run]

    def export_run(self, run: str, path: Path, *, with_answers: bool = False) -> Path:
        return exchange.export_run(self.show(run), path, with_answers=with_answers)

    def import_run(self, path: str) -> Run:
        return exchange.import_run(Path(path), new_id=True)

    def save_run(self, run: str, path: str, kind: str | None = None, **_: Any) -> Saving:
        return Saving(run=self.show(run).id, path=path, kind=kind or "npz")

    def cancel_saving(self, run: str) -> Saving:
        return Saving(run=self.show(run).id, path="out.npz", kind="npz", status="running", done=3, total=12)

    def room(self) -> Room:
        return Room(950, 1000, ("done",))

    def delete_run(self, run: str) -> None:
        if self.show(run).active:
            raise ConflictError(f"The run {run} is still going on.")
        del self.all_runs[run]

    def forecast_comparison(self, workload: str, **given: Any) -> str:
        return "4 runs. Expected time: unknown."

    def compare(self, workload: str, *, agreed: bool, **given: Any) -> Comparison:
        request = read_request({"workload": workload, **given})
        check_agreed("UCX listens on all network interfaces." if "ucx --workers 2" in request.on else None, agreed)
        self.forecast(workload, request.parameters)
        return self.add_comparison("compare-new", request=request, status="starting", rows=())

    def compare_runs(self, runs: list[str]) -> Comparison:
        rows = tuple(Row(on=name, label=name, workload=self.show(name).workload) for name in runs)
        return self.add_comparison("compare-past", mode="past", rows=rows)

    def add_comparison(self, name: str, **fields: Any) -> Comparison:
        spec = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**29)
        check = {"passed": True, "what": "The mean is 11."}
        sample = Sample(run="r1", seconds=1.5, bytes=2**30, result={"value": 11.0}, check=check)
        rows = tuple(
            Row(on=on, label=on, workload="array_sum", spec=spec, samples=(sample,)) for on in ("cpu", "<ucx>")
        )
        values = {"workload": "array_sum", "status": "done", "rows": rows, "created": 1.0}
        self.all_comparisons[name] = Comparison(id=name, **values | fields)
        return self.all_comparisons[name]

    def comparisons(self, *, limit: int | None = 50) -> tuple[Comparison, ...]:
        return tuple(self.all_comparisons.values())[:limit]

    def comparison(self, name: str) -> Comparison:
        if name not in self.all_comparisons:
            raise NotFoundError(f"Unknown comparison {name!r}.")
        return self.all_comparisons[name]

    def summary(self, comparison: Comparison) -> Any:
        return summarise(comparison)

    def cancel_comparison(self, name: str) -> Comparison:
        return self.add_comparison(self.comparison(name).id, status="cancelled")

    def delete_comparison(self, name: str) -> None:
        if self.comparison(name).active:
            raise ConflictError(f"{name} is still going on.")
        del self.all_comparisons[name]

    async def changes(self) -> AsyncIterator[set[Change]]:
        event = asyncio.Event()
        self._touched.append(event)
        self.listening += 1
        try:
            while True:
                await event.wait()
                event.clear()
                yield {Change("cluster", "any")}
        finally:
            self.listening -= 1
            self._touched.remove(event)


class Here:
    """Stands for Looking: asks a session that opens nothing at once, in this process."""

    def __init__(self, session: FakeSession) -> None:
        self._session = session

    async def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._session, method)(*args, **kwargs)

    def begin(self) -> None: ...

    def close(self) -> None: ...


class FakeFigure:
    """Draws the times of the batches it was fed; a batch of a negative time takes a mebibyte to draw."""

    def __init__(self, theme: str, name: str, simulated: bool) -> None:
        self.fed: list[float] = []

    def feed(self, batches: list[Any]) -> None:
        self.fed.extend(batch.time for batch in batches)

    def patches(self) -> list[Patch]:
        fed, self.fed = self.fed, []
        columns = {"time": fed} | ({"much": ["x" * 2**20]} if any(time < 0 for time in fed) else {})
        return [Patch("tasks", "stream", columns)] if fed else []

    def show_range(self, start: float, end: float, width: int) -> list[Patch]:
        return [Patch("tasks", "replace", {"range": [start, end, width]})]


class FakeFeeds:
    """Opens feeds that say what the test hands them; counts how many are open."""

    def __init__(self) -> None:
        self.open: dict[str, Callable[[Any], None]] = {}
        self.opened = itertools.count()
        self.failure: Exception | None = None

    @asynccontextmanager
    async def __call__(self, name: str, on_batch: Callable[[Any], None]) -> AsyncIterator[None]:
        if self.failure is not None:
            raise self.failure
        next(self.opened)
        self.open[name] = on_batch
        try:
            yield
        finally:
            del self.open[name]


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def feeds() -> FakeFeeds:
    return FakeFeeds()


@pytest.fixture
def make_watching(feeds: FakeFeeds) -> Callable[..., Watching]:
    return lambda session, base_url, log: Watching(
        session, base_url, log, open_feed=feeds, make_figure=FakeFigure, linger=0.05
    )


@pytest.fixture
def jp_server_config(session: FakeSession, make_watching: Callable[..., Watching]) -> Config:
    """Configure a server with the fakes, which requires a login."""
    return Config(
        {
            "ServerApp": {
                "jpserver_extensions": {"workbench": True},
                "allow_unauthenticated_access": False,
                "tornado_settings": {
                    "workbench_session": lambda: session,
                    "workbench_watching": make_watching,
                    "workbench_looking": Here,
                },
            }
        }
    )


class Answer(NamedTuple):
    status: int
    content: Any
    headers: Any


@pytest.fixture
def api(jp_fetch: Any) -> Callable[..., Any]:
    """Return a function that asks for an address below workbench/api and returns the answer with any status."""

    async def send(verb: str, path: str, body: Any = None, **options: Any) -> Answer:
        response = await jp_fetch(
            "workbench",
            "api",
            *path.split("/"),
            method=verb,
            body=None if body is None else json.dumps(body),
            raise_error=False,
            follow_redirects=False,
            allow_nonstandard_methods=True,
            **options,
        )
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        return Answer(
            response.code, json.loads(response.body) if is_json and response.body else response.body, response.headers
        )

    return send


class Page:
    """The browser's end of a stream."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self._ids = itertools.count()

    async def send(self, **message: Any) -> None:
        await self.socket.write_message(json.dumps(message))

    async def next(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next message of this type with these fields, skipping others."""
        async with asyncio.timeout(PATIENCE):
            while True:
                text = await self.socket.read_message()
                assert text is not None, "the server closed the connection"
                message: dict[str, Any] = json.loads(text)
                if message["type"] == kind and fields.items() <= message.items():
                    return message

    async def act(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the answer to an action: its value, or a message."""
        id_ = next(self._ids)
        await self.send(type="action", id=id_, name=name, arguments=arguments)
        answer = await self.next("answer", id=id_)
        return {key: value for key, value in answer.items() if key not in ("type", "id")}

    async def waiting(self) -> list[dict[str, Any]]:
        """All that comes until nothing has come for a while."""
        found = []
        while True:
            try:
                text = await asyncio.wait_for(self.socket.read_message(), 0.3)
            except TimeoutError:
                return found
            found.append(json.loads(text))


@pytest.fixture
def open_page(jp_ws_fetch: Callable[..., Any]) -> Callable[[], Any]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Page]:
        socket = await jp_ws_fetch("workbench", "api", "stream")
        try:
            yield Page(socket)
        finally:
            socket.close()

    return opened


@pytest.fixture
def act(open_page: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function that has a page of its own perform an action, and returns the answer."""

    async def acted(name: str, /, **arguments: Any) -> Any:
        async with open_page() as page:
            return await page.act(name, **arguments)

    return acted


@pytest.fixture
def service(jp_serverapp: Any) -> Service:
    """Return the services of the server."""
    found: Service = jp_serverapp.web_app.settings["workbench_service"]
    return found


DONE = {"value": None}
"""Answer to an action without a result."""


html_of = html_at


async def read_state(service: Service) -> None:
    """Have the server read its state now."""
    await (await service.watching()).state.read()
