"""The GPUs of a cluster's workers, as a forecast needs them: what they are called, and how much memory they have."""

from __future__ import annotations

import contextlib
from functools import cache

from workbench.clusters.devices import Device, devices_of
from workbench.clusters.spec import ClusterSpec
from workbench.hardware import inventory


def names(spec: ClusterSpec) -> frozenset[str]:
    """Names of a spec's GPUs that are on this machine."""
    return frozenset(device.name for device in _of(spec))


def memory(spec: ClusterSpec) -> int | None:
    """Bytes of the smallest of a spec's GPUs; None where nobody can tell."""
    return min((device.total for device in _of(spec) if device.total is not None), default=None)


def arrays(spec: ClusterSpec | None) -> contextlib.AbstractContextManager[None]:
    """Make arrays on the GPUs of the workers, where they have some; this process needs none for that."""
    if spec is None or not spec.devices:
        return contextlib.nullcontext()
    from workbench.linalg import backend

    return backend.on_workers()


def _of(spec: ClusterSpec) -> tuple[Device, ...]:
    if not spec.devices:
        return ()
    there = _known()
    if not there.keys() >= set(spec.devices):
        # A card that was added since, or another simulation.
        _known.cache_clear()
        there = _known()
    return tuple(there[uuid] for uuid in spec.devices if uuid in there)


@cache
def _known() -> dict[str, Device]:
    """Read once: a forecast is made at each key that somebody types."""
    return {device.uuid: device for device in devices_of(inventory())}
