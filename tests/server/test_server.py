"""The REST addresses over a session that starts nothing: who may ask, what is answered, how errors read."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.utils import JupyterServerAuthWarning
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket
from tornado.web import Application, RequestHandler

import workbench
from workbench.clusters.asking import short
from workbench.errors import FailedError
from workbench.server.handlers import Refusing, addresses
from workbench.views.verbs import TABLE


def test_loading_the_extension_imports_nothing_heavy() -> None:
    code = (
        "import sys, jupyter_server.serverapp, workbench\n"
        "workbench._jupyter_server_extension_points()\n"
        "from workbench.server.handlers import addresses; addresses()\n"
        "heavy = {'dask', 'distributed', 'bokeh', 'panel', 'pyarrow', 'numpy', 'pydantic_core', 'watchfiles', 'zarr'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_the_scripts_of_lab_notebooks_and_figures_with_all_panes_are_80_kb_at_most() -> None:
    folder = Path(workbench.__file__).parent
    # remoteEntry is the bundler's own, by which Lab shares its packages.
    lab = [script for script in folder.glob("labextension/static/*.js") if not script.name.startswith("remoteEntry")]
    page, figures = list(folder.glob("panels/page.*.js")), list(folder.glob("figures/scripts/*.js"))
    assert all((lab, page, figures))
    assert sum(script.stat().st_size for script in (*lab, *page, *figures)) <= 80_000


def test_after_warming_up_the_first_record_is_opened_without_an_import_of_what_is_heavy(tmp_path: Path) -> None:
    from workbench.monitor.events import NO_TASKS, Batch, Progress
    from workbench.monitor.record import Recorder

    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(Batch(1.0, NO_TASKS, (), Progress(1.0, {"sum": {"total": 1, "done": 1, "erred": 0}})))
    code = (
        "import sys, pathlib; from workbench.views.drawing import WARM_UP, document\n"
        "[each() for each in WARM_UP]; before = set(sys.modules)\n"
        "from workbench.monitor.record import read_events\n"
        "document('light', '/'); read_events(pathlib.Path(sys.argv[1]) / 'events.parquet')\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted({'bokeh', 'pyarrow', 'pandas', 'numpy'} & new))"
    )
    found = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_jupyter_finds_no_verb_of_ours_without_a_login(jp_web_app: Any) -> None:
    class Naked(RequestHandler):
        def get(self) -> None: ...

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jp_web_app.add_handlers(".*", [("/again/" + path, handler) for path, handler in addresses()])
        jp_web_app.add_handlers(".*", [("/naked", Naked)])
    (warning,) = [item for item in caught if item.category is JupyterServerAuthWarning]
    assert [line for line in str(warning.message).splitlines() if line.startswith("- ")] == [
        "- GET of Naked registered for /naked"
    ]


async def test_a_new_cluster_is_answered_at_once_as_starting(api: Any, session: Any) -> None:
    answer = await api("POST", "clusters", {"profile": "cpu", "choices": {"n_workers": 1}, "name": "mine"})
    assert answer.status == 202
    assert session.calls == [("start", "mine", False)]
    assert session.records["mine"].status == "starting"
    cell = (await api("GET", "clusters/mine")).content["cell"]
    assert cell == 'import workbench\n\nclient = workbench.connect("mine")\nprint(client)'


BAD_BODIES = [
    ("POST", "clusters", "{", "This is not JSON"),
    ("POST", "clusters", b"\xff\xfe", "This is not JSON"),
    ("POST", "clusters", "[" * 100_000, "This is not JSON"),
    ("POST", "clusters", '{"profile": "cpu", "choices": {"memory": "\\ud800"}}', "half of a character"),
    ("POST", "clusters", [1, 2], "Send a JSON object such as {}, not [1, 2]."),
    ("POST", "clusters", {}, "profile is missing. Give text."),
    ("POST", "clusters", {"profile": 3}, "profile is 3. Give text."),
    ("POST", "clusters", {"profile": "tpu"}, "tpu"),
    (
        "POST",
        "clusters",
        {"profile": "cpu", "spin": 1},
        'Unknown key "spin". Allowed: profile, choices, name, force, agreed.',
    ),
    ("POST", "clusters", {"profile": "cpu", "choices": {"promised": 1}}, "Unknown choice 'promised'. Choose among: "),
    ("POST", "clusters", {"profile": "cpu", "choices": {"n_workers": -2}}, "n_workers"),
    ("POST", "clusters", {"profile": "cpu", "choices": {"n_workers": "x"}}, "n_workers"),
    ("POST", "clusters", {"profile": "cpu", "choices": {"n_workers": {}}}, "n_workers"),
    ("POST", "clusters", {"profile": "cpu", "choices": {"memory": "lots"}}, "memory"),
    ("POST", "clusters", {"profile": "cpu", "choices": {"memory": float("nan")}}, "memory"),
    ("POST", "clusters", {"profile": "cpu", "choices": {"n_workers": "9" * 400}}, "n_workers"),
    ("POST", "clusters", {"profile": "cpu", "choices": {"threads_per_worker": 10**30}}, "threads_per_worker"),
    ("POST", "clusters", {"profile": "cpu", "choices": {"idle_timeout": "1e999"}}, "idle_timeout"),
    ("POST", "clusters", {"profile": "cpu", "force": "yes"}, 'force is "yes". Give true or false.'),
    ("POST", "clusters", {"profile": "cpu", "choices": []}, "choices is []. Give an object."),
    ("PATCH", "clusters/calm-otter", {"n_workers": "x"}, 'n_workers is "x". Give a whole number.'),
    ("PATCH", "clusters/calm-otter", {"n_workers": True}, "n_workers is true. Give a whole number."),
    ("PATCH", "clusters/calm-otter", {"n_workers": -2}, "n_workers is -2. Give a whole number, 0 or more."),
    ("PATCH", "clusters/calm-otter", {"n_workers": 1, "minimum": 2}, "Give either n_workers, or minimum and maximum."),
    ("PATCH", "clusters/calm-otter", {}, "Give either n_workers, or minimum and maximum."),
    (
        "POST",
        "runs",
        {"workload": "array_sum", "cluster": "calm-otter", "parameters": {"colour": 1}},
        "Unknown parameter",
    ),
    ("POST", "runs", {"workload": "array_sum"}, "cluster is missing. Give text."),
    ("POST", "comparisons", {"runs": 3}, "runs is 3. Give a list."),
    ("GET", "figures/cluster/calm-otter?theme=pink", None, "theme is 'pink'. Give one of: light, dark."),
    ("POST", "state", {"since": "x", "wait": 1}, 'since is "x"'),
    ("POST", "state", {"wait": 900}, "wait is 900"),
]


async def test_bad_input_is_a_400_with_a_sentence_and_starts_nothing(api: Any, session: Any) -> None:
    session.add("calm-otter")
    before = session.records["calm-otter"]
    for verb, path, body, sentence in BAD_BODIES:
        path, _, query = path.partition("?")
        answer = await api(verb, path, body, params=dict(part.split("=") for part in query.split("&") if part))
        assert answer.status == 400, (verb, path, body, answer)
        assert sentence in answer.content["message"], (verb, path, body, answer)
        assert "\n" not in answer.content["message"]
    assert session.records == {"calm-otter": before}
    assert session.all_runs == {}


UNKNOWN = [
    ("GET", "clusters/nobody"),
    ("DELETE", "clusters/nobody"),
    ("PATCH", "clusters/nobody"),
    ("POST", "clusters/nobody/restart"),
    ("GET", "figures/cluster/nobody"),
    ("POST", "figures/cluster/nobody/patches"),
    ("GET", "figures/run/nobody"),
    ("DELETE", "runs/nobody"),
    ("POST", "runs/nobody/cancel"),
    ("GET", "runs/nobody/report"),
    ("GET", "bokeh/nobody"),
    ("GET", "bokeh/..%2f..%2fsettings.js"),
    ("GET", "nobody"),
]


async def test_what_does_not_exist_is_a_404_that_says_what_does(api: Any, session: Any) -> None:
    session.add("calm-otter")
    for verb, path in UNKNOWN:
        answer = await api(verb, path, {"n_workers": 1} if verb == "PATCH" else None)
        assert answer.status == 404, (verb, path, answer)
        assert answer.content["message"].endswith("."), (verb, path, answer)
    answer = await api("GET", "clusters/nobody")
    assert "calm-otter" in answer.content["message"]


async def test_a_verb_that_is_not_possible_is_told_which_are(api: Any) -> None:
    answer = await api("PUT", "clusters", {})
    assert answer.status == 405
    assert answer.content == {"message": "PUT is not possible here. Possible: POST, DELETE."}
    answer = await api("POST", "stream", {})
    assert answer.status == 405
    assert answer.content == {"message": "POST is not possible here. Possible: GET."}


async def test_an_error_that_nobody_foresaw_is_a_500_without_its_insides(api: Any, session: Any) -> None:
    session.failure = RuntimeError("secret insides")
    answer = await api("POST", "state")
    assert answer.status == 500
    assert answer.content["message"].startswith("Something went wrong in the server (RuntimeError).")


async def test_an_error_that_knows_its_parameter_names_it(api: Any, session: Any) -> None:
    from workbench.errors import BadInputError

    session.failure = BadInputError("size is 0. Give more.")
    session.failure.parameter = "size"
    assert (await api("POST", "state")).content == {"message": "size is 0. Give more.", "parameter": "size"}


def operations() -> list[tuple[str, str]]:
    """Each verb, possible or not, of an example of each address."""
    paths = [*TABLE, *(path.removeprefix("workbench/api/") for path, _ in addresses())]
    return [(verb, example(path)) for path in paths for verb in ("GET", "POST", "PATCH", "DELETE", "PUT")]


def example(path: str) -> str:
    """Return an address that the pattern matches."""
    text = re.sub(r"\{\w+\}", "some", path).replace("([^/]+)", "some")
    return (
        text.replace("(?P<kind>cluster|run|comparison)", "cluster").replace("(/.*|)", "/status").replace("(.*)", "some")
    )


def is_elsewhere(path: str) -> bool:
    """Return whether an address isn't in the table: tornado itself refuses verbs that it lacks."""
    return path.startswith(("dashboard", "dask", "stream", "bokeh"))


