"""Runs: what is computed now and what was, with its answer and whether the answer checks out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.figures import markup
from workbench.figures.diagnosis import diagnosis_html
from workbench.figures.markup import (
    facts,
    faint,
    icon_button,
    joined,
    meter,
    number,
    paragraph,
    tag,
    values_html,
)
from workbench.formats import ago, count, duration, rate, span
from workbench.runs.forecasting.machines import cost_text
from workbench.runs.singular import with_times
from workbench.runs.store import SIMULATED, Energy, Progress
from workbench.views.answers import API, LATEST_RUNS, run_answer, run_in_list
from workbench.views.forms import as_text, select
from workbench.views.parts import button, confirmed, fold, folds, link, live, notice

if TYPE_CHECKING:
    from workbench.views.page import Sight

_ACTIVE = ("starting", "running")
_STATES = (*_ACTIVE, "done", "failed", "cancelled", "lost")
_FILTERS = ("text", "workload", "status")

_SHOWN = 20
_MORE = 50
"""Runs that are listed at first, and how many more at each click."""

_LONGEST_PART = 200
"""Characters of one part of a result in a tooltip: the scatter plot of a PCA has thousands of points."""


def pace(sight: Sight) -> float:
    """Seconds after which a clock in the list of runs has moved."""
    return 1.0 if any(run["status"] in _ACTIVE for run in sight.state.get("runs", ())) else 30.0


def runs(sight: Sight, _: str) -> str:
    """What is computed now and what was, a line or two each: to search, to tick, to unfold."""
    choices = sight.choices
    asked: dict[str, Any] = {name: choices.get(f"runs.{name}") or None for name in _FILTERS}
    shown = int(choices.get("runs.shown") or _SHOWN)
    found = list(sight.state.get("runs", ()))[:shown]
    if any(asked.values()) or shown > LATEST_RUNS:
        found = [run_in_list(run) for run in sight.session.runs(limit=shown, **asked)]
    if not found and not any(asked.values()):
        return paragraph("Nothing has been run yet.")
    total = sight.session.count_runs(**asked) if len(found) >= shown or any(asked.values()) else len(found)
    titles = {template.name: template.title for template in sight.session.workloads()}
    there = {each["name"] for each in sight.state.get("clusters", ())}
    rows = (_run(run, titles, there, before) for run, before in _with_the_one_before(found))
    more = link(
        f"Show more ({count(total - len(found))} older)",
        data_choose=json.dumps({"runs.shown": shown + _MORE}),
        data_workbench="older-runs",
    )
    return (
        _search(sight, titles, total)
        + _ticked(sight)
        + tag("ul", *rows, id="wb-list-of-runs", class_="wb-Runs", aria_label="Runs")
        + (more if total > len(found) else "")
    )


def _search(sight: Sight, titles: Mapping[str, str], total: int) -> str:
    text = tag(
        "input",
        type="search",
        name="runs.text",
        placeholder="Search runs",
        aria_label="Search runs",
        spellcheck="false",
        class_="jp-mod-styled",
        data_workbench="runs-search",
    )
    workload = select(
        [("", "all workloads"), *titles.items()],
        sight.choices.get("runs.workload", ""),
        name="runs.workload",
        data_default="",
        aria_label="Workload",
        data_workbench="runs-workload",
    )
    status = select(
        [("", "all states"), *((each, each) for each in _STATES)],
        sight.choices.get("runs.status", ""),
        name="runs.status",
        data_default="",
        aria_label="State",
        data_workbench="runs-status",
    )
    said = f"{count(total)} found" if any(sight.choices.get(f"runs.{x}") for x in _FILTERS) else ""
    return tag("div", text, workload, status, class_="wb-Row wb-Search") + paragraph(said, role="status")


def _ticked(sight: Sight) -> str:
    """What can be done with the runs that are ticked; its place is kept."""
    ids = [each for each in str(sight.choices.get("runs.ticked") or "").split(",") if each]
    if not ids:
        return ""
    then = json.dumps({"runs.ticked": None})
    compare = button(
        "Compare",
        disabled=len(ids) < 2,
        title="Put them beside one another" if len(ids) > 1 else "Tick one more",
        data_request="POST comparisons",
        data_body=json.dumps({"runs": ids}),
        data_then=then,
        data_workbench="compare-ticked",
    )
    delete = button(
        "Delete",
        data_confirm=f"Delete {len(ids)}?",
        data_requests=json.dumps([f"DELETE runs/{each}" for each in ids]),
        data_then=then,
        data_workbench="delete-ticked",
    )
    words = tag("span", f"{len(ids)} ticked", class_="wb-Muted")
    none = icon_button("close", "Tick none", data_choose=then)
    return (
        tag("div", words, compare, delete, none, class_="wb-Row") + notice("POST comparisons") + notice("DELETE runs/")
    )


def _with_the_one_before(found: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each run with the one of the same workload that was done before it."""
    for place, run in enumerate(found):
        older = (
            each for each in found[place + 1 :] if each["workload"] == run["workload"] and each["status"] == "done"
        )
        yield run, next(older, None)


