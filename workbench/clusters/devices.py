"""GPUs for a cluster: which are available, which are proposed, and which are refused before a start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workbench import formats
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, quoted
from workbench.hardware import Inventory

LEAST_FREE = 2**30
"""Bytes. A CUDA context and the libraries' kernels use about half of it before there is any data."""

_FEW = 3
_IDLE_FREE = 0.5
"""Minimum share of free memory on an idle GPU; with less, it is taken to be in use."""


class Device(NamedTuple):
    """A device for one worker: a GPU, or a slice of one (MIG)."""

    label: str
    """Index of the GPU, '0'; of a slice '0:1'."""
    uuid: str
    name: str
    total: int | None
    free: int | None
    use: int
    """GPU utilization of the last moment, in percent; 0 if unknown."""
    is_slice: bool = False

    def __str__(self) -> str:
        if self.free is None or self.total is None:
            return f"{self.label} ({self.name})"
        return f"{self.label} ({self.name}, {formats.size(self.free)} of {formats.size(self.total)} free)"


def devices_of(inventory: Inventory) -> tuple[Device, ...]:
    """Return the GPUs and slices available to workers, in NVML's order. A sliced GPU isn't listed itself."""
    devices = []
    for gpu in inventory.visible_gpus():
        name = gpu.name or "GPU"
        if gpu.mig:
            devices += [
                Device(f"{gpu.index}:{n}", each.uuid, each.name or name, each.memory_total, each.memory_free, 0, True)
                for n, each in enumerate(gpu.slices)
                if each.uuid is not None and each.visible
            ]
        elif gpu.uuid is not None:
            use = gpu.utilisation or 0
            devices.append(Device(str(gpu.index), gpu.uuid, name, gpu.memory_total, gpu.memory_free, use))
    return tuple(devices)


def pick(
    inventory: Inventory, wanted: str | None = None, n_workers: int | None = None, most: int | None = None
) -> tuple[tuple[Device, ...], str]:
    """Return devices for a cluster, one per worker, and a message that explains the choice.

    `wanted` are indices or UUIDs separated by commas. Without it and `n_workers`, the idle devices are picked, or all
    if none is idle, `most` at most. Raises BadInputError for an unknown device, the wrong number of them, or
    whole GPUs mixed with slices.
    """
    devices = devices_of(inventory)
    if not devices:
        raise BadInputError("No GPU is left to choose from. See CUDA_VISIBLE_DEVICES, and what nvidia-smi says.")
    usable = _wanted(wanted, devices) if wanted is not None else _idle(devices) if n_workers is None else devices
    number = n_workers or min(len(usable), most or len(usable))
    if number > len(usable):
        verb = "there is" if len(usable) == 1 else "there are"
        raise BadInputError(
            f"n_workers is {number}, and a worker has a GPU of its own: {verb} {_listed(usable)}. "
            f"Give at most {len(usable)}."
        )
    picked = usable if number == len(usable) else _idlest(usable, number)
    _check_kinds(picked)
    return picked, _why(picked, usable, devices, was_chosen=wanted is not None)


def proposed(inventory: Inventory, most: int | None) -> frozenset[str]:
    """Return the UUIDs of the devices that a cluster gets by default; empty if there is nothing to propose."""
    try:
        return frozenset(device.uuid for device in pick(inventory, most=most)[0])
    except BadInputError:
        return frozenset()


def check(spec: ClusterSpec, inventory: Inventory) -> None:
    """Raise ConflictError if a device of a spec has too little free memory at this moment.

    Raises BadInputError if one isn't there, whole GPUs are mixed with slices, or a size exceeds the card's memory.
    """
    by_uuid = {device.uuid: device for device in devices_of(inventory)}
    absent = [uuid for uuid in spec.devices if uuid not in by_uuid]
    if absent:
        raise BadInputError(f"devices has {quoted(absent[0])}, which isn't there. {_choose(tuple(by_uuid.values()))}")
    devices = [by_uuid[uuid] for uuid in spec.devices]
    _check_kinds(devices)
    for device in devices:
        _check_size("rmm_pool_size", spec.rmm_pool_size, device)
        _check_size("device_memory_limit", spec.device_memory_limit, device)
        _check_free(device, max(LEAST_FREE, spec.rmm_pool_size or 0), tuple(by_uuid.values()))


def _wanted(text: str, all_devices: tuple[Device, ...]) -> tuple[Device, ...]:
    names = [name.strip() for name in text.split(",")]
    by_name = {device.label: device for device in all_devices} | {device.uuid: device for device in all_devices}
    for name in names:
        if name not in by_name:
            raise BadInputError(f"devices has {quoted(name)}, which isn't there. {_choose(all_devices)}")
    devices = tuple(by_name[name] for name in names)
    if len(set(devices)) < len(devices):
        raise BadInputError(f"devices is {quoted(text)}, which names a GPU twice, and a worker has one of its own.")
    return devices


def _idle(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices with enough free memory; all of them if none is idle, or if that is unknown."""
    idle = tuple(
        device
        for device in devices
        if device.free is None or device.total is None or device.free >= _IDLE_FREE * device.total
    )
    return idle or devices


def _idlest(devices: Sequence[Device], number: int) -> tuple[Device, ...]:
    """Return the devices with the most free memory, then the lowest utilization, in their own order."""
    order = sorted(devices, key=lambda device: (-(device.free or 0), device.use))
    best = order[:number]
    return tuple(device for device in devices if device in best)


def _check_kinds(devices: Sequence[Device]) -> None:
    if len({device.is_slice for device in devices}) > 1:
        whole = ",".join(device.label for device in devices if not device.is_slice)
        raise BadInputError(
            f"Whole GPUs and slices (MIG) can't be mixed in one cluster: {_listed(devices)}. "
            f"Choose of one kind, such as the devices {whole}."
        )


def _check_size(name: str, size: int | None, device: Device) -> None:
    if size is not None and device.total is not None and size > device.total:
        raise BadInputError(
            f"{name} is {formats.size(size)}, and GPU {device.label} ({device.name}) has {formats.size(device.total)}. "
            "Give less."
        )


def _check_free(device: Device, needed: int, all_devices: tuple[Device, ...]) -> None:
    if device.free is None or device.free >= needed:
        return
    better = [other for other in all_devices if other.free is not None and other.free >= needed]
    instead = f", or choose {_idlest(better, 1)[0]}" if better else ""
    raise ConflictError(
        f"GPU {device} has too little free memory: a worker needs {formats.size(needed)}. "
        f"End what holds it (nvidia-smi names that){instead}."
    )


def _why(picked: Sequence[Device], usable: Sequence[Device], devices: Sequence[Device], *, was_chosen: bool) -> str:
    gpus = formats.count(len(picked), "GPU")
    if len(picked) < len(usable):
        how = f"the idlest of {len(devices) if not was_chosen else len(usable)}"
    elif was_chosen:
        how = "as chosen"
    elif len(usable) < len(devices):
        how = f"the idle {'one' if len(usable) == 1 else 'ones'} of {len(devices)}"
    else:
        how = "all that there are" if len(devices) > 1 else "the only one"
    # A longer list shows labels only.
    names = _listed(picked) if len(picked) <= _FEW else ", ".join(device.label for device in picked)
    return f"{gpus}, {how}: {names}; a worker for each, pinned to the cores nearest to it."


def _choose(devices: tuple[Device, ...]) -> str:
    return f"Choose among {_listed(devices)}, by index or UUID." if devices else "No GPU is left to choose from."


def _listed(devices: Sequence[Device]) -> str:
    return ", ".join(map(str, devices))
