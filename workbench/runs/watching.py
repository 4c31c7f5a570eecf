"""Watch a Dask client's computations, and store them as a run: `with workbench.watch(): …`.

Nothing is computed here. The user's own code runs unchanged, on any Dask cluster, and the cluster's work is recorded
as in any run.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from workbench.clusters import records
from workbench.errors import BadInputError, named, quoted
from workbench.jobs import folders, processes
from workbench.jobs.folders import Status
from workbench.jobs.records import PATIENCE
from workbench.monitor.events import KINDS, Batch
from workbench.runs import store
from workbench.runs.recording import Recording, diagnose
from workbench.runs.run import WATCHED, Run
from workbench.sent_code import ask, machine_elsewhere, versions

if TYPE_CHECKING:
    from distributed import Client

    from workbench.clusters.start import Cluster

_COMPUTE = KINDS.index("compute")
_LONGEST_SOURCE = 2_000  # characters
_LONGEST_NAME = 80  # characters


def watch(
    client: Client | Cluster | None = None, *, name: str | None = None, tags: Mapping[str, str] | None = None
) -> Watching:
    """Record a Dask client's computations within a `with` block, and store them in the history of runs.

    Parameters
    ----------
    client
        Any Dask client, even one unknown to this package, or the result of `workbench.start`; None is Dask's current
        client.
    name
        Name of the run in the history. Runs of one name are repeats, which `workbench compare
        --runs NAME OTHER` compares.
    tags
        Further facts to store with it, such as {"git": "3fa29c"}.

    Raises
    ------
    BadInputError
        There is no client, or one that is closed or asynchronous.

    Examples
    --------
    >>> x = da.ones((4000, 4000), chunks=1000)
    >>> with workbench.watch(name="sum of a transpose") as run:
    ...     run.answer = (x + x.T).sum().compute()
    >>> run.result
    {'tasks': 38, 'tasks_of_others': 0, 'value': 32000000.0}
    """
    return Watching(client, name=name, tags=tags, source=_source_of(sys._getframe(1)))


class Watching:
    """Recorder of a client's computations between `with` and the end of the block; then it reads like its `Run`.

    `source` is the watched code, which is stored with the run. `on_batch` is called with each batch of events, in
    the client's event loop: it must be quick. See `watch` for the others.
    """

    def __init__(
        self,
        client: Client | Cluster | None = None,
        *,
        name: str | None = None,
        source: str | None = None,
        tags: Mapping[str, str] | None = None,
        on_batch: Callable[[Batch], None] | None = None,
    ) -> None:
        self.client = _usable(client)
        self.id = folders.new_id(WATCHED)
        self._parameters = _parameters(name, source) | ({"tags": _read_tags(tags)} if tags else {})
        self._answer: dict[str, Any] = {}
        self._on_batch = on_batch
        self._n_tasks = 0
        self._n_of_others = 0
        self._began = 0.0
        self._seconds: float | None = None
        self._blocks, self._reporting = contextlib.ExitStack(), contextlib.ExitStack()

    @property
    def run(self) -> Run:
        """Current state of the run."""
        return self._writer.record

    def __getattr__(self, name: str) -> Any:
        if name not in Run.model_fields:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.run, name)

    def __repr__(self) -> str:
        return f"<{self.id}: {self.run.status}>"

    @property
    def answer(self) -> dict[str, Any]:
        """Result to store: set it within the block to a value, or a tuple or dict of values."""
        return dict(self._answer)

    @answer.setter
    def answer(self, value: Any) -> None:
        from workbench.workloads import function_results

        found = function_results.named(value, "the answer")
        if function_results.collections(found):
            raise BadInputError("The answer isn't computed yet. Give values: run.answer = x.compute().")
        self._answer = function_results.values(found)

    @property
    def name(self) -> str | None:
        """Name of the run."""
        return self._parameters.get("name")

    def stop(self) -> None:
        """Stop recording before the end of the block; all events have arrived when this returns."""
        if self._seconds is not None:
            return
        self._seconds = time.perf_counter() - self._began
        # The cluster may have ended; then all its events have arrived already.
        with contextlib.suppress(OSError, TimeoutError):
            self._recording.stop()
        self._reporting.close()

    def __enter__(self) -> Self:
        self._writer = store.writer(run := self._create())
        self._recording = recording = Recording(store.folder(run.id) / "events.parquet", self._receive)
        try:
            self._blocks.callback(lambda: diagnose(self._writer, recording.problem))
            self._blocks.enter_context(recording)
            self._blocks.enter_context(folders.signs_of_life(store.folder(run.id)))
            recording.start(self.client)
        except BaseException as err:
            self._end("failed", named(err))
            raise
        recording.stage = "computing"
        self._reporting.enter_context(recording.reporting(self._writer, self.client))
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        status, sentence = _outcome(error)
        self._end(status, sentence, seconds=self._seconds, energy=self._recording.energy())

    def _create(self) -> Run:
        from workbench.hardware import inventory
        from workbench.runs.forecasting.forecast import actual_spec

        address = self.client.scheduler.address
        # None if the user made the cluster without this package.
        record = next((each for each in records.read_all() if each.scheduler_address == address), None)
        # The address doesn't identify the machine: behind a tunnel, 127.0.0.1 is another one.
        found = ask(self.client)
        now = time.time()
        return store.create(
            Run(
                id=self.id,
                workload=WATCHED,
                parameters=self._parameters,
                resolved=self._parameters,
                status="running",
                cluster=record.name if record else address,
                spec=None if record is None else actual_spec(record),
                inventory=machine_elsewhere(found) or inventory().model_dump(mode="json"),
                versions=versions(found),
                created=now,
                started=now,
                **processes.itself(),
                **processes.here(),
            )
        )

    def _end(self, status: Status, error: str | None, **changes: Any) -> None:
        result: dict[str, Any] = {"tasks": self._n_tasks, "tasks_of_others": self._n_of_others}
        result |= {f"{name}_" if name in result else name: value for name, value in self._answer.items()}
        self._recording.stage = None
        changes |= {"status": status, "error": error, "stopped": time.time(), "progress": self._recording.progress()}
        with self._blocks:
            if not self._writer.note(result=result, **changes):
                late = {"patience": PATIENCE}
                threading.Thread(target=self._writer.note, kwargs=late, name="late", daemon=True).start()

    def _receive(self, batch: Batch) -> None:
        tasks = batch.tasks
        if len(tasks):
            computed = tasks.kind == _COMPUTE
            self._n_tasks += int((computed & tasks.own).sum())
            self._n_of_others += int((computed & ~tasks.own).sum())
        if self._on_batch is not None:
            self._on_batch(batch)


def current_client() -> Client | None:
    """Return Dask's current client, None if computations run in threads of this process."""
    from distributed import Client

    try:
        return Client.current()
    except ValueError:
        return None


