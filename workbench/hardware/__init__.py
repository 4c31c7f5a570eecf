"""What this machine has, and which profiles it can serve. Reads when called, never when imported."""

from workbench.hardware.reading import inventory
from workbench.hardware.sources import Sources
from workbench.hardware.ucx import ucx_transports
from workbench.hardware.values import (
    Cpu,
    Cuda,
    Gpu,
    GpuProcess,
    GpuSlice,
    Inventory,
    Memory,
    NetworkCard,
    NumaNode,
    NvLinks,
    Pcie,
    Topology,
    Ucx,
    UcxTransport,
    UcxTransports,
)

__all__ = [
    "Cpu",
    "Cuda",
    "Gpu",
    "GpuProcess",
    "GpuSlice",
    "Inventory",
    "Memory",
    "NetworkCard",
    "NumaNode",
    "NvLinks",
    "Pcie",
    "Sources",
    "Topology",
    "Ucx",
    "UcxTransport",
    "UcxTransports",
    "inventory",
    "ucx_transports",
]
