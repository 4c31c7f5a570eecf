"""The workbench in a notebook: `Workbench()`, and live figures of any Dask client."""

try:
    from workbench.panels.live import Replay, Watch
    from workbench.panels.workbench import Workbench
except ModuleNotFoundError as err:
    if err.name not in ("anywidget", "comm", "ipykernel", "ipywidgets", "IPython"):
        raise
    from workbench.errors import install

    raise ImportError(f"{err.name} isn't installed, which notebooks need here. Try: {install('lab')}") from err

__all__ = ["Replay", "Watch", "Workbench"]
