"""The server with the real session, real clusters and real runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from traitlets.config import Config

from tests.server.conftest import DONE
from workbench.clusters import records
from workbench.runs import store

PATIENCE = 40.0

TWO = {"profile": "cpu", "choices": {"n_workers": 2, "threads_per_worker": 1, "memory": "1GiB"}}


@pytest.fixture
def jp_server_config(data_folder: Path) -> Config:
    """Configure a server as it is installed."""
    return Config({"ServerApp": {"jpserver_extensions": {"workbench": True}, "allow_unauthenticated_access": False}})


@pytest.fixture
def hear(jp_ws_fetch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that reads a stream until a message fits."""

    async def heard(page: Any, fits: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                text = await page.read_message()
                assert text is not None, "the server closed the connection"
                message: dict[str, Any] = json.loads(text)
                assert message["type"] != "error", message
                if fits(message):
                    return message

    return heard


def cluster_of(message: dict[str, Any], name: str) -> dict[str, Any]:
    return next((cluster for cluster in message.get("clusters", ()) if cluster["name"] == name), {})


async def test_a_cluster_is_started_watched_used_and_stopped(api: Any, act: Any, jp_ws_fetch: Any, hear: Any) -> None:
    page = await jp_ws_fetch("workbench", "api", "stream")
    assert (await hear(page, lambda message: message["type"] == "state"))["clusters"] == []

    assert await act("start", **TWO, name="calm-otter") == DONE
    await page.write_message(json.dumps({"type": "watch", "watch": "w", "cluster": "calm-otter"}))
    ready = cluster_of(await hear(page, lambda m: cluster_of(m, "calm-otter").get("status") == "ready"), "calm-otter")
    assert ready["n_workers"] == 2
    assert records.memory_used(records.read("calm-otter")) > 50 * 2**20

    parameters = {"shape": "2000,2000", "chunks": "500,500"}
    assert "value" in await act("run", workload="array_sum", cluster="calm-otter", parameters=parameters)
    (run,) = store.select()
    drawn = await hear(
        page, lambda m: m["type"] == "patches" and any(rows_of(p) for p in m["patches"] if p["source"] == "tasks")
    )
    assert drawn["watch"] == "w"
    done = await hear(
        page,
        lambda m: (
            m["type"] == "state"
            and any(r["id"] == run.id and r["status"] not in ("starting", "running") for r in m["runs"])
        ),
    )
    assert [each["id"] for each in done["runs"]] == [run.id]
    finished = store.get(run.id)
    assert (finished.status, finished.error) == ("done", None)
    assert finished.check is not None
    assert finished.check.passed

    await page.write_message(json.dumps({"type": "watch", "watch": "r", "run": run.id}))
    replayed = await hear(page, lambda m: m["type"] == "patches" and m["watch"] == "r")
    assert any(rows_of(patch) for patch in replayed["patches"] if patch["source"] == "tasks")
    report = await api("GET", f"runs/{run.id}/report")
    assert report.status == 200
    assert b"<html" in report.content

    assert await act("scale", cluster="calm-otter", n_workers=1) == DONE
    await hear(page, lambda m: cluster_of(m, "calm-otter").get("n_workers") == 1)

    assert await act("stop", cluster="calm-otter") == DONE
    gone = await hear(page, lambda m: m["type"] == "gone")
    assert gone["message"] == "calm-otter was stopped, so there is nothing more to watch."
    assert records.read_all() == ()
    page.close()


def rows_of(patch: dict[str, Any]) -> int:
    return max((len(column) for column in patch["columns"].values()), default=0)


OTHER_PAGES = {
    **dict.fromkeys(("health", "metrics", "json/counts.json", "json/identity.json", "json/index.html"), 200),
    **dict.fromkeys((f"info/main/{name}.html" for name in ("workers", "exceptions", "logs")), 200),
    **dict.fromkeys((f"info/{name}/x.html" for name in ("worker", "task", "logs", "call-stacks", "call-stack")), 404),
    "statics/css/base.css": 200,
    "statics/nothing": 404,
    "nothing": 404,
    "proxy/1/::1/x": 404,
    # Dask's own fails once its dashboard is loaded.
    "sitemap.json": 404,
}
"""Addresses of Dask's dashboard besides its plots, and what they answer."""


async def test_a_watched_cluster_whose_host_is_killed_is_gone_and_lost(
    api: Any, act: Any, jp_ws_fetch: Any, hear: Any
) -> None:
    """And before that: Dask's own dashboard, page, scripts and WebSocket, behind this server."""
    page = await jp_ws_fetch("workbench", "api", "stream")
    await act("start", **TWO, name="calm-otter")
    await page.write_message(json.dumps({"type": "watch", "watch": "w", "cluster": "calm-otter"}))
    await hear(page, lambda m: cluster_of(m, "calm-otter").get("status") == "ready")
    await hear(page, lambda m: m["type"] == "patches" and "2 workers" in m["status"]["summary"])
    status, folder = await opened(api, "dashboard/calm-otter/status")
    assert status.status == 200
    assert b"Dask" in status.content
    scripts = re.findall(rb'src="([^"?]*/?static/js/bokeh[^"?]*)', status.content)
    assert scripts
    script = await api("GET", f"{folder}/{scripts[0].decode()}")
    assert (script.status, b"Bokeh" in script.content) == (200, True)
    plots = (await api("GET", f"{folder}/individual-plots.json")).content
    assert len(plots) > 20
    pages = {path.strip("/"): 200 for path in plots.values()} | OTHER_PAGES
    assert {path: (await api("GET", f"{folder}/{path}")).status for path in pages} == pages
    token = re.search(rb'"token":"([^"]+)"', status.content)
    assert token is not None
    # As a page in a sandbox asks, which has no origin that has a name.
    socket = await jp_ws_fetch(
        *f"workbench/api/{folder}/status/ws".split("/"),
        subprotocols=["bokeh", token[1].decode()],
        headers={"Origin": "null"},
    )
    # What Bokeh's server says first: a header, metadata and content of an ACK.
    assert json.loads(await asyncio.wait_for(socket.read_message(), PATIENCE))["msgtype"] == "ACK"
    socket.close()

    os.kill(records.read("calm-otter").pid or 0, signal.SIGKILL)
    gone = await hear(page, lambda m: m["type"] == "gone")
    assert gone["message"].startswith("calm-otter was lost.")
    assert records.read("calm-otter").status == "lost"
    page.close()


async def opened(api: Any, path: str) -> tuple[Any, str]:
    """Return the page where a browser ends up, and its folder."""
    for _ in range(5):
        answer = await api("GET", path)
        if answer.status not in (301, 302):
            break
        there = urljoin(path, answer.headers["Location"])
        path = there.partition("workbench/api/")[2] or there
    return answer, path.rpartition("/")[0]
