"""The catalogue of workloads: a form for each, what it needs, and Run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import panel as pn

from workbench.errors import BadInputError, WorkbenchError
from workbench.panels.forms import Form
from workbench.panels.look import (
    WIDGET,
    Notice,
    busy,
    button,
    card,
    code,
    consent,
    folded,
    html,
    prose,
    row,
    sentence,
    sentences,
    when_changed,
)

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.runs.store import Run
    from workbench.session import Session


class Workloads:
    """Choose a workload and its parameters, see what it needs, run it.

    Parameters
    ----------
    on_run
        Told of the run that begins.
    """

    def __init__(self, session: Session, on_run: Callable[[Run], Any]) -> None:
        self._session = session
        self._on_run = on_run
        self._forms: dict[str, Form] = {}
        self.shown = ""
        """Name of the workload whose form is shown."""
        titles = {template.title: template.name for template in session.workloads()}
        shared = {"width": 240} | WIDGET
        self.workload = pn.widgets.Select(label="Workload", options=titles, **shared)
        self.cluster = pn.widgets.Select(label="On cluster", options=[], **shared)
        self.notice = Notice()
        self.needs = html()
        self.run_button = button("Run", self.run, primary=True, disabled=True)
        self.calibrate_button = button("Calibrate", self.calibrate, visible=False)
        self.force = consent("Run it although it won't fit", visible=False)
        self._about = html()
        self._form = pn.Column(sizing_mode="stretch_width")
        self.preset = pn.widgets.Select(
            label="Preset", options={"none": ""}, max_width=488, sizing_mode="stretch_width", **WIDGET
        )
        when_changed(self.workload, self._show_workload)
        when_changed(self.cluster, self.refresh)
        when_changed(self.preset, self._use_preset)
        self.view = card(
            "Workload",
            row(self.workload, self.cluster),
            self._about,
            self._form,
            self.needs,
            row(self.run_button, self.calibrate_button, self.force),
            self.notice.view,
        )
        if titles:
            self._show_workload()

    @property
    def form(self) -> Form:
        """Form of the workload that is shown."""
        return self._forms[self.shown]

    def show(self, records: tuple[ClusterRecord, ...]) -> None:
        """Offer these clusters, those that are ready."""
        ready = [record.name for record in records if record.status == "ready"]
        if ready != self.cluster.options:
            chosen = self.cluster.value
            self.cluster.options = ready
            self.cluster.value = chosen if chosen in ready else next(iter(ready), None)
            self.run_button.disabled = not ready
            self.refresh()

    def values(self) -> dict[str, Any]:
        """Parameters as they are chosen."""
        return self.form.values() | ({"preset": self.preset.value} if self.preset.value else {})

    def refresh(self) -> None:
        """Say what the workload would need with these parameters."""
        self.notice.clear()
        if not self.shown:
            return
        self.needs.object = ""
        try:
            found = self._session.needs(self.shown, self.values(), self.cluster.value)
        except WorkbenchError as err:
            missing = not self.values()
            self.notice.say(str(err), "muted" if missing else "bad")
            return
        self.run_button.disabled = self.cluster.value is None or found.verdict == "can't run"
        self.calibrate_button.visible = found.calibrate
        # A yes to one choice of parameters is none to the next.
        self.force.visible, self.force.value = found.verdict == "won't fit", False
        where = "" if self.cluster.value else sentence("No cluster is ready: start one to run this.", "muted")
        self.needs.object = (
            sentence(found.sentence, "bad" if found.fits is False else "muted" if found.fits is None else "good")
            + sentences(*found.notes, tone="muted")
            + (folded("Show code", code(found.cell)) if found.cell else "")
            + where
        )

    async def run(self) -> None:
        """Run the chosen workload on the chosen cluster."""
        with busy(self.run_button), self.notice.telling():
            if self.cluster.value is None:
                raise BadInputError("No cluster is ready. Start one first.")
            values = self.values()
            chosen = self.shown, values, self.cluster.value
            run = await asyncio.to_thread(self._session.run, *chosen, force=self.force.value)
            self._on_run(run)

    async def calibrate(self) -> None:
        """Measure the chosen cluster, so that the forecast can tell how long it takes."""
        with busy(self.calibrate_button), self.notice.telling():
            if self.cluster.value is None:
                raise BadInputError("No cluster is ready. Start one first.")
            self.notice.say(f"Measuring {self.cluster.value}, some seconds …")
            found = await self._session.calibrate_apart(self.cluster.value)
            self.refresh()
            self.notice.say(f"Measured: {found.describe()}.", "good")

    def _use_preset(self) -> None:
        """Begin from what somebody has used before, or from the defaults."""
        chosen = self._session.workload(self.shown)
        theirs = chosen.preset(self.preset.value).parameters if self.preset.value else {}
        # How large it is follows from the scale, or from what is typed into one of these.
        open_ = dict.fromkeys(("size", "shape", "chunks"), "") if theirs else {}
        self.form.begin_from(**{**theirs, **open_})
        self.refresh()

    def _show_workload(self) -> None:
        template = self._session.workload(self.workload.value)
        if template.name not in self._forms:
            schema = template.schema()
            # Presets have a field of their own, with titles.
            schema["properties"].pop("preset", None)
            self._forms[template.name] = Form(schema, self.refresh)
        self.shown = template.name
        self._about.object = (
            prose(template.summary)
            + folded("About it", f'<pre class="help">{escape(template.help)}</pre>')
            + folded("Source", code(template.source))
        )
        self.preset.options = {"none": ""} | {each.title: each.name for each in template.presets}
        self.preset.value = ""
        self.preset.visible = bool(template.presets)
        self._form.objects = [self.preset, self.form.view]
        self.refresh()
