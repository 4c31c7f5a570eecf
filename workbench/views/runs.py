"""The section of runs: active and past ones, with their answers and checks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from workbench import markup
from workbench.errors import BadInputError, quoted
from workbench.formats import ago, count, duration, rate, shorten_middle
from workbench.jobs.folders import ACTIVE
from workbench.markup import (
    faint,
    icon_button,
    joined,
    meter,
    paragraph,
    tag,
)
from workbench.runs.comparing.comparisons import clusters_of
from workbench.runs.facts import headline
from workbench.runs.run import SIMULATED, WATCHED, Progress
from workbench.views import examples
from workbench.views.answers import API, LATEST_RUNS, far, run_in_list, run_title
from workbench.views.browsing import Sought, browsing
from workbench.views.comparisons import tab
from workbench.views.forms import as_text, search
from workbench.views.parts import (
    action,
    button,
    checkbox,
    command,
    drawer,
    fold,
    folds,
    foot,
    line,
    link,
    live,
    more,
    notice,
    text_field,
)

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.runs.store import Wanted
    from workbench.views.context import Context

_STATES = (*ACTIVE, "done", "failed", "cancelled", "lost")
_FILTERS = ("text", "workload", "cluster", "status", "day")

_SHOWN = 20
_MORE = 50
"""Number of lines that are listed at first, and number added by each click."""

_COMPARISONS = 100
"""Number of latest comparisons whose runs are folded."""


def pace(context: Context) -> float:
    """Return the period of the view: one second while a run is active."""
    return 1.0 if any(run["status"] in ACTIVE for run in context.state.get("runs", ())) else 30.0


def runs(context: Context, _: str) -> Markup:
    """Return the list of runs, a line or two each, with search, ticks and folded details."""
    filters = _filters(context)
    shown = int(context.choices.get("runs.shown") or _SHOWN)
    read = max(shown, LATEST_RUNS)
    all_runs = list(context.state.get("runs", ()))
    if filters or shown > LATEST_RUNS:
        all_runs = [run_in_list(run) for run in context.session.runs(limit=read, **filters)]
    import_ = folds("runs", import_run=("Import a run", live("importing")))
    if not all_runs and not filters:
        return examples.empty("Nothing has been run yet.", examples.first_run(context)) + import_
    total = len(all_runs) if len(all_runs) < read else context.session.count_runs(**filters)
    titles = context.state.get("titles", {})
    there = {each["name"] for each in context.state.get("clusters", ())}
    lines = _folded(context, all_runs)[:shown]
    before = dict(_with_the_one_before(all_runs))
    rows = (
        _line(context, each, [_run(run, titles, there, before[run["id"]]) for run in listed], listed)
        for each, listed in lines
    )
    older = total - sum(len(listed) for _, listed in lines)
    room = context.session.room() if any(run["answers"] for run in all_runs) else None
    return (
        _search(context, titles, {*there, *(run["cluster"] for run in all_runs)})
        + _count_found(total if filters else None)
        + _ended(context, titles)
        + tag("ul", *rows, id="wb-list-of-runs", class_="wb-Runs", aria_label="Runs", data_stop=True)
        + _ticked(context, [run["id"] for _, listed in lines for run in listed if run["status"] not in ACTIVE])
        + more("runs", shown, _MORE, older)
        + (paragraph(room.words()) if room and room.next else "")
        + import_
    )


async def importing(context: Context, _: str) -> Markup:
    """Return a form that takes in a run from a zip file on this machine, which Jupyter's file browser uploads."""
    field, path = "import.path", context.choices.get("import.path", "")
    place = text_field(field, "Path of the zip of a run", path, placeholder="run.zip")
    go = button(
        "Import",
        disabled=not path,
        **action("import_run"),
        data_take={"path": field},
        data_then={field: None},
        data_answer={"result.run": "id"},
        data_workbench="import-run",
    )
    folder = str(Path(path).parent) if path else "."
    way = await browsing(context, Sought("browse.import", field, {}, ending=".zip"), "Browse for the zip", (), folder)
    ways = tag("div", way, class_="wb-Browse")
    return tag("div", place, go, class_="wb-Row") + notice("import_run") + ways


