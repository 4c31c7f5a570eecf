"""GPUs of this machine as HTML: bars of use and memory, processes that hold them, boxes to choose them. No Bokeh."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import psutil
from markupsafe import Markup

from workbench.formats import listed, size
from workbench.hardware import Gpu, Inventory
from workbench.hardware.gauges import GpuSample, silent
from workbench.markup import fragment, joined, meter, paragraph, tag

HELD_BACK = ("power cap", "hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake")
"""Reasons for a lower clock that cost speed; the others are harmless."""

_SILENT = silent("", "none has come yet")

_SHOWN = {"utilisation": "use", "memory_used": "memory", "power": "power", "temperature": "temperature"}
"""Fields of a sample that a row shows, and their names there."""


class Choice(NamedTuple):
    """Options for choosing GPUs: one or several, and the proposed ones."""

    one: bool
    proposed: Container[str]
    name: str = "devices"
    """Name of the form field."""


def gpu_list(
    inventory: Inventory,
    gauges: Mapping[str, GpuSample],
    *,
    place: str,
    choice: Choice | None = None,
) -> Markup:
    """Return a row for each GPU and each MIG slice with its current activity, by UUID.

    `place` distinguishes this list from others on the page. With a `choice`, each visible GPU has a box to choose it.
    """
    rows = [(each, gauges.get(each.uuid, _SILENT)) for gpu in inventory.gpus for each in _devices(gpu)]
    if not rows:
        return Markup("")
    # A GPU with slices has its use and memory in the slices.
    absent = {device.called: _row_reasons(gauge) for device, gauge in rows if device.choosable}
    items = [_item(device, gauge, place, choice) for device, gauge in rows]
    if below := fragment(*map(paragraph, absences(absent))):
        items.append(tag("li", below, class_="wb-Gpu", style="grid-column: 1 / -1"))
    return tag("ul", *items, class_="wb-Gpus", data_workbench=f"gpus-{place}")


def absences(absent: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield what can't be read of GPUs, and why, grouped by reason.

    `absent` has, for each GPU, the reasons by the names of the values.
    """
    whose: dict[tuple[str, str], list[str]] = defaultdict(list)
    for gpu, reasons in absent.items():
        for name, reason in reasons.items():
            whose[name, reason].append(gpu)
    names: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (name, reason), gpus in whose.items():
        names[reason, tuple(gpus)].append(name)
    for (reason, some), missing in names.items():
        of = "" if len(some) == len(absent) else f" ({', '.join(some)})"
        yield f"No {listed(missing)}{of}: {reason.removesuffix('.')}."


def gpu_names(inventory: Inventory) -> str:
    """Return the names of a machine's GPUs and how many of each there are; '' without any."""
    # The number of a simulated device is part of its name.
    names = Counter((gpu.name or "GPU").removesuffix(f" {gpu.index}") for gpu in inventory.gpus)
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in names.items())


def numbered(sample: GpuSample, others: Iterable[GpuSample]) -> str:
    """Return the number of a GPU, or of a slice among the reporting slices of its GPU: '0', '0:1'."""
    if not sample.uuid.startswith("MIG-"):
        return str(sample.index)
    same = {each.uuid for each in others if (each.host, each.index) == (sample.host, sample.index)}
    return f"{sample.index}:{sorted(same).index(sample.uuid)}"


class _Device(NamedTuple):
    label: str
    name: str
    uuid: str
    total: int | None = None
    power_limit: float | None = None
    visible: bool = True
    choosable: bool = True

    @property
    def called(self) -> str:
        return f"{'slice' if self.uuid.startswith('MIG-') else 'GPU'} {self.label}"


def _devices(gpu: Gpu) -> Iterator[_Device]:
    name = gpu.name or "GPU"
    # Workers run on the slices of a GPU, not on the GPU itself.
    yield _Device(str(gpu.index), name, gpu.uuid or "", gpu.memory_total, gpu.power_limit, gpu.visible, not gpu.mig)
    for number, part in enumerate(gpu.slices):
        label = f"{gpu.index}:{number}"
        yield _Device(label, part.name or name, part.uuid or "", part.memory_total, visible=part.visible)


def _item(device: _Device, gauge: GpuSample, place: str, choice: Choice | None) -> Markup:
    # The name of a simulated device ends with its number.
    label = device.name if f" {device.name}".endswith(f" {device.label}") else f"{device.label} · {device.name}"
    limit = None if device.power_limit is None else f"May draw {device.power_limit:.0f} W."
    condition = (
        None if gauge.power is None else f"{gauge.power:.0f} W",
        None if gauge.temperature is None else f"{gauge.temperature:.0f} °C",
    )
    return tag(
        "li",
        tag(
            "label",
            _box(device, choice),
            tag("span", label, class_="wb-Gpu-name", title=f"{device.name}, {device.uuid}"),
            tag("span", joined(condition), class_="wb-Muted", title=limit),
        ),
        _bars(label, device, gauge),
        *_notes(device, gauge),
        id=f"wb-{place}-{device.uuid or device.label}",
        class_="wb-Gpu" if device.visible else "wb-Gpu wb-mod-hidden",
        data_workbench=f"gpu-{device.label}",
    )


def _box(device: _Device, choice: Choice | None) -> Markup:
    if choice is None or not device.choosable:
        return Markup("")
    return tag(
        "input",
        type="radio" if choice.one else "checkbox",
        name=choice.name,
        value=device.uuid,
        checked=device.uuid in choice.proposed,
        disabled=not (device.visible and device.uuid),
        data_list=True,
        data_workbench=f"choose-{device.label}",
    )


def _bars(label: str, device: _Device, gauge: GpuSample) -> Markup:
    bars = []
    if gauge.utilisation is not None:
        bars.append(meter(f"Use of {label}", round(gauge.utilisation), 100, f"{gauge.utilisation:.0f} %"))
    total = gauge.memory_total or device.total
    if gauge.memory_used is not None and total:
        free = f"{size(max(0, total - gauge.memory_used))} free"
        about = f"Memory of {label}: {size(gauge.memory_used)} of {size(total)} taken"
        bars.append(meter(about, gauge.memory_used, total, free, memory=True))
    return tag("div", *bars, class_="wb-Gpu-bars") if bars else Markup("")


def _notes(device: _Device, gauge: GpuSample) -> Iterator[Markup]:
    if not device.visible:
        yield paragraph("Hidden by CUDA_VISIBLE_DEVICES.")
    holders = [
        f"{_process_name(pid)}{f' holds {size(memory)}' if memory else ''}" for pid, memory in gauge.processes or ()
    ]
    yield paragraph(", ".join(holders))


def _process_name(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()} ({pid})"
    except psutil.Error:
        return f"process {pid}"


def _row_reasons(gauge: GpuSample) -> dict[str, str]:
    """Return why a row lacks values, by name: 'reading' for all of them together."""
    reasons = gauge.reasons(_SHOWN)
    alike = len(reasons) == len(_SHOWN) and len(set(reasons.values())) == 1
    return {"reading": next(iter(reasons.values()))} if alike else reasons
