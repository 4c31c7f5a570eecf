"""Whether CUDA can compute here, asked of the driver itself: NVML may list what nothing can run on."""

from __future__ import annotations

import ctypes


def problem(library: str = "libcuda.so.1") -> str | None:
    """Why nothing can be computed on a GPU of this machine, as a clause; None when it can.

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
