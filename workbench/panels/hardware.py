"""What this machine has, the four profiles, and the form from which a cluster is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import panel as pn

from workbench import formats
from workbench.errors import WorkbenchError
from workbench.panels.forms import Form
from workbench.panels.look import (
    STYLE,
    WIDGET,
    Notice,
    busy,
    button,
    card,
    code,
    consent,
    folded,
    html,
    row,
    sentence,
    sentences,
    when_changed,
)

if TYPE_CHECKING:
    from workbench.clusters.devices import Device
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.hardware import Inventory, Profile
    from workbench.session import Session


class Hardware:
    """Choose a profile, see the plan, start the cluster.

    Parameters
    ----------
    on_start
        Told of the record of a cluster that begins to start.
    """

    def __init__(self, session: Session, on_start: Callable[[ClusterRecord], Any]) -> None:
        self._session = session
        self._on_start = on_start
        self.profile = "cpu"
        self.profiles: dict[str, pn.widgets.Button] = {}
        self.form = self._form()
        self.picker = GpuPicker(self.refresh)
        self._fields = pn.Column(self.form.view, sizing_mode="stretch_width")
        self.name = pn.widgets.TextInput(
            label="Name",
            placeholder="left out: one is found",
            width=200,
            **WIDGET,
        )
        self.plan = html()
        self.notice = Notice()
        self.start_button = button("Start", self.start, primary=True)
        self.force = consent("beyond the memory budget")
        self.consent = consent("agreed: the network is trusted", visible=False)
        self._summary = html()
        self._offered = pn.Column(sizing_mode="stretch_width")
        self.view = card(
            "Hardware",
            self._summary,
            self._offered,
            self.picker.view,
            pn.Card(
                self.name,
                self._fields,
                title="Workers, threads, memory …",
                collapsed=True,
                sizing_mode="stretch_width",
                margin=(4, 8),
                stylesheets=[STYLE],
                css_classes=["fold"],
            ),
            self.plan,
            row(self.start_button, self.force, self.consent),
            self.notice.view,
        )
        self.simulated = False
        """Whether its GPUs are simulated, which every title says."""
        self._show_hardware()
        self.refresh()

    def choose(self, profile: str) -> None:
        """Have this profile chosen."""
        self.profile = profile
        for name, each in self.profiles.items():
            each.color = "primary" if name == profile else "default"
        self.form = self._form()
        self._fields.objects = [self.form.view]
        self._show_gpus()
        self.refresh()

    async def follow(self) -> None:
        """Read anew what moves by itself: use and memory of the GPUs. Nothing where there is none."""
        if self.picker.has_gpus:
            self.picker.show(await asyncio.to_thread(_bars, self._session.hardware()))

    def refresh(self) -> None:
        """Plan anew, and show what would start."""
        from workbench.clusters.plan import consent as asked

        text = ""
        # That no memory is left for another cluster is no fault of somebody who asked for nothing.
        with self.notice.telling("bad" if self.form.values() else "muted"):
            chosen = self.picker.values()
            spec = self._spec(chosen)
            # A click may have come in between, and its own plan follows.
            if chosen == self.picker.values():
                self.picker.mark(spec.devices)
            self.consent.visible = asked(spec) is not None
            text = _explained(spec)
        if text != self.plan.object:
            self.plan.object = text

    async def start(self) -> None:
        """Start the cluster that is planned."""
        with busy(self.start_button), self.notice.telling():
            spec = self._spec(self.picker.values())
            name = self.name.value.strip() or None
            record = await asyncio.to_thread(
                self._session.start, spec, name=name, force=self.force.value, agreed=self.consent.value
            )
            self.name.value = ""
            self._on_start(record)

    def _spec(self, devices: Mapping[str, str]) -> ClusterSpec:
        return self._session.plan(self.profile, **devices, **self.form.values())

    def _form(self) -> Form:
        from workbench.clusters.plan import choices_of

        schema = choices_of(self.profile, self._session.hardware()).model_json_schema()
        # The GPUs have boxes of their own.
        schema["properties"].pop("devices", None)
        return Form(schema, self.refresh)

    def _show_gpus(self) -> None:
        from workbench.clusters.devices import devices_of
        from workbench.clusters.plan import has_gpus

        inventory = self._session.hardware()
        offered = devices_of(inventory) if has_gpus(self.profile, inventory) else ()
        self.picker.offer(inventory, offered, one=self.profile == "gpu")

    def _show_hardware(self) -> None:
        try:
            inventory = self._session.hardware()
            self.simulated = inventory.simulated
            self._summary.object = _summary(inventory)
            offered = self._session.profiles(inventory)
        except WorkbenchError as err:
            self._summary.object = sentence(str(err), "bad")
            return
        self._offered.objects = [self._line(profile) for profile in offered]
        self._show_gpus()

    def _line(self, profile: Profile) -> pn.Row:
        self.profiles[profile.name] = button(
            profile.title,
            lambda: self.choose(profile.name),
            primary=profile.name == self.profile,
            disabled=not profile.available,
            width=90,
        )
        return pn.Row(self.profiles[profile.name], html(sentence(profile.reason or profile.summary, "muted")), margin=0)


class GpuPicker:
    """Bars of the GPUs, and boxes by which those of a cluster are chosen.

    Parameters
    ----------
    on_change
        Called after a person has chosen.
    """

    def __init__(self, on_change: Callable[[], Any]) -> None:
        # As wide as its card, or a row of eight would run out of it.
        self.boxes = pn.widgets.CheckBoxGroup(
            options={}, inline=True, visible=False, margin=(2, 8), sizing_mode="stretch_width", stylesheets=[STYLE]
        )
        self._bars = html()
        self.has_gpus = False
        self._one = False
        self._planned: list[str] = []
        self.view = pn.Column(self._bars, self.boxes, sizing_mode="stretch_width")
        when_changed(self.boxes, on_change)

    def offer(self, inventory: Inventory, devices: Sequence[Device], *, one: bool) -> None:
        """Show these devices to choose from; none hides the boxes."""
        self.has_gpus, self._one = bool(inventory.gpus), one
        self._planned = []
        self.boxes.param.update(value=[], options={f"GPU {device.label}": device.uuid for device in devices})
        self.boxes.visible = bool(devices)
        if self.has_gpus:
            self.show(_bars(inventory))

    def mark(self, planned: Sequence[str]) -> None:
        """Check the boxes of what is planned, where nobody chose otherwise."""
        if not self.boxes.visible:
            return
        if not self.values():
            self._planned = list(planned)
            self.boxes.value = self._planned
        elif self._one:
            self.boxes.value = list(planned)

    def values(self) -> dict[str, str]:
        """Return the choice, as a plan takes it; nothing where it is what was proposed."""
        chosen = list(self.boxes.value)
        if not chosen or set(chosen) == set(self._planned):
            return {}
        if self._one:
            # Of several boxes the one that was not there before counts.
            chosen = [uuid for uuid in chosen if uuid not in self._planned][:1] or chosen
        return {"devices": ",".join(chosen)}

    def show(self, bars: str) -> None:
        """Show these bars."""
        if bars != self._bars.object:
            self._bars.object = bars


def _bars(inventory: Inventory) -> str:
    from workbench.figures.gpus import gpu_list
    from workbench.hardware.gauges import Gauges

    with Gauges(inventory.gpus) as gauges:
        return gpu_list(inventory, gauges.read(), place="machine")


def _summary(inventory: Inventory) -> str:
    from workbench.figures.gpus import gpu_names

    cpu, memory = inventory.cpu, inventory.memory
    parts = [
        cpu.model or "Processor unknown",
        f"{cpu.usable} of {cpu.threads} threads may be used" if cpu.threads else f"{cpu.usable} threads may be used",
        f"{formats.size(memory.limit)} of memory",
    ]
    parts += [gpu_names(inventory) or "no GPU"]
    unread = "".join(
        f"<li><code>{escape(name)}</code> {escape(reason)}</li>" for name, reason in inventory.missing.items()
    )
    return sentence(" · ".join(parts)) + (
        folded("What couldn't be read, and why", f"<ul>{unread}</ul>") if unread else ""
    )


def _explained(spec: ClusterSpec) -> str:
    warnings = [why for why in spec.why if why.startswith("Warning")]
    return (
        f'<p class="name">{escape(spec.describe())}</p>'
        + folded("Why", sentences(*(why for why in spec.why if why not in warnings), tone="muted"))
        + sentences(*warnings, tone="bad")
        + folded("Show code", code(spec.code()))
    )
