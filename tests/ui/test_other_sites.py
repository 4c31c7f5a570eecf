"""A page on another port of this machine, in a browser that is logged in, reaches nothing; a click in ours does."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.server.test_no_effects import SECRETS, Listener, kinds
from tests.ui.conftest import Lab, running_lab
from tests.ui.steps import MINUTE, hook, open_sidebar, section, unfold
from tests.waiting import until

ATTACK = """<!doctype html><title>attack</title>
%(images)s
<iframe name="sink"></iframe>
%(forms)s
<script>
window.sockets = [];
for (const url of %(urls)s) {
  fetch(url, { mode: 'no-cors', credentials: 'include' }).catch(() => 0);
  fetch(url, { method: 'POST', mode: 'no-cors', credentials: 'include', body: %(body)s }).catch(() => 0);
}
document.querySelectorAll('form').forEach(each => each.submit());
const socket = new WebSocket(%(socket)s);
socket.onopen = () => window.sockets.push('open');
socket.onclose = () => window.sockets.push('closed');
</script>"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Provide a JupyterLab with secrets in its environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        with running_lab(tmp_path_factory.mktemp("lab")) as running:
            yield running


@pytest.fixture
def serve() -> Iterator[Callable[[type[http.server.BaseHTTPRequestHandler]], str]]:
    """Provide a function that starts a server and returns its address."""
    servers = []

    def start(handler: type[http.server.BaseHTTPRequestHandler]) -> str:
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield start
    for each in servers:
        each.shutdown()
        each.server_close()


def test_a_page_of_another_port_reaches_nothing_and_a_secret_is_sent_after_a_click(
    lab: Lab, open_lab: Callable[[], Page], serve: Any, tmp_path: Path, screenshot: Callable[[str], Path]
) -> None:
    seen: list[tuple[str, str]] = []
    url = serve(type("Data", (Listener,), {"seen": seen}))
    hostile = kinds(tmp_path, url)
    page = open_lab()

    api = f"{lab.root}workbench/api"
    urls = [f"{api}/views/{view}?{urlencode({'choices': json.dumps(typed)})}" for view, typed in hostile.values()]
    urls += [f"{api}/{path}" for path in ("state", "stream", "clusters", "figures/cluster/some/patches", "credentials")]
    told = {
        "images": "".join(f"<img src='{each}'>" for each in urls),
        "forms": "".join(f"<form method=post target=sink action='{each}'></form>" for each in urls),
        "urls": json.dumps(urls),
        "body": json.dumps(json.dumps({"choices": {}})),
        "socket": json.dumps(f"{api.replace('http', 'ws')}/stream"),
    }

    class Attack(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write((ATTACK % told).encode())

    other = page.context.new_page()
    statuses: list[int] = []
    other.on("response", lambda answer: statuses.append(answer.status) if "/workbench/api/" in answer.url else None)
    other.goto(serve(Attack))
    other.wait_for_function("() => window.sockets.length > 0", timeout=MINUTE)
    until(lambda: other.wait_for_timeout(100) or len(statuses) >= 2 * len(urls))
    assert other.evaluate("() => window.sockets") == ["closed"]
    assert set(statuses) <= {403, 405}, statuses
    # A link that somebody clicks there is followed with the cookie.
    other.evaluate("url => { location.href = url }", urls[0])
    other.wait_for_url("**/workbench/api/**", timeout=MINUTE)
    expect(other.locator("body")).to_contain_text("Another site requested this page")
    other.close()
    assert (seen, (tmp_path / "touched").exists()) == ([], False)

    open_sidebar(page)
    section(page, "hardware", opened=False)
    hook(page, "workload-svd_of_file").click()
    hook(page, "field-path").fill(f"{url}/x.npy")
    unfold(page, "more-fields")
    hook(page, "field-token_variable").fill("EARTHDATA_TOKEN")
    send = hook(page, "confirm-sending")
    expect(send).to_have_text(f"Send EARTHDATA_TOKEN to {url}", timeout=MINUTE)
    assert not any(given for _, given in seen), "typing sends no secret"
    screenshot("confirm-sending")
    send.click()
    expect(hook(page, "holds")).to_contain_text("NumPy array", timeout=MINUTE)
    expect(send).to_have_count(0)
    assert "Bearer secret-of-earthdata" in {given for _, given in seen}
    screenshot("confirmed-sending")
