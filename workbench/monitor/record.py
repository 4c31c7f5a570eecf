"""Events of a run on disk: an Arrow stream while it runs, one Parquet file at the end.

The file is one table, one row for each event, in the order in which they came. Each kind of event fills its own
columns and leaves the others null. Any reader of Parquet can use it: `pandas.read_parquet("events.parquet")`.

=============  ======  ====================================================================================
column         event   meaning
=============  ======  ====================================================================================
event          all     'task', 'worker' or 'progress'
time           all     when the scheduler sent the event; for a worker, when the worker was measured
name           all     task name (the key's prefix), or the worker's name
worker         t, w    address of the worker
key            t       the task's key, as text
thread         t       identifier of the thread in that worker
kind           t       'compute', 'transfer', 'disk-read', 'disk-write', 'deserialize' or 'other'
start, stop    t       the interval that was spent
nbytes         t       size of the task's result, bytes
status         t       'ok' or 'erred'
cpu            w       percent of one core
memory         w       resident memory, bytes
memory_limit   w       bytes, 0 without a limit
spilled        w       bytes on disk
n_executing    w       tasks being executed
n_threads      w       threads that execute tasks
total          p       tasks of this name so far
done           p       of these, finished
erred          p       of these, failed
processing     p       of these, on a worker now
=============  ======  ====================================================================================

Times are seconds since the epoch by the scheduler's clock. Samples of GPUs are in a file of their own: `gpu_record`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from workbench.errors import NotFoundError
from workbench.monitor.events import (
    KINDS,
    NO_TASKS,
    Batch,
    Labels,
    Progress,
    Tasks,
    WorkerSample,
)
from workbench.monitor.gpu_record import SCHEMA as GPU_SCHEMA
from workbench.monitor.gpu_record import gpu_path, gpu_table, with_gpus

SCHEMA = pa.schema(
    [
        ("event", pa.string()),
        ("time", pa.float64()),
        ("name", pa.string()),
        ("worker", pa.string()),
        ("key", pa.string()),
        ("thread", pa.int64()),
        ("kind", pa.string()),
        ("start", pa.float64()),
        ("stop", pa.float64()),
        ("nbytes", pa.int64()),
        ("status", pa.string()),
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
    ]
)

_STATUS = ("ok", "erred")


class Recorder:
    """Writes batches to `path` (Parquet) as they come, so that a killed process loses at most its last batch.

    Until `close` the events are in a stream beside `path`, which `read_events` reads just as well. Give `write` to a
    feed: `Feed(client, on_batch=recorder.write)`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._events = _Stream(path, SCHEMA)
        self._gpus: _Stream | None = None
        self._closed = False

    def write(self, batch: Batch) -> None:
        """Add a batch. One that comes after `close` is left out."""
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
            self._events.close()
            if self._gpus is not None:
                self._gpus.close()
        finish_recording(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Stream:
    """Arrow stream beside the file that is made of it in the end."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = _stream_path(path).open("wb", buffering=0)
        self._writer = pa.ipc.new_stream(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def write(self, table: pa.Table) -> None:
        for part in table.combine_chunks().to_batches():
            self._writer.write_batch(part)

    def close(self) -> None:
        self._writer.close()
        self._file.close()


def finish_recording(path: Path) -> None:
    """Make the Parquet file `path` of the stream beside it, also of one whose writer was killed."""
    _finish(gpu_path(path), GPU_SCHEMA)
    _finish(path, SCHEMA)


def _finish(path: Path, schema: pa.Schema) -> None:
    stream = _stream_path(path)
    if not stream.exists():
        return
    temporary = path.with_name(f".{path.name}")
    with pyarrow.parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        writer.write_table(pa.Table.from_batches(_read_stream(stream), schema))
    temporary.replace(path)
    stream.unlink()


def read_events(path: Path) -> Batch:
    """All events recorded at `path`, as one batch; of a run in progress or killed, those up to its last batch.

    Raises
    ------
    NotFoundError
        Where nothing was recorded.
    """
    events = _read(path, SCHEMA)
    if events is None:
        raise NotFoundError(f"No events were recorded at {path}.")
    gpus = _read(gpu_path(path), GPU_SCHEMA)
    return _batch(events) if gpus is None else with_gpus(_batch(events), gpus)


def _read(path: Path, schema: pa.Schema) -> pa.Table | None:
    if path.exists():
        return pyarrow.parquet.read_table(path)
    stream = _stream_path(path)
    return pa.Table.from_batches(_read_stream(stream), schema) if stream.exists() else None


def _stream_path(path: Path) -> Path:
    return path.with_suffix(".arrows")


def _read_stream(path: Path) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as file:
        try:
            # A stream that was cut off ends in the middle of a message, perhaps of its very first.
            yield from pa.ipc.open_stream(file)
        except (pa.ArrowInvalid, OSError):
            return


def _tables(batch: Batch) -> Iterable[pa.Table]:
    yield _table("task", batch.time, len(batch.tasks), _task_columns(batch.tasks))
    yield _table(
        "worker", [sample.time for sample in batch.samples], len(batch.samples), _sample_columns(batch.samples)
    )
    if batch.progress is not None:
        counts = batch.progress.counts
        yield _table("progress", batch.progress.time, len(counts), _progress_columns(batch.progress))


def _table(event: str, time: float | list[float], n_rows: int, columns: dict[str, Any]) -> pa.Table:
    columns = {"event": [event] * n_rows, "time": time if isinstance(time, list) else [time] * n_rows, **columns}
    return pa.table(
        [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(n_rows, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _task_columns(tasks: Tasks) -> dict[str, Any]:
    return {
        "name": _texts(tasks.name.values, tasks.name.codes),
        "worker": _texts(tasks.worker.values, tasks.worker.codes),
        "key": [str(key) for key in tasks.key],
        "thread": tasks.thread,
        "kind": _texts(KINDS, tasks.kind),
        "start": tasks.start,
        "stop": tasks.stop,
        "nbytes": tasks.nbytes,
        "status": _texts(_STATUS, tasks.erred.astype(np.int8)),
    }


def _sample_columns(samples: tuple[WorkerSample, ...]) -> dict[str, Any]:
    names = ("worker", "name", "cpu", "memory", "memory_limit", "spilled", "n_executing", "n_threads")
    return {name: [getattr(sample, name) for sample in samples] for name in names}


def _progress_columns(progress: Progress) -> dict[str, Any]:
    numbers = ("total", "done", "erred", "processing")
    counts = progress.counts.values()
    return {"name": list(progress.counts), **{key: [count.get(key, 0) for count in counts] for key in numbers}}


def _texts(values: tuple[str, ...], codes: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string())).cast(pa.string())


def _batch(table: pa.Table) -> Batch:
    import pyarrow.compute as pc

    def rows(event: str) -> pa.Table:
        return table.filter(pc.equal(table["event"], event))

    return Batch(
        time=pc.max(table["time"]).as_py() or 0.0,
        tasks=_tasks(rows("task")),
        samples=_samples(rows("worker")),
        progress=_last_progress(rows("progress")),
        recorded=True,
    )


def _tasks(table: pa.Table) -> Tasks:
    if not table.num_rows:
        return NO_TASKS
    kind = _labels(table["kind"])
    codes = np.array([KINDS.index(value) for value in kind.values], np.int8)
    return Tasks(
        key=table["key"].to_pylist(),
        name=_labels(table["name"]),
        worker=_labels(table["worker"]),
        thread=table["thread"].to_numpy(),
        kind=codes[kind.codes],
        start=table["start"].to_numpy(),
        stop=table["stop"].to_numpy(),
        nbytes=table["nbytes"].to_numpy(),
        erred=table["status"].to_numpy() == "erred",
    )


def _labels(column: pa.ChunkedArray) -> Labels:
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    return Labels(tuple(encoded.dictionary.to_pylist()), encoded.indices.to_numpy().astype(np.int32))


def _samples(table: pa.Table) -> tuple[WorkerSample, ...]:
    fields = WorkerSample.__slots__
    columns = [table[name].to_pylist() for name in fields]
    return tuple(WorkerSample(*row) for row in zip(*columns, strict=True))


def _last_progress(table: pa.Table) -> Progress | None:
    """Last count of each name.

    A batch holds the counts of all names that the scheduler knew then; names of computations before are
    kept as they were last seen, so that the whole run is there.
    """
    if not table.num_rows:
        return None
    counts = {
        row["name"]: {key: row[key] for key in ("total", "done", "erred", "processing")} for row in table.to_pylist()
    }
    return Progress(table["time"][-1].as_py(), counts)
