"""What the GPUs of this machine do at this moment: few calls of NVML, which stays open between two readings."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict

from workbench.hardware import nvml, sampling
from workbench.hardware.sources import Sources, UnreadableError
from workbench.hardware.values import Gpu, GpuProcess

_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU


class Gauge(BaseModel):
    """One GPU, or one MIG slice, at one moment.

    A value that can't be had is None, and `missing` says why in the words of `workbench.hardware.sampling`; under "all"
    where nothing is to be had.
    """

    model_config = ConfigDict(frozen=True)

    uuid: str
    use: int | None = None
    """Percent of the last moment in which something ran."""
    memory_used: int | None = None
    memory_total: int | None = None
    power: float | None = None
    """Watts."""
    temperature: int | None = None
    """Degrees Celsius."""
    processes: tuple[GpuProcess, ...] | None = None
    missing: dict[str, str] = {}


class Gauges:
    """Readings of some GPUs. NVML is opened by the first and closed at the end.

    Parameters
    ----------
    gpus
        What the inventory knows of them.
    sources
        Where to read; this machine where None.
    """

    def __init__(self, gpus: tuple[Gpu, ...], sources: Sources | None = None) -> None:
        self._gpus = gpus
        self._sources = sources or Sources()
        self._stack = ExitStack()
        self._library: Any = None

    def __enter__(self) -> Gauges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library = None
        self._stack.close()

    def read(self) -> dict[str, Gauge]:
        """Return a gauge for each GPU and each slice, by UUID."""
        try:
            library = self._open()
        except UnreadableError as err:
            uuids = [uuid for gpu in self._gpus for uuid in _uuids(gpu)]
            return {uuid: Gauge(uuid=uuid, missing={"all": str(err)}) for uuid in uuids}
        return {uuid: _gauge(library, uuid, whole=uuid == gpu.uuid) for gpu in self._gpus for uuid in _uuids(gpu)}

    def _open(self) -> Any:
        if self._library is None:
            self._library = self._stack.enter_context(nvml.opened(self._sources))
        return self._library


def _uuids(gpu: Gpu) -> list[str]:
    return [uuid for uuid in (gpu.uuid, *(each.uuid for each in gpu.slices)) if uuid is not None]


def _gauge(library: Any, uuid: str, *, whole: bool) -> Gauge:
    missing: dict[str, str] = {}
    try:
        handle = nvml.call(library, "nvmlDeviceGetHandleByUUID", uuid)
    except UnreadableError as err:
        return Gauge(uuid=uuid, missing={"all": _reason("all", err, whole)})
    ask = partial(_ask, library, handle, missing, whole)
    memory = ask("memory", "nvmlDeviceGetMemoryInfo")
    processes = ask("processes", "nvmlDeviceGetComputeRunningProcesses")
    rates = milliwatts = celsius = None
    if whole:
        rates = ask("use", "nvmlDeviceGetUtilizationRates")
        milliwatts = ask("power", "nvmlDeviceGetPowerUsage")
        celsius = ask("temperature", "nvmlDeviceGetTemperature", _GPU_SENSOR)
    else:
        missing |= dict.fromkeys(("use", "power", "temperature"), sampling.SLICE)
    return Gauge(
        uuid=uuid,
        use=rates and rates.gpu,
        memory_used=memory and memory.used,
        memory_total=memory and memory.total,
        power=milliwatts and milliwatts / 1000,
        temperature=celsius,
        processes=processes and tuple(GpuProcess(pid=each.pid, memory=each.usedGpuMemory) for each in processes),
        missing=missing,
    )


def _ask(
    library: Any, handle: Any, missing: dict[str, str], whole: bool, name: str, function: str, *arguments: Any
) -> Any:
    try:
        return nvml.call(library, function, handle, *arguments)
    except UnreadableError as err:
        missing[name] = _reason(name, err, whole)
        return None


def _reason(name: str, error: UnreadableError, whole: bool) -> str:
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return str(error)
    return sampling.refusal(cause, memory=name == "memory", sliced=not whole)
