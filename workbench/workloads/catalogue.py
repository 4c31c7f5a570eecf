"""The table of workloads: each plain function with its title, its estimate and its check."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from workbench.workloads import array, checks, estimates
from workbench.workloads.fields import Layout
from workbench.workloads.registry import Resolution, Template
from workbench.workloads.sizes import Wish, chunks_of, shape_of
from workbench.workloads.values import Surroundings


def _random_array(
    values: dict[str, Any], given: Mapping[str, Any], around: Surroundings, *, workload: str, layout: Layout
) -> Resolution:
    stored = np.dtype(values["dtype"])
    worked = stored if stored.kind == "f" else np.dtype("float64")
    wish = Wish(workload, layout, worked, stored)
    shape = shape_of(wish, values, given, around)
    chunks, notes = chunks_of(wish, shape, values["chunks"], around)
    rest = {name: value for name, value in values.items() if name not in ("size", "shape", "chunks")}
    return {"shape": shape, "chunks": chunks, **rest}, notes


def _value(results: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": float(results["value"])}


TEMPLATES: tuple[Template, ...] = (
    Template(
        array.array_sum,
        title="Sum of an array",
        returns=("value",),
        small=("value",),
        resolver=partial(_random_array, workload="array_sum", layout="square"),
        estimate=estimates.streaming_sum,
        checker=checks.sum_is_expected,
        summary_of=_value,
    ),
    Template(
        array.array_mean,
        title="Mean of an array",
        returns=("value",),
        small=("value",),
        resolver=partial(_random_array, workload="array_mean", layout="square"),
        estimate=estimates.streaming_sum,
        checker=checks.mean_is_expected,
        summary_of=_value,
    ),
    Template(
        array.transpose_sum,
        title="Array plus its transpose",
        returns=("value",),
        small=("value",),
        resolver=partial(_random_array, workload="transpose_sum", layout="square"),
        estimate=estimates.transposed_sum,
        checker=checks.transpose_sum_is_expected,
        summary_of=_value,
    ),
)
