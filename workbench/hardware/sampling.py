"""Repeated readings of GPUs by NVML: a refused call affects no other value.

This module is sent to workers as source text (see `workbench.monitor.feed`), as this package may not be installed
there. So it may import only the standard library, and nvidia-ml-py if that is installed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

CAUSES = {
    "NVMLError_DriverNotLoaded": "The NVIDIA driver is installed but not loaded",
    "NVMLError_LibRmVersionMismatch": "The NVIDIA driver was replaced and this machine not restarted since",
    "NVMLError_NoPermission": "This account may not use the NVIDIA driver",
    "NVMLError_GpuIsLost": "A GPU has fallen off the bus",
}
"""Messages for NVML's errors when it is opened."""

NO_DRIVER = "No NVIDIA driver was found (NVML: library not found)."

QUANTITIES = (
    "utilisation",
    "memory_used",
    "memory_total",
    "processes",
    "power",
    "power_limit",
    "energy",
    "temperature",
    "clock",
    "clock_max",
    "throttle",
    "pcie_rx",
    "pcie_tx",
    "nvlink_rx",
    "nvlink_tx",
)
"""Values of a reading; each is there or in `absent`, with the reason."""

SLOW = 2.0
"""Seconds between two readings of slow or rarely changing values. One PCIe counter takes 20 ms."""

LOST = "the GPU has fallen off the bus"
SLICE = "NVML reports this for whole GPUs only, not for one that is cut into slices (MIG)"
UNIFIED = "the GPU shares the memory of its machine"
NOT_YET = "not read yet"

_REFUSALS = {
    "NVMLError_NotSupported": "not supported by this GPU",
    "NVMLError_FunctionNotFound": "the driver is too old to report it",
    "NVMLError_NoPermission": "this account has no permission to read it",
    "NVMLError_GpuIsLost": LOST,
    "AttributeError": "nvidia-ml-py is too old to read it",
}

# Bits of nvmlClocksEventReasons, as the NVML API reference names them.
_THROTTLES = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}

_TEMPERATURE_GPU, _CLOCK_SM, _PCIE_TX, _PCIE_RX = 0, 1, 0, 1
_NVLINK_DATA_TX, _NVLINK_DATA_RX, _ALL_LINKS = 138, 139, 0xFFFFFFFF

# Inode of the first PID namespace (PROC_PID_INIT_INO of Linux): elsewhere NVML's process ids aren't ours.
_FIRST_PIDS = "pid:[4026531836]"


class NoGpusError(Exception):
    """The reason that no GPU can be sampled. `expected` is True if the machine seems to have one."""

    def __init__(self, reason: str, *, expected: bool) -> None:
        super().__init__(reason)
        self.expected = expected


class Devices:
    """GPUs visible to this process, with NVML open until `close`. Raises NoGpusError if none can be read."""

    def __init__(self) -> None:
        try:
            self._library, selection = import_module("pynvml"), os.environ.get("CUDA_VISIBLE_DEVICES")
        except ImportError as err:
            why = "nvidia-ml-py isn't installed on the workers. Install it there to see their GPUs."
            raise NoGpusError(why, expected=_has_nodes()) from err
        initialise(self._library)
        try:
            self._handles = dict(visible(self._library, selection))
        except BaseException:
            self.close()
            raise
        self.uuids = tuple(self._handles)
        """UUIDs of the visible devices, in the order of CUDA_VISIBLE_DEVICES."""
        self.own_first = bool(selection)
        """True if only the first device is meant for this process, as dask-cuda arranges for its workers."""

    def device(self, uuid: str) -> Device:
        """Return the device of a UUID."""
        return Device(self._library, uuid, *self._handles[uuid])

    def close(self) -> None:
        """Close NVML."""
        with contextlib.suppress(Exception):  # the readings are over anyway
            self._library.nvmlShutdown()


