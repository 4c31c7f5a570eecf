"""The GPUs of a machine as HTML: bars of use and memory, who holds it, and boxes to choose them by. No Bokeh."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from html import escape
from typing import NamedTuple

from workbench.figures.markup import joined, meter, paragraph, size, tag
from workbench.hardware import Gpu, GpuSlice, Inventory
from workbench.hardware.gauges import Gauge

_GIVEN_UP = Gauge(uuid="", missing={"all": "No reading has come yet."})


class Choice(NamedTuple):
    """How GPUs are chosen: one or several, and which are proposed."""

    one: bool
    proposed: Container[str]


def gpu_list(
    inventory: Inventory,
    gauges: Mapping[str, Gauge],
    *,
    place: str,
    choice: Choice | None = None,
    only: Container[str] | None = None,
    process_name: Callable[[int], str] = lambda pid: f"process {pid}",
) -> str:
    """Return a row for each GPU and each MIG slice.

    Parameters
    ----------
    gauges
        What each does at this moment, by UUID.
    place
        Word that tells this list from others on the page.
    choice
        Gives each GPU in sight a box, with which it is chosen for a cluster.
    only
        UUIDs to show; all where None.
    process_name
        Name of a process that holds memory, by its pid.
    """
    rows = [
        _row(device, gauges.get(device.uuid, _GIVEN_UP), place, choice, process_name)
        for gpu in inventory.gpus
        for device in _devices(gpu)
        if only is None or device.uuid in only
    ]
    return tag("ul", *rows, class_="wb-Gpus", data_workbench=f"gpus-{place}") if rows else ""


class _Device(NamedTuple):
    label: str
    name: str
    uuid: str
    total: int | None
    power_limit: float | None
    visible: bool
    choosable: bool


def _devices(gpu: Gpu) -> Iterator[_Device]:
    name = gpu.name or "GPU"
    # A GPU that is cut into slices has no worker itself.
    yield _Device(str(gpu.index), name, gpu.uuid or "", gpu.memory_total, gpu.power_limit, gpu.visible, not gpu.mig)
    for number, part in enumerate(gpu.slices):
        yield _slice(f"{gpu.index}:{number}", name, part)


def _slice(label: str, name: str, part: GpuSlice) -> _Device:
    return _Device(label, part.name or name, part.uuid or "", part.memory_total, None, part.visible, True)


def _row(device: _Device, gauge: Gauge, place: str, choice: Choice | None, process_name: Callable[[int], str]) -> str:
    # The name of a simulated device ends with its number.
    label = device.name if device.name.endswith(f" {device.label}") else f"{device.label} · {device.name}"
    return tag(
        "li",
        tag(
            "label",
            _box(device, choice),
            tag("span", escape(label), class_="wb-Gpu-name", title=f"{device.name}, {device.uuid}"),
            tag("span", _condition(gauge), class_="wb-Muted", title=_limit(device)),
        ),
        _bars(label, device, gauge),
        *_notes(device, gauge, process_name),
        id=f"wb-{place}-{device.uuid or device.label}",
        class_="wb-Gpu" if device.visible else "wb-Gpu wb-mod-hidden",
        data_workbench=f"gpu-{device.label}",
    )


def _box(device: _Device, choice: Choice | None) -> str:
    if choice is None or not device.choosable:
        return ""
    return tag(
        "input",
        type="radio" if choice.one else "checkbox",
        name="devices",
        value=device.uuid,
        checked=device.uuid in choice.proposed,
        disabled=not (device.visible and device.uuid),
        data_choice=True,
        data_workbench=f"choose-{device.label}",
    )


def _limit(device: _Device) -> str | None:
    return None if device.power_limit is None else f"May draw {device.power_limit:.0f} W."


def _condition(gauge: Gauge) -> str:
    return joined(
        (
            None if gauge.power is None else f"{gauge.power:.0f} W",
            None if gauge.temperature is None else f"{gauge.temperature} °C",
        )
    )


def _bars(label: str, device: _Device, gauge: Gauge) -> str:
    bars = []
    if gauge.use is not None:
        bars.append(meter(f"Use of {label}", gauge.use, 100, f"{gauge.use} %"))
    total = gauge.memory_total or device.total
    if gauge.memory_used is not None and total:
        free = f"{size(max(0, total - gauge.memory_used))} free"
        about = f"Memory of {label}: {size(gauge.memory_used)} of {size(total)} taken"
        bars.append(meter(about, gauge.memory_used, total, free, memory=True))
    return tag("div", *bars, class_="wb-Gpu-bars") if bars else ""


def _notes(device: _Device, gauge: Gauge, process_name: Callable[[int], str]) -> Iterator[str]:
    if not device.visible:
        yield paragraph("Hidden by CUDA_VISIBLE_DEVICES.")
    holders = [
        f"{process_name(each.pid)}{f' holds {size(each.memory)}' if each.memory else ''}"
        for each in gauge.processes or ()
    ]
    yield paragraph(", ".join(holders))
    reasons = dict.fromkeys(gauge.missing[name] for name in ("all", "use", "memory") if name in gauge.missing)
    # One that is cut up has its use and memory in its slices.
    if device.choosable:
        yield from (paragraph(reason) for reason in reasons)
