"""Whether Dask may ask NVML for its own metrics of GPUs. It fails at its start where it is refused an answer."""

from __future__ import annotations

from typing import Any

from workbench.hardware import nvml
from workbench.hardware.sources import Sources, UnreadableError

_ASKED = ("nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates")
"""What `distributed.diagnostics.nvml` asks of each device; it copes with nothing but "not supported"."""


def answered() -> bool:
    """Whether NVML answers all that Dask asks when a scheduler, a nanny or a worker starts."""
    try:
        with nvml.opened(Sources()) as library:
            for index in range(nvml.call(library, "nvmlDeviceGetCount")):
                handle = nvml.call(library, "nvmlDeviceGetHandleByIndex", index)
                for name in _ASKED:
                    _ask(library, name, handle)
    except UnreadableError:
        return False
    return True


def _ask(library: Any, name: str, handle: Any) -> None:
    try:
        nvml.call(library, name, handle)
    except UnreadableError as err:
        if not isinstance(err.__cause__, library.NVMLError_NotSupported):
            raise
