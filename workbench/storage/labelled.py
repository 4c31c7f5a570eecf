"""An array with the names of its dimensions: what workloads answer with, and what is saved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dask
import numpy as np

from workbench.errors import BadInputError
from workbench.redaction import redacted

_TEXT = np.dtypes.StringDType()
_EPOCH = {"s": "seconds since 1970-01-01", "ns": "nanoseconds since 1970-01-01"}
_SPAN = {"s": "seconds", "ns": "nanoseconds"}


def coordinate(name: str, dims: tuple[str, ...], values: Any, attrs: Mapping[str, Any]) -> Any:
    """Return a coordinate as `Labelled` has it, in its shortest form."""
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
        """Return dimensions, values and attributes of each coordinate, however it was given."""
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
    """Rename a dimension x that an earlier array has with another length or other labels to x_NAME.

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
    """Return whether arrays hold the same; grids on a sphere have places without a latitude, which is NaN in both."""
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fc")


def variables(arrays: Mapping[str, Labelled]) -> tuple[dict[str, Labelled], tuple[str, ...]]:
    """Return arrays and their coordinates as files hold them, and the names of coordinates that aren't dimensions."""
    found = {name: _variable(each.data, each.dims, each.attrs) for name, each in arrays.items()}
    others = []
    for each in arrays.values():
        for name, (dims, values, attrs) in each.coordinates().items():
            coordinate = _variable(values if dask.is_dask_collection(values) else np.asarray(values), dims, attrs)
            if name in found and not equal(found[name].data, coordinate.data):
                raise BadInputError(f"The answer has two different arrays called {name!r}. Give them different names.")
            found.setdefault(name, coordinate)
            if dims != (name,) and name not in others:
                others.append(name)
    return found, tuple(others)


def with_lengths(data: Any) -> Any:
    """Return `data` with a known shape: that of a selection by a condition is known only after computing."""
    return data.compute_chunk_sizes() if math.isnan(math.prod(data.shape)) else data


def plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without secrets, as text and numbers, which all formats hold: the rest as JSON."""
    plain = (str, int, float)
    return {
        name: value if isinstance(value, plain) and not isinstance(value, bool) else json.dumps(value)
        for name, value in redacted(attrs).items()
        if value is not None
    }


def _variable(data: Any, dims: tuple[str, ...], attrs: Mapping[str, Any]) -> Labelled:
    if dask.is_dask_collection(data):
        data = with_lengths(data.to_backend("numpy"))
    else:
        # CuPy's arrays come to the host only where they are asked to.
        data = np.asarray(data.get() if hasattr(data, "__cuda_array_interface__") else data)
    if data.dtype.kind in "Mm":
        data, attrs = _counted(data, attrs)
    if data.dtype.kind == "U" or (data.dtype.kind == "O" and all(isinstance(each, str) for each in data.ravel())):
        data = data.astype(_TEXT)
    if data.dtype.kind not in "biufcT":
        raise BadInputError(
            f"Arrays of {data.dtype} can't be saved: numbers, text, dates and durations can. Make one of these of it."
        )
    return Labelled(data, tuple(dims), attrs=plain_attrs(attrs))


def _counted(data: Any, attrs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Encode dates and durations as whole numbers with a unit, by the conventions for climate and forecast data."""
    is_date = data.dtype.kind == "M"
    kind = "datetime64" if is_date else "timedelta64"
    unit = "s" if (data == data.astype(f"{kind}[s]")).all() else "ns"
    # xarray tells durations from numbers of seconds by the type.
    more = {"units": _EPOCH[unit], "calendar": "proleptic_gregorian"} if is_date else {"units": _SPAN[unit]}
    more |= {} if is_date else {"dtype": f"timedelta64[{unit}]"}
    return data.astype(f"{kind}[{unit}]").astype("int64"), {**attrs, **more}


def dates(data: Any, attrs: Mapping[str, Any]) -> Any:
    """Undo `_counted`; return other data as they are."""
    if data.dtype != "int64":
        return data
    if str(attrs.get("dtype")).startswith("timedelta64"):
        return data.astype(attrs["dtype"])
    unit = next((unit for unit, sentence in _EPOCH.items() if sentence == attrs.get("units")), None)
    return data.astype(f"datetime64[{unit}]") if unit else data
