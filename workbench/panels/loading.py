"""Panel's own JavaScript in the notebook."""

from __future__ import annotations

from typing import Any

import panel as pn

_LARGE = 100_000  # characters
_loaded_by: set[str | None] = set()
"""Cells whose outputs hold it; None for what isn't a cell."""


def load() -> None:
    """Put Panel's JavaScript into the output of the running cell: 3 MB, so that it works without the internet.

    A page that was loaded again has lost the script. When the outputs of its notebook were cleared too, while the
    kernel went on, call this once more.
    """
    if getattr(shell(), "kernel", None) is not None:
        from IPython.utils.capture import capture_output

        with capture_output(stdout=False, stderr=False) as captured:
            pn.extension(inline=True)
        for output in captured.outputs:
            # Panel gives it twice, and whatever shows notebooks runs scripts.
            if len(output.data.get("application/javascript", "")) > _LARGE:
                output.data.pop("application/vnd.holoviews_load.v0+json", None)
            output.display()
        _loaded_by.add(running_cell(shell()))


def load_once() -> None:
    """`load`, unless it was done by another cell, or by this one since it began."""
    if not _loaded_by or not pn.config.inline:
        load()


def forget(cell: str | None) -> None:
    """A cell is run again, and what it had loaded goes from the notebook with its outputs."""
    _loaded_by.discard(cell)


def running_cell(shell: Any) -> str | None:
    """Id of the cell that runs in IPython's shell; None where there is none."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    found = kernel.get_parent("shell").get("metadata", {}).get("cellId")
    return found if isinstance(found, str) else None


def shell() -> Any:
    """IPython's shell; None where this isn't IPython."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()
