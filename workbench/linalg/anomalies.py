"""What is left of series when their mean, seasonal cycle or trend is taken off: least squares, block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Matrix = np.ndarray[Any, Any]

ABSENT, PRESENT, LEFT_OUT, FILLED = range(4)
"""What is said of a series: it has no value at all; it has all; it has some and is left out, or filled."""


@dataclass(frozen=True, eq=False)
class Removed:
    """What is taken off each series: the mean of each group of times, and a straight line."""

    groups: Matrix | None = None
    """The group of each time, such as its month; None where no mean is taken off."""
    trend: Matrix | None = None
    """Times less what is removed of themselves, of length one; None where no line is taken off."""

    @classmethod
    def of(cls, groups: Matrix | None, times: Matrix | None) -> Removed:
        """Groups as they are given, and the line that is left of `times`, so that both together are least squares."""
        if times is None:
            return cls(groups)
        line = times.astype("float64")[:, None] - times.mean()
        cls(groups).off(line)
        length = float(np.sqrt((line**2).sum()))
        return cls(groups, line[:, 0] / (length or 1.0))

    @property
    def rank(self) -> int:
        """How many numbers are fitted to each series."""
        return (0 if self.groups is None else len(np.unique(self.groups))) + (self.trend is not None)

    def off(self, x: Matrix) -> None:
        """Take it off each column of `x`, in place."""
        for rows in self._groups():
            part = x[rows]
            x[rows] = part - part.mean(axis=0)
        if self.trend is not None:
            x -= self.trend[:, None] * (self.trend @ x)

    def fill(self, x: Matrix) -> None:
        """Put the mean of its group, or of its column, where there is NaN, in place."""
        for rows in [*self._groups(), slice(None)]:
            part = x[rows]
            known = np.isfinite(part)
            count = known.sum(axis=0)
            means = np.where(known, part, 0).sum(axis=0) / np.maximum(count, 1)
            x[rows] = np.where(known | (count == 0), part, means)

    def _groups(self) -> list[Any]:
        if self.groups is None:
            return []
        if (self.groups == self.groups[0]).all():
            return [slice(None)]
        return [np.flatnonzero(self.groups == each) for each in np.unique(self.groups)]


class Sums(NamedTuple):
    """What some times of all places add up to, of values that are known. Each is by group, then by place."""

    groups: Matrix
    counts: Matrix
    values: Matrix
    lines: Matrix
    """Of the straight line, where values are known."""
    slopes: Matrix
    """Of values times the line; by place alone."""


class Fit(NamedTuple):
    """What is taken off each place whose times are not at hand together."""

    state: Matrix
    means: Matrix
    """By group, then by place: what is taken off, and what gaps are filled with."""
    slopes: Matrix


def sums(block: Matrix, first: int, removed: Removed) -> Sums:
    """Of a block of some times, the first of this number, and all places."""
    rows = slice(first, first + len(block))
    groups = np.zeros(len(block), int) if removed.groups is None else removed.groups[rows]
    line = np.zeros(len(block)) if removed.trend is None else removed.trend[rows]
    there, members = np.unique(groups, return_inverse=True)
    counts, values, lines = (np.zeros((len(there), block[0].size)) for _ in range(3))
    slopes = np.zeros(block[0].size)
    for each, time, member in zip(block, line, members, strict=True):
        x = each.ravel().astype("float64")
        known = np.isfinite(x)
        x[~known] = 0.0
        counts[member] += known
        values[member] += x
        lines[member] += time * known
        slopes += time * x
    return Sums(there, counts, values, lines, slopes)


def added(parts: Sequence[Sums]) -> Sums:
    """Those of all parts' times."""
    groups = np.unique(np.concatenate([part.groups for part in parts]))
    places = np.searchsorted(groups, np.concatenate([part.groups for part in parts]))
    found = [np.zeros((len(groups), part.shape[1]), part.dtype) for part in parts[0][1:4]]
    for total, name in zip(found, ("counts", "values", "lines"), strict=True):
        np.add.at(total, places, np.concatenate([getattr(part, name) for part in parts]))
    return Sums(groups, found[0], found[1], found[2], np.sum([part.slopes for part in parts], axis=0))