async def test_nobody_gets_in_without_a_login(api: Any, session: Any) -> None:
    for verb, path in operations():
        answer = await api(verb, path, {}, headers={"Authorization": "token wrong"})
        # Of a dashboard the key in the path says who asks, and this is none.
        refused = (404, 405) if path.startswith("dask/") else (403, 302, 405) if is_elsewhere(path) else (403,)
        assert answer.status in refused, (verb, path, answer)
    assert session.calls == []


@pytest.mark.parametrize("jp_argv", [["--ServerApp.authorizer_class=tests.server.denying.Denying"]])
async def test_who_may_not_is_refused_by_every_verb(api: Any) -> None:
    for verb, path in operations():
        answer = await api(verb, path, {})
        refused = (404, 405) if path.startswith("dask/") else (403, 405) if is_elsewhere(path) else (403,)
        assert answer.status in refused, (verb, path, answer)


@pytest.mark.parametrize("jp_argv", [["--ServerApp.authorizer_class=tests.server.denying.OnlyReading"]])
async def test_who_may_only_read_has_read_and_still_changes_nothing(api: Any, session: Any) -> None:
    session.add("calm-otter")
    assert (await api("GET", "clusters/calm-otter")).status == 200
    for verb, path in operations():
        if verb != "GET":
            assert (await api(verb, path, {})).status in ((403, 405) if is_elsewhere(path) else (403,)), (verb, path)
    assert (await api("DELETE", "clusters/calm-otter")).status == 403
    assert list(session.records) == ["calm-otter"]


