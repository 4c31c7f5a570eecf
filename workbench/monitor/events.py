"""What happens on a cluster, as frozen values: tasks, samples of workers, progress.

All times are seconds since the epoch by the scheduler's clock. What comes in large numbers is kept in columns:
a `Batch` holds its tasks as one `Tasks`, which reads like a sequence of `Task`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.hardware.gauges import GpuSample

KINDS = ("compute", "transfer", "disk-read", "disk-write", "deserialize", "other")
"""What a worker can spend a task's time on, in Dask's words."""


@dataclass(frozen=True, slots=True)
class Task:
    """One interval that a worker spent on one task."""

    key: str
    name: str
    """The key's prefix, such as 'sum-aggregate': what a task is called on screen."""
    worker: str
    thread: int
    """Identifier of the thread that ran the task; a transfer bears that of the task it was made for."""
    kind: str
    start: float
    stop: float
    nbytes: int
    """Size of the task's result."""
    status: str
    """'ok' or 'erred'."""
    source: str = ""
    """Client it was computed for; empty where that is the watcher's own, or doesn't matter."""


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """How one worker was doing at one time."""

    worker: str
    name: str
    time: float
    cpu: float
    """Percent of one core: 400 where four threads are busy."""
    memory: int
    """Resident memory of the process, bytes."""
    memory_limit: int
    """0 where the worker has none."""
    spilled: int
    """Bytes on disk."""
    n_executing: int
    n_threads: int = 0
    """0 from when it was asked to leave on; older records tell none."""


@dataclass(frozen=True, slots=True)
class NoGpus:
    """Why no GPU of one host of the cluster can be read."""

    host: str
    reason: str
    expected: bool
    """Whether there seems to be a GPU; False on a host that has none."""


COUNTS = ("total", "done", "erred", "processing")
"""What is counted of the tasks of each name: all, those that ended well or failed, and those on a worker now."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tasks of each name there are, as `COUNTS` says.

    A name is counted from the moment its first task reaches the scheduler until a new computation starts on a
    scheduler that had forgotten all tasks before it.
    """

    time: float
    counts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Links:
    """What belongs together: tasks by what they need, workers by what they send to each other."""

    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of tasks that those of a name need the results of."""
    speeds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Bytes per second by receiver and sender: Dask's moving mean of messages above 1 MB."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of repeated texts: `values[codes[i]]` is its i-th."""

    values: tuple[str, ...]
    codes: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> str:
        return self.values[self.codes[index]]

    def __iter__(self) -> Iterator[str]:
        return map(self.values.__getitem__, self.codes.tolist())

    def take(self, rows: npt.NDArray[np.intp]) -> Labels:
        """These rows of the column."""
        return Labels(self.values, self.codes[rows])


def labels(texts: Sequence[str]) -> Labels:
    """`texts` as a column that holds each of them once."""
    codes: dict[str, int] = {}
    column = np.fromiter((codes.setdefault(text, len(codes)) for text in texts), np.int32, len(texts))
    return Labels(tuple(codes), column)


@dataclass(frozen=True, slots=True)
class Tasks:
    """Columns of `Task`, one row for each interval."""

    key: Sequence[Any]
    """Keys as Dask or Arrow have them: strings, tuples, scalars. `str` makes the text."""
    name: Labels
    worker: Labels
    thread: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    """Indices into `KINDS`."""
    start: npt.NDArray[np.float64]
    stop: npt.NDArray[np.float64]
    nbytes: npt.NDArray[np.int64]
    erred: npt.NDArray[np.bool_]
    source: Labels | None = None
    """None where it is empty for all."""

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, index: int) -> Task:
        return Task(
            key=str(self.key[index]),
            name=self.name[index],
            worker=self.worker[index],
            thread=int(self.thread[index]),
            kind=KINDS[self.kind[index]],
            start=float(self.start[index]),
            stop=float(self.stop[index]),
            nbytes=int(self.nbytes[index]),
            status="erred" if self.erred[index] else "ok",
            source="" if self.source is None else self.source[index],
        )

    def __iter__(self) -> Iterator[Task]:
        return map(self.__getitem__, range(len(self)))

    def take(self, rows: npt.NDArray[np.intp]) -> Tasks:
        """These rows of all columns."""
        numbers = {name: getattr(self, name)[rows] for name in ("thread", "kind", "start", "stop", "nbytes", "erred")}
        return Tasks(
            key=[self.key[row] for row in rows.tolist()],
            name=self.name.take(rows),
            worker=self.worker.take(rows),
            source=None if self.source is None else self.source.take(rows),
            **numbers,
        )

    @property
    def own(self) -> npt.NDArray[np.bool_]:
        """Whether each is the watcher's own."""
        if self.source is None:
            return np.ones(len(self), bool)
        return np.array([not value for value in self.source.values], bool)[self.source.codes]


def tasks(rows: Sequence[Task]) -> Tasks:
    """`rows` as columns."""
    return Tasks(
        key=[row.key for row in rows],
        name=labels([row.name for row in rows]),
        worker=labels([row.worker for row in rows]),
        thread=np.array([row.thread for row in rows], np.int64),
        kind=np.array([KINDS.index(row.kind) for row in rows], np.int8),
        start=np.array([row.start for row in rows], float),
        stop=np.array([row.stop for row in rows], float),
        nbytes=np.array([row.nbytes for row in rows], np.int64),
        erred=np.array([row.status == "erred" for row in rows], bool),
        source=labels([row.source for row in rows]) if any(row.source for row in rows) else None,
    )


NO_TASKS = tasks(())


@dataclass(frozen=True, slots=True)
class Batch:
    """What happened since the batch before. `time` is the scheduler's when it was sent."""

    time: float
    tasks: Tasks = field(default=NO_TASKS)
    samples: tuple[WorkerSample, ...] = ()
    progress: Progress | None = None
    """None where nothing has changed."""
    recorded: bool = False
    """Whether this is all that was recorded of a run, rather than what happens now."""
    gpus: tuple[GpuSample, ...] = ()
    no_gpus: tuple[NoGpus, ...] | None = None
    """All hosts whose GPUs can't be read, by now; None where nothing has changed."""
    links: Links | None = None
    """None where nothing has changed."""
