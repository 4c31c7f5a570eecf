"""The process that computes one run: `python -m workbench.runs.runner RUN`, in the cluster's Python.

It connects, builds the graph, computes it, records the events, checks the answer and writes the record. SIGTERM
cancels. Its output goes to the run's log.txt.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import dask

from workbench import config, hardware, remote
from workbench.clusters import records
from workbench.clusters.engine import queued
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, FailedError, NotFoundError, WorkbenchError
from workbench.formats import listed
from workbench.jobs import folders, processes
from workbench.jobs.ending import Cancelled, cancellable, ignore_cancellation, outcome
from workbench.jobs.records import PATIENCE, Writer
from workbench.runs import answer_storage, block_locations, inputs, store, transfers
from workbench.runs.forecasting import devices
from workbench.runs.forecasting.forecast import foreseen, lacking
from workbench.runs.recording import Recording, diagnose
from workbench.runs.run import Diagnosis, Peak, Progress, Run
from workbench.runs.settings import of_graphs, without_effect
from workbench.sent_code import (
    Travelling,
    check_readable,
    machine_elsewhere,
    make_ready,
    missing,
    unconnected,
    versions,
    without_dasks_table,
)
from workbench.workloads.values import Check, Needs, Parameters

if TYPE_CHECKING:
    from distributed import Client

    from workbench.workloads.registry import Template

_HOST_GONE, _QUEUE_REPORTED = 2.0, 8.0
"""Seconds until a host that shuts down is gone, after its scheduler's connections break; and until a queue reports the
end of a job whose worker is gone."""

_CONNECTING = 30.0  # seconds, as Dask's own clients wait
_LOOKING = 1.0  # seconds between two checks that the cluster and its GPUs are there
_CANCEL_GRACE = 3.0  # seconds that a worker gets to finish the task it is in
_WORKER_ANSWER = 2.0  # seconds that a worker gets to say what it executes


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute the run whose id is the only argument; exit code 0 when it is done, 1 otherwise."""
    (run_id,) = sys.argv[1:] if arguments is None else arguments
    cancellable()
    without_dasks_table()
    run = config.patiently(lambda: store.claim(run_id, **processes.itself()), PATIENCE)
    if run is None:
        return 1
    folder, writer = store.folder(run_id), store.writer(run)
    with folders.signs_of_life(folder), Recording(folder / "events.parquet", alone=True) as recording:
        changes = outcome(lambda: _done(writer, recording), folder, lambda err: _explain(err, writer.record))
        progress = writer.record.progress.model_copy(update={"stage": None})
        # The answer is available before the events are in their final form.
        last_changes = {"progress": progress, "stopped": time.time(), "energy": recording.energy()}
        writer.note(patience=PATIENCE, **last_changes, **changes)
    diagnose(writer, recording.problem)
    return 0 if changes["status"] == "done" else 1


def _done(writer: Writer[Run], recording: Recording) -> dict[str, Any]:
    spec = writer.record.spec
    if spec is not None and spec.alone:
        return _alone(writer, spec)
    with _while_cluster_lasts(writer.record):
        return _compute(writer, recording)


def _alone(writer: Writer[Run], spec: ClusterSpec) -> dict[str, Any]:
    """Compute a run without Dask in this process, and return its outcome, with the most memory that it held."""
    import resource

    from workbench.workloads import without_dask
    from workbench.workloads.lookup import template

    run = writer.record
    chosen, parameters = template(run.workload), _parameters(run)
    inputs.check_unchanged(chosen, run.resolved, run.files)
    to = answer_storage.chosen_target(parameters.save, replace=parameters.replace)
    progress = Progress(done=0, total=1, stage="computing")
    writer.note(status="running", started=time.time(), versions=versions(), progress=progress)
    computed = without_dask.compute(chosen, parameters, spec.profile)
    n_bytes = chosen.needs(parameters).array_bytes
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    peak = Peak(worker=spec.profile, task=run.workload, bytes=most, limit=spec.memory_limit)
    writer.note(
        seconds=computed.seconds,
        bytes=n_bytes,
        result=_finite(computed.result),
        diagnosis=Diagnosis(
            seconds=computed.seconds,
            threads=spec.threads,
            workers=1,
            shares={"computing": 1.0},
            sentence="One process computed, without Dask: there are no tasks to distinguish.",
            peak=peak,
        ),
        progress=progress.model_copy(update={"done": 1, "stage": "checking"}),
    )
    stored = None
    if computed.arrays is not None:
        stored = answer_storage.leave(run.id, computed.arrays, to)
        writer.note(answers=stored.answers, notes=(*run.notes, *stored.notes))
    checked = computed.check()
    ignore_cancellation()
    return _computed(stored and stored.error, checked)