def _run(run: dict[str, Any], titles: Mapping[str, str], there: set[str], before: dict[str, Any] | None) -> str:
    id_, active = run["id"], run["status"] in _ACTIVE
    named = run["title"] if run["title"] != run["workload"] else titles.get(run["workload"], run["workload"])
    title = f"{SIMULATED if run['simulated'] else ''}{named}"
    given = "\n".join(f"{name}={json.dumps(value)}" for name, value in run["parameters"].items())
    took = duration(run["seconds"]) if run["status"] == "done" and run["seconds"] is not None else run["status"]
    speed = rate(run["bytes_per_second"]) if run["bytes_per_second"] else None
    tick = tag(
        "input",
        type="checkbox",
        name="runs.ticked",
        value=id_,
        data_list=True,
        aria_label=f"Tick {title}",
        disabled=active,
        data_workbench="tick",
    )
    star = tag("span", "★ ", class_="wb-Star", title="starred") if (run.get("marks") or {}).get("star") else ""
    head = fold(
        f"wb-more-{id_}",
        tag("span", star, escape(title), faint(_differing(run, before)), class_="wb-Run-title"),
        aria_expanded="false",
        title=given or None,
        data_workbench="run-more",
    )
    return tag(
        "li",
        tag(
            "div",
            tick,
            tag("span", class_="wb-Dot", title=run["status"]),
            head,
            tag("span", escape(took), class_="wb-Muted", title=speed, data_workbench="run-status"),
            class_="wb-Run-line",
        ),
        _progress(run) if active else "",
        tag(
            "div",
            _outcome(run) if run["result"] else "",
            tag("span", escape(_where_and_when(run)), class_="wb-Muted"),
            tag("span", *_icons(run, going=active and run["cluster"] in there), class_="wb-Icons"),
            class_="wb-Run-foot",
        ),
        _warning(run),
        paragraph(run["error"] or "", "wb-Problem", data_workbench="run-error"),
        tag(
            "div",
            live(f"run:{id_}:{before['id'] if before else ''}"),
            id=f"wb-more-{id_}",
            class_="wb-Drawer",
            hidden=True,
        ),
        notice(f" runs/{id_}"),
        id=f"wb-run-{id_}",
        class_=f"wb-Run wb-mod-{run['status']}",
        aria_label=f"Run of {title}, {run['status']}",
        data_workbench=f"run-{id_}",
        data_status=run["status"],
    )


def _differing(run: dict[str, Any], before: dict[str, Any] | None) -> str:
    """Parameters in which it differs from the run of the same workload before it."""
    old = before["parameters"] if before else {}
    changed = [f"{name}={as_text(value)}" for name, value in run["parameters"].items() if old.get(name) != value]
    return f" {', '.join(changed)}" if changed else ""


def _where_and_when(run: dict[str, Any]) -> str:
    past = None if run["status"] in _ACTIVE else ago(run["stopped"] or run["created"], time.time())
    return joined((run["cluster"], _origin(run), past))


def _progress(run: dict[str, Any]) -> str:
    progress = Progress.model_validate(run["progress"] or {})
    elapsed = f" · {duration(round(time.time() - run['started']))}" if run["started"] else ""
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
    return verdict + tag(
        "span", escape(shown), title=_in_short(result), class_="wb-Run-result", data_workbench="result"
    )


def _in_short(result: Mapping[str, Any]) -> str:
    """Result as JSON that can be read in a tooltip: of a long list or mapping only how long it is."""
    return json.dumps({name: _cut(value) for name, value in result.items()})


