"""Other hardware: published figures, with their source, and the price of an hour on a machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from workbench import config
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, quoted
from workbench.runs.run import Figure, Text
from workbench.workloads.presets import differences
from workbench.workloads.values import Parameters

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

_FILE = Path(__file__).with_name("machines.json")


class Published(BaseModel, frozen=True):
    """Published time of one workload of one size on one machine."""

    name: str
    workload: str
    dtype: str
    numbers_processed: int
    """Elements of the array, times the passes over it."""
    seconds: tuple[float, float]
    source: str
    presets: tuple[str, ...] = ()
    """Experiment of the text with this time, for each way of reading it."""

    def scaled(self, numbers: float) -> tuple[float, float]:
        """Return seconds for so many numbers, as if the time grew with them."""
        factor = numbers / self.numbers_processed
        return self.seconds[0] * factor, self.seconds[1] * factor


@cache
def published() -> tuple[Published, ...]:
    """Return all published figures."""
    return tuple(Published.model_validate(one) for one in json.loads(_FILE.read_text(encoding="utf-8")))


def comparable(
    workload: str, resolved: Mapping[str, Any], bytes_processed: int
) -> tuple[tuple[Published, tuple[float, float]], ...]:
    """Return published figures for the same workload on the same type of numbers, with their seconds for this size."""
    dtype = resolved.get("dtype")
    return tuple(
        (one, one.scaled(bytes_processed / np.dtype(one.dtype).itemsize))
        for one in published()
        if one.workload == workload and one.dtype == dtype
    )


def text(template: Template, checked: Parameters, around: Mapping[str, Any]) -> Text | None:
    """Return the source's figures for the preset of `checked` on this cluster; None without a preset."""
    preset = next((each for each in template.presets if each.name == checked.preset), None)
    if preset is None:
        return None
    theirs = template.validate(preset.parameters, **around).resolved
    figures = [one for one in published() if one.workload == template.name and preset.name in one.presets]
    drawn = around.get("on_gpu") and checked.resolved.get("dtype") == "uint8"
    return Text(
        source=preset.source,
        figures=tuple(Figure(machine=one.name, seconds=one.seconds) for one in figures),
        differs=differences(theirs, checked.resolved)
        + (("drawn by a kernel of ours, not by randint",) if drawn else ()),
    )


def price_per_hour(spec: ClusterSpec | None, machine: str | None = None) -> float | None:
    """Return the price of an hour, from `workbench.prices`: the machine's own if it is named there, else the profile's.

    Several machines, with commas between them, cost the sum of their prices.
    """
    prices = config.get("prices") or {}
    if not isinstance(prices, Mapping):
        raise BadInputError(
            f"The setting workbench.prices is {quoted(prices)}. Give a price per hour by name: cpu: 0.10."
        )
    for names in ((machine or "").split(", "), [spec.profile] if spec is not None else []):
        if names and all(prices.get(name) is not None for name in names):
            return sum(_price(name, prices[name]) for name in names)
    return None


def cost(seconds: float, per_hour: float | None) -> float | None:
    """Return the price of so many seconds; None without a price."""
    return None if per_hour is None else seconds / 3600 * per_hour


def cost_text(cost: float, digits: int = 3) -> str:
    """Return a cost with its significant digits and no exponent: '0.0000473', '12.5'."""
    if cost <= 0:
        return "0"
    text = f"{cost:.{max(0, digits - 1 - math.floor(math.log10(cost)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _price(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise BadInputError(f"The setting workbench.prices.{name} is {quoted(value)}. Give a number, 0 or more.")
    return float(value)
