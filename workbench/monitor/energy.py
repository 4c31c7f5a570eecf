"""What GPUs took in electricity, from their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from workbench import formats

if TYPE_CHECKING:
    from workbench.hardware.gauges import GpuSample


class Energy(BaseModel, frozen=True):
    """Electricity of GPUs over a stretch of time."""

    joules: float
    seconds: float
    """Time between the first and the last sample."""
    n_gpus: int
    """GPUs that are in it."""
    n_unknown: int = 0
    """GPUs that tell neither energy nor power, and so aren't."""
    source: Literal["counters", "power", "counters and power"]
    """The GPUs' own counters, or power summed over time where there is no counter."""

    def text(self) -> str:
        """Such as '12.3 kJ by 8 GPUs in 9.8 s, by their own counters'."""
        size = f"{self.joules / 1000:.3g} kJ" if self.joules >= 1000 else f"{self.joules:.3g} J"
        how = {"counters": "own counters", "power": "power over time"}.get(self.source, "own counters or power")
        unknown = f"; {self.n_unknown} more tell nothing" if self.n_unknown else ""
        gpus, took = formats.count(self.n_gpus, "GPU"), formats.duration(self.seconds)
        return f"{size} by {gpus} in {took}, by their {how}{unknown}"


class Meter:
    """Adds up what GPUs take, sample by sample.

    What a GPU takes before its first and after its last sample isn't in it: a quarter of a second at each end. All that
    a GPU did is in it, for whomever.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Gpu] = {}

    def feed(self, samples: Iterable[GpuSample]) -> None:
        """Take in samples; those of one GPU in their order."""
        for sample in samples:
            self._gpus.setdefault(sample.uuid, _Gpu()).feed(sample)

    def energy(self) -> Energy | None:
        """All so far; None where no GPU tells of it."""
        known = [gpu for gpu in self._gpus.values() if gpu.counted.seconds or gpu.powered.seconds]
        if not known:
            return None
        parts = [gpu.counted if gpu.counted.seconds else gpu.powered for gpu in known]
        n_counted = sum(bool(gpu.counted.seconds) for gpu in known)
        return Energy(
            joules=sum(part.joules for part in parts),
            seconds=max(part.seconds for part in parts),
            n_gpus=len(known),
            n_unknown=len(self._gpus) - len(known),
            source="counters" if n_counted == len(known) else "counters and power" if n_counted else "power",
        )


class _Gpu:
    """One GPU, by its counter and by its power."""

    def __init__(self) -> None:
        self.counted, self.powered = _Sum(), _Sum()

    def feed(self, sample: GpuSample) -> None:
        if sample.energy is not None:
            # A driver that is loaded again counts from nought.
            self.counted.add(sample.time, sample.energy, lambda before, now, seconds: max(0.0, now - before))
        if sample.power is not None:
            self.powered.add(sample.time, sample.power, lambda before, now, seconds: (before + now) / 2 * seconds)


class _Sum:
    def __init__(self) -> None:
        self.joules = self.seconds = 0.0
        self._last: tuple[float, float] | None = None

    def add(self, time: float, value: float, joules: Callable[[float, float, float], float]) -> None:
        if self._last is not None and time > self._last[0]:
            seconds = time - self._last[0]
            self.joules += joules(self._last[1], value, seconds)
            self.seconds += seconds
        self._last = (time, value)
