"""The functions behind each address and verb, in one table; server/rest-api.yml tells what each takes and answers.

No tornado here. Errors are WorkbenchErrors.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from workbench.errors import BadInputError, NotFoundError
from workbench.views import answers, comparing
from workbench.views.answers import Answer
from workbench.views.bodies import Asked, check_range, parse_object
from workbench.views.desk import Desk

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.runs.store import Run, Wanted
    from workbench.session import Session

HTML, ZIP = "text/html; charset=UTF-8", "application/zip"

LONGEST_WAIT = 30
"""Seconds for which a poll of the state may ask to be held until something changes."""

TABLES = ("markdown", "csv", "json")

Verb = Callable[[Desk, Asked], Coroutine[Any, Any, Answer]]


def _read(function: Callable[[Session, Asked], Any], status: int = 200) -> Verb:
    """Return a verb that is answered by one function, in a thread: it reads disks, processes and devices."""

    async def verb(desk: Desk, asked: Asked) -> Answer:
        found = await desk.ask(lambda session: function(session, asked))
        return found if isinstance(found, Answer) else Answer(found, status)

    return verb


# -- this machine


def _hardware(session: Session, _: Asked) -> dict[str, Any]:
    inventory = session.hardware()
    return {
        "inventory": inventory,
        "profiles": session.profiles(inventory),
        "budget": session.budget(inventory),
        "simulated": inventory.simulated,
    }


def _profile_schema(session: Session, asked: Asked) -> dict[str, Any]:
    from workbench.clusters.profiles import profile as find

    inventory = session.hardware()
    names = [profile.name for profile in session.profiles(inventory)]
    if asked["profile"] not in names:
        raise NotFoundError(f"Unknown profile {asked['profile']!r:.80}. Choose one of: {', '.join(names)}.")
    given = parse_object(asked.query.get("choices", "{}").encode())
    return find(asked["profile"]).form(given, inventory).model_json_schema()


def _keep_profile(session: Session, asked: Asked) -> dict[str, Any]:
    body = asked.body({"name": str, "profile": str}, {"choices": dict})
    profile = body["profile"]
    session.keep_profile(body["name"], profile, **_known(profile, body.get("choices", {})))
    return {"profiles": session.profiles()}


def _forget_profile(session: Session, asked: Asked) -> dict[str, Any]:
    session.forget_profile(asked["profile"])
    return {"profiles": session.profiles()}


async def _keep_preset(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"workload": str, "name": str, "parameters": dict})
    await desk.look("keep_preset", **body)
    return await desk.ask(lambda session: _presets(session, body["workload"]))


def _forget_preset(session: Session, asked: Asked) -> Answer:
    session.forget_preset(asked["workload"], asked["preset"])
    return _presets(session, asked["workload"], 200)


def _presets(session: Session, workload: str, status: int = 201) -> Answer:
    return Answer({"presets": session.workload(workload).offered}, status)


async def _plan(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"profile": str}, {"choices": dict})
    # Whoever asks for a plan may soon press Start.
    await desk.keep_warm()
    return Answer(await desk.ask(lambda session: _planned(session, **body)))


def _planned(session: Session, profile: str, choices: dict[str, Any] | None = None) -> dict[str, Any]:
    from workbench.clusters.budget import refusal
    from workbench.clusters.plan import consent

    inventory = session.hardware()
    spec = session.plan(profile, inventory, **_known(profile, choices or {}))
    return {
        "spec": spec,
        "hints": answers.hints(spec),
        "description": spec.describe(),
        "code": spec.code(),
        "preview": spec.preview(),
        "budget": session.budget(inventory),
        "problem": refusal(spec, inventory, session.clusters()),
        "consent": consent(spec),
    }


def _known(profile: str, choices: dict[str, Any]) -> Any:
    """Return the choices when each has a name that there is."""
    from workbench.clusters.choices import Choices
    from workbench.clusters.profiles import profile as find, takes

    for name in choices:
        if name not in Choices.__annotations__ and not takes(profile, name):
            known = (*Choices.__annotations__, *find(profile).options)
            raise BadInputError(f"Unknown choice {name!r:.80}. Choose among: {', '.join(known)}.")
    return choices


# -- clusters


def _clusters(session: Session, asked: Asked) -> dict[str, Any]:
    return {"clusters": [answers.cluster_answer(record, asked.base_url) for record in session.clusters()]}


def _cluster(session: Session, asked: Asked) -> dict[str, Any]:
    return answers.cluster_answer(session.cluster(asked["cluster"]), asked.base_url)


def _start(session: Session, asked: Asked) -> dict[str, Any]:
    body = asked.body({"profile": str}, {"choices": dict, "name": str, "force": bool, "agreed": bool})
    profile = body.pop("profile")
    spec = session.plan(profile, **_known(profile, body.pop("choices", {})))
    return answers.cluster_answer(session.start(spec, **body), asked.base_url)


async def _scale(desk: Desk, asked: Asked) -> Answer:
    fields = {"n_workers": int, "minimum": int, "maximum": int, "force": bool}
    body, session = asked.body({}, fields), await desk.session()
    if body.keys() - {"force"} == {"n_workers"}:
        await desk.begin(session.scale(asked["cluster"], **body))
    elif body.keys() - {"force"} == {"minimum", "maximum"}:
        await desk.begin(session.adapt(asked["cluster"], **body))
    else:
        raise BadInputError("Give either n_workers, or minimum and maximum.")
    return await _read(_cluster, 202)(desk, asked)


async def _restart(desk: Desk, asked: Asked) -> Answer:
    session, one = await desk.session(), asked.body({}, {"worker": str}).get("worker")
    name = asked["cluster"]
    await desk.begin(session.restart_workers(name) if one is None else session.restart_worker(name, one))
    return await _read(_cluster, 202)(desk, asked)


async def _stop(desk: Desk, asked: Asked) -> Answer:
    before = await desk.ask(lambda session: _cluster(session, asked))
    await desk.begin((await desk.session()).stop(asked["cluster"]))
    return Answer(before | {"status": "stopping", "dashboard_url": None}, 202)


async def _stop_all(desk: Desk, asked: Asked) -> Answer:
    await desk.begin((await desk.session()).stop_all())
    return await _read(_clusters, 202)(desk, asked)


async def _calibrate(desk: Desk, asked: Asked) -> Answer:
    asked.body({})
    found = await (await desk.session()).calibrate_apart(asked["cluster"])
    return Answer({"sentence": f"Measured: {found.describe()}."})


async def _logs(desk: Desk, asked: Asked) -> Answer:
    return Answer({"logs": await (await desk.session()).logs(asked["cluster"])})


# -- workloads and runs


def _workloads(session: Session, _: Asked) -> dict[str, Any]:
    from workbench.workloads.registry import described

    return {"workloads": [described(template) for template in session.workloads()]}


async def _held(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"path": str}, {"anon": bool, "endpoint_url": str, "token_variable": str})
    return Answer(await desk.look("look", **body))


async def _needs(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({}, {"parameters": dict, "cluster": str})
    forecast = await desk.look("forecast", asked["workload"], body.get("parameters", {}), body.get("cluster"))
    return Answer(forecast._asdict())


def _runs(session: Session, asked: Asked) -> dict[str, Any]:
    limit, offset = asked.number("limit", 50, 1, 1000), asked.number("offset", 0, 0, 2**31)
    given = {name: asked.query.get(name) or None for name in ("workload", "status", "cluster", "text")}
    filters = cast("Wanted", given)
    found = session.runs(limit=limit, offset=offset, **filters)
    return {"runs": [answers.run_in_list(run) for run in found], "total": session.count_runs(**filters)}


async def _run(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"workload": str, "cluster": str}, {"parameters": dict, "force": bool, "settings": object})
    return Answer(await desk.look("run", **{"parameters": {}, **body}), 202)


def _mark(session: Session, asked: Asked) -> Run:
    return session.mark_run(asked["run"], **asked.body({}, {"name": str, "note": str, "star": bool}))


def _delete_run(session: Session, asked: Asked) -> Run:
    run = session.show(asked["run"])
    session.delete_run(run.id)
    return run


async def _cancel(desk: Desk, asked: Asked) -> Answer:
    asked.body({})
    run = await desk.ask(lambda session: session.show(asked["run"]))
    return Answer(await (await desk.session()).cancel(run.id), 202)


def _report(session: Session, asked: Asked) -> Answer:
    from workbench.views.recorded import beside, report

    run, other = session.show(asked["run"]), asked.query.get("beside")
    return Answer(report(run) if other is None else beside([run, session.show(other)]), kind=HTML)


def _pictures(session: Session, asked: Asked) -> dict[str, Any]:
    from workbench.views.recorded import pictures_of

    found = pictures_of(session.show(asked["run"]))
    return {"pictures": [{"name": each.name, "title": each.title} for each in found]}


def _picture(session: Session, asked: Asked) -> Answer:
    from workbench.views.recorded import picture_bytes

    kind = asked.query.get("as", "png")
    drawn = picture_bytes(session.show(asked["run"]), asked["picture"], kind)
    return Answer(drawn, kind=_PICTURES[kind], file=f"{asked['run']}-{asked['picture']}.{kind}")


_PICTURES = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}


def _export(session: Session, asked: Asked) -> Answer:
    with tempfile.TemporaryDirectory(prefix="workbench-export-") as folder:
        paths = [session.export_run(run, Path(folder)) for run in asked["run"].split(",")]
        if len(paths) == 1:
            return Answer(paths[0].read_bytes(), kind=ZIP, file=paths[0].name)
        all_of_them = io.BytesIO()
        with zipfile.ZipFile(all_of_them, "w") as archive:
            for path in paths:
                archive.write(path, path.name)
        return Answer(all_of_them.getvalue(), kind=ZIP, file="runs.zip")


async def _save(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"path": str}, {"kind": str, "only": list, "replace": bool})
    return Answer(await desk.look("save_run", asked["run"], **body), 202)


def _import(session: Session, asked: Asked) -> Run:
    new_id = asked.query.get("new_id", "false")
    if new_id not in ("true", "false"):
        raise BadInputError(f"new_id is {new_id!r:.40}. Give true or false.")
    return session.import_run(io.BytesIO(asked.content), new_id=new_id == "true")


# -- comparisons


def _compared(session: Session, comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as the faces show it: what it says by now, and how far it is."""
    progress = ("stage", "now", "done", "total", "created", "started", "stopped")
    return {
        **session.summary(comparison).model_dump(),
        **comparison.model_dump(include={"request", *progress}),
    }


