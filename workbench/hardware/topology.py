"""What lies between the GPUs and the network cards, in the letters of `nvidia-smi topo -m`.

Between GPUs NVML tells. Between a GPU and a card it doesn't: there the folders of sysfs, which are nested as the PCI
devices are, give the way; where those are hidden, the NUMA nodes tell at least NODE from SYS. Best effort: a virtual
machine may show PCI devices side by side that are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import commonpath
from pathlib import Path

from workbench.hardware.sources import Missing, Sources
from workbench.hardware.values import Gpu, NetworkCard, Topology

# NVML_TOPOLOGY_*; INTERNAL are two GPUs on one board.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_BELOW_ONE_SWITCH = 2  # folders: a port of the switch, and the device


def topology(
    gpus: tuple[Gpu, ...],
    cards: tuple[NetworkCard, ...],
    ancestors: Mapping[tuple[int, int], int | None],
    sources: Sources,
    missing: Missing,
) -> Topology | None:
    """Return the matrix of GPUs × (GPUs and cards); None without a GPU."""
    if not gpus:
        missing["topology"] = "There is no GPU, so there is nothing to relate."
        return None
    rows = []
    for gpu in gpus:
        row = [between_gpus(gpu, other, ancestors.get((gpu.index, other.index))) for other in gpus]
        rows.append((*row, *(_between(gpu, card, sources, missing) for card in cards)))
    return Topology(
        gpus=tuple(f"GPU{gpu.index}" for gpu in gpus), cards=tuple(card.label for card in cards), rows=tuple(rows)
    )


def between_gpus(one: Gpu, other: Gpu, ancestor: int | None) -> str | None:
    """Letters for two GPUs: NV# where NVLinks join them, directly or by a switch."""
    if one.index == other.index:
        return "X"
    bonded = _links(one, other.index) or min(_links(one, None), _links(other, None))
    return f"NV{bonded}" if bonded else _LEVELS.get(ancestor if ancestor is not None else -1)


def _links(gpu: Gpu, peer: int | None) -> int:
    """Links to a GPU, or to switches."""
    to = "switch" if peer is None else "gpu"
    return sum(each.count for each in gpu.nvlinks or () if (each.to, each.peer) == (to, peer))


def _between(gpu: Gpu, card: NetworkCard, sources: Sources, missing: Missing) -> str | None:
    one, other = _folder(gpu.pci_address, sources), _folder(card.pci_address, sources)
    if one is not None and other is not None:
        way = between_folders(one, other)
        if way is not None:
            return way
    if gpu.numa_node is None or card.numa_node is None:
        missing[f"topology.{gpu.index}.{card.label}"] = "Neither PCI folders nor NUMA nodes tell how near they are."
        return None
    return "NODE" if gpu.numa_node == card.numa_node else "SYS"


def _folder(address: str | None, sources: Sources) -> Path | None:
    folder = sources.sys / "bus" / "pci" / "devices" / str(address)
    return folder.resolve() if folder.exists() else None


def between_folders(one: Path, other: Path) -> str | None:
    """Letters for two PCI devices below one host bridge, from the folders of sysfs; None where they share none."""
    shared = Path(commonpath([one, other])).parts
    bridges = [place for place, part in enumerate(shared) if part.startswith("pci")]
    if not bridges:
        return None
    if len(shared) == bridges[-1] + 1:
        return "PHB"
    below = max(len(one.parts), len(other.parts)) - len(shared)
    return "PIX" if below <= _BELOW_ONE_SWITCH else "PXB"
