"""CUDA C kernels: the files in this folder, compiled for a worker's device at its first request.

All of their parameters are arrays, `long long` and `double`, which are what CuPy makes of Python's int and float.
Threads depend only on those of their warp, so that tests can run the same text on a processor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module, resources
from typing import Any

KERNELS = {
    "normal_sum": ("sum_float64", "sum_float32"),
    "counts": ("draw_counts",),
    "genotypes": ("decode_float32", "decode_float64", "count", "draw"),
}
"""Files, and the kernels in each."""

THREADS = 256
"""Threads of a block, by default."""
MOST_ROWS = 4096
"""Blocks of threads over rows: enough for any device; each continues with the row so many below."""


def source(file: str) -> str:
    """Return the text of a file of kernels, with what it includes."""
    return _text(f"{file}.cu").replace('#include "philox.cuh"\n', _text("philox.cuh"))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def kernel(name: str) -> Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]:
    """Return a CuPy kernel, called with the shapes of grid and block and the parameters; it is compiled once."""
    file = next(file for file, names in KERNELS.items() if name in names)
    function: Callable[..., None] = _module(file).get_function(name)
    return function


@cache
def _module(file: str) -> Any:
    return import_module("cupy").RawModule(code=source(file), options=("--std=c++17",))


def grid(width: int, height: int) -> tuple[int, int]:
    """Return the grid of thread blocks for so many places in each of so many rows."""
    return max(1, -(-width // THREADS)), max(1, min(height, MOST_ROWS))
