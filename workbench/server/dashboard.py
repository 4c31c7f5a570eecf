"""Dask's own dashboard of a registered cluster, cut off from the Jupyter server; no other address can be reached.

A dashboard shows pages of another program: of whoever owns an attached scheduler, and names that users of ours choose.
So its pages may do nothing with the Jupyter server that shows them. They have an origin of their own, by a
Content-Security-Policy. Browsers send no cookie from there, so what lets them in is a path that nobody can guess: who
is logged in is sent there from `dashboard/<cluster>`. It leads to GET, HEAD and WebSockets of that dashboard alone,
while its cluster is there and this server runs.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
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

from workbench.clusters.asking import short
from workbench.errors import NotFoundError
from workbench.server.handlers import Refusing
from workbench.views.answers import API

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.views.desk import Desk

_FOLDER = "dask"
_ASKED = ("Accept", "Accept-Encoding", "Accept-Language", "If-Modified-Since", "If-None-Match", "User-Agent")
"""Headers that a dashboard is sent: none says who asks, or from where."""
_ANSWERED = ("Content-Type", "Content-Encoding", "Cache-Control", "Etag", "Last-Modified", "Location", "Vary")
"""Headers of a dashboard that are passed on: none sets a cookie, clears data, or sends the page elsewhere."""
_OURS = {
    "Content-Security-Policy": "sandbox allow-scripts allow-popups allow-downloads",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Some pages of Dask fetch JSON, which for their origin comes from another. No cookie goes with it.
    "Access-Control-Allow-Origin": "*",
}


class _Keys:
    """The path of each cluster's dashboard, made anew by each server."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, float], str] = {}

    def of(self, record: ClusterRecord) -> str:
        """Return the key of a cluster; one of the same name later has another."""
        return self._keys.setdefault((record.name, record.created), secrets.token_urlsafe(32))

    def find(self, key: str) -> tuple[str, float] | None:
        """Return name and moment of the cluster that a key is of, in the same time whichever it is."""
        found = [each for each, its in self._keys.items() if compare_digest(its.encode(), key.encode())]
        return found[0] if found else None

    def forget(self, cluster: tuple[str, float]) -> None:
        """Let a key lead nowhere."""
        self._keys.pop(cluster, None)


def _keys(handler: RequestHandler) -> _Keys:
    keys: _Keys = handler.settings.setdefault("workbench_dashboard_keys", _Keys())
    return keys


async def _record(handler: RequestHandler, name: str) -> ClusterRecord:
    """Return the record of a cluster. Raises NotFoundError where it has no dashboard now."""
    desk: Desk = handler.settings["workbench_desk"]
    record = await desk.ask(lambda session: session.cluster(name))
    if record.status != "ready" or not record.dashboard_address:
        raise NotFoundError(f"Cluster {name} has no dashboard now: it is {record.status}.")
    return record


def _without_token(query: str) -> str:
    """Return a query without Jupyter's token."""
    return urlencode([(key, value) for key, value in parse_qsl(query, keep_blank_values=True) if key != "token"])


class Dashboard(Refusing, JupyterHandler):
    """Sends who is logged in to the path of a cluster's dashboard."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    @authenticated
    @authorized
    async def get(self, name: str, path: str) -> None:
        """Send the browser there."""
        await self._send(name, path)

    @authenticated
    @authorized
    async def head(self, name: str, path: str) -> None:
        """Send whoever asks there."""
        await self._send(name, path)

    async def _send(self, name: str, path: str) -> None:
        key = _keys(self).of(await _record(self, name))
        query = _without_token(self.request.query)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        page = quote(path.strip("/") or "status")
        self.redirect(url_path_join(self.base_url, API, _FOLDER, key, page) + (query and f"?{query}"))

    def possible(self) -> Sequence[str]:
        """Return the verbs of this address."""
        return self.SUPPORTED_METHODS


class Sandboxed(Refusing, ProxyHandler):
    """Passes GET, HEAD and WebSockets on to the dashboard whose key is in the path."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    async def prepare(self) -> None:
        """Prepare as any handler of Jupyter; the key in the path says who asks."""
        prepared = JupyterHandler.prepare(self)
        if prepared is not None:
            await prepared

    def check_origin(self, origin: str | None = None) -> bool:
        """Return whether a WebSocket may be opened: by who knows the key, from an origin that has no name."""
        return True

    @allow_unauthenticated
    async def get(self, key: str, path: str) -> None:
        """Pass on a page or open a WebSocket."""
        await self._find(key)
        await super().get(key, path)

    @allow_unauthenticated
    async def head(self, key: str, path: str) -> None:
        """Pass on the question whether a page is there."""
        await self._find(key)
        await self.http_get(key, path)

    async def http_get(self, key: str, path: str) -> None:
        """Pass on a page. Raises NotFoundError when the dashboard doesn't answer."""
        self.rewrite_response = _only_needed
        # Or a page would be passed on as it comes, with all its headers.
        self.request.headers["Accept"] = self.request.headers.get("Accept", "*/*").replace("text/event-stream", "*/*")
        try:
            with self._there() as (host, port):
                await self.proxy(host, port, path)
        except (HTTPError, OSError) as err:
            raise NotFoundError(f"The dashboard of {self._name} does not answer: is the cluster busy?") from err
        for name, value in _OURS.items():
            self.set_header(name, value)

    async def open(self, key: str, path: str) -> None:
        """Open the WebSocket at the other end."""
        with self._there() as (host, port):
            await self.proxy_open(host, port, path)

    def possible(self) -> Sequence[str]:
        """Return the verbs of this address."""
        return self.SUPPORTED_METHODS

    def proxy_request_headers(self) -> dict[str, Any]:
        """Return the headers that a page needs, as if it were asked for where the dashboard is."""
        asked = {name: self.request.headers[name] for name in _ASKED if name in self.request.headers}
        return asked | {"Origin": self._origin}

    def proxy_request_options(self) -> dict[str, Any]:
        """Return short limits: the other end is on this machine."""
        return super().proxy_request_options() | {"connect_timeout": 5.0, "request_timeout": 60.0}

    def get_client_uri(self, protocol: str, host: str, port: int, proxied_path: str) -> str:
        """Return the dashboard's own address, without Jupyter's token."""
        self.request.query = _without_token(self.request.query)
        return super().get_client_uri(protocol, host, port, proxied_path)

    @contextmanager
    def _there(self) -> Iterator[tuple[str, int]]:
        """Host and port to ask meanwhile; of one of our own, what is asked goes to its socket."""
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
        """Find where the dashboard is. Raises NotFoundError for what is no key, or none any more."""
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
    """Leave of a dashboard's headers those that a page needs, and let it be sent to its own pages only.

    Raises NotFoundError where it fails itself, as Dask's does for sitemap.json.
    """
    if response.code >= 500:
        raise NotFoundError(f"Dask's dashboard can't show this page: it answers {response.code} {response.reason}.")
    headers = {name: response.headers[name] for name in _ANSWERED if name in response.headers}
    there = urlsplit(headers.get("Location", ""))
    # Nor out of the path whose key makes it reachable, below which the proxy puts one that begins with a slash.
    if there.scheme or there.netloc or ".." in unquote(there.path) or "\\" in there.path:
        del headers["Location"]
    response.headers = HTTPHeaders(headers)
