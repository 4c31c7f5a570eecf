"""Dask's own dashboard of a registered cluster, isolated from the Jupyter server; no other address can be reached.

A dashboard is the page of another program: an attached scheduler may belong to someone else, and users choose the names
on it. So its pages must not act on the Jupyter server that shows them: a Content-Security-Policy gives them a separate
origin. Browsers send no cookies from there, so a secret path grants access: `dashboard/<cluster>` redirects logged-in
users to it. The path allows only GET, HEAD and WebSockets of that dashboard, while its cluster and this server run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from jupyter_server.auth.decorator import allow_unauthenticated, authorized
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from jupyter_server_proxy.handlers import ProxyHandler
from tornado.httputil import HTTPHeaders
from tornado.web import HTTPError, RequestHandler, authenticated

from workbench.clusters.requests import short
from workbench.errors import NotFoundError
from workbench.server.handlers import Refusing
from workbench.views.answers import API

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.views.service import Service

_FOLDER = "dask"
_REQUEST_HEADERS = ("Accept", "Accept-Encoding", "Accept-Language", "If-Modified-Since", "If-None-Match", "User-Agent")
"""Request headers passed to a dashboard: none identifies the user or the page."""
_RESPONSE_HEADERS = ("Content-Type", "Content-Encoding", "Cache-Control", "Etag", "Last-Modified", "Location", "Vary")
"""Response headers passed on from a dashboard: none sets a cookie, clears data, or redirects elsewhere."""
_OURS = {
    "Content-Security-Policy": "sandbox allow-scripts allow-popups allow-downloads",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Some pages of Dask fetch JSON, which is cross-origin for a sandboxed page. It is sent without cookies.
    "Access-Control-Allow-Origin": "*",
}


class _Keys:
    """Secret keys in the paths of the clusters' dashboards; each server makes new ones."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, float], str] = {}

    def of(self, record: ClusterRecord) -> str:
        """Return the key of a cluster; a later cluster of the same name gets another."""
        return self._keys.setdefault((record.name, record.created), secrets.token_urlsafe(32))

    def find(self, key: str) -> tuple[str, float] | None:
        """Return the name and start time of the cluster that a key belongs to, in constant time."""
        clusters = [each for each, its in self._keys.items() if compare_digest(its.encode(), key.encode())]
        return clusters[0] if clusters else None

    def forget(self, cluster: tuple[str, float]) -> None:
        """Revoke the key of a cluster."""
        self._keys.pop(cluster, None)


def _keys(handler: RequestHandler) -> _Keys:
    keys: _Keys = handler.settings.setdefault("workbench_dashboard_keys", _Keys())
    return keys


async def _record(handler: RequestHandler, name: str) -> ClusterRecord:
    """Return the record of a cluster. Raises NotFoundError if it has no dashboard now."""
    service: Service = handler.settings["workbench_service"]
    record = await service.ask(lambda session: session.cluster(name))
    if record.status != "ready" or not record.dashboard_address:
        raise NotFoundError(f"Cluster {name} has no dashboard now: it is {record.status}.")
    return record


def _without_token(query: str) -> str:
    """Return a query without Jupyter's token."""
    return urlencode([(key, value) for key, value in parse_qsl(query, keep_blank_values=True) if key != "token"])


