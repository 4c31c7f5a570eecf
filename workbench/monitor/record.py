"""Events of a run on disk: an Arrow stream while it runs, one Parquet file at the end.

The file is one table with one row for each event, in the order of arrival. Each kind of event fills its own
columns and leaves the others null. Any reader of Parquet can use it: `pandas.read_parquet("events.parquet")`. This is
version 3, the value of the key `dask-workbench` in the file's metadata:

===============  ======  ==================================================================================
column           event   meaning
===============  ======  ==================================================================================
event            all     'task', 'worker' or 'progress'
time             all     when the scheduler sent the event; for a worker, when the worker was measured
name             all     task name (the key's prefix), or the worker's name
worker           t, w    address of the worker
key              t       the task's key as text
thread           t       identifier of the thread in that worker
kind             t       'compute', 'transfer', 'disk-read', 'disk-write', 'deserialize' or 'other'
start, duration  t       the interval that was spent; the duration in µs
nbytes           t       size of the task's result, bytes
status           t       'ok' or 'erred'
cpu              w       percent of one core
memory           w       resident memory, bytes
memory_limit     w       bytes, 0 without a limit
spilled          w       bytes on disk
n_executing      w       tasks being executed
n_threads        w       threads that execute tasks
total            p       tasks of this name so far
done             p       of these, finished
erred            p       of these, failed
processing       p       of these, on a worker now
source           t       client of another computation on the same cluster; null for the run's own tasks
===============  ======  ==================================================================================

`time` and `start` are timestamps in µs since the epoch (UTC) by the scheduler's clock. In a large record, each task
takes ten to thirty bytes: repeated values are stored once, and growing ones as differences.
Samples of GPUs are in a separate file: `gpu_record`. `workbench.runs.exchange` describes a run's other files.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from workbench.errors import BadInputError, DamagedError, NotFoundError
from workbench.monitor.events import (
    COUNTS,
    TASKS,
    TIME,
    Batch,
    Labels,
    NoGpus,
    Progress,
    Tasks,
    WorkerSample,
    microseconds,
    seconds,
)
from workbench.monitor.gpu_record import ADDED, SCHEMA as GPU_SCHEMA, gpu_path, gpu_table, with_gpus

VERSION = 3
"""Version of the files that this module writes."""

SCHEMA = pa.schema(
    [
        ("event", pa.string()),
        ("time", TIME),
        *(field for field in TASKS if field.name != "source"),
        ("cpu", pa.float64()),
        ("memory", pa.int64()),
        ("memory_limit", pa.int64()),
        ("spilled", pa.int64()),
        ("n_executing", pa.int64()),
        ("n_threads", pa.int64()),
        ("total", pa.int64()),
        ("done", pa.int64()),
        ("erred", pa.int64()),
        ("processing", pa.int64()),
        ("source", pa.string()),
    ],
    metadata={"dask-workbench": str(VERSION)},
)

_REPEATED = ["event", "time", "name", "worker", "thread", "kind", "status", "nbytes", "source"]
_GROWING = ["start", "duration"]
_ROWS = 250_000
"""Rows that are packed at a time: more would take memory, fewer would store repeated values more often."""

_MOST_WAITING = 2**27
"""Limit in bytes of events that wait for room on the disk: some millions of tasks."""


class Recorder:
    """Writer of batches to `path` (Parquet) as they arrive, so that a killed process loses at most its last batch.

    Until `close` the events are in a stream next to `path`, which `read_events` reads as well. Give `write` to a
    feed: `Feed(client, on_batch=recorder.write)`. While the disk can't be written to, events wait in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._events = _Stream(path, SCHEMA)
        self._gpus: _Stream | None = None
        self._closed = False
        self.problem: str | None = None
        """Message on gaps of the record and their cause, set by `close`; None if it is complete."""

    def write(self, batch: Batch) -> None:
        """Add a batch, unless the recorder is closed."""
        table, gpus = pa.concat_tables(_tables(batch)), gpu_table(batch)
        with self._lock:
            if self._closed:
                return
            self._events.write(table)
            if gpus is not None:
                self._gpus = self._gpus or _Stream(gpu_path(self.path), GPU_SCHEMA)
                self._gpus.write(gpus)

    def close(self) -> None:
        """Turn the stream into a Parquet file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            why = self._events.close() or (self._gpus and self._gpus.close())
        if why:
            self.problem = f"The record of what its workers did has gaps: it could not be written ({why})."
        # Without room for the file, the stream stays and can be read as well.
        with contextlib.suppress(OSError):
            finish_recording(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Stream:
    """Arrow stream next to the Parquet file that is made from it at the end."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = _stream_path(path)
        self._file: io.FileIO | None = None
        self._waiting = io.BytesIO()
        self._problem: str | None = None
        self._has_gaps = False
        self._writer = pa.ipc.new_stream(self._waiting, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._flush()

    def write(self, table: pa.Table) -> None:
        if self._waiting.tell() > _MOST_WAITING and not self._flush():
            self._has_gaps = True
            return
        for part in table.combine_chunks().to_batches():
            self._writer.write_batch(part)
        self._flush()

    def close(self) -> str | None:
        """Write all waiting events; return the reason if some are missing, else None."""
        self._writer.close()
        complete = self._flush()
        if self._file is not None:
            self._file.close()
        return self._problem if self._has_gaps or not complete else None

    def _flush(self) -> bool:
        """Write as much of the waiting bytes as possible, as readers accept a cut stream; return whether all fit."""
        rest = self._waiting.getvalue()
        try:
            if self._file is None:
                self._file = self._path.open("wb", buffering=0)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as err:
            self._problem = err.strerror or str(err)
        self._waiting.seek(0)
        self._waiting.truncate()
        self._waiting.write(rest)
        return not rest


def finish_recording(path: Path) -> None:
    """Make the Parquet file `path` from the stream next to it, even if the stream's writer was killed."""
    _finish(gpu_path(path), GPU_SCHEMA, compression="zstd")
    _finish(
        path,
        SCHEMA,
        compression="zstd",
        compression_level=6,
        use_dictionary=_REPEATED,
        column_encoding=dict.fromkeys(_GROWING, "DELTA_BINARY_PACKED"),
    )


def _finish(path: Path, schema: pa.Schema, **options: Any) -> None:
    stream = _stream_path(path)
    if not stream.exists():
        return
    temporary = path.with_name(f".{path.name}")
    try:
        with pyarrow.parquet.ParquetWriter(temporary, schema, **options) as writer:
            for batches in _gathered(_read_stream(stream)):
                writer.write_table(pa.Table.from_batches(batches, schema))
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    stream.unlink()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _ROWS:
            yield waiting
            waiting = []
    yield waiting


def fill_first_table(*, without_pandas: bool = False) -> None:
    """Make pyarrow import pandas now, as it would with its first value; that takes half a second.

    `without_pandas` makes pyarrow do without it for good, which suits processes of this package only.
    """
    hidden = _Hidden("pandas")
    if without_pandas:
        sys.meta_path.insert(0, hidden)
    try:
        pa.scalar(0)
    finally:
        if without_pandas:
            sys.meta_path.remove(hidden)


class _Hidden(MetaPathFinder):
    """An import hook that hides a module from the thread that created it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == self._name and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)


def read_events(path: Path) -> Batch:
    """Read all events recorded at `path` as one batch, even if the run is in progress or was killed.

    Raises NotFoundError if nothing was recorded, and DamagedError if the file can't be read. Damaged rows are left
    out, and `no_gpus` reports a damaged file of GPUs.
    """
    with _readable(path), _opened(path, SCHEMA) as read:
        if read is None:
            raise NotFoundError(f"No events were recorded at {path}.")
        events = _batch(read)
    try:
        with _readable(gpu_path(path)), _opened(gpu_path(path), GPU_SCHEMA) as read:
            return events if read is None else with_gpus(events, read(GPU_SCHEMA.names))
    except DamagedError as err:
        return replace(events, no_gpus=(NoGpus("", str(err), expected=True),))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the many errors of reading a file into a DamagedError."""
    try:
        if path.exists():
            check_record(path, most_rows=2**62, most_bytes=2**62)
        yield
    except NotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, BadInputError) as err:
        reason = str(err).splitlines()[0][:120] if str(err) else type(err).__name__
        raise DamagedError(f"{path.name} can't be read, so what it held is lost: it {reason}") from err


