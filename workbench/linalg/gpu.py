"""Location of a block, in the machine's memory or a GPU's, and functions that work on it there."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import dask
import numpy as np


def namespace(block: Any) -> Any:
    """Return the module whose functions work on `block` where it lies: numpy or cupy."""
    if hasattr(block, "__array_namespace__"):
        return block.__array_namespace__()
    return import_module(type(block).__module__.partition(".")[0])


def on_device(block: Any) -> bool:
    """Return whether `block` lies in a GPU's memory."""
    return hasattr(block, "__cuda_array_interface__")


def on_devices(a: Any) -> bool:
    """Return whether a Dask array's blocks lie on GPUs: here, or on workers that make them there (see `backend`)."""
    return on_device(a._meta) or dask.config.get("array.backend", None) == "cupy"


def device_memory() -> int:
    """Return the bytes of the GPU that this process computes on."""
    return int(import_module("cupy").cuda.Device().mem_info[1])


def single_is_single(block: Any) -> bool:
    """Return whether products in float32 have its precision: where CUPY_TF32 is set, CuPy's have eleven bits of 24."""
    return not on_device(block) or os.environ.get("CUPY_TF32", "0") in ("", "0")


def host(block: Any) -> np.ndarray[Any, Any]:
    """Return `block` in the machine's own memory; small matrices are worked on there."""
    return np.asarray(block.get() if hasattr(block, "get") else block)


def to_device_of(matrix: np.ndarray[Any, Any], block: Any) -> Any:
    """Return `matrix` in the memory of `block`: the GPU's or the machine's."""
    return namespace(block).asarray(matrix) if on_device(block) else matrix
