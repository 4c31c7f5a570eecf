"""Hardware of a cluster, as a forecast needs it: its machine, and its GPUs with their memory."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping
from functools import cache
from typing import Any

from workbench.clusters.devices import Device, devices_of
from workbench.clusters.spec import ClusterSpec
from workbench.hardware import Cpu, inventory
from workbench.runs.run import Run


def host(machine: Mapping[str, Any] | None = None) -> str:
    """Return the name of a machine, or names with commas between them; of this one by default."""
    return platform.node() if machine is None else str(machine["host"])


@cache
def processor() -> Cpu:
    """Return the processor of this machine, read once."""
    return inventory().cpu


def ran_on(run: Run, spec: ClusterSpec, machine: Mapping[str, Any] | None) -> bool:
    """Return whether a run was on such hardware: profile, processor, cores, and number and names of the GPUs.

    `machine` describes the machines of `spec`, None for this one. Names of hosts don't count: machines may share a
    data folder, and a container's host has another name each time. A run without an inventory counts nowhere.
    """
    if run.spec is None or run.spec.profile != spec.profile or len(run.spec.devices) != len(spec.devices):
        return False
    if _cores(run.inventory or {}) != _cores({"cpu": processor().model_dump()} if machine is None else machine):
        return False
    cards = names(spec) if machine is None else _names_in(spec, machine)
    return not spec.devices or (bool(cards) and _names_in(run.spec, run.inventory or {}) == cards)


def names(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the names of a spec's GPUs that are on this machine, sorted."""
    return tuple(sorted(device.name for device in _of(spec)))


def memory(spec: ClusterSpec) -> int | None:
    """Return the bytes of the smallest of a spec's GPUs; None if they aren't on this machine."""
    return min((device.total for device in _of(spec) if device.total is not None), default=None)


def arrays(spec: ClusterSpec | None) -> contextlib.AbstractContextManager[None]:
    """Make arrays on the workers' GPUs, if they have some; this process needs none for that."""
    if spec is None or not spec.devices:
        return contextlib.nullcontext()
    from workbench.linalg import backend

    return backend.on_workers()


def _cores(machine: Mapping[str, Any]) -> tuple[Any, Any]:
    cpu = machine.get("cpu") or {}
    return cpu.get("model"), cpu.get("usable")


def _names_in(spec: ClusterSpec, machine: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of a spec's GPUs from an inventory, sorted; a slice has its own name."""
    wholes = machine.get("gpus") or ()
    cards = [card for whole in wholes for card in (whole, *(whole.get("slices") or ()))]
    return tuple(sorted(str(card.get("name")) for card in cards if card.get("uuid") in spec.devices))


def _of(spec: ClusterSpec) -> tuple[Device, ...]:
    if not spec.devices:
        return ()
    there = _devices()
    if not there.keys() >= set(spec.devices):
        # A card was added since, or another simulation started.
        _devices.cache_clear()
        there = _devices()
    return tuple(there[uuid] for uuid in spec.devices if uuid in there)


@cache
def _devices() -> dict[str, Device]:
    """Read the GPUs once: a form asks for a forecast at each key."""
    return {device.uuid: device for device in devices_of(inventory())}
