"""The REST addresses. Each verb reads the request, asks the session in a thread, and answers; see rest-api.yml.

Errors take one way: a WorkbenchError becomes its status and `{"message"}`, anything else is logged and becomes a 500.
"""

# ruff: noqa: D102  The sentence of a class tells what its verbs do.

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError, RequestHandler, authenticated

from workbench.errors import BadInputError, FailedError, NotFoundError, WorkbenchError
from workbench.threads import in_thread
from workbench.views import answers
from workbench.views.bodies import check_range, check_theme, parse_object, pick, whole_number

if TYPE_CHECKING:
    from workbench.hardware import Inventory
    from workbench.server.app import Shared
    from workbench.session import Session

AUTH_RESOURCE = "workbench"

_VERBS = ("GET", "POST", "PATCH", "DELETE")

LONGEST_WAIT = 30
"""Seconds for which a poll of the state may ask to be held until something changes."""


class Handler(APIHandler):
    """What all REST addresses share: the session, bodies, answers and errors."""

    auth_resource = AUTH_RESOURCE

    @property
    def shared(self) -> Shared:
        """What all requests share."""
        return self.settings["workbench_shared"]

    async def session(self) -> Session:
        """Return the session."""
        return await self.shared.session()

    async def ask(self, function: Callable[[Session], Any]) -> Any:
        """Return what `function` finds out from the session, in a thread: it reads disks, processes and devices."""
        return await in_thread(function, await self.session())

    async def session_with(self, cluster: str) -> Session:
        """Return the session where it knows this cluster; NotFoundError otherwise, before anything begins."""
        await self.ask(lambda session: session.cluster(cluster))
        return await self.session()

    async def look(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of the session says that opens paths of a person's; ended when the page goes away."""
        self._looking = asyncio.ensure_future(self.shared.looking(await self.session()).ask(method, *args, **kwargs))
        try:
            return await self._looking
        except asyncio.CancelledError as err:
            raise FailedError("Nobody waits for this any more.") from err

    _looking: asyncio.Future[Any] | None = None

    def on_connection_close(self) -> None:
        """Look no longer for a page that went away, or asked for something else."""
        if self._looking is not None:
            self._looking.cancel()
        super().on_connection_close()

    def body(self, required: dict[str, type], optional: dict[str, type] | None = None) -> dict[str, Any]:
        """Return the request's JSON object, checked."""
        return pick(parse_object(self.request.body), required, optional)

    def answer(self, value: dict[str, Any], status: int = 200) -> None:
        """Finish with JSON."""
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.finish(answers.to_json(value))

    async def answer_cluster(self, name: str) -> None:
        """Finish with 202 and the cluster as it now is."""
        record = await self.ask(lambda session: session.cluster(name))
        self.answer(await in_thread(answers.cluster_answer, record, self.base_url), 202)

    def theme(self) -> str:
        """Return the theme that the query asks for."""
        return check_theme(self.get_query_argument("theme", "light"))

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Give an error of ours its own status."""
        error = _error(kwargs)
        super().send_error(error.status if isinstance(error, WorkbenchError) else status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer an error with one sentence."""
        error = _error(kwargs)
        if isinstance(error, WorkbenchError):
            answer = {"message": str(error)}
            parameter = getattr(error, "parameter", None)
            self.answer(answer | {"parameter": parameter} if parameter else answer, status_code)
        else:
            verbs = [verb for verb in _VERBS if verb.lower() in type(self).__dict__]
            if status_code == 405:
                self.set_header("Allow", ", ".join(verbs))
            self.answer({"message": refusal(self.request.method, status_code, error, verbs)}, status_code)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log what nobody foresaw; an error of ours is an answer."""
        if not isinstance(value, WorkbenchError):
            super().log_exception(typ, value, tb)


def refusal(verb: str | None, status_code: int, error: BaseException | None, verbs: Sequence[str]) -> str:
    """Return the sentence for an error that isn't ours: Jupyter's, tornado's, or one that nobody foresaw."""
    if status_code == 405:
        return f"{verb} is not possible here. Possible: {', '.join(verbs) or 'nothing'}."
    if status_code == 403 and error is not None and not getattr(error, "log_message", None):
        return "Log in to this Jupyter server first."
    if isinstance(error, HTTPError):
        sentence = error.log_message % error.args if error.log_message and error.args else error.log_message
        return sentence or error.reason or "This was refused."
    return f"Something went wrong in the server ({type(error).__name__}). The log of the Jupyter server says more."


def _error(kwargs: dict[str, Any]) -> BaseException | None:
    return kwargs["exc_info"][1] if "exc_info" in kwargs else None


class Hardware(Handler):
    """What this machine has, the four profiles, and the memory that is left to promise."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(await self.ask(_hardware))


def _hardware(session: Session) -> dict[str, Any]:
    from workbench.views.page import SECTIONS

    inventory = session.hardware()
    return {
        "inventory": inventory.model_dump(mode="json"),
        "profiles": [profile.model_dump(mode="json") for profile in session.profiles(inventory)],
        "budget": session.budget(inventory).model_dump(mode="json"),
        "simulated": inventory.simulated,
        "sections": [section._asdict() for section in SECTIONS],
    }


class Environments(Handler):
    """Pythons that a cluster can run in. Slow: each is started once."""

    @authenticated
    @authorized
    async def get(self) -> None:
        found = await self.ask(lambda session: session.environments())
        self.answer({"environments": [environment.model_dump(mode="json") for environment in found]})


class Plan(Handler):
    """The spec that a choice becomes; nothing starts."""

    @authenticated
    @authorized
    async def post(self) -> None:
        body = self.body({"profile": str}, {"choices": dict})
        # Whoever asks for a plan may soon press Start.
        await self.shared.keep_warm()
        self.answer(await self.ask(lambda session: _plan(session, **body)))


def _plan(session: Session, profile: str, choices: dict[str, Any] | None = None) -> dict[str, Any]:
    from workbench.clusters.plan import consent

    inventory = session.hardware()
    spec = session.plan(profile, inventory, **_known(choices or {}))
    return {
        "spec": spec.model_dump(mode="json"),
        "hints": answers.hints(spec),
        "description": spec.describe(),
        "code": spec.code(),
        "budget": session.budget(inventory).model_dump(mode="json"),
        "problem": _problem(session, spec, inventory),
        "consent": consent(spec),
    }


def _known(choices: dict[str, Any]) -> dict[str, Any]:
    """Return the choices when each has a name that there is."""
    from workbench.clusters.choices import Choices

    for name in choices:
        if name not in Choices.__annotations__:
            raise BadInputError(f"Unknown choice {name!r:.80}. Choose among: {', '.join(Choices.__annotations__)}.")
    return choices


def _problem(session: Session, spec: Any, inventory: Inventory) -> str | None:
    """Return why this spec would be refused if it were started now."""
    from workbench.clusters.budget import check_budget
    from workbench.clusters.environments import check_environment

    try:
        check_budget(spec, inventory, session.clusters())
        if spec.python is not None:
            check_environment(spec.python)
    except WorkbenchError as err:
        return str(err)
    return None


class ProfileSchema(Handler):
    """JSON Schema of the form of a profile."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        self.answer(await self.ask(lambda session: _profile_schema(session, name)))


def _profile_schema(session: Session, name: str) -> dict[str, Any]:
    from workbench.clusters.plan import choices_of

    inventory = session.hardware()
    names = [profile.name for profile in session.profiles(inventory)]
    if name not in names:
        raise NotFoundError(f"Unknown profile {name!r:.80}. Choose one of: {', '.join(names)}.")
    return choices_of(name, inventory).model_json_schema()


class Clusters(Handler):
    """All clusters: list them, start one more, stop everything."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer({"clusters": await self.ask(self._all)})

    @authenticated
    @authorized
    async def post(self) -> None:
        body = self.body({"profile": str}, {"choices": dict, "name": str, "force": bool, "agreed": bool})
        record = await self.ask(lambda session: _start(session, **body))
        self.answer(await in_thread(answers.cluster_answer, record, self.base_url), 202)

    @authenticated
    @authorized
    async def delete(self) -> None:
        session = await self.session()
        await self.shared.begin(session.stop_all())
        self.answer({"clusters": await self.ask(self._all)}, 202)

    def _all(self, session: Session) -> list[dict[str, Any]]:
        return [answers.cluster_answer(record, self.base_url) for record in session.clusters()]


def _start(
    session: Session, profile: str, choices: dict[str, Any] | None = None, name: str | None = None, **said: bool
) -> Any:
    return session.start(session.plan(profile, **_known(choices or {})), name=name, **said)


class Cluster(Handler):
    """One cluster: look, scale, stop."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        record = await self.ask(lambda session: session.cluster(name))
        self.answer(await in_thread(answers.cluster_answer, record, self.base_url))

    @authenticated
    @authorized
    async def patch(self, name: str) -> None:
        body = self.body({}, {"n_workers": int, "minimum": int, "maximum": int})
        session = await self.session_with(name)
        if body.keys() == {"n_workers"}:
            await self.shared.begin(session.scale(name, body["n_workers"]))
        elif body.keys() == {"minimum", "maximum"}:
            await self.shared.begin(session.adapt(name, body["minimum"], body["maximum"]))
        else:
            raise BadInputError("Give either n_workers, or minimum and maximum.")
        await self.answer_cluster(name)

    @authenticated
    @authorized
    async def delete(self, name: str) -> None:
        before = await self.ask(lambda session: session.cluster(name))
        session = await self.session()
        await self.shared.begin(session.stop(name))
        self.answer(answers.cluster_answer(before.model_copy(update={"status": "stopping"}), self.base_url), 202)


class Restart(Handler):
    """Restart the workers of a cluster; what they hold is lost."""

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        self.body({})
        session = await self.session_with(name)
        await self.shared.begin(session.restart_workers(name))
        await self.answer_cluster(name)


class Calibrate(Handler):
    """Measure a cluster, so that forecasts can tell how long things take on it; the answer comes when that is done."""

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        self.body({})
        session = await self.session_with(name)
        found = await session.calibrate_apart(name)
        self.answer({"sentence": f"Measured: {found.describe()}."})


class Logs(Handler):
    """What the host, the scheduler and the workers of a cluster wrote."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        session = await self.session_with(name)
        self.answer({"logs": await session.logs(name)})


class Workloads(Handler):
    """The catalogue, with the schema of each form."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(await self.ask(_workloads))


def _workloads(session: Session) -> dict[str, Any]:
    from workbench.workloads.registry import described

    return {"workloads": [described(template) for template in session.workloads()]}


class Needs(Handler):
    """What a workload would need with these parameters, against what a cluster has; nothing starts."""

    @authenticated
    @authorized
    async def post(self, name: str) -> None:
        body = self.body({}, {"parameters": dict, "cluster": str})
        forecast = await self.look("needs", name, body.get("parameters", {}), body.get("cluster"))
        self.answer(forecast._asdict())


class Runs(Handler):
    """Runs: list them, start one more."""

    @authenticated
    @authorized
    async def get(self) -> None:
        limit = whole_number("limit", self.get_query_argument("limit", "50"), 1, 1000)
        offset = whole_number("offset", self.get_query_argument("offset", "0"), 0, 2**31)
        filters = {name: self.get_query_argument(name, None) or None for name in ("workload", "status")}
        self.answer(await self.ask(lambda session: _page_of_runs(session, limit, offset, filters)))

    @authenticated
    @authorized
    async def post(self) -> None:
        body = self.body({"workload": str, "cluster": str}, {"parameters": dict, "force": bool})
        run = await self.look("run", **{"parameters": {}, **body})
        self.answer(answers.run_answer(run), 202)


def _page_of_runs(session: Session, limit: int, offset: int, filters: dict[str, str | None]) -> dict[str, Any]:
    found = session.runs(limit=limit, offset=offset, **filters)
    return {"runs": [answers.run_in_list(run) for run in found], "total": session.count_runs(**filters)}


class Run(Handler):
    """One run: look, forget."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        self.answer(answers.run_answer(await self.ask(lambda session: session.show(run_id))))

    @authenticated
    @authorized
    async def delete(self, run_id: str) -> None:
        run = await self.ask(lambda session: session.show(run_id))
        await self.ask(lambda session: session.delete_run(run.id))
        self.answer(answers.run_answer(run))


class Cancel(Handler):
    """Ask a run to end."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        self.body({})
        run = await self.ask(lambda session: session.show(run_id))
        session = await self.session()
        self.answer(answers.run_answer(await session.cancel(run.id)), 202)


class RunLog(Handler):
    """What the run's process printed."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        self.answer({"log": await self.ask(lambda session: session.log(run_id))})


class Report(Handler):
    """The run as one HTML file that opens offline."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        other = self.get_query_argument("beside", None)
        text = await self.ask(lambda session: _report(session, run_id, other))
        self.finish(text, set_content_type="text/html; charset=UTF-8")

    @property
    def content_security_policy(self) -> str:
        """Let the page run its own scripts, cut off from the Jupyter server that it came from."""
        return "sandbox allow-scripts allow-downloads; default-src 'unsafe-inline' 'unsafe-eval' data: blob:"


def _report(session: Session, run_id: str, other: str | None) -> str:
    from workbench.views.recorded import beside, report

    return report(session.show(run_id)) if other is None else beside([session.show(run_id), session.show(other)])


class Figure(Handler):
    """The figure of a cluster, run or comparison as a Bokeh document; what the stream sends fills it."""

    @authenticated
    @authorized
    async def get(self, kind: str, name: str) -> None:
        theme = self.theme()
        self.answer(await self.ask(lambda session: _document(session, kind, name, theme, self.base_url)))


def _document(session: Session, kind: str, name: str, theme: str, base_url: str) -> dict[str, Any]:
    if kind == "comparison":
        from workbench.views import comparing

        return comparing.document(session, name, theme, base_url)
    from workbench.views.drawing import document
    from workbench.views.recorded import on_simulated

    if kind == "cluster":
        return document(theme, base_url, simulated=on_simulated(session, session.cluster(name)))
    return document(theme, base_url, simulated=session.show(name).simulated)


class FigurePatches(Handler):
    """What changed in a figure since `cursor`, for a page whose WebSocket is blocked."""

    @authenticated
    @authorized
    async def get(self, kind: str, name: str) -> None:
        watching = await self.shared.watching()
        polled = await watching.poll(kind, name, self.theme(), self.get_query_argument("cursor", None))
        shown = self._range()
        if shown is not None:
            polled.watch.show_range(*shown)
        changed = await polled.watch.take() or {"patches": [], "status": None}
        self.answer({"cursor": polled.cursor, "gone": polled.watch.gone, **changed})

    def _range(self) -> tuple[float, float, int] | None:
        given = {name: self.get_query_argument(name, None) for name in ("start", "end", "width")}
        if all(value is None for value in given.values()):
            return None
        return check_range(given)


class State(Handler):
    """Everything that the sidebar shows, for a page whose WebSocket is blocked."""

    @authenticated
    @authorized
    async def get(self) -> None:
        since = self.get_query_argument("since", None)
        wait = whole_number("wait", self.get_query_argument("wait", "0"), 0, LONGEST_WAIT)
        state = (await self.shared.watching()).state
        await state.read()
        if since is not None and wait:
            await state.wait_beyond(whole_number("since", since, 0, 2**63), wait)
        self.answer({"cursor": state.cursor, **answers.in_brief(state.value)})


class Fragment(Handler):
    """A view of the sidebar as HTML, for a page whose WebSocket is blocked."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        self.answer({"html": await (await self.shared.watching()).fragments.make(name)})


class Script(Handler):
    """One of BokehJS's own files, from the installed bokeh: the version always fits."""

    @authenticated
    @authorized
    async def get(self, name: str) -> None:
        from workbench.server.scripts import read

        compressed = "gzip" in self.request.headers.get("Accept-Encoding", "")
        content = await in_thread(functools.partial(read, name, compressed=compressed))
        if compressed:
            self.set_header("Content-Encoding", "gzip")
        self.set_header("Vary", "Accept-Encoding")
        # The address bears the version.
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        self.finish(content, set_content_type="text/javascript; charset=UTF-8")


class Unknown(Handler):
    """Any other address below ours."""

    @authenticated
    @authorized
    async def get(self, path: str) -> None:
        raise NotFoundError(f"There is no address {answers.API}/{path[:80]}.")

    post = patch = delete = put = get


def addresses() -> list[tuple[str, type[RequestHandler]]]:
    """Addresses and who answers there, in the order in which they are tried; Jupyter puts its base URL before them."""
    from workbench.server import comparisons, exchange
    from workbench.server.dashboard import Dashboard
    from workbench.server.stream import Stream

    name = r"([^/]+)"
    below = {
        "hardware": Hardware,
        "environments": Environments,
        "plan": Plan,
        f"profiles/{name}/schema": ProfileSchema,
        "clusters": Clusters,
        f"clusters/{name}": Cluster,
        f"clusters/{name}/restart": Restart,
        f"clusters/{name}/calibrate": Calibrate,
        f"clusters/{name}/logs": Logs,
        "workloads": Workloads,
        f"workloads/{name}/needs": Needs,
        "runs": Runs,
        f"runs/{name}": Run,
        f"runs/{name}/cancel": Cancel,
        f"runs/{name}/log": RunLog,
        f"runs/{name}/report": Report,
        f"runs/{name}/export": exchange.Export,
        "imports": exchange.Imports,
        "comparisons": comparisons.Comparisons,
        f"comparisons/{name}": comparisons.OneComparison,
        f"comparisons/{name}/cancel": comparisons.CancelComparison,
        f"comparisons/{name}/table": comparisons.ComparisonTable,
        f"comparisons/{name}/page": comparisons.ComparisonPage,
        f"figures/(cluster|run|comparison)/{name}": Figure,
        f"figures/(cluster|run|comparison)/{name}/patches": FigurePatches,
        f"fragments/{name}": Fragment,
        f"bokeh/{name}": Script,
        "state": State,
        "stream": Stream,
        f"dashboard/{name}(/.*|)": Dashboard,
        "(.*)": Unknown,
    }
    return [(url_path_join(answers.API, path), handler) for path, handler in below.items()]
