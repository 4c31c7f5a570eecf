"""The tab of a run: progress while it is active, then its answer, its use of time, and details."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from workbench import markup
from workbench.formats import count, duration, listed, size, span
from workbench.jobs.folders import ACTIVE
from workbench.markup import folded, icon_button, joined, meter, paragraph, tag
from workbench.runs import exchange, store
from workbench.runs.facts import TITLES, details_html, facts, facts_html
from workbench.views import examples
from workbench.views.answers import API
from workbench.views.forms import as_text
from workbench.views.parts import (
    action,
    button,
    command,
    confirmed,
    drawer,
    figure,
    folds,
    link,
    live,
    notice,
    text_field,
)
from workbench.views.runs import differing, failure, named, progress, where_and_when

if TYPE_CHECKING:
    from workbench.runs.facts import Fact
    from workbench.runs.run import Run
    from workbench.views.context import Context

VIEW = {"view": "result", "label": "Result"}
"""Tab that the button Run opens."""

_SETTLED = 15.0
"""Seconds after its end within which a run's record is complete."""

CHOICE = "result.run"
"""Name of the page's choice for the run in this tab."""


def pace(context: Context) -> float:
    """Return the period of the tab: one second while something runs, or ended a moment ago."""
    # The diagnosis follows a moment after the answer.
    lately = time.time() - _SETTLED
    runs = context.state.get("runs", ())
    return 1.0 if any(run["status"] in ACTIVE or (run["stopped"] or 0) > lately for run in runs) else 30.0


def result(context: Context, _: str) -> Markup:
    """Return the tab of the run that was started or chosen last."""
    runs = context.state.get("runs", ())
    run_id = context.choices.get(CHOICE) or next((run["id"] for run in runs), None)
    if run_id is None:
        return examples.empty("Nothing has been run yet.", examples.first_run(context))
    found = context.session.show(run_id)
    run = found.model_dump(mode="json")
    title = named(run, context.state.get("titles", {}))
    took = duration(run["seconds"]) if run["status"] == "done" and run["seconds"] is not None else run["status"]
    head = tag(
        "header",
        tag("span", class_="wb-Dot"),
        tag("h2", title, class_="wb-Card-title", translate=None if run["title"] == run["workload"] else "no"),
        tag("span", joined((differing(run, None).strip(), took, where_and_when(run))), class_="wb-Muted"),
        class_=f"wb-Row wb-mod-{run['status']}",
    )
    body = _running(found, run) if found.active else _ended(context, found, run, tab=True)
    return tag("article", head, body, class_="wb-Result", data_workbench=f"result-{run_id}")


def run(context: Context, run_id: str) -> Markup:
    """Return the details of a run for the list of runs: the same as in the tab, without the figure."""
    found = context.session.show(run_id)
    run = found.model_dump(mode="json")
    return _again(context, run) + _rest(facts(found), run) if found.active else _ended(context, found, run, tab=False)


def _running(found: Run, run: Mapping[str, Any]) -> Markup:
    cancel = button("Cancel", **action("cancel_run", run=run["id"]), title="End this run", data_workbench="cancel-this")
    bar = tag("div", tag("div", progress(run), class_="wb-Result-progress"), cancel, class_="wb-Row")
    time_left = paragraph(_time_left(found, run), data_workbench="time-left")
    return bar + time_left + notice(f"run={run['id']}") + figure(cluster=run["cluster"])


def _time_left(found: Run, run: Mapping[str, Any]) -> str:
    """Return about how much time is left, or why that is unknown."""
    from workbench.runs.forecasting.duration import forecast_seconds

    done = run["progress"] or {}
    elapsed = time.time() - run["started"] if run["started"] else 0.0
    if done.get("stage") in ("checking", "saving"):
        return f"Computed; {done['stage']} now."
    if done.get("total") and done.get("done") and not done.get("more") and not done.get("passes") and elapsed > 1:
        return f"About {_rounded(elapsed * (done['total'] - done['done']) / done['done'])} left."
    lasting = (run.get("forecast") or {}).get("seconds")
    middle = forecast_seconds(found)
    if middle is not None and elapsed < middle:
        return f"About {_rounded(middle - elapsed)} left, by the forecast."
    if lasting and elapsed < lasting["high"]:
        return f"Up to {_rounded(lasting['high'] - elapsed)} left, by the forecast."
    if lasting:
        return f"Longer than forecast ({span(lasting['low'], lasting['high'])})."
    if done.get("more") and not done.get("passes"):
        return "Time left unknown: not all tasks are known yet."
    if done.get("passes"):
        return "Time left unknown: it ends when the answer is accurate enough."
    return "Time left unknown: no past run of this size on such hardware."


