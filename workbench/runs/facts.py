"""A run as an ordered list of facts: the answer first, then its time, then all else. Every interface shows these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from workbench.errors import on_one_line
from workbench.formats import count, duration, percent, rate, size, span
from workbench.markup import facts as pairs_html, folded, fragment, joined, paragraph, table, tag
from workbench.runs import background_saves, singular_values, transfers
from workbench.runs.run import SHARES, SIMULATED, WATCHED, Run, answered
from workbench.workloads.values import FACTS

Group = Literal["error", "answer", "check", "time", "parameters", "hardware", "environment"]

TITLES: dict[Group, str] = {
    "time": "Where the time went",
    "parameters": "Parameters",
    "hardware": "Hardware",
    "environment": "Environment",
}
"""Headings of groups; the others come first and need none."""

DETAILS: tuple[Group, ...] = ("parameters", "hardware", "environment")
"""Groups that are folded where that is possible."""

_SIMULATED = "computed by processors for GPUs that aren't there: time and energy are of no GPU"
_PARTS = ("bandwidth", "certificate", "scatter")
"""Parts of a result that belong to other facts, or are drawn."""
_MORE = {"Check": "By how much", "Diagnosis": "What else could be better"}
"""Titles of folded details."""
_LEAST_SHARE = 0.005
"""Share of the time below which a piece of the bar would be invisible."""


class Fact(NamedTuple):
    """One property of a run."""

    label: str
    text: str
    group: Group
    status: Literal["good", "bad", "warning"] | None = None
    detail: str = ""
    """Further text, folded where that is possible."""
    values: singular_values.Values | None = None
    """The table that `text` sums up."""
    shares: Mapping[str, float] | None = None
    """Shares of the workers' time that `text` lists."""


def facts(run: Run) -> tuple[Fact, ...]:
    """Return all that is known of a run, in the order in which it is shown."""
    groups = (_answer(run), _check(run), _time(run), _parameters(run), _hardware(run), _environment(run))
    return (
        *_error(run),
        *(fact for group in groups for fact in group if fact.text),
    )


def _error(run: Run) -> Iterator[Fact]:
    if run.error and run.status == "cancelled":
        yield Fact("Reason", run.error, "error", "warning")
    elif run.error:
        yield Fact("Error", run.error, "error", "bad")


def answer(workload: str, result: Mapping[str, Any] | None, *, as_given: bool = False) -> list[Fact]:
    """Return the parts of a result. With `as_given`, the user's own names stay unchanged."""
    if result is None:
        return []
    values_by_name = answered(workload, result)
    if values_by_name is None:
        return [Fact("Answer", count(result["tasks"], "task"), "answer")]
    others = singular_values.other_values(values_by_name, _PARTS)
    facts = []
    if values := singular_values.values(values_by_name):
        numbers = values_by_name["singular_values"]
        first = ", ".join(f"{each:.6g}" if isinstance(each, int | float) else plain(each) for each in numbers[:3])
        text = f"σ = {first}{f', … ({len(numbers)})' if len(numbers) > 3 else ''}"
        facts.append(Fact("Singular values", text, "answer", values=values))
    if isinstance(others.get("sentence"), str):
        facts.append(Fact("Answer", others.pop("sentence"), "answer"))
    own = as_given or workload == WATCHED
    words = {name: name if own else name.replace("_", " ").capitalize() for name in others}
    return facts + [Fact(words[name], plain(value), "answer") for name, value in others.items()]


def headline(workload: str, result: Mapping[str, Any], *, simulated: bool = False) -> str:
    """Return the answer of a run in one line."""
    parts = answer(workload, result, as_given=True)
    first = parts[0] if parts else Fact("", "", "answer")
    texts = (each.text if each.label in ("Answer", "value") else f"{each.label} {each.text}" for each in parts)
    text = first.text if first.values or first.label == "Answer" else joined(texts)
    return f"{SIMULATED if simulated else ''}{on_one_line(text)}"[:500]