def check_record(path: Path, *, most_rows: int, most_bytes: int) -> None:
    """Check, before reading, that a Parquet file is a record of events or of GPUs that this version can read.

    Raises BadInputError if it isn't, with a message that continues the file's name, and pyarrow.ArrowException if it
    isn't Parquet.
    """
    with pyarrow.parquet.ParquetFile(path) as file:
        found, groups = file.schema_arrow, file.metadata
        n_bytes = sum(groups.row_group(index).total_byte_size for index in range(groups.num_row_groups))
        if groups.num_rows > most_rows or n_bytes > most_bytes:
            raise BadInputError(f"has {groups.num_rows} rows of {n_bytes} bytes. No run's record is so large.")
        version = (found.metadata or {}).get(b"dask-workbench", b"0")
        if not version.isdigit() or int(version) > VERSION:
            raise BadInputError("was written by a later dask-workbench. Update dask-workbench.")
        expected = GPU_SCHEMA if path.name == gpu_path(path).name else SCHEMA
        if expected is SCHEMA and 0 < int(version) < VERSION:
            raise BadInputError("was written by an older dask-workbench, which was never released.")
        lacking = [name for name in expected.names if name not in (*found.names, *ADDED)]
        wrong = [
            name
            for name in expected.names
            if name in found.names and found.field(name).type != expected.field(name).type
        ]
        if lacking or wrong:
            raise BadInputError(f"lacks the column {lacking[0]}." if lacking else f"has a column {wrong[0]} of no use.")


