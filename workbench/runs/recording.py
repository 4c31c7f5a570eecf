"""What a process that computes a run does beside it: records the cluster's events, and gives signs of life."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from workbench.errors import NotFoundError, StorageError
from workbench.monitor.energy import Meter
from workbench.runs import store

if TYPE_CHECKING:
    from distributed import Client

    from workbench.monitor.events import Batch
    from workbench.monitor.feed import Feed

_INTERVAL = 0.1  # seconds

_BEFORE_WRITING = 2.0
_BEFORE_WRITING_ALONE = 20.0
"""Seconds until what writes is loaded: that takes a core for as long as a small run, and 1 % of one of this length."""


class Recording:
    """Records the cluster's events beside a run, from `start` to `stop`; the file is whole at the end of the block.

    The writing is done in a thread, and begins when a small run is over, which so has the processors for itself.

    Parameters
    ----------
    path
        The file of events.
    on_batch
        Called with each batch as well, in the client's event loop: it must be quick.
    alone
        Whether this process does nothing else, so that pyarrow may do without pandas for good.
    """

    def __init__(self, path: Path, on_batch: Callable[[Batch], None] | None = None, *, alone: bool = False) -> None:
        self._path = path
        self._alone = alone
        self._on_batch = on_batch
        self._feed: Feed | None = None
        self._meter = Meter()
        self.problem: str | None = None
        """What the record lacks, and why, in a sentence; None where it is whole, at the end of the block."""
        self._waiting: deque[Batch] = deque()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._record, name="recorder")

    def start(self, client: Client) -> None:
        """Begin to record what this client computes, and what others do meanwhile."""
        from workbench.monitor.feed import Feed

        self._feed = Feed(client, self._receive, apart=True).start()
        self._thread.start()

    def stop(self) -> None:
        """End recording; what happened until now is in the feed, and will be written."""
        if self._feed is not None:
            self._feed.close()
        self._ended.set()

    def energy(self) -> store.Energy | None:
        """What the GPUs took until `stop`; None without any."""
        found = self._meter.energy()
        return None if found is None else store.Energy(**dataclasses.asdict(found))

    def _receive(self, batch: Batch) -> None:
        self._meter.feed(batch.gpus)
        self._waiting.append(batch)
        if self._on_batch is not None:
            self._on_batch(batch)

    def _record(self) -> None:
        ended = self._ended.wait(_BEFORE_WRITING_ALONE if self._alone else _BEFORE_WRITING)
        from workbench.monitor.record import Recorder, leave_pandas_out

        if self._alone:
            leave_pandas_out()
        with Recorder(self._path) as recorder:
            while True:
                while self._waiting:
                    recorder.write(self._waiting.popleft())
                if ended:
                    break
                ended = self._ended.wait(_INTERVAL)
        self.problem = recorder.problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()


def diagnose(run_id: str, problem: str | None = None) -> None:
    """Tell where the time went, when whoever waited for the answer has it, and the events are whole.

    What can't be written is found again by whoever reads the run. `problem` says what the record of events lacks.
    """
    from workbench.runs.explaining.diagnosis import diagnosis

    # It may have been deleted by now.
    with contextlib.suppress(NotFoundError, StorageError):
        run = store.get(run_id)
        notes = (*run.notes, problem) if problem else run.notes
        store.update(run_id, diagnosis=diagnosis(run), notes=notes)


def versions() -> dict[str, str]:
    """Return the versions of what computes here."""
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
