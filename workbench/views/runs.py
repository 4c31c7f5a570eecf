"""Runs: what is computed now and what was, with its answer and whether the answer checks out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.figures import markup
from workbench.figures.diagnosis import diagnosis_html
from workbench.figures.markup import (
    ago,
    duration,
    facts,
    folded,
    icon_button,
    joined,
    meter,
    number,
    paragraph,
    size,
    tag,
    values_html,
    whole_duration,
)
from workbench.runs.forecasting.forecast import span
from workbench.runs.forecasting.machines import cost_text
from workbench.runs.store import SIMULATED, Energy, Progress
from workbench.views import run_pages
from workbench.views.answers import API, LATEST_RUNS, run_answer
from workbench.views.parts import confirmed, live

if TYPE_CHECKING:
    from workbench.views.page import Sight

_ACTIVE = ("starting", "running")

_LONGEST_PART = 200
"""Characters of one part of a result in a tooltip: the scatter plot of a PCA has thousands of points."""


def pace_of_runs(sight: Sight) -> float:
    """Seconds after which a clock in the list of runs has moved."""
    return 1.0 if any(run["status"] in _ACTIVE for run in sight.state.get("runs", ())) else 30.0


def runs(sight: Sight, _: str) -> str:
    """What is computed now and what was, with its answer and whether the answer checks out."""
    found = sight.state.get("runs", ())
    if not found:
        return paragraph("Nothing has been run yet.")
    # With fewer there is no other page, and nothing to count.
    return run_list(sight, found) + (run_pages.older(sight) if len(found) >= LATEST_RUNS else "")


def run_list(sight: Sight, found: Sequence[dict[str, Any]]) -> str:
    """Runs as the sidebar lists them."""
    titles = {template.name: template.title for template in sight.session.workloads()}
    there = {each["name"] for each in sight.state.get("clusters", ())}
    before = _before(found)
    return tag("ul", *(_run(run, titles, there, before.get(run["id"])) for run in found), class_="wb-Runs")


def _before(found: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Of each run that is done, the one of the same workload that was done before it."""
    latest: dict[str, str] = {}
    before = {}
    for run in reversed([each for each in found if each["status"] == "done"]):
        if run["workload"] in latest:
            before[run["id"]] = latest[run["workload"]]
        latest[run["workload"]] = run["id"]
    return before


def _run(run: dict[str, Any], titles: Mapping[str, str], there: set[str], before: str | None) -> str:
    title = f"{SIMULATED if run['simulated'] else ''}{titles.get(run['workload'], run['title'])}"
    active = run["status"] in _ACTIVE
    given = "\n".join(f"{name}={json.dumps(value)}" for name, value in run["parameters"].items())
    took = duration(run["seconds"]) if run["status"] == "done" and run["seconds"] is not None else run["status"]
    rate = f"{size(run['bytes_per_second'])}/s" if run["bytes_per_second"] else None
    return tag(
        "li",
        tag(
            "div",
            tag("span", class_="wb-Dot", title=run["status"]),
            tag("span", escape(title), class_="wb-Run-title", title=given or None),
            tag("span", escape(took), class_="wb-Muted", title=rate, data_workbench="run-status"),
            class_="wb-Run-line",
        ),
        _progress(run) if active else "",
        _outcome(run) if run["result"] else "",
        _warning(run),
        _unfolding("Where the time went", "where", f"run-where:{run['id']}") if run.get("diagnosis") else "",
        _unfolding("Details", "details", f"run-details:{run['id']}:{before or ''}") if _details(run, before) else "",
        paragraph(run["error"] or "", "wb-Problem", data_workbench="run-error"),
        _foot(run, going=active and run["cluster"] in there, given=given),
        id=f"wb-run-{run['id']}",
        class_=f"wb-Run wb-mod-{run['status']}",
        aria_label=f"Run of {title}, {run['status']}",
        data_workbench=f"run-{run['id']}",
        data_status=run["status"],
    )


def _progress(run: dict[str, Any]) -> str:
    progress = Progress.model_validate(run["progress"] or {})
    elapsed = f" · {whole_duration(time.time() - run['started'])}" if run["started"] else ""
    text = f"{progress.words()}{elapsed}" if progress.total else "building the graph …"
    return paragraph(text) if progress.more else meter("Tasks done", progress.done, progress.total, text)


def _outcome(run: dict[str, Any]) -> str:
    check, result = run["check"], run["result"]
    verdict = ""
    if check:
        passed = check["passed"]
        verdict = tag(
            "span",
            "✓" if passed else "✗",
            tag("span", escape(check["what"]), class_="wb-hidden"),
            class_="wb-mod-passed" if passed else "wb-mod-wrong",
            title=check["what"],
            data_workbench="check-passed" if passed else "check-failed",
        )
    shown = f"{SIMULATED if run['simulated'] else ''}{_answer(result)}"
    answer = tag("span", escape(shown), title=_in_short(result), data_workbench="result")
    return tag("p", verdict, answer, class_="wb-Run-result")


def _in_short(result: Mapping[str, Any]) -> str:
    """Result as JSON that can be read in a tooltip: of a long list or mapping only how long it is."""
    return json.dumps({name: _cut(value) for name, value in result.items()})


