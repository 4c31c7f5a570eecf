"""What Dask itself measures of a run: the fine performance metrics of its span, and what its workers were set to.

A worker tells the scheduler of its metrics with each heartbeat, which may be seconds late, so the workers are asked
themselves. Metrics of tasks bear the span of these tasks; what fetching and sending cost has no span, so it is the
difference of two readings, and another client's traffic on the same cluster at that time is in it. What a worker
spent that has gone is not known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from workbench import config, remote
from workbench.runs import transfers
from workbench.travelling import Travelling

if TYPE_CHECKING:
    from distributed import Client

FILE = "metrics.json"

_SPANLESS = ("gather-dep", "get-data", "memory-monitor")


class Metric(BaseModel, frozen=True):
    """One sum over all workers, as Dask names it."""

    context: str
    """'execute' for tasks, 'gather-dep' for fetching, 'get-data' for sending, 'memory-monitor' for spilling."""
    name: str = ""
    """Name of the tasks, for 'execute'."""
    activity: str
    """Such as 'thread-cpu', 'network', 'deserialize', 'disk-write'."""
    unit: str
    value: Annotated[float, Field(ge=0, le=1e18)]


class WorkerSettings(BaseModel, frozen=True):
    """What one worker was set to."""

    host: str
    threads: Annotated[int, Field(ge=0, le=10_000)]
    cores: int
    """That its process may use."""
    blas_threads: int | None = None
    """Threads that BLAS or OpenMP takes for one call in a task; None where that isn't known."""


class Measured(BaseModel, frozen=True):
    """All of it, kept as metrics.json beside the run's events."""

    began: Annotated[float, Field(ge=0, le=2e11)]
    """Seconds since the epoch by the scheduler's clock, when the run began."""
    metrics: tuple[Metric, ...] = ()
    workers: dict[str, WorkerSettings] = {}
    """By address."""
    dtypes: dict[str, str] = {}
    """Types of the arrays that the run left on the cluster or gave back, by name."""

    def seconds(self, context: str, *activities: str) -> float:
        """Seconds that all workers spent on these activities in this context; on all of them for none."""
        return self._sum("seconds", context, activities)

    def bytes(self, context: str, *activities: str) -> int:
        """Bytes that all workers handled in these activities."""
        return int(self._sum("bytes", context, activities))

    def _sum(self, unit: str, context: str, activities: Sequence[str]) -> float:
        of_context = (each for each in self.metrics if (each.unit, each.context) == (unit, context))
        return sum(each.value for each in of_context if not activities or each.activity in activities)


class Measuring:
    """What is measured from its making on: of the tasks of one span, or of all tasks where there is none to tell."""

    def __init__(self, client: Client, span_id: str | None = None) -> None:
        self._client = client
        self._span_id = span_id
        self._before = self._told()
        self._began = transfers.clock(client)

    def measured(self, dtypes: Mapping[str, str] | None = None) -> Measured:
        """Return what was measured until now: one question to each worker."""
        told = self._told()
        spent: dict[tuple[str, ...], float] = {}
        for address, worker in told.items():
            before = _by_key(self._before.get(address, {}).get("totals", ()))
            for key, value in _by_key(worker["totals"]).items():
                spent[key] = spent.get(key, 0) + value - before.get(key, 0)
        return Measured(
            began=self._began,
            metrics=tuple(_metric(key, value) for key, value in spent.items() if value > 0),
            workers={address: WorkerSettings.model_validate(worker) for address, worker in told.items()},
            dtypes=dict(dtypes or {}),
        )

    def _told(self) -> dict[str, Any]:
        answers = self._client.run(Travelling(remote.report), _SPANLESS, self._span_id, on_error="ignore")
        return {address: told for address, told in answers.items() if isinstance(told, dict)}


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
        return Measured.model_validate_json((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # also what is no UTF-8
        return None


def _by_key(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, ...], float]:
    added: dict[tuple[str, ...], float] = {}
    for *key, value in rows:
        added[tuple(key)] = added.get(tuple(key), 0) + value
    return added


def _metric(key: tuple[str, ...], value: float) -> Metric:
    context, *name, activity, unit = key
    return Metric(context=context, name=" ".join(name), activity=activity, unit=unit, value=value)
