"""Reading has no effects: what another site can have a browser ask for imports, starts, connects and sends nothing."""

from __future__ import annotations

import asyncio
import base64
import html
import http.client
import http.server
import io
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest

from tests.server.test_answering import TOKEN, Server, acted, children_of, server as server, viewed
from tests.server.test_server import METHODS, PATHS
from tests.waiting import until
from workbench.credentials import UnconfirmedError, by_command
from workbench.errors import BadInputError
from workbench.session import Session
from workbench.views.page import known

SECRETS = {
    "EARTHDATA_TOKEN": "secret-of-earthdata",
    "AWS_ACCESS_KEY_ID": "AKSECRET",
    "AWS_SECRET_ACCESS_KEY": "secret-of-aws",
    "AWS_SESSION_TOKEN": "secret-of-a-session",
    "AWS_EC2_METADATA_DISABLED": "true",
    "DASK_GATEWAY__AUTH__KWARGS__PASSWORD": "secret-of-gateways",
    "JUPYTERHUB_API_TOKEN": "secret-of-the-hub",
}

HOSTILE: tuple[dict[str, str], ...] = (
    {},
    {"Referer": "http://evil.example/", "Origin": "http://evil.example"},
    {"Referer": "http://127.0.0.1:1/", "Origin": "null"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
)
"""Headers that a browser sends for a page of another site, besides the cookie; an old one sends the first only."""


class Listener(http.server.BaseHTTPRequestHandler):
    """Data, a gateway and a store in one, which want a login; all that they are asked for is noted."""

    seen: list[tuple[str, str]]
    """Path and Authorization of each request."""
    elsewhere = ""
    """Address to redirect data requests to, if any."""

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.seen.append((self.path, given))
        content, file = json.dumps({"cluster_options": []} if "options" in self.path else {}).encode(), io.BytesIO()
        is_file = self.path.endswith(".npy")
        if is_file:
            np.save(file, np.ones((20, 3)))
            content = file.getvalue()
        moved = self.elsewhere and self.path.startswith("/moved")
        self.send_response(307 if moved else 401 if not given else 200 if is_file or "/api/v1/" in self.path else 404)
        if moved:
            self.send_header("Location", f"{self.elsewhere}/x.npy")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def listen() -> Iterator[Callable[..., tuple[str, list[tuple[str, str]]]]]:
    """Provide a function that starts a listener, and returns its address and the list of requests."""
    servers = []

    def start(elsewhere: str = "") -> tuple[str, list[tuple[str, str]]]:
        seen: list[tuple[str, str]] = []
        kind = type("Listener", (Listener,), {"seen": seen, "elsewhere": elsewhere})
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}", seen

    yield start
    for each in servers:
        each.shutdown()
        each.server_close()


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set secret environment variables, which only the server may read."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


