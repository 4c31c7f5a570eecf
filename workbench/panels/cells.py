"""Record of the cells that display something: when a cell is run again, its previous output is gone from the page.

Panel has a message of its own for that, which JupyterLab doesn't always send.
"""

from __future__ import annotations

from typing import Any, Self

import panel as pn

from workbench.panels.loading import forget, load_once, running_cell, shell
from workbench.panels.page import Page


class InCell(pn.viewable.Viewer):  # type: ignore[misc,unused-ignore]
    """An object that several cells can display. Its page lasts until no cell displays it."""

    _page: Page

    def __init__(self) -> None:
        super().__init__()
        load_once()

    def __panel__(self) -> pn.viewable.Viewable:
        self.open()
        return self._page

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: a notebook shows it where it ends a cell; without one there is workbench app>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        note(self, shell())
        return super()._repr_mimebundle_(include, exclude)

    def open(self) -> None:
        """Resume after `close`. Displaying it calls this automatically."""

    def close(self) -> None:
        """Stop. Called automatically when the cell is run again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_displayed: dict[str, list[InCell]] = {}


def note(panel: InCell, shell: Any) -> None:
    """Note that the running cell of this shell displays `panel`, which is closed when no cell displays it."""
    cell = running_cell(shell)
    if cell is None:
        return
    if not _displayed:
        shell.events.register("pre_run_cell", lambda info: run_again(getattr(info, "cell_id", None)))
    others = _displayed.setdefault(cell, [])
    if not any(panel is other for other in others):
        others.append(panel)


def run_again(cell: str | None) -> None:
    """Close everything that only this cell displayed."""
    forget(cell)
    gone = _displayed.get(cell or "", [])
    _displayed.update({cell: []} if cell else {})
    for panel in gone:
        if not any(panel is other for others in _displayed.values() for other in others):
            panel.close()
