"""Values that describe a machine. Sizes are in bytes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field


class _Value(BaseModel, frozen=True, extra="forbid"):
    """Base of a machine's values; unknown fields are refused."""


class Cpu(_Value):
    """Processor of this machine, and the part of it that this process may use."""

    model: str | None
    physical_cores: int | None
    threads: int | None
    """Hardware threads that are online."""
    usable: int
    """CPUs for a cluster: the smallest of affinity, quota and a job's CPUs, rounded down, at least 1."""
    affinity: int | None
    """Threads that the operating system lets this process run on."""
    quota: float | None
    """CPU quota of the control groups, such as 1.5; None without a quota."""


class Memory(_Value):
    """Memory of this machine, and the part of it that this process may use."""

    total: int
    available: int | None
    """Bytes that this process could take now without swapping or exceeding a limit."""
    cgroup_limit: int | None
    limit: int
    """The smallest of `total`, `cgroup_limit` and the memory of a Slurm job."""


class GpuSlice(_Value):
    """One MIG slice of a GPU. CUDA selects it by its UUID only."""

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
    """Active NVLinks of a GPU to the same remote end."""

    to: Literal["gpu", "switch", "other"]
    """Another GPU of this machine, an NVSwitch that joins all GPUs, or something else (a CPU, a hidden GPU)."""
    peer: int | None
    """Index of the other GPU; None if the remote end isn't one."""
    count: int


class Gpu(_Value):
    """One NVIDIA GPU as NVML names it."""

    index: int
    """NVML's number, in the order of PCI addresses. CUDA counts the same way if all GPUs are of one kind."""
    name: str | None
    uuid: str | None
    memory_total: int | None
    memory_free: int | None
    memory_used: int | None = None
    utilisation: int | None = None
    """Percent of the last sampling period in which a kernel ran; None for a GPU split into slices."""
    compute_capability: str | None = None
    """Version such as '9.0'."""
    mig: bool | None = None
    """True if the GPU is split into slices; None if it can't be."""
    slices: tuple[GpuSlice, ...] = ()
    pcie: Pcie = Pcie()
    pci_address: str | None = None
    """Address in Linux's form: '0000:06:00.0'."""
    nvlinks: tuple[NvLinks, ...] | None = None
    numa_node: int | None = None
    """The NUMA node nearest to the GPU."""
    cpu_affinity: str | None = None
    """The CPUs nearest to the GPU, in Linux's form: '0-19,40-59'."""
    power_limit: float | None = None
    """Watts."""
    processes: tuple[GpuProcess, ...] | None = None
    """Processes that hold its memory. Inside a container NVML lists none."""
    visible: bool = True
    """False if CUDA_VISIBLE_DEVICES hides it."""
    simulated: bool = False
    """True for devices of demos and tests, whose times aren't those of a GPU."""


class Cuda(_Value):
    """The driver, and the devices visible to CUDA programs."""

    driver_version: str | None = None
    version: str | None = None
    """The newest CUDA that the driver supports, such as '13.0'."""
    visible_devices: str | None = None
    """Value of CUDA_VISIBLE_DEVICES."""


class NetworkCard(_Value):
    """One port of an InfiniBand or RoCE card."""

    name: str
    """Name such as 'mlx5_0'."""
    port: int
    interfaces: tuple[str, ...]
    """Network interfaces of the card, for Dask: 'ib0'. Empty without IP over InfiniBand."""
    rate: float | None
    """Gbit/s."""
    state: str | None
    """State such as 'ACTIVE' or 'DOWN'."""
    link_layer: str | None
    """'InfiniBand', or 'Ethernet' for RoCE."""
    numa_node: int | None
    pci_address: str | None

    @property
    def label(self) -> str:
        """Interface of the card, or its name if it has none."""
        return self.interfaces[0] if self.interfaces else self.name


RELATIONS: dict[str, str] = {
    "NV#": "a bonded set of # NVLinks",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, no host bridge",
    "PHB": "a PCIe host bridge, so the CPU",
    "NODE": "several host bridges of one NUMA node",
    "SYS": "the link between NUMA nodes",
}
"""Links between two devices, nearest first, by the letters of `nvidia-smi topo -m`."""


_LETTERS = rf"^(X|NV\d+|{'|'.join(list(RELATIONS)[1:])})$"


class Topology(_Value):
    """Links between each GPU and the other GPUs and network cards."""

    gpus: tuple[str, ...]
    """Labels 'GPU0', 'GPU1' …"""
    cards: tuple[str, ...]
    rows: tuple[tuple[Annotated[str, Field(pattern=_LETTERS)] | None, ...], ...]
    """A row for each GPU, with letters for each GPU and then for each card; None if unknown."""

    def text(self) -> str:
        """Format the matrix as `nvidia-smi topo -m` does."""
        lines = [("", *self.gpus, *self.cards)]
        lines += [(name, *(cell or "?" for cell in row)) for name, row in zip(self.gpus, self.rows, strict=True)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(line.rstrip() for line in padded)

    def nearest_cards(self, gpu: int) -> tuple[str, ...]:
        """Return the labels of the network cards nearest to a GPU, given its position in `gpus`."""
        ways = dict(zip(self.cards, self.rows[gpu][len(self.gpus) :], strict=True))
        order = ["X", *RELATIONS]
        known = {card: order.index(way) for card, way in ways.items() if way in order}
        return tuple(card for card, rank in known.items() if rank == min(known.values()))

    def legend(self) -> dict[str, str]:
        """Return the meanings of the letters that occur."""
        seen = {"NV#" if cell.startswith("NV") else cell for row in self.rows for cell in row if cell}
        return {letters: meaning for letters, meaning in RELATIONS.items() if letters in seen}


class Ucx(_Value):
    """Availability of UCX for Dask on this machine."""

    installed: bool
    version: str | None
    """Version of distributed-ucxx."""
    reason: str | None
    infiniband: bool = False
    """True if the UCX that Dask loads has a transport for InfiniBand and RoCE. The wheels from PyPI have none."""


class Inventory(_Value):
    """One machine as this process sees it.

    A value that can't be read is None (or an empty tuple), and `missing` has the reason under its dotted name,
    such as `{"cpu.quota": "No control group of this process sets one."}`.
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
        """True if a GPU is simulated; every title then says so."""
        return any(gpu.simulated for gpu in self.gpus)

    def visible_gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that CUDA_VISIBLE_DEVICES doesn't hide."""
        return tuple(gpu for gpu in self.gpus if gpu.visible)