def fitted(total: Sums, removed: Removed, n_times: int, missing: str) -> Fit:
    """What is taken off each place, from the sums of all times; the same as `Removed.fill` and `off` take."""
    count = total.counts.sum(axis=0)
    gaps = LEFT_OUT if missing == "leave out" else FILLED
    state = np.where(count == n_times, PRESENT, np.where(count == 0, ABSENT, gaps))
    groups = np.zeros(n_times, int) if removed.groups is None else removed.groups
    sizes = np.array([(groups == each).sum() for each in total.groups])[:, None]
    there = total.counts > 0
    means = total.values / np.maximum(total.counts, 1)
    # A group of which nothing is known is filled with the mean of all that is known or filled.
    whole = (means * sizes * there).sum(axis=0) / np.maximum((sizes * there).sum(axis=0), 1)
    means = np.where(there, means, whole)
    slopes = total.slopes
    if removed.trend is not None:
        of_line = np.array([removed.trend[groups == each].sum() for each in total.groups])[:, None]
        slopes = slopes + (means * (of_line - total.lines)).sum(axis=0)
    return Fit(state, means, slopes)


def fitted_anomalies(
    block: Matrix,
    weights: Matrix,
    fit: Fit,
    block_info: Any = None,
    *,
    removed: Removed,
    missing: str,
    as_type: str,
    where: Callable[[tuple[int, ...]], str],
    title: str,
) -> Matrix:
    """Weighted anomalies of some times of all places, from what all times add up to."""
    first = block_info[0]["array-location"][0][0]
    rows = slice(first, first + len(block))
    places = fit.state.reshape(block.shape[1:])
    if missing == "refuse":
        _refuse(np.isfinite(block).reshape(len(block), -1), fit.state == FILLED, block, block_info, where, title)
    means = fit.means.reshape(-1, *places.shape)
    slopes = fit.slopes.reshape(places.shape)
    groups = (
        np.zeros(len(block), int)
        if removed.groups is None
        else np.searchsorted(np.unique(removed.groups), removed.groups[rows])
    )
    used = ((places == PRESENT) | (places == FILLED)) * weights[0]
    found = np.empty(block.shape, as_type)
    for i, each in enumerate(block):
        x = each.astype("float64")
        mean = means[groups[i]]
        np.copyto(x, mean, where=~np.isfinite(x))
        if removed.groups is not None:
            x -= mean
        if removed.trend is not None:
            x -= removed.trend[first + i] * slopes
        np.multiply(x, used, out=found[i], casting="unsafe")
    return found


def anomalies(
    block: Matrix,
    weights: Matrix,
    block_info: Any = None,
    *,
    removed: Removed,
    missing: str,
    as_type: str,
    where: Callable[[tuple[int, ...]], str],
    title: str,
) -> Matrix:
    """Weighted anomalies of all times of some places, and a last row that says of each place what became of it.

    Places that are left out are zeros. `where` says in words which place of the whole array an index is.
    """
    x = block.reshape(len(block), -1).astype("float64")
    known = np.isfinite(x)
    count = known.sum(axis=0)
    state = np.where(count == len(x), PRESENT, np.where(count == 0, ABSENT, FILLED))
    gaps = state == FILLED
    if missing == "refuse":
        _refuse(known, gaps, block, block_info, where, title)
    if gaps.any() and missing == "mean":
        removed.fill(x)
    elif gaps.any():
        state[gaps] = LEFT_OUT
    x[:, (state == ABSENT) | (state == LEFT_OUT)] = 0.0
    removed.off(x)
    found = np.empty((len(x) + 1, *block.shape[1:]), as_type)
    np.multiply(x.reshape(block.shape), weights, out=found[:-1], casting="unsafe")
    found[-1] = state.reshape(block.shape[1:])
    return found


def _refuse(
    known: Matrix, gaps: Matrix, block: Matrix, block_info: Any, where: Callable[[tuple[int, ...]], str], title: str
) -> None:
    """Raise a ValueError with the place of the first value that is missing among those with gaps."""
    lacking = ~known & gaps
    if not lacking.any():
        return
    row, column = np.argwhere(lacking)[0]
    start = [each[0] for each in block_info[0]["array-location"]]
    inside = np.unravel_index(column, block.shape[1:])
    place = (start[0] + int(row), *(first + int(each) for first, each in zip(start[1:], inside, strict=True)))
    others = "" if block.shape == tuple(block_info[0]["shape"]) else " Other blocks may have more."
    raise ValueError(
        f"{title} has values that are missing or not finite at some times only: {lacking.sum()} in "
        f"{lacking.any(axis=0).sum()} of the {gaps.size} places of a block, the first at {where(place)}.{others} "
        "Choose missing='mean' to fill them, or missing='leave out' to leave those places out."
    )
