"""How long will it take? A range, from what was measured of the hardware and from past runs of the same workload."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ValidationError

from workbench.clusters.spec import ClusterSpec
from workbench.formats import count
from workbench.runs import store
from workbench.runs.forecasting import calibration, devices
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
_SPREAD_OF_RUNS = 0.1
"""Spread between runs of the same that counts as one more observation of it."""
_RANGE = 1.28
"""Standard deviations on each side, between which four in five lie."""
_STUDENT: dict[float, float] = {
    1: 3.078,
    2: 1.886,
    3: 1.638,
    4: 1.533,
    5: 1.476,
    6: 1.440,
    8: 1.397,
    10: 1.372,
    15: 1.341,
    30: 1.310,
}
"""The same where the deviation is estimated with so many degrees of freedom: Student's t."""
_MAGNITUDE = math.log(10) / 2
"""Half of the logarithm of a range that gives only the order of magnitude."""
_LARGEST_STEP = 2.0
_WIDEST = 2.3
"""Half of the logarithm of a range from which on it tells nothing: it is of 100 times."""
LARGEST_STRETCH = 8.0
"""Times the bytes or a parameter of a run, or as small a part of them, beyond which its time alone tells nothing: what
is the same for all sizes can't be told from what grows."""

RUNS = 30
"""How many of the latest runs of a workload are looked at."""
_ALONE = 0.1
"""Seconds before what goes on beside a run slows it down, which is when the shortest are over."""
_STORED_CHUNK = 5e-4
"""Seconds that Zarr takes to find and decode a chunk with next to nothing in it: 3600 chunks of 50 × 50 float32."""
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
    rough: bool = False
    """Whether the range is only the order of magnitude, since too few runs tell how far they lie apart."""

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
    return around(seconds, _RANGE * _SPREAD_UNKNOWN, "measured elsewhere", found.describe())


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
    # Python looks up and decodes one chunk at a time in each process.
    stored = needs.n_stored * _STORED_CHUNK / n_workers
    seconds = together + alone + travel + disk + dask + stored
    return seconds + min(max(0.0, seconds - _ALONE), found.beside_seconds)


