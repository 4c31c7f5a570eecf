"""What this machine has, the four profiles, and the form from which a cluster is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import panel as pn
from dask.utils import format_bytes

from workbench.errors import WorkbenchError
from workbench.panels.forms import Form
from workbench.panels.look import STYLE, Notice, busy, button, card, code, folded, html, row, sentence, sentences

if TYPE_CHECKING:
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
        from workbench.clusters.plan import ClusterChoices

        self._session = session
        self._on_start = on_start
        self.profile = "cpu"
        self.profiles: dict[str, pn.widgets.Button] = {}
        self.form = Form(ClusterChoices.model_json_schema(), self.refresh)
        self.name = pn.widgets.TextInput(
            label="Name",
            placeholder="left out: one is found",
            width=200,
            margin=(2, 4),
            stylesheets=[STYLE],
        )
        self.plan = html()
        self.notice = Notice()
        self.start_button = button("Start", self.start, primary=True)
        self.force = pn.widgets.Checkbox(
            label="beyond the memory budget", value=False, margin=(8, 4), stylesheets=[STYLE]
        )
        self._summary = html()
        self._offered = pn.Column(sizing_mode="stretch_width")
        self.view = card(
            "Hardware",
            self._summary,
            self._offered,
            pn.Card(
                row(self.name, self.form.view),
                title="Workers, threads, memory …",
                collapsed=True,
                sizing_mode="stretch_width",
                margin=(4, 8),
                stylesheets=[STYLE],
                css_classes=["fold"],
            ),
            self.plan,
            row(self.start_button, self.force),
            self.notice.view,
        )
        self._show_hardware()
        self.refresh()

    def choose(self, profile: str) -> None:
        """Have this profile chosen."""
        self.profile = profile
        for name, each in self.profiles.items():
            each.color = "primary" if name == profile else "default"
        self.refresh()

    def refresh(self) -> None:
        """Plan anew, and show what would start."""
        text = ""
        # That no memory is left for another cluster is no fault of somebody who asked for nothing.
        with self.notice.telling("bad" if self.form.values() else "muted"):
            text = _explained(self._spec())
        if text != self.plan.object:
            self.plan.object = text

    async def start(self) -> None:
        """Start the cluster that is planned."""
        with busy(self.start_button), self.notice.telling():
            spec = self._spec()
            name = self.name.value.strip() or None
            record = await asyncio.to_thread(self._session.start, spec, name=name, force=self.force.value)
            self.name.value = ""
            self._on_start(record)

    def _spec(self) -> ClusterSpec:
        return self._session.plan(self.profile, **self.form.values())

    def _show_hardware(self) -> None:
        try:
            self._summary.object = _summary(self._session.hardware())
            offered = self._session.profiles()
        except WorkbenchError as err:
            self._summary.object = sentence(str(err), "bad")
            return
        self._offered.objects = [self._line(profile) for profile in offered]

    def _line(self, profile: Profile) -> pn.Row:
        self.profiles[profile.name] = button(
            profile.title,
            lambda: self.choose(profile.name),
            primary=profile.name == self.profile,
            disabled=not profile.available,
            width=90,
        )
        return pn.Row(self.profiles[profile.name], html(sentence(profile.reason or profile.summary, "muted")), margin=0)


def _summary(inventory: Inventory) -> str:
    cpu, memory = inventory.cpu, inventory.memory
    parts = [
        cpu.model or "Processor unknown",
        f"{cpu.usable} of {cpu.threads} threads may be used" if cpu.threads else f"{cpu.usable} threads may be used",
        f"{format_bytes(memory.limit)} of memory",
    ]
    parts += [
        f"GPU {gpu.index}: {gpu.name}" + (f", {format_bytes(gpu.memory_total)}" if gpu.memory_total else "")
        for gpu in inventory.gpus
    ]
    parts += [] if inventory.gpus else ["no GPU"]
    unread = "".join(
        f"<li><code>{escape(name)}</code> {escape(reason)}</li>" for name, reason in inventory.missing.items()
    )
    return sentence(" · ".join(parts)) + (
        folded("What couldn't be read, and why", f"<ul>{unread}</ul>") if unread else ""
    )


def _explained(spec: ClusterSpec) -> str:
    return (
        f'<p class="name">{escape(spec.describe())}</p>'
        + folded("Why", sentences(*spec.why, tone="muted"))
        + "".join(sentence(why, "bad") for why in spec.why if why.startswith("Warning"))
        + folded("Show code", code(spec.code()))
    )
