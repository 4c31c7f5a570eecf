"""Dask's own dashboards in a real browser: live, and cut off from the Jupyter server that shows them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from playwright.sync_api import Page, expect
from tornado.web import RequestHandler

from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE
from tests.waiting import until
from workbench.clusters.profiles.address import spec_of
from workbench.session import Session

ATTACK = """
<!doctype html><title>attacking</title><pre id=said></pre><script>
const said = {}, base = location.pathname.split('workbench/api')[0];
const tried = async (name, attack) => {
  try { said[name] = String(await attack()); } catch (error) { said[name] = `refused: ${error.name}`; }
};
const post = token => fetch(base + 'api/terminals', {
  method: 'POST', credentials: 'include', body: '{}',
  headers: {'X-XSRFToken': token, 'Content-Type': 'application/json'}
}).then(answer => answer.status);
const socket = path => new Promise((resolve, reject) => {
  const opened = new WebSocket(`ws://${location.host}${base}${path}`);
  opened.onopen = () => resolve('open');
  opened.onerror = () => reject(new Error('closed'));
});
(async () => {
  await tried('cookie', () => document.cookie);
  await tried('set cookie', () => { document.cookie = '_xsrf=evil; path=/'; return 'set'; });
  await tried('terminal', () => post((document.cookie.match(/_xsrf=([^;]*)/) || [])[1]));
  await tried('terminal without a cookie', () => post('evil'));
  await tried('read', () => fetch(base + 'api/contents', {credentials: 'include'}).then(answer => answer.text()));
  await tried('stream', () => socket('workbench/api/stream'));
  await tried('events', () => socket('api/events/subscribe'));
  await tried('storage', () => localStorage.length);
  await tried('worker', () => navigator.serviceWorker.register('evil.js'));
  await tried('opener', () => { window.opener.location = 'about:blank'; return 'moved'; });
  await tried('popup', () => { const lab = open(base + 'lab'); return lab.document.cookie; });
  await tried('frame', async () => {
    const frame = document.createElement('iframe');
    frame.src = base + 'lab';
    document.body.append(frame);
    await new Promise(resolve => { frame.onload = resolve; setTimeout(resolve, 3000); });
    return frame.contentWindow.document.cookie;
  });
  await tried('form', async () => {
    const form = document.createElement('form');
    Object.assign(form, {action: base + 'api/terminals?_xsrf=evil', method: 'POST', target: 'x'});
    document.body.append(form);
    form.submit();
    await new Promise(resolve => setTimeout(resolve, 500));
    return 'sent';
  });
  document.getElementById('said').textContent = JSON.stringify(said);
  document.title = 'done';
})();
</script>
"""


class Evil(RequestHandler):
    """Stands for a page of a hostile scheduler."""

    def get(self) -> None:
        self.set_header("Set-Cookie", "_xsrf=evil; Path=/")
        self.set_header("Clear-Site-Data", '"cookies"')
        self.set_header("Refresh", "60; url=/user/t/lab")
        self.set_header("Access-Control-Allow-Credentials", "true")
        self.finish(ATTACK)


def serve() -> None:
    """Be such a scheduler until the standard input ends; its address is printed."""
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", memory_limit="512MiB"
    ) as cluster:
        cluster.scheduler.http_application.add_handlers(".*", [("/evil", Evil)])
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    """Address of a scheduler that nobody here started, one of whose dashboard's pages is hostile.

    In a process of its own: in this one it would wait for the browser's loop.
    """
    command = [sys.executable, "-c", "from tests.ui.test_dashboards import serve; serve()"]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("", timeout=60)


@pytest.fixture(scope="module")
def attached(lab: Lab, theirs: str) -> str:
    """Attach to the same cluster."""
    session = Session()
    session.start(spec_of(theirs), name="there", agreed=True)
    until(lambda: session.cluster("there").status == "ready" and session.cluster("there").dashboard_address)
    return "there"


def n_tasks(page: Page) -> int:
    """Tasks that the page's stream shows now."""
    return page.evaluate(
        """() => Math.max(...Bokeh.documents.flatMap(each => [...each._all_models.values()])
            .map(each => each.data?.duration?.length ?? 0))"""
    )


def show_live(page: Page, lab: Lab, name: str, work: Callable[[], Any]) -> None:
    page.goto(f"{lab.root}workbench/api/dashboard/{name}/status?token={lab.token}")
    expect(page).to_have_title(re.compile("Dask: Status"), timeout=MINUTE)
    expect(page.locator("canvas").first).to_be_visible(timeout=MINUTE)
    assert "token" not in page.url
    page.wait_for_function("() => Bokeh.documents.length > 0")
    before = n_tasks(page)
    work()
    until(lambda: n_tasks(page) > before)


def test_the_dashboards_of_our_own_and_of_attached_clusters_are_live(
    lab: Lab, page: Page, attached: str, theirs: str, screenshot: Callable[[str], Path]
) -> None:
    session = Session()
    session.start(session.plan("cpu", n_workers=1, threads_per_worker=1, memory="512MiB"), name="ours")
    until(lambda: session.cluster("ours").status == "ready")

    def on_ours() -> None:
        session.run("array_sum", {"size": "64MiB", "chunks": "1MiB"}, session.cluster("ours"))

    def on_theirs() -> None:
        with Client(theirs) as client:
            client.gather(client.map(lambda n: n + 1, range(100)))

    for name, work in (("ours", on_ours), (attached, on_theirs)):
        show_live(page, lab, name, work)
        page.wait_for_timeout(2000)
        screenshot(f"dashboard-{name}")
        page.goto(page.url.replace("/status", "/workers"))
        expect(page).to_have_title(re.compile("Dask: Workers"), timeout=MINUTE)
        assert page.evaluate("() => window.origin") == "null"


def test_a_hostile_dashboard_reaches_nothing_of_jupyter(lab: Lab, page: Page, attached: str) -> None:
    page.goto(lab.url)
    page.wait_for_function("() => document.cookie.includes('_xsrf')", timeout=MINUTE)
    before = {each["name"]: each["value"] for each in page.context.cookies()}
    with page.expect_popup() as opened:
        page.evaluate(f"() => {{ window.open('{lab.root}workbench/api/dashboard/{attached}/evil') }}")
    evil = opened.value
    expect(evil).to_have_title("done", timeout=MINUTE)
    said = evil.evaluate("() => JSON.parse(document.getElementById('said').textContent)")
    got = {name: answer for name, answer in said.items() if not answer.startswith("refused")}
    # A form that the browser doesn't send raises no error.
    assert got.keys() <= {"form", "opener"}, got
    assert {each["name"]: each["value"] for each in page.context.cookies()} == before
    assert lab.get("api/terminals") == []
    assert page.url.startswith(lab.root)


def test_the_path_of_a_dashboard_leads_nowhere_else(lab: Lab, page: Page, attached: str) -> None:
    page.goto(f"{lab.root}workbench/api/dashboard/{attached}/health?token={lab.token}")
    health = page.url
    anonymous = page.context.browser.new_context().request
    assert anonymous.get(health).status == 200
    answer = anonymous.get(health)
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-security-policy"].startswith("sandbox ")
    for verb in ("post", "put", "patch", "delete"):
        assert getattr(anonymous, verb)(health).status in (403, 405)
    key = re.search("/dask/([^/]+)/", health)
    assert key is not None
    assert anonymous.get(health.replace(key[1], key[1][:-1])).status == 404
    assert anonymous.get(f"{lab.root}workbench/api/state").status == 403
    page.context.clear_cookies()
    assert anonymous.get(f"{lab.root}workbench/api/dashboard/{attached}/health", max_redirects=0).status == 302