def _rounded(seconds: float) -> str:
    """Return a time rounded to whole seconds, and to fives from ten on, so that it doesn't flicker."""
    seconds = max(1.0, seconds)
    return duration(round(seconds) if seconds < 10 else 5 * round(seconds / 5))


def _ended(context: Context, found: Run, run: dict[str, Any], *, tab: bool) -> Markup:
    """Return the answer, the use of time, and folded details of an ended run."""
    run_facts = facts(found)
    values = facts_html(run_facts, "answer")
    recorded = tab and (store.folder(found.id) / "events.parquet").exists()
    drawn = found.answers or (found.result or {}).get("singular_values")
    return (
        (_error(run) if run["error"] and tab else "")
        + (tag("div", values, live(f"run-answer:{found.id}") if drawn else "", class_="wb-Answer") if values else "")
        + facts_html(run_facts, "check")
        + _again(context, run)
        + tag("h3", TITLES["time"])
        + facts_html(run_facts, "time")
        + (figure(run=found.id) if recorded else "")
        + _rest(run_facts, run)
    )


def _error(run: Mapping[str, Any]) -> Markup:
    """Return why a run has no answer; a cancelled one is no failure."""
    return paragraph(run["error"], "wb-Muted") if run["status"] == "cancelled" else failure(run["error"])


def _rest(run_facts: Sequence[Fact], run: Mapping[str, Any]) -> Markup:
    """Return folded details of a run."""
    return folds(
        f"{run['id']}-",
        details=("Details", details_html(run_facts)),
        run_log=("Log", live(f"run-log:{run['id']}")),
        marks=("Name and note", _marks(run)),
    )


def _again(context: Context, run: Mapping[str, Any]) -> Markup:
    """Return the buttons of a run: use the answer, repeat the run, export, delete."""
    # The cluster that it ran on, or else the newest.
    ready = sorted(context.ready(), key=lambda each: (each["name"] == run["cluster"], each["created"]))
    on = ready[-1]["name"] if ready else None
    typed = {name: each if isinstance(each, bool) else as_text(each) for name, each in run["parameters"].items()}
    form = {f"run.{run['workload']}.{name}": each for name, each in typed.items()}
    known = run["workload"] in context.state.get("titles", {})
    # A user's function, as path and name.
    workload = run["workload"] if known else (run["function"] or {}).get("reference")
    body = {"workload": workload, "cluster": on, "parameters": run["parameters"]}
    if settings := run.get("settings"):
        body |= {"settings": settings}
        texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in settings.items()}
        form |= {f"settings.{run['workload']}": shlex.join(f"{name}={text}" for name, text in texts.items())}
    ended, path, save = run["status"] not in ACTIVE, f"runs/{run['id']}", f"wb-save-{run['id']}"
    export = f"wb-export-{run['id']}"
    row: list[str] = []
    if ended and run.get("answers"):
        row += [_copy(run["id"]), button("Save as…", data_fold=save, aria_controls=save, data_workbench="save-as")]
    if ended:
        page: dict[str, Any] = {"data_page": f"{API}/{path}/report", "data_workbench": "open-report"}
        row.append(button("Report (HTML)", title="A page that opens without a network", **page))
        page |= {"data_save": f"{run['id']}.html", "data_workbench": "save-report"}
        row.append(link("Save HTML", title="The report as a file", **page))
    if workload:
        again: dict[str, Any] = {**action("run", **body), **opens_result()}
        change: dict[str, Any] = {
            "data_choose": {"workload": workload, **form},
            "data_reveal": "wb-fold-more-fields wb-section-workloads",
        }
        title = f"On {on}" if on else "Start a cluster first"
        row.append(button("Run again", disabled=on is None, title=title, **again, data_workbench="run-again"))
        row.append(button("Change", title="Fill the form with its parameters", **change, data_workbench="run-change"))
    if ended:
        row.append(button("Export…", data_fold=export, aria_controls=export, data_workbench="export"))
        delete = action("delete_run", run=run["id"])
        row.append(confirmed("delete", "Delete this run", "Delete?", "delete-run", **delete))
    saving_ = drawer(save, live(f"saving:{run['id']}")) if ended and run.get("answers") else ""
    exporting = drawer(export, _exporting(run)) if ended else ""
    return tag("div", *row, class_="wb-Row") + notice("run") + saving_ + exporting


