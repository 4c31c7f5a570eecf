"""Measure a workload on a cluster: run about a hundredth of it, for later forecasts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.errors import BadInputError
from workbench.workloads.values import Parameters

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

_PARTS = 100
_FEWEST_PARTS = 10
"""Parts of which one is measured where the chunks of a file are larger than a hundredth of it."""
_LEAST = 2**26
"""Bytes of the array below which most of a run is its start."""
_SPEED = 5e7
"""Bytes a second of one thread, on two cores of a Xeon in November 2026: from 20 MB (SVDs) to 200 MB (sums)."""
_SIZES = {"size", "shape"}
_LEFT_OUT = {"preset", "scale", "save", "replace"}


class Part(NamedTuple):
    """A part of a workload that is large enough to represent the whole."""

    parameters: dict[str, Any]
    seconds: float
    """Rough duration, from a typical speed."""


def part_of(template: Template, checked: Parameters, around: Mapping[str, Any]) -> Part | None:
    """Return a hundredth of a workload, or 64 MiB of it; None if it is small, or no parameter makes it smaller.

    `around` describes the cluster, as `validate` takes it.
    """
    whole = template.needs(checked)
    if template.pinned is not None or not whole.known or not whole.array_bytes:
        return None
    target = max(whole.array_bytes // _PARTS, _LEAST)
    if 2 * target > whole.array_bytes:
        return None
    for parameters in _smaller(template, checked, target / whole.array_bytes):
        try:
            needs = template.needs(template.validate(parameters, **around))
        except BadInputError:
            continue
        if (needs.array_bytes or math.inf) <= max(2 * target, whole.array_bytes // _FEWEST_PARTS):
            seconds = needs.bytes_processed / _SPEED / around.get("threads", 1)
            return Part(parameters, max(1.0, seconds))
    return None


def _smaller(template: Template, checked: Parameters, share: float) -> Iterator[dict[str, Any]]:
    """Yield parameters that may give this share of the array: by a selection, a size, a shape, or a whole number."""
    fields, resolved = template.schema()["properties"], checked.resolved
    # A preset stands for parameters that are then given one by one.
    arguments = {**resolved, **checked.given} if checked.preset else checked.given
    rest = {name: each for name, each in arguments.items() if name in fields and name not in _LEFT_OUT | _SIZES}
    if "compute" in fields:
        # A part would stay in the memory that the whole doesn't fit.
        rest["compute"] = resolved["compute"]
    sizes: list[dict[str, Any]]
    if "select" in fields:
        # The first part of a file, along the first dimension that isn't selected already.
        parts = (f"{axis}=:{100 * share:.4g}%" for axis in range(2))
        sizes = [{"select": ", ".join(filter(None, (arguments.get("select"), part)))} for part in parts]
    elif "size" in fields and not arguments.get("shape"):
        n_bytes = math.prod(resolved["shape"]) * np.dtype(resolved["dtype"]).itemsize
        sizes = [{"size": f"{round(n_bytes * share)}B"}]
    elif "shape" in fields:
        sizes = [{"shape": _scaled(resolved["shape"], share)}]
    else:
        numbers = (name for name, field in fields.items() if field.get("type") == "integer")
        sizes = [{name: max(1, round(resolved[name] * share))} for name in numbers if resolved.get(name)]
    for size in sizes:
        yield rest | size
        # The chosen blocks may be larger than the part.
        yield {name: each for name, each in rest.items() if name != "chunks"} | size


def _scaled(shape: list[int], share: float) -> list[int]:
    """Return a shape with the longest side cut, or all sides if it would not stay the longest."""
    longest = max(range(len(shape)), key=shape.__getitem__)
    cut = [round(side * share) if place == longest else side for place, side in enumerate(shape)]
    if cut[longest] >= max(cut):
        return cut
    return [max(1, round(side * share ** (1 / len(shape)))) for side in shape]
