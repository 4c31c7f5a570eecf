"""Current load of this machine: GPUs by NVML; cores, disks and network between two readings by psutil.

NVML stays open between two readings. psutil gives counters, from which rates are computed here.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psutil

from workbench.hardware.sampling import QUANTITIES, Device, refusal
from workbench.hardware.sources import Sources, UnreadableError, nvml_call, nvml_opened
from workbench.hardware.values import Gpu


@dataclass(frozen=True, slots=True)
class GpuSample:
    """State of one GPU at one time. A value that can't be read is None, and `absent` has the reason under its name."""

    uuid: str
    """UUID of the GPU, or of a MIG slice. Two workers on one GPU report the same."""
    name: str
    index: int
    """NVML's number on its host."""
    host: str
    time: float
    utilisation: float | None = None
    """Percent of the last sampling period in which a kernel ran."""
    memory_used: int | None = None
    """Bytes used by all processes."""
    memory_ours: int | None = None
    """Bytes held by worker processes of this cluster."""
    memory_total: int | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    """Process ids and the bytes that each holds, for GPUs of this machine. Inside a container NVML lists none."""
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    energy: float | None = None
    """Joules since the driver was loaded."""
    temperature: float | None = None
    """°C."""
    clock: float | None = None
    """MHz of the streaming multiprocessors."""
    clock_max: float | None = None
    throttle: tuple[str, ...] | None = None
    """Reasons for a lower clock, such as 'power cap' or 'idle'. Empty if nothing limits it."""
    pcie_rx: float | None = None
    """Bytes per second that the GPU receives; read every 2 s and repeated in between, as one reading takes 20 ms."""
    pcie_tx: float | None = None
    nvlink_rx: float | None = None
    """Bytes per second over all its NVLinks."""
    nvlink_tx: float | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    """Reasons by field, such as {"power": "not supported by this GPU"}."""
    simulated: bool = False

    def reasons(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return why values are missing, by name; `names` has the names of the fields to look at."""
        return {name: self.absent[field] for field, name in names.items() if field in self.absent}


def sample_of(reading: Mapping[str, Any]) -> GpuSample:
    """Convert a reading of `workbench.hardware.sampling` to a sample."""
    # A scheduler that was first watched by a later version may send more fields.
    known = {name: value for name, value in reading.items() if name in GpuSample.__slots__}
    lists = {name: tuple(known[name]) for name in ("throttle", "processes") if known.get(name) is not None}
    return GpuSample(**known | lists)


def silent(uuid: str, reason: str) -> GpuSample:
    """Return the sample of a GPU that can't be read."""
    return GpuSample(uuid, uuid, 0, "", time.time(), absent=dict.fromkeys(QUANTITIES, reason))


class Gauges:
    """Readings of the inventory's GPUs. NVML is opened by the first reading and closed at the end."""

    def __init__(self, gpus: tuple[Gpu, ...]) -> None:
        self._wholes = {
            uuid: gpu for gpu in gpus for uuid in (gpu.uuid, *(each.uuid for each in gpu.slices)) if uuid is not None
        }
        self._stack = ExitStack()
        self._library: Any = None
        self._devices: dict[str, Device] = {}

    def __enter__(self) -> Gauges:
        return self

    def __exit__(self, *_: object) -> None:
        self._library = None
        self._devices = {}
        self._stack.close()

    def read(self) -> dict[str, GpuSample]:
        """Return a sample of each GPU and each slice, by UUID."""
        try:
            if self._library is None:
                self._library = self._stack.enter_context(nvml_opened(Sources()))
        except UnreadableError as err:
            return {uuid: silent(uuid, str(err)) for uuid in self._wholes}
        return {uuid: self._read(uuid, gpu) for uuid, gpu in self._wholes.items()}

    def _read(self, uuid: str, gpu: Gpu) -> GpuSample:
        try:
            device = self._devices.get(uuid) or self._open(uuid, gpu)
        except UnreadableError as err:
            cause = err.__cause__
            return silent(uuid, refusal(cause) if isinstance(cause, Exception) else str(err))
        device.read_slowly()
        return sample_of({"host": socket.gethostname(), **device.read()})

    def _open(self, uuid: str, gpu: Gpu) -> Device:
        handle = nvml_call(self._library, "nvmlDeviceGetHandleByUUID", uuid)
        device = self._devices[uuid] = Device(self._library, uuid, gpu.index, handle, sliced=uuid != gpu.uuid)
        return device


class Usage(NamedTuple):
    """Usage since the previous reading. None if this machine has no counter."""

    cores: tuple[float, ...]
    """Busy share of each core that this process may use, from 0 to 1."""
    disk_read: float | None
    """Bytes per second of all disks; `received` and `sent` are those of all network cards except the loopback."""
    disk_written: float | None
    received: float | None
    sent: float | None


class Meter:
    """Repeated readings of the system's counters."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._cores = _cores()
        self._bytes = _bytes()

    def read(self) -> Usage:
        """Return the usage since the previous call."""
        now, cores, n_bytes = time.monotonic(), _cores(), _bytes()
        seconds = max(1e-3, now - self._time)
        busy = tuple(_share(new[0] - old[0], new[1] - old[1]) for new, old in zip(cores, self._cores, strict=False))
        rates = (
            None if new is None or old is None else max(0.0, new - old) / seconds
            for new, old in zip(n_bytes, self._bytes, strict=True)
        )
        self._time, self._cores, self._bytes = now, cores, n_bytes
        return Usage(busy, *rates)


def _share(busy: float, whole: float) -> float:
    return min(1.0, max(0.0, busy / whole)) if whole > 0 else 0.0


def _cores() -> list[tuple[float, float]]:
    """Return the busy seconds and all seconds of each core."""
    times = psutil.cpu_times(percpu=True)
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(times))
    return [_busy(each) for core, each in enumerate(times) if core in mine]


def _busy(times: Sequence[float]) -> tuple[float, float]:
    # Linux counts the time of guests as user time, too.
    whole = sum(times) - sum(getattr(times, name, 0.0) for name in ("guest", "guest_nice"))
    return whole - sum(getattr(times, name, 0.0) for name in ("idle", "iowait")), whole


def _bytes() -> tuple[float | None, ...]:
    """Return the bytes read from disks, written to disks, received and sent."""
    disk = psutil.disk_io_counters()
    cards = [each for name, each in psutil.net_io_counters(pernic=True).items() if not name.startswith("lo")]
    return (
        disk and disk.read_bytes,
        disk and disk.write_bytes,
        sum(each.bytes_recv for each in cards) if cards else None,
        sum(each.bytes_sent for each in cards) if cards else None,
    )
