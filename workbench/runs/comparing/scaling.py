"""Scaling curves of a comparison that sweeps workers or threads: speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from workbench.clusters.lines import read_line
from workbench.runs.comparing.compare import SWEPT_OPTIONS
from workbench.runs.comparing.comparisons import Comparison, Row
from workbench.runs.statistics import compared, spread


class Point(BaseModel, frozen=True):
    """One number of cores on a scaling curve."""

    cores: int
    seconds: float
    speedup: float
    """Speed relative to the fewest cores."""
    efficiency: float
    """Share of the ideal speed-up, which is k on k times the cores."""
    low: float | None = None
    high: float | None = None
    """Interval of the efficiency, from the same interval as the ratio of the rows."""


class Scaling(BaseModel, frozen=True):
    """Curve of the time over the number of cores."""

    what: str
    points: tuple[Point, ...]


def scalings(comparison: Comparison) -> tuple[Scaling, ...]:
    """Return a curve for each set of rows that differ only in the number of workers or threads."""
    request = comparison.request
    if request is None:
        return ()
    swept = [name for name in request.sweep if SWEPT_OPTIONS.get(name) in ("n_workers", "threads_per_worker")]
    if not swept:
        return ()
    curves: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if row.seconds and row.spec is not None:
            curves.setdefault(_fixed_part(row, swept), []).append(row)
    found = (_scaling(what, rows) for what, rows in curves.items())
    return tuple(each for each in found if each is not None)


def _fixed_part(row: Row, swept: Sequence[str]) -> str:
    """Describe what is fixed on a curve."""
    line = read_line(row.on)
    rest = {name: value for name, value in line.choices.items() if name not in {SWEPT_OPTIONS[each] for each in swept}}
    others = [f"{name}={value}" for name, value in row.swept.items() if name not in swept]
    return ", ".join([line._replace(choices=rest).words(), *others])


def _scaling(what: str, rows: Sequence[Row]) -> Scaling | None:
    known = ((row.spec.threads, row) for row in rows if row.spec is not None and row.spec.is_known)
    measured = sorted(known, key=lambda each: each[0])
    if len({cores for cores, _ in measured}) < 2:
        return None
    fewest, alone = measured[0]
    points = []
    for cores, row in measured:
        ratio, ideal = compared(row.times, alone.times, paired=True), cores / fewest
        efficiency = 1.0 if row is alone else 1 / (ratio.ratio * ideal)
        ends = (ratio.low, ratio.high) if row is not alone else (None, None)
        low, high = (None if each is None else 1 / (each * ideal) for each in reversed(ends))
        speedup, middle = efficiency * ideal, spread(row.seconds).median
        points.append(Point(cores=cores, seconds=middle, speedup=speedup, efficiency=efficiency, low=low, high=high))
    return Scaling(what=what, points=tuple(points))


def efficiency_text(point: Point) -> str:
    """Return the efficiency with its interval: '83 % (79 to 86)'."""
    percent = f"{100 * point.efficiency:.0f} %"
    if point.low is None or point.high is None:
        return percent
    low, high = f"{100 * point.low:.0f}", f"{100 * point.high:.0f}"
    return percent if low == high else f"{percent} ({low} to {high})"
