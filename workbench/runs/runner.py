"""The process that computes one run: `python -m workbench.runs.runner RUN`, in the cluster's Python.

It connects, builds the graph, computes it, records what happened, checks the answer and writes it all down. SIGTERM
cancels. What it prints goes to the run's log.txt.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import psutil

from workbench.runs import store
from workbench.runs.counting import GroupCount, finished, group_counts, progress_of
from workbench.runs.forecast import size_of
from workbench.runs.store import Check, Progress, Run

if TYPE_CHECKING:
    from distributed import Client

_PROGRESS_INTERVAL = 0.2  # seconds
_CANCEL_GRACE = 3.0  # seconds that a worker gets to finish the task it is in
_WORKER_ANSWER = 2.0  # seconds that a worker gets to say what it executes


class Cancelled(BaseException):
    """Somebody asked this run to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute the run whose id is the only argument; exit code 0 when it is done, 1 otherwise."""
    (run_id,) = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, _raise_cancelled)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = store.claim(run_id, os.getpid(), psutil.Process().create_time())
    if run is None:
        return 1
    try:
        if store.cancel_requested(run_id):
            raise Cancelled
        with _sign_of_life(run_id):
            changes = _compute(run)
    except Cancelled:
        changes = {"status": "cancelled", "error": None}
    except Exception as err:  # noqa: BLE001  the one place where a runner turns what went wrong into a sentence
        _ignore_cancellation()
        traceback.print_exc()
        changes = {"status": "failed", "error": _explain(err, store.get(run_id))}
    _ignore_cancellation()
    run = store.get(run_id)
    store.update(run_id, only_if=store.ACTIVE, **{"progress": run.progress, "stopped": time.time(), **changes})
    return 0 if changes["status"] == "done" else 1


@contextlib.contextmanager
def _sign_of_life(run_id: str) -> Iterator[None]:
    ended = threading.Event()

    def beat() -> None:
        store.give_sign_of_life(run_id)
        while not ended.wait(store.HEARTBEAT):
            store.give_sign_of_life(run_id)

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _compute(run: Run) -> dict[str, Any]:
    from workbench.clusters.connect import connect
    from workbench.workloads.registry import template

    with connect(run.cluster, client_name=f"run-{run.id}") as client:
        try:
            chosen = template(run.workload)
            parameters = chosen.validate(run.parameters, **size_of(run.spec))
            run = store.update(run.id, status="running", started=time.time(), versions=_versions())
            with _recording(client, run), _Counter(client, run) as counter:
                began = time.perf_counter()
                counter.stage = "building"
                collections = chosen.build(parameters)
                counter.stage = "computing"
                results = _results(client, collections, chosen.gathered(parameters))
                seconds = time.perf_counter() - began
                counter.count()
            progress = finished(counter.progress)
            store.write_progress(run, progress.model_copy(update={"stage": "checking"}))
            checked = chosen.check(parameters, results, client)
            _ignore_cancellation()
        except Cancelled:
            _free_workers(client)
            raise
        n_bytes = run.needs["bytes_processed"] if run.needs else None
        return {
            "status": "done",
            "seconds": seconds,
            "bytes": n_bytes,
            "bytes_per_second": n_bytes / seconds if n_bytes is not None else None,
            "result": _finite(chosen.summarise(results)),
            "check": Check(passed=bool(checked.passed), what=checked.what),
            "progress": progress.model_copy(update={"stage": None}),
        }


def _results(client: Client, collections: dict[str, Any], gathered: Sequence[str]) -> dict[str, Any]:
    """Compute all collections as one graph; those named in `gathered` come back as values, the rest stay there."""
    from distributed.client import futures_of

    persisted = dict(zip(collections, client.persist(list(collections.values())), strict=True))
    _wait(futures_of(list(persisted.values())))
    values = client.gather(client.compute([persisted[name] for name in gathered]))
    return persisted | dict(zip(gathered, values, strict=True))


def _wait(futures: Sequence[Any]) -> None:
    """Wait for all of them, and no longer than for the first that failed."""
    from distributed.client import as_completed

    for batch in as_completed(futures).batches():
        for future in batch:
            if future.status != "finished":
                future.result()


class _Counter:
    """Writes a run's progress a few times a second, from `with` until the end of the block."""

    def __init__(self, client: Client, run: Run) -> None:
        self.stage: Any = None
        self._client = client
        self._run = run
        # A group whose tasks are all forgotten is no longer told of by the scheduler, but it was done.
        self._seen: dict[str, GroupCount] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    @property
    def progress(self) -> Progress:
        """What was counted last."""
        return progress_of(list(self._seen.values())).model_copy(update={"stage": self.stage})

    def count(self) -> None:
        """Ask the scheduler."""
        counts = self._client.run_on_scheduler(group_counts, self._client.id)
        self._seen.update({group[0]: group for group in counts})

    def _watch(self) -> None:
        before = None
        while not self._ended.wait(_PROGRESS_INTERVAL):
            try:
                self.count()
            except Exception:  # noqa: BLE001  without a connection the main thread says so; here counting just ends
                return
            if self.progress != before and not self._ended.is_set():
                store.write_progress(self._run, self.progress)
            before = self.progress

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=1)


