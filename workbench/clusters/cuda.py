"""Whether CUDA can compute here, asked of the driver itself, and whether Dask may ask NVML for its own metrics of GPUs.

NVML may list what nothing can run on. Dask fails at its start where NVML refuses it an answer.
"""

from __future__ import annotations

import ctypes
from typing import Any

from workbench.hardware.sources import Sources, UnreadableError, nvml_call, nvml_opened

_ASKED = ("nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates")
"""What `distributed.diagnostics.nvml` asks of each device; it copes with nothing but "not supported"."""


def problem(library: str = "libcuda.so.1") -> str | None:
    """Return why nothing can be computed on a GPU of this machine, as a clause; None when it can.

    Makes no CUDA context, so that nothing is taken on the cards.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return f"the CUDA driver ({library}) is not installed"
    code = driver.cuInit(0)
    if code:
        return f"the CUDA driver can't be initialised (cuInit: error {code})"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    return None if not code and count.value else "the CUDA driver finds no GPU"


def answered() -> bool:
    """Return whether NVML answers all that Dask asks when a scheduler, a nanny or a worker starts."""
    try:
        with nvml_opened(Sources()) as library:
            for index in range(nvml_call(library, "nvmlDeviceGetCount")):
                handle = nvml_call(library, "nvmlDeviceGetHandleByIndex", index)
                for name in _ASKED:
                    _ask(library, name, handle)
    except UnreadableError:
        return False
    return True


def _ask(library: Any, name: str, handle: Any) -> None:
    try:
        nvml_call(library, name, handle)
    except UnreadableError as err:
        if not isinstance(err.__cause__, library.NVMLError_NotSupported):
            raise
