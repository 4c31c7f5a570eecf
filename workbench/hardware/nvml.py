"""NVIDIA GPUs by NVML, every call guarded: a driver may refuse any of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from workbench.hardware.sampling import NoGpusError, initialise
from workbench.hardware.sources import Sources, UnreadableError


@contextmanager
def opened(sources: Sources) -> Iterator[Any]:
    """NVML, initialised. Raises UnreadableError where there is no driver."""
    library = sources.nvml()
    try:
        initialise(library)
    except NoGpusError as err:
        raise UnreadableError(str(err)) from err
    try:
        yield library
    finally:
        call(library, "nvmlShutdown", fallback=None)


_RAISE = object()


def call(library: Any, name: str, *arguments: Any, fallback: Any = _RAISE) -> Any:
    """Answer of one NVML function. Raises UnreadableError with NVML's reason, unless a fallback is given."""
    try:
        return getattr(library, name)(*arguments)
    except (library.NVMLError, AttributeError, OSError, UnicodeError) as err:
        if fallback is not _RAISE:
            return fallback
        raise UnreadableError(f"{name} failed (NVML: {err}).") from err
