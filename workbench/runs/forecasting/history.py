"""Past runs of a workload: selection, weights, and facts about memory and time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from workbench.clusters.spec import ClusterSpec
from workbench.formats import count
from workbench.runs import store
from workbench.runs.forecasting import duration
from workbench.runs.forecasting.devices import ran_on
from workbench.runs.forecasting.duration import Basis, Duration, Point
from workbench.runs.run import Run
from workbench.workloads.values import Needs

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

RUNS = 50
"""Number of latest runs of a workload that are read."""

# Standard deviations of the logarithm of a time, for what the fit does not explain.
_OTHER_NUMBERS = 0.2
"""Spread of runs whose numbers, such as k or the blocks, differ, where the size is known."""
_OTHER_SHAPE = 0.1
"""Spread of runs on another number of workers or threads, beyond the fit's share for threads."""
_PER_LOG = {"size": 0.15, "threads": 0.2}
"""Spread for each unit of the logarithm of a size or a number of threads: 100 times the size is 4.6 units."""
_PER_LOG_OF_NUMBER = 0.1
_FARTHEST = math.log(8)
"""Spread of a function without a known size, whose time need not follow a power of its numbers."""
_NO_MATTER = {"seed"}


def runs_of(template: Template, resolved: Mapping[str, Any]) -> tuple[Run, ...]:
    """Return the latest finished runs of the same code with the same choices; sizes, files and numbers may differ."""
    sha, choices = template.pinned and template.pinned.sha, _choices(template, resolved)
    return tuple(
        run
        for run in store.select(workload=template.name, status="done", limit=RUNS)
        if (run.function and run.function.sha) == sha and _choices(template, run.resolved) == choices
    )


def needs(runs: Sequence[Run], resolved: Mapping[str, Any], unknown: Needs) -> Needs:
    """Return the needs of the same run's graph before; `unknown` if there was none."""
    for run in runs:
        if run.resolved == resolved and (found := _needs(run)) is not None and found.known:
            return found.model_copy(update={"sentence": f"As in the run {run.id}: {found.sentence}"})
    return unknown


def done_there(
    runs: Sequence[Run], resolved: Mapping[str, Any], spec: ClusterSpec, machine: Mapping[str, Any] | None
) -> str | None:
    """Return the id of an equal run that succeeded there with no more memory per worker; None without one."""
    return next(
        (
            run.id
            for run in runs
            if run.resolved == resolved
            and ran_on(run, spec, machine)
            and run.spec is not None
            and _shape(run.spec) == _shape(spec)
            and run.spec.is_known
            and run.spec.worker_memory <= spec.worker_memory
        ),
        None,
    )


def seconds_of(
    runs: Sequence[Run],
    resolved: Mapping[str, Any],
    needs: Needs | None,
    spec: ClusterSpec,
    machine: Mapping[str, Any] | None,
    basis: Basis = "history",
) -> Duration | None:
    """Return the time on a cluster by these runs; None if none of them was on such hardware.

    `needs` are those of the request; if its size isn't known, as of a function of a user's, its numbers take its place.
    """
    here = [run for run in runs if run.seconds and ran_on(run, spec, machine)]
    points = [point for run in here if (point := _point(run, resolved, needs, spec)) is not None]
    source = f"{count(len(points), 'run')} on such a cluster"
    return duration.fit(points, source, basis, duration.off_by(here))


def _point(run: Run, resolved: Mapping[str, Any], needs: Needs | None, spec: ClusterSpec) -> Point | None:
    """Return a run relative to the request; None if the run is no evidence for it."""
    if run.spec is None or not run.spec.is_known or not run.seconds:
        return None
    away = {"threads": math.log(run.spec.threads / spec.threads)}
    doubts = [_OTHER_SHAPE if _shape(run.spec) != _shape(spec) else 0.0]
    if needs is None or (size := size_of(needs)) is None:
        numbers = _away(_numbers(run.resolved), _numbers(resolved))
        if numbers is None:
            return None
        away |= numbers
    else:
        past = _needs(run)
        if past is None or not (its := size_of(past)) or (past.work is None) != (needs.work is None):
            return None
        away["size"] = math.log(its / size)
        doubts.append(_OTHER_NUMBERS if _numbers(run.resolved) != _numbers(resolved) else 0.0)
    doubts += [_PER_LOG.get(name, _PER_LOG_OF_NUMBER) * abs(far) for name, far in away.items()]
    return Point(math.log(run.seconds), away, math.hypot(*doubts))


def _away(numbers: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float] | None:
    """Return the logarithms of the numbers' ratios to the request's; None if there are none, or they are too far."""
    ratios = {}
    for name in numbers.keys() | others.keys():
        one, other = numbers.get(name, 0), others.get(name, 0)
        if one != other and min(one, other) <= 0:
            return None
        # A whole number may be too large for a quotient.
        ratios[name] = 0.0 if one == other else math.log(one) - math.log(other)
    return ratios if all(abs(far) <= _FARTHEST for far in ratios.values()) else None


def size_of(needs: Needs) -> float | None:
    """Return what the time grows with: the work, the bytes that all passes go through, or those that must be held."""
    return (needs.work or needs.bytes_processed or needs.held_total or None) if needs.known else None


def _shape(spec: ClusterSpec) -> tuple[int, int | None, str]:
    return spec.n_workers, spec.threads_per_worker, spec.protocol


def _needs(run: Run) -> Needs | None:
    try:
        return Needs.model_validate(run.needs)
    except ValidationError:
        return None


def _choices(template: Template, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that runs must share: all but numbers for a user's function, else methods and switches."""
    if template.pinned is not None:
        return {name: each for name, each in resolved.items() if not _is_number(each)}
    fields = template.schema()["properties"]
    return {
        name: each
        for name, each in resolved.items()
        if name in {*fields, "dtype"}
        and (each is None or isinstance(each, (str, bool)))
        and not _is_free_text(fields.get(name, {}))
    }


def _is_free_text(field: Mapping[str, Any]) -> bool:
    """Return whether a field of a form takes any text, such as a path or a selection."""
    parts = (field, *field.get("anyOf", ()))
    return any(each.get("type") == "string" and not {"enum", "const"} & each.keys() for each in parts)


def _numbers(resolved: Mapping[str, Any]) -> dict[str, int | float]:
    return {name: each for name, each in resolved.items() if _is_number(each) and name not in _NO_MATTER}


def _is_number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)