def _usable(client: Client | Cluster | None) -> Client:
    from distributed import Client

    from workbench.clusters.start import client_of

    usable = current_client() if client is None else client_of(client)
    if usable is None:
        raise BadInputError(
            "There is no Dask client, so computations run in threads of this process, where nothing can be watched. "
            "Make one first: client = workbench.connect('calm-otter'), or distributed.Client()."
        )
    if not isinstance(usable, Client):
        raise BadInputError(
            f"{quoted(usable)} is not a Dask client. Give one, such as workbench.connect('calm-otter') or "
            "distributed.Client()."
        )
    if usable.asynchronous:
        raise BadInputError("The client is asynchronous, which can't be watched. Make one without asynchronous=True.")
    if usable.status != "running":
        raise BadInputError(f"The client is {usable.status}, so there is nothing to watch. Make a new one.")
    return usable


def _parameters(name: str | None, source: str | None) -> dict[str, Any]:
    if name is not None and (not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME):
        raise BadInputError(f"name: given {quoted(name)}, allowed are texts of 1 to {_LONGEST_NAME} characters.")
    if source is not None and len(source) > _LONGEST_SOURCE:
        source = f"{source[:_LONGEST_SOURCE]}…"
    return {key: value for key, value in (("name", name), ("source", source)) if value is not None}


def _read_tags(tags: Mapping[str, str]) -> dict[str, str]:
    texts = {str(name): str(value) for name, value in tags.items()} if isinstance(tags, Mapping) else {}
    if not texts or any(len(text) > _LONGEST_NAME for pair in texts.items() for text in pair):
        raise BadInputError(f"tags: given {quoted(tags)}. Give names and texts, such as {{'git': '3fa29c'}}.")
    return texts


def _outcome(error: BaseException | None) -> tuple[Status, str | None]:
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "done", None
    if isinstance(error, KeyboardInterrupt):
        return "cancelled", None
    return "failed", named(error)


def _source_of(frame: FrameType) -> str | None:
    """Return the text of the `with` statement that a frame is in, None if it isn't available."""
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = "".join(linecache.getlines(name, frame.f_globals))
    try:
        blocks = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.With)]
    except SyntaxError:
        return None
    around = [node for node in blocks if node.lineno <= line <= node.body[0].lineno]
    if not around:
        return None
    block = ast.get_source_segment(text, max(around, key=lambda node: node.lineno))
    where = f"# {Path(name).name}, line {line}\n" if Path(name).exists() else ""
    return f"{where}{block}"
