"""Compare architectures in a notebook: a form, the chart and table as they grow, and what was compared before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import panel as pn

from workbench.errors import BadInputError
from workbench.panels.live import Figure
from workbench.panels.look import STYLE, Notice, busy, button, card, html, row, sentence, when_changed
from workbench.views.comparing import document, watch_comparison

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.session import Session

_SHOWN = 20
_EXAMPLE = "cpu --workers 1 --threads 1\ncpu --workers 2 --threads 1"


class Compared(Figure):
    """Chart and table of one comparison, which grow with it.

    Parameters
    ----------
    comparison
        Its id, the only beginning or end of one, or "last".
    options
        `theme` and `inline`, as of `Figure`.

    Examples
    --------
    >>> Compared("last")
    """

    def __init__(self, comparison: str = "last", *, session: Session | None = None, **options: Any) -> None:
        from workbench.session import Session

        self._session = session or Session()
        self._id = self._session.comparison(comparison).id
        super().__init__("comparison", self._id, **options)

    @property
    def comparison(self) -> Comparison:
        """The comparison as it is now."""
        return self._session.comparison(self._id)

    async def _begin(self, theme: str, on_change: Callable[[], None]) -> Any:
        return await watch_comparison(self._session, self._id, theme, on_change)

    def _document(self, theme: str) -> dict[str, Any]:
        return document(self._session, self._id, theme, "")


class Compare:
    """Choose a workload and clusters, compare, see chart and table."""

    def __init__(self, session: Session, theme: str | None = None) -> None:
        self._session = session
        self._theme = theme
        self.shown: Compared | None = None
        self.notice = Notice()
        shared = {"margin": (2, 4), "stylesheets": [STYLE]}
        titles = {template.title: template.name for template in session.workloads()}
        self.workload = pn.widgets.Select(label="Workload", options=titles, width=240, **shared)
        self.on = pn.widgets.TextAreaInput(
            label="On, one a line (none: as a preset has it)",
            value=_EXAMPLE,
            rows=3,
            sizing_mode="stretch_width",
            **shared,
        )
        self.parameters = pn.widgets.TextInput(
            label="Parameters", placeholder="size=0.5GiB or preset=post", width=200, **shared
        )
        self.sweep = pn.widgets.TextInput(label="Sweep", placeholder="workers=1,2,4", width=160, **shared)
        self.repeats = pn.widgets.IntInput(label="Repeats", value=5, start=1, width=80, **shared)
        self.weak = pn.widgets.Checkbox(label="Size grows with the workers swept", **shared)
        self.agreed = pn.widgets.Checkbox(label="agreed: the network is trusted, for UCX", **shared)
        self.agreed.visible = session.hardware().ucx.installed
        self.earlier = pn.widgets.Select(label="Earlier", options={"": ""}, width=240, **shared)
        self.compare_button = button("Compare", self.compare, primary=True)
        self.cancel_button = button("Cancel", self.cancel, visible=False)
        self._figure = pn.Column(sizing_mode="stretch_width")
        when_changed(self.earlier, self._show_earlier)
        self.view = card(
            "Compare",
            html(sentence("Each cluster is measured in turn, round after round.", "muted")),
            row(self.workload, self.parameters, self.sweep, self.repeats),
            self.on,
            row(self.compare_button, self.cancel_button, self.weak, self.agreed, self.earlier),
            self.notice.view,
            self._figure,
        )
        self.refresh()

    async def compare(self) -> None:
        """Start to compare what the form says."""
        with busy(self.compare_button), self.notice.telling():
            given = {
                "on": self.on.value,
                "sweep": self.sweep.value,
                "repeats": self.repeats.value,
                "weak": self.weak.value,
            }
            asked = {name: value for name, value in given.items() if value not in ("", None, False)}
            await self.begin(self.workload.value, self.parameters.value, **asked)

    async def begin(
        self, workload: str, parameters: Mapping[str, Any] | str | None = None, **options: Any
    ) -> Comparison:
        """Start a comparison and show it."""
        started = await asyncio.to_thread(
            self._session.compare, workload, parameters, agreed=self.agreed.value, **options
        )
        self.refresh()
        self.show(started.id)
        return started

    async def cancel(self) -> None:
        """End the comparison that is shown; what it measured is kept."""
        with busy(self.cancel_button), self.notice.telling():
            if self.shown is None:
                raise BadInputError("No comparison is shown.")
            await self._session.cancel_comparison(self.shown.comparison.id)

    def show(self, comparison: str) -> None:
        """Show a comparison as it grows."""
        self.hide()
        self.shown = Compared(comparison, session=self._session, theme=self._theme)
        self._figure.objects = [self.shown.__panel__()]
        self.refresh()

    def hide(self) -> None:
        """Show none."""
        shown, self.shown = self.shown, None
        self._figure.objects = []
        if shown is not None:
            shown.close()

    def refresh(self) -> None:
        """List what was compared before, and offer to cancel what goes on."""
        found = self._session.comparisons(limit=_SHOWN)
        options = {"": "", **{f"{each.workload}, {each.id.rpartition('-')[2]}": each.id for each in found}}
        if options != self.earlier.options:
            chosen = self.earlier.value
            self.earlier.options = options
            self.earlier.value = chosen if chosen in options.values() else ""
        active = {each.id for each in found if each.active}
        self.cancel_button.visible = self.shown is not None and self.shown.comparison.id in active

    def _show_earlier(self) -> None:
        if self.earlier.value:
            with self.notice.telling():
                self.show(self.earlier.value)
