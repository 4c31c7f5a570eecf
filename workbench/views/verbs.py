"""Table of the functions for each address and method; server/rest-api.yml documents requests and responses.

No tornado here. Errors are WorkbenchErrors.
"""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import BadInputError, quoted
from workbench.threads import in_thread
from workbench.views import answers, comparing
from workbench.views.answers import Answer
from workbench.views.bodies import Asked, check_range, check_theme, parse_object, pick
from workbench.views.desk import Desk

if TYPE_CHECKING:
    from workbench.session import Session

HTML, ZIP = "text/html; charset=UTF-8", "application/zip"

LONGEST_WAIT = 30
"""Limit of seconds for which a poll of the state waits for a change."""

BEGUN = Answer({}, 202)
"""Answer to an action that has started; the state shows its progress."""

Verb = Callable[[Desk, Asked], Coroutine[Any, Any, Answer]]


def _read(function: Callable[[Session, Asked], Any], status: int = 200) -> Verb:
    """Return a verb that calls one function, in a thread: it reads disks, processes and devices."""

    async def verb(desk: Desk, asked: Asked) -> Answer:
        found = await desk.ask(lambda session: function(session, asked))
        return found if isinstance(found, Answer) else Answer(found or {}, status)

    return verb


# -- this machine


def _keep_profile(session: Session, asked: Asked) -> None:
    body = asked.body({"name": str, "profile": str}, {"choices": dict})
    profile = body["profile"]
    session.keep_profile(body["name"], profile, **_known(profile, body.get("choices", {})))


def _forget_profile(session: Session, asked: Asked) -> None:
    session.forget_profile(asked["profile"])


async def _keep_preset(desk: Desk, asked: Asked) -> Answer:
    await desk.look("keep_preset", **asked.body({"workload": str, "name": str, "parameters": dict}))
    return Answer({}, 201)


def _forget_preset(session: Session, asked: Asked) -> None:
    session.forget_preset(asked["workload"], asked["preset"])


def _known(profile: str, choices: dict[str, Any]) -> Any:
    """Return the choices. Raises BadInputError if a name is unknown."""
    from workbench.clusters.choices import Choices
    from workbench.clusters.profiles import profile as find, takes

    for name in choices:
        if name not in Choices.__annotations__ and not takes(profile, name):
            known = (*Choices.__annotations__, *find(profile).options)
            raise BadInputError(f"Unknown choice {quoted(name)}. Choose among: {', '.join(known)}.")
    return choices


async def _trust(desk: Desk, asked: Asked) -> Answer:
    sha = asked.body({"sha": str})["sha"]
    await desk.ask(lambda session: session.trust(sha))
    await (await desk.watching()).state.read()
    return Answer({})


async def _end_tour(desk: Desk, _: Asked) -> Answer:
    from workbench.kept import end_tour

    await in_thread(end_tour)
    await (await desk.watching()).state.read()
    return Answer({})


# -- clusters


def _cell(session: Session, asked: Asked) -> dict[str, str]:
    return {"cell": answers.connecting_cell(session.cluster(asked["cluster"]).name)}


def _start(session: Session, asked: Asked) -> None:
    body = asked.body({"profile": str}, {"choices": dict, "name": str, "force": bool, "agreed": bool})
    profile = body.pop("profile")
    session.start(session.plan(profile, **_known(profile, body.pop("choices", {}))), **body)


async def _scale(desk: Desk, asked: Asked) -> Answer:
    fields = {"n_workers": int, "minimum": int, "maximum": int, "force": bool}
    body, session = asked.body({}, fields), await desk.session()
    if body.keys() - {"force"} == {"n_workers"}:
        await desk.begin(session.control.scale(asked["cluster"], **body))
    elif body.keys() - {"force"} == {"minimum", "maximum"}:
        await desk.begin(session.control.adapt(asked["cluster"], **body))
    else:
        raise BadInputError("Give either n_workers, or minimum and maximum.")
    return BEGUN


