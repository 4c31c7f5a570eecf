"""Summary of a comparison: rows with ratios, agreement and verdict, as values, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from workbench import formats
from workbench.errors import on_one_line
from workbench.runs import statistics
from workbench.runs.comparing.agreement import Agreement, Answer, agreement, data_of
from workbench.runs.comparing.comparisons import Comparison, Mode, Row
from workbench.runs.comparing.differences import Differing, differences
from workbench.runs.comparing.scaling import Scaling, efficiency_text, scalings
from workbench.runs.forecasting import devices, machines
from workbench.runs.run import WATCHED, answered
from workbench.runs.statistics import Ratio, Spread, compared, more_repeats, speed, spread
from workbench.runs.transfers import speeds
from workbench.workloads.values import Check

Format = Literal["markdown", "csv", "json"]

_BUSY = 2.0
"""Ratio of an interval's ends above which the machine's other load, not the hardware, explains the times."""


_NOTABLE = 0.02
"""Relative difference of a ratio from that of the medians above which a remark explains it."""


class Times(Spread, frozen=True):
    """Times of a row in seconds."""

    all: tuple[float, ...]
    """Times in the order of measurement."""
    rounds: tuple[int, ...] = ()
    """Round of each time, in which it is paired with those of other rows; none for past runs."""

    @property
    def by_round(self) -> dict[int, float]:
        """Times by round, or by position if there are no rounds."""
        return dict(zip(self.rounds or range(len(self.all)), self.all, strict=True))

    def ratio_to(self, other: Times) -> Ratio:
        """Return the ratio of these times to the other's."""
        return compared(self.by_round, other.by_round, paired=bool(self.rounds and other.rounds))


class RowSummary(BaseModel, frozen=True):
    """One line of the table."""

    on: str
    """Line that names the hardware, with the values of swept parameters."""
    title: str
    """Description of the hardware, with these values."""
    describe: str | None
    """Workers, threads, memory and protocol."""
    seconds: Times | None
    ratio: float | None
    """Ratio of the time to that of the first measured row; None if that had another workload."""
    ratio_low: float | None
    ratio_high: float | None
    difference: statistics.Difference | None
    """Decision by the interval of the ratio; None for the first row."""
    bytes_per_second: float | None
    bandwidth: tuple[float, float, float] | None
    """Quartiles of the bytes per second between workers, each the median over the runs."""
    transport: str | None
    """Transport between workers; None without transfers above 1 MB, or if the workload doesn't report it."""
    cost: float | None
    """Price of the median time, at the price per hour when the runs started, or today's if there was none."""
    energy: float | None
    """Joules used by the row's GPUs, median of the runs."""
    check: Check | None
    """Check of all runs together: passed if each did."""
    runs: tuple[str, ...]
    reason: str | None
    """Reason that it is unavailable, or that its measuring ended early."""


class Summary(BaseModel, frozen=True):
    """All results of a comparison."""

    id: str
    workload: str
    title: str
    """Title of the workload, marked if GPUs were simulated."""
    status: str
    mode: Mode
    seed: int
    """Seed of the order of the rows within each round."""
    rows: tuple[RowSummary, ...]
    agree: bool | None
    agreement: str
    verdict: str
    scaling: tuple[Scaling, ...]
    differences: tuple[Differing, ...]
    notes: tuple[str, ...]
    error: str | None

    def __repr__(self) -> str:
        return f"<Summary of {self.id}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return the summary as a notebook shows it."""
        from workbench.runs.comparing.html import summary_html

        return summary_html(self)


def summarise(comparison: Comparison) -> Summary:
    """Summarize a comparison, which may still be active."""
    rows = tuple(_row(row, _first(comparison), in_rounds=comparison.in_rounds) for row in comparison.rows)
    found = agreement(_answers(comparison))
    failed = [row.title for row in comparison.rows if row.failed]
    if failed and found.agree is not False:
        found = Agreement(None, f"Runs of {', '.join(failed)} failed, so not all answers can be compared.")
    return Summary(
        id=comparison.id,
        workload=comparison.workload,
        title=comparison.title,
        status=comparison.status,
        mode=comparison.mode,
        seed=comparison.seed,
        rows=rows,
        agree=found.agree,
        agreement=found.how,
        verdict=verdict(rows, found.agree, found.how, is_over=not comparison.active),
        scaling=scalings(comparison),
        differences=differences(comparison) if comparison.mode == "past" else (),
        notes=comparison.notes,
        error=comparison.error,
    )


