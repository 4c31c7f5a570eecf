"""A gate for CI, which fails what is surely slower than before, or takes more memory, by more than is allowed."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from workbench import formats
from workbench.errors import BadInputError, NotFoundError
from workbench.runs import store
from workbench.runs.comparing.comparisons import Comparison, Row
from workbench.runs.statistics import CONFIDENCE, compared

What = Literal["time", "memory"]

_FEWEST = 4
"""Runs of each: of fewer the test of Mann and Whitney finds no difference at 95 %, however large."""


class Judged(NamedTuple):
    """One row against the first."""

    label: str
    what: What
    failed: bool
    sentence: str


def read_limit(text: str) -> float:
    """Part by which something may grow: 0.1 of '10%'. Raises BadInputError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if found is None:
        raise BadInputError(f"The limit is {text!r:.40}. Give a percentage such as 10%.")
    return float(found[1]) / 100


def judge(comparison: Comparison, *, slower: float | None = None, memory: float | None = None) -> tuple[Judged, ...]:
    """Judge each row against the first. It fails where the median ratio is over the limit and surely not by chance.

    Raises BadInputError where there are too few runs to tell.
    """
    first, *others = comparison.rows
    limits: list[tuple[What, float]] = []
    limits += [("time", slower)] if slower is not None else []
    limits += [("memory", memory)] if memory is not None else []
    return tuple(_judged(first, other, what, limit) for what, limit in limits for other in others)


def _judged(first: Row, other: Row, what: What, limit: float) -> Judged:
    one, two = (row.seconds if what == "time" else _peaks(row) for row in (first, other))
    for row, values in ((first, one), (other, two)):
        if len(values) < _FEWEST:
            raise BadInputError(
                f"{row.label} has {formats.count(len(values), 'run')} that tell of {what}, and at least {_FEWEST} of "
                "each are needed to tell a difference from chance. Run it more often."
            )
    found = compared(two, one)
    assert found.low is not None
    assert found.high is not None
    failed = found.ratio > 1 + limit and found.low > 1
    shown = formats.duration if what == "time" else formats.size
    middle = [shown(statistics.median(values)) for values in (one, two)]
    verdict = "over the limit" if failed else "within the limit"
    return Judged(
        other.label,
        what,
        failed,
        f"{other.label}: {what} {found.ratio:.3g} times that of {first.label} ({found.low:.3g} to {found.high:.3g} at "
        f"{100 * CONFIDENCE:.0f} %; {middle[0]} and {middle[1]}), {verdict} of {1 + limit:.3g} times.",
    )


def _peaks(row: Row) -> tuple[float, ...]:
    """The most that a worker held in each run that told."""
    found = []
    for sample in row.samples:
        try:
            told = store.get(sample.run).diagnosis if sample.status == "done" else None
        except NotFoundError:
            told = None
        if told is not None and told.peak is not None:
            found.append(float(told.peak.bytes))
    return tuple(found)


def junit(judged: Sequence[Judged], name: str) -> str:
    """Return what was judged as the XML that CI systems read."""
    failures = sum(each.failed for each in judged)
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(judged)), failures=str(failures))
    for each in judged:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=f"{each.label}: {each.what}")
        if each.failed:
            ElementTree.SubElement(case, "failure", message=each.sentence).text = each.sentence
        else:
            ElementTree.SubElement(case, "system-out").text = each.sentence
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