async def _restart(desk: Desk, asked: Asked) -> Answer:
    session, one = await desk.session(), asked.body({}, {"worker": str}).get("worker")
    name = asked["cluster"]
    control = session.control
    await desk.begin(control.restart_workers(name) if one is None else control.restart_worker(name, one))
    return BEGUN


async def _stop(desk: Desk, asked: Asked) -> Answer:
    session = await desk.session()
    await desk.begin(session.control.stop(await in_thread(session.cluster, asked["cluster"])))
    return BEGUN


async def _stop_all(desk: Desk, asked: Asked) -> Answer:
    await desk.begin((await desk.session()).control.stop_all())
    return BEGUN


# -- runs


async def _write_example(desk: Desk, asked: Asked) -> Answer:
    await desk.look("write_example", **asked.body({"path": str}))
    return Answer({}, 201)


async def _measure(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"workload": str, "cluster": str}, {"parameters": dict})
    await desk.look("measure", **{"parameters": {}, **body})
    return BEGUN


async def _run(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"workload": str, "cluster": str}, {"parameters": dict, "force": bool, "settings": object})
    run = await desk.look("run", **{"parameters": {}, **body})
    # The form asks before a second run of the same workload, so the state must include this one.
    await (await desk.watching()).state.read()
    return Answer({"id": run.id}, 202)


def _mark(session: Session, asked: Asked) -> None:
    session.mark_run(asked["run"], **asked.body({}, {"name": str, "note": str, "star": bool}))


def _delete_run(session: Session, asked: Asked) -> None:
    session.delete_run(asked["run"])


async def _cancel(desk: Desk, asked: Asked) -> Answer:
    asked.body({})
    await in_thread((await desk.session()).cancel, asked["run"])
    return BEGUN


def _report(session: Session, asked: Asked) -> Answer:
    from workbench.views.recorded import report

    return Answer(report(session.show(asked["run"])), kind=HTML)


def _picture(session: Session, asked: Asked) -> Answer:
    from workbench.views.recorded import picture_bytes

    drawn = picture_bytes(session.show(asked["run"]), asked["picture"], "png")
    # The name goes into a header.
    name = re.sub(r"[^\w.-]+", "-", f"{asked['run']}-{asked['picture']}", flags=re.ASCII)
    return Answer(drawn, kind="image/png", file=f"{name}.png")


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
    await desk.look("save_run", asked["run"], **asked.body({"path": str}))
    # A view shows progress and outcome.
    return BEGUN


def _cancel_saving(session: Session, asked: Asked) -> dict[str, str]:
    session.cancel_saving(asked["run"])
    return {}


# -- comparisons


async def _compare(desk: Desk, asked: Asked) -> Answer:
    comparison = await desk.look(**_wanted(parse_object(asked.content)))
    return Answer({"comparison": comparison.id, "title": f"{comparison.title}, compared"}, 202)


def _wanted(body: dict[str, Any]) -> dict[str, Any]:
    """Return the session's method for a request, and its arguments."""
    if "runs" in body:
        return {"method": "compare_runs", **pick(body, {"runs": list})}
    kinds = {"parameters": dict, "on": list, "sweep": dict, "weak": bool, "repeats": object, "settings": object}
    given = pick(body, {"workload": str}, {**kinds, "agreed": bool})
    # An empty field of a form counts as absent.
    return {"method": "compare", "agreed": False, **{key: value for key, value in given.items() if value != ""}}


def _delete_comparison(session: Session, asked: Asked) -> None:
    session.delete_comparison(asked["comparison"])


async def _cancel_comparison(desk: Desk, asked: Asked) -> Answer:
    asked.body({})
    await in_thread((await desk.session()).cancel_comparison, asked["comparison"])
    return BEGUN


def _comparison_page(session: Session, asked: Asked) -> Answer:
    from workbench.figures.comparison import page

    return Answer(page(session.comparison(asked["comparison"])), kind=HTML)


# -- content of pages


async def _page(_: Desk, asked: Asked) -> Answer:
    from workbench.views.documentation import document

    return Answer(await in_thread(document, f"{asked['part']}/{asked['page']}"), kind=HTML)


