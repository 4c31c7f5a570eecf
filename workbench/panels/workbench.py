"""The whole workbench in a notebook cell: the views of Lab's sidebar, side by side."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.markup import paragraph
from workbench.panels.static import StaticOutput
from workbench.panels.thread import do
from workbench.panels.widget import Widget
from workbench.session import Session
from workbench.views.actions import perform
from workbench.views.files import read_file
from workbench.views.messages import check, check_theme
from workbench.views.service import Service

if TYPE_CHECKING:
    from workbench.views.watching import Watching

_log = logging.getLogger(__name__)

_ENDED = "The Workbench is here while the kernel of this cell runs. Run the cell again."
"""Text that stays in the notebook for pages without a kernel."""


class Workbench(Widget):
    """Hardware, clusters, workloads, runs, comparisons and live figures, in a cell.

    Parameters
    ----------
    session
        Owner of the clusters and runs; the user's by default.
    theme
        Colors of the figures, "light" or "dark"; follows the page by default.
    """

    _view = "page"

    def __init__(self, session: Session | None = None, *, theme: str | None = None) -> None:
        self._static = StaticOutput(lambda: (paragraph(_ENDED), _ENDED), lambda: True, lambda: self.is_shown)
        options = {"view": "wide", "theme": None if theme is None else check_theme(theme), "static": self._static.id}
        self.session = session or Session()
        self._service: Service | None = None
        super().__init__(options)

    def close(self) -> None:
        """Stop following and watching; clusters and runs continue. A click in a cell that shows it resumes."""
        do(self._end)

    def _at(self) -> Service:
        if self._service is None:
            self._service = Service("", _log, make_session=lambda: self.session)
        return self._service

    async def watching(self) -> Watching:
        """Return the `Watching` that all places share."""
        return await self._at().watching()

    async def _act(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if name == "file":
            return await _file(self._at(), **check(_file, arguments))
        return await perform(self._at(), name, arguments)

    def _on_hidden(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            do(service.close)

    def _end(self) -> None:
        self._close_seats(list(self._seats))
        self._on_hidden()


async def _file(service: Service, path: str) -> dict[str, Any]:
    """Return a page or a file as JSON: no server has it here."""
    file = await read_file(service, path)
    content = file.content.encode() if isinstance(file.content, str) else file.content
    return {"name": file.name, "kind": file.kind, "base64": base64.b64encode(content).decode()}
