"""Judge repeated times: spread, whether two things differ, how they scale. Functions of numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel

CONFIDENCE = 0.95
"""Level of the interval by which a difference is judged."""

FEWEST_REPEATS = 4
"""Least number of times: two times slowed equally by a busy machine look like a difference, and not like noise."""

EQUAL = 0.05
"""Part by which two times may differ and still be called equal."""

MOST_MORE = 1000
"""Repeats beyond which no more measurements are advised: the times scatter too much."""

_MOST_ADVISED = 100
"""Repeats that are still feasible for a user."""

_POWER = 0.84
"""Standard errors beyond half an interval with which four in five intervals exclude a bound."""

_TICK = 1e-9
"""Smallest difference of times, in seconds, that a clock can measure."""

Difference = Literal["faster", "slower", "equal", "undecided"]


class Spread(BaseModel, frozen=True):
    """Times of one and the same thing, in seconds."""

    median: float
    min: float
    max: float
    q1: float
    """A quarter of the times are shorter."""
    q3: float
    """A quarter of the times are longer."""


class Ratio(NamedTuple):
    """Ratio of the times of two things."""

    ratio: float
    """Geometric mean of the quotients."""
    low: float | None
    high: float | None
    """Interval of the ratio at 95 %, None where there are too few times for one."""
    difference: Difference
    """'equal' where the whole interval lies within 5 % of 1, 'undecided' where it holds 1 and reaches beyond that, or
    where fewer than `FEWEST_REPEATS` times were measured of each."""
    deviation: float | None
    """Standard deviation of the logarithm of one quotient, None for one time of each."""
    repeats: int
    """Quotients, or times of the side that has fewer."""


def spread(seconds: Sequence[float]) -> Spread:
    """Return the median and spread of times; quartiles lie between the times, as NumPy's default has them."""
    median = statistics.median(seconds)
    q1, _, q3 = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else (median,) * 3
    return Spread(median=median, min=min(seconds), max=max(seconds), q1=q1, q3=q3)


def speed(n_bytes: float | None, seconds: float | None) -> float | None:
    """Return the bytes per second, the only speed shown next to a time; None if size or time is missing."""
    if not n_bytes or not seconds:
        return None
    per_second = n_bytes / seconds
    return per_second if math.isfinite(per_second) else None


def compared(times: Mapping[int, float], reference: Mapping[int, float], *, paired: bool) -> Ratio:
    """Return the ratio of `times` to `reference`, both by the round in which they were measured.

    Logarithms of times are assumed to be normally distributed, and the interval is Student's. `paired` judges the
    quotients within rounds, so that effects on a whole round don't count; otherwise Welch's interval is for two
    independent sets of times.
    """
    rounds = [each for each in times if each in reference]
    if paired and rounds:
        return _ratio([[_log(times[each]) - _log(reference[each]) for each in rounds]])
    return _ratio([[_log(each) for each in times.values()], [-_log(each) for each in reference.values()]])


def _ratio(samples: Sequence[Sequence[float]]) -> Ratio:
    """Return the ratio whose logarithm is the sum of the means of `samples`."""
    repeats = min(map(len, samples))
    middle = sum(map(statistics.fmean, samples))
    if repeats == 1:
        return Ratio(math.exp(middle), None, None, "undecided", None, 1)
    variances = [statistics.variance(each) for each in samples]
    # Welch's degrees of freedom lie between those of the smaller sample and of both together: the fewest are safe.
    half = student(repeats - 1) * math.sqrt(sum(v / len(each) for v, each in zip(variances, samples, strict=True)))
    low, high = math.exp(middle - half), math.exp(middle + half)
    difference = _difference(low, high) if repeats >= FEWEST_REPEATS else "undecided"
    return Ratio(math.exp(middle), low, high, difference, math.sqrt(sum(variances)), repeats)


def student(freedom: float, share: float = CONFIDENCE) -> float:
    """Return the quantile of Student's t for a two-sided interval of 95 % or 80 %."""
    # It is nearly linear in the inverse of the degrees of freedom: interpolated to a thousandth.
    return float(np.interp(1 / freedom, _INVERSES, _STUDENT[share]))


_INVERSES = [1 / each for each in (math.inf, 30, 15, 10, 8, 6, 5, 4, 3, 2, 1)]
_STUDENT = {
    0.95: (1.9600, 2.0423, 2.1314, 2.2281, 2.3060, 2.4469, 2.5706, 2.7764, 3.1824, 4.3027, 12.7062),
    0.8: (1.2816, 1.3104, 1.3406, 1.3722, 1.3968, 1.4398, 1.4759, 1.5332, 1.6377, 1.8856, 3.0777),
}


def _log(seconds: float) -> float:
    return math.log(max(seconds, _TICK))


def more_repeats(ratio: Ratio, limit: float | None = None) -> int | None:
    """Return the number of further times to measure, to probably decide the comparison; None for too many.

    It is decided when the interval of the ratio excludes `limit`; without one, when it excludes 1 or lies within 5 %
    of it, whichever is easier by what was measured.
    """
    least = max(1, FEWEST_REPEATS - ratio.repeats)
    if ratio.deviation is None:
        return least
    middle = math.log(ratio.ratio)
    margin = max(abs(middle), math.log1p(EQUAL) - abs(middle)) if limit is None else abs(middle - math.log(limit))
    # Intervals narrow faster than by the root of the repeats while these are few.
    enough = (
        n
        for n in range(max(ratio.repeats + least, FEWEST_REPEATS), ratio.repeats + MOST_MORE + 1)
        if (student(n - 1) + _POWER) * ratio.deviation <= margin * math.sqrt(n)
    )
    return next((n - ratio.repeats for n in enough), None)


def advice(more: int | None, *, busy: bool = False) -> str:
    """Return advice for an undecided comparison, by `more_repeats`; `busy` if the times scatter widely."""
    if more is None or more > _MOST_ADVISED:
        return "the times scatter too much: measure on a quiet machine, or give the runs more to do"
    why = "the machine was busy; " if busy else ""
    return f"{why}repeat {more} more {'time' if more == 1 else 'times'}"


def _difference(low: float, high: float) -> Difference:
    # The order of the two must not matter, and the other order gives the reciprocal ratio.
    if low >= 1 / (1 + EQUAL) and high <= 1 + EQUAL:
        return "equal"
    if low <= 1 <= high:
        return "undecided"
    return "faster" if high < 1 else "slower"
