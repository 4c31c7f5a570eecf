"""Recording during a run: the cluster's events, and the progress."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from workbench.clusters import records
from workbench.errors import NotFoundError
from workbench.jobs import folders
from workbench.jobs.records import Writer
from workbench.linalg.keys import pass_in
from workbench.monitor.energy import Energy, Meter
from workbench.runs.run import Count, Progress, Run
from workbench.sent_code import standstill

if TYPE_CHECKING:
    from distributed import Client

    from workbench.monitor.events import Batch
    from workbench.monitor.feed import Feed

_INTERVAL = 0.1  # seconds
_PROGRESS_INTERVAL = 0.5  # seconds
_STILL = 30.0
"""Seconds without an ended or new task, after which we check that the workers reach each other."""


class Recording:
    """Recording of the cluster's events during a run, from `start` to `stop`; the file is complete at the block's end.

    The writing is done in a thread. `on_batch` is called with each batch as well, in the client's event loop: it must
    be quick. `alone` says that this process does nothing else, so that pyarrow may do without pandas for good.
    """

    def __init__(self, path: Path, on_batch: Callable[[Batch], None] | None = None, *, alone: bool = False) -> None:
        self._path = path
        self._alone = alone
        self._on_batch = on_batch
        self._feed: Feed | None = None
        self._meter = Meter()
        self._counts: Mapping[str, Mapping[str, int]] = {}
        self.groups: set[str] = set()
        """Groups of tasks that were computed for this client."""
        self._latest = Progress()
        self.stage: Any = None
        """Value for `Progress.stage`: the activity of this process."""
        self.problem: str | None = None
        """What the record lacks, and why, in a message; None where it is whole, at the end of the block."""
        self._waiting: deque[Batch] = deque()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._record, name="recorder")

    def start(self, client: Client) -> None:
        """Start to record this client's computations, and what others do meanwhile."""
        from workbench.monitor.feed import Feed
        from workbench.monitor.record import fill_first_table

        # Done before the run, since the first batch would otherwise use the processors that the run needs.
        fill_first_table(without_pandas=self._alone)
        self._feed = Feed(client, self._receive, separate=True).start()
        self._thread.start()

    def stop(self) -> None:
        """End recording; everything up to now is in the feed, and will be written."""
        if self._feed is not None:
            self._feed.close()
        self._ended.set()

    def energy(self) -> Energy | None:
        """Energy of the GPUs until `stop`; None without any."""
        return self._meter.energy()

    def progress(self) -> Progress:
        """Progress of this client's computation, by the scheduler's last report."""
        by_name = {
            name: Count(done=count["done"] + count["erred"], total=count["total"])
            for name, count in sorted(self._counts.items())
        }
        done, total = (sum(getattr(count, of) for count in by_name.values()) for of in ("done", "total"))
        passes = max(map(pass_in, list(self.groups)), default=0)
        now = Progress(done=done, total=total, by_name=by_name, passes=passes, stage=self.stage)
        self._latest = now.after(self._latest)
        return self._latest

    def reporting(self, writer: Writer[Run], client: Client) -> contextlib.AbstractContextManager[None]:
        """Write a run's progress a few times a second until the block ends, with the reason if it stands still."""
        run = writer.record
        # A workload of several passes makes the graph of each when the one before has ended.
        self._latest = before = Progress(more=((run.needs or {}).get("n_rounds") or 1) > 1)
        due = time.monotonic() + _STILL

        def report() -> None:
            nonlocal before, due
            now = self.progress()
            if now == before and time.monotonic() < due:
                return
            waits = _why_it_waits(run, client) if now == before and now.done < now.total else None
            before, due = now, time.monotonic() + _STILL
            writer.note_while_active(progress=now.model_copy(update={"waits": waits}))

        return folders.meanwhile(report, _PROGRESS_INTERVAL, "progress")

    def _receive(self, batch: Batch) -> None:
        from distributed.utils import key_split_group

        self._meter.feed(batch.gpus)
        if batch.progress is not None:
            self._counts = batch.progress.counts
        own = batch.tasks.take(np.flatnonzero(batch.tasks.own))
        self.groups.update(map(key_split_group, own.table["key"].to_pylist()))
        self._waiting.append(batch)
        if self._on_batch is not None:
            self._on_batch(batch)

    def _record(self) -> None:
        from workbench.monitor.record import Recorder

        with Recorder(self._path) as recorder:
            ended = False
            while not ended:
                ended = self._ended.wait(_INTERVAL)
                while self._waiting:
                    recorder.write(self._waiting.popleft())
        self.problem = recorder.problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()


def _why_it_waits(run: Run, client: Client) -> str | None:
    """Return why a run stands still: its cluster's message if all its jobs have ended, or our own finding."""
    # The user may have deleted it.
    with contextlib.suppress(NotFoundError):
        record = records.read(run.cluster)
        if not record.can_compute and record.jobs:
            return record.warning
    return standstill(client)


def diagnose(writer: Writer[Run], problem: str | None = None) -> None:
    """Add the diagnosis to a run's record, after the answer is saved and the events are complete.

    If it can't be written, each reader of the run finds it again. `problem` describes gaps in the record of events.
    """
    from workbench.runs.explaining.diagnosis import diagnosis

    notes = (*writer.record.notes, problem) if problem else writer.record.notes
    writer.note(diagnosis=diagnosis(writer.record), notes=notes)
