"""CPU model, cores and threads."""

from __future__ import annotations

import math

from workbench import remote
from workbench.hardware.sources import Sources, UnreadableError, text


def model(sources: Sources) -> str:
    """Name of the processor, such as 'AMD EPYC 9654 96-Core Processor'."""
    if sources.system == "Darwin":
        return sources.sysctl("machdep.cpu.brand_string")
    path = sources.proc / "cpuinfo"
    named = remote.processor_in(text(path))
    if named is None:
        raise UnreadableError(f"{path} names no model.")
    return named


def threads(sources: Sources) -> int:
    """Hardware threads that are online."""
    return _counted(sources.cpu_count(logical=True), "threads")


def physical_cores(sources: Sources) -> int:
    """Physical cores: threads that share no core with another one counted."""
    siblings = set()
    for cpu in sorted(sources.sys.glob("devices/system/cpu/cpu[0-9]*/topology")):
        for name in ("core_cpus_list", "thread_siblings_list"):
            if (cpu / name).exists():
                siblings.add(text(cpu / name))
                break
    return len(siblings) or _counted(sources.cpu_count(logical=False), "physical cores")


def usable(affinity: int | None, quota: float | None, threads: int | None) -> int:
    """Threads a cluster may count on: half a CPU of quota is no thread, but one is always there."""
    allowed = affinity or threads or 1
    return max(1, allowed if quota is None else min(allowed, math.floor(quota)))


def _counted(count: int | None, what: str) -> int:
    if not count:
        raise UnreadableError(f"The system doesn't tell how many {what} there are.")
    return count
