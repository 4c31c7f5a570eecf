"""What this machine has, and which profiles it can serve. Reads when called, never when imported."""

from workbench.hardware.offers import profiles
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
    Profile,
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
    "Profile",
    "Sources",
    "Topology",
    "Ucx",
    "UcxTransport",
    "UcxTransports",
    "inventory",
    "profiles",
    "ucx_transports",
]
