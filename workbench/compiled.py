"""Functions compiled by numba, whose machine code is saved next to Python's compiled files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.errors import MissingError, install


def installed() -> bool:
    """Return whether numba can be imported."""
    return find_spec("numba") is not None


def load(module: str) -> Any:
    """Import a module of compiled functions; raise MissingError without numba."""
    if not installed():
        raise MissingError(f"The fast kernel needs numba: {install('fast')}.")
    return import_module(module)


def cached(*signatures: Any, constants: Any = (), **options: Any) -> Callable[[Any], Any]:
    """Decorate as numba.njit does: compile for these signatures, without the GIL, cached if the function has a file.

    numba compiles again when the function's file has changed. List in `constants` the values from other files.
    """
    import llvmlite.binding as llvm
    import numba

    key = repr((llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), constants))

    def compiled(function: Any) -> Any:
        # numba's index names the processor, but its files are numbered: two kinds of processors that compile at the
        # same moment in a shared folder could load each other's code. The key gives each kind its own files.
        function.__qualname__ += f"_{hashlib.sha256(key.encode()).hexdigest()[:8]}"
        # Functions sent as text have no file. A zip file has another path on each worker.
        in_file = Path(function.__code__.co_filename).is_file()
        try:
            dispatcher = numba.njit(nogil=True, cache=in_file, **options)(function)
        except RuntimeError:  # neither the function's folder nor the user's cache can be written to
            dispatcher = numba.njit(nogil=True, **options)(function)
        for signature in signatures:
            try:
                dispatcher.compile(signature)
            except Exception:  # a damaged file may raise anything
                if not (folder := dispatcher.stats.cache_path):
                    raise
                for file in Path(folder).glob(f"*.{function.__qualname__}-*"):
                    file.unlink(missing_ok=True)
                with suppress(OSError):  # no room to save the code, which is compiled nonetheless
                    dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return compiled
