"""How long will it take? A range, from what was measured of the hardware and from past runs of the same workload."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError

from workbench.clusters.spec import ClusterSpec
from workbench.formats import count
from workbench.runs import store
from workbench.runs.forecasting import calibration
from workbench.runs.forecasting.calibration import Calibration
from workbench.runs.store import Run
from workbench.workloads.values import Needs

Basis = Literal["measured here", "measured elsewhere", "history", "published"]

# Logarithms of a factor, or weights beside the 1 of a run of the same size on the same hardware.
_SPREAD_UNKNOWN = 0.3
"""Spread of the actual time about the model's for a workload that never ran here."""
_SPREAD_SCALED = 0.25
"""What it is more where another shape of cluster was calibrated."""
_SPREAD_LEAST = 0.05
_WEIGHT_OF_MODEL = 0.3
_RANGE = 1.28
"""Standard deviations on each side, between which four in five lie."""
_LARGEST_STEP = 2.0
_WIDEST = 1.8
"""Spread from which on a range tells nothing: it is of 100 times."""
LARGEST_STRETCH = 8.0
"""Times the bytes or a parameter of a run, or as small a part of them, beyond which its time alone tells nothing: what
is the same for all sizes can't be told from what grows."""

RUNS = 30
"""How many of the latest runs of a workload are looked at."""
_ALONE = 0.1
"""Seconds before what goes on beside a run slows it down, which is when the shortest are over."""
_UNKNOWN_NETWORK = 3e8  # bytes a second, where one worker was calibrated and several are asked for


class Duration(BaseModel, frozen=True):
    """Seconds as a range, and what they rest on."""

    low: float
    high: float
    basis: Basis
    source: str
    """Which measurement, how many runs, or which post."""
    n_runs: int = 0
    """Runs of the same workload that went into it."""
    off_by: float | None = None
    """Median part by which earlier forecasts of this workload missed the time that it took."""

    @property
    def middle(self) -> float:
        """The forecast as one number; the range lies around it by a factor."""
        return math.sqrt(self.low * self.high)


class _Past(NamedTuple):
    run: Run
    needs: Needs
    spec: ClusterSpec
    seconds: float


def duration(
    workload: str, needs: Needs, spec: ClusterSpec, *, spilled: int = 0, machine: Mapping[str, Any] | None = None
) -> Duration | None:
    """Seconds of a workload on a cluster; None where nothing was measured on such machines and nothing ran there.

    `machine` is what is known of those that the cluster is on; None for this one.
    """
    past = list(_past(workload, spec, machine))
    found = calibration.for_spec(spec, machine)
    if found is not None and needs.work:
        return _from_calibration(needs, spec, found, past, spilled)
    return _from_history(needs, spec, past)


def duration_elsewhere(needs: Needs, found: Calibration) -> Duration | None:
    """Seconds on a machine whose calibration somebody sent; None where the workload's work is not stated."""
    seconds = model_seconds(needs, found, found.n_workers, found.threads)
    if seconds is None:
        return None
    return around(seconds, _SPREAD_UNKNOWN, "measured elsewhere", found.describe())


def model_seconds(needs: Needs, found: Calibration, n_workers: int, threads: int, spilled: int = 0) -> float | None:
    """Seconds by the rates alone: shared work, work of one thread, travel, tasks, and what goes to disk and back.

    Blocks that can't be shared evenly leave threads idle at the end. Where another number of threads was calibrated,
    rates grow with the threads that have a core, or with the GPUs. What goes on beside a run slows it down no longer
    than it lasts, and not from the start.
    """
    if not needs.work:
        return None
    scale, shared = _shares(found, n_workers, threads)
    share = shared * math.ceil(needs.n_blocks / shared) / needs.n_blocks
    together = sum(amount / found.rate(kind) for kind, amount in needs.work.items()) * share / scale
    alone = sum(amount / found.one_thread[kind] for kind, amount in needs.serial.items() if kind in found.one_thread)
    travel = needs.moved * (1 - 1 / n_workers) / (found.moved or _UNKNOWN_NETWORK)
    disk = spilled / found.rate("disk_write") + spilled / found.rate("disk_read")
    dask = needs.n_tasks * found.task_seconds + needs.n_rounds * found.start_seconds
    seconds = together + alone + travel + disk + dask
    return seconds + min(max(0.0, seconds - _ALONE), found.beside_seconds)


def _shares(found: Calibration, n_workers: int, threads: int) -> tuple[float, int]:
    """How many times as fast as what was calibrated, and among how many blocks are shared: threads, or GPUs."""
    if found.device:
        return n_workers / found.n_workers, n_workers
    cores = max(found.cores, found.threads if found.measured == "elsewhere" else 1)
    return min(threads, cores) / min(found.threads, cores), threads


