"""Loops that numba compiles, kept as machine code that llvmlite loads by itself: numba takes long to start.

A module of loops defines them by `numba.cfunc`, with arguments that are addresses and whole numbers of 64 bits. What
numba has made of it lies beside Python's own compiled files, for one processor, one numba and one state of the source.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from workbench.errors import MissingError, install

Loop = Callable[..., None]

_one_at_a_time = Lock()


def installed() -> bool:
    """Whether numba, and with it llvmlite, can be imported."""
    return find_spec("numba") is not None


def aligned(n_bytes: int, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    """Zeros that begin on a line of the processor's cache: what lies across two of them takes twice as long."""
    room = np.zeros(n_bytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + n_bytes].view(dtype)


def loops(module: str, **arguments: int) -> dict[str, Loop]:
    """The loops of a module by name, each with its number of arguments: arrays in C's order, and integers.

    Arrays are given as their addresses: their types and lengths are the caller's to get right.

    Raises
    ------
    MissingError
        numba isn't installed.
    """
    if not installed():
        raise MissingError(f"The fast kernel needs numba: {install('fast')}.")
    with _one_at_a_time:
        engine = _engine(module, tuple(arguments))
    return {name: _loop(engine.get_function_address(name), n) for name, n in arguments.items()}


def _loop(address: int, n: int) -> Loop:
    # ctypes lets other threads run meanwhile.
    called = ctypes.CFUNCTYPE(None, *[ctypes.c_ssize_t] * n)(address)

    def loop(*arguments: Any) -> None:
        called(*[each if isinstance(each, int) else _address(each) for each in arguments])

    return loop


def _address(array: np.ndarray[Any, Any]) -> int:
    assert array.flags.c_contiguous
    return array.ctypes.data


@cache
def _engine(module: str, names: tuple[str, ...]) -> Any:
    """What has the loops in memory, for as long as the process lives."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    processor = llvm.get_host_cpu_name()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=processor, features=features, opt=3, jit=True)
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    # Loops take constants from the modules beside them.
    sources = [each.read_bytes() for each in sorted(Path(spec.origin).parent.glob("*.py"))]
    state = f"{module}.{_digest(version('numba'), llvm.llvm_version_info, *sources)}"
    file = f"{state}.{_digest(names, processor, features)}.o"
    code = _kept(spec.origin, file)
    if code is None:
        code = machine.emit_object(_compiled(module, names))
        _keep(spec.origin, file, module, state, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _compiled(module: str, names: Iterable[str]) -> Any:
    """The loops as one module of LLVM's. What only an error would call is a trap: loops raise none."""
    import llvmlite.binding as llvm

    made = llvm.parse_assembly("declare void @llvm.trap()")
    source = import_module(module)
    for name in names:
        loop = getattr(source, name)
        text = re.sub(
            r"^declare ([^@\n]*@(?:numba_|NRT_|_?Py)\w*\([^)\n]*\)).*$",
            r"define linkonce_odr \1 { call void @llvm.trap() unreachable }",
            loop.inspect_llvm(),
            flags=re.MULTILINE,
        )
        part = llvm.parse_assembly(text + "\ndeclare void @llvm.trap()\n")
        part.get_function(loop.native_name).name = name
        made.link_in(part)
    return made


def _folders(origin: str) -> Iterator[Path]:
    """Where code may be kept: beside Python's, or else where this person's caches are."""
    with suppress(NotImplementedError):
        yield Path(cache_from_source(origin)).parent
    import platformdirs

    yield platformdirs.user_cache_path("dask-workbench")


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _kept(origin: str, file: str) -> bytes | None:
    for folder in _folders(origin):
        with suppress(OSError):
            kept = (folder / file).read_bytes()
            # LLVM ends the process at code that isn't whole.
            if hashlib.sha256(kept[32:]).digest() == kept[:32]:
                return kept[32:]
    return None


def _keep(origin: str, file: str, module: str, state: str, code: bytes) -> None:
    """Write it whole or not at all, in place of what an earlier state of the source has left; best effort."""
    for folder in _folders(origin):
        part = folder / f"{file}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            part.write_bytes(hashlib.sha256(code).digest() + code)
            part.replace(folder / file)
            for old in folder.glob(f"{module}.*.o"):
                if not old.name.startswith(state):
                    old.unlink()
            return
        except OSError:
            with suppress(OSError):
                part.unlink()
