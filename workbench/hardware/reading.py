"""The inventory: each reader asked once, each refusal kept with its reason."""

from __future__ import annotations

import psutil

from workbench.errors import MissingError
from workbench.hardware import cgroups, gpus, network, numa, processor
from workbench.hardware.sources import Missing, Sources
from workbench.hardware.topology import topology
from workbench.hardware.values import Cpu, Inventory, Memory, NumaNode, Ucx

UCX_PACKAGES = ("distributed-ucxx-cu13", "distributed-ucxx-cu12", "distributed-ucxx")


def inventory(sources: Sources | None = None) -> Inventory:
    """Read what this machine has.

    Parameters
    ----------
    sources
        Folders and functions to read from; this machine's own where None.
    """
    sources = sources or Sources()
    missing = Missing()
    found = gpus.read(sources, missing)
    cards = network.read(sources, missing)
    return Inventory(
        cpu=_cpu(sources, missing),
        memory=_memory(sources, missing),
        numa=_numa(sources, missing),
        gpus=found.gpus,
        ucx=_ucx(sources, missing),
        cuda=found.cuda,
        network=cards,
        topology=topology(found.gpus, cards, found.ancestors, sources, missing),
        missing=missing,
    )


def _cpu(sources: Sources, missing: Missing) -> Cpu:
    threads = missing.ask("cpu.threads", processor.threads, sources)
    affinity = missing.ask("cpu.affinity", sources.affinity)
    quota = missing.ask("cpu.quota", cgroups.cpu_quota, sources)
    return Cpu(
        model=missing.ask("cpu.model", processor.model, sources),
        physical_cores=missing.ask("cpu.physical_cores", processor.physical_cores, sources),
        threads=threads,
        usable=processor.usable(affinity, quota, threads),
        affinity=affinity,
        quota=quota,
    )


def _memory(sources: Sources, missing: Missing) -> Memory:
    try:
        memory = sources.virtual_memory()
    except (OSError, RuntimeError, psutil.Error) as err:
        raise MissingError(
            f"The memory of this machine can't be read ({err}), so no cluster can be given a limit. "
            "On Linux, mount /proc."
        ) from err
    limit = missing.ask("memory.cgroup_limit", cgroups.memory_limit, sources)
    return Memory(
        total=memory.total,
        available=memory.available,
        cgroup_limit=limit,
        limit=memory.total if limit is None else min(memory.total, limit),
    )


def _numa(sources: Sources, missing: Missing) -> tuple[NumaNode, ...]:
    folders = missing.ask("numa", numa.folders, sources) or {}
    return tuple(
        NumaNode(
            id=number,
            cpus=missing.ask(f"numa.{number}.cpus", numa.cpus, folder) or "",
            memory=missing.ask(f"numa.{number}.memory", numa.memory, folder),
        )
        for number, folder in folders.items()
    )


def _ucx(sources: Sources, missing: Missing) -> Ucx:
    for package in UCX_PACKAGES:
        version = sources.version(package)
        if version is not None:
            return Ucx(installed=True, version=version, reason=None)
    reason = "distributed-ucxx isn't installed."
    missing["ucx.version"] = reason
    return Ucx(installed=False, version=None, reason=reason)