def fits(path: Path, most: int) -> bool:
    """Return whether the record at `path` can be read within `most` bytes of memory.

    A table may state a wrong size, and a string that is stored once may appear in every row. So a process with limited
    memory reads it.
    """
    source = f"from {__name__} import _read_within; _read_within()"
    command = [sys.executable, "-P", "-c", source, str(path), str(most)]
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # others reserve memory for later
    none = subprocess.DEVNULL
    try:
        done = subprocess.run(command, env=environment, timeout=_PATIENCE, stdin=none, stdout=none, stderr=none)
    except subprocess.TimeoutExpired:
        return False
    # C++ libraries end by a signal if they get no memory.
    return done.returncode >= 0 and done.returncode != _TOO_LARGE


_PATIENCE = 100.0
_TOO_LARGE = 3


def _read_within() -> None:
    """Read a record; exit with _TOO_LARGE if the memory doesn't suffice."""
    import resource

    import psutil

    path, most = Path(sys.argv[1]), int(sys.argv[2])
    pa.set_cpu_count(1)
    fill_first_table(without_pandas=True)
    used = getattr(psutil.Process().memory_info(), "data", 0)
    resource.setrlimit(resource.RLIMIT_DATA, (used + most,) * 2)
    try:
        found = Batch(0.0)
        for each, schema in ((path, SCHEMA), (gpu_path(path), GPU_SCHEMA)):
            with _opened(each, schema) as read:
                if read is not None:
                    found = _batch(read) if schema is SCHEMA else with_gpus(found, read(schema.names))
    except MemoryError:
        os._exit(_TOO_LARGE)


@contextlib.contextmanager
def _opened(path: Path, schema: pa.Schema) -> Iterator[Callable[[Sequence[str]], pa.Table] | None]:
    """Yield a function that reads columns of the file at `path`, or of the stream next to it; None without both."""
    if path.exists():
        repeated = [field.name for field in schema if pa.types.is_string(field.type) and field.name != "key"]
        # Not read_table: that imports pyarrow's datasets and pandas with them, for half a second.
        with pyarrow.parquet.ParquetFile(path, read_dictionary=repeated) as file:
            yield file.read
    else:
        stream = _stream_path(path)
        yield pa.Table.from_batches(_read_stream(stream), schema).select if stream.exists() else None


