"""The values that describe a machine. Sizes are bytes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field


class _Value(BaseModel, frozen=True, extra="forbid"):
    """What is said of a machine, and nothing that isn't known here."""


class Cpu(_Value):
    """Processor of this machine, and how much of it this process may use."""

    model: str | None
    physical_cores: int | None
    threads: int | None
    """Hardware threads that are online."""
    usable: int
    """What a cluster may count on: the smallest of affinity, quota and a job's CPUs, rounded down, at least 1."""
    affinity: int | None
    """Threads that the scheduler of the system lets this process run on."""
    quota: float | None
    """CPUs that the control groups grant, such as 1.5; None without a quota."""


class Memory(_Value):
    """Memory of this machine, and how much of it this process may use."""

    total: int
    available: int | None
    """What this process could take at this moment without swapping, and without exceeding a limit that it is under."""
    cgroup_limit: int | None
    limit: int
    """The smallest of `total`, `cgroup_limit` and what a job of Slurm was granted."""


class GpuSlice(_Value):
    """One MIG slice of a GPU. CUDA takes it by its UUID alone."""

    uuid: str | None
    name: str | None
    memory_total: int | None
    memory_free: int | None
    visible: bool = True


class GpuProcess(_Value):
    """A process that holds memory of a GPU."""

    pid: int
    memory: int | None


class Pcie(_Value):
    """PCI Express link of a GPU. An idle GPU lowers its generation to save power."""

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None


class NvLinks(_Value):
    """Active NVLinks of a GPU that end at the same place."""

    to: Literal["gpu", "switch", "other"]
    """Another GPU of this machine, an NVSwitch that joins all GPUs, or something else (a CPU, a GPU out of sight)."""
    peer: int | None
    """Index of the other GPU; None for what isn't one."""
    count: int


class Gpu(_Value):
    """One NVIDIA GPU as NVML names it."""

    index: int
    """NVML's number, in the order of PCI addresses. CUDA counts the same way where all GPUs are of one kind."""
    name: str | None
    uuid: str | None
    memory_total: int | None
    memory_free: int | None
    memory_used: int | None = None
    utilisation: int | None = None
    """Percent of the last moment in which something ran; None on a GPU that is cut into slices."""
    compute_capability: str | None = None
    """Such as '9.0'."""
    mig: bool | None = None
    """Whether it is cut into slices; None where it can't be."""
    slices: tuple[GpuSlice, ...] = ()
    pcie: Pcie = Pcie()
    pci_address: str | None = None
    """As Linux writes it: '0000:06:00.0'."""
    nvlinks: tuple[NvLinks, ...] | None = None
    numa_node: int | None = None
    """The node that is nearest to it."""
    cpu_affinity: str | None = None
    """The CPUs nearest to it, as Linux lists them: '0-19,40-59'."""
    power_limit: float | None = None
    """Watts."""
    processes: tuple[GpuProcess, ...] | None = None
    """Who holds its memory. Inside a container NVML tells of none."""
    visible: bool = True
    """False where CUDA_VISIBLE_DEVICES hides it."""
    simulated: bool = False
    """True for the devices of demos and tests. No time of theirs is that of a GPU."""


class Cuda(_Value):
    """The driver, and what it shows to CUDA programs."""

    driver_version: str | None = None
    version: str | None = None
    """The newest CUDA that the driver supports, such as '13.0'."""
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES as it is set."""


class NetworkCard(_Value):
    """One port of an InfiniBand or RoCE card."""

    name: str
    """Such as 'mlx5_0'."""
    port: int
    interfaces: tuple[str, ...]
    """Network interfaces of the card, as Dask takes them: 'ib0'. Empty without IP over InfiniBand."""
    rate: float | None
    """Gbit/s."""
    state: str | None
    """Such as 'ACTIVE' or 'DOWN'."""
    link_layer: str | None
    """'InfiniBand', or 'Ethernet' for RoCE."""
    numa_node: int | None
    pci_address: str | None

    @property
    def label(self) -> str:
        """Its interface, or else its name."""
        return self.interfaces[0] if self.interfaces else self.name


RELATIONS: dict[str, str] = {
    "NV#": "a bonded set of # NVLinks",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, no host bridge",
    "PHB": "a PCIe host bridge, so the CPU",
    "NODE": "several host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes",
}
"""What lies between two devices, nearest first, in the letters of `nvidia-smi topo -m`."""


_LETTERS = rf"^(X|NV\d+|{'|'.join(list(RELATIONS)[1:])})$"


class Topology(_Value):
    """What lies between each GPU and the other GPUs and the network cards."""

    gpus: tuple[str, ...]
    """Labels 'GPU0', 'GPU1' …"""
    cards: tuple[str, ...]
    rows: tuple[tuple[Annotated[str, Field(pattern=_LETTERS)] | None, ...], ...]
    """A row for each GPU with a letter for each GPU, then for each card; None where it can't be told."""

    def text(self) -> str:
        """The matrix as `nvidia-smi topo -m` prints it."""
        lines = [("", *self.gpus, *self.cards)]
        lines += [(name, *(cell or "?" for cell in row)) for name, row in zip(self.gpus, self.rows, strict=True)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(line.rstrip() for line in padded)

    def nearest_cards(self, gpu: int) -> tuple[str, ...]:
        """Labels of the network cards with the shortest way to a GPU, given by its place in `gpus`."""
        ways = dict(zip(self.cards, self.rows[gpu][len(self.gpus) :], strict=True))
        order = ["X", *RELATIONS]
        known = {card: order.index(way) for card, way in ways.items() if way in order}
        return tuple(card for card, rank in known.items() if rank == min(known.values()))

    def legend(self) -> dict[str, str]:
        """Meaning of the letters that occur."""
        seen = {"NV#" if cell.startswith("NV") else cell for row in self.rows for cell in row if cell}
        return {letters: meaning for letters, meaning in RELATIONS.items() if letters in seen}


class Ucx(_Value):
    """Whether Dask could speak UCX here."""

    installed: bool
    version: str | None
    """Version of distributed-ucxx."""
    reason: str | None
    infiniband: bool = False
    """Whether the UCX that Dask loads has a transport for InfiniBand and RoCE. The wheels from PyPI have none."""


class Inventory(_Value):
    """One machine as this process sees it.

    A value that can't be read is None (or an empty tuple), and `missing` says why under its dotted name,
    as in `{"cpu.quota": "No control group of this process sets one."}`.
    """

    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...]
    ucx: Ucx
    missing: dict[str, str]
    cuda: Cuda = Cuda()
    network: tuple[NetworkCard, ...] = ()
    topology: Topology | None = None

    @property
    def simulated(self) -> bool:
        """Return whether a GPU is simulated, which every title then says."""
        return any(gpu.simulated for gpu in self.gpus)

    def visible_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that CUDA_VISIBLE_DEVICES leaves in sight."""
        return tuple(gpu for gpu in self.gpus if gpu.visible)
