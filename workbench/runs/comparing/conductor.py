"""The process that conducts one comparison: `python -m workbench.runs.comparing.conductor ID`.

Starts the clusters, warms them up, measures in rounds, each in a different order, saves each time at once, and stops
the clusters that it started. SIGTERM ends it in good order. Its output goes to the comparison's log.txt.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from workbench import config, formats, private
from workbench.clusters import control, records
from workbench.clusters.launch import launch
from workbench.clusters.records import ClusterRecord
from workbench.errors import NotFoundError, WorkbenchError
from workbench.jobs import folders, processes
from workbench.jobs.ending import CANCEL_PATIENCE
from workbench.jobs.records import PATIENCE, Writer
from workbench.redaction import redact
from workbench.runs import submit
from workbench.runs.comparing import comparisons
from workbench.runs.comparing.compare import with_lease
from workbench.runs.comparing.comparisons import Comparison, Row, Sample, places
from workbench.runs.run import Run

_POLL = 0.2  # seconds between two checks for this comparison's turn


def main(arguments: Sequence[str] | None = None) -> int:
    """Conduct the comparison whose id is the only argument; return the exit code, 0 if anything was measured."""
    (comparison_id,) = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return asyncio.run(_main(comparison_id))


async def _main(comparison_id: str) -> int:
    task = asyncio.current_task()
    assert task is not None
    book = Book(comparisons.get(comparison_id))
    cancelled = asyncio.Event()

    def cancel() -> None:
        # A second signal must not interrupt the stopping of clusters.
        if not cancelled.is_set():
            cancelled.set()
            task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel)
    book.note(status="running", started=time.time(), **processes.itself())
    try:
        if folders.end_requested(comparisons.folder(comparison_id)):
            cancel()
        with folders.signs_of_life(comparisons.folder(comparison_id)):
            async with _turn(book):
                await conduct(book)
        outcome = _outcome(book.comparison)
    except asyncio.CancelledError:
        outcome = {"status": "cancelled", "error": "It was cancelled. What was measured until then is kept."}
    except Exception as err:  # noqa: BLE001  the one place where a conductor turns errors into messages
        with contextlib.suppress(OSError):  # of a log on a full disk
            print(redact(traceback.format_exc()), end="", file=sys.stderr)
        outcome = {
            "status": "failed",
            "error": str(err)
            if isinstance(err, WorkbenchError)
            else f"Something went wrong ({err!r}). The comparison's log.txt says more.",
        }
    book.note(stage=None, now=None, stopped=time.time(), **outcome)
    return 0 if outcome["status"] == "done" else 1


class Book:
    """The comparison in progress; each change is saved before the next step."""

    def __init__(self, comparison: Comparison) -> None:
        self._writer = Writer(comparisons.folder(comparison.id), comparison)

    @property
    def comparison(self) -> Comparison:
        """Current state of the comparison."""
        return self._writer.record

    def note(self, **changes: Any) -> None:
        """Change fields of the comparison. If that can't be saved now, it is saved with the next change."""
        ends = changes.get("status", "running") not in folders.ACTIVE
        self._writer.note(patience=PATIENCE if ends else 0, **changes)

    def note_row(self, index: int, *, done: int = 0, **changes: Any) -> None:
        """Change fields of a row, and count `done` more runs. A row with a `reason` isn't measured any more."""
        rows = list(self.comparison.rows)
        rows[index] = rows[index].model_copy(update=changes)
        self.note(rows=tuple(rows), done=self.comparison.done + done)

    def measurable(self, place: str | None = None) -> list[int]:
        """Return the indices of rows that can be measured, of all lines or of one."""
        rows = enumerate(self.comparison.rows)
        return [index for index, row in rows if row.reason is None and place in (None, row.on)]


@contextlib.asynccontextmanager
async def _turn(book: Book) -> AsyncIterator[None]:
    """Run the block while no other comparison computes on this machine. Comparisons elsewhere don't wait."""
    specs = [row.spec for row in book.comparison.rows if row.reason is None and row.spec is not None]
    if all(spec.elsewhere for spec in specs):
        yield
        return
    # The lock is also released when the process that has it dies.
    with config.writing(comparisons.turn_file()):
        descriptor = private.open_file(comparisons.turn_file())
    try:
        while not private.take(descriptor):
            if book.comparison.stage is None:
                book.note(stage="waiting for another comparison")
            await asyncio.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)


async def conduct(book: Book) -> None:
    """Measure all rows, in the comparison's mode."""
    request = book.comparison.request
    assert request is not None
    if book.comparison.mode == "side by side":
        async with contextlib.AsyncExitStack() as stack:
            book.note(stage="starting clusters")
            # If cancelled, it ends after each has stopped what it started.
            async with asyncio.TaskGroup() as starting:
                for place in places(book.comparison.rows):
                    starting.create_task(stack.enter_async_context(_up(book, place)))
            await _warm_up(book, book.measurable())
            for round_ in range(request.repeats):
                await _measure(book, round_, book.comparison.order(book.measurable(), round_))
            book.note(stage="stopping clusters", now=None)
        return
    for round_ in range(request.repeats):
        for place in book.comparison.order(places(book.comparison.rows), round_):
            if book.measurable(place):
                book.note(stage="starting clusters", now=f"round {round_ + 1} of {request.repeats}: {place}")
                async with _up(book, place):
                    await _warm_up(book, book.measurable(place))
                    await _measure(book, round_, book.comparison.order(book.measurable(place), round_))


