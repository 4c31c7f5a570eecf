"""From values to what goes over the wire: a cluster with its addresses and cell, a run, the whole state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jupyter_server.utils import url_path_join

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.runs.store import Run
    from workbench.session import Session

API = "workbench/api"

LATEST_RUNS = 50
"""Runs in the pushed state; older ones are asked for."""

_ONLY_IN_FULL = {"inventory", "versions"}
"""What a list of runs leaves out: it is pushed several times a second while one of them is going on."""


def api_url(base_url: str, *parts: str) -> str:
    """Address below the API, as a path from the root of the host."""
    return url_path_join(base_url, API, *(quote(part, safe="") for part in parts))


def cluster_answer(record: ClusterRecord, base_url: str) -> dict[str, Any]:
    """Return a cluster as the faces show it: its record, a line about it, its memory, its dashboard and its code."""
    dashboard = record.dashboard_address and record.status == "ready"
    return record.model_dump(mode="json", exclude={"mark"}) | {
        "description": record.spec.describe(),
        "memory_used": memory_used(record),
        "dashboard_url": api_url(base_url, "dashboard", record.name, "status") if dashboard else None,
        "cell": connecting_cell(record.name),
        "code": record.spec.code(),
    }


def hints(spec: ClusterSpec) -> dict[str, str]:
    """Return what the fields of the form come to that were left empty."""
    from workbench.figures.markup import size

    return {
        "n_workers": str(spec.n_workers),
        "threads_per_worker": str(spec.threads_per_worker),
        "memory": size(spec.memory).replace(" ", ""),
        "encrypt": "true" if spec.encrypt else "false",
        "idle_timeout": "never" if spec.idle_timeout is None else f"{round(spec.idle_timeout / 60)}m",
        "python": "this Jupyter’s own",
        "device_memory_limit": "80 % of each",
        "rmm_pool_size": "no pool",
    }


def connecting_cell(name: str) -> str:
    """Code that connects a notebook to a cluster."""
    return f'import workbench\n\nclient = workbench.connect("{name}")\nclient'


def memory_used(record: ClusterRecord) -> int | None:
    """Return the bytes that the cluster's processes hold, rounded to MiB; None where there is nothing to read."""
    if record.pid is None or record.status not in ("starting", "ready", "stopping"):
        return None
    import psutil

    try:
        host = psutil.Process(record.pid)
        if record.pid_created is not None and abs(host.create_time() - record.pid_created) > 1:
            return None
        held = sum(_held(process) for process in (host, *host.children(recursive=True)))
    except psutil.Error:
        return None
    return held >> 20 << 20


def _held(process: Any) -> int:
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def run_answer(run: Run) -> dict[str, Any]:
    """Return a run with all that is known of it."""
    return run.model_dump(mode="json")


def run_in_list(run: Run) -> dict[str, Any]:
    """Return a run as lists show it: without the inventory and the versions."""
    return run.model_dump(mode="json", exclude=_ONLY_IN_FULL)


def read_state(session: Session, base_url: str) -> dict[str, Any]:
    """Read what the sidebar shows and what changes by itself: clusters, the latest runs, the memory that is left."""
    return {
        "clusters": [cluster_answer(record, base_url) for record in session.clusters()],
        "runs": [run_in_list(run) for run in session.runs(limit=LATEST_RUNS)],
        "budget": session.budget().model_dump(mode="json"),
    }


def patch_answer(patch: Any) -> dict[str, Any]:
    """Return a patch as JSON-able values."""
    columns = {name: _as_list(column) for name, column in patch.columns.items()}
    return {"source": patch.source, "mode": patch.mode, "columns": columns, "rollover": patch.rollover}


def _as_list(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


def to_json(message: dict[str, Any]) -> str:
    """Return JSON that a browser can read: a number that isn't one becomes null."""
    try:
        return json.dumps(message, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_without_nan(message), allow_nan=False, separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