class Browser:
    """A user's browser that is logged in: it has the cookie, and sends it for any page."""

    def __init__(self, server: Server) -> None:
        self.netloc = f"127.0.0.1:{server.port}"
        self._asking = http.client.HTTPConnection(self.netloc, timeout=60)
        self.cookie = ""
        self.ask("GET", "/login")
        # The page has it in a cookie of its own, which a page of another site can't read.
        self.xsrf = self.cookie.partition("_xsrf=")[2].partition(";")[0]
        form = urlencode({"_xsrf": self.xsrf, "password": TOKEN})
        self.ask("POST", "/login", form, **{"Content-Type": "application/x-www-form-urlencoded"})
        assert "username-" in self.cookie

    def ask(self, verb: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        content = body if body is None or isinstance(body, str) else json.dumps(body)
        self._asking.request(verb, path, content, {"Cookie": self.cookie, "Content-Type": "text/plain", **headers})
        found = self._asking.getresponse()
        given = [each.partition(";")[0] for each in found.headers.get_all("Set-Cookie", [])]
        self.cookie = "; ".join(filter(None, (self.cookie, *given)))
        return found.status, found.read()

    def open(self, origin: str = "") -> HTTPRequest:
        """Return the request for a socket, as a page of `origin` sends it; by default, our own."""
        headers = {"Cookie": self.cookie, "Origin": origin or f"http://{self.netloc}"}
        return HTTPRequest(f"ws://{self.netloc}/workbench/api/stream", headers=headers)

    def act(self, name: str, arguments: dict[str, str]) -> Any:
        return asyncio.run(acted(self.open(), name, arguments))

    def view(self, name: str, choices: dict[str, str]) -> str:
        return asyncio.run(viewed(self.open(), name, choices))


def kinds(folder: Path, url: str) -> dict[str, tuple[str, dict[str, str]]]:
    """For each effect that a choice may have: the view that has it, and the choices."""
    marker, script = folder / "touched", folder / "program.sh"
    (folder / "mine.py").write_text(f"open({str(marker)!r}, 'a').write('imported ')\ndef f(n: int = 1): return n\n")
    script.write_text(f"#!/bin/sh\necho started >> '{marker}'\necho Python 3.11\n")
    script.chmod(0o755)
    file, netloc = "run.svd_of_file.", urlsplit(url).netloc
    return {
        "file": ("work", {"workload": f"{folder / 'mine.py'}:f"}),
        "program": ("start", {"profile": "cpu", "plan.cpu.python": str(script)}),
        "token": (
            "work",
            {"workload": "svd_of_file", f"{file}path": f"{url}/x.npy", f"{file}token_variable": "EARTHDATA_TOKEN"},
        ),
        "gateway": ("start", {"profile": "gateway", "plan.gateway.address": url}),
        "hub": ("start", {"profile": "gateway", "plan.gateway.address": f"{url}/h", "plan.gateway.auth": "jupyterhub"}),
        "keys": (
            "work",
            {"workload": "svd_of_file", f"{file}path": "s3://data/x.npy", f"{file}endpoint_url": url},
        ),
        "scheduler": ("start", {"profile": "address", "plan.address.address": f"tcp://{netloc}"}),
        "line": ("compare", {"compare.lines": f"gateway --address {url}"}),
    }


ASKED = (*PATHS, "state", "clusters", "credentials", *(f"views/{name}" for name, view in known().items() if view.reads))
"""Addresses of ours, and some that look as if they had effects."""


def test_what_another_site_asks_for_reaches_nothing(
    secrets: None, server: Server, tmp_path: Path, listen: Callable[..., Any]
) -> None:
    url, seen = listen()
    browser = Browser(server)
    hostile = kinds(tmp_path, url)
    asked = 0
    for verb, path in itertools.product(METHODS, ASKED):
        for headers in HOSTILE:
            for _, choices in hostile.values() if verb == "GET" else [("", {"a": "b"})]:
                query = urlencode({"choices": json.dumps(choices), **choices})
                body = None if verb == "GET" else {"choices": choices}
                status, content = browser.ask(verb, f"/workbench/api/{quote(path)}?{query}", body, **headers)
                asked += 1
                assert verb == "GET" or status in (403, 404, 405), (verb, path, headers, content)
                # Dask's dashboards have an origin of their own: what lets in is a path that nobody can guess.
                refused = (403, 405, 404) if path.startswith("dask/") else (403, 405)
                assert "Sec-Fetch-Site" not in headers or status in refused, (verb, path, headers, content)
                assert path in PATHS or status in (403, 404, 405), (verb, path, headers, content)
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        with pytest.raises(HTTPClientError, match="403"):
            asyncio.run(acted(browser.open(origin), "end_tour", {}))
    assert asked > 500
    assert seen == []
    assert not (tmp_path / "touched").exists()
    assert children_of(server) == []


def shown(browser: Browser, view: str, choices: dict[str, str], is_there: Callable[[], bool]) -> None:
    """Show a view on a page of ours until it had its effect."""
    until(lambda: browser.view(view, choices) and is_there(), 60)


def button(found: str) -> dict[str, str]:
    """Return the request of the button that confirms sending a credential."""
    asked = re.search(r'data-arguments="([^"]+)"[^>]*data-workbench="confirm-sending"', found)
    assert asked is not None, found
    told: dict[str, str] = json.loads(html.unescape(asked[1]))
    assert f"Send {told['credential'][1:]}"[5:] in found
    assert f" to {told['server']}</button>" in found
    return told


def test_what_the_page_itself_asks_for_works_and_a_secret_is_sent_after_a_click(
    secrets: None, server: Server, tmp_path: Path, listen: Callable[..., Any]
) -> None:
    url, seen = listen()
    browser, hostile, marker = Browser(server), kinds(tmp_path, url), tmp_path / "touched"
    for kind, word in (("file", "imported"), ("program", "started")):
        view, choices = hostile[kind]
        shown(browser, view, choices, lambda word=word: marker.exists() and word in marker.read_text())
    view, choices = hostile["token"]
    secret = browser.view(view, {**choices, "run.svd_of_file.token_variable": "AWS_SECRET_ACCESS_KEY"})
    assert "AWS_SECRET_ACCESS_KEY isn&#39;t among the variables that a form may name" in secret
    body = {"credential": "AWS_SECRET_ACCESS_KEY", "server": url}
    assert "AWS_SECRET_ACCESS_KEY" in browser.act("confirm", body)["message"]
    for kind in ("keys", "token"):
        view, choices = hostile[kind]
        asks = button(browser.view(view, choices))
        assert seen == [], "typing sends nothing"
        assert asks["server"] == url
        assert "value" in browser.act("confirm", asks)
        until(lambda view=view, choices=choices: browser.view(view, choices) and seen)
        wanted = "AWS4-HMAC-SHA256 Credential=AKSECRET" if kind == "keys" else "Bearer secret-of-earthdata"
        assert all(given.startswith(wanted) for _, given in seen), seen
        seen.clear()
    assert button(browser.view(*hostile["hub"]))["credential"] == "Your JUPYTERHUB_API_TOKEN"
    asks = button(browser.view(*hostile["gateway"]))
    browser.view(*hostile["line"])
    assert {given for _, given in seen} == {""}, "it is asked whether it wants a login"
    assert "value" in browser.act("confirm", asks)
    browser.view(*hostile["gateway"])
    password = base64.b64decode(next(given for _, given in seen if given).removeprefix("Basic ")).decode()
    assert password.endswith(":secret-of-gateways")


def test_a_token_stays_with_its_server_and_a_command_says_where_it_goes(
    data_folder: Path, listen: Callable[..., Any], capfd: Any, secrets: None
) -> None:
    other, reached = listen()
    url, seen = listen(other)
    with by_command():
        Session().look(f"{url}/x.npy", token_variable="EARTHDATA_TOKEN")
        with pytest.raises(BadInputError, match="its server asks who you are"):
            Session().look(f"{url}/moved.npy", token_variable="EARTHDATA_TOKEN")
    assert {given for _, given in seen} == {"Bearer secret-of-earthdata"}
    assert reached, "it was moved there"
    assert {given for _, given in reached} == {""}
    with pytest.raises(UnconfirmedError):
        Session().look("s3://data/x.npy", endpoint_url=other)
    with by_command():
        Session().look("s3://data/x.npy", endpoint_url=other)
    assert f"Send EARTHDATA_TOKEN to {url}: this command says so" in capfd.readouterr().err
    assert (data_folder / "confirmed.jsonl").stat().st_mode & 0o777 == 0o600
    lines = (data_folder / "confirmed.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [["EARTHDATA_TOKEN", url], ["Your keys for s3", other]]