def plain(value: Any) -> str:
    """Return a value of a result or a parameter as text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_one, value))
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _one(value: Any) -> str:
    """Return a value as text that stays together among others."""
    return f"({plain(value)})" if isinstance(value, list | tuple) else plain(value)


def _answer(run: Run) -> Iterator[Fact]:
    if run.simulated:
        yield Fact("SIMULATED", _SIMULATED, "answer", "warning")
    # Notes say what a function returned that isn't stored.
    if run.function is not None and run.status == "done" and not (run.result or run.answers or run.notes):
        yield Fact("Answer", "It returned nothing.", "answer")
    yield from answer(run.workload, run.result, as_given=run.function is not None)


def _check(run: Run) -> Iterator[Fact]:
    result = run.result or {}
    certificate, accuracy = result.get("certificate") or {}, singular_values.accuracy(result)
    details = (run.check.detail if run.check else None, certificate.get("sentence"))
    detail = "\n".join(each for each in details if each)
    if run.check is not None:
        begin = "Checked" if run.check.passed else "The check failed"
        text = " ".join(filter(None, (f"{begin}: {run.check.what}", accuracy)))
        yield Fact("Check", text, "check", "good" if run.check.passed else "bad", detail)
    elif accuracy or certificate:
        yield Fact("Accuracy", accuracy or certificate["sentence"], "check", "good", detail if accuracy else "")
    elif run.status == "done" and run.workload != WATCHED:
        yield Fact("Check", "This answer has no check.", "check")
    yield Fact("GPU", (run.on_gpu and run.on_gpu.warning) or "", "check", "warning")
    yield Fact("Arrays", run.answers.sentence if run.answers else "", "check")
    saving = background_saves.read(run.id)
    yield Fact("Saved", saving.sentence if saving else "", "check")


def _time(run: Run) -> Iterator[Fact]:
    if run.seconds is not None:
        speed = [rate(run.bytes_per_second), f"{size(run.bytes)} of data"] if run.bytes and run.bytes_per_second else []
        yield Fact("Time", joined((duration(run.seconds), *speed)), "time")
    elif run.progress.total:
        done = count(run.progress.done, "task") + " done"
        words = done if run.progress.more and not run.active else run.progress.words()
        yield Fact("Progress", joined((words, run.progress.waits)), "time")
    yield Fact("Forecast", _forecast(run), "time")
    if run.cost is not None:
        from workbench.runs.forecasting.machines import cost_text

        yield Fact("Cost", cost_text(run.cost), "time")
    yield Fact("Energy", run.energy.text() if run.energy else "", "time")
    yield Fact("Text", run.text_comparison or "", "time")
    if run.diagnosis is not None:
        shares = {
            name: share for name, share in run.diagnosis.shares.items() if name in SHARES and share >= _LEAST_SHARE
        }
        text = ", ".join(share_text(*each) for each in shares.items())
        yield Fact("Workers' time", text, "time", shares=shares)
        also = "\n".join(each.text() for each in run.diagnosis.suggestions[1:])
        yield Fact("Diagnosis", run.diagnosis.sentence, "time", detail=also)
        yield Fact("Most memory", run.diagnosis.peak.text() if run.diagnosis.peak else "", "time")
    if bandwidth := (run.result or {}).get("bandwidth"):
        text, _, matrix = transfers.text(bandwidth).partition("\n")
        yield Fact("Bandwidth", text, "time", detail=matrix)


def _forecast(run: Run) -> str:
    """Return the forecast of a run, and how far off its time was."""
    forecast = run.forecast or {}
    if not forecast.get("seconds"):
        return ""
    from workbench.runs.forecasting.duration import forecast_seconds

    expected = forecast_seconds(run)
    off = _off(run.seconds / expected) if expected and run.seconds else None
    return joined((forecast.get("verdict"), span_text(forecast["seconds"], forecast), forecast.get("basis"), off))


def _off(ratio: float) -> str:
    """Return how far a time is from its forecast: as a factor from two on, which a percentage would hide."""
    if 0.5 < ratio < 2:
        return f"off by {100 * abs(1 / ratio - 1):.0f} %"
    return f"took {ratio:.2g} times as long" if ratio > 1 else f"was {1 / ratio:.2g} times as fast"


def span_text(seconds: Mapping[str, float], forecast: Mapping[str, Any]) -> str:
    """Return a range of a forecast, marked if it is only an order of magnitude."""
    return f"{'roughly ' if forecast.get('rough') else ''}{span(**seconds)}"


def _parameters(run: Run) -> Iterator[Fact]:
    given, source = dict(run.parameters), ""
    if run.workload == WATCHED:
        source = str(given.pop("source", ""))
    # Omitted values, and values derived from files, are in the record.
    used = {
        name: value
        for name, value in run.resolved.items()
        if (value or isinstance(value, int | float))
        and name not in FACTS
        and not isinstance(value, dict)
        and given.get(name) != value
        and name != "source"
    }
    yield Fact("Parameters", _listed(given), "parameters")
    yield Fact("As used", _listed(used), "parameters")
    yield Fact("Settings", _listed(run.settings or {}), "parameters")
    yield Fact("Notes", "\n".join(run.notes), "parameters")
    yield Fact("Code", count(source.count("\n") + 1, "line") if source else "", "parameters", detail=source)


def _listed(values: Mapping[str, Any]) -> str:
    texts = (
        (name, f"({plain(each)})" if isinstance(each, list | tuple) else plain(each)) for name, each in values.items()
    )
    return ", ".join(f"{name}={text}" for name, text in texts)


def _hardware(run: Run) -> Iterator[Fact]:
    yield Fact("Cluster", f"{run.cluster}: {run.spec.describe()}" if run.spec else run.cluster, "hardware")
    yield Fact("Why", "\n".join(run.spec.why) if run.spec else "", "hardware")
    code = run.spec.code if run.spec else ""
    yield Fact(
        "The same cluster",
        f"{count(code.count(chr(10)), 'line')} of Dask code" if code else "",
        "hardware",
        detail=code,
    )
    yield Fact("On the GPU?", run.on_gpu.sentence if run.on_gpu else "", "hardware")
    yield Fact("Imported", f"ran on {run.imported.machine}" if run.imported else "", "hardware")


def _environment(run: Run) -> Iterator[Fact]:
    yield Fact("Run", run.id, "environment")
    yield Fact("Name", run.title if run.title != run.workload else "", "environment")
    yield Fact("Versions", ", ".join(f"{name} {version}" for name, version in run.versions.items()), "environment")


def share_text(name: str, share: float) -> str:
    """Return a share of the workers' time as text, such as 'computing 56 %'."""
    return f"{SHARES[name].title} {percent(share)}"


