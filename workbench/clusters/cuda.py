"""Checks of CUDA, by the driver itself, and of NVML, from which Dask reads its own GPU metrics.

NVML may list GPUs on which nothing can run. Dask fails at its start if NVML refuses to answer a query.
"""

from __future__ import annotations

import ctypes
from typing import Any

from workbench.hardware.sources import Sources, UnreadableError, nvml_call, nvml_opened

_FUNCTIONS = ("nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates")
"""NVML queries of `distributed.diagnostics.nvml` for each device; the only error it handles is "not supported"."""


def problem(library: str = "libcuda.so.1") -> str | None:
    """Return a clause on why this machine can't compute on a GPU; None if it can.

    Creates no CUDA context, so that no GPU memory is used.
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
    """Return whether NVML answers all queries of Dask at the start of a scheduler, a nanny or a worker."""
    try:
        with nvml_opened(Sources()) as library:
            for index in range(nvml_call(library, "nvmlDeviceGetCount")):
                handle = nvml_call(library, "nvmlDeviceGetHandleByIndex", index)
                for name in _FUNCTIONS:
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
