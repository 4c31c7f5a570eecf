"""Kernels in CUDA C compiled for this processor from the same text, to be called as CuPy calls them."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HEADER = Path(__file__).parent / "on_host.h"
_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
_TYPES = {
    "unsigned char": "uint8",
    "int": "int32",
    "unsigned int": "uint32",
    "float": "float32",
    "double": "float64",
}


def compiler() -> str | None:
    """Return the C++ compiler of this machine, if it has one."""
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


@cache
def library(source: str) -> Any:
    """`source` compiled, with a function NAME_on_host for each kernel; what was compiled before is found again."""
    found = compiler()
    if found is None:
        raise FileNotFoundError("Kernels on a processor need a C++ compiler (c++, g++ or clang++); none was found.")
    launchers = "".join(
        f'\nextern "C" void {name}_on_host(const unsigned int *grid, const unsigned int *block, {parameters})\n'
        f"{{ launch(grid, block, [&] {{ {name}({', '.join(_names(parameters))}); }}); }}\n"
        for name, parameters in _KERNEL.findall(source)
    )
    text = source + launchers
    folder = Path(sys.prefix) / "kernels-on-host"
    folder.mkdir(exist_ok=True)
    path = folder / f"{hashlib.sha256((HEADER.read_text() + text).encode()).hexdigest()[:16]}.so"
    if not path.exists():
        # Threads of a worker compile the same at once.
        own = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        flags = [
            "-O2",
            "-std=c++17",
            "-Wall",
            "-Werror",
            "-Wno-unknown-pragmas",
            "-Wno-pass-failed",
            "-shared",
            "-fPIC",
        ]
        command = [found, *flags, "-include", str(HEADER), "-x", "c++", "-", "-o", str(own)]
        subprocess.run(command, input=text, text=True, check=True)
        own.replace(path)
    return ctypes.CDLL(str(path))


def kernel(source: str, name: str, held: Callable[[Any], Any] = lambda array: array) -> Callable[..., None]:
    """Return a kernel to call with grid, block and parameters; `held` gives the NumPy array of each array parameter.

    It refuses arguments that CuPy would silently pass on: a number or an array of another type than the kernel's, or an
    array that isn't contiguous.
    """
    kinds = [_kind(each) for each in dict(_KERNEL.findall(source))[name].split(",")]
    function = getattr(library(source), f"{name}_on_host")

    def call(grid: Sequence[int], block: Sequence[int], parameters: Sequence[Any]) -> None:
        assert len(parameters) == len(kinds), f"{name} has {len(kinds)} parameters, and was given {len(parameters)}."
        assert max(grid[1:], default=1) < 2**16, "The second and third sides of a grid are below 65 536."
        shapes = [(ctypes.c_uint * 3)(*each, *[1] * (3 - len(each))) for each in (grid, block)]
        function(*shapes, *(_passed(name, *each, held) for each in zip(kinds, parameters, strict=True)))

    return call


def _passed(name: str, kind: str, value: Any, held: Callable[[Any], Any]) -> Any:
    if kind in ("long long", "double"):
        expected = {"long long": int, "double": float}[kind]
        assert type(value) is expected, f"{name} takes a {kind}: Python's {expected.__name__}, not {value!r}."
        return ctypes.c_longlong(value) if expected is int else ctypes.c_double(value)
    array = held(value)
    wanted = _TYPES[kind.removesuffix("*").strip()]
    assert array.dtype == np.dtype(wanted), f"{name} takes {wanted}, not {array.dtype}."
    assert array.flags.c_contiguous, f"{name} takes arrays that are contiguous."
    return array.ctypes.data_as(ctypes.c_void_p)


def _names(parameters: str) -> list[str]:
    return [each.split()[-1].lstrip("*") for each in parameters.split(",")]


def _kind(parameter: str) -> str:
    """Type of a parameter, without const and its name."""
    return re.sub(r"\w+$", "", " ".join(parameter.split()).removeprefix("const ")).strip()
