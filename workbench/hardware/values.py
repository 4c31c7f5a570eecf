"""The values that describe a machine. Sizes are bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cpu(_Value):
    """Processor of this machine, and how much of it this process may use."""

    model: str | None
    physical_cores: int | None
    threads: int | None
    """Hardware threads that are online."""
    usable: int
    """What a cluster may count on: the smaller of affinity and quota, rounded down, at least 1."""
    affinity: int | None
    """Threads that the scheduler of the system lets this process run on."""
    quota: float | None
    """CPUs that the control groups grant, such as 1.5; None without a quota."""


class Memory(_Value):
    """Memory of this machine, and how much of it this process may use."""

    total: int
    available: int | None
    """What programs could take at this moment without swapping."""
    cgroup_limit: int | None
    limit: int
    """The smaller of `total` and `cgroup_limit`."""


class NumaNode(_Value):
    """One NUMA node: CPUs and the memory that is near them."""

    id: int
    cpus: str
    """A list as Linux writes it: '0-7,16-23'."""
    memory: int | None


class Gpu(_Value):
    """One NVIDIA GPU as NVML names it."""

    index: int
    name: str | None
    uuid: str | None
    memory_total: int | None
    memory_free: int | None


class Ucx(_Value):
    """Whether Dask could speak UCX here."""

    installed: bool
    version: str | None
    """Version of distributed-ucxx."""
    reason: str | None


class Inventory(_Value):
    """One machine as this process sees it.

    A value that can't be read is None (or an empty tuple), and `missing` says why under its dotted name,
    as in `{"cpu.quota": "No control group of this process sets one."}`.
    """

    cpu: Cpu
    memory: Memory
    numa: tuple[NumaNode, ...]
    gpus: tuple[Gpu, ...]
    ucx: Ucx
    missing: dict[str, str]


class Profile(_Value):
    """A kind of cluster that is offered; `reason` says why it can't be had and what would help."""

    name: Literal["cpu", "gpu", "gpus", "ucx"]
    title: str
    summary: str
    available: bool
    reason: str | None
