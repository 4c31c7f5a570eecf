"""What this machine has, and which profiles it can serve. Reads when called, never when imported."""

from workbench.hardware.reading import inventory
from workbench.hardware.sources import Sources
from workbench.hardware.ucx import ucx_transports
from workbench.hardware.values import (
    Cpu,
    Gpu,
    GpuSlice,
    Inventory,
    Memory,
    NetworkCard,
    Topology,
    Ucx,
    UcxTransport,
    UcxTransports,
)

__all__ = [
    "Cpu",
    "Gpu",
    "GpuSlice",
    "Inventory",
    "Memory",
    "NetworkCard",
    "Sources",
    "Topology",
    "Ucx",
    "UcxTransport",
    "UcxTransports",
    "inventory",
    "ucx_transports",
]
