"""Addresses and actions over a session that starts nothing: who may ask, what is answered, how errors read."""

from __future__ import annotations

import asyncio
import contextlib
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
from tornado.httpclient import HTTPClientError
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets, bind_unix_socket
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError

import workbench
from tests.server.conftest import DONE, PATIENCE, html_of, read_state
from workbench.clusters.requests import short
from workbench.errors import BadParameterError, FailedError
from workbench.server.app import addresses
from workbench.server.handlers import Refusing
from workbench.views.actions import ACTIONS
from workbench.views.screen import MOST_ACTIONS


def test_loading_the_extension_imports_nothing_heavy() -> None:
    code = (
        "import sys, jupyter_server.serverapp, workbench\n"
        "workbench._jupyter_server_extension_points()\n"
        "from workbench.server.app import addresses; addresses()\n"
        "heavy = {'dask', 'distributed', 'bokeh', 'panel', 'pyarrow', 'numpy', 'pydantic_core', 'watchfiles', 'zarr'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_the_scripts_of_lab_notebooks_and_figures_with_all_panes_are_80_kb_at_most() -> None:
    folder = Path(workbench.__file__).parent
    # remoteEntry is the bundler's own, by which Lab shares its packages.
    lab = [script for script in folder.glob("labextension/static/*.js") if not script.name.startswith("remoteEntry")]
    page, figures = list(folder.glob("views/page.*.js")), list(folder.glob("figures/scripts/*.js"))
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


async def test_a_new_cluster_is_answered_at_once_as_starting(act: Any, session: Any) -> None:
    assert await act("start", profile="cpu", choices={"n_workers": 1}, name="mine") == DONE
    assert session.calls == [("start", "mine", False)]
    assert session.records["mine"].status == "starting"
    cell = (await act("cell", cluster="mine"))["value"]["cell"]
    assert cell == 'import workbench\n\nclient = workbench.connect("mine")\nprint(client)'


BAD = [
    ("start", {"profile": "tpu"}, "tpu"),
    ("start", {"profile": "cpu", "spin": 1}, "Unknown argument 'spin'."),
    ("start", {"profile": "cpu", "choices": {"promised": 1}}, "Unknown choice 'promised'. Choose among: "),
    ("start", {"profile": "cpu", "choices": {"n_workers": -2}}, "n_workers"),
    ("start", {"profile": "cpu", "choices": {"n_workers": "x"}}, "n_workers"),
    ("start", {"profile": "cpu", "choices": {"n_workers": {}}}, "n_workers"),
    ("start", {"profile": "cpu", "choices": {"memory": "lots"}}, "memory"),
    ("start", {"profile": "cpu", "choices": {"memory": float("nan")}}, "memory"),
    ("start", {"profile": "cpu", "choices": {"n_workers": "9" * 400}}, "n_workers"),
    ("start", {"profile": "cpu", "choices": {"threads_per_worker": 10**30}}, "threads_per_worker"),
    ("start", {"profile": "cpu", "choices": {"idle_timeout": "1e999"}}, "idle_timeout"),
    ("scale", {"cluster": "calm-otter", "n_workers": -2}, "n_workers is -2. Give a whole number, 0 or more."),
    ("scale", {"cluster": "calm-otter", "n_workers": 1, "minimum": 2}, "Give either n_workers, or minimum and"),
    ("run", {"workload": "array_sum", "cluster": "calm-otter", "parameters": {"colour": 1}}, "Unknown parameter"),
    ("run", {"workload": "array_sum"}, "cluster is missing. Give text."),
    ("compare", {"workload": "array_sum", "repeats": 0}, "repeats is 0"),
    ("save_run", {"run": "nobody", "path": "out.npz"}, "There is no run 'nobody'."),
    ("confirm", {"credential": "HOME", "server": "https://a.org"}, "HOME"),
    ("stop", {"cluster": "nobody"}, "There is no cluster 'nobody'. There are: calm-otter."),
    ("stop_all", {"clusters": ["nobody"]}, "There is no cluster 'nobody'."),
    ("restart", {"cluster": "nobody"}, "There is no cluster 'nobody'."),
    ("cell", {"cluster": "nobody"}, "There is no cluster 'nobody'."),
    ("figure", {"cluster": "nobody", "theme": "dark"}, "There is no cluster 'nobody'."),
    ("figure", {"run": "nobody", "theme": "dark"}, "There is no run 'nobody'."),
    ("delete_run", {"run": "going"}, "still going on"),
    ("dance", {}, "Unknown action 'dance'."),
    ("__class__", {}, "Unknown action '__class__'."),
]


async def test_a_bad_action_is_refused_with_a_sentence_and_starts_nothing(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    session.add_run("going", status="running")
    before = session.records["calm-otter"]
    async with open_page() as page:
        for name, arguments, sentence in BAD:
            answer = await page.act(name, **arguments)
            assert sentence in answer.get("message", ""), (name, arguments, answer)
            assert "\n" not in answer["message"]
            assert "value" not in answer
    assert session.records == {"calm-otter": before}
    assert list(session.all_runs) == ["going"]


async def test_every_good_action_is_answered(open_page: Any, session: Any, data_folder: Any, tmp_path: Path) -> None:
    session.add("calm-otter")
    session.add_run("going", status="running")
    session.add_run("done", status="done", seconds=1.0)
    session.add_comparison("measured")
    started = {"workload": "array_sum", "cluster": "calm-otter"}
    cpu = {"profile": "cpu", "choices": {"n_workers": 1, "threads_per_worker": "1", "memory": "512MiB"}}
    actions = {
        "keep_profile": {**cpu, "name": "night"},
        "forget_profile": {"profile": "night"},
        "keep_preset": {"workload": "array_sum", "name": "mine", "parameters": {"size": "1GiB"}},
        "forget_preset": {"workload": "array_sum", "preset": "mine"},
        "trust": {"sha": "0123"},
        "confirm": {"credential": "Your keys for s3", "server": "https://a.org"},
        "end_tour": {},
        "cell": {"cluster": "calm-otter"},
        "start": {**cpu, "name": "bold-heron", "force": True},
        "scale": {"cluster": "calm-otter", "n_workers": 3},
        "restart": {"cluster": "calm-otter", "worker": "tcp://0"},
        "write_example": {"path": "/tmp/example.npy"},
        "measure": {**started, "parameters": {"size": "1GiB"}},
        "run": {**started, "settings": "array.rechunk.threshold=5"},
        "mark_run": {"run": "done", "name": "the first", "star": True},
        "cancel_run": {"run": "going"},
        "save_run": {"run": "done", "path": "out.npz"},
        "cancel_saving": {"run": "done"},
        "import_run": {"path": str(session.export_run("done", tmp_path))},
        "compare": {"workload": "array_sum", "on": ["cpu", "gpu"], "repeats": 2},
        "compare_runs": {"runs": ["done", "going"]},
        "figure": {"run": "done", "theme": "dark"},
        "cancel_comparison": {"comparison": "measured"},
        "delete_comparison": {"comparison": "measured"},
        "delete_run": {"run": "done"},
        "delete_runs": {"runs": ["going"]},
        "stop": {"cluster": "calm-otter"},
        "stop_all": {"clusters": ["bold-heron"]},
    }
    async with open_page() as page:
        for name, arguments in actions.items():
            assert "value" in (answer := await page.act(name, **arguments)), (name, answer)
    assert actions.keys() == ACTIONS.keys()
    assert session.records == {}


async def test_answers_do_not_wait_for_one_another_and_have_a_limit(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    session.delay = 1.0
    slow = {"name": "stop", "arguments": {"cluster": "calm-otter"}}
    async with open_page() as page:
        for number in range(MOST_ACTIONS):
            await page.send(type="action", id=1000 + number, **slow)
        refused = await page.act("cell", cluster="calm-otter")
        assert refused["message"].startswith("This page waits for 32 answers already.")
        assert (await page.next("answer", id=1000))["value"] is None
    # Another one: the others of those actions still stop the first.
    session.add("bold-heron")
    async with open_page() as page:
        await page.send(type="action", id=1000, name="stop", arguments={"cluster": "bold-heron"})
        assert "value" in await page.act("cell", cluster="bold-heron")


async def test_a_huge_message_ends_its_connection_only(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        with contextlib.suppress(WebSocketClosedError, StreamClosedError):
            await page.send(type="action", id=1, name="cell", arguments={"cluster": "x" * 2**25})
        async with asyncio.timeout(PATIENCE):
            while await page.socket.read_message() is not None:
                pass
    async with open_page() as page:
        assert "value" in await page.act("cell", cluster="calm-otter")


UNKNOWN = ("runs/nobody/report", "comparisons/nobody/page", "docs/how-to/nothing", "scripts/nobody", "nobody")
UNKNOWN += ("scripts/..%2f..%2fsettings.js", "state", "clusters", "views/runs", "figures/cluster/nobody")


async def test_what_does_not_exist_is_a_404_with_a_sentence(api: Any, session: Any) -> None:
    for path in UNKNOWN:
        answer = await api("GET", path)
        assert answer.status == 404, (path, answer)
        assert answer.content["message"].endswith("."), (path, answer)


async def test_a_method_that_is_not_possible_is_told_which_are(api: Any) -> None:
    for path in ("runs/x/report", "stream"):
        answer = await api("POST", path, {})
        assert answer.status == 405
        assert answer.content == {"message": "POST is not possible here. Possible: GET."}


async def test_an_error_that_nobody_foresaw_is_answered_without_its_insides(
    api: Any, act: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("secret insides")

    monkeypatch.setattr(session, "show", fail)
    monkeypatch.setattr(session, "cancel", fail)
    answer = await api("GET", "runs/x/report")
    assert answer.status == 500
    assert answer.content["message"].startswith("Something went wrong in the server (RuntimeError).")
    assert (await act("cancel_run", run="x"))["message"].startswith("Something went wrong. The log of the Jupyter")


async def test_an_error_that_knows_its_parameter_names_it(
    act: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise BadParameterError("size is 0. Give more.", "size")

    monkeypatch.setattr(session, "cancel", fail)
    assert await act("cancel_run", run="x") == {"message": "size is 0. Give more.", "parameter": "size"}


METHODS = ("GET", "POST", "PATCH", "DELETE", "PUT")

PATHS = ("runs/some/report", "runs/some/pictures/some", "runs/some/export", "comparisons/some/page", "docs/some/some")
PATHS += ("scripts/some", "stream", "dashboard/some/status", "dask/some/status", "some")
"""An example of each address."""


async def test_nobody_gets_in_without_a_login(api: Any, session: Any) -> None:
    for path in PATHS:
        for method in METHODS:
            answer = await api(method, path, {}, headers={"Authorization": "token wrong"})
            # Of a dashboard the key in the path says who asks, and this is none.
            refused = (404, 405) if path.startswith("dask/") else (403, 302, 405)
            assert answer.status in refused, (method, path, answer)
    assert session.calls == []


@pytest.mark.parametrize("jp_argv", [["--ServerApp.authorizer_class=tests.server.denying.Denying"]])
async def test_who_may_not_is_refused_by_every_address(api: Any, jp_ws_fetch: Any) -> None:
    for path in PATHS:
        for method in METHODS:
            answer = await api(method, path, {})
            assert answer.status in ((404, 405) if path.startswith("dask/") else (403, 405)), (method, path, answer)
    with pytest.raises(HTTPClientError, match="403"):
        await jp_ws_fetch("workbench", "api", "stream")


@pytest.mark.parametrize("jp_argv", [["--ServerApp.authorizer_class=tests.server.denying.OnlyReading"]])
async def test_who_may_only_read_has_pages_and_views_and_changes_nothing(
    api: Any, open_page: Any, data_folder: Any, session: Any
) -> None:
    session.add("calm-otter")
    session.add_comparison("c1")
    assert (await api("GET", "comparisons/c1/page")).status == 200
    async with open_page() as page:
        await page.send(type="watch", watch="w", view="clusters")
        assert "calm-otter" in (await page.next("patches"))["html"]
        assert "value" in await page.act("cell", cluster="calm-otter")
        for name in ACTIONS.keys() - {"cell", "figure"}:
            assert (await page.act(name))["message"].startswith("You may read this server's pages, and change")
        await page.act("stop", cluster="calm-otter")
    assert list(session.records) == ["calm-otter"]


async def test_stopping_everything_leaves_nothing(act: Any, session: Any) -> None:
    session.add("calm-otter")
    session.add("bold-heron")
    assert await act("stop_all") == DONE
    assert session.records == {}


async def test_a_cluster_is_scaled_or_follows_the_load(act: Any, session: Any) -> None:
    session.add("calm-otter")
    assert await act("scale", cluster="calm-otter", n_workers=5) == DONE
    assert await act("scale", cluster="calm-otter", minimum=1, maximum=4, n_workers=None) == DONE
    scaled = session.records["calm-otter"]
    assert (scaled.n_workers_expected, scaled.adaptive) == (5, (1, 4))


async def test_a_cluster_over_ucx_waits_until_a_person_agrees(act: Any, session: Any) -> None:
    session.told = "UCX listens on all network interfaces."
    refused = await act("start", profile="cpu")
    sentence = f"{session.told} Nothing was started. Choose otherwise, or agree (--yes, agreed=True)."
    assert refused["message"] == sentence
    assert session.records == {}
    assert await act("start", profile="cpu", agreed=True) == DONE


async def test_a_cluster_that_is_ready_is_shown_with_its_dashboard(service: Any, session: Any) -> None:
    session.add("calm-otter", dashboard_address="unix:/tmp/nothing.sock")
    session.add("bold-heron", status="lost", dashboard_address="unix:/tmp/nothing.sock")
    html = await html_of(service, "clusters")
    assert re.findall(r'data-page="([^"]*)/status"', html) == ["workbench/api/dashboard/calm-otter"]


async def test_bokehs_scripts_come_from_the_installed_package(api: Any) -> None:
    import bokeh

    plain = await api("GET", "scripts/bokeh.min.js", params={"v": bokeh.__version__})
    packed = await api("GET", "scripts/bokeh.min.js", headers={"Accept-Encoding": "gzip"}, decompress_response=False)
    assert plain.status == packed.status == 200
    assert f'"{bokeh.__version__}"'.encode() in plain.content
    assert gzip.decompress(packed.content) == plain.content
    assert plain.headers["Content-Type"].startswith("text/javascript")
    assert "max-age=31536000" in plain.headers["Cache-Control"]


def test_the_scripts_are_those_that_the_figure_needs() -> None:
    from workbench.figures.colors import LIGHT
    from workbench.figures.layout import build
    from workbench.views.drawing import SCRIPTS

    modules = {type(model).__module__ for model in build(LIGHT).references()}
    needs = {"bokeh.min.js"}
    needs |= {"bokeh-widgets.min.js" for module in modules if module.startswith("bokeh.models.widgets")}
    needs |= {"bokeh-tables.min.js" for module in modules if module.startswith("bokeh.models.widgets.tables")}
    assert set(SCRIPTS) == needs


async def test_the_end_of_the_server_stops_no_cluster(service: Any, session: Any, jp_serverapp: Any) -> None:
    session.add("calm-otter")
    await read_state(service)
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
    from workbench.views.service import Service

    service = Service("/", jp_serverapp.log, lambda: made.append(1) or object(), lambda *_: None)  # type: ignore[arg-type,func-returns-value]
    first, second = await asyncio.gather(service.session(), service.session())
    assert first is second
    assert made == [1]


async def test_a_server_that_stops_begins_to_watch_nothing_more(jp_serverapp: Any, data_folder: Path) -> None:
    from workbench.views.service import Service

    service = Service("/", jp_serverapp.log)
    state = (await service.watching()).state
    state.subscribe(lambda: None)
    assert state.watching
    await service.close()
    state.subscribe(lambda: None)
    assert not state.watching
    # A page that asks meanwhile would else begin a watch whose thread keeps the process from ending.
    with pytest.raises(FailedError, match="The Jupyter server is stopping"):
        await service.watching()


def test_every_address_answers_errors_in_one_way() -> None:
    assert all(issubclass(handler, Refusing) for _, handler in addresses())