class Dashboard(Refusing, JupyterHandler):
    """Handler that redirects logged-in users to the path of a cluster's dashboard."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    @authenticated
    @authorized
    async def get(self, name: str, path: str) -> None:
        """Redirect the browser."""
        await self._send(name, path)

    @authenticated
    @authorized
    async def head(self, name: str, path: str) -> None:
        """Redirect the client."""
        await self._send(name, path)

    async def _send(self, name: str, path: str) -> None:
        key = _keys(self).of(await _record(self, name))
        query = _without_token(self.request.query)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        page = quote(path.strip("/") or "status")
        self.redirect(url_path_join(self.base_url, API, _FOLDER, key, page) + (query and f"?{query}"))


class Sandboxed(Refusing, ProxyHandler):
    """Handler that forwards GET, HEAD and WebSockets to the dashboard whose key is in the path."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    async def prepare(self) -> None:
        """Prepare as any Jupyter handler does; the key in the path authenticates the request."""
        prepared = JupyterHandler.prepare(self)
        if prepared is not None:
            await prepared

    def check_origin(self, origin: str | None = None) -> bool:
        """Return True: the key in the path authorizes a WebSocket, and a sandboxed page has no origin to check."""
        return True

    @allow_unauthenticated
    async def get(self, key: str, path: str) -> None:
        """Forward the request for a page, or open a WebSocket."""
        await self._find(key)
        await super().get(key, path)

    @allow_unauthenticated
    async def head(self, key: str, path: str) -> None:
        """Forward the request for the headers of a page."""
        await self._find(key)
        await self.http_get(key, path)

    async def http_get(self, key: str, path: str) -> None:
        """Forward the request for a page. Raises NotFoundError if the dashboard doesn't answer."""
        self.rewrite_response = _only_needed
        # An event stream would be forwarded unbuffered, with all its headers.
        self.request.headers["Accept"] = self.request.headers.get("Accept", "*/*").replace("text/event-stream", "*/*")
        try:
            with self._there() as (host, port):
                await self.proxy(host, port, path)
        except (HTTPError, OSError) as err:
            raise NotFoundError(f"The dashboard of {self._name} does not answer: is the cluster busy?") from err
        for name, value in _OURS.items():
            self.set_header(name, value)

    async def open(self, key: str, path: str) -> None:
        """Open the WebSocket to the dashboard."""
        with self._there() as (host, port):
            await self.proxy_open(host, port, path)

    def proxy_request_headers(self) -> dict[str, Any]:
        """Return the headers that a page needs, with the dashboard's own origin."""
        headers = {name: self.request.headers[name] for name in _REQUEST_HEADERS if name in self.request.headers}
        return headers | {"Origin": self._origin}

    def proxy_request_options(self) -> dict[str, Any]:
        """Return short timeouts, since the dashboard is on this machine."""
        return super().proxy_request_options() | {"connect_timeout": 5.0, "request_timeout": 60.0}

    def get_client_uri(self, protocol: str, host: str, port: int, proxied_path: str) -> str:
        """Return the dashboard's own address, without Jupyter's token."""
        self.request.query = _without_token(self.request.query)
        return super().get_client_uri(protocol, host, port, proxied_path)

    @contextmanager
    def _there(self) -> Iterator[tuple[str, int]]:
        """Provide the host and port for a request; for our own clusters, select their Unix socket."""
        kind, _, path = self._address.partition(":")
        if kind == "unix":
            with short(Path(path).parent) as folder:
                self.unix_socket = f"{folder}/{Path(path).name}"
                self._origin = "http://localhost"
                yield "localhost", 0
        else:
            host, _, port = path.removeprefix("//").rpartition(":")
            self.host_allowlist = [host]
            self._origin = self._address
            yield host, int(port)

    async def _find(self, key: str) -> None:
        """Look up the dashboard's address. Raises NotFoundError for an unknown or outdated key."""
        cluster = _keys(self).find(key)
        if cluster is None:
            raise NotFoundError("No dashboard is here any more. Open it again from its cluster.")
        self._name, created = cluster
        try:
            record = await _record(self, self._name)
        except NotFoundError:
            _keys(self).forget(cluster)
            raise
        if record.created != created:
            _keys(self).forget(cluster)
            raise NotFoundError(f"This was the dashboard of an earlier {self._name}. Open it again from its cluster.")
        self.proxy_base = f"{API}/{_FOLDER}/{key}"
        self._address = record.dashboard_address or ""


def _only_needed(response: Any) -> None:
    """Remove a dashboard's headers that a page doesn't need, and redirects to other hosts or paths.

    Raises NotFoundError if the dashboard itself fails, as Dask's does for sitemap.json.
    """
    if response.code >= 500:
        raise NotFoundError(f"Dask's dashboard can't show this page: it answers {response.code} {response.reason}.")
    headers = {name: response.headers[name] for name in _RESPONSE_HEADERS if name in response.headers}
    there = urlsplit(headers.get("Location", ""))
    # It must stay below the path with the key, where the proxy puts a location that starts with a slash.
    if there.scheme or there.netloc or ".." in unquote(there.path) or "\\" in there.path:
        del headers["Location"]
    response.headers = HTTPHeaders(headers)