def _cut(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_PART else f"{value[:_LONGEST_PART]}…"
    if not isinstance(value, list | Mapping) or len(json.dumps(value)) <= _LONGEST_PART:
        return value
    return f"… ({len(value)} {'values' if isinstance(value, list) else 'parts'})"


def _warning(run: dict[str, Any]) -> str:
    """That it did not compute where it should have."""
    found = run.get("on_gpu") or {}
    return paragraph(found.get("warning") or "", "wb-Problem", data_workbench="gpu-warning")


def run(sight: Sight, argument: str) -> str:
    """All that is known of a run, with the one before it, if any: 'id:before'."""
    run_id, _, before = argument.partition(":")
    found = run_answer(sight.session.show(run_id))
    error = markup.code(found["error"], "run-error-copy") if found["error"] else ""
    parts = {"run_log": ("Log", live(f"run-log:{run_id}")), "marks": ("Name and note", _marks(found))}
    if found.get("diagnosis"):
        parts = {"where": ("Where the time went", diagnosis_html(found["diagnosis"])), **parts}
    return error + _details(found, before) + _again(sight, found) + folds(f"{run_id}-", **parts)


def _again(sight: Sight, run: dict[str, Any]) -> str:
    """The same once more, or with something changed; and what can't be undone."""
    there = run["cluster"] in {each["name"] for each in sight.clusters("ready")}
    form = {f"run.{run['workload']}.{name}": _typed(value) for name, value in run["parameters"].items()}
    known = any(each.name == run["workload"] for each in sight.session.workloads())
    body = {"workload": run["workload"], "cluster": run["cluster"], "parameters": run["parameters"]}
    buttons = [
        button(
            "Run again",
            disabled=not there,
            title=f"On {run['cluster']}" if there else f"{run['cluster']} is no longer there",
            data_request="POST runs",
            data_body=json.dumps(body),
            data_workbench="run-again",
        ),
        button(
            "Change",
            title="Fill the form with its parameters",
            data_choose=json.dumps({"workload": run["workload"], **form}),
            data_workbench="run-change",
        ),
    ]
    delete = confirmed(
        "delete",
        "Delete this run",
        "Delete?",
        data_request=f"DELETE runs/{run['id']}",
        data_workbench="delete-run",
    )
    shown = (*(buttons if known else ()), "" if run["status"] in _ACTIVE else delete)
    return tag("div", *shown, class_="wb-Row") + notice("POST runs")


def _typed(value: object) -> object:
    return value if isinstance(value, bool) else as_text(value)


def _marks(run: dict[str, Any]) -> str:
    marks = run.get("marks") or {"name": "", "note": "", "star": False}
    prefix, path = f"mark.{run['id']}.", f"runs/{run['id']}"
    star = not marks["star"]
    return (
        tag(
            "input",
            type="text",
            name=f"{prefix}name",
            value=marks["name"],
            placeholder="Name",
            aria_label="Name",
            class_="jp-mod-styled",
            data_empty=True,
            data_workbench="run-name",
        )
        + tag(
            "textarea",
            escape(marks["note"]),
            name=f"{prefix}note",
            rows=2,
            placeholder="Note",
            aria_label="Note",
            class_="jp-mod-styled",
            data_empty=True,
            data_workbench="run-note",
        )
        + tag(
            "div",
            button(
                "Keep",
                data_request=f"PATCH {path}",
                data_take=json.dumps({"name": f"{prefix}name", "note": f"{prefix}note"}),
                data_workbench="keep-marks",
            ),
            button(
                "Star" if star else "Unstar",
                data_request=f"PATCH {path}",
                data_body=json.dumps({"star": star}),
                data_workbench="star-run",
            ),
            class_="wb-Row",
        )
    )


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
    said = ((key, number(each) if _is_number(each) else each) for key, each in with_times(result).items())
    return joined(f"{key} {each if isinstance(each, str) else json.dumps(each)}" for key, each in said)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _origin(run: dict[str, Any]) -> str | None:
    return f"imported from {run['imported']['machine']}" if run.get("imported") else None


def _icons(run: dict[str, Any], *, going: bool) -> Iterator[str]:
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


def run_log(sight: Sight, run_id: str) -> str:
    """What the process of a run printed."""
    return markup.code(sight.session.log(run_id) or "Nothing was logged.", "run-log")
