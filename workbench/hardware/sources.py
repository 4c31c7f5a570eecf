"""Sources of all readings as one value, so that a test can pass a machine made of files and fakes."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import psutil

from workbench import config
from workbench.hardware.sampling import NoGpusError, initialise
from workbench.packages import installed_version

T = TypeVar("T")
_RAISE = object()


class UnreadableError(Exception):
    """A value that can't be read; the text is the reason, for `Inventory.missing`."""


class Missing(dict[str, str]):
    """Reasons for missing values by dotted name, filled as values are read."""

    def ask(self, name: str, reader: Callable[..., T], *arguments: Any) -> T | None:
        """Return the answer of a reader, or None if it is refused, with the reason stored under `name`."""
        try:
            return reader(*arguments)
        except UnreadableError as err:
            self[name] = str(err)
            return None


def _affinity() -> int:
    if not hasattr(os, "sched_getaffinity"):
        raise UnreadableError(f"{platform.system()} doesn't report which CPUs a process may run on.")
    return len(os.sched_getaffinity(0))


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError) as err:
        raise UnreadableError(f"sysctl -n {name} failed ({err}).") from err
    return done.stdout.strip()


@dataclass(frozen=True)
class Sources:
    """Folders and functions that an inventory is read from, by default of this machine."""

    proc: Path = Path("/proc")
    sys: Path = field(default_factory=lambda: config.path("sysfs") or Path("/sys"))
    system: str = platform.system()
    affinity: Callable[[], int] = _affinity
    virtual_memory: Callable[[], Any] = psutil.virtual_memory
    cpu_count: Callable[..., int | None] = psutil.cpu_count
    sysctl: Callable[[str], str] = _sysctl
    nvml: Callable[[], Any] = lambda: import_module("pynvml")
    version: Callable[[str], str | None] = installed_version
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def text(path: Path) -> str:
    """Return the stripped content of a small file of /proc or /sys. Raises UnreadableError with the reason."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as err:
        raise UnreadableError(f"{path} can't be read ({err.strerror}).") from err


@contextmanager
def nvml_opened(sources: Sources) -> Iterator[Any]:
    """Open NVML for the block. Raises UnreadableError without a driver."""
    library = sources.nvml()
    try:
        initialise(library)
    except NoGpusError as err:
        raise UnreadableError(str(err)) from err
    try:
        yield library
    finally:
        nvml_call(library, "nvmlShutdown", fallback=None)


def nvml_call(library: Any, name: str, *arguments: Any, fallback: Any = _RAISE) -> Any:
    """Call an NVML function. Raises UnreadableError with NVML's reason, unless a fallback is given."""
    try:
        return getattr(library, name)(*arguments)
    except (library.NVMLError, AttributeError, OSError, UnicodeError) as err:
        if fallback is not _RAISE:
            return fallback
        raise UnreadableError(f"{name} failed (NVML: {err}).") from err