def off_by(runs: Sequence[Run]) -> float | None:
    """Median part by which the forecasts made before these runs missed; None where none was made."""
    misses = [
        abs(told / run.seconds - 1) for run in runs if run.seconds and (told := forecast_seconds(run)) is not None
    ]
    return statistics.median(misses) if misses else None


def forecast_seconds(run: Run) -> float | None:
    """Middle of the range that was forecast before a run; None where none was."""
    seconds = (run.forecast or {}).get("seconds")
    return math.sqrt(seconds["low"] * seconds["high"]) if seconds else None


def _from_calibration(
    needs: Needs, spec: ClusterSpec, found: Calibration, past: Sequence[_Past], spilled: int
) -> Duration | None:
    seconds = model_seconds(needs, found, spec.n_workers, spec.threads, spilled)
    if seconds is None:
        return None
    doubt = _SPREAD_UNKNOWN + (0 if calibration.distance(found, spec) == 0 else _SPREAD_SCALED)
    logs, weights = [], []
    for one in past:
        told = model_seconds(one.needs, found, one.spec.n_workers, one.spec.threads)
        if told is not None:
            logs.append(max(-_LARGEST_STEP, min(_LARGEST_STEP, math.log(one.seconds / told))))
            weights.append(math.exp(-abs(math.log(told / seconds)) / 2) * likeness(one.spec, spec))
    # The model itself counts as a part of a run that took just as long as it says.
    total = sum(weights) + _WEIGHT_OF_MODEL
    learned = sum(weight * log for weight, log in zip(weights, logs, strict=True)) / total
    squares = sum(weight * (log - learned) ** 2 for weight, log in zip(weights, logs, strict=True))
    spread = max(_SPREAD_LEAST, math.sqrt((squares + _WEIGHT_OF_MODEL * doubt**2) / total))
    return around(
        seconds * math.exp(learned),
        spread,
        "measured here" if found.measured == "here" else "measured elsewhere",
        found.describe(),
        n_runs=len(logs),
        off_by=off_by([one.run for one in past]),
    )


def _from_history(needs: Needs, spec: ClusterSpec, past: Sequence[_Past]) -> Duration | None:
    """As fast as the latest runs on this kind of hardware, by the byte."""
    if not needs.bytes_processed:
        return None
    sized = [one for one in past if likeness(one.spec, spec) == 1 and one.needs.bytes_processed]
    away = [abs(math.log(one.needs.bytes_processed / needs.bytes_processed)) for one in sized]
    alike = [one for one, far in zip(sized, away, strict=True) if far <= math.log(LARGEST_STRETCH)]
    if not alike:
        return None
    logs = [math.log(one.seconds / one.needs.bytes_processed) for one in alike]
    middle = statistics.median(logs)
    # Times don't quite grow with the size, so a size that never ran is less sure.
    stretch = min(away)
    source = f"{count(len(alike), 'run')} on such a cluster; not calibrated"
    seconds, misses = needs.bytes_processed * math.exp(middle), [log - middle for log in logs]
    return learned(seconds, misses, stretch, source, [one.run for one in past])


def learned(
    seconds: float, misses: Sequence[float], stretch: float, source: str, runs: Sequence[Run]
) -> Duration | None:
    """The range by what runs took: `misses` are logarithms of how far each was off, `stretch` how far they are away.

    None where it would be too wide to tell anything.
    """
    spread = 1.48 * statistics.median(map(abs, misses)) + 0.1 + 0.1 * stretch
    if spread > _WIDEST:
        return None
    return around(seconds, spread, "history", source, n_runs=len(misses), off_by=off_by(runs))


def around(
    seconds: float, spread: float, basis: Basis, source: str, *, n_runs: int = 0, off_by: float | None = None
) -> Duration:
    """The range in which four in five lie; `spread` is that of the logarithm."""
    factor = math.exp(_RANGE * spread)
    return Duration(
        low=seconds / factor, high=seconds * factor, basis=basis, source=source, n_runs=n_runs, off_by=off_by
    )


def _past(workload: str, spec: ClusterSpec, machine: Mapping[str, Any] | None) -> Iterator[_Past]:
    """Latest runs of a workload that came to an end on this kind of machine, with what they needed."""
    for run in store.select(workload=workload, status="done", limit=RUNS):
        if run.spec is None or run.spec.profile != spec.profile or not run.seconds or not ran_on(run, machine):
            continue
        try:
            yield _Past(run, Needs.model_validate(run.needs), run.spec, run.seconds)
        except ValidationError:
            continue


def ran_on(run: Run, machine: Mapping[str, Any] | None) -> bool:
    """Whether it ran on such a machine; a run that was sent by somebody else may not have."""
    cpu = (run.inventory or {}).get("cpu")
    return cpu is None or (cpu.get("model"), cpu.get("usable")) == calibration.cores_of(machine)


def likeness(one: ClusterSpec, other: ClusterSpec) -> float:
    """1 for the same shape, less the more it differs."""
    return math.exp(-calibration.distance(one, other))
