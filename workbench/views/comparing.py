"""The figure of a comparison while a page shows it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.threads import in_thread
from workbench.views.answers import patch_answer
from workbench.views.page import OnScreen

if TYPE_CHECKING:
    from workbench.figures.comparison import ComparisonFigure
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.session import Session

_PERIOD = 0.5
"""Seconds between two readings of a comparison that a page shows."""


class ComparisonWatch(OnScreen):
    """The figure of a comparison on one screen, updated while it runs."""

    def __init__(self, session: Session, comparison: Comparison, figure: ComparisonFigure, wake: Callable[[], None]):
        self.wake = wake
        self._session = session
        self._figure = figure
        self._comparison: Comparison | None = comparison
        self._task = asyncio.create_task(self._follow(comparison))
        wake()

    def leave(self) -> None:
        """Stop showing the comparison."""
        self._task.cancel()

    async def take(self) -> dict[str, Any] | None:
        """Return the changes for the screen; None without any."""
        comparison, self._comparison = self._comparison, None
        if comparison is None:
            return None
        patches = await in_thread(self._draw, comparison)
        return {"patches": patches, "status": {"message": None}}

    def _draw(self, comparison: Comparison) -> list[dict[str, Any]]:
        self._figure.feed(comparison)
        return [patch_answer(patch) for patch in self._figure.patches()]

    async def _follow(self, seen: Comparison) -> None:
        while seen.active:
            await asyncio.sleep(_PERIOD)
            with contextlib.suppress(WorkbenchError):
                found = await in_thread(self._session.comparison, seen.id)
                if found != seen:
                    self._comparison = seen = found
                    self.wake()


async def watch_comparison(session: Session, name: str, theme: str, wake: Callable[[], None]) -> ComparisonWatch:
    """Start showing a comparison. Raises NotFoundError if there is none of this name."""
    comparison = await in_thread(session.comparison, name)
    return ComparisonWatch(session, comparison, await in_thread(_figure, theme), wake)


def document(session: Session, name: str, theme: str, base_url: str) -> dict[str, Any]:
    """Return the figure for a page to embed, with all results so far."""
    from workbench.views.drawing import scripts

    return {"item": _figure(theme, session.comparison(name)).item(), "bokeh": scripts(base_url)}


def _figure(theme: str, comparison: Comparison | None = None) -> ComparisonFigure:
    from workbench.figures.comparison import ComparisonFigure

    return ComparisonFigure(theme, comparison)
