"""What happens on a cluster, as frozen values: tasks, samples of workers, progress.

All times are seconds since the epoch by the scheduler's clock. Tasks come in large numbers, so a `Batch` holds them as
one Arrow table, from where it is received to the file. Samples of workers and GPUs are a few in a batch: values, which
become tables in the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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


TIME = pa.timestamp("us", tz="UTC")

TASKS = pa.schema(
    [
        ("name", pa.string()),
        ("worker", pa.string()),
        ("key", pa.string()),
        ("thread", pa.int64()),
        ("kind", pa.string()),
        ("start", TIME),
        ("duration", pa.int64()),
        ("nbytes", pa.int64()),
        ("status", pa.string()),
        ("source", pa.string()),
    ]
)
"""Columns of a table of tasks, as `workbench.monitor.record` describes them."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of repeated texts: `values[codes[i]]` is its i-th."""

    values: tuple[str, ...]
    codes: npt.NDArray[np.int32]

    def __getitem__(self, index: int) -> str:
        return self.values[self.codes[index]]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Labels:
        """Return the labels of a column, with '' for null."""
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        encoded = encoded.unify_dictionaries().combine_chunks()
        values, codes = encoded.dictionary.to_pylist(), encoded.indices
        if codes.null_count:
            values, codes = [*values, ""], codes.fill_null(len(values))
        return cls(tuple(values), codes.to_numpy().astype(np.int32))


class Tasks:
    """An Arrow table with the columns `TASKS`, one row for each interval, which reads like a sequence of `Task`.

    Its columns are NumPy arrays for who computes with them.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, index: int) -> Task:
        return next(iter(self.take([range(len(self))[index]])))

    def __iter__(self) -> Iterator[Task]:
        rows = self.table.select(["key", "name", "worker", "thread", "nbytes", "status", "source"]).to_pylist()
        times = zip(self.kind.tolist(), self.start.tolist(), self.stop.tolist(), strict=True)
        for row, (kind, start, stop) in zip(rows, times, strict=True):
            yield Task(**row | {"source": row["source"] or ""}, kind=KINDS[kind], start=start, stop=stop)

    def take(self, rows: Any) -> Tasks:
        """Return these rows."""
        return Tasks(self.table.take(pa.array(rows, pa.int64())))

    def replace(self, **columns: Any) -> Tasks:
        """Return these tasks with other values in some columns."""
        table = self.table
        for name, values in columns.items():
            of = TASKS.field(name)
            table = table.set_column(table.column_names.index(name), of, pa.array(values, of.type))
        return Tasks(table)

    @cached_property
    def name(self) -> Labels:
        """Names of the tasks."""
        return Labels.of(self.table["name"])

    @cached_property
    def worker(self) -> Labels:
        """Addresses of the workers."""
        return Labels.of(self.table["worker"])

    @cached_property
    def thread(self) -> npt.NDArray[np.int64]:
        """Identifiers of the threads."""
        return np.asarray(self.table["thread"].to_numpy())

    @cached_property
    def kind(self) -> npt.NDArray[np.int8]:
        """Indices into `KINDS`."""
        kind = Labels.of(self.table["kind"])
        codes = [KINDS.index(value if value in KINDS else "other") for value in kind.values]
        return np.array(codes, np.int8)[kind.codes]

    @cached_property
    def start(self) -> npt.NDArray[np.float64]:
        """Seconds since the epoch."""
        return seconds(self.table["start"])

    @cached_property
    def stop(self) -> npt.NDArray[np.float64]:
        """Seconds since the epoch."""
        return np.asarray((self.table["start"].cast(pa.int64()).to_numpy() + self.table["duration"].to_numpy()) / 1e6)

    @cached_property
    def nbytes(self) -> npt.NDArray[np.int64]:
        """Sizes of the results."""
        return np.asarray(self.table["nbytes"].to_numpy())

    @cached_property
    def erred(self) -> npt.NDArray[np.bool_]:
        """A mask of the tasks that failed."""
        return self._equal("status", "erred")

    @cached_property
    def own(self) -> npt.NDArray[np.bool_]:
        """A mask of the watcher's own tasks."""
        return self._equal("source", "")

    def _equal(self, name: str, value: str) -> npt.NDArray[np.bool_]:
        labels = Labels.of(self.table[name])
        return np.array([each == value for each in labels.values], bool)[labels.codes]


def make_tasks(
    *,
    name: Sequence[str],
    worker: Sequence[str],
    key: Iterable[Any],
    thread: npt.ArrayLike,
    kind: Sequence[str],
    start: npt.ArrayLike,
    stop: npt.ArrayLike,
    nbytes: npt.ArrayLike,
    status: Sequence[str],
    source: Sequence[str | None] | None = None,
) -> Tasks:
    """Return tasks of columns, whose times are in seconds. Keys may be Dask's: strings, tuples, numbers."""
    began, ended = microseconds(start), microseconds(stop)
    columns = {
        "name": name,
        "worker": worker,
        "key": [str(each) for each in key],
        # The identifier of a thread is any number of 64 bits.
        "thread": np.asarray(thread).astype(np.uint64).astype(np.int64),
        "kind": kind,
        "start": began,
        "duration": ended - began,
        "nbytes": np.asarray(nbytes, np.int64),
        "status": status,
        "source": [None] * len(began) if source is None else source,
    }
    return Tasks(pa.table([pa.array(columns[each.name], each.type) for each in TASKS], schema=TASKS))


def microseconds(times: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return seconds as the record has them."""
    return np.round(np.asarray(times, float) * 1e6).astype(np.int64)


def seconds(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return timestamps of the record in seconds."""
    return np.asarray(column.cast(pa.int64()).to_numpy() / 1e6)


NO_TASKS = Tasks(pa.Table.from_batches([], TASKS))


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