def export(comparison: Comparison, form: Format) -> str:
    """Return the comparison as text in one of the formats."""
    summary = summarise(comparison)
    if form == "json":
        return summary.model_dump_json(indent=2)
    return as_csv(summary) if form == "csv" else as_markdown(summary)


def as_markdown(summary: Summary) -> str:
    """Return the table, the verdict and the remarks in GitHub's Markdown."""
    lines = [f"**{_escaped(summary.title)}**: {_escaped(summary.verdict)}"]
    for title, found in tables(summary).items():
        lines += ["", *([f"{_escaped(title)}:", ""] if title else []), *_markdown_table(*found)]
    return "\n".join([*lines, "", *(f"- {_escaped(remark)}" for remark in remarks(summary))]).rstrip() + "\n"


def as_csv(summary: Summary) -> str:
    """Return the rows as CSV, with unformatted numbers in seconds, bytes and joules."""
    out = io.StringIO()
    names = ("median", "min", "max", "q1", "q3")
    writer = csv.writer(out, lineterminator="\n")
    plain = ("ratio", "ratio_low", "ratio_high", "difference", "bytes_per_second", "cost", "energy", "transport")
    quartiles = [f"bandwidth_{name}" for name in ("q1", "median", "q3")]
    seconds = [f"seconds_{name}" for name in names]
    writer.writerow(["on", "cluster", *seconds, "repeats", *plain, *quartiles, "check", "reason"])
    for row in summary.rows:
        times = [getattr(row.seconds, name) for name in names] if row.seconds else [None] * len(names)
        repeats = len(row.seconds.all) if row.seconds else 0
        values = [*(getattr(row, name) for name in plain), *(row.bandwidth or (None,) * len(quartiles))]
        on, described, reason = map(_not_computed, (row.on, row.describe, row.reason))
        writer.writerow([on, described, *times, repeats, *values, check_text(row), reason])
    return out.getvalue()


def tables(summary: Summary) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return the header and the rows of each table by title: of all rows, of scaling, and of differences."""
    found = {"": cells(summary)}
    for curve in summary.scaling:
        body = [
            [str(p.cores), formats.duration(p.seconds), f"{p.speedup:.2f}", efficiency_text(p)] for p in curve.points
        ]
        found[f"Scaling, {curve.what}"] = ["cores", "time", "speed-up", "efficiency"], body
    if summary.differences:
        body = [[f"{each.kind}: {each.name}", *each.texts] for each in summary.differences]
        found["Differences"] = ["", *(row.title for row in summary.rows)], body
    return found


def cells(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the table as text, without empty columns."""
    header = [
        "runs" if summary.mode == "past" else "hardware",
        "time",
        "min – max",
        "relative time",
        "speed",
        "between workers",
        "cost",
        "GPU energy",
        "check",
    ]
    body = [
        [
            row.title,
            "–" if row.seconds is None else formats.duration(row.seconds.median),
            "" if row.seconds is None or len(row.seconds.all) == 1 else _range(row.seconds.min, row.seconds.max),
            ratio_text(row),
            "" if row.bytes_per_second is None else formats.rate(row.bytes_per_second),
            bandwidth_text(row),
            "" if row.cost is None else machines.cost_text(row.cost),
            "" if row.energy is None else f"{row.energy:.3g} J",
            row.reason or "" if row.seconds is None else check_text(row),
        ]
        for row in summary.rows
    ]
    columns = [i for i in range(len(header)) if i in (0, 1, len(header) - 1) or any(row[i] for row in body)]
    return [header[i] for i in columns], [[row[i] for i in columns] for row in body]


def remarks(summary: Summary) -> tuple[str, ...]:
    """Return the sentences below the table: agreement, rows that ended early, notes."""
    ended = (f"{row.title} ended early: {row.reason}" for row in summary.rows if row.reason and row.seconds)
    several = sum(row.seconds is not None for row in summary.rows) > 1
    agreed = summary.agreement if several or summary.agree is not None else None
    first = next((row.seconds.median for row in summary.rows if row.seconds), 1.0)
    differ = any(r.seconds and r.ratio and abs(r.ratio * first / r.seconds.median - 1) > _NOTABLE for r in summary.rows)
    how = "A ratio is the geometric mean over the rounds, which isn't that of the medians." if differ else None
    found = (summary.error, agreed, how, *ended, *summary.notes)
    return tuple(" ".join(each.split()) for each in found if each)