class Device:
    """One GPU, or one slice of one."""

    def __init__(self, library: Any, uuid: str, index: int, handle: Any, sliced: bool = False) -> None:
        self.uuid = uuid
        self.index = index
        self._library, self._handle, self._sliced = library, handle, sliced
        self._slow: dict[str, Any] = {}
        self._refused: dict[str, str] = {}
        self._links: tuple[float, int, int] | None = None
        self.simulated = is_simulated()
        self.name = self._ask("name", lambda: text_of(self._call("nvmlDeviceGetName"))) or f"GPU {index}"
        self._sliced = sliced or bool(self._ask("mig", lambda: self._call("nvmlDeviceGetMigMode")[0]))

    def read(self) -> dict[str, Any]:
        """Read the cheap values and add the latest of the slow ones.

        Units: bytes, watts, joules, °C, MHz, bytes per second. `absent` has the reasons for missing values.
        """
        now = time.time()
        values = {} if self._lost else self._slow | self._fast(now)
        found = {} if self._lost else {name: value for name, value in values.items() if value is not None}
        return {
            "uuid": self.uuid,
            "name": self.name,
            "index": self.index,
            "simulated": self.simulated,
            "time": now,
            **found,
            "absent": {name: self._why(name) for name in QUANTITIES if name not in found},
        }

    def read_slowly(self) -> None:
        """Read the values that rarely change, and let refused calls be tried again."""
        # PCIe counters have their own interval, unless the GPU was lost.
        still_refused = () if self._lost else ("pcie_rx", "pcie_tx")
        self._refused = {name: self._refused[name] for name in still_refused if name in self._refused}
        self._slow |= {
            "power_limit": self._ask("power_limit", lambda: self._call("nvmlDeviceGetEnforcedPowerLimit") / 1000),
            "clock_max": self._ask("clock_max", lambda: self._call("nvmlDeviceGetMaxClockInfo", _CLOCK_SM)),
            "processes": self._ask("processes", self._processes),
        }

    def read_pcie(self, name: str) -> None:
        """Read 'pcie_rx' or 'pcie_tx', which takes 20 ms."""
        self._refused.pop(name, None)
        counter = _PCIE_RX if name == "pcie_rx" else _PCIE_TX
        self._slow[name] = self._ask(name, lambda: 1000 * self._call("nvmlDeviceGetPcieThroughput", counter))

    @property
    def _lost(self) -> bool:
        return LOST in self._refused.values()

    def _why(self, name: str) -> str:
        return LOST if self._lost else self._refused.get(name, NOT_YET)

    def _fast(self, now: float) -> dict[str, Any]:
        memory = self._ask("memory_used", lambda: self._call("nvmlDeviceGetMemoryInfo"))
        if memory is None:
            self._refused["memory_total"] = self._refused["memory_used"]
        received, sent = self._ask("nvlink_rx", lambda: self._nvlink(now)) or (None, None)
        if "nvlink_rx" in self._refused:
            self._refused["nvlink_tx"] = self._refused["nvlink_rx"]
        return {
            "utilisation": self._ask("utilisation", lambda: self._call("nvmlDeviceGetUtilizationRates").gpu),
            "memory_used": None if memory is None else memory.used,
            "memory_total": None if memory is None else memory.total,
            "power": self._ask("power", lambda: self._call("nvmlDeviceGetPowerUsage") / 1000),
            "energy": self._ask("energy", lambda: self._call("nvmlDeviceGetTotalEnergyConsumption") / 1000),
            "temperature": self._ask("temperature", lambda: self._call("nvmlDeviceGetTemperature", _TEMPERATURE_GPU)),
            "clock": self._ask("clock", lambda: self._call("nvmlDeviceGetClockInfo", _CLOCK_SM)),
            "throttle": self._ask("throttle", self._throttle),
            "nvlink_rx": received,
            "nvlink_tx": sent,
        }

    def _throttle(self) -> list[str]:
        try:
            bits = self._call("nvmlDeviceGetCurrentClocksEventReasons")
        except (AttributeError, self._library.NVMLError_FunctionNotFound):
            bits = self._call("nvmlDeviceGetCurrentClocksThrottleReasons")  # its name before driver 535
        return [word for bit, word in _THROTTLES.items() if bits & bit]

    def _nvlink(self, now: float) -> tuple[float, float] | None:
        """Return the bytes received and sent per second since the previous reading, over all links."""
        fields = self._call("nvmlDeviceGetFieldValues", [(_NVLINK_DATA_RX, _ALL_LINKS), (_NVLINK_DATA_TX, _ALL_LINKS)])
        for each in fields:
            if each.nvmlReturn:
                raise self._library.NVMLError(each.nvmlReturn)
        before, (received, sent) = self._links, (each.value.ullVal for each in fields)
        self._links = (now, received, sent)
        if before is None or now <= before[0]:
            return None
        rates = [1024 * (new - old) / (now - before[0]) for new, old in ((received, before[1]), (sent, before[2]))]
        return max(0.0, rates[0]), max(0.0, rates[1])  # a reset driver counts from zero

    def _processes(self) -> list[tuple[int, int | None]]:
        found = self._call("nvmlDeviceGetComputeRunningProcesses_v3")
        return [(each.pid, each.usedGpuMemory) for each in found]

    def _ask(self, name: str, reader: Callable[[], Any]) -> Any:
        # Refused calls are tried again with the slow readings, not four times a second.
        if name in self._refused:
            return None
        try:
            return reader()
        except (self._library.NVMLError, AttributeError, OSError, UnicodeError) as err:
            self._refused[name] = refusal(err, memory=name == "memory_used", sliced=self._sliced)
            return None

    def _call(self, function: str, *arguments: Any) -> Any:
        return getattr(self._library, function)(self._handle, *arguments)