# -- HTML


def facts_html(found: Iterable[Fact], *groups: Group) -> Markup:
    """Return the facts of these groups; the value of an answer that has only one is shown in large type."""
    chosen = [fact for fact in found if fact.group in groups]
    if groups == ("answer",) and len([fact for fact in chosen if not fact.status]) == 1 and not chosen[-1].values:
        *marks, value = chosen
        return fragment(*map(_html, marks)) + paragraph(value.text, "wb-Value")
    parts: list[str] = []
    for is_plain, facts in groupby(chosen, lambda each: not (each.status or each.values or each.shares)):
        if is_plain:
            parts.append(pairs_html({each.label: each.text + _detail(each) for each in facts}))
        else:
            parts += map(_html, facts)
    return fragment(*parts)


def details_html(found: Sequence[Fact]) -> Markup:
    """Return the groups that are folded, each below its heading."""
    bodies = ((TITLES[group], facts_html(found, group)) for group in DETAILS)
    return fragment(*(tag("section", tag("h4", title), body) for title, body in bodies if body))


def run_html(run: Run) -> Markup:
    """Return a run as a notebook shows it."""
    found = facts(run)
    head = tag("b", f"{run.title}, {run.status}")
    shown = facts_html(found, "error") + facts_html(found, "answer") + facts_html(found, "check", "time")
    return tag(
        "div", tag("style", Markup(STYLE)), head, shown, folded("Details", details_html(found)), class_="wb-Sheet"
    )


STYLE = """
.wb-Sheet .wb-Facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 1px 16px; margin: 4px 0; }
.wb-Sheet dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.wb-Sheet p, .wb-Sheet h4 { margin: 4px 0; }
.wb-Sheet summary { cursor: pointer; }
.wb-Sheet .wb-Value { font-size: 19px; font-weight: 600; }
"""
"""Style of facts where JupyterLab's page has none."""


def _html(fact: Fact) -> Markup:
    if fact.values:
        return _values(fact.values)
    if fact.shares:
        return _shares(fact)
    tone = {"good": "passed", "bad": "wrong"}.get(fact.status or "", "warned")
    mark = tag("span", f"{MARKS[fact.status or 'warning']} ", class_=f"wb-mod-{tone}", aria_hidden="true")
    text = fact.text if fact.group in ("check", "error") else f"{fact.label}: {fact.text}"
    return tag("p", mark, text, class_="wb-Checked", data_check=tone) + _detail(fact)


MARKS = {"good": "✓", "bad": "✗", "warning": "!"}


def _detail(fact: Fact) -> Markup:
    if not fact.detail:
        return Markup("")
    return folded(_MORE.get(fact.label, "More"), tag("div", fact.detail, style="white-space: pre-wrap"))


def _values(found: singular_values.Values) -> Markup:
    """Return the singular values as a table, ten visible and the others folded."""
    first, others = found.rows[: singular_values.FIRST], found.rows[singular_values.FIRST :]
    left_out = f"{found.left_out} smaller ones are in the record." if found.left_out else ""
    further = folded(f"{len(others)} more", table(found.header, others) + paragraph(left_out)) if others else ""
    return tag("div", table(found.header, first), further, style="overflow-x: auto", data_workbench="values")


_BAR = "display:flex;height:16px;max-width:900px;border:1px solid #8c8c8c;border-radius:3px;overflow:hidden"
_HATCHED = "repeating-linear-gradient(135deg,#8c8c8c66 0 2px,transparent 2px 7px)"
_SQUARE = "display:inline-block;width:9px;height:9px;margin-right:5px;border:1px solid #8c8c8c"
_ENTRY = "display:inline-block;margin-right:14px;white-space:nowrap"


def _shares(fact: Fact) -> Markup:
    """Return the shares of the workers' time as one bar with a legend."""
    pieces, legend = [], []
    for name, share in (fact.shares or {}).items():
        text, fill = share_text(name, share), SHARES[name].color or _HATCHED
        pieces.append(tag("span", style=f"flex:{share:.4f} 0 0;background:{fill}", title=text))
        square = tag("span", style=f"{_SQUARE};background:{fill}")
        legend.append(tag("span", square, text, style=_ENTRY, title=SHARES[name].meaning))
    bar = tag("div", *pieces, style=_BAR, role="img", aria_label=f"Of the workers' time: {fact.text}")
    return tag("div", bar, tag("div", *legend, style="margin:4px 0"), data_workbench="diagnosis")
