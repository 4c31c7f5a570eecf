"""Values as they are sent to pages: a cluster with its addresses and cell, a run, the whole state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from workbench.formats import size

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.runs.run import Run
    from workbench.session import Session

API = "workbench/api"

LATEST_RUNS = 50
"""Number of runs in the pushed state; older ones are read on request."""

_COMPARISONS = 5
"""Number of latest comparisons among which running ones are looked for."""

_ONLY_IN_FULL = {"inventory", "versions"}
"""Fields of a run that lists omit."""

_CLUSTER_IN_BRIEF = ("name", "status", "created", "n_workers", "clients")
_RUN_IN_BRIEF = ("id", "status", "cluster", "started", "seconds")


def api_url(base_url: str, *parts: str) -> str:
    """Return an address below the API, as a path from the root of the host."""
    return "/".join((base_url.rstrip("/"), API, *(quote(part, safe="") for part in parts)))


def cluster_answer(record: ClusterRecord, base_url: str) -> dict[str, Any]:
    """Return a cluster for display: its record, a short description, its memory, and its dashboard."""
    from workbench.clusters.records import memory_used

    # Without a server, as in a notebook, there are no addresses.
    dashboard = base_url and record.dashboard_address and record.status == "ready"
    return record.model_dump(mode="json", exclude={"mark", "worker_pids"}) | {
        "description": record.spec.describe(),
        "memory_used": memory_used(record),
        "dashboard_url": api_url(base_url, "dashboard", record.name, "status") if dashboard else None,
        "cell": connecting_cell(record.name),
    }


def hints(spec: ClusterSpec) -> dict[str, str]:
    """Return the values that empty fields of the form stand for."""
    return {
        "n_workers": str(spec.n_workers),
        "threads_per_worker": str(spec.threads_per_worker or "what its machines have"),
        "memory": size(spec.memory) if spec.memory_limit else "what its machines have",
        "encrypt": "true" if spec.encrypt else "false",
        "idle_timeout": "never" if spec.idle_timeout is None else f"{round(spec.idle_timeout / 60)}m",
        "python": "this Jupyter’s own",
        "device_memory_limit": "80 % of each",
        "rmm_pool_size": "no pool",
        **{name: _typed(name, value) for name, value in spec.options.items() if not isinstance(value, dict)},
    }


def _typed(name: str, value: Any) -> str:
    """Return an option of a profile as a user would type it."""
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value))
    return f"{value // 60}m" if name == "walltime" else str(value)


def connecting_cell(name: str) -> str:
    """Return the code that connects a notebook to a cluster."""
    return f'import workbench\n\nclient = workbench.connect("{name}")\nprint(client)'


def run_in_list(run: Run) -> dict[str, Any]:
    """Return a run for lists: without the inventory and the versions."""
    return run.model_dump(mode="json", exclude=_ONLY_IN_FULL)


def read_state(session: Session, base_url: str) -> dict[str, Any]:
    """Read the state of the sidebar: clusters, the latest runs, and stamps of everything else that can change."""
    from workbench import config, credentials, named_choices
    from workbench.workloads.listing import stamp

    waiting = session.untrusted()
    inventory, comparisons = session.hardware(), config.data_folder() / "comparisons"
    return {
        "clusters": [cluster_answer(record, base_url) for record in session.clusters()],
        "runs": [run_in_list(run) for run in session.runs(limit=LATEST_RUNS)],
        "simulated": inventory.simulated,
        "titles": {each.name: each.title for each in session.workloads(wait=False)},
        # A function that was added appears in the list of workloads at once.
        "own": stamp(),
        "untrusted": waiting and waiting.sha,
        "toured": named_choices.is_tour_over(),
        # A click on “Send … to …” changes the forms.
        "confirmed": credentials.stamp(),
        "comparing": _comparing(session),
        # A comparison of past runs changes neither clusters nor runs.
        "compared": comparisons.stat().st_mtime_ns if comparisons.exists() else 0,
    }


def _comparing(session: Session) -> list[str]:
    """Return the names of the clusters that were started for running comparisons."""
    from workbench.runs.comparing.comparisons import clusters_of

    going = (each for each in session.comparisons(limit=_COMPARISONS) if each.active)
    return [name for each in going for name in clusters_of(each)]


def in_brief(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the state that pages get at every change; views contain the rest."""
    # Clusters of a comparison end with it, so users don't connect to them.
    own = (each for each in state.get("clusters", ()) if each["name"] not in state["comparing"])
    return {
        "clusters": [_cluster_in_brief(each) for each in own],
        "runs": [_run_in_brief(run, state["titles"]) for run in state.get("runs", ())],
        "simulated": state.get("simulated", False),
    }


def run_title(run: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Return the title of a run: the user's, or else the workload's."""
    return run["title"] if run["title"] != run["workload"] else titles.get(run["workload"], run["workload"])


def far(run: Mapping[str, Any]) -> str:
    """Return the progress of a run in short: '37 %', 'pass 4' while not all tasks are known, or 'checking'."""
    progress = run["progress"] or {}
    if progress.get("stage") in ("checking", "saving"):
        return str(progress["stage"])
    if progress.get("total") and not progress.get("more"):
        return f"{100 * progress['done'] // progress['total']} %"
    return f"pass {progress['passes']}" if progress.get("passes") else "…"


def _run_in_brief(run: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, Any]:
    summary = {name: run[name] for name in _RUN_IN_BRIEF} | {"title": run_title(run, titles)}
    return summary | {"far": far(run)} if run["status"] == "running" else summary


def _cluster_in_brief(cluster: dict[str, Any]) -> dict[str, Any]:
    # Notebooks are the only clients that are shown.
    summary = cluster | {"clients": [each for each in cluster["clients"] if "kernel-" in each]}
    return {name: summary[name] for name in _CLUSTER_IN_BRIEF if summary[name] != []}


def to_json(message: dict[str, Any]) -> str:
    """Return JSON that a browser can read: NaN and infinities become null."""
    import pydantic_core

    return pydantic_core.to_json(message, inf_nan_mode="null").decode()