def _compute(writer: Writer[Run], recording: Recording) -> dict[str, Any]:
    from workbench.runs.failures import out_of_reach
    from workbench.workloads import user_functions
    from workbench.workloads.lookup import template

    to, unsaved, run = None, None, writer.record
    with (
        dask.config.set(run.settings or {}),
        _connected(writer) as (client, spec),
        devices.arrays(run.spec),
        block_locations.counted(client, run.id) if _has_gpus(run) else contextlib.nullcontext(),
    ):
        try:
            # A user's function is imported here and nowhere else.
            chosen = (
                template(run.workload) if run.function is None else user_functions.loaded(run.function, run.workload)
            )
            parameters = _parameters(run)
            _check_modules(run, chosen, parameters, spec)
            inputs.check_unchanged(chosen, run.resolved, run.files)
            to = answer_storage.chosen_target(parameters.save, replace=parameters.replace)

            compute = partial(_results, client, recording, chosen, run)
            if run.measurement and not _has_gpus(run):
                # Workers import and compile what they need once, which a part would count a hundred times.
                first = chosen.build(parameters)
                compute(first, chosen.collections(first))
                del first
                gc.collect()  # equal tasks would otherwise still exist on the cluster
            recording.start(client)
            with recording.reporting(writer, client):
                writer.note(status="running", started=time.time())
                since = transfers.clock(client) if chosen.reports_bandwidth else None
                needs = None if run.needs is None else Needs.model_validate(run.needs)
                # A function that computes by itself has no graph to wait for.
                recording.stage = "computing" if chosen.values or chosen.computes else "building"

                def note(estimated: Needs) -> None:
                    nonlocal needs
                    needs = estimated
                    warning = foreseen(chosen, run.parameters, needs, run.spec)
                    writer.note(needs=needs.model_dump(mode="json"), notes=(*run.notes, warning))

                results, collections, seconds = timed(chosen, parameters, compute, note)
            recording.stop()
            on_gpu = block_locations.collected(client, run.id, recording.groups) if _has_gpus(run) else None
            if on_gpu is not None and chosen.by_processors:
                on_gpu |= {"warning": None}
            progress = recording.progress().finished()
            result = chosen.summarise(results)
            if since is not None:
                result |= {"bandwidth": transfers.bandwidth(client, since, gpus=_has_gpus(run))}
            answer = chosen.arrays(results, parameters.resolved)
            unread = without_effect(run.settings or {}, computes=not collections)
            notes = (*writer.record.notes, *chosen.remarks(results), *_twins(run), *filter(None, (unread,)))
            # Saved before the check: an answer whose check fails with an error is still an answer.
            writer.note(
                seconds=seconds,
                bytes=None if needs is None else needs.array_bytes,
                result=_finite(result),
                notes=notes,
                on_gpu=on_gpu,
                progress=progress.model_copy(update={"stage": "saving" if answer else "checking"}),
            )
            if answer:
                stored = answer_storage.leave(run.id, answer, to, client)
                writer.note(
                    answers=stored.answers,
                    notes=(*notes, *stored.notes),
                    progress=progress.model_copy(update={"stage": "checking"}),
                )
                unsaved = stored.error
            elif to is not None:
                unsaved = FailedError(f"its answer has no array, so nothing was written to {to}.")
            checked = chosen.check(parameters, results, client)
            ignore_cancellation()
        except OSError as err:
            if (why := out_of_reach(err, run, client)) is not None:
                raise FailedError(why) from err
            raise
        except Cancelled:
            _free_workers(client)
            answer_storage.clear(run.id, to)
            raise
        finally:
            recording.stop()
    return _computed(unsaved, checked)


def _results(
    client: Client,
    recording: Recording,
    chosen: Template,
    run: Run,
    built: Mapping[str, Any],
    collections: dict[str, Any],
) -> dict[str, Any]:
    """Compute the collections, and return all results: values for small ones, collections for the rest."""
    from workbench.linalg.backend import wait_for_gpus
    from workbench.workloads.registry import on_host

    recording.stage = "computing"
    persisted = _persist(client, collections, optimized_here=bool(of_graphs(run.settings or {})))
    if _has_gpus(run):
        wait_for_gpus(client)
    gathered = chosen.gathered(persisted)
    futures = client.compute([on_host(persisted[name]) for name in gathered])
    return {**built, **persisted, **dict(zip(gathered, client.gather(futures), strict=True))}


