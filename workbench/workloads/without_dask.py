"""Workloads without Dask: the whole array in the memory of one process, and NumPy's or CuPy's own functions."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import xarray as xr

from workbench.linalg.gpu import host
from workbench.workloads import checks
from workbench.workloads.registry import Template
from workbench.workloads.values import Alone, Check, Parameters

Resolved = Mapping[str, Any]


class Computed(NamedTuple):
    """Result of such a run."""

    seconds: float
    """Seconds, counted as in a run on a cluster."""
    result: dict[str, Any]
    arrays: xr.Dataset | None
    check: Callable[[], Check | None]


def compute(template: Template, parameters: Parameters, module: str) -> Computed:
    """Make the array block by block in one thread, and leave the rest to `module`: "numpy" or "cupy"."""
    alone, xp, resolved = _of(template), importlib.import_module(module), parameters.resolved
    began = time.perf_counter()
    with dask.config.set({"array.backend": module}):
        blocks = alone.array(resolved)
        x = xp.empty(blocks.shape, blocks.dtype)
        da.store(blocks, x, lock=False, scheduler="synchronous")
    if module == "cupy":
        xp.cuda.Device().synchronize()
    made_at = time.perf_counter()
    results = {name: host(value) for name, value in alone.compute(xp, x, resolved).items()}
    held = resolved.get("persist", False)
    # CuPy's results are complete once they are on the host.
    seconds = time.perf_counter() - (made_at if held else began)
    defaults = dict.fromkeys(template.values) | ({"seconds_to_make": made_at - began} if held else {})

    def check() -> Check | None:
        if alone.check is None:
            return template.check(parameters, results)
        return alone.check(host(x), resolved, results)

    return Computed(
        seconds, template.summarise(defaults | results), template.arrays(defaults | results, resolved), check
    )


def memory(template: Template, resolved: Resolved) -> int:
    """Return the bytes that the process needs at once."""
    # LAPACK decomposes float64, whatever the array's dtype.
    itemsize = max(np.dtype(resolved["dtype"]).itemsize, 0 if _of(template).check is None else 8)
    return _of(template).copies * math.prod(resolved["shape"]) * itemsize


def _of(template: Template) -> Alone:
    assert template.alone is not None
    return template.alone


def _centered(x: Any, resolved: Resolved) -> Any:
    return x - x.mean(axis=0) if resolved.get("center") else x


def _svd(xp: Any, x: Any, resolved: Resolved) -> dict[str, Any]:
    u, s, v = xp.linalg.svd(_centered(x, resolved), full_matrices=False)
    k = resolved.get("k")
    return {"u": u[:, :k], "s": s[:k], "v": v[:k]}


def _svd_is_right(x: Any, resolved: Resolved, results: dict[str, Any]) -> Check:
    whole = {"x": _centered(x, resolved), **results}
    blocks = {name: da.from_array(value, chunks="64 MiB") for name, value in whole.items()}
    if resolved.get("k") is None:
        return checks.svd_is_exact(blocks["x"], results | blocks, None)
    return checks.svd_is_close(blocks["x"], {**blocks, "s": results["s"]}, resolved["tolerance"], None)


def decomposed(matrix: Callable[[Resolved], da.Array]) -> Alone:
    """Return the singular value decomposition of a matrix, cut to the first k."""
    return Alone(matrix, _svd, copies=4, check=_svd_is_right)
