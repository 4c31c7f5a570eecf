"""Pick hardware, get the Dask cluster that matches it, run a workload, watch it live."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Chunks",
    "Field",
    "Path",
    "Session",
    "Shape",
    "Words",
    "WorkbenchError",
    "__version__",
    "add",
    "attach",
    "compare",
    "connect",
    "inventory",
    "plan",
    "run",
    "save",
    "start",
    "watch",
    "workload",
]

if TYPE_CHECKING:
    from workbench.clusters.connect import connect
    from workbench.clusters.plan import plan
    from workbench.clusters.start import attach, start
    from workbench.errors import WorkbenchError
    from workbench.hardware import inventory
    from workbench.runs.watching import watch
    from workbench.session import Session, compare, run
    from workbench.views.saving import save
    from workbench.workloads.adding import add
    from workbench.workloads.declaring import workload
    from workbench.workloads.fields import Chunks, Field, Path, Shape, Words

_HOMES = {
    "Chunks": "workloads.fields",
    "Field": "workloads.fields",
    "Path": "workloads.fields",
    "Session": "session",
    "Shape": "workloads.fields",
    "Words": "workloads.fields",
    "WorkbenchError": "errors",
    "add": "workloads.adding",
    "attach": "clusters.start",
    "compare": "session",
    "connect": "clusters.connect",
    "inventory": "hardware",
    "plan": "clusters.plan",
    "run": "session",
    "save": "views.saving",
    "start": "clusters.start",
    "watch": "runs.watching",
    "workload": "workloads.declaring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Tell Jupyter what to load."""
    from workbench.server.app import WorkbenchApp

    return [{"module": "workbench.server.app", "app": WorkbenchApp}]
