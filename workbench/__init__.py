"""Pick hardware, get the Dask cluster that matches it, run a workload, watch it live."""

from __future__ import annotations

import os
import sys
from itertools import pairwise

if sys.platform == "win32":
    raise ImportError(
        "dask-workbench doesn't run on Windows. Install it in the Windows Subsystem for Linux: wsl --install"
    )

# With -m, Python first searches the folder it was started in, where a file of a cloned project may have the name of a
# module: remove the folder before importing any module that isn't loaded yet.
if (
    not sys.flags.safe_path
    and sys.path[:1] == [os.getcwd()]  # noqa: PTH109
    and any(flag == "-m" and name.partition(".")[0] == "workbench" for flag, name in pairwise(sys.orig_argv))
):
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from workbench.clusters.connect import connect as connect
    from workbench.clusters.plan import plan as plan
    from workbench.clusters.start import attach as attach, start as start
    from workbench.errors import WorkbenchError as WorkbenchError
    from workbench.hardware import inventory as inventory
    from workbench.runs.watching import watch as watch
    from workbench.session import Session as Session, compare as compare, run as run
    from workbench.views.saving import save as save
    from workbench.workloads.declaring import workload as workload
    from workbench.workloads.fields import (
        Chunks as Chunks,
        Field as Field,
        Path as Path,
        Shape as Shape,
        Words as Words,
    )
    from workbench.workloads.values import Check as Check, Needs as Needs

_HOMES = {
    "clusters.connect": ("connect",),
    "clusters.plan": ("plan",),
    "clusters.start": ("attach", "start"),
    "errors": ("WorkbenchError",),
    "hardware": ("inventory",),
    "runs.watching": ("watch",),
    "session": ("Session", "compare", "run"),
    "views.saving": ("save",),
    "workloads.declaring": ("workload",),
    "workloads.fields": ("Chunks", "Field", "Path", "Shape", "Words"),
    "workloads.values": ("Check", "Needs"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Register %%watch and %%workload with an IPython shell, for `%load_ext workbench`."""
    from workbench.panels.magic import WorkbenchMagics

    shell.register_magics(WorkbenchMagics)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Return the extension for Jupyter to load."""
    from workbench.server.app import WorkbenchApp

    return [{"module": "workbench.server.app", "app": WorkbenchApp}]