def verdict(rows: Sequence[RowSummary], agree: bool | None, how: str, *, is_over: bool) -> str:
    """Return the comparison in a few sentences."""
    measured = [row for row in rows if row.seconds is not None]
    if not measured:
        return "Nothing was measured." if is_over else "Nothing has been measured yet."
    if agree is False:
        return f"The answers do not agree, so the times say nothing: {how}"
    if any(row.ratio is None for row in measured):
        return "These are runs of different workloads, so their times are not compared."
    if len(measured) == 1:
        return f"{measured[0].title} took {_median(measured[0])}; there is nothing to compare it with."
    return " ".join(_order(measured))


def _order(measured: Sequence[RowSummary]) -> list[str]:
    """State which row is the fastest, and which can't be distinguished, each pair by its own interval."""
    first, best = measured[0], min(measured, key=lambda row: _times(row).median)
    pairs = [(row, first) for row in measured[1:]] + [(row, best) for row in measured if row not in (first, best)]
    judged = [(a, b, _ratio(a, b)) for a, b in pairs]
    if all(_ratio(a, b).difference == "equal" for a, b in itertools.combinations(measured, 2)):
        return [f"Equal within 5 %, by {formats.count(len(first.runs), 'repeat')} of each."]
    behind = [row for row in measured if row is not best and _ratio(row, best).difference == "slower"]
    alike = [f"{row.title} ({_median(row)})" for row in measured if row not in behind]
    same = [row.title for row in measured[1:] if row.difference == "equal"]
    sentences = []
    if len(alike) == 1:
        times = "" if best is first else f", {1 / (best.ratio or 1):.3g} times as fast as {first.title}"
        sentences.append(f"{best.title} is the fastest ({_median(best)}){times}.")
    elif behind:
        sentences.append(f"It is undecided which of these is the fastest: {', '.join(alike)}.")
    if same:
        sentences.append(f"Equal within 5 %: {', '.join([first.title, *same])}.")
    undecided = [each for each in judged if each[2].difference == "undecided"]
    return [*sentences, *_undecided(undecided, named=len(measured) > 2)]


def _undecided(pairs: Sequence[tuple[RowSummary, RowSummary, Ratio]], *, named: bool) -> list[str]:
    """Return the number of repeats that may decide what the times don't, with the names of the pairs if requested."""
    if not pairs:
        return []
    open_ = ", ".join(dict.fromkeys(f"{a.title} against {b.title}" for a, b, _ in pairs))
    numbers = [more_repeats(found) for *_, found in pairs]
    more = None if None in numbers else max(each for each in numbers if each is not None)
    busy = any(found.low and found.high and found.high > _BUSY * found.low for *_, found in pairs)
    return [f"Undecided: {f'{open_}; ' if named else ''}{statistics.advice(more, busy=busy)}."]


def _ratio(one: RowSummary, other: RowSummary) -> Ratio:
    return _times(one).ratio_to(_times(other))


def _times(row: RowSummary) -> Times:
    assert row.seconds is not None
    return row.seconds


def judged_text(row: RowSummary) -> str:
    """Describe a row relative to the first; empty for the first and for another workload."""
    if row.difference is None or row.ratio is None:
        return ""
    words = {"equal": "equal within 5 %", "undecided": "undecided"}
    faster = f"{1 / row.ratio:.3g} times as fast"
    return words.get(row.difference, faster if row.difference == "faster" else f"{row.ratio:.3g} times as long")


def ratio_text(row: RowSummary) -> str:
    """Return the ratio as the table shows it."""
    if row.ratio is None:
        return ""
    if row.difference is None:
        return "1"
    numbers = (
        [row.ratio] if row.ratio_low is None or row.ratio_high is None else [row.ratio, row.ratio_low, row.ratio_high]
    )
    # Enough digits that only 1 is shown as 1.
    digits = next((n for n in (3, 4, 5, 6) if all(each == 1 or f"{each:.{n}g}" != "1" for each in numbers)), 7)
    middle, *ends = (f"{each:.{digits}g}" for each in numbers)
    interval = f"{middle} ({' – '.join(ends)})" if ends else middle
    return f"{interval}, {judged_text(row)}" if row.difference in ("equal", "undecided") else interval


def bandwidth_text(row: RowSummary) -> str:
    """Return the bandwidth between workers with its quartiles: '85 (70 – 102) MiB/s over tcp'."""
    if row.bandwidth is None:
        return ""
    low, middle, high = (speeds([each]) for each in row.bandwidth)
    return f"{middle} ({low} – {high}) MiB/s over {row.transport}"


def check_text(row: RowSummary) -> str:
    """Return the check as the table shows it."""
    return "" if row.check is None else "passed" if row.check.passed else "failed"


# -- rows


def _first(comparison: Comparison) -> Row | None:
    return next((row for row in comparison.rows if row.seconds), None)


