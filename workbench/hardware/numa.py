"""NUMA nodes from sysfs."""

from __future__ import annotations

from pathlib import Path

from workbench.hardware.sources import Sources, UnreadableError, text


def folders(sources: Sources) -> dict[int, Path]:
    """Folder of each NUMA node by its number, in order."""
    found = {int(path.name.removeprefix("node")): path for path in sources.sys.glob("devices/system/node/node[0-9]*")}
    if not found:
        raise UnreadableError(f"{sources.sys / 'devices/system/node'} lists no NUMA nodes.")
    return dict(sorted(found.items()))


def cpus(folder: Path) -> str:
    """CPUs of a node as Linux lists them; empty for a node of memory alone."""
    return text(folder / "cpulist")


def memory(folder: Path) -> int:
    """Bytes of memory of a node."""
    path = folder / "meminfo"
    for line in text(path).splitlines():
        words = line.split()  # "Node 0 MemTotal: 6514900 kB"
        if len(words) == 5 and words[2] == "MemTotal:":
            return int(words[3]) * 1024
    raise UnreadableError(f"{path} has no MemTotal.")
