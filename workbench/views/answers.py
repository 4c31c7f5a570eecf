"""From values to what goes over the wire: a cluster with its addresses and cell, a run, the whole state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from workbench.formats import size

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.runs.run import Run
    from workbench.session import Session

API = "workbench/api"
JSON = "application/json"

ACTIVE = ("starting", "running")
"""States of a run that has not ended."""

LATEST_RUNS = 50
"""Runs in the pushed state; older ones are asked for."""

_COMPARISONS = 5
"""The latest, one of which may go on."""

_ONLY_IN_FULL = {"inventory", "versions"}
"""What a list of runs leaves out."""

_CLUSTER_IN_BRIEF = ("name", "status", "created", "n_workers", "clients")
_RUN_IN_BRIEF = ("id", "status", "cluster", "started", "seconds")


class Answer(NamedTuple):
    """What is answered: an object that pydantic makes JSON of or, of another `kind`, the text or bytes of a file."""

    value: Any
    status: int = 200
    kind: str = JSON
    """The content type."""
    file: str | None = None
    """Name under which it is to be saved."""


def api_url(base_url: str, *parts: str) -> str:
    """Address below the API, as a path from the root of the host."""
    return "/".join((base_url.rstrip("/"), API, *(quote(part, safe="") for part in parts)))


def cluster_answer(record: ClusterRecord, base_url: str) -> dict[str, Any]:
    """Return a cluster as the faces show it: its record, a line about it, its memory, its dashboard and its code."""
    from workbench.clusters.records import memory_used

    # A notebook has no server, and so no addresses.
    dashboard = base_url and record.dashboard_address and record.status == "ready"
    return record.model_dump(mode="json", exclude={"mark", "worker_pids"}) | {
        "description": record.spec.describe(),
        "memory_used": memory_used(record),
        "dashboard_url": api_url(base_url, "dashboard", record.name, "status") if dashboard else None,
        "cell": connecting_cell(record.name),
        "code": record.spec.code(),
    }


def hints(spec: ClusterSpec) -> dict[str, str]:
    """Return what the fields of the form come to that were left empty."""
    return {
        "n_workers": str(spec.n_workers),
        "threads_per_worker": str(spec.threads_per_worker),
        "memory": size(spec.memory),
        "encrypt": "true" if spec.encrypt else "false",
        "idle_timeout": "never" if spec.idle_timeout is None else f"{round(spec.idle_timeout / 60)}m",
        "python": "this Jupyter’s own",
        "device_memory_limit": "80 % of each",
        "rmm_pool_size": "no pool",
        "ucx_tls": spec.ucx_tls or "UCX chooses",
        "interface": spec.interface or ("UCX chooses" if not spec.elsewhere else ""),
        **{name: _typed(name, value) for name, value in spec.options.items() if not isinstance(value, dict)},
    }


def _typed(name: str, value: Any) -> str:
    """An option of a profile as a person would type it."""
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value))
    return f"{value // 60}m" if name == "walltime" else str(value)


def connecting_cell(name: str) -> str:
    """Code that connects a notebook to a cluster."""
    return f'import workbench\n\nclient = workbench.connect("{name}")\nprint(client)'


def run_in_list(run: Run) -> dict[str, Any]:
    """Return a run as lists show it: without the inventory and the versions."""
    return run.model_dump(mode="json", exclude=_ONLY_IN_FULL)


def read_state(session: Session, base_url: str) -> dict[str, Any]:
    """Read what the sidebar shows and what changes by itself: clusters and the latest runs."""
    from workbench import config, credentials, kept
    from workbench.workloads.listing import stamp

    waiting = session.untrusted()
    inventory, comparisons = session.hardware(), config.data_folder() / "comparisons"
    return {
        "clusters": [cluster_answer(record, base_url) for record in session.clusters()],
        "runs": [run_in_list(run) for run in session.runs(limit=LATEST_RUNS)],
        "simulated": inventory.simulated,
        "titles": {each.name: each.title for each in session.workloads(wait=False)},
        # A function that was added is in the list of workloads at once.
        "own": stamp(),
        "untrusted": waiting and waiting.sha,
        "toured": kept.is_tour_over(),
        # A click on “Send … to …” changes what forms say.
        "confirmed": credentials.stamp(),
        "comparing": _comparing(session),
        # Comparing runs of the past changes neither clusters nor runs.
        "compared": comparisons.stat().st_mtime_ns if comparisons.exists() else 0,
    }


def _comparing(session: Session) -> list[str]:
    """Names of the clusters that were started for comparisons that go on."""
    from workbench.runs.comparing.comparisons import clusters_of

    going = (each for each in session.comparisons(limit=_COMPARISONS) if each.active)
    return [name for each in going for name in clusters_of(each)]


def in_brief(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state as pages get it, at every change of anything: what is in views they ask for there."""
    # Those that end with a comparison are nobody's to connect to.
    own = (each for each in state.get("clusters", ()) if each["name"] not in state["comparing"])
    return {
        "clusters": [_cluster_in_brief(each) for each in own],
        "runs": [_run_in_brief(run, state["titles"]) for run in state.get("runs", ())],
        "simulated": state.get("simulated", False),
    }


def run_title(run: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """What a run is called: by the person, or else as its workload."""
    return run["title"] if run["title"] != run["workload"] else titles.get(run["workload"], run["workload"])


def far(run: Mapping[str, Any]) -> str:
    """How far a run is that goes on, in few characters: '37 %', 'pass 4' where not all tasks are known, 'checking'."""
    progress = run["progress"] or {}
    if progress.get("stage") in ("checking", "saving"):
        return str(progress["stage"])
    if progress.get("total") and not progress.get("more"):
        return f"{100 * progress['done'] // progress['total']} %"
    return f"pass {progress['passes']}" if progress.get("passes") else "…"


def _run_in_brief(run: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, Any]:
    told = {name: run[name] for name in _RUN_IN_BRIEF} | {"title": run_title(run, titles)}
    return told | {"far": far(run)} if run["status"] == "running" else told


def _cluster_in_brief(cluster: dict[str, Any]) -> dict[str, Any]:
    # Of its clients only notebooks are shown.
    told = cluster | {"clients": [each for each in cluster["clients"] if "kernel-" in each]}
    return {name: told[name] for name in _CLUSTER_IN_BRIEF if told[name] != []}


def patch_answer(patch: Any) -> dict[str, Any]:
    """Return a patch as JSON-able values."""
    columns = {name: column.tolist() if hasattr(column, "tolist") else column for name, column in patch.columns.items()}
    return {"source": patch.source, "mode": patch.mode, "columns": columns, "rollover": patch.rollover}


def to_json(message: dict[str, Any]) -> str:
    """Return JSON that a browser can read: a number that isn't one becomes null."""
    import pydantic_core

    return pydantic_core.to_json(message, inf_nan_mode="null").decode()
