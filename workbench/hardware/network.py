"""InfiniBand and RoCE cards from sysfs, and the links between them and the GPUs, in letters of `nvidia-smi topo -m`.

NVML gives the links between GPUs, but not between a GPU and a card. These come from the folders of sysfs, which are
nested as the PCI devices are. If those are hidden, NUMA nodes at least distinguish NODE from SYS. Best effort: a
virtual machine may show PCI devices next to each other that aren't.

Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os.path import commonpath
from pathlib import Path

from workbench.hardware.sources import Missing, Sources, UnreadableError, text
from workbench.hardware.values import Gpu, NetworkCard, Topology

# NVML_TOPOLOGY_*; INTERNAL are two GPUs on one board.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_BELOW_ONE_SWITCH = 2  # folders: a port of the switch, and the device


def read(sources: Sources, missing: Missing) -> tuple[NetworkCard, ...]:
    """Read every port of every card, by name, without Ethernet cards that lack RDMA."""
    folder = sources.sys / "class" / "infiniband"
    cards = tuple(card for path in sorted(folder.glob("*")) for card in _ports(path, missing))
    if not cards:
        missing["network"] = f"{folder} lists no InfiniBand or RoCE card."
    return cards


def _ports(folder: Path, missing: Missing) -> Iterator[NetworkCard]:
    ports = sorted(int(path.name) for path in folder.glob("ports/[0-9]*"))
    for port in ports:
        place = f"network.{folder.name}.{port}" if len(ports) > 1 else f"network.{folder.name}"
        files = folder / "ports" / str(port)
        yield NetworkCard(
            name=folder.name,
            port=port,
            interfaces=tuple(_interfaces(folder, port if len(ports) > 1 else None)),
            rate=missing.ask(f"{place}.rate", _rate, files / "rate"),
            state=missing.ask(f"{place}.state", _state, files / "state"),
            link_layer=missing.ask(f"{place}.link_layer", text, files / "link_layer"),
            numa_node=missing.ask(f"{place}.numa_node", _numa_node, folder / "device" / "numa_node"),
            pci_address=missing.ask(f"{place}.pci_address", _pci_address, folder / "device"),
        )


def _interfaces(folder: Path, port: int | None) -> Iterator[str]:
    """Yield the network interfaces of a card, or of one port if it has several."""
    for path in sorted(folder.glob("device/net/*")):
        try:
            # Some drivers count in hexadecimal: "0x1".
            if port is None or int(text(path / "dev_port"), 0) == port - 1:
                yield path.name
        except (UnreadableError, ValueError):
            continue


def _rate(path: Path) -> float:
    number = text(path).partition(" ")[0]  # "100 Gb/sec (4X EDR)"
    try:
        return float(number)
    except ValueError as err:
        raise UnreadableError(f"{path} holds no rate.") from err


def _state(path: Path) -> str:
    return text(path).rpartition(":")[2].strip()  # "4: ACTIVE"


def _numa_node(path: Path) -> int:
    content = text(path)
    if not content.isdigit():  # "-1" if the firmware names none
        raise UnreadableError(f"{path} names no node.")
    return int(content)


def _pci_address(path: Path) -> str:
    if not path.exists():
        raise UnreadableError(f"{path} is missing.")
    return path.resolve().name


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
    """Return the letters for two GPUs: NV# if NVLinks join them, directly or by a switch."""
    if one.index == other.index:
        return "X"
    bonded = _links(one, other.index) or min(_links(one, None), _links(other, None))
    return f"NV{bonded}" if bonded else _LEVELS.get(ancestor if ancestor is not None else -1)


def _links(gpu: Gpu, peer: int | None) -> int:
    """Count the links to a GPU, or to switches."""
    to = "switch" if peer is None else "gpu"
    return sum(each.count for each in gpu.nvlinks or () if (each.to, each.peer) == (to, peer))


def _between(gpu: Gpu, card: NetworkCard, sources: Sources, missing: Missing) -> str | None:
    one, other = _folder(gpu.pci_address, sources), _folder(card.pci_address, sources)
    if one is not None and other is not None:
        way = between_folders(one, other)
        if way is not None:
            return way
    if gpu.numa_node is None or card.numa_node is None:
        missing[f"topology.{gpu.index}.{card.label}"] = "Neither PCI folders nor NUMA nodes show how near they are."
        return None
    return "NODE" if gpu.numa_node == card.numa_node else "SYS"


def _folder(address: str | None, sources: Sources) -> Path | None:
    folder = sources.sys / "bus" / "pci" / "devices" / str(address)
    return folder.resolve() if folder.exists() else None


def between_folders(one: Path, other: Path) -> str | None:
    """Return the letters for two PCI devices below one host bridge, by their sysfs folders; None if they share none."""
    shared = Path(commonpath([one, other])).parts
    bridges = [place for place, part in enumerate(shared) if part.startswith("pci")]
    if not bridges:
        return None
    if len(shared) == bridges[-1] + 1:
        return "PHB"
    below = max(len(one.parts), len(other.parts)) - len(shared)
    return "PIX" if below <= _BELOW_ONE_SWITCH else "PXB"
