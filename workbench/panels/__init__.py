"""The workbench in a notebook: `Workbench()`, and live figures of any Dask client."""

from workbench.panels.live import Beside, Compared, GpuMonitor, Progress, Replay, TaskStream, Watch, Workers
from workbench.panels.loading import load
from workbench.panels.magic import load_ipython_extension
from workbench.panels.workbench import Workbench

__all__ = [
    "Beside",
    "Compared",
    "GpuMonitor",
    "Progress",
    "Replay",
    "TaskStream",
    "Watch",
    "Workbench",
    "Workers",
    "load",
    "load_ipython_extension",
]
