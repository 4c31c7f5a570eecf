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

from workbench.server.standalone import main


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

        stream = "/workbench/api/stream"
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Origin": f"http://{found.netloc}"}
        name = f"username-127-0-0-1-{found.port}"
        assert get(found.path).headers["Location"].startswith("/login?"), "no cookie"
        assert get(f"{found.path}?token=wrong").status == 302
        assert get(stream, **upgrade).status == 403
        assert get(found.path, Cookie=f'{name}="2|1:0|forged"').status == 302
        entered = get(f"{found.path}?{found.query}")
        assert (entered.status, b"mountAlone" in entered.read()) == (200, True)
        # Its value is the signed name of a random moon of Jupiter, in quotes only where that ends in =.
        cookies = [each.replace('"', "") for each in entered.headers.get_all("Set-Cookie")]
        (cookie,) = [each for each in cookies if each.startswith(f"{name}=2")]
        assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
        kept = cookie.partition(";")[0]
        assert get(found.path, Cookie=kept).status == 200
        assert get(stream, Cookie=kept, **upgrade).status == 101
        for site in ("cross-site", "same-site"):
            for path in (stream, "/workbench/api/scripts/bokeh.min.js"):
                assert get(path, Cookie=kept, **upgrade, **{"Sec-Fetch-Site": site}).status == 403, (path, site)
        assert get("/terminals/websocket/1", Cookie=kept).status == 404


def test_a_port_that_is_taken_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(json.dumps({"port": port, "browser": False, "json": False})) == 2
    assert f"port {port}: " in capsys.readouterr().err
