"""Kernels compiled by NVRTC without a driver, and what its machine code says that they take."""

from __future__ import annotations

import ctypes
import importlib.util
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

# Attributes of the sections .nv.info.*: cuobjdump calls them EIATTR_REGCOUNT and EIATTR_FRAME_SIZE.
_REGISTERS, _FRAME = 0x2F, 0x11
_SYMBOLS = 2  # SHT_SYMTAB
_WITH_SIZE = 0x04  # format of an attribute whose second half is how many bytes follow


class Takes(NamedTuple):
    """Resources that a thread of a kernel uses."""

    registers: int
    local_bytes: int
    """Of memory of its own, where registers that are spilled go."""


def library() -> ctypes.CDLL:
    """NVRTC from NVIDIA's wheel; skips the test where there is none."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = (nvidia and nvidia.submodule_search_locations) or ()
    found = next((path for folder in folders for path in Path(folder).glob("c*/lib/libnvrtc.so.*")), None)
    if found is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    return ctypes.CDLL(str(found))


def compiled(nvrtc: ctypes.CDLL, source: str, architecture: str) -> bytes:
    """Machine code of `source`. ValueError has what the compiler said."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    try:
        # CuPy also passes "--std=c++17".
        options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
        if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise ValueError(f"{architecture}: {log.value.decode()}")
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def takes(cubin: bytes) -> dict[str, Takes]:
    """Return registers and local memory of each kernel, from the attributes of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, n_sections, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_size) for i in range(n_sections)]
    named = {_text(cubin, sections[names_at][4] + section[0]): section for section in sections}
    symbols = next(section for section in sections if section[1] == _SYMBOLS)
    strings = sections[symbols[6]]
    found: dict[tuple[int, str], int] = {}
    for name, section in named.items():
        if name == ".nv.info":
            for attribute, symbol, value in _pairs(cubin[section[4] : section[4] + section[5]]):
                (text,) = struct.unpack_from("<I", cubin, symbols[4] + 24 * symbol)
                found[attribute, _text(cubin, strings[4] + text)] = value
    return {name: Takes(value, found[_FRAME, name]) for (which, name), value in found.items() if which == _REGISTERS}


def _pairs(attributes: bytes) -> list[tuple[int, int, int]]:
    found, at = [], 0
    while at < len(attributes):
        kind, attribute, size = struct.unpack_from("<BBH", attributes, at)
        at += 4
        if kind == _WITH_SIZE:
            if attribute in (_REGISTERS, _FRAME):
                found.append((attribute, *struct.unpack_from("<II", attributes, at)))
            at += size
    return found


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