def latest(context: Context, workload: str) -> Markup:
    """Return the state of the last run of a workload, for display next to the button Run."""
    compared = context.state.get("comparing", ())
    runs = (each for each in context.state.get("runs", ()) if each["cluster"] not in compared)
    run = next((each for each in runs if each["workload"] == workload), None)
    if run is None:
        return Markup("")
    status, words = run["status"], run["status"]
    if status in ACTIVE and run["started"]:
        words = joined((far(run), duration(round(time.time() - run["started"]))))
    elif status == "done" and run["seconds"] is not None:
        words = f"last: {duration(run['seconds'])}"
    title = f"Last run: {joined((status, where_and_when(run)))}"
    id_ = run["id"]
    return tag(
        "span",
        tag("span", class_="wb-Dot"),
        link(words, title=title, data_reveal=f"wb-section-runs wb-more-{id_}", data_workbench="latest-run"),
        class_=f"wb-Latest wb-mod-{status}",
    )


def _ended(context: Context, titles: Mapping[str, str]) -> Markup:
    """Return the outcome of the run that ended last, for screen readers."""
    ended = (run for run in context.state.get("runs", ()) if run["stopped"])
    last = max(ended, key=lambda run: run["stopped"], default=None)
    took = last and last["seconds"] is not None and duration(last["seconds"])
    message = joined((f"{named(last, titles)} on {last['cluster']}: {last['status']}", took or None)) if last else ""
    return tag("p", message, role="status", class_="wb-hidden", data_workbench="run-ended")


