"""Gate for CI: fails rows that surely exceed the first row's time or memory by a limit."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

from workbench import formats
from workbench.errors import BadInputError, NotFoundError, quoted
from workbench.runs import store
from workbench.runs.comparing.comparisons import Comparison, Row
from workbench.runs.statistics import CONFIDENCE, FEWEST_REPEATS, advice, compared, more_repeats

What = Literal["time", "memory"]
Outcome = Literal["within", "over", "undecided", "failed", "too few"]


class Judged(NamedTuple):
    """Judgment of one row against the first."""

    outcome: Outcome
    """'failed' if one of the two rows has failed runs or is unavailable, 'too few' if too few runs report a value."""
    sentence: str


def read_limit(text: str) -> float:
    """Convert a limit of growth to a fraction: '10%' to 0.1. Raises BadInputError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if match is None:
        raise BadInputError(f"The limit is {quoted(text)}. Give a percentage such as 10%.")
    return float(match[1]) / 100


def check(rows: Sequence[Row], repeats: int = FEWEST_REPEATS) -> None:
    """Raise BadInputError if no row can be judged: there is only one, or too few repeats."""
    if len(rows) == 1:
        raise BadInputError(
            f"There is one row only, {rows[0].label}, and nothing to compare it with. Add --on or --sweep, or give "
            "--runs more names."
        )
    if repeats < FEWEST_REPEATS:
        raise BadInputError(
            f"{formats.count(repeats, 'repeat')} can't show a difference from chance. With a limit give "
            f"--repeats {FEWEST_REPEATS} or more."
        )


def judge(comparison: Comparison, *, slower: float | None = None, memory: float | None = None) -> tuple[Judged, ...]:
    """Judge each row against the first. It is over the limit only if the ratio's whole 95 % interval is.

    It is undecided if the limit lies in the interval. Raises BadInputError if there is only one row.
    """
    check(comparison.rows)
    first, *others = comparison.rows
    limits: tuple[tuple[What, float | None], ...] = (("time", slower), ("memory", memory))
    judging = partial(_judged, first, paired=comparison.in_rounds)
    return tuple(judging(other, what, limit) for what, limit in limits if limit is not None for other in others)


def _judged(first: Row, other: Row, what: What, limit: float, *, paired: bool) -> Judged:
    one, two = (row.times if what == "time" else _peaks(row) for row in (first, other))
    for row, values in ((other, two), (first, one)):
        if len(values) < FEWEST_REPEATS:
            return _not_judged(row, other.label, what, len(values))
    both = len(one.keys() & two.keys())
    if paired and both < FEWEST_REPEATS:
        head = f"{other.label}: its {what} can't be judged. {formats.count(both, 'round')} have it of both"
        return Judged("too few", f"{head}, {FEWEST_REPEATS} are needed. Repeat it more often.")
    ratio = compared(two, one, paired=paired)
    assert ratio.low is not None
    assert ratio.high is not None
    text_of = formats.duration if what == "time" else formats.size
    middle = [text_of(statistics.median(values.values())) for values in (one, two)]
    outcome: Outcome = "undecided"
    verdict = f"undecided at the limit of {1 + limit:.3g} times: {advice(more_repeats(ratio, 1 + limit))}"
    if ratio.low > 1 + limit or ratio.high <= 1 + limit:
        outcome = "over" if ratio.low > 1 + limit else "within"
        verdict = f"{outcome} the limit of {1 + limit:.3g} times"
    return Judged(
        outcome,
        f"{other.label}: {what} {ratio.ratio:.3g} times that of {first.label} ({ratio.low:.3g} to {ratio.high:.3g} at "
        f"{100 * CONFIDENCE:.0f} %; {middle[0]} and {middle[1]}), {verdict}.",
    )


def _not_judged(row: Row, label: str, what: What, count: int) -> Judged:
    """Explain why `label` can't be judged: `row` (that row or the first) has only `count` runs that report it."""
    head = f"{label}: its {what} can't be judged. {'It' if row.label == label else row.label}"
    if row.reason is not None:
        how = "has runs that failed" if row.failed else "can't be had"
        return Judged("failed", f"{head} {how}: {row.reason}")
    if len(row.seconds) < FEWEST_REPEATS:
        why = "to distinguish a difference from chance. Run it more often."
    elif row.spec is not None and row.spec.alone:
        why = "and only workers of Dask are sampled, which it doesn't have."
    else:
        why = "and its runs are too short for a worker to be sampled. Give them more to do."
    count_of = f"{head} has the {what} of {formats.count(count, 'run')}, {FEWEST_REPEATS} of each are needed"
    return Judged("too few", f"{count_of} {why}")


def _peaks(row: Row) -> dict[int, float]:
    """Return the peak memory of a worker by round, for the runs that report it."""
    peaks = {}
    for sample in row.samples:
        try:
            diagnosis = store.get(sample.run).diagnosis if sample.status == "done" else None
        except NotFoundError:
            diagnosis = None
        if diagnosis is not None and diagnosis.peak is not None:
            peaks[sample.round] = float(diagnosis.peak.bytes)
    return peaks
