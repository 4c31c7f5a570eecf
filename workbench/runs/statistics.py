"""Repeated times, judged: median and spread, outliers, whether two differ, how they scale. Functions of numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from pydantic import BaseModel

CONFIDENCE = 0.95
"""Of an interval that a difference is judged by."""

FEWEST_REPEATS = 4
"""With three times against three, even times that don't overlap come about by chance once in ten."""

_OUTLIER_SCORE = 3.5
_LEAST_OUTLIER = 0.05
_SCALE_OF_MAD = 0.6745
_FEWEST_FOR_OUTLIERS = 4
_MOST_EXACT = 20

EQUAL = 0.05
"""Part by which two times may differ and still be called equal."""

MOST_MORE = 1000
"""Repeats beyond which nobody is advised to measure more: the times scatter too much."""

_MOST_ADVISED = 100
"""Repeats that a person may still make."""

_POWER = 2.8
"""Standard errors between an estimate and a bound with which four in five intervals at 95 % exclude the bound."""

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


class Outlier(NamedTuple):
    """A time far from the others."""

    place: int
    """Among the times, from 0."""
    factor: float
    """Times the median."""


class Ratio(NamedTuple):
    """How many times as long one thing takes as another."""

    ratio: float
    """Median of all quotients of a time here and a time there: it lies in the interval, as that of the medians may not.
    """
    low: float | None
    high: float | None
    """Interval of the ratio at `confidence`, None where there is only one time on a side."""
    confidence: float
    difference: Difference
    """'equal' where the whole interval lies within 5 % of 1, 'undecided' where it neither does nor excludes 1, or where
    too few times were measured for an interval at 95 %."""

    @property
    def holds_one(self) -> bool:
        """Whether there is an interval at 95 %, and 1 lies in it."""
        if self.low is None or self.high is None or self.confidence < CONFIDENCE:
            return False
        return self.low <= 1 <= self.high


class Amdahl(NamedTuple):
    """Time of a computation on n cores: `serial + parallel / n` seconds."""

    serial: float
    parallel: float


def spread(seconds: Sequence[float]) -> Spread:
    """Median and spread of times; quartiles lie between the times, as NumPy's default has them."""
    median = statistics.median(seconds)
    q1, _, q3 = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else (median,) * 3
    return Spread(median=median, min=min(seconds), max=max(seconds), q1=q1, q3=q3)


def speed(n_bytes: float | None, seconds: float | None) -> float | None:
    """Return the bytes a second that belong to a time, the only speed shown next to it; None without both."""
    if not n_bytes or not seconds:
        return None
    found = n_bytes / seconds
    return found if math.isfinite(found) else None


def outliers(seconds: Sequence[float]) -> tuple[Outlier, ...]:
    """Times whose modified z-score is above 3.5 and that are off by 5 % at least; none among fewer than four.

    The score is that of Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): 0.6745 times the distance to
    the median, over the median of those distances. Of times that lie within a thousandth of one another, one that is
    two thousandths off scores high and matters to nobody: hence the 5 %.
    """
    if len(seconds) < _FEWEST_FOR_OUTLIERS:
        return ()
    middle = statistics.median(seconds)
    deviation = statistics.median(abs(each - middle) for each in seconds)
    found = []
    for index, each in enumerate(seconds):
        off = abs(each - middle)
        score = _SCALE_OF_MAD * off / deviation if deviation else math.inf if off else 0.0
        if score > _OUTLIER_SCORE and off > _LEAST_OUTLIER * middle:
            found.append(Outlier(index, each / middle))
    return tuple(found)