async def test_stopping_answers_before_the_cluster_is_gone(api: Any, session: Any) -> None:
    session.add("calm-otter")
    session.delay = 1.5
    answer = await api("DELETE", "clusters/calm-otter", request_timeout=1.4)
    assert answer.status == 202
    assert "calm-otter" in session.records


async def test_stopping_everything_leaves_nothing(api: Any, session: Any) -> None:
    session.add("calm-otter")
    session.add("bold-heron")
    answer = await api("DELETE", "clusters")
    assert (answer.status, session.records) == (202, {})


async def test_a_cluster_is_scaled_or_follows_the_load(api: Any, session: Any) -> None:
    session.add("calm-otter")
    assert (await api("PATCH", "clusters/calm-otter", {"n_workers": 5})).status == 202
    assert (await api("PATCH", "clusters/calm-otter", {"minimum": 1, "maximum": 4})).status == 202
    scaled = session.records["calm-otter"]
    assert (scaled.n_workers_expected, scaled.adaptive) == (5, (1, 4))


async def test_a_cluster_over_ucx_waits_until_a_person_agrees(api: Any, session: Any) -> None:
    session.told = "UCX listens on all network interfaces."
    refused = await api("POST", "clusters", {"profile": "cpu"})
    assert refused.status == 400
    sentence = f"{session.told} Nothing was started. Choose otherwise, or agree (--yes, agreed=True)."
    assert refused.content["message"] == sentence
    assert session.records == {}
    assert (await api("POST", "clusters", {"profile": "cpu", "agreed": True})).status == 202


