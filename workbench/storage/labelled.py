"""An array with the names of its dimensions: what workloads answer with, and what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dask
import numpy as np


def coordinate(name: str, dims: tuple[str, ...], values: Any, attrs: Mapping[str, Any]) -> Any:
    """A coordinate as `Labelled` has it, in its shortest form."""
    if attrs:
        return dims, values, dict(attrs)
    return values if dims == (name,) else (dims[0] if len(dims) == 1 else dims, values)


@dataclass(frozen=True)
class Labelled:
    """One array of an answer, NumPy's or Dask's, with the names of its dimensions (as xarray.DataArray has them)."""

    data: Any
    dims: tuple[str, ...]
    coords: Mapping[str, Any] = field(default_factory=dict)
    """Values along dimensions, as xarray has them: by the dimension's name (samples, years, latitudes), or of another
    name as a pair of the dimension, or several, and the values: `{"population": ("sample", names)}`. Attributes may
    come third."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What else belongs to it, as JSON: units, a certificate."""

    def coordinates(self) -> dict[str, tuple[tuple[str, ...], Any, Mapping[str, Any]]]:
        """Dimensions, values and attributes of each coordinate, however it was given."""
        found = {}
        for name, given in self.coords.items():
            dims, values, *attrs = given if isinstance(given, tuple) else (name, given)
            found[name] = (dims,) if isinstance(dims, str) else tuple(dims), values, attrs[0] if attrs else {}
        return found

    @property
    def is_lazy(self) -> bool:
        """Whether Dask has its data."""
        return dask.is_dask_collection(self.data)


def apart(arrays: Mapping[str, Labelled]) -> dict[str, Labelled]:
    """The same, but a dimension that an earlier array has with another length or other labels is x_NAME, not x.

    A dataset has each dimension once.
    """
    known: dict[str, tuple[int, Any]] = {}
    found = {}
    for name, each in arrays.items():
        coords, new = each.coordinates(), {}
        for dim, length in zip(each.dims, each.data.shape, strict=True):
            labels = coords[dim][1] if dim in coords and coords[dim][0] == (dim,) else None
            before, theirs = known.setdefault(dim, (length, labels))
            if before != length or not (labels is None or theirs is None or equal(labels, theirs)):
                new[dim] = f"{dim}_{name}"
            elif theirs is None:
                known[dim] = length, labels
        if new:
            renamed = {
                f"{key}_{name}" if new.keys() & {*dims} else key: (tuple(new.get(dim, dim) for dim in dims), *more)
                for key, (dims, *more) in coords.items()
            }
            each = replace(each, dims=tuple(new.get(dim, dim) for dim in each.dims), coords=renamed)
        found[name] = each
    return found


def equal(one: Any, other: Any) -> bool:
    """Whether arrays hold the same; grids on a sphere have places without a latitude, which is NaN in both."""
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fc")