@contextlib.asynccontextmanager
async def _up(book: Book, place: str) -> AsyncIterator[None]:
    """Run the block with the cluster of a line, which either runs already or ends with the block."""
    index = places(book.comparison.rows).index(place)
    rows = [number for number, row in enumerate(book.comparison.rows) if row.on == place]
    row = book.comparison.rows[rows[0]]
    name = row.cluster
    assert row.spec is not None
    if place.startswith("--cluster") or row.spec.alone:
        yield
        return
    name = comparisons.cluster_name(book.comparison.id, index)
    try:
        try:
            # Agreed to before the comparison was submitted.
            await _surely(launch, with_lease(row.spec), name=name, agreed=True, group=book.comparison.id)
            await _wait(book, place, name)
        except WorkbenchError as err:
            for number in rows:
                book.note_row(number, reason=str(err).partition("\n")[0])
        else:
            for number in rows:
                book.note_row(number, cluster=name)
        yield
    finally:
        await asyncio.shield(_stop(name))


async def _wait(book: Book, place: str, name: str) -> None:
    """Wait until the cluster of a line is ready; note its time in a queue, which isn't part of any measured time."""
    since: list[float] = []

    def note(record: ClusterRecord) -> None:
        if record.queued and not since:
            since.append(time.monotonic())

    record = await control.wait(name, note)
    waits = [job.waited for job in record.jobs if job.waited is not None]
    # If the queue doesn't report it, the measured time includes the start of Python.
    waited = max(waits) if waits else time.monotonic() - since[0] if since else 0.0
    if waited > 0:
        message = f"{place} waited {formats.duration(waited)} in its queue, which is in no time here."
        book.note(notes=(*book.comparison.notes, message))


async def _stop(name: str) -> None:
    with contextlib.suppress(NotFoundError):
        await control.stop(await asyncio.to_thread(records.read, name))


async def _warm_up(book: Book, rows: Sequence[int]) -> None:
    assert book.comparison.request is not None
    book.note(stage="warming up")
    for _ in range(book.comparison.request.warmup):
        await _compute(book, rows, "warming up", lambda row, run: {"warmups": (*row.warmups, run.id)})


async def _measure(book: Book, round_: int, rows: Sequence[int]) -> None:
    assert book.comparison.request is not None
    book.note(stage="measuring")
    now = f"round {round_ + 1} of {book.comparison.request.repeats}:"
    await _compute(book, rows, now, lambda row, run: {"samples": (*row.samples, sample_of(run, round_))})


async def _compute(book: Book, rows: Sequence[int], now: str, fields_of: Callable[[Row, Run], dict[str, Any]]) -> None:
    """Run each row once and save the fields from `fields_of`; a row that fails isn't measured any more."""
    for index in rows:
        row = book.comparison.rows[index]
        if row.reason is not None:
            continue
        book.note(now=f"{now} {row.title}")
        run = await _run(book, index)
        if run is not None:
            book.note_row(index, done=1, versions=run.versions, **fields_of(book.comparison.rows[index], run))
            if run.status != "done":
                book.note_row(index, reason=run.error or f"Its run {run.id} is {run.status}.")


async def _run(book: Book, index: int) -> Run | None:
    """Run a row once; return None if it can't start. If cancelled, cancel the run and wait for its end."""
    row: Row = book.comparison.rows[index]
    assert row.cluster is not None
    assert row.spec is not None
    inventory = book.comparison.inventory
    try:
        if row.spec.alone:
            run = submit.submit_alone(row.workload, row.parameters, row.spec, inventory=inventory)
        else:
            record = await asyncio.to_thread(records.read, row.cluster)
            run = submit.submit(
                row.workload, row.parameters, record, inventory=inventory, sha=row.sha, settings=row.settings
            )
    except WorkbenchError as err:
        book.note_row(index, reason=str(err))
        return None
    try:
        return await submit.wait(run.id)
    except asyncio.CancelledError:
        with contextlib.suppress(WorkbenchError):
            submit.cancel(run.id)
        await submit.wait(run.id, timeout=CANCEL_PATIENCE)
        raise


async def _surely(function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """Call a function in a thread, to its end even if cancelled, so that what it starts can be stopped."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **named))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def sample_of(run: Run, round_: int = 0) -> Sample:
    """Return a run as a sample of a comparison."""
    return Sample(
        run=run.id,
        round=round_,
        status=run.status,
        seconds=run.seconds if run.status == "done" else None,
        bytes=run.bytes,
        result=run.result,
        check=run.check,
        energy=None if run.energy is None else run.energy.joules,
        price_per_hour=(run.forecast or {}).get("price_per_hour"),
        error=run.error,
    )


def _outcome(comparison: Comparison) -> dict[str, Any]:
    # Each row has the reason of its failure.
    return {"status": "done" if any(row.seconds for row in comparison.rows) else "failed"}


if __name__ == "__main__":
    sys.exit(main())