def _shares(found: Calibration, n_workers: int, threads: int) -> tuple[float, int]:
    """Return how many times as fast as what was calibrated, and among how many blocks are shared: threads, or GPUs."""
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
    doubt = _RANGE * (_SPREAD_UNKNOWN + (0 if calibration.distance(found, spec) == 0 else _SPREAD_SCALED))
    logs, weights = [], []
    for one in past:
        told = model_seconds(one.needs, found, one.spec.n_workers, one.spec.threads)
        if told is not None:
            logs.append(max(-_LARGEST_STEP, min(_LARGEST_STEP, math.log(one.seconds / told))))
            weights.append(math.exp(-abs(math.log(told / seconds)) / 2) * likeness(one.spec, spec))
    # The model itself counts as a part of a run that took just as long as it says.
    n = sum(weights)
    learned = sum(weight * log for weight, log in zip(weights, logs, strict=True)) / (n + _WEIGHT_OF_MODEL)
    half = doubt
    # One run doesn't tell how far runs lie apart: the model's doubt stands.
    if n >= 2:
        squares = sum(weight * (log - learned) ** 2 for weight, log in zip(weights, logs, strict=True))
        spread = math.sqrt((squares + _SPREAD_OF_RUNS**2) / n)
        half = max(_RANGE * _SPREAD_LEAST, student(n) * spread * math.sqrt(1 + 1 / n))
    return around(
        seconds * math.exp(learned),
        half,
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
    middle = statistics.fmean(logs)
    # Times don't quite grow with the size, so a size that never ran is less sure.
    stretch = min(away)
    source = f"{count(len(alike), 'run')} on such a cluster; not calibrated"
    seconds, misses = needs.bytes_processed * math.exp(middle), [log - middle for log in logs]
    return learned(seconds, misses, 1, stretch, source, [one.run for one in past])


def learned(
    seconds: float,
    misses: Sequence[float],
    n_fitted: int,
    stretch: float,
    source: str,
    runs: Sequence[Run],
    *,
    leverage: float | None = None,
) -> Duration | None:
    """The range by what runs took: `misses` are logarithms of how far each was off, `stretch` how far they are away.

    `n_fitted` numbers were fitted to the runs. With as many runs the misses are all zero and tell nothing, so that only
    the order of magnitude is given. `leverage` is how unsure the fit is there, in variances of a run. None where the
    range would be too wide to tell anything.
    """
    n_runs, freedom = len(misses), len(misses) - n_fitted
    if freedom < 1:
        told = f"{source}; too few to say how far it may be off"
        return around(seconds, _MAGNITUDE, "history", told, n_runs=n_runs, off_by=off_by(runs), rough=True)
    spread = math.sqrt(sum(miss**2 for miss in misses) / freedom)
    half = student(freedom) * spread * math.sqrt(1 + (1 / n_runs if leverage is None else leverage))
    half = max(_RANGE * _SPREAD_LEAST, math.hypot(half, _RANGE * 0.1 * stretch))
    if half > _WIDEST:
        return None
    return around(seconds, half, "history", source, n_runs=n_runs, off_by=off_by(runs))


def student(freedom: float) -> float:
    """Deviations on each side between which four in five lie, with so many degrees of freedom."""
    known = {math.inf: _RANGE} | _STUDENT
    return float(np.interp(1 / freedom, sorted(1 / each for each in known), sorted(known.values())))


def around(
    seconds: float,
    half: float,
    basis: Basis,
    source: str,
    *,
    n_runs: int = 0,
    off_by: float | None = None,
    rough: bool = False,
) -> Duration:
    """The range in which four in five lie; `half` is half of its logarithm."""
    factor = math.exp(half)
    return Duration(
        low=seconds / factor,
        high=seconds * factor,
        basis=basis,
        source=source,
        n_runs=n_runs,
        off_by=off_by,
        rough=rough,
    )


def _past(workload: str, spec: ClusterSpec, machine: Mapping[str, Any] | None) -> Iterator[_Past]:
    """Latest runs of a workload that came to an end on this kind of machine, with what they needed."""
    for run in store.select(workload=workload, status="done", limit=RUNS):
        if run.spec is None or not run.seconds or not ran_on(run, spec, machine):
            continue
        try:
            yield _Past(run, Needs.model_validate(run.needs), run.spec, run.seconds)
        except ValidationError:
            continue


def ran_on(run: Run, spec: ClusterSpec, machine: Mapping[str, Any] | None) -> bool:
    """Return whether it ran on such hardware: the profile, the processor, its cores, and the GPUs by name.

    A run of which nothing of that is known, as somebody may have sent it, may have run on any.
    """
    cpu = (run.inventory or {}).get("cpu") or {}
    if run.spec is None or run.spec.profile != spec.profile or bool(run.spec.devices) != bool(spec.devices):
        return False
    if (cpu.get("model"), cpu.get("usable")) != calibration.cores_of(machine):
        return False
    here = devices.names(spec) if machine is None else _cards(spec, machine)
    return not spec.devices or _cards(run.spec, run.inventory or {}) == here


def _cards(spec: ClusterSpec, machine: Mapping[str, Any]) -> frozenset[str]:
    """Names of a spec's GPUs, as an inventory knows them; a slice has one of its own."""
    wholes = machine.get("gpus") or ()
    cards = [card for whole in wholes for card in (whole, *(whole.get("slices") or ()))]
    return frozenset(str(card.get("name")) for card in cards if card.get("uuid") in spec.devices)


def likeness(one: ClusterSpec, other: ClusterSpec) -> float:
    """1 for the same shape, less the more it differs."""
    return math.exp(-calibration.distance(one, other))
