"""What is known of each cluster, one folder on disk for each, which outlives every process that reads it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from workbench.clusters.spec import ClusterSpec

Status = Literal["starting", "ready", "stopping", "failed", "lost"]
Stage = Literal["preparing", "scheduler", "workers", "ready"]


class ClusterRecord(BaseModel):
    """One cluster as its host process last described it. Frozen, JSON both ways."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    spec: ClusterSpec
    status: Status = "starting"
    stage: Stage = "preparing"
    n_workers: int = 0
    """Workers that are there now."""
    n_workers_expected: int = 0
    """Workers that should be there: the spec's number, or what scaling asked for since."""
    adaptive: tuple[int, int] | None = None
    """Bounds between which the number of workers follows the load."""
    scheduler_address: str | None = None
    dashboard_address: str | None = None
    """Dask's own dashboard, on the loopback interface: 'http://127.0.0.1:<port>'."""
    pid: int | None = None
    pid_created: float | None = None
    """Start time of the host process by the system's clock: a pid alone may have been given to another process."""
    versions: dict[str, str] = {}
    created: float = 0.0
    expires_at: float | None = None
    """When the lease runs out (seconds since the epoch), while the cluster is idle; None while it works or without a lease."""
    clients: tuple[str, ...] = ()
    """Ids of the Dask clients that are connected."""
    message: str | None = None
    """Why it failed or was lost, in one sentence, with the remedy."""
    log_tail: tuple[str, ...] = ()
