"""Events of a cluster as frozen values: tasks, samples of workers, progress.

All times are seconds since the epoch by the scheduler's clock. There are many tasks, so a `Batch` holds them as one
Arrow table, from the time it is received until it is in the file. Samples of workers and GPUs are few: values, which
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
"""Dask's names for a worker's activities."""


@dataclass(frozen=True, slots=True)
class Task:
    """One interval that a worker spent on one task."""

    key: str
    name: str
    """The key's prefix, such as 'sum-aggregate'; the name of a task on screen."""
    worker: str
    thread: int
    """Identifier of the thread that ran the task; a transfer has that of the task that needed it."""
    kind: str
    start: float
    stop: float
    nbytes: int
    """Size of the task's result."""
    status: str
    """'ok' or 'erred'."""
    source: str = ""
    """Client it was computed for; empty if that is the watcher's own, or doesn't matter."""


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """State of one worker at one time."""

    worker: str
    name: str
    time: float
    cpu: float
    """Percent of one core: 400 if four threads are busy."""
    memory: int
    """Resident memory of the process, bytes."""
    memory_limit: int
    """Bytes; 0 without a limit."""
    spilled: int
    """Bytes on disk."""
    n_executing: int
    n_threads: int = 0
    """Threads of the worker; 0 after it was retired, and in older records."""


@dataclass(frozen=True, slots=True)
class NoGpus:
    """The reason that no GPU of one host of the cluster can be read."""

    host: str
    reason: str
    expected: bool
    """True if the host seems to have a GPU."""


COUNTS = ("total", "done", "erred", "processing")
"""Counts of the tasks of each name: all, succeeded, failed, and on a worker now."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers of tasks of each name, by the keys of `COUNTS`.

    A name is counted from its first task on the scheduler until a new computation starts after the scheduler has
    forgotten all tasks.
    """

    time: float
    counts: Mapping[str, Mapping[str, int]]


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
    """A column of repeated strings: element i is `values[codes[i]]`."""

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
    """An Arrow table with the columns `TASKS`, one row for each interval, and a sequence of `Task`.

    Its columns are also available as NumPy arrays.
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
        """Mask of the tasks that failed."""
        return self._equal("status", "erred")

    @cached_property
    def own(self) -> npt.NDArray[np.bool_]:
        """Mask of the watcher's own tasks."""
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
    """Make tasks from columns, with times in seconds. Keys may be Dask's: strings, tuples, numbers."""
    began, ended = microseconds(start), microseconds(stop)
    columns = {
        "name": name,
        "worker": worker,
        "key": [str(each) for each in key],
        # The identifier of a thread is an unsigned number of 64 bits.
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
    """Convert seconds to the record's unit."""
    return np.round(np.asarray(times, float) * 1e6).astype(np.int64)


def seconds(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Convert timestamps of the record to seconds."""
    return np.asarray(column.cast(pa.int64()).to_numpy() / 1e6)


NO_TASKS = Tasks(pa.Table.from_batches([], TASKS))


@dataclass(frozen=True, slots=True)
class Batch:
    """Events since the previous batch. `time` is the scheduler's when it was sent."""

    time: float
    tasks: Tasks = field(default=NO_TASKS)
    samples: tuple[WorkerSample, ...] = ()
    progress: Progress | None = None
    """None if nothing has changed."""
    recorded: bool = False
    """True for a run's whole record, False for current events."""
    gpus: tuple[GpuSample, ...] = ()
    no_gpus: tuple[NoGpus, ...] | None = None
    """All hosts whose GPUs can't be read now; None if nothing has changed."""