@contextlib.contextmanager
def _recording(client: Client, run: Run) -> Iterator[None]:
    """Record the cluster's events beside the run."""
    from workbench.monitor.feed import Feed
    from workbench.monitor.record import Recorder

    with Recorder(store.folder(run.id) / "events.parquet") as recorder, Feed(client, on_batch=recorder.write):
        yield


def _free_workers(client: Client) -> None:
    """Take the run's tasks from the workers; those that stay in one of them are restarted, and no others."""
    from distributed.client import Future

    _ignore_cancellation()
    client.cancel([Future(key, client) for key in list(client.futures)])
    deadline = time.monotonic() + _CANCEL_GRACE
    while stuck := client.sync(_workers_in_cancelled_tasks, client):
        if time.monotonic() > deadline:
            client.restart_workers(stuck, timeout=30, raise_for_error=False)
            return
        time.sleep(0.1)


async def _workers_in_cancelled_tasks(client: Client) -> list[str]:
    """Addresses of workers whose threads are in a task that nobody wants any more, or that don't even answer."""
    import asyncio

    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    answers = await asyncio.gather(*(_ask(client, worker) for worker in workers))
    return [worker for worker, busy in zip(workers, answers, strict=True) if busy]


async def _ask(client: Client, worker: str) -> bool:
    import asyncio

    try:
        answer = await asyncio.wait_for(client._run(in_cancelled_task, workers=[worker]), _WORKER_ANSWER)
    except (TimeoutError, OSError):
        return True
    return any(answer.values())


def in_cancelled_task(dask_worker: Any) -> bool:
    """Whether a thread of this worker computes a task that was cancelled; runs on the worker."""
    tasks = list(dask_worker.state.executing) + list(dask_worker.state.long_running)
    return any(task.state == "cancelled" for task in tasks)


def _explain(error: Exception, run: Run) -> str:
    from workbench.runs.failures import lost_connection, sentence

    return sentence(error, run, _end_of_cluster(run.cluster) if lost_connection(error) else None)


def _end_of_cluster(name: str) -> str | None:
    """How the cluster ended, None while it is there."""
    from workbench.clusters import records
    from workbench.errors import NotFoundError

    # A host that goes down takes a moment to be gone; its scheduler's connections break first.
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            record = records.read(name)
        except NotFoundError:
            return "It was stopped."
        if record.status != "ready":
            return record.message or f"It is {record.status}."
        time.sleep(0.2)
    return None


def _versions() -> dict[str, str]:
    import platform

    import dask
    import distributed
    import numpy

    from workbench import __version__

    packages = {"dask": dask, "distributed": distributed, "numpy": numpy}
    return {
        "python": platform.python_version(),
        "workbench": __version__,
        **{name: package.__version__ for name, package in packages.items()},
    }


def _finite(value: Any) -> Any:
    """`value` as JSON can hold it: what isn't a finite number becomes None."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _raise_cancelled(*_: object) -> None:
    _ignore_cancellation()
    raise Cancelled


def _ignore_cancellation() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
