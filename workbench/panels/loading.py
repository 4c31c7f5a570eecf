"""Panel's own JavaScript in the notebook."""

from __future__ import annotations

from typing import Any

import panel as pn

_LARGE = 100_000  # characters
_loaded_by: set[str | None] = set()
"""Cells with the script in their outputs; None stands for code outside of cells."""


def load() -> None:
    """Put Panel's JavaScript into the output of the running cell: 3 MB, so that it works without the internet.

    A page that was reloaded has lost the script. If its outputs were cleared as well, while the kernel kept running,
    call this again.
    """
    if getattr(shell(), "kernel", None) is not None:
        from IPython.utils.capture import capture_output

        with capture_output(stdout=False, stderr=False) as captured:
            pn.extension(inline=True)
        for output in captured.outputs:
            # Panel emits it twice, but every viewer of notebooks runs scripts.
            if len(output.data.get("application/javascript", "")) > _LARGE:
                output.data.pop("application/vnd.holoviews_load.v0+json", None)
            output.display()
        _loaded_by.add(running_cell(shell()))


def load_once() -> None:
    """Call `load`, unless another cell did, or this one since it started."""
    if not _loaded_by or not pn.config.inline:
        load()


def forget(cell: str | None) -> None:
    """Forget a cell that is run again: its outputs, with the loaded script, are gone from the notebook."""
    _loaded_by.discard(cell)


def running_cell(shell: Any) -> str | None:
    """Return the id of the cell that runs in IPython's shell, or None."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    found = kernel.get_parent("shell").get("metadata", {}).get("cellId")
    return found if isinstance(found, str) else None


def shell() -> Any:
    """Return IPython's shell, or None outside of IPython."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()
