"""The workbench as a page of its own, without Jupyter: Panel's server, on this machine only, with a token.

`workbench app` becomes this module: `python -m workbench.panels.app '{"port": 0, "browser": true, "json": false}'`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import webbrowser
from hmac import compare_digest
from typing import Any

import panel as pn
from bokeh.server.auth_provider import AuthProvider
from tornado.web import RequestHandler

from workbench.panels.workbench import Workbench
from workbench.session import Session

HOST = "127.0.0.1"

_DAYS = 30
"""Days for which a browser stays logged in to the same server."""

_STYLE = """
:root {
  color-scheme: light dark;
  --jp-ui-font-color1: canvastext;
  --jp-ui-font-family: system-ui, sans-serif;
  --jp-layout-color1: canvas;
  --jp-layout-color2: color-mix(in srgb, canvastext 8%, canvas);
  --jp-layout-color3: color-mix(in srgb, canvastext 16%, canvas);
  --jp-error-color1: light-dark(#c62828, #ff8a80);
  --jp-success-color1: light-dark(#2e7d32, #81c784);
  --jp-content-link-color: light-dark(#1565c0, #64b5f6);
}
body { margin: 0; background: canvas }
"""


_LOCKED = f"""<!doctype html><meta name="viewport" content="width=device-width"><title>Workbench</title>
<style>{_STYLE} p {{ max-width: 30em; margin: 20vh auto; padding: 0 1em; font: 16px/1.5 system-ui }}</style>
<p>Open the address that <code>workbench app</code> printed, with its token."""


class Login(AuthProvider):
    """Login for browsers that have opened the address with the token. A cookie keeps them logged in.

    The cookie's name is unique, because browsers share cookies among all servers of a machine.
    """

    login_url = "/login"
    get_login_url = get_user_async = logout_url = logout_handler = None

    def __init__(self, token: str, cookie: str) -> None:
        self._token = token
        self._cookie = cookie
        super().__init__()

    def get_user(self, handler: RequestHandler) -> str | None:
        """Return the user, or None to redirect to `login_url`. Requests of another site or another port get None."""
        if handler.request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return None
        return "person" if handler.get_signed_cookie(self._cookie) == b"person" else None

    @property
    def login_handler(self) -> type[RequestHandler]:
        """Handler of `login_url`."""
        token, cookie = self._token, self._cookie

        class Door(RequestHandler):
            """Handler that checks the token."""

            def get(self) -> None:
                """Log in, and remove the token from the address."""
                if not compare_digest(self.get_query_argument("token", "").encode(), token.encode()):
                    self.set_status(403)
                    self.finish(_LOCKED)
                    return
                self.set_signed_cookie(cookie, "person", expires_days=_DAYS, httponly=True, samesite="Strict")
                # No redirect: that would still count as a request of the page with the link, which may be another site.
                self.finish('<!doctype html><title>Workbench</title><meta http-equiv="refresh" content="0; url=/">')

        return Door


def serve(port: int, *, browser: bool, as_json: bool) -> None:
    """Serve the page until Ctrl-C; clusters and runs continue. Port 0 stands for any free one."""
    port = _free(port)
    token = secrets.token_urlsafe(24)
    url = f"http://{HOST}:{port}{Login.login_url}?token={token}"
    session = Session()

    def page() -> Workbench:
        shown = Workbench(session, alone=True)
        pn.state.on_session_destroyed(lambda _: shown.close())
        return shown

    pn.config.raw_css.append(_STYLE)
    server = pn.serve(
        {"/": page},
        port=port,
        address=HOST,
        websocket_origin=f"{HOST}:{port}",
        auth_provider=Login(token, f"workbench-{port}"),
        cookie_secret=secrets.token_hex(32),
        title="Workbench",
        admin=False,
        show=False,
        start=False,
        verbose=False,
    )
    print(json.dumps({"url": url, "pid": os.getpid()}) if as_json else f"The Workbench is at {url}", flush=True)
    if browser:
        webbrowser.open(url)
    server.run_until_shutdown()


def _free(port: int) -> int:
    """Return the port if it is free, or a free one for 0. Raises OSError otherwise."""
    with socket.create_server((HOST, port)) as listener:
        return int(listener.getsockname()[1])


def main(given: str) -> int:
    """Serve as `workbench app` requests; return the exit code."""
    asked: dict[str, Any] = json.loads(given)
    try:
        serve(asked["port"], browser=asked["browser"], as_json=asked["json"])
    except (OSError, OverflowError) as err:
        print(f"workbench: port {asked['port']}: {err}. Give another --port, or none.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
