"""What Dask itself measures of a run: the fine performance metrics of its span, and what its workers were set to.

Workers tell the scheduler of their metrics with each heartbeat. Those that belong to tasks bear the span of these
tasks; what fetching and sending cost has no span, so it is the difference of two readings, and another client's
traffic on the same cluster at that time is in it.

The functions that run on the scheduler and the workers travel there as they are: `runner` registers this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench import config

if TYPE_CHECKING:
    from distributed import Client

FILE = "metrics.json"

_SPANLESS = ("gather-dep", "get-data", "memory-monitor")


class Metric(BaseModel):
    """One sum over all workers, as Dask names it."""

    model_config = ConfigDict(frozen=True)

    context: str
    """'execute' for tasks, 'gather-dep' for fetching, 'get-data' for sending, 'memory-monitor' for spilling."""
    name: str = ""
    """Name of the tasks, for 'execute'."""
    activity: str
    """Such as 'thread-cpu', 'network', 'deserialize', 'disk-write'."""
    unit: str
    value: float


class WorkerSettings(BaseModel):
    """What one worker was set to."""

    model_config = ConfigDict(frozen=True)

    host: str
    threads: int
    cores: int
    """That its process may use."""
    blas_threads: int | None = None
    """Threads that BLAS or OpenMP takes for one call in a task; None where that isn't known."""


class Measured(BaseModel):
    """All of it, kept as metrics.json beside the run's events."""

    model_config = ConfigDict(frozen=True)

    began: float
    """Seconds since the epoch by the scheduler's clock, when the run began."""
    metrics: tuple[Metric, ...] = ()
    workers: dict[str, WorkerSettings] = {}
    """By address."""
    dtypes: dict[str, str] = {}
    """Types of the arrays that the run left on the cluster or gave back, by name."""

    def seconds(self, context: str, *activities: str) -> float:
        """Seconds that all workers spent on these activities in this context; on all of them for none."""
        return sum(
            metric.value
            for metric in self.metrics
            if metric.context == context
            and metric.unit == "seconds"
            and (not activities or metric.activity in activities)
        )

    def bytes(self, context: str, *activities: str) -> int:
        """Bytes that all workers handled in these activities."""
        return int(
            sum(
                metric.value
                for metric in self.metrics
                if metric.context == context and metric.unit == "bytes" and metric.activity in activities
            )
        )


class Measuring:
    """What is measured between the beginning and the end of a `measuring` block."""

    def __init__(self, client: Client, span_id: str) -> None:
        self._client = client
        self._span_id = span_id
        told = client.run_on_scheduler(totals, _SPANLESS)
        self._began: float = told["time"]
        self._before = _by_key(told["totals"])

    def measured(self, dtypes: Mapping[str, str] | None = None) -> Measured:
        """Return what was measured until now; some milliseconds, in which each worker sends a heartbeat."""
        workers = {
            address: WorkerSettings.model_validate(told)
            for address, told in self._client.run(report, on_error="ignore").items()
            if isinstance(told, dict)
        }
        after = _by_key(self._client.run_on_scheduler(totals, _SPANLESS)["totals"])
        spent = [(key, value - self._before.get(key, 0)) for key, value in after.items()]
        spent += list(_by_key(self._client.run_on_scheduler(span_totals, self._span_id)).items())
        return Measured(
            began=self._began,
            metrics=tuple(_metric(key, value) for key, value in spent if value > 0),
            workers=workers,
            dtypes=dict(dtypes or {}),
        )


@contextlib.contextmanager
def measuring(client: Client, name: str) -> Iterator[Measuring]:
    """Put all that is computed in the block into a span of this name, and measure it."""
    from distributed import span

    with span(name) as span_id:
        yield Measuring(client, span_id)


def keep(measured: Measured, folder: Path) -> None:
    """Write it into a run's folder."""
    config.write_atomically(folder / FILE, measured.model_dump_json())


def kept(folder: Path) -> Measured | None:
    """Read it from a run's folder; None where nothing was measured, as for runs of older versions."""
    try:
        return Measured.model_validate_json((folder / FILE).read_text())
    except (OSError, ValidationError):
        return None


def totals(contexts: tuple[str, ...], dask_scheduler: Any = None) -> dict[str, Any]:
    """Sum what workers told in these contexts since the scheduler started; runs on the scheduler."""
    from distributed.metrics import time

    found = dask_scheduler.cumulative_worker_metrics
    rows = [
        [*key, value]
        for key, value in list(found.items())
        if isinstance(key, tuple) and key and key[0] in contexts and len(key) == 3
    ]
    return {"time": time(), "totals": rows}


def span_totals(span_id: str, dask_scheduler: Any = None) -> list[list[Any]]:
    """Sum what workers told of the tasks in a span; runs on the scheduler."""
    spans = dask_scheduler.extensions.get("spans")
    found = spans.spans.get(span_id) if spans is not None else None
    if found is None:
        return []
    rows: dict[tuple[Any, ...], float] = {}
    for child in found.traverse_spans():
        for key, value in list(child._cumulative_worker_metrics.items()):
            if len(key) == 4 and key[0] == "execute":
                rows[key] = rows.get(key, 0) + value
    return [[*map(str, key), value] for key, value in rows.items()]


async def report(dask_worker: Any) -> dict[str, Any]:
    """Send a heartbeat, so that the scheduler knows all, and tell what the worker is set to; runs on the worker."""
    from dask.system import CPU_COUNT
    from distributed.comm import get_address_host

    await dask_worker.heartbeat()
    return {
        "host": get_address_host(dask_worker.address),
        "threads": dask_worker.state.nthreads,
        "cores": CPU_COUNT,
        "blas_threads": blas_threads(),
    }


def blas_threads() -> int | None:
    """Threads that BLAS of this process takes for a call, None where that can't be found out."""
    import os

    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        told = [os.environ.get(f"{name}_NUM_THREADS", "") for name in ("OPENBLAS", "MKL", "OMP")]
        return next((int(value) for value in told if value.isdigit()), None)
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=None)


def _by_key(rows: list[list[Any]]) -> dict[tuple[str, ...], float]:
    return {tuple(key): value for *key, value in rows}


def _metric(key: tuple[str, ...], value: float) -> Metric:
    context, *name, activity, unit = key
    return Metric(context=context, name="".join(name), activity=activity, unit=unit, value=value)
