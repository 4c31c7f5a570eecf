"""The workbench as a page of its own: a Jupyter server on this machine only, with this extension alone and a token.

`workbench app` becomes this module, with its options as JSON:
`python -m workbench.server.standalone '{"port": 0, "browser": true, "json": false}'`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import webbrowser
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import authenticated

from workbench.server.app import WorkbenchApp
from workbench.server.handlers import AUTH_RESOURCE
from workbench.views.answers import api_url
from workbench.views.scripts import PAGE, styles

HOST = "127.0.0.1"
ADDRESS = "/workbench"

_COLORS = """
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
body { color-scheme: light dark; margin: 0; background: canvas }
"""


def _page() -> str:
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Workbench</title>
<style>{_COLORS}</style>
<main><template shadowrootmode="open"><style>{styles("page")}</style><div class="wb-Cell"></div></template></main>
<script type="module">
import page from '{api_url("/", "scripts", PAGE.name)}';
// The token stays out of the history and of the addresses that a user copies.
history.replaceState(null, '', location.pathname);
page.mountAlone(document.querySelector('main').shadowRoot.querySelector('div'));
</script>
"""


class Page(JupyterHandler):
    """Handler of the page. It accepts links of other sites if they carry the token."""

    auth_resource = AUTH_RESOURCE

    @authenticated
    @authorized
    def get(self) -> None:
        """Send the page."""
        self.set_header("Cache-Control", "no-store")
        self.finish(_page())


class Alone(WorkbenchApp):
    """The extension in a server that has no other."""

    load_other_extensions = False

    @classmethod
    def get_extension_package(cls) -> str:
        """Return the package of the extension: this module runs as __main__."""
        return "workbench"


def serve(port: int, *, browser: bool, as_json: bool) -> None:
    """Serve the page until Ctrl-C; clusters and runs continue. Port 0 stands for any free one."""
    port = _free(port)
    token = secrets.token_urlsafe(24)
    server = Alone.initialize_server(
        [
            "--no-browser",
            "--allow-root",
            "-y",
            "--ServerApp.log_level=ERROR",
            f"--ServerApp.ip={HOST}",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            "--ServerApp.base_url=/",
            f"--ServerApp.default_url={ADDRESS}",
            "--ServerApp.terminals_enabled=False",
            f"--IdentityProvider.token={token}",
            "--IdentityProvider.cookie_options=samesite=Strict",
        ]
    )
    server.web_app.add_handlers(r".*$", [(ADDRESS, Page)])
    url = f"http://{HOST}:{port}{ADDRESS}?token={token}"

    def announce() -> None:
        print(json.dumps({"url": url, "pid": os.getpid()}) if as_json else f"The Workbench is at {url}", flush=True)
        if browser:
            webbrowser.open(url)

    server.io_loop.add_callback(announce)
    server.start()


def _free(port: int) -> int:
    """Return the port if it is free, or a free one for 0. Raises OSError otherwise."""
    with socket.create_server((HOST, port)) as listener:
        return int(listener.getsockname()[1])


def main(text: str) -> int:
    """Serve as `workbench app` requests; return the exit code."""
    options: dict[str, Any] = json.loads(text)
    try:
        serve(options["port"], browser=options["browser"], as_json=options["json"])
    except (OSError, OverflowError) as err:
        print(f"workbench: port {options['port']}: {err}. Give another --port, or none.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    # All is closed. A thread of anyio that watched files outlives its event loop, and an ordinary exit waits for it.
    os._exit(code)