def _cut(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_PART else f"{value[:_LONGEST_PART]}…"
    if not isinstance(value, list | Mapping) or len(json.dumps(value)) <= _LONGEST_PART:
        return value
    return f"… ({len(value)} {'values' if isinstance(value, list) else 'parts'})"


def _unfolding(title: str, hook: str, name: str) -> str:
    """A fold that asks for what is in it when it is opened."""
    return folded(title, live(name), id=f"wb-{name.replace(':', '-')}", data_workbench=hook)


def run_where(sight: Sight, run_id: str) -> str:
    """Where the time of a run went."""
    return diagnosis_html(run_answer(sight.session.show(run_id))["diagnosis"] or {})


def _warning(run: dict[str, Any]) -> str:
    """That it did not compute where it should have."""
    found = run.get("on_gpu") or {}
    return paragraph(found.get("warning") or "", "wb-Problem", data_workbench="gpu-warning")


def run_details(sight: Sight, argument: str) -> str:
    """What else is known of a run, with the one before it, if any: 'id:before'."""
    run_id, _, before = argument.partition(":")
    return _details(run_answer(sight.session.show(run_id)), before)


def _details(run: dict[str, Any], before: str | None) -> str:
    result = run["result"] or {}
    told = {
        "Forecast": _forecast(run),
        "Text": run.get("beside_text"),
        "Energy": Energy.model_validate(run["energy"]).text() if run.get("energy") else None,
        "On the GPU?": (run.get("on_gpu") or {}).get("sentence"),
        "Bandwidth": _sentence(result.get("bandwidth")),
        "Certificate": _sentence(result.get("certificate")),
    }
    known = {name: escape(text) for name, text in told.items() if text}
    values = values_html(result)
    pages = "" if run["status"] in _ACTIVE else tag("div", *_pages(run, before), class_="wb-Row")
    return (facts(known) if known else "") + values + pages


def _pages(run: dict[str, Any], before: str | None) -> Iterator[str]:
    path = f"{API}/runs/{run['id']}"
    if before:
        beside = f"{path}/report?beside={before}"
        yield tag("button", "Beside the one before", class_="wb-Link", data_page=beside, data_workbench="beside")
    yield tag("button", "Save as a file", class_="wb-Link", data_page=f"{path}/export", data_workbench="export")


def _forecast(run: dict[str, Any]) -> str | None:
    """What was forecast, beside what it took."""
    forecast = run.get("forecast")
    if not forecast:
        return None
    lasting = forecast.get("seconds")
    took = f"took {duration(run['seconds'])}" if run["seconds"] is not None and run["status"] == "done" else None
    cost = None if run["cost"] is None else f"cost {cost_text(run['cost'])}"
    return joined((forecast.get("verdict"), span(lasting["low"], lasting["high"]) if lasting else None, took, cost))


def _sentence(part: object) -> str | None:
    return part.get("sentence") if isinstance(part, Mapping) else None


def _answer(result: Mapping[str, Any]) -> str:
    """One line that says what came out of a run."""
    singular = result.get("singular_values")
    if isinstance(singular, list):
        shown = ", ".join(number(each) for each in singular[:3])
        return f"σ = {shown}{f', … ({len(singular)})' if len(singular) > 3 else ''}"
    if isinstance(result.get("sentence"), str):
        return str(result["sentence"])
    if _is_number(result.get("value")):
        return number(result["value"])
    return joined(f"{key} {number(each) if _is_number(each) else json.dumps(each)}" for key, each in result.items())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _foot(run: dict[str, Any], *, going: bool, given: str) -> str:
    active = run["status"] in _ACTIVE
    ended = run["stopped"] or run["created"]
    past = None if active or not ended else ago(ended, time.time())
    return tag(
        "div",
        tag("span", escape(joined((run["cluster"], _origin(run)))), class_="wb-Muted", title=given or None),
        tag("span", escape(past), class_="wb-Muted") if past else "",
        tag("span", *_buttons(run, going=going), class_="wb-Icons"),
        class_="wb-Run-foot",
    ) + tag(
        "details",
        tag("summary", class_="wb-hidden"),
        live(f"run-log:{run['id']}"),
        id=f"wb-log-{run['id']}",
    )


def _origin(run: dict[str, Any]) -> str | None:
    return f"imported from {run['imported']['machine']}" if run.get("imported") else None


def _buttons(run: dict[str, Any], *, going: bool) -> Iterator[str]:
    path = f"runs/{run['id']}"
    if run["status"] in _ACTIVE:
        yield icon_button("close", "Cancel", data_request=f"POST {path}/cancel", data_workbench="cancel-run")
    watched = {"cluster": run["cluster"]} if going else {"run": run["id"]}
    yield icon_button(
        "watch",
        f"Watch {run['cluster']}" if going else "Watch what was recorded",
        data_command="dask-workbench:watch",
        data_args=json.dumps(watched),
        data_workbench="watch-run",
    )
    if run["status"] not in _ACTIVE:
        yield icon_button(
            "file", "Open the report in a new tab", data_page=f"{API}/{path}/report", data_workbench="report"
        )
    yield icon_button("list", "Log", data_unfold=f"wb-log-{run['id']}", data_workbench="run-log-button")
    if run["status"] not in _ACTIVE:
        yield confirmed(
            "delete", "Delete this run", "Delete?", data_request=f"DELETE {path}", data_workbench="delete-run"
        )


def run_log(sight: Sight, run_id: str) -> str:
    """What the process of a run printed."""
    return markup.code(sight.session.log(run_id) or "Nothing was logged.", "run-log")
