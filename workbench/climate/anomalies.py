"""Anomalies of series, without their mean, seasonal cycle or trend: least squares, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Matrix = np.ndarray[Any, Any]

ABSENT, PRESENT, LEFT_OUT, FILLED = range(4)
"""Outcome for a series: it has no value at all; it has all; it has some and is left out, or filled."""


@dataclass(frozen=True, eq=False)
class Removed:
    """Terms subtracted from each series: the mean of each group of times, and a straight line."""

    groups: Matrix | None = None
    """The group of each time, such as its month; None where no mean is taken off."""
    trend: Matrix | None = None
    """Times less what is removed of themselves, of length one; None where no line is taken off."""

    @classmethod
    def of(cls, groups: Matrix | None, times: Matrix | None) -> Removed:
        """Return groups as given, and the part of `times` orthogonal to them, so both together are least squares."""
        if times is None:
            return cls(groups)
        line = times.astype("float64") - times.mean()
        if groups is not None:
            _, members = np.unique(groups, return_inverse=True)
            line -= (np.bincount(members, line) / np.bincount(members))[members]
        return cls(groups, line / (float(np.sqrt(line @ line)) or 1.0))

    @property
    def rank(self) -> int:
        """Number of parameters fitted to each series."""
        return (0 if self.groups is None else len(np.unique(self.groups))) + (self.trend is not None)

    def members(self, n_times: int) -> Matrix:
        """Return the group of each time; 0 for all where no mean is subtracted.

        Gaps are filled with the mean all the same.
        """
        return np.zeros(n_times, int) if self.groups is None else np.unique(self.groups, return_inverse=True)[1]


class Sums(NamedTuple):
    """Sums over some times of the known values at all places. Each is by group, then by place."""

    groups: Matrix
    counts: Matrix
    values: Matrix
    lines: Matrix
    """Of the straight line, where values are known."""
    slopes: Matrix
    """Of values times the line; by place alone."""


class Fit(NamedTuple):
    """Values to subtract at each place."""

    state: Matrix
    means: Matrix
    """By group, then by place: what is taken off, and what gaps are filled with."""
    slopes: Matrix


def sums(block: Matrix, first: int, n_times: int, removed: Removed) -> Sums:
    """Return the sums of a block of some of so many times, the first of this number, and all places."""
    groups, places = list(_by_group(removed.members(n_times)[first : first + len(block)])), block[0].size
    counts, values, lines = (np.zeros((len(groups), places)) for _ in range(3))
    slopes = np.zeros(places)
    for number, (_, rows) in enumerate(groups):
        x = block[rows].reshape(-1, places).astype("float64")
        finite = np.isfinite(x)
        x[~finite] = 0.0
        counts[number], values[number] = finite.sum(axis=0), x.sum(axis=0)
        if removed.trend is not None:
            line = removed.trend[first : first + len(block)][rows]
            lines[number] = line @ finite
            slopes += line @ x
    return Sums(np.array([group for group, _ in groups]), counts, values, lines, slopes)


def _by_group(members: Matrix) -> Iterator[tuple[int, Any]]:
    """Yield each group that occurs, and its times among these."""
    groups, counts = np.unique(members, return_counts=True)
    rows = np.split(members.argsort(kind="stable"), counts.cumsum()[:-1]) if len(groups) > 1 else [slice(None)]
    return zip(groups.tolist(), rows, strict=True)


def added(parts: Sequence[Sums]) -> Sums:
    """Add the sums over the times of all parts."""
    groups = np.unique(np.concatenate([part.groups for part in parts]))
    totals = [np.zeros((len(groups), part.shape[1])) for part in parts[0][1:4]]
    for part in parts:
        for total, each in zip(totals, part[1:4], strict=True):
            total[np.searchsorted(groups, part.groups)] += each
    return Sums(groups, totals[0], totals[1], totals[2], np.sum([part.slopes for part in parts], axis=0))


def fitted(total: Sums, removed: Removed, n_times: int, missing: str) -> Fit:
    """Return the values to subtract at each place, from the sums over all times."""
    count = total.counts.sum(axis=0)
    gaps = LEFT_OUT if missing == "leave out" else FILLED
    state = np.where(count == n_times, PRESENT, np.where(count == 0, ABSENT, gaps))
    members, has_values = removed.members(n_times), total.counts > 0
    sizes = np.bincount(members)[:, None]
    means = total.values / np.maximum(total.counts, 1)
    # A group without any value is filled with the mean of all groups.
    whole = (means * sizes * has_values).sum(axis=0) / np.maximum((sizes * has_values).sum(axis=0), 1)
    means = np.where(has_values, means, whole)
    slopes = total.slopes
    if removed.trend is not None:
        of_line = np.bincount(members, removed.trend)[:, None]
        slopes = slopes + (means * (of_line - total.lines)).sum(axis=0)
    return Fit(state, means, slopes)


def fitted_anomalies(
    block: Matrix,
    weights: Matrix,
    fit: Fit,
    block_info: Any = None,
    *,
    removed: Removed,
    n_times: int,
    missing: str,
    as_type: str,
    where: Callable[[tuple[int, ...]], str],
    title: str,
    out: Matrix | None = None,
) -> Matrix:
    """Compute weighted anomalies of some times of all places, from the sums over all times. Places left out are zeros.

    `where` describes the place of an index in the whole array. The anomalies are written to `out` if it is given.
    """
    first, shape = block_info[0]["array-location"][0][0], block.shape[1:]
    if missing == "refuse":
        _refuse(np.isfinite(block).reshape(len(block), -1), fit.state == FILLED, block, block_info, where, title)
    places, slopes = fit.state.reshape(shape), fit.slopes.reshape(shape)
    used = ((places == PRESENT) | (places == FILLED)) * weights[0]
    out = np.empty(block.shape, as_type) if out is None else out
    for group, rows in _by_group(removed.members(n_times)[first : first + len(block)]):
        x, mean = block[rows].astype("float64"), fit.means[group].reshape(shape)
        np.copyto(x, mean, where=~np.isfinite(x))
        rounding = n_times * np.finfo(float).eps * _largest(x)
        if removed.groups is not None:
            x -= mean
        if removed.trend is not None:
            x -= np.multiply.outer(removed.trend[first : first + len(block)][rows], slopes)
        if removed.rank:
            # Set constant series to exactly zero, as the rest is rounding.
            x[:, _largest(x) <= rounding] = 0.0
        x *= used
        out[rows] = x
    return out


def _largest(x: Matrix) -> Matrix:
    """Return the largest absolute value of each place, without a copy of all."""
    return np.maximum(x.max(axis=0), -x.min(axis=0))


def anomalies(
    block: Matrix,
    weights: Matrix,
    block_info: Any = None,
    *,
    removed: Removed,
    missing: str,
    as_type: str,
    **options: Any,
) -> Matrix:
    """Return `fitted_anomalies` of all times of some places, and a last row with the outcome for each place."""
    how: dict[str, Any] = {"removed": removed, "n_times": len(block), "missing": missing, "as_type": as_type}
    fit = fitted(sums(block, 0, len(block), removed), removed, len(block), missing)
    result = np.empty((len(block) + 1, *block.shape[1:]), as_type)
    fitted_anomalies(block, weights, fit, block_info, out=result[:-1], **how, **options)
    result[-1] = fit.state.reshape(block.shape[1:])
    return result


def _refuse(
    finite: Matrix, gaps: Matrix, block: Matrix, block_info: Any, where: Callable[[tuple[int, ...]], str], title: str
) -> None:
    """Raise a ValueError with the place of the first value that is missing among those with gaps."""
    lacking = ~finite & gaps
    if not lacking.any():
        return
    row, column = np.argwhere(lacking)[0]
    start = [each[0] for each in block_info[0]["array-location"]]
    inside = np.unravel_index(column, block.shape[1:])
    place = (start[0] + int(row), *(first + int(each) for first, each in zip(start[1:], inside, strict=True)))
    nothing = int((~finite).all(axis=1).sum())
    part = "the grid" if block.shape[1:] == tuple(block_info[0]["shape"][1:]) else "a part of the grid"
    others = f" At {nothing} of the {len(block)} times no place of {part} has a value." if nothing else ""
    others += "" if block.shape == tuple(block_info[0]["shape"]) else " Other blocks may have more."
    raise ValueError(
        f"{title} has values that are missing or not finite at some times only: {lacking.sum()} in "
        f"{lacking.any(axis=0).sum()} of the {gaps.size} places of {part}, the first at {where(place)}.{others} "
        "Choose missing='mean' to fill them, or missing='leave out' to leave those places out."
    )
