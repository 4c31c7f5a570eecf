"""The inventory of this machine: each value is read once, and the reason is stored if that fails."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, TypeVar

from workbench import remote
from workbench.hardware import gpus, network
from workbench.hardware.network import topology
from workbench.hardware.sources import Missing, Sources, UnreadableError, text
from workbench.hardware.values import Cpu, Inventory, Memory, Ucx

UCX_PACKAGES = ("distributed-ucxx-cu13", "distributed-ucxx-cu12", "distributed-ucxx")
# Version 1 writes "no limit" as the largest number of whole pages in 63 bits; no machine has an exbibyte.
_UNLIMITED = 2**60

_Controller = Literal["cpu", "memory"]
T = TypeVar("T", int, float)


def inventory(sources: Sources | None = None) -> Inventory:
    """Read the inventory of this machine, or of the given sources."""
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
    quota = missing.ask("cpu.quota", _cpu_quota, sources)
    granted = _granted(sources, "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
    return Cpu(
        model=missing.ask("cpu.model", _model, sources),
        physical_cores=missing.ask("cpu.physical_cores", _count, sources, False),
        threads=threads,
        usable=_usable(affinity, min([*granted, *([] if quota is None else [quota])], default=None), threads),
        affinity=affinity,
        quota=quota,
    )


def _model(sources: Sources) -> str:
    """Return the name of the processor, such as 'AMD EPYC 9654 96-Core Processor'."""
    if sources.system == "Darwin":
        return sources.sysctl("machdep.cpu.brand_string")
    path = sources.proc / "cpuinfo"
    named = remote.processor_in(text(path))
    if named is None:
        raise UnreadableError(f"{path} names no model.")
    return named


def _usable(affinity: int | None, quota: float | None, threads: int | None) -> int:
    """Return the number of threads for a cluster: the quota rounded down, at least one."""
    allowed = affinity or threads or 1
    return max(1, allowed if quota is None else min(allowed, math.floor(quota)))


def _count(sources: Sources, logical: bool) -> int:
    """Count the hardware threads that are online, or their physical cores."""
    found = sources.cpu_count(logical=logical)
    if not found:
        raise UnreadableError(
            f"The system doesn't report how many {'threads' if logical else 'physical cores'} there are."
        )
    return found


def memory(sources: Sources | None = None) -> Memory:
    """Read the memory of this machine and its unused part, without the rest of the inventory."""
    return _memory(sources or Sources(), Missing())


def _memory(sources: Sources, missing: Missing) -> Memory:
    machine = sources.virtual_memory()
    group = missing.ask("memory.cgroup_limit", _memory_limit, sources)
    limit = min(machine.total, machine.total if group is None else group)
    unused = [machine.available, *(each for folder in _folders(sources, "memory") for each in _memory_unused(folder))]
    job = _job_memory(sources)
    if job is not None and job < limit:
        # Slurm may count a job's memory without a limit by the kernel, and end a job that takes more.
        limit = job
        unused.append(max(0, job - _held_by_job(sources)))
    return Memory(total=machine.total, available=min(limit, *unused), cgroup_limit=group, limit=limit)


def _ucx(sources: Sources, missing: Missing) -> Ucx:
    for package in UCX_PACKAGES:
        version = sources.version(package)
        if version is not None:
            return Ucx(installed=True, version=version, reason=None, infiniband=_ucx_has_infiniband(sources))
    reason = "distributed-ucxx isn't installed."
    missing["ucx.version"] = reason
    return Ucx(installed=False, version=None, reason=reason)


def _ucx_has_infiniband(sources: Sources) -> bool:
    """Return whether the UCX that Dask loads (from a wheel, conda or the system) has the module for InfiniBand."""
    wheel = find_spec("libucx")
    prefers_system = sources.environ.get("RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "false").lower() != "false"
    if wheel is not None and not prefers_system:
        folders = [Path(folder, "lib") for folder in wheel.submodule_search_locations or ()]
    else:
        folders = [Path(sys.prefix, "lib"), *Path("/usr").glob("lib*"), *Path("/usr/lib").glob("*-linux-gnu")]
    return any(any(folder.glob("ucx/libuct_ib.so*")) for folder in folders)


# --- jobs of Slurm ----------------------------------------------------------------------------------------------------
# Source: the output environment variables of sbatch(1). Memory is in MiB; 0 means all of the node.


def _granted(sources: Sources, *names: str) -> tuple[int, ...]:
    """Return the positive integers in a job's variables; none outside a job."""
    if not sources.environ.get("SLURM_JOB_ID"):
        return ()
    found = (sources.environ.get(name, "") for name in names)
    return tuple(int(each) for each in found if each.isdecimal() and int(each) > 0)


def _job_memory(sources: Sources) -> int | None:
    """Return the job's bytes of memory on this node; None outside a job, or if it has the whole node."""
    whole = _granted(sources, "SLURM_MEM_PER_NODE")
    each, cpus = _granted(sources, "SLURM_MEM_PER_CPU"), _granted(sources, "SLURM_CPUS_ON_NODE")
    return whole[0] * 2**20 if whole else each[0] * cpus[0] * 2**20 if each and cpus else None


