"""What this machine does between two looks: cores, disk, network. psutil counts; rates are ours."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """Since the look before. None is what this machine doesn't count."""

    cores: tuple[float, ...]
    """Share of its time that each core was busy, of those that this process may use."""
    disk_read: float | None
    """Bytes per second, of all disks, as the next ones of all network cards but the loopback."""
    disk_written: float | None
    received: float | None
    sent: float | None


class Meter:
    """Reads counters again and again."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._cores = _cores()
        self._bytes = _bytes()

    def read(self) -> Usage:
        """Return what was done since the last time."""
        now, cores, counted = time.monotonic(), _cores(), _bytes()
        seconds = max(1e-3, now - self._time)
        busy = tuple(_share(new[0] - old[0], new[1] - old[1]) for new, old in zip(cores, self._cores, strict=False))
        rates = (
            None if new is None or old is None else max(0.0, new - old) / seconds
            for new, old in zip(counted, self._bytes, strict=True)
        )
        self._time, self._cores, self._bytes = now, cores, counted
        return Usage(busy, *rates)


def _share(busy: float, whole: float) -> float:
    return min(1.0, max(0.0, busy / whole)) if whole > 0 else 0.0


def _cores() -> list[tuple[float, float]]:
    """Busy and all seconds of each core."""
    times = psutil.cpu_times(percpu=True)
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(times))
    return [_busy(each) for core, each in enumerate(times) if core in mine]


def _busy(times: Sequence[float]) -> tuple[float, float]:
    # Linux counts the time of guests in that of users, too.
    whole = sum(times) - sum(getattr(times, name, 0.0) for name in ("guest", "guest_nice"))
    return whole - sum(getattr(times, name, 0.0) for name in ("idle", "iowait")), whole


def _bytes() -> tuple[float | None, ...]:
    """Read from disks, written to them, received, sent."""
    disk = psutil.disk_io_counters()
    cards = [each for name, each in psutil.net_io_counters(pernic=True).items() if not name.startswith("lo")]
    return (
        disk and disk.read_bytes,
        disk and disk.write_bytes,
        sum(each.bytes_recv for each in cards) if cards else None,
        sum(each.bytes_sent for each in cards) if cards else None,
    )
