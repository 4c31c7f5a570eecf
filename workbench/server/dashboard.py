"""Dask's own dashboard of a registered cluster, behind the Jupyter server's login; no other address can be reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from jupyter_server.auth.decorator import authorized
from jupyter_server_proxy.handlers import ProxyHandler
from tornado.web import HTTPError, authenticated

from workbench.clusters.asking import short
from workbench.errors import NotFoundError
from workbench.server.handlers import Refusing
from workbench.views.answers import API

if TYPE_CHECKING:
    from workbench.views.desk import Desk

_SECRETS = ("Cookie", "Authorization", "X-Xsrftoken")


class Dashboard(Refusing, ProxyHandler):
    """Passes GET, HEAD and WebSockets on to the dashboard that a cluster's record names."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    @authenticated
    @authorized
    async def get(self, name: str, path: str) -> None:
        """Pass on a page or open a WebSocket."""
        self.proxy_base = f"{API}/dashboard/{quote(name, safe='')}"
        if path in ("", "/"):
            self.redirect(f"{self.base_url}{self.proxy_base}/status")
            return
        await self._find(name)
        await super().get(name, path)

    @authenticated
    @authorized
    async def head(self, name: str, path: str) -> None:
        """Pass on the question whether a page is there."""
        await self._find(name)
        await self.http_get(name, path)

    async def http_get(self, name: str, path: str) -> None:
        """Pass on a page. Raises NotFoundError when the dashboard doesn't answer."""
        try:
            with self._there() as (host, port):
                await self.proxy(host, port, path)
        except (HTTPError, OSError) as err:
            raise NotFoundError(f"The dashboard of {name} does not answer: is the cluster busy?") from err

    async def open(self, name: str, path: str) -> None:
        """Open the WebSocket at the other end."""
        with self._there() as (host, port):
            await self.proxy_open(host, port, path)

    def possible(self) -> Sequence[str]:
        """Return the verbs of this address."""
        return self.SUPPORTED_METHODS

    def proxy_request_headers(self) -> dict[str, Any]:
        """Return the headers without what proves who you are to Jupyter: the dashboard has no use for it."""
        headers = super().proxy_request_headers()
        for name in _SECRETS:
            headers.pop(name, None)
        return headers

    def proxy_request_options(self) -> dict[str, Any]:
        """Return short limits: the other end is on this machine."""
        return super().proxy_request_options() | {"connect_timeout": 5.0, "request_timeout": 60.0}

    def get_client_uri(self, protocol: str, host: str, port: int, proxied_path: str) -> str:
        """Return the dashboard's own address, without Jupyter's token."""
        query = [(key, value) for key, value in parse_qsl(self.request.query, keep_blank_values=True) if key != "token"]
        self.request.query = urlencode(query)
        return super().get_client_uri(protocol, host, port, proxied_path)

    @contextmanager
    def _there(self) -> Iterator[tuple[str, int]]:
        """Host and port to ask meanwhile; of one of our own, what is asked goes to its socket."""
        kind, _, path = self._address.partition(":")
        if kind == "unix":
            with short(Path(path).parent) as folder:
                self.unix_socket = f"{folder}/{Path(path).name}"
                yield "localhost", 0
        else:
            host, _, port = path.removeprefix("//").rpartition(":")
            self.host_allowlist = [host]
            yield host, int(port)

    async def _find(self, name: str) -> None:
        """Look where the cluster's dashboard is. Raises NotFoundError where there is none."""
        desk: Desk = self.settings["workbench_desk"]
        record = await desk.ask(lambda session: session.cluster(name))
        if record.status != "ready" or not record.dashboard_address:
            raise NotFoundError(f"Cluster {name} has no dashboard now: it is {record.status}.")
        self._address = record.dashboard_address