def _comparisons(session: Session, asked: Asked) -> dict[str, Any]:
    found = session.comparisons(limit=asked.number("limit", 20, 1, 1000))
    return {"comparisons": [_compared(session, each) for each in found]}


async def _compare(desk: Desk, asked: Asked) -> Answer:
    begun = await desk.look(**_wanted(parse_object(asked.content)))
    return Answer(await desk.ask(lambda session: _compared(session, begun)), 202)


def _wanted(body: dict[str, Any]) -> dict[str, Any]:
    """Return which method of the session begins what a request asks for, and with what."""
    if "runs" in body:
        runs = body["runs"].split() if isinstance(body["runs"], str) else body["runs"]
        if body.keys() != {"runs"} or not isinstance(runs, list) or not all(isinstance(each, str) for each in runs):
            raise BadInputError("To compare runs of the past, give their ids as runs, and nothing else.")
        return {"method": "compare_runs", "runs": runs}
    allowed = ("workload", "parameters", "on", "sweep", "weak", "repeats", "warmup", "settings", "agreed")
    unknown = [key for key in body if key not in allowed]
    if unknown:
        raise BadInputError(f"Unknown key {unknown[0]!r:.80}. Allowed: {', '.join(allowed)}, or runs alone.")
    if not isinstance(body.get("workload"), str):
        raise BadInputError("workload is missing. Give the name of one.")
    # An empty field of a form is one that was left out.
    given = {key: value for key, value in body.items() if value not in (None, "")}
    return {"method": "compare", **given, "agreed": body.get("agreed") in (True, "true")}


