"""`workbench app`: its own page admits only users with its token."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from workbench.panels.app import main


@contextmanager
def app() -> Iterator[str]:
    """Address of `workbench app`, with its token, until the block ends."""
    command = [sys.executable, "-m", "workbench", "app", "--no-browser", "--json"]
    with subprocess.Popen(command, env=os.environ | {"PYTHONWARNINGS": ""}, stdout=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0


def test_the_page_opens_only_with_its_token() -> None:
    with app() as address:
        found = urlsplit(address)
        assert found.hostname == "127.0.0.1"

        def get(path: str, **headers: str) -> http.client.HTTPResponse:
            asking = http.client.HTTPConnection(found.netloc, timeout=20)
            asking.request("GET", path, headers=headers)
            return asking.getresponse()

        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Origin": f"http://{found.netloc}"}
        assert get("/").headers["Location"].startswith("./login?"), "no cookie"
        assert get("/login").status == get("/login?token=wrong").status == 403
        assert get("/ws", **upgrade).status == 403
        assert get("/", Cookie=f'workbench-{found.port}="2|1:0|forged"').status == 302
        entered = get(f"{found.path}?{found.query}")
        assert (entered.status, b"0; url=/" in entered.read()) == (200, True)
        cookie = entered.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
        kept = cookie.partition(";")[0]
        assert get("/", Cookie=kept).status == 200
        for path in ("/", "/autoload.js?bokeh-autoload-element=a"):
            for site in ("cross-site", "same-site"):
                assert get(path, Cookie=kept, **{"Sec-Fetch-Site": site}).status in (302, 403), (path, site)


def test_a_port_that_is_taken_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(json.dumps({"port": port, "browser": False, "json": False})) == 2
    assert f"port {port}: " in capsys.readouterr().err
