"""A stand-in for RMM: the one class with which distributed brings blocks back to a device."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np


class DeviceBuffer:
    """Bytes on a device that isn't there."""

    def __init__(self, *, ptr: int = 0, size: int = 0) -> None:
        # As CUDA does where the device that the block is to lie on is gone.
        if Path(os.environ.get("STANDIN_TAKES_NOTHING_IN", "")).is_file():
            raise RuntimeError("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable")
        self._bytes = np.empty(size, "u1")
        self.nbytes = self.size = size
        if ptr and size:
            ctypes.memmove(self.ptr, ptr, size)

    @property
    def ptr(self) -> int:
        return self._bytes.ctypes.data

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 0}
