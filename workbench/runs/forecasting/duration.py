"""Range of seconds from a log-linear fit to past runs, which contains four in five times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel

from workbench.runs.run import Run
from workbench.runs.statistics import student

Basis = Literal["history", "imported", "published"]

# Standard deviations of the logarithm of a time.
_NOISE = 0.2
"""Spread between equal runs: the unit for the weights of other runs and of the expected slopes."""
_LEAST = 0.05
"""Least spread that is assumed, however close a few runs were."""
_SLOPES = {"size": (1.0, 0.5), "threads": (-0.9, 1.0)}
"""Expected powers of the size and the threads before there are runs: mean and standard deviation."""

_SHARE = 0.8
"""Part of the times that lie in the range."""
_RANGE = 1.28
"""Standard deviations on each side, between which four in five lie."""
_LEAST_FREEDOM = 0.6
_MAGNITUDE = math.log(10) / 2
"""Half of the logarithm of a range that gives only the order of magnitude."""
_WIDEST = 2.3
"""Half of the logarithm of a range that is too wide to be useful: it spans 100 times."""


class Duration(BaseModel, frozen=True):
    """Seconds as a range, and the runs behind it."""

    low: float
    high: float
    basis: Basis
    source: str
    n_runs: int = 0
    off_by: float | None = None
    """Median part by which earlier forecasts of this workload missed the time that it took."""
    rough: bool = False
    """True if the range is only the order of magnitude, since too few runs show the spread."""

    @property
    def middle(self) -> float:
        """The forecast as one number; the range lies around it by a factor."""
        return math.sqrt(self.low * self.high)


class Point(NamedTuple):
    """A past run, relative to the request."""

    log: float
    """Logarithm of its seconds."""
    away: Mapping[str, float]
    """Logarithms of its size, threads or numbers, each divided by that of the request."""
    doubt: float = 0.0
    """Standard deviation of other effects on its time."""


def fit(points: Sequence[Point], source: str, basis: Basis = "history", off_by: float | None = None) -> Duration | None:
    """Return the range of a request's time; None without points, or if the range would be too wide to be of use.

    Uncertain runs have lower weights. A few runs don't determine the powers of size and threads: these
    start from `_SLOPES`, and count as fitted only as far as the runs changed them. If no degree of freedom is left, the
    result is an order of magnitude.
    """
    names = sorted({name for point in points for name, far in point.away.items() if far})
    if _is_open(points, names):
        points, names = [point for point in points if not any(point.away.values())], []
    if not points:
        return None
    scale = np.array([1 / math.hypot(1, point.doubt / _NOISE) for point in points])
    rows = np.array([[1.0, *(point.away.get(name, 0.0) for name in names)] for point in points]) * scale[:, None]
    logs = np.array([point.log for point in points]) * scale
    expected = [(place, *_SLOPES[name]) for place, name in enumerate(names, 1) if name in _SLOPES]
    prior = np.zeros((len(expected), rows.shape[1]))
    for row, (place, _, deviation) in zip(prior, expected, strict=True):
        row[place] = _NOISE / deviation
    design = np.vstack([rows, prior])
    inverse = np.linalg.pinv(design)
    solution = inverse @ np.concatenate([logs, [mean * _NOISE / deviation for _, mean, deviation in expected]])
    leverage = float(np.sum(inverse[0] ** 2))
    weights = scale**2
    # Runs that hardly count give hardly a degree of freedom.
    freedom = float(np.sum(weights * (1 - np.sum(rows * inverse[:, : len(points)].T, axis=1))))
    doubt = min(point.doubt for point in points)
    rough = freedom < _LEAST_FREEDOM
    if rough:
        source = f"{source}; too few to say how far it may be off"
        half = _MAGNITUDE
    else:
        spread = math.sqrt(float(np.sum((logs - rows @ solution) ** 2)) / freedom)
        half = max(_RANGE * _LEAST, student(freedom, _SHARE) * spread * math.sqrt(1 + leverage))
    half = math.hypot(half, _RANGE * doubt)
    if half > _WIDEST:
        return None
    middle, factor = math.exp(float(solution[0])), math.exp(half)
    return Duration(
        low=middle / factor,
        high=middle * factor,
        basis=basis,
        source=source,
        n_runs=len(points),
        off_by=off_by,
        rough=rough,
    )


def _is_open(points: Sequence[Point], names: Sequence[str]) -> bool:
    """Return whether numbers without an expected power differ from the request's, and runs don't show their effect."""
    own = [name for name in names if name not in _SLOPES]
    if not own:
        return False
    design = np.array([[1.0, *(point.away.get(name, 0.0) for name in own)] for point in points])
    return bool(np.linalg.matrix_rank(design) < design.shape[1])


def off_by(runs: Sequence[Run]) -> float | None:
    """Return the median part by which the forecasts made before these runs missed; None if none was made."""
    misses = [
        abs(forecast / run.seconds - 1)
        for run in runs
        if run.seconds and (forecast := forecast_seconds(run)) is not None
    ]
    return statistics.median(misses) if misses else None


def forecast_seconds(run: Run) -> float | None:
    """Return the middle of the range that was forecast before a run; None if none was."""
    seconds = (run.forecast or {}).get("seconds")
    return math.sqrt(seconds["low"] * seconds["high"]) if seconds else None