async def test_a_cluster_that_is_ready_is_shown_with_its_dashboard(api: Any, session: Any) -> None:
    session.add("calm-otter", dashboard_address="unix:/tmp/nothing.sock")
    session.add("bold-heron", status="lost", dashboard_address="unix:/tmp/nothing.sock")
    html = (await api("POST", "views/clusters", {})).content["html"]
    assert re.findall(r'data-page="([^"]*)/status"', html) == ["workbench/api/dashboard/calm-otter"]


async def test_bokehs_scripts_come_from_the_installed_package(api: Any) -> None:
    import bokeh

    plain = await api("GET", "bokeh/bokeh.min.js", params={"v": bokeh.__version__})
    packed = await api("GET", "bokeh/bokeh.min.js", headers={"Accept-Encoding": "gzip"}, decompress_response=False)
    assert plain.status == packed.status == 200
    assert f'"{bokeh.__version__}"'.encode() in plain.content
    assert gzip.decompress(packed.content) == plain.content
    assert plain.headers["Content-Type"].startswith("text/javascript")
    assert "max-age=31536000" in plain.headers["Cache-Control"]


def test_the_scripts_are_those_that_the_figure_needs() -> None:
    from workbench.figures.live import LiveFigure
    from workbench.views.drawing import SCRIPTS

    modules = {type(model).__module__ for model in LiveFigure("light").layout.root.references()}
    needs = {"bokeh.min.js"}
    needs |= {"bokeh-widgets.min.js" for module in modules if module.startswith("bokeh.models.widgets")}
    needs |= {"bokeh-tables.min.js" for module in modules if module.startswith("bokeh.models.widgets.tables")}
    assert set(SCRIPTS) == needs


async def test_the_end_of_the_server_stops_no_cluster(api: Any, session: Any, jp_serverapp: Any) -> None:
    session.add("calm-otter")
    await api("POST", "state")
    await jp_serverapp.extension_manager.stop_all_extensions()
    assert list(session.records) == ["calm-otter"]


class Echo(RequestHandler):
    """Stands for Dask's dashboard: says what it was asked."""

    def get(self, path: str) -> None:
        for name, value in (("Set-Cookie", "_xsrf=theirs; Path=/"), ("Refresh", "0; url=/"), ("X-Else", "x")):
            self.set_header(name, value)
        there = {
            "old": "/status",
            "away": "http://elsewhere.example/",
            "up": "../../../../lab",
            "up-2": "/%2e%2e/../lab",
        }
        if path in there:
            self.redirect(there[path])
            return
        self.finish(json.dumps({"path": path, "query": self.request.query, "headers": dict(self.request.headers)}))


@asynccontextmanager
async def dashboard(folder: Path, kind: str) -> AsyncIterator[str]:
    server = HTTPServer(Application([("/(.*)", Echo)]))
    if kind == "unix":
        address = f"unix:{folder / 'dashboard.sock'}"
        with short(folder) as there:
            server.add_socket(bind_unix_socket(f"{there}/dashboard.sock"))
    else:
        (listening,) = bind_sockets(0, "127.0.0.2")
        server.add_socket(listening)
        address = f"http://127.0.0.2:{listening.getsockname()[1]}"
    try:
        yield address
    finally:
        server.stop()
        await server.close_all_connections()