def timed(
    chosen: Template,
    parameters: Parameters,
    compute: Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]],
    note: Callable[[Needs], None],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Build the graph and compute it; return the results, the collections and the seconds that both took.

    The estimate of memory from the graph, and the call of `note` with it, aren't timed.
    """
    began = clock()
    built = chosen.build(parameters)
    collections = chosen.collections(built)
    # If the array is computed into memory first, that time doesn't count.
    seconds = clock() - began - (built.get("seconds_to_make") or 0.0)
    if (estimated := chosen.measured(built, parameters.threads_per_worker)) is not None:
        note(estimated)
    began = clock()
    results = compute(built, collections)
    return results, collections, seconds + clock() - began


def _twins(run: Run) -> Iterator[str]:
    """Yield a message if other runs computed the same at the same time."""
    alike = store.select(workload=run.workload, cluster=run.cluster, limit=20)
    ids = [
        each.id
        for each in alike
        if each.id != run.id and each.resolved == run.resolved and (each.stopped or run.created) >= run.created
    ]
    if ids:
        yield (
            f"{listed(ids)} computed the same there at the same time. Dask computes equal tasks once, so this run's "
            "time is not all that they take."
        )


def _computed(unsaved: WorkbenchError | None, checked: Check | None) -> dict[str, Any]:
    status, error = ("done", None) if unsaved is None else ("failed", f"Computed, but: {unsaved}")
    return {"status": status, "error": error, "check": checked}


@contextlib.contextmanager
def _connected(writer: Writer[Run]) -> Iterator[tuple[Client, ClusterSpec | None]]:
    """Connect to the run's cluster and make it run our functions; yield client, spec and what its workers lack now."""
    from workbench.clusters.connect import connect

    run = writer.record
    with connect(run.cluster, client_name=f"run-{run.id}", timeout=_CONNECTING) as client:
        found = make_ready(client)
        if (why := unconnected(client)) is not None:
            raise FailedError(why)
        elsewhere = machine_elsewhere(found)
        # Later forecasts need the hardware in the record.
        inventory = elsewhere or run.inventory or hardware.inventory().model_dump(mode="json")
        writer.note(versions=versions(found), inventory=inventory)
        path = run.resolved.get("path")
        # For a user's function, `path` may be any text.
        read = path if isinstance(path, str) and os.path.isabs(path) else None  # noqa: PTH117
        check_readable(client, read)
        spec = None if run.spec is None else run.spec.model_copy(update={"missing": missing(found)})
        try:
            yield client, spec
        except (FileNotFoundError, BadInputError):
            # The error may come from a worker that joined meanwhile.
            check_readable(client, read)
            raise


def _parameters(run: Run) -> Parameters:
    """Return the parameters as they were checked when the run was submitted."""
    return Parameters(
        workload=run.workload,
        given=run.parameters,
        resolved=run.resolved,
        notes=run.notes,
        preset=run.preset,
        threads_per_worker=(run.spec and run.spec.threads_per_worker) or 1,
        save=run.save,
        replace=run.replace,
    )


def _check_modules(run: Run, chosen: Template, parameters: Parameters, spec: ClusterSpec | None) -> None:
    """Raise FailedError if workers that joined after the run was submitted lack a module."""
    if spec is None or run.spec is None or spec.missing == run.spec.missing:
        return
    if (lacks := lacking(chosen, parameters, spec, run.cluster)) is not None:
        raise FailedError(lacks)


