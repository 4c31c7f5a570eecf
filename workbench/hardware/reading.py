"""The inventory: each reader asked once, each refusal kept with its reason."""

from __future__ import annotations

import math

from workbench import remote
from workbench.hardware import cgroups, gpus, network
from workbench.hardware.network import topology
from workbench.hardware.sources import Missing, Sources, UnreadableError, text
from workbench.hardware.values import Cpu, Inventory, Memory, Ucx

UCX_PACKAGES = ("distributed-ucxx-cu13", "distributed-ucxx-cu12", "distributed-ucxx")


def inventory(sources: Sources | None = None) -> Inventory:
    """Read what this machine has, from its own folders and functions unless others are given."""
    sources = sources or Sources()
    missing = Missing()
    found = gpus.read(sources, missing)
    cards = network.read(sources, missing)
    return Inventory(
        cpu=_cpu(sources, missing),
        memory=_memory(sources, missing),
        gpus=found.gpus,
        ucx=_ucx(sources, missing),
        cuda=found.cuda,
        network=cards,
        topology=topology(found.gpus, cards, found.ancestors, sources, missing),
        missing=missing,
    )


def _cpu(sources: Sources, missing: Missing) -> Cpu:
    threads = missing.ask("cpu.threads", _count, sources, True)
    affinity = missing.ask("cpu.affinity", sources.affinity)
    quota = missing.ask("cpu.quota", cgroups.cpu_quota, sources)
    return Cpu(
        model=missing.ask("cpu.model", _model, sources),
        physical_cores=missing.ask("cpu.physical_cores", _count, sources, False),
        threads=threads,
        usable=_usable(affinity, quota, threads),
        affinity=affinity,
        quota=quota,
    )


def _model(sources: Sources) -> str:
    """Name of the processor, such as 'AMD EPYC 9654 96-Core Processor'."""
    if sources.system == "Darwin":
        return sources.sysctl("machdep.cpu.brand_string")
    path = sources.proc / "cpuinfo"
    named = remote.processor_in(text(path))
    if named is None:
        raise UnreadableError(f"{path} names no model.")
    return named


def _usable(affinity: int | None, quota: float | None, threads: int | None) -> int:
    """Threads a cluster may count on: half a CPU of quota is no thread, but one is always there."""
    allowed = affinity or threads or 1
    return max(1, allowed if quota is None else min(allowed, math.floor(quota)))


def _count(sources: Sources, logical: bool) -> int:
    """Hardware threads that are online, or the physical cores that they share."""
    found = sources.cpu_count(logical=logical)
    if not found:
        raise UnreadableError(
            f"The system doesn't tell how many {'threads' if logical else 'physical cores'} there are."
        )
    return found


def _memory(sources: Sources, missing: Missing) -> Memory:
    memory = sources.virtual_memory()
    limit = missing.ask("memory.cgroup_limit", cgroups.memory_limit, sources)
    return Memory(
        total=memory.total,
        available=memory.available,
        cgroup_limit=limit,
        limit=memory.total if limit is None else min(memory.total, limit),
    )


def _ucx(sources: Sources, missing: Missing) -> Ucx:
    for package in UCX_PACKAGES:
        version = sources.version(package)
        if version is not None:
            return Ucx(installed=True, version=version, reason=None)
    reason = "distributed-ucxx isn't installed."
    missing["ucx.version"] = reason
    return Ucx(installed=False, version=None, reason=reason)