def _stream_path(path: Path) -> Path:
    return path.with_suffix(".arrows")


def _read_stream(path: Path) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as file:
        try:
            # A stream that was cut off ends in the middle of a message, perhaps of its first.
            yield from pa.ipc.open_stream(file)
        except (pa.ArrowInvalid, OSError):
            return


_COLUMNS_OF = {"task": TASKS.names, "worker": WorkerSample.__slots__, "progress": ("name", "time", *COUNTS)}


def _tables(batch: Batch) -> Iterable[pa.Table]:
    yield _table("task", [batch.time] * len(batch.tasks), {name: batch.tasks.table[name] for name in TASKS.names})
    samples = {name: [getattr(sample, name) for sample in batch.samples] for name in WorkerSample.__slots__}
    yield _table("worker", samples.pop("time"), samples)
    if batch.progress is not None:
        counts = batch.progress.counts
        columns = {key: [count.get(key, 0) for count in counts.values()] for key in COUNTS}
        yield _table("progress", [batch.progress.time] * len(counts), {"name": list(counts), **columns})


def _table(event: str, times: list[float], columns: dict[str, Any]) -> pa.Table:
    """Return rows of the record, null in the columns of other events."""
    columns = {"event": [event] * len(times), "time": microseconds(times), **columns}
    return pa.table([_column(columns.get(field.name), field.type, len(times)) for field in SCHEMA], schema=SCHEMA)


def _column(values: Any, of: pa.DataType, n_rows: int) -> Any:
    if values is None:
        return pa.nulls(n_rows, of)
    return values.cast(of) if isinstance(values, pa.ChunkedArray) else pa.array(values, of)


def _batch(read: Callable[[Sequence[str]], pa.Table]) -> Batch:
    """Return all events, from the columns that `read` gives."""
    import pyarrow.compute as pc

    events = read(["event", "time"])
    times = seconds(events["time"])

    def rows(event: str) -> pa.Table:
        """Return the rows of one event. Only its own columns are read, as memory costs time at its first use."""
        table = read(_COLUMNS_OF[event])
        table = table.filter(pc.equal(events["event"], event))
        for name in table.column_names:
            # A row without one of its event's values is damaged and left out.
            if name != "source" and table[name].null_count:
                table = table.filter(pc.is_valid(table[name]))
        return table

    return Batch(
        time=float(np.nanmax(times, initial=0.0)),
        tasks=Tasks(rows("task")),
        samples=_samples(rows("worker")),
        progress=_last_progress(rows("progress")),
        recorded=True,
    )


def _samples(table: pa.Table) -> tuple[WorkerSample, ...]:
    fields = WorkerSample.__slots__
    columns = [seconds(table[name]).tolist() if name == "time" else table[name].to_pylist() for name in fields]
    return tuple(WorkerSample(*row) for row in zip(*columns, strict=True))


def _last_progress(table: pa.Table) -> Progress | None:
    """Return the last count of each name.

    A batch holds the counts of all names that the scheduler knew then. The last counts of earlier computations
    are included, so the result covers the whole run.
    """
    if not table.num_rows:
        return None
    # From the last row to the first: of tens of thousands of counts, only the last of each name is needed.
    names = Labels.of(table["name"])
    _, last = np.unique(names.codes[::-1], return_index=True)
    rows = table.take(np.sort(len(names.codes) - 1 - last)).to_pylist()
    order = {name: place for place, name in enumerate(names.values)}
    counts = {
        row["name"]: {key: row[key] for key in COUNTS} for row in sorted(rows, key=lambda row: order[row["name"]])
    }
    return Progress(float(seconds(table["time"])[-1]), counts)