def ratio(seconds: Sequence[float], reference: Sequence[float]) -> Ratio:
    """How many times as long `seconds` are as `reference`, with an interval that assumes nothing about their spread.

    The interval is that of Hodges and Lehmann: of all quotients of a time here and a time there, so many of the
    smallest and the largest are left out as the distribution of Mann and Whitney's U allows at 95 %. It holds 1 just
    where the test of Mann and Whitney finds no difference, which is no evidence that there is none.
    """
    quotients = sorted(each / other for each in seconds for other in reference)
    # Of an even number the geometric mean of the two in the middle: turned round, a ratio is its reciprocal.
    middle = math.sqrt(quotients[(len(quotients) - 1) // 2] * quotients[len(quotients) // 2])
    n, m = len(seconds), len(reference)
    if n == 1 or m == 1:
        return Ratio(middle, None, None, 0.0, "undecided")
    left_out, confidence = _left_out(n, m)
    low, high = quotients[left_out], quotients[-1 - left_out]
    return Ratio(middle, low, high, confidence, _difference(low, high, confidence))


@lru_cache(maxsize=4096)
def compared(seconds: tuple[float, ...], reference: tuple[float, ...]) -> Ratio:
    """Return the ratio of times as `ratio` does, computed once."""
    return ratio(seconds, reference)


def more_repeats(seconds: Sequence[float], reference: Sequence[float], limit: float | None = None) -> int | None:
    """Return how many more times to measure each, so that the comparison is probably decided; None for too many.

    It is decided when the interval of the ratio excludes `limit`; without one, when it excludes 1 or lies within 5 %
    of it, whichever is easier by what was measured. Outliers don't count in the spread.
    """
    pairs = [_without_outliers(each) for each in (seconds, reference)]
    least = max(1, FEWEST_REPEATS - min(len(seconds), len(reference)))
    freedom = sum(map(len, pairs)) - 2
    if min(map(len, pairs)) < 2:
        return least
    logs = [[math.log(each) for each in times] for times in pairs]
    variance = sum((each - statistics.fmean(times)) ** 2 for times in logs for each in times) / freedom
    apart = math.log(ratio(*pairs).ratio)
    margin = max(abs(apart), math.log1p(EQUAL) - abs(apart)) if limit is None else abs(apart - math.log(limit))
    if variance > MOST_MORE * margin**2:
        return None
    wanted = math.ceil(2 * _POWER**2 * variance / margin**2) if variance else 0
    more = max(least, wanted - min(len(seconds), len(reference)))
    return more if more <= MOST_MORE else None


def advice(more: int | None) -> str:
    """Return what to do where a comparison is undecided, by `more_repeats`."""
    if more is None or more > _MOST_ADVISED:
        return "the times scatter too much, so measure on a quiet machine, or give the runs more to do"
    return f"repeat it {more} more {'time' if more == 1 else 'times'}"


def amdahl(points: Sequence[tuple[float, float]]) -> Amdahl | None:
    """Amdahl's law through (cores, seconds), by least squares of the relative error, with neither part below 0.

    None where fewer than two numbers of cores were measured.
    """
    if len({cores for cores, _ in points}) < 2:
        return None
    # Each equation is divided by its time: half a second matters more where one second is measured than a hundred.
    rows = [(1 / seconds, 1 / (cores * seconds)) for cores, seconds in points]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    serial, parallel = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if serial < 0:
        return Amdahl(0.0, b / bb)
    return Amdahl(serial, parallel) if parallel > 0 else Amdahl(a / aa, 0.0)


def _without_outliers(seconds: Sequence[float]) -> list[float]:
    strayed = {each.place for each in outliers(seconds)}
    return [each for place, each in enumerate(seconds) if place not in strayed]


def _difference(low: float, high: float, confidence: float) -> Difference:
    if confidence < CONFIDENCE:
        return "undecided"
    if low <= 1 <= high:
        # Turned round, a ratio is its reciprocal: which of two comes first must not matter.
        return "equal" if low >= 1 / (1 + EQUAL) and high <= 1 + EQUAL else "undecided"
    return "faster" if high < 1 else "slower"


@lru_cache(maxsize=256)
def _left_out(n: int, m: int) -> tuple[int, float]:
    """How many quotients to leave out at each end, and the confidence that this gives."""
    if max(n, m) > _MOST_EXACT:
        middle, deviation = n * m / 2, math.sqrt(n * m * (n + m + 1) / 12)
        z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        return max(0, math.floor(middle - z * deviation)), CONFIDENCE
    chances = _mann_whitney(n, m)
    below, k = 0.0, 0
    while 2 * (below + chances[k]) <= 1 - CONFIDENCE:
        below += chances[k]
        k += 1
    # With the fewest times no quotient may be left out, and the interval holds less than 95 %.
    left_out = max(k - 1, 0)
    return left_out, 1 - 2 * sum(chances[: left_out + 1])


def _mann_whitney(n: int, m: int) -> list[float]:
    """Chance of each value of U, from 0 to n·m, when two sets of times come from the same distribution."""
    # Gaussian binomial coefficient: the product of (1 - q^(m+i)) / (1 - q^i) for i from 1 to n.
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    every = math.comb(n + m, n)
    return [count / every for count in counts]