def named(run: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Return the title of a run, marked if its GPUs are simulated."""
    return f"{SIMULATED if run['simulated'] else ''}{run_title(run, titles)}"


def _filters(context: Context) -> Wanted:
    """Return the user's filters of runs; empty for all."""
    choices = {name: context.choices.get(f"runs.{name}") for name in _FILTERS}
    day = choices.pop("day")
    filters = cast("Wanted", {name: value for name, value in choices.items() if value})
    if day:
        try:
            begin = datetime.fromisoformat(day)
            filters |= {"since": begin.timestamp(), "until": (begin + timedelta(days=1)).timestamp()}
        except (ValueError, OverflowError) as err:
            raise BadInputError(f"day: given {quoted(day)}. Give one such as 2026-11-23.") from err
    return filters


def _search(context: Context, titles: Mapping[str, str], clusters: set[str]) -> Markup:
    choices = context.choices
    clusters |= {choices.get("runs.cluster") or ""} - {""}
    options = {
        "workload": [("", "all workloads"), *titles.items()],
        "cluster": [("", "all clusters"), *((each, each) for each in sorted(clusters))],
        "status": [("", "all states"), *((each, each) for each in _STATES)],
    }
    lists = {name: (name.capitalize(), each, choices.get(f"runs.{name}", "")) for name, each in options.items()}
    day = text_field("runs.day", "Day", type="date")
    narrowed = any(choices.get(f"runs.{name}") for name in _FILTERS[1:])
    return search("runs.", "Search runs", "runs", lists, day, folded=not narrowed)


def _count_found(total: int | None) -> Markup:
    """Return the number of results with a link to all runs; if all are shown, an element for screen readers only."""
    if total is None:
        return paragraph("", role="status")
    all_ = link("Show all", data_choose={f"runs.{name}": None for name in _FILTERS})
    return tag("div", paragraph(f"{count(total)} found", role="status"), all_, class_="wb-Row")


def _ticked(context: Context, listed: Sequence[str]) -> Markup:
    """Return the actions for ticked runs, visible below the list, so that no line moves."""
    ids = [each for each in str(context.choices.get("runs.ticked") or "").split(",") if each]
    if not ids:
        return Markup("")
    then = {"runs.ticked": None}
    compare = button(
        "Compare",
        disabled=len(ids) < 2,
        title="Open bars and tables" if len(ids) > 1 else "Tick one more",
        **action("compare_runs", runs=ids),
        data_then=then,
        **command("view"),
        data_workbench="compare-ticked",
    )
    export = button(
        "Export",
        title="Save a zip with the record, the task stream and the log of each, without arrays of answers",
        data_page=f"{API}/runs/{','.join(ids)}/export",
        data_save="runs.zip" if len(ids) > 1 else f"{ids[0]}.zip",
    )
    delete = button(
        "Delete",
        data_confirm=f"Delete {len(ids)}?",
        **action("delete_runs", runs=ids),
        data_then=then,
    )
    words = tag("span", f"{len(ids)} ticked", class_="wb-Muted")
    every = link(f"Tick all {len(listed)}", title="All that are listed", data_choose={"runs.ticked": ",".join(listed)})
    none = icon_button("close", "Tick none", data_choose=then)
    return (
        tag("div", words, every, compare, export, delete, none, class_="wb-Row wb-Go")
        + notice("compare_runs")
        + notice("delete_runs")
    )


def _folded(context: Context, found: Sequence[dict[str, Any]]) -> list[tuple[Comparison | None, list[dict[str, Any]]]]:
    """Return the runs as lines: those of one comparison share a line, at the position of the newest."""
    owners: dict[str, Comparison] = {}
    for comparison in context.session.comparisons(limit=_COMPARISONS):
        if comparison.mode != "past":
            run_ids = (run for row in comparison.rows for run in (*row.warmups, *(each.run for each in row.samples)))
            owners |= dict.fromkeys((*run_ids, *clusters_of(comparison)), comparison)
    lines: dict[str, tuple[Comparison | None, list[dict[str, Any]]]] = {}
    for run in found:
        owner = owners.get(run["id"]) or owners.get(run["cluster"])
        lines.setdefault(owner.id if owner else run["id"], (owner, []))[1].append(run)
    return list(lines.values())


def _line(context: Context, comparison: Comparison | None, rows: list[Markup], runs: list[dict[str, Any]]) -> Markup:
    if comparison is None:
        return rows[0]
    summary = context.session.summary(comparison)
    id_, status, title = f"wb-compared-{comparison.id}", comparison.status, f"{summary.title}, compared"
    verdict = tag("span", text := summary.verdict, title=text, class_="wb-Run-result")
    done = [run["id"] for run in runs if run["status"] not in ACTIVE]
    head = fold(
        id_,
        tag("span", title, faint(f" {count(len(runs), 'run')}"), class_="wb-Run-title", title=title),
    )
    when = status if comparison.active else ago(comparison.stopped or comparison.created, time.time())
    # No id: an item with an id may be sent as only that, but this one contains items.
    chart = icon_button("watch", "Bars and tables", **command("view", **tab(comparison)))
    return line(
        f"compared-{comparison.id}",
        title,
        status,
        [head],
        foot(when, [chart], "" if comparison.active else verdict),
        tag("ul", *rows, id=id_, hidden=True, class_="wb-Compared-runs"),
        tick=_tick(title, ",".join(done)),
    )


def _tick(title: str, ids: str) -> Markup:
    return checkbox(
        "runs.ticked",
        value=ids,
        data_list=True,
        aria_label=f"Tick {title}",
        disabled=not ids,
        data_workbench="tick",
    )


def _with_the_one_before(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the id of each run with the previous finished run of the same workload."""
    for place, run in enumerate(found):
        older = (
            each
            for each in found[place + 1 :]
            if each["workload"] == run["workload"] and each["status"] == "done" and not each.get("measurement")
        )
        yield run["id"], next(older, None)


def _run(run: dict[str, Any], titles: Mapping[str, str], there: set[str], before: dict[str, Any] | None) -> Markup:
    id_, active = run["id"], run["status"] in ACTIVE
    title = named(run, titles)
    tooltip = "\n".join(f"{name}={json.dumps(value)}" for name, value in _parameters(run).items())
    took = duration(run["seconds"]) if run["status"] == "done" and run["seconds"] is not None else run["status"]
    speed = rate(run["bytes_per_second"]) if run["bytes_per_second"] else None
    star = tag("span", "★ ", class_="wb-Star", title="starred") if (run.get("marks") or {}).get("star") else ""
    head = fold(
        f"wb-more-{id_}",
        tag(
            "span",
            star,
            tag("span", title, translate=_translate(run)),
            faint(differing(run, before)),
            class_="wb-Run-title",
        ),
        title=tooltip or None,
        data_workbench="run-more",
    )
    icons = _icons(run, title, going=active and run["cluster"] in there)
    warning = (run.get("on_gpu") or {}).get("warning") or ""
    return line(
        f"run-{id_}",
        f"Run of {title}",
        run["status"],
        [head, tag("span", took, class_="wb-Muted", title=speed)],
        progress(run) if active else "",
        foot(where_and_when(run), icons, _outcome(run) if run["result"] else ""),
        paragraph(warning, "wb-Problem"),
        _ending(run),
        notice(f"run={id_}"),
        drawer(f"wb-more-{id_}", live(f"run:{id_}")),
        tick=_tick(title, "" if active else id_),
        id=f"wb-run-{id_}",
    )


def _translate(run: Mapping[str, Any]) -> str | None:
    """Return 'no' for a user's title, so that it isn't translated."""
    return None if run["title"] == run["workload"] else "no"


def _ending(run: Mapping[str, Any]) -> Markup:
    """Return why a run ended early; without an alert if the user cancelled it."""
    if run["status"] == "cancelled":
        return paragraph(run["error"] or "")
    return failure(run["error"]) if run["error"] else Markup("")


def failure(error: str) -> Markup:
    """Return an error message with a button that copies it."""
    copy = icon_button("copy", "Copy", data_copy=True)
    message = tag("span", markup.without_commands(error), role="alert", data_workbench="run-error")
    return tag("div", copy, message, class_="wb-Problem wb-Failure")


def differing(run: dict[str, Any], before: dict[str, Any] | None) -> str:
    """Return the parameters that differ from the previous run of the same workload; all of them without one."""
    changed = [
        f"{name}={shorten_middle(_last_part(as_text(value)))}"
        for name, value in _parameters(run).items()
        if before is None or _resolved(run, name) != _resolved(before, name)
    ]
    return f" {', '.join(changed)}" if changed else ""


def _last_part(text: str) -> str:
    """Return the name of a file without its folders, which would push it out of a narrow line."""
    return text.rstrip("/").rpartition("/")[2] if text.startswith("/") else text


def _resolved(run: dict[str, Any], name: str) -> Any:
    """Return the resolved value of a parameter, given or default; for `size`, the shape."""
    resolved = {} if run["workload"] == WATCHED else run["resolved"]
    return resolved.get("shape" if name == "size" else name, _parameters(run).get(name))


def _parameters(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a run; for watched code its tags, since name and code appear elsewhere."""
    parameters: Mapping[str, Any] = run["parameters"]
    return parameters.get("tags") or {} if run["workload"] == WATCHED else parameters


def where_and_when(run: Mapping[str, Any]) -> str:
    """Return the cluster of a run, the machine it was imported from, and the time since its end."""
    past = None if run["status"] in ACTIVE else ago(run["stopped"] or run["created"], time.time())
    origin = f"imported from {run['imported']['machine']}" if run.get("imported") else None
    return joined((run["cluster"], origin, past))


def progress(run: Mapping[str, Any]) -> Markup:
    """Return the progress of a run, and the reason if it waits."""
    progress = Progress.model_validate(run["progress"] or {})
    elapsed = f" · {duration(round(time.time() - run['started']))}" if run["started"] else ""
    text = f"{progress.words()}{elapsed}" if progress.total else "building the graph …"
    bar = paragraph(text) if progress.more else meter("Tasks done", progress.done, progress.total, text)
    return bar + (paragraph(progress.waits, class_="wb-Problem", role="status") if progress.waits else "")


def _outcome(run: dict[str, Any]) -> Markup:
    check = run["check"]
    verdict = ""
    if check:
        passed = check["passed"]
        verdict = tag(
            "span",
            "✓" if passed else "✗",
            tag("span", check["what"], class_="wb-hidden"),
            class_="wb-mod-passed" if passed else "wb-mod-wrong",
            title=check["what"],
            data_workbench="check-passed" if passed else "check-failed",
        )
    # One line; the tooltip has the full text.
    text = headline(run["workload"], run["result"], simulated=run["simulated"])
    return verdict + tag("span", text, title=text, class_="wb-Run-result", data_workbench="result")


def _icons(run: dict[str, Any], title: str, *, going: bool) -> Iterator[Markup]:
    path = f"runs/{run['id']}"
    if run["status"] in ACTIVE:
        yield icon_button("close", "Cancel", **action("cancel_run", run=run["id"]), data_workbench="cancel-run")
    watched = {"cluster": run["cluster"]} if going else {"run": run["id"], "title": title}
    yield icon_button(
        "watch",
        f"Watch {run['cluster']}" if going else "Watch what was recorded",
        **command("watch", **watched),
        data_workbench="watch-run",
    )
    yield icon_button(
        "table",
        "Open the result in a tab",
        data_choose={"result.run": run["id"]},
        **command("view", view="result", label="Result"),
        data_workbench="open-result",
    )
    if run["status"] not in ACTIVE:
        yield icon_button(
            "file", "Open the report in a new tab", data_page=f"{API}/{path}/report", data_workbench="report"
        )