@pytest.mark.parametrize("kind", ["unix", "http"])
async def test_a_registered_dashboard_is_shown_without_jupyters_secrets(
    api: Any, session: Any, jp_serverapp: Any, tmp_path: Path, kind: str
) -> None:
    token = jp_serverapp.identity_provider.token
    async with dashboard(tmp_path, kind) as address:
        session.add("calm-otter", dashboard_address=address)
        sent = await api("GET", "dashboard/calm-otter/status", params={"token": token, "x": "1"})
        root = await api("GET", "dashboard/calm-otter")
        folder = sent.headers["Location"].partition("/workbench/api/")[2].partition("/status")[0]
        page = await api(
            "GET", f"{folder}/status", params={"token": token, "x": "1"}, headers={"Referer": "http://x/lab"}
        )
        stream = await api("GET", f"{folder}/status", headers={"Accept": "text/event-stream"})
        moved, *away = [await api("GET", f"{folder}/{name}") for name in ("old", "away", "up", "up-2")]
        session.add("calm-otter", dashboard_address=address, created=1.0)
        later = await api("GET", f"{folder}/status")
    assert (sent.status, page.status) == (302, 200)
    assert sent.headers["Location"].endswith("/status?x=1")
    seen = json.loads(page.content)
    assert (seen["path"], seen["query"]) == ("status", "x=1")
    assert not {"Authorization", "Cookie", "Referer"} & seen["headers"].keys()
    for each in (page, stream, moved):
        assert each.headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
        assert not {"Refresh", "X-Else"} & each.headers.keys()
        # Jupyter sets one of its own for who brings a token.
        assert "theirs" not in each.headers.get("Set-Cookie", "")
    assert moved.headers["Location"].endswith(f"/workbench/api/{folder}/status")
    assert not [each for each in away if "Location" in each.headers]
    assert root.headers["Location"].endswith(f"/workbench/api/{folder}/status")
    assert (
        later.content["message"] == "This was the dashboard of an earlier calm-otter. Open it again from its cluster."
    )


async def test_only_registered_clusters_have_a_dashboard(api: Any, session: Any) -> None:
    session.add("calm-otter", status="starting", dashboard_address="unix:/tmp/nothing.sock")
    session.add("bold-heron", dashboard_address="unix:/tmp/nothing.sock")
    session.add("keen-crane", dashboard_address="http://127.0.0.1:1")
    unknown = await api("GET", "dashboard/localhost:22/status")
    starting = await api("GET", "dashboard/calm-otter/status")
    posted = await api("POST", "dashboard/calm-otter/status", {})
    silent, gone = [
        await api("GET", (await api("GET", f"dashboard/{name}/status")).headers["Location"].partition("/api/")[2])
        for name in ("bold-heron", "keen-crane")
    ]
    assert (unknown.status, starting.status, silent.status, posted.status) == (404, 404, 404, 405)
    assert silent.content["message"] == "The dashboard of bold-heron does not answer: is the cluster busy?"
    assert gone.content["message"] == "The dashboard of keen-crane does not answer: is the cluster busy?"
    assert unknown.content["message"] == (
        "There is no cluster 'localhost:22'. There are: calm-otter, bold-heron, keen-crane."
    )
    assert starting.content["message"] == "Cluster calm-otter has no dashboard now: it is starting."
    assert posted.content["message"] == "POST is not possible here. Possible: GET, HEAD."
    assert posted.headers["Allow"] == "GET, HEAD"


async def test_requests_at_the_same_time_make_one_session(jp_serverapp: Any) -> None:
    made = []
    from workbench.views.desk import Desk

    desk = Desk("/", jp_serverapp.log, lambda: made.append(1) or object(), lambda *_: None)  # type: ignore[arg-type,func-returns-value]
    first, second = await asyncio.gather(desk.session(), desk.session())
    assert first is second
    assert made == [1]


async def test_a_server_that_stops_begins_to_watch_nothing_more(jp_serverapp: Any, data_folder: Path) -> None:
    from workbench.views.desk import Desk

    desk = Desk("/", jp_serverapp.log)
    state = (await desk.watching()).state
    state.subscribe(lambda: None)
    assert state.watching
    await desk.close()
    state.subscribe(lambda: None)
    assert not state.watching
    # A page that asks meanwhile would else begin a watch whose thread keeps the process from ending.
    with pytest.raises(FailedError, match="The Jupyter server is stopping"):
        await desk.watching()


def test_every_address_answers_errors_in_one_way() -> None:
    assert all(issubclass(handler, Refusing) for _, handler in addresses())