def _exporting(run: Mapping[str, Any]) -> Markup:
    """Return what the export of a run contains and how large it is, with a button that saves it."""
    contents, n_bytes = exchange.contents(run)
    words = f"A zip that another Workbench imports: {listed(contents)}, about {size(n_bytes)}."
    page, save = f"{API}/runs/{run['id']}/export", {"data_save": f"{run['id']}.zip"}
    buttons = [button("Save zip", data_page=page, **save, data_workbench="export-zip")]
    if n_array_bytes := (run.get("answers") or {}).get("kept_bytes"):
        words += f" With the arrays of the answer, {size(n_bytes + n_array_bytes)}."
        more = {"data_page": f"{page}-with-answers", "data_workbench": "export-all"}
        buttons.append(button("Save zip with arrays", **save, **more))
    return tag("div", paragraph(words), *buttons, class_="wb-Row")


def opens_result() -> dict[str, Any]:
    """Return attributes of a button that starts a run, which open the tab for it."""
    return {"data_answer": {CHOICE: "id"}, **command("view", **VIEW)}


def _copy(run_id: str) -> Markup:
    cell = f'import workbench\n\narrays = workbench.Session().show("{run_id}").arrays\narrays'
    return button(
        "Copy to notebook",
        title="Add a cell that reads these arrays to the notebook",
        **command("cell", text=cell, type="code"),
        data_workbench="open-run",
    )


def _marks(run: Mapping[str, Any]) -> Markup:
    marks = run.get("marks") or {"name": "", "note": "", "star": False}
    prefix = f"mark.{run['id']}."
    star = not marks["star"]
    return (
        text_field(f"{prefix}name", "Name", marks["name"], placeholder="Name", data_empty=True)
        + tag(
            "textarea",
            marks["note"],
            name=f"{prefix}note",
            rows=2,
            placeholder="Note",
            aria_label="Note",
            class_="jp-mod-styled",
            data_empty=True,
        )
        + tag(
            "div",
            button(
                "Save",
                **action("mark_run", run=run["id"]),
                data_take={"name": f"{prefix}name", "note": f"{prefix}note"},
            ),
            button(
                "Star" if star else "Unstar",
                **action("mark_run", run=run["id"], star=star),
            ),
            class_="wb-Row",
        )
        + notice("mark_run")
    )


def pictures(context: Context, run_id: str) -> Markup:
    """Return the first picture of a run's answer, and the others folded."""
    from workbench.figures.paper import LACKING, can_write
    from workbench.views.run_files import pictures_of, small_pictures

    found = context.session.show(run_id)
    if not can_write():
        return paragraph(LACKING if pictures_of(found) else "")
    drawn = [_picture(found, *each) for each in small_pictures(found.id, _array_bytes(found))]
    first, others = tag("div", *drawn[:1], class_="wb-Pictures", data_workbench="run-pictures"), ""
    if drawn[1:]:
        inside = tag("div", *drawn[1:], class_="wb-Pictures")
        others = folded(count(len(drawn) - 1, "more picture"), inside, data_workbench="more-pictures")
    return first + others


def _array_bytes(run: Run) -> int:
    return run.answers.kept_bytes if run.answers else 0


def _picture(run: Run, name: str, title: str, png: str) -> Markup:
    """Return a picture that a click enlarges, with a button that saves it."""
    file = {"data_page": f"{API}/runs/{run.id}/pictures/{quote(name, safe='')}", "data_save": f"{run.id}-{name}.png"}
    save = icon_button("download", f"Save {title} as PNG", **file, data_workbench="save-picture")
    image = tag("img", src=f"data:image/png;base64,{png}", alt=title)
    enlarge = tag("button", image, type="button", title="Enlarge", data_enlarge=True)
    return tag("figure", enlarge, tag("figcaption", tag("span", title), save), class_="wb-Drawn")


def saving(context: Context, run_id: str) -> Markup:
    """Return a form to save a run's answer; then its progress, or its outcome."""
    from workbench.runs.background_saves import read

    field, found = f"save.{run_id}.path", read(run_id)
    if found is not None and found.active:
        cancel = icon_button("close", "Cancel", **action("cancel_saving", run=run_id))
        progress = paragraph(found.sentence)
        if found.total:
            progress = meter("Blocks written", found.done, found.total, found.sentence)
        return tag("div", progress, cancel, class_="wb-Row", data_workbench="saving") + notice(f"run={run_id}")
    place = text_field(
        field,
        "Path or URL to save to",
        context.choices.get(field, ""),
        placeholder="out.zarr, .npz, .nc, .tsv, .png …",
    )
    save = button(
        "Save",
        disabled=not context.choices.get(field),
        **action("save_run", run=run_id),
        data_take={"path": field},
    )
    looks = "wb-Problem" if found and found.status in ("failed", "lost") else "wb-Muted"
    ended = paragraph(found.sentence, looks, data_workbench="saved") if found else ""
    return tag("div", place, save, class_="wb-Row") + notice(f"run={run_id}") + ended


def run_log(context: Context, run_id: str) -> Markup:
    """Return the output of a run's process."""
    return markup.log(context.session.log(run_id), "run-log")