def refusal(error: Exception, *, memory: bool = False, sliced: bool = False) -> str:
    """Return the reason for a refused NVML call, as a clause. `memory`: it read memory; `sliced`: of a MIG slice."""
    kind = type(error).__name__
    if kind == "NVMLError_NotSupported" and (memory or sliced):
        return UNIFIED if memory else SLICE
    return _REFUSALS.get(kind) or f"NVML: {str(error).rstrip('.')}"


def own_processes_named() -> bool:
    """Return whether NVML's process ids are valid in this process's namespace; inside a container they aren't."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_PIDS
    except OSError:
        return True


def _has_nodes() -> bool:
    """Return whether the system has a device file of an NVIDIA GPU."""
    return sys.platform == "linux" and Path("/dev/nvidiactl").exists()


def is_simulated() -> bool:
    """Return whether the loaded NVML is the one of demos and tests, which has an extra symbol."""
    try:
        return hasattr(ctypes.CDLL("libnvidia-ml.so.1"), "workbench_simulated_nvml")
    except OSError:
        return False


def initialise(library: Any) -> None:
    """Open NVML. Raises NoGpusError with the reason if it can't."""
    try:
        library.nvmlInit()
    except library.NVMLError_LibraryNotFound as err:
        raise NoGpusError(NO_DRIVER, expected=_has_nodes()) from err
    except (library.NVMLError, OSError) as err:
        cause = CAUSES.get(type(err).__name__, "The NVIDIA driver doesn't answer")
        raise NoGpusError(f"{cause} (NVML: {str(err).rstrip('.')}).", expected=True) from err


def visible(library: Any, selection: str | None) -> Iterator[tuple[str, tuple[int, Any, bool]]]:
    """Yield each visible device: its UUID, and its index, its handle and whether it is a slice.

    `selection` is CUDA_VISIBLE_DEVICES, read as CUDA does: indices, UUIDs or their prefixes, MIG slices by UUID.
    """
    refused: list[Exception] = []
    there = dict(_all(library, refused))
    entries = list(there) if selection is None else [entry.strip() for entry in selection.split(",")]
    n_found = 0
    for entry in entries:
        found = _named(library, entry, there)
        if found is None:
            break  # as CUDA does: entries after the first invalid one are ignored
        n_found += 1
        yield found
    if not n_found:
        # The first visible device may be one that was lost before this reading.
        why = f": {refusal(refused[-1])}" if refused else ""
        raise NoGpusError(f"CUDA_VISIBLE_DEVICES ({selection}) hides all GPUs{why}.", expected=bool(refused))


def _all(library: Any, refused: list[Exception]) -> Iterator[tuple[str, tuple[int, Any, bool]]]:
    """Yield every device that answers; add the errors of the others to `refused`."""
    count = 0
    try:
        count = library.nvmlDeviceGetCount()
    except (library.NVMLError, OSError) as err:
        refused.append(err)
    n_found = 0
    for index in range(count):
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            uuid = text_of(library.nvmlDeviceGetUUID(handle))
        except (library.NVMLError, OSError) as err:
            refused.append(err)
            continue
        n_found += 1
        yield uuid, (index, handle, False)
    if refused and not n_found:
        raise NoGpusError(f"The NVIDIA driver doesn't answer (NVML: {str(refused[-1]).rstrip('.')}).", expected=True)
    if not n_found:
        raise NoGpusError("The NVIDIA driver lists no GPU.", expected=False)


def _named(
    library: Any, entry: str, there: Mapping[str, tuple[int, Any, bool]]
) -> tuple[str, tuple[int, Any, bool]] | None:
    if entry.isdigit():
        return next(((uuid, found) for uuid, found in there.items() if found[0] == int(entry)), None)
    if entry.startswith("GPU-"):
        fitting = [(uuid, found) for uuid, found in there.items() if uuid.startswith(entry)]
        return fitting[0] if len(fitting) == 1 else None
    if entry.startswith("MIG-"):
        return _slice(library, entry)
    return None


def _slice(library: Any, uuid: str) -> tuple[str, tuple[int, Any, bool]] | None:
    try:
        handle = library.nvmlDeviceGetHandleByUUID(uuid.encode())
        whole = library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        return uuid, (library.nvmlDeviceGetIndex(whole), handle, True)
    except (library.NVMLError, AttributeError, OSError):
        return None


def text_of(answer: str | bytes) -> str:
    """Return NVML's text as str; older bindings give bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
