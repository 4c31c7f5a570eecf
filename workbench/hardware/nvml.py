"""NVIDIA GPUs by NVML, every call guarded: a driver may refuse any of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from workbench.hardware.sampling import CAUSES, NO_DRIVER
from workbench.hardware.sources import Sources, UnreadableError


@contextmanager
def opened(sources: Sources) -> Iterator[Any]:
    """NVML, initialised. Raises UnreadableError where there is no driver."""
    try:
        library = sources.nvml()
    except ImportError as err:
        raise UnreadableError("nvidia-ml-py isn't installed, which asks the driver for its GPUs.") from err
    _initialise(library)
    try:
        yield library
    finally:
        call(library, "nvmlShutdown", fallback=None)


def _initialise(library: Any) -> None:
    try:
        library.nvmlInit()
    except library.NVMLError_LibraryNotFound as err:
        raise UnreadableError(NO_DRIVER) from err
    except (library.NVMLError, OSError) as err:
        cause = CAUSES.get(type(err).__name__, "The NVIDIA driver doesn't answer")
        raise UnreadableError(f"{cause} (NVML: {str(err).rstrip('.')}).") from err


_RAISE = object()


def call(library: Any, name: str, *arguments: Any, fallback: Any = _RAISE) -> Any:
    """Answer of one NVML function. Raises UnreadableError with NVML's reason, unless a fallback is given."""
    try:
        return getattr(library, name)(*arguments)
    except (library.NVMLError, AttributeError, OSError, UnicodeError) as err:
        if fallback is not _RAISE:
            return fallback
        raise UnreadableError(f"{name} failed (NVML: {err}).") from err


def text_of(answer: str | bytes) -> str:
    """NVML's text; older bindings give bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
