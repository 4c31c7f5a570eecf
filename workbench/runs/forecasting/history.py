"""What earlier runs of a person's function tell of the next one: how long it takes, and what its graph needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from workbench.clusters.spec import ClusterSpec
from workbench.formats import count
from workbench.runs import store
from workbench.runs.forecasting.duration import LARGEST_STRETCH, RUNS, Duration, learned, likeness, ran_on
from workbench.runs.store import Run
from workbench.workloads.values import Needs

if TYPE_CHECKING:
    from workbench.workloads.registry import Template


def runs_of(template: Template, resolved: Mapping[str, Any]) -> tuple[Run, ...]:
    """The latest runs of the same code whose parameters differ from these in numbers alone; none of ours."""
    pinned = template.pinned
    if pinned is None:
        return ()
    others = _others(resolved)
    return tuple(
        run
        for run in store.select(workload=template.name, status="done", limit=RUNS)
        if run.function is not None and run.function.sha == pinned.sha and _others(run.resolved) == others
    )


def needs(runs: Sequence[Run], resolved: Mapping[str, Any], unknown: Needs) -> Needs:
    """Return what the graph of the same run needed before; `unknown` where there was none."""
    for run in runs:
        if run.resolved == resolved and run.needs:
            try:
                found = Needs.model_validate(run.needs)
            except ValidationError:
                continue
            if found.known:
                return found.model_copy(update={"sentence": f"As in the run {run.id}: {found.sentence}"})
    return unknown


def done_there(
    runs: Sequence[Run], resolved: Mapping[str, Any], spec: ClusterSpec, machine: Mapping[str, Any] | None
) -> str | None:
    """Id of the same run that ended well on such a cluster, whose workers had no more memory; None without one."""
    return next(
        (
            run.id
            for run in runs
            if run.resolved == resolved
            and run.spec is not None
            and likeness(run.spec, spec) == 1
            and ran_on(run, spec, machine)
            and run.spec.memory_limit <= spec.memory_limit
        ),
        None,
    )


def duration(
    runs: Sequence[Run], resolved: Mapping[str, Any], spec: ClusterSpec, machine: Mapping[str, Any] | None
) -> Duration | None:
    """Seconds, from runs on such clusters: of the same numbers, else along a power of each number that differs."""
    here = [
        (run, math.log(run.seconds))
        for run in runs
        if run.seconds and run.spec is not None and likeness(run.spec, spec) == 1 and ran_on(run, spec, machine)
    ]
    same = [log for run, log in here if run.resolved == resolved]
    if same:
        found = _Fit(float(np.mean(same)), [log - float(np.mean(same)) for log in same], 1, 0.0, 1 / len(same))
    else:
        along = _along(here, resolved)
        if along is None:
            return None
        found = along
    source = f"{count(len(found.misses), 'run')} of it on such a cluster"
    past = [run for run, _ in here]
    return learned(
        math.exp(found.log), found.misses, found.n_fitted, found.stretch, source, past, leverage=found.leverage
    )


class _Fit(NamedTuple):
    """Seconds along the numbers of runs."""

    log: float
    """Logarithm of the seconds."""
    misses: list[float]
    """By how much each run is off."""
    n_fitted: int
    stretch: float
    """How far these numbers are from those of the runs."""
    leverage: float


def _along(here: Sequence[tuple[Run, float]], resolved: Mapping[str, Any]) -> _Fit | None:
    """Seconds along a power of each number in which the runs differ; None where that can't be told."""
    wanted = _numbers(resolved)
    rows = [_numbers(run.resolved) for run, _ in here]
    names = [name for name in wanted if any(row.get(name) != wanted[name] for row in rows)]
    if not here or any(value <= 0 for row in (wanted, *rows) for value in (row.get(name, 0) for name in names)):
        return None
    # Of whole numbers that are too large for NumPy as well, such as seeds of 128 bits.
    x = np.array([[math.log(row[name]) for name in names] for row in rows])
    at = np.array([math.log(wanted[name]) for name in names])
    # Each number needs two values, and as many runs as there are unknowns.
    design = np.column_stack([np.ones(len(x)), x])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    stretch = float(np.abs(x - at).min(axis=0).max())
    if stretch > math.log(LARGEST_STRETCH):
        return None
    seconds = np.array([log for _, log in here])
    powers = np.linalg.lstsq(design, seconds, rcond=None)[0]
    wanted_row = np.array([1.0, *at])
    leverage = float(np.sum((np.linalg.pinv(design).T @ wanted_row) ** 2))
    misses = (seconds - design @ powers).tolist()
    return _Fit(float(wanted_row @ powers), misses, design.shape[1], stretch, leverage)


def _numbers(resolved: Mapping[str, Any]) -> dict[str, int | float]:
    return {name: each for name, each in resolved.items() if _is_number(each)}


def _others(resolved: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in resolved.items() if not _is_number(each)}


def _is_number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)