def _figure(session: Session, asked: Asked) -> dict[str, Any]:
    theme, name = asked.theme(), asked["name"]
    if asked["kind"] == "comparison":
        return comparing.document(session, name, theme, asked.base_url)
    from workbench.views.drawing import document

    # Raises NotFoundError for an unknown name.
    (session.show if asked["kind"] == "run" else session.cluster)(name)
    return document(theme, asked.base_url)


async def _patches(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({}, {"theme": str, "cursor": str, "range": dict})
    watching = await desk.watching()
    polled = await watching.poll(
        asked["kind"], asked["name"], check_theme(body.get("theme", "light")), body.get("cursor")
    )
    if "range" in body:
        polled.watch.show_range(*check_range(body["range"]))
    changed = await polled.watch.take() or {"patches": [], "status": None}
    return Answer({"cursor": polled.cursor, "gone": polled.watch.gone, **changed})


async def _state(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({}, {"since": int, "wait": int})
    wait, since = body.get("wait", 0), body.get("since")
    if not 0 <= wait <= LONGEST_WAIT:
        raise BadInputError(f"wait is {wait}. Give a whole number from 0 to {LONGEST_WAIT}.")
    state = (await desk.watching()).state
    await state.read()
    if since is not None and wait:
        await state.wait_beyond(since, wait)
    return Answer({"cursor": state.cursor, **answers.in_brief(state.value)})


async def _view(desk: Desk, asked: Asked) -> Answer:
    choices = asked.body({}, {"choices": dict}).get("choices", {})
    return Answer({"html": await (await desk.watching()).views.make(asked["name"], choices)})


async def _confirm(desk: Desk, asked: Asked) -> Answer:
    body = asked.body({"credential": str, "server": str})
    await desk.ask(lambda session: session.confirm(**body))
    # The new state redraws the forms that asked for it.
    await (await desk.watching()).state.read()
    return Answer({}, 201)


_FIGURE = "figures/(?P<kind>cluster|run|comparison)/{name}"

TABLE: dict[str, dict[str, Verb]] = {
    "trust": {"POST": _trust},
    "tour": {"DELETE": _end_tour},
    "profiles": {"POST": _read(_keep_profile, 201)},
    "profiles/{profile}": {"DELETE": _read(_forget_profile)},
    "presets": {"POST": _keep_preset},
    "presets/{workload}/{preset}": {"DELETE": _read(_forget_preset)},
    "clusters": {"POST": _read(_start, 202), "DELETE": _stop_all},
    "clusters/{cluster}": {"GET": _read(_cell), "PATCH": _scale, "DELETE": _stop},
    "clusters/{cluster}/restart": {"POST": _restart},
    "examples": {"POST": _write_example},
    "runs": {"POST": _run},
    "measurements": {"POST": _measure},
    "runs/{run}": {"PATCH": _read(_mark), "DELETE": _read(_delete_run)},
    "runs/{run}/cancel": {"POST": _cancel},
    "runs/{run}/report": {"GET": _read(_report)},
    "runs/{run}/pictures/{picture}": {"GET": _read(_picture)},
    "runs/{run}/export": {"GET": _read(_export)},
    "runs/{run}/save": {"POST": _save, "DELETE": _read(_cancel_saving, 202)},
    "comparisons": {"POST": _compare},
    "comparisons/{comparison}": {"DELETE": _read(_delete_comparison)},
    "comparisons/{comparison}/cancel": {"POST": _cancel_comparison},
    "comparisons/{comparison}/page": {"GET": _read(_comparison_page)},
    _FIGURE: {"GET": _read(_figure)},
    f"{_FIGURE}/patches": {"POST": _patches},
    "state": {"POST": _state},
    "views/{name}": {"POST": _view},
    "credentials": {"POST": _confirm},
    "docs/{part}/{page}": {"GET": _page},
}
"""Functions by address and method.

GET only reads records, since another site can make a browser send it. Connecting, starting a process, opening a file
that the request names and sending a credential need another method, for which Jupyter requires its header.
"""

LOOKING = (_keep_preset, _write_example, _run, _save, _compare, _patches, _state, _view)
"""Functions that first open a user's paths, which may hang. Like GET, they end when the request is cancelled."""
