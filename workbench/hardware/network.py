"""InfiniBand and RoCE cards from sysfs.

Source: Documentation/ABI/stable/sysfs-class-infiniband of Linux.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.hardware.sources import Missing, Sources, UnreadableError, text
from workbench.hardware.values import NetworkCard


def read(sources: Sources, missing: Missing) -> tuple[NetworkCard, ...]:
    """Every port of every card, in order of name; Ethernet cards without RDMA aren't among them."""
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
    """Network interfaces of a card; those of one port where it has several."""
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
    if not content.isdigit():  # "-1" where the firmware names none
        raise UnreadableError(f"{path} names no node.")
    return int(content)


def _pci_address(path: Path) -> str:
    if not path.exists():
        raise UnreadableError(f"{path} is missing.")
    return path.resolve().name
