"""What GPUs took in electricity, from their samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from workbench.monitor.events import GpuSample


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of GPUs over a stretch of time."""

    joules: float
    seconds: float
    """Time between the first and the last sample."""
    n_gpus: int
    """GPUs that are in it."""
    n_unknown: int
    """GPUs that tell neither energy nor power, and so aren't."""
    source: Literal["counters", "power", "counters and power"]
    """The GPUs' own counters, or power summed over time where there is no counter."""


def energy(samples: Iterable[GpuSample], start: float = -np.inf, stop: float = np.inf) -> Energy | None:
    """Energy of all GPUs from `start` to `stop` (seconds since the epoch); None where no GPU tells of it.

    It is that between the first and the last sample of each GPU: up to a quarter of a second at each end is missing.
    """
    within = sorted((each for each in samples if start <= each.time <= stop), key=lambda each: (each.uuid, each.time))
    parts = [_of_one(list(group)) for _, group in groupby(within, key=lambda each: each.uuid)]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    sources = sorted({source for _, _, source in known})
    return Energy(
        joules=sum(joules for joules, _, _ in known),
        seconds=max(seconds for _, seconds, _ in known),
        n_gpus=len(known),
        n_unknown=len(parts) - len(known),
        source="counters and power" if len(sources) == 2 else sources[0],
    )


def _of_one(samples: list[GpuSample]) -> tuple[float, float, Literal["counters", "power"]] | None:
    counted = [(each.time, each.energy) for each in samples if each.energy is not None]
    if len(counted) > 1:
        steps = np.diff([joules for _, joules in counted])
        # A driver that is loaded again counts from nought.
        return float(steps[steps > 0].sum()), counted[-1][0] - counted[0][0], "counters"
    powers = [(each.time, each.power) for each in samples if each.power is not None]
    if len(powers) > 1:
        times, watts = np.array(powers).T
        return float(np.trapezoid(watts, times)), float(times[-1] - times[0]), "power"
    return None
