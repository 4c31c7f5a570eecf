"""Electricity used by GPUs, from their samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel

from workbench import formats
from workbench.hardware.gauges import GpuSample


class Energy(BaseModel, frozen=True):
    """Electricity used by GPUs over a period of time."""

    joules: float
    seconds: float
    """Time between the first and the last sample."""
    n_gpus: int
    """GPUs included in the sum."""
    n_unknown: int = 0
    """GPUs left out, as they report neither energy nor power."""
    source: Literal["counters", "power", "counters and power"]
    """The GPUs' own counters, or power summed over time for GPUs without one."""

    def text(self) -> str:
        """Format it as '12.3 kJ by 8 GPUs in 9.8 s, by their own counters'."""
        size = f"{self.joules / 1000:.3g} kJ" if self.joules >= 1000 else f"{self.joules:.3g} J"
        how = {"counters": "own counters", "power": "power over time"}.get(self.source, "own counters or power")
        unknown = f"; {self.n_unknown} more report nothing" if self.n_unknown else ""
        gpus, took = formats.count(self.n_gpus, "GPU"), formats.duration(self.seconds)
        return f"{size} by {gpus} in {took}, by their {how}{unknown}"


class Meter:
    """Sum of the energy that GPUs use, sample by sample.

    It lacks the time before a GPU's first sample and after its last, a quarter of a second each. It includes all that
    a GPU did, for any user.
    """

    def __init__(self) -> None:
        self._uuids: set[str] = set()
        self._last: dict[tuple[str, str], tuple[float, float]] = {}
        # Joules and seconds, by UUID and source.
        self._sums: dict[tuple[str, str], tuple[float, float]] = {}

    def feed(self, samples: Iterable[GpuSample]) -> None:
        """Add samples; those of one GPU in their order."""
        for each in samples:
            self._uuids.add(each.uuid)
            for what, value in (("counters", each.energy), ("power", each.power)):
                if value is not None:
                    self._add((each.uuid, what), each.time, value)

    def _add(self, of: tuple[str, str], time: float, value: float) -> None:
        then, before = self._last.get(of, (time, value))
        if time > then:
            # A driver that is loaded again counts from zero.
            joules = max(0.0, value - before) if of[1] == "counters" else (before + value) / 2 * (time - then)
            total, seconds = self._sums.get(of, (0.0, 0.0))
            self._sums[of] = (total + joules, seconds + time - then)
        self._last[of] = (time, value)

    def energy(self) -> Energy | None:
        """Return the energy so far, or None if no GPU reports any."""
        powered, counted = (
            {uuid: sums for (uuid, source), sums in self._sums.items() if source == what}
            for what in ("power", "counters")
        )
        known = powered | counted
        if not known:
            return None
        return Energy(
            joules=sum(joules for joules, _ in known.values()),
            seconds=max(seconds for _, seconds in known.values()),
            n_gpus=len(known),
            n_unknown=len(self._uuids) - len(known),
            source="counters" if len(counted) == len(known) else "counters and power" if counted else "power",
        )
