"""Inventory of this machine: CPUs, memory, GPUs and network. Reads when called, never when imported."""

from workbench.hardware.reading import inventory as inventory, memory as memory
from workbench.hardware.sources import Sources as Sources
from workbench.hardware.values import (
    Cpu as Cpu,
    Gpu as Gpu,
    GpuSlice as GpuSlice,
    Inventory as Inventory,
    Memory as Memory,
    NetworkCard as NetworkCard,
    Topology as Topology,
    Ucx as Ucx,
)