def _held_by_job(sources: Sources) -> int:
    """Return the bytes that the processes of this job hold, without shared memory."""
    mark, n_bytes = f"SLURM_JOB_ID={sources.environ['SLURM_JOB_ID']}".encode(), 0
    for folder in sources.proc.glob("[0-9]*"):
        # Processes end while they are listed, and those of other users can't be read.
        with contextlib.suppress(OSError, ValueError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                _, resident, shared, *_ = map(int, (folder / "statm").read_text().split())
                n_bytes += (resident - shared) * resource.getpagesize()
    return n_bytes


# --- control groups ---------------------------------------------------------------------------------------------------
# Both versions may be mounted at once (the hybrid layout of systemd), so both are read. The tightest limit counts.
# Source: cgroups(7); proc_pid_cgroup(5); Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of Linux.


class _Mount(NamedTuple):
    root: str
    folder: Path
    kind: str
    options: tuple[str, ...]


def _memory_limit(sources: Sources) -> int:
    """Return the memory limit of this process's control groups, in bytes."""
    return _tightest(sources, "memory", _memory_limits, "memory limit")


def _cpu_quota(sources: Sources) -> float:
    """Return the CPU quota of this process's control groups, such as 1.5 CPUs."""
    return _tightest(sources, "cpu", _cpu_quotas, "CPU quota")


def _tightest(sources: Sources, controller: _Controller, read: Callable[[Path], Iterator[T]], what: str) -> T:
    limits = [limit for folder in _folders(sources, controller) for limit in read(folder)]
    if limits:
        return min(limits)
    if sources.system != "Linux":
        raise UnreadableError(f"{sources.system} has no control groups.")
    text(sources.proc / "self" / "cgroup")
    raise UnreadableError(f"No control group of this process sets a {what}.")


def _memory_limits(folder: Path) -> Iterator[int]:
    # Above memory.high the kernel throttles a group almost to a halt, so for a worker that is a limit as well.
    for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
        limit = _number(folder / name)
        if limit is not None and limit < _UNLIMITED:
            yield int(limit)


def _memory_unused(folder: Path) -> Iterator[int]:
    """Yield the bytes that a group with a limit may still take. Idle page cache counts as unused."""
    limit = min(_memory_limits(folder), default=None)
    for usage, cache in (("memory.current", "inactive_file"), ("memory.usage_in_bytes", "total_inactive_file")):
        used = _number(folder / usage)
        if limit is not None and used is not None:
            yield max(0, limit - max(0, used - _statistic(folder / "memory.stat", cache)))


def _statistic(path: Path, name: str) -> int:
    """Return one number of a file of names and numbers, such as memory.stat; 0 if it is missing."""
    lines = (line.split() for line in _content(path).splitlines())
    return next((int(line[1]) for line in lines if len(line) == 2 and line[0] == name and line[1].isdecimal()), 0)


def _cpu_quotas(folder: Path) -> Iterator[float]:
    quota, _, period = _content(folder / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        yield int(quota) / int(period)
    old_quota, old_period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    if old_quota and old_period and old_quota > 0:
        yield old_quota / old_period


def _number(path: Path) -> int | None:
    content = _content(path)
    return int(content) if content.lstrip("-").isdigit() else None


def _content(path: Path) -> str:
    try:
        return text(path)
    except UnreadableError:
        return ""


def _folders(sources: Sources, controller: _Controller) -> Iterator[Path]:
    """Yield the folders of this process's groups for one controller, from its own up to the mount point."""
    lines = _content(sources.proc / "self" / "mountinfo").splitlines()
    mounts = [mount for line in lines if (mount := _mount(line, sources)) is not None]
    for line in _content(sources.proc / "self" / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        mount = _mount_of(mounts, names, controller)
        if mount is not None:
            yield from _upwards(mount, path)


def _mount_of(mounts: list[_Mount], names: str, controller: _Controller) -> _Mount | None:
    for mount in mounts:
        if names == "" and mount.kind == "cgroup2":
            return mount
        if controller in names.split(",") and mount.kind == "cgroup" and controller in mount.options:
            return mount
    return None


def _mount(line: str, sources: Sources) -> _Mount | None:
    left, separator, right = line.partition(" - ")
    before, after = left.split(), right.split()
    if not separator or len(before) < 5 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
        return None
    point = PurePosixPath(before[4])
    folder = sources.sys / point.relative_to("/sys") if point.is_relative_to("/sys") else Path(point)
    return _Mount(before[3], folder, after[0], tuple(after[2].split(",")))


def _upwards(mount: _Mount, path: str) -> Iterator[Path]:
    # Inside a container the path may be the host's, which is mounted at the mount point, or lead out of the namespace
    # ("/../.."). Then only the mount point can be read.
    group = PurePosixPath(path)
    inside = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
    if ".." in inside.parts:
        inside = PurePosixPath()
    for part in (inside, *inside.parents):
        yield mount.folder / part