def _comparison(session: Session, asked: Asked) -> dict[str, Any]:
    return _compared(session, session.comparison(asked["comparison"]))


def _delete_comparison(session: Session, asked: Asked) -> dict[str, Any]:
    comparison = session.comparison(asked["comparison"])
    session.delete_comparison(comparison.id)
    return _compared(session, comparison)


async def _cancel_comparison(desk: Desk, asked: Asked) -> Answer:
    asked.body({})
    found = await (await desk.session()).cancel_comparison(asked["comparison"])
    return Answer(await desk.ask(lambda session: _compared(session, found)), 202)


def _comparison_table(session: Session, asked: Asked) -> dict[str, Any]:
    from workbench.runs.comparing.table import export

    form: Any = asked.query.get("format", "markdown")
    if form not in TABLES:
        raise BadInputError(f"format is {form!r:.40}. Give one of: {', '.join(TABLES)}.")
    return {"format": form, "text": export(session.comparison(asked["comparison"]), form)}


def _comparison_page(session: Session, asked: Asked) -> Answer:
    from workbench.figures.comparison import page

    return Answer(page(session.comparison(asked["comparison"])), kind=HTML)


# -- what a page shows


def _figure(session: Session, asked: Asked) -> dict[str, Any]:
    theme, name = asked.theme(), asked["name"]
    if asked["kind"] == "comparison":
        return comparing.document(session, name, theme, asked.base_url)
    from workbench.views.drawing import document
    from workbench.views.recorded import on_simulated

    on_run = asked["kind"] == "run"
    simulated = session.show(name).simulated if on_run else on_simulated(session, session.cluster(name))
    return document(theme, asked.base_url, simulated=simulated)