def _row(row: Row, first: Row | None, *, in_rounds: bool) -> RowSummary:
    seconds = row.seconds
    alike = first is not None and row.workload == first.workload
    ratio = (
        compared(row.times, first.times, paired=in_rounds) if seconds and first and alike and row is not first else None
    )
    n_bytes = [sample.bytes for sample in row.samples if sample.bytes and sample.seconds]
    # A row without GPUs may run on a machine whose GPUs other programs use.
    has_gpus = row.spec is not None and bool(row.spec.devices)
    energies = [sample.energy for sample in row.samples if sample.energy is not None and has_gpus]
    rounds = tuple(each.round for each in row.samples if each.seconds is not None) if in_rounds else ()
    times = Times(**spread(seconds).model_dump(), all=seconds, rounds=rounds) if seconds else None
    bandwidths = _bandwidths(row)
    return RowSummary(
        on=row.label,
        title=row.title,
        describe=None if row.spec is None else row.spec.describe(),
        seconds=times,
        ratio=1.0 if seconds and row is first else ratio and ratio.ratio,
        ratio_low=ratio and ratio.low,
        ratio_high=ratio and ratio.high,
        difference=ratio and ratio.difference,
        bytes_per_second=speed(spread(n_bytes).median, times.median) if n_bytes and times else None,
        bandwidth=_bandwidth(bandwidths),
        transport=bandwidths[-1]["transport"] if bandwidths else None,
        cost=None if times is None else machines.cost(times.median, _price_per_hour(row)),
        energy=spread(energies).median if energies else None,
        check=_check(row),
        runs=tuple(sample.run for sample in row.samples),
        reason=row.reason,
    )


def _check(row: Row) -> Check | None:
    checks = [sample.check for sample in row.samples if sample.check is not None]
    failed = [check for check in checks if not check.passed]
    return failed[0] if failed else checks[0] if checks else None


def _price_per_hour(row: Row) -> float | None:
    """Return the price when the runs started, or today's if the settings had none then."""
    for sample in row.samples:
        if sample.price_per_hour is not None:
            return sample.price_per_hour
    where = (row.inventory or {}).get("host") or devices.host()
    return None if row.spec is None else machines.price_per_hour(row.spec, where)


def _bandwidths(row: Row) -> list[Mapping[str, Any]]:
    """Return the bandwidths that a row's runs report, without runs that had no large transfers."""
    found = ((sample.result or {}).get("bandwidth") for sample in row.samples if sample.seconds is not None)
    return [each for each in found if each and each["overall"]]


def _bandwidth(bandwidths: Sequence[Mapping[str, Any]]) -> tuple[float, float, float] | None:
    if not bandwidths:
        return None
    low, middle, high = (
        statistics.spread(each).median for each in zip(*(t["overall"] for t in bandwidths), strict=True)
    )
    return low, middle, high


# -- answers


def _answers(comparison: Comparison) -> list[Answer]:
    return [
        Answer(
            row.label,
            data_of({"workload": row.workload, **_as_done(row)}, on_gpu=bool(row.spec and row.spec.devices)),
            answered(row.workload, sample.result),
            str(row.resolved.get("dtype", "float64")),
            None if sample.check is None else sample.check.passed,
            None if sample.check is None else sample.check.rounding,
            sample.bytes,
        )
        for row in comparison.rows
        for sample in row.samples
        if sample.status == "done"
    ]


def _as_done(row: Row) -> dict[str, Any]:
    """Return a row's parameters; if Dask's method is approximate, a row without Dask has another method."""
    if row.workload == WATCHED:
        # The name, tags and source of a watched run don't describe its input.
        return {}
    near = row.resolved.get("method") == "dask" and row.resolved.get("k") is not None
    return row.resolved | ({"method": row.spec.profile} if near and row.spec and row.spec.alone else {})


# -- text


def _markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    rows = [[_escaped(cell) for cell in row] for row in (header, *body)]
    rule = ["---"] + ["---:"] * (len(header) - 2) + ["---"] if len(header) > 2 else ["---"] * len(header)
    return [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]


def _escaped(text: str) -> str:
    """Escape text, so that Markdown shows no HTML, link or second row."""
    return on_one_line(text).replace("<", "&lt;").replace("[", "\\[").replace("|", "\\|")


def _not_computed(text: str | None) -> str | None:
    """Escape text, so that a spreadsheet doesn't read it as a formula."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text


def _range(low: float, high: float) -> str:
    return f"{formats.duration(low)} – {formats.duration(high)}"


def _median(row: RowSummary) -> str:
    return formats.duration(row.seconds.median) if row.seconds else "–"