@contextlib.contextmanager
def _while_cluster_lasts(run: Run) -> Iterator[None]:
    """Run the block, and raise FailedError in it as soon as its cluster is lost, or a GPU of it.

    Dask reports it late, or never: a client tries for half a minute to reach a scheduler that was killed, and where a
    worker can't take in a block, because its GPU is gone, the tasks that wait for it wait for ever
    (dask/distributed#6705).
    """
    over, why = threading.Event(), ""

    def watch() -> None:
        nonlocal why
        while not over.wait(_LOOKING):
            why = _lost_cluster(run) or ""
            if why:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                return

    def give_up(*_: object) -> None:
        if not over.is_set():
            over.set()
            raise FailedError(why)

    before = signal.signal(signal.SIGUSR1, give_up)
    watching = threading.Thread(target=watch, name="cluster", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
        signal.signal(signal.SIGUSR1, before)


def _lost_cluster(run: Run) -> str | None:
    """Return how the cluster of a run was lost; None if it is there, or ends normally."""
    # The record may not be readable just now.
    with contextlib.suppress(WorkbenchError):
        if records.read(run.cluster).is_over:
            return _end_of_cluster(run.cluster)
    return None


def _has_gpus(run: Run) -> bool:
    return run.spec is not None and bool(run.spec.devices)


def _persist(client: Client, collections: dict[str, Any], *, optimized_here: bool) -> dict[str, Any]:
    """Compute all collections as one graph, and leave them on the cluster."""
    from distributed.client import futures_of

    if not collections:
        return {}
    values = list(collections.values())
    if optimized_here:
        # The scheduler would optimize with its own settings.
        values = list(dask.optimize(*values))
    persisted = dict(zip(collections, client.persist(values, optimize_graph=not optimized_here), strict=True))
    answer_storage.wait_for(futures_of(list(persisted.values())))
    return persisted


def _free_workers(client: Client) -> None:
    """Release the run's tasks on the workers, and restart only workers that stay in one of them."""
    ignore_cancellation()
    deadline = time.monotonic() + _CANCEL_GRACE
    # They must be free twice in a row, as a task may have been on its way to a worker during the first check.
    n_free = 0
    while n_free < 2:
        stuck = client.sync(_workers_in_unwanted_tasks, client)
        n_free = n_free + 1 if stuck == [] else 0
        if time.monotonic() > deadline:
            if stuck:
                client.restart_workers(stuck, timeout=30, raise_for_error=False)
            return
        time.sleep(0.1)


async def _workers_in_unwanted_tasks(client: Client) -> list[str] | None:
    """Return addresses of workers in tasks that are no longer wanted; None if this run still wanted something."""
    workers = await client.run_on_scheduler(Travelling(remote.worker_addresses))
    answers = await asyncio.gather(*(_executing(client, worker) for worker in workers))
    executing = dict(zip(workers, answers, strict=True))
    return await client.run_on_scheduler(Travelling(remote.unwanted), executing, client.id)


async def _executing(client: Client, worker: str) -> list[Any] | None:
    """Return keys of the tasks that a worker is in, None if it doesn't answer."""
    try:
        request = client.run(Travelling(remote.executing_keys), workers=[worker])
        answers = await asyncio.wait_for(request, _WORKER_ANSWER)
    except (TimeoutError, OSError):
        return None
    return answers.get(worker)


def _explain(error: Exception, run: Run) -> str:
    from workbench.runs.failures import may_be_the_clusters_end, sentence

    # Dask has other errors, too, for a scheduler that was killed during a request.
    # A cluster that was stopped before the run had connected has no record any more.
    stopped = isinstance(error, NotFoundError) and run.cluster not in records.names()
    end = _end_of_cluster(run.cluster) if stopped or may_be_the_clusters_end(error) else _lost_cluster(run)
    return sentence(error, run, end)


def _end_of_cluster(name: str) -> str | None:
    """Return how the cluster ended, or its jobs with their workers; None if all is there."""
    from workbench.clusters.reachability import Place, refuses

    ended, began = f"The cluster {name} ended while the run was going on.", time.monotonic()
    while True:
        try:
            record = records.read(name)
        except NotFoundError:
            return f"{ended} It was stopped."
        if record.status != "ready":
            stopped = "It was stopped." if record.status == "stopping" else None
            return f"{ended} {stopped or record.message or f'It is {record.status}.'}"
        if jobs := [job for job in record.jobs if job.state == "ended"]:
            return (
                f"Jobs of {name} ended while the run was going on: {queued(jobs)}. If their time was up, give a "
                "longer walltime or fewer data."
            )
        if time.monotonic() - began > (_QUEUE_REPORTED if record.jobs else _HOST_GONE):
            # The owner of an attached cluster only checks now and then.
            refused = record.contact and refuses(Place(record.contact))
            return f"{ended} The scheduler at {record.contact} has ended." if refused else None
        time.sleep(0.2)


def _finite(value: Any) -> Any:
    """Return `value` as JSON can hold it: numbers that aren't finite become None."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


if __name__ == "__main__":
    sys.exit(main())
