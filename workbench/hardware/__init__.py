"""What this machine has, and which profiles it can serve. Reads when called, never when imported."""

from workbench.hardware.offers import profiles
from workbench.hardware.reading import inventory
from workbench.hardware.sources import Sources
from workbench.hardware.values import Cpu, Gpu, Inventory, Memory, NumaNode, Profile, Ucx

__all__ = ["Cpu", "Gpu", "Inventory", "Memory", "NumaNode", "Profile", "Sources", "Ucx", "inventory", "profiles"]
