"""GPUs that were lost while a cluster worked on them, as NVML tells. Its workers may not notice until they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.hardware import inventory, sampling
from workbench.hardware.gauges import Gauges, GpuSample
from workbench.hardware.values import Gpu

_REMEDY = "can't compute. Start a cluster on other devices."


def gauges(devices: Sequence[str]) -> Gauges:
    """Readings of these devices, given by UUID; NVML is opened once."""
    return Gauges(tuple(Gpu(index=0, name=None, uuid=uuid, memory_total=None, memory_free=None) for uuid in devices))


def names(devices: Sequence[str], numbers: Mapping[str, int] | None = None) -> dict[str, str]:
    """Return what to call these devices: 'GPU 3 (GPU-...)', or a slice by its UUID.

    Given NVML's `numbers` by UUID, as they were known before: one that was lost may not tell its own.
    """
    numbers = numbers or {str(gpu.uuid): gpu.index for gpu in inventory().gpus}
    return {uuid: f"GPU {numbers[uuid]} ({uuid})" if uuid in numbers else f"GPU {uuid}" for uuid in devices}


def warning(found: Mapping[str, GpuSample], called: Mapping[str, str]) -> str | None:
    """Sentence that names the devices that were lost, by what NVML said of each; None where there is none."""
    lost = [name for uuid, name in called.items() if uuid in found and sampling.LOST in found[uuid].absent.values()]
    if not lost:
        return None
    were, workers = ("was", "its worker") if len(lost) == 1 else ("were", "their workers")
    return f"{', '.join(lost)} {were} lost; {workers} {_REMEDY}"


def tells_of_loss(warning: str) -> bool:
    """Return whether the warning of a cluster is one of these, rather than one that it had from its start."""
    return warning.endswith(_REMEDY)
