"""A real JupyterHub with two users: each has clusters, runs and dashboards alone, also while servers are culled."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from tornado.httpclient import HTTPClientError

from tests import hub as hubs
from tests.waiting import until

pytestmark = pytest.mark.daemons

CHOICES = {"n_workers": 1, "threads_per_worker": 1, "memory": "512MiB"}
SUM = {"workload": "array_sum", "parameters": {"shape": "1000,1000", "chunks": "500,500"}}
NAP = '''
import time

import dask.array as da


def nap(seconds: float = 1):
    """Sleep in one block after the other."""
    def sleep(block):
        time.sleep(seconds / 10)
        return block
    return da.ones(10, chunks=1).map_blocks(sleep, meta=da.ones(1).compute()).sum()
'''

CONNECT = """
import asyncio, sys
from pathlib import Path
from distributed.core import rpc
from workbench.clusters import records, security

async def main():
    keys = security.load_keys(records.folder("of-bob")).get_connection_args("client")
    for address in sys.argv[1:]:
        try:
            async with rpc(address, timeout=5, connection_args=keys) as there:
                await asyncio.wait_for(there.identity(), 5)
        except Exception as err:
            print("refused")
        else:
            print("answered")

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hubs.Hub]:
    with hubs.running(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(hub: hubs.Hub) -> dict[str, str]:
    """Start each user's server, and return a token of each user."""
    tokens = {user: hub.token(user) for user in hubs.USERS}
    hub.start(*hubs.USERS)
    return tokens


def wait_for(hub: hubs.Hub, user: str, token: str, kind: str, status: str) -> dict[str, Any]:
    """Return the newest cluster or run of a user, once it has this status."""

    def look() -> dict[str, Any] | None:
        of_kind = hubs.rarely(hub.state(user, token)[kind])
        return next((each for each in of_kind[:1] if each["status"] == status), None)

    seen: dict[str, Any] = until(look, about=lambda: (hub.state(user, token), hub.log()))
    return seen


def start_cluster(hub: hubs.Hub, user: str, token: str, **choices: str) -> None:
    hub.act(user, token, "start", profile="cpu", choices={**CHOICES, **choices}, name=f"of-{user}")


def start_run(hub: hubs.Hub, user: str, token: str, asked: dict[str, Any]) -> None:
    hub.act(user, token, "run", **asked, cluster=f"of-{user}")


def record(hub: hubs.Hub, user: str) -> dict[str, Any] | None:
    """Return the record of a user's cluster, read as root."""
    path = hub.home(user) / ".local/share/dask-workbench/clusters" / f"of-{user}" / "record.json"
    with contextlib.suppress(FileNotFoundError):
        read: dict[str, Any] = json.loads(path.read_text())
        return read
    return None


def addresses(cluster: str, run: str) -> tuple[str, ...]:
    """Every address of ours that asks for a login, with these names in it."""
    of_run = (f"runs/{run}/{page}" for page in ("report", "export", "pictures/scree"))
    return (*of_run, "comparisons/x/page", "docs/how-to/slurm", "bokeh/bokeh.min.js", "stream", f"dashboard/{cluster}")


def ports(process: psutil.Process) -> list[int]:
    return [each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


def test_no_user_reads_reaches_or_changes_what_another_has(hub: hubs.Hub, tokens: dict[str, str]) -> None:
    for user, token in tokens.items():
        start_cluster(hub, user, token)
    for user, token in tokens.items():
        wait_for(hub, user, token, "clusters", "ready")
    start_run(hub, "ann", tokens["ann"], SUM)
    done = wait_for(hub, "ann", tokens["ann"], "runs", "done")

    # Through her server: her own token opens it, his and none open nothing.
    assert hub.workbench("GET", "ann", "dashboard/of-ann/status", tokens["ann"]).status == 302
    (server,) = (each for each in hub.processes("ann") if "jupyterhub.singleuser" in each.cmdline())
    for path in addresses("of-ann", done["id"]):
        for token in (tokens["bob"], None):
            answer = hub.workbench("GET", "ann", path, token)
            to_login = answer.status == 302 and urlsplit(answer.headers["Location"]).path.startswith("/hub/")
            assert answer.status == 403 or to_login, (path, token, answer)
    with pytest.raises(HTTPClientError, match="403"):
        hub.act("ann", tokens["bob"], "stop_all")
    (port,) = ports(server)
    report = f"/user/ann/workbench/api/runs/{done['id']}/report"
    assert hub.ask("GET", report, tokens["bob"], port=port).status == 403
    assert hub.ask("GET", report, tokens["ann"], port=port).status == 200

    # Through his own server there is nothing of hers.
    of_bob = hub.state("bob", tokens["bob"])
    assert ([each["name"] for each in of_bob["clusters"]], of_bob["runs"]) == (["of-bob"], [])
    for path in ("dashboard/of-ann/status", f"runs/{done['id']}/report"):
        assert hub.workbench("GET", "bob", path, tokens["bob"]).status == 404

    # On the machine: no file of hers can be read, and her scheduler and worker answer nobody without her keys.
    find = "find /home /tmp /dev/shm -user ann -type f -readable 2>/dev/null || true"
    assert hub.run_as("ann", "sh", "-c", find)
    assert hub.run_as("bob", "sh", "-c", find) == ""
    theirs = [f"tls://127.0.0.1:{port}" for each in hub.processes("ann") if each != server for port in ports(each)]
    assert len(theirs) >= 2
    his = record(hub, "bob")
    assert his is not None
    answers = hub.run_as("bob", str(hubs.python()), "-c", CONNECT, his["scheduler_address"], *theirs).split()
    assert answers == ["answered", *["refused"] * len(theirs)]


def test_a_culled_server_takes_no_cluster_in_use_along_and_leaves_none_that_is_idle(
    hub: hubs.Hub, tokens: dict[str, str]
) -> None:
    (hub.home("ann") / "nap.py").write_text(NAP)
    hub.act("bob", tokens["bob"], "stop", cluster="of-bob")
    until(lambda: record(hub, "bob") is None)
    start_cluster(hub, "bob", tokens["bob"], idle_timeout="3s")
    start_run(hub, "ann", tokens["ann"], {"workload": "/home/ann/nap.py:nap", "parameters": {"seconds": 12}})
    wait_for(hub, "ann", tokens["ann"], "runs", "running")
    hub.cull("ann", "bob")

    # Hers computes; his is idle, so it ends, and with it the last of his processes.
    in_use = record(hub, "ann")
    assert in_use is not None
    assert (in_use["status"], in_use["expires_at"]) == ("ready", None)
    until(lambda: not hub.processes("bob"), about=lambda: [each.cmdline() for each in hub.processes("bob")])
    assert record(hub, "bob") is None
    # Without her server the run ends as it should, and the time in which her cluster is idle begins.
    expires = until(lambda: (record(hub, "ann") or {})["expires_at"])
    assert 0 < expires - time.time() <= 3600
    hub.start("ann")
    state = hub.state("ann", tokens["ann"])
    assert [(each["name"], each["status"]) for each in state["clusters"]] == [("of-ann", "ready")]
    assert [each["status"] for each in state["runs"]] == ["done", "done"]