async def _patches(desk: Desk, asked: Asked) -> Answer:
    watching = await desk.watching()
    polled = await watching.poll(asked["kind"], asked["name"], asked.theme(), asked.query.get("cursor"))
    if {"start", "end", "width"} & asked.query.keys():
        polled.watch.show_range(*check_range(dict(asked.query)))
    changed = await polled.watch.take() or {"patches": [], "status": None}
    return Answer({"cursor": polled.cursor, "gone": polled.watch.gone, **changed})


async def _state(desk: Desk, asked: Asked) -> Answer:
    wait = asked.number("wait", 0, 0, LONGEST_WAIT)
    state = (await desk.watching()).state
    await state.read()
    if "since" in asked.query and wait:
        await state.wait_beyond(asked.number("since", 0, 0, 2**63), wait)
    return Answer({"cursor": state.cursor, **answers.in_brief(state.value)})


async def _view(desk: Desk, asked: Asked) -> Answer:
    choices = parse_object(asked.query.get("choices", "{}").encode())
    return Answer({"html": await (await desk.watching()).views.make(asked["name"], choices)})


_FIGURE = "figures/(?P<kind>cluster|run|comparison)/{name}"

TABLE: dict[str, dict[str, Verb]] = {
    "hardware": {"GET": _read(_hardware)},
    "environments": {"GET": _read(lambda session, _: {"environments": session.environments()})},
    "plan": {"POST": _plan},
    "profiles": {"POST": _read(_keep_profile, 201)},
    "profiles/{profile}": {"DELETE": _read(_forget_profile)},
    "presets": {"POST": _keep_preset},
    "presets/{workload}/{preset}": {"DELETE": _read(_forget_preset)},
    "profiles/{profile}/schema": {"GET": _read(_profile_schema)},
    "clusters": {"GET": _read(_clusters), "POST": _read(_start, 202), "DELETE": _stop_all},
    "clusters/{cluster}": {"GET": _read(_cluster), "PATCH": _scale, "DELETE": _stop},
    "clusters/{cluster}/restart": {"POST": _restart},
    "clusters/{cluster}/calibrate": {"POST": _calibrate},
    "clusters/{cluster}/logs": {"GET": _logs},
    "files": {"POST": _held},
    "workloads": {"GET": _read(_workloads)},
    "workloads/{workload}/needs": {"POST": _needs},
    "runs": {"GET": _read(_runs), "POST": _run},
    "runs/{run}": {
        "GET": _read(lambda session, asked: session.show(asked["run"])),
        "PATCH": _read(_mark),
        "DELETE": _read(_delete_run),
    },
    "runs/{run}/cancel": {"POST": _cancel},
    "runs/{run}/log": {"GET": _read(lambda session, asked: {"log": session.log(asked["run"])})},
    "runs/{run}/report": {"GET": _read(_report)},
    "runs/{run}/pictures": {"GET": _read(_pictures)},
    "runs/{run}/pictures/{picture}": {"GET": _read(_picture)},
    "runs/{run}/export": {"GET": _read(_export)},
    "runs/{run}/save": {
        "GET": _read(lambda session, asked: session.saving(asked["run"])),
        "POST": _save,
        "DELETE": _read(lambda session, asked: session.cancel_saving(asked["run"]), 202),
    },
    "imports": {"POST": _read(_import, 201)},
    "comparisons": {"GET": _read(_comparisons), "POST": _compare},
    "comparisons/{comparison}": {"GET": _read(_comparison), "DELETE": _read(_delete_comparison)},
    "comparisons/{comparison}/cancel": {"POST": _cancel_comparison},
    "comparisons/{comparison}/table": {"GET": _read(_comparison_table)},
    "comparisons/{comparison}/page": {"GET": _read(_comparison_page)},
    _FIGURE: {"GET": _read(_figure)},
    f"{_FIGURE}/patches": {"GET": _patches},
    "state": {"GET": _state},
    "views/{name}": {"GET": _view},
}
"""Functions by address and verb."""

LOOKING = (_held, _keep_preset, _needs, _run, _save, _compare)
"""What opens a person's paths first, which may never answer: beside each GET, what ends when nobody waits any more."""
