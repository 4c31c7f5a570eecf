"""The totals of a figure, or the text of a Workbench, for pages without a kernel: GitHub, nbconvert, the docs.

It stays in the notebook, as an output of its own above the widget. The widget's page hides it as soon as the kernel
answers, and shows it instead of the widget if no kernel does; see labext/src/page/notebook.ts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import token_hex
from typing import Any

from IPython import get_ipython
from IPython.display import display, update_display

from workbench.figures.totals import Totals
from workbench.markup import fragment, tag

SHARE = 0.1
"""Largest share of the time for drawing while a page shows the figure: the user's cells have priority."""


class StaticOutput:
    """Static output of a figure, made at the end of its cell, and after each cell until it is final.

    Parameters
    ----------
    content
        Returns the output as HTML and as text.
    is_final
        Returns True if nothing more will come.
    is_shown
        Returns True if a page shows the figure itself, so that the output may be late.
    """

    def __init__(
        self, content: Callable[[], tuple[str, str]], is_final: Callable[[], bool], is_shown: Callable[[], bool]
    ) -> None:
        self.id = f"wb-static-{token_hex(6)}"
        self._content, self._is_final, self._is_shown = content, is_final, is_shown
        self._shell: Any = None
        self._next = 0.0

    def show(self) -> bool:
        """Reserve room in the output of the running cell; return False outside of a kernel."""
        shell = get_ipython()
        if getattr(shell, "kernel", None) is None:
            return False
        display({"text/html": "", "text/plain": ""}, raw=True, display_id=self.id)
        if self._shell is None:
            self._shell, self._next = shell, 0.0
            shell.events.register("post_run_cell", self._update)
        return True

    def _update(self, *_: object) -> None:
        is_final, began = self._is_final(), time.monotonic()
        if is_final:
            self._shell.events.unregister("post_run_cell", self._update)
            self._shell = None
        elif began < self._next and self._is_shown():
            return
        html, text = self._content()
        content = {"text/html": tag("div", html, id=self.id), "text/plain": text}
        update_display(content, display_id=self.id, raw=True)
        ended = time.monotonic()
        self._next = ended + (ended - began) / SHARE


def titled(title: str, totals: Totals) -> tuple[str, str]:
    """Return totals with a title, as HTML and as text."""
    summary = totals.summary()
    return fragment(tag("p", tag("b", title), f": {summary}."), totals.html()), f"{title}: {summary}."
