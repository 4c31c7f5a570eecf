"""The inventory: each reader asked once, each refusal kept with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from workbench.errors import MissingError
from workbench.hardware import cgroups, numa, nvml, processor
from workbench.hardware.sources import Sources, UnreadableError
from workbench.hardware.values import Cpu, Gpu, Inventory, Memory, NumaNode, Ucx

T = TypeVar("T")

_UCX_PACKAGES = ("distributed-ucxx-cu13", "distributed-ucxx-cu12", "distributed-ucxx")


class _Missing(dict[str, str]):
    """Reasons by dotted name, filled as values are asked for."""

    def ask(self, name: str, reader: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return reader(*arguments)
        except UnreadableError as err:
            self[name] = str(err)
            return None


def inventory(sources: Sources | None = None) -> Inventory:
    """Read what this machine has.

    Parameters
    ----------
    sources
        Folders and functions to read from; this machine's own where None.
    """
    sources = sources or Sources()
    missing = _Missing()
    return Inventory(
        cpu=_cpu(sources, missing),
        memory=_memory(sources, missing),
        numa=_numa(sources, missing),
        gpus=_gpus(sources, missing),
        ucx=_ucx(sources, missing),
        missing=dict(missing),
    )


def _cpu(sources: Sources, missing: _Missing) -> Cpu:
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


def _memory(sources: Sources, missing: _Missing) -> Memory:
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


def _numa(sources: Sources, missing: _Missing) -> tuple[NumaNode, ...]:
    folders = missing.ask("numa", numa.folders, sources) or {}
    return tuple(
        NumaNode(
            id=number,
            cpus=missing.ask(f"numa.{number}.cpus", numa.cpus, folder) or "",
            memory=missing.ask(f"numa.{number}.memory", numa.memory, folder),
        )
        for number, folder in folders.items()
    )


def _gpus(sources: Sources, missing: _Missing) -> tuple[Gpu, ...]:
    try:
        with nvml.opened(sources) as library:
            count = nvml.call(library, "nvmlDeviceGetCount")
            if not count:
                raise UnreadableError("The NVIDIA driver lists no GPU.")
            return tuple(_gpu(library, index, missing) for index in range(count))
    except UnreadableError as err:
        missing["gpus"] = str(err)
        return ()


def _gpu(library: Any, index: int, missing: _Missing) -> Gpu:
    try:
        handle = nvml.call(library, "nvmlDeviceGetHandleByIndex", index)
    except UnreadableError as err:
        missing.update({f"gpus.{index}.{name}": str(err) for name in Gpu.model_fields if name != "index"})
        return Gpu(index=index, name=None, uuid=None, memory_total=None, memory_free=None)
    name = missing.ask(f"gpus.{index}.name", nvml.call, library, "nvmlDeviceGetName", handle)
    uuid = missing.ask(f"gpus.{index}.uuid", nvml.call, library, "nvmlDeviceGetUUID", handle)
    memory = missing.ask(f"gpus.{index}.memory_total", nvml.call, library, "nvmlDeviceGetMemoryInfo", handle)
    if memory is None:
        missing[f"gpus.{index}.memory_free"] = missing[f"gpus.{index}.memory_total"]
    return Gpu(
        index=index,
        name=None if name is None else nvml.text_of(name),
        uuid=None if uuid is None else nvml.text_of(uuid),
        memory_total=None if memory is None else memory.total,
        memory_free=None if memory is None else memory.free,
    )


def _ucx(sources: Sources, missing: _Missing) -> Ucx:
    for package in _UCX_PACKAGES:
        version = sources.version(package)
        if version is not None:
            return Ucx(installed=True, version=version, reason=None)
    reason = "distributed-ucxx isn't installed."
    missing["ucx.version"] = reason
    return Ucx(installed=False, version=None, reason=reason)
