"""Answers as `xarray.Dataset`: made from arrays, and encoded for files."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from workbench.errors import BadInputError
from workbench.redaction import redacted
from workbench.storage.cf import has_calendar

_TEXT = np.dtypes.StringDType()
_SPAN = {"s": "seconds", "us": "microseconds", "ns": "nanoseconds"}
"""Units of dates and durations, the coarsest first: nanoseconds since 1970 reach from 1678 to 2262 only."""
_EPOCH = {unit: f"{name} since 1970-01-01" for unit, name in _SPAN.items()}
_CALENDAR = "proleptic_gregorian"
"""Calendar of NumPy's dates."""


def dataset(
    arrays: Mapping[str, Any], coords: Mapping[str, Any] | None = None, attrs: Mapping[str, Any] | None = None
) -> xr.Dataset:
    """Return `xarray.Dataset(arrays, coords, attrs)` without indexes, which take seconds for millions of names.

    `indexed` makes them, to select by labels.
    """
    return xr.Dataset(arrays, xr.Coordinates(coords, indexes={}), attrs)


def array(
    data: Any, dims: Iterable[str], coords: Mapping[str, Any] | None = None, attrs: Mapping[str, Any] | None = None
) -> xr.DataArray:
    """Return an `xarray.DataArray` without indexes."""
    return xr.DataArray(data, xr.Coordinates(coords, indexes={}), tuple(dims), attrs=attrs)


def indexed(answer: xr.Dataset) -> xr.Dataset:
    """Return the same with an index for each dimension that has labels."""
    labels = {name: each.variable for name, each in answer.coords.items() if each.dims == (name,)}
    return answer.assign_coords(labels)


def combined(arrays: Mapping[str, xr.DataArray]) -> xr.Dataset:
    """Combine arrays made independently into a dataset with unique names and dimensions.

    A dimension x that an earlier array has with another length or other labels is called x_NAME after its array, and
    so is one that has the name of an array. A coordinate that differs between arrays is called NAME.x.
    """
    variables: dict[str, xr.Variable] = {}
    coords: dict[str, xr.Variable] = {}
    seen: dict[str, tuple[int, Any]] = {}
    unlike = _unlike(arrays)
    for name, each in arrays.items():
        renamed = _renamed_dims(name, each, seen, arrays)
        variables[name] = _with_dims(each.variable, renamed)
        for coord, coordinate in each.coords.items():
            if coord in unlike and coord not in each.dims:
                called = f"{name}.{coord}"
            else:
                called = f"{coord}_{name}" if renamed.keys() & {*coordinate.dims} else str(coord)
            coords.setdefault(called, _with_dims(coordinate.variable, renamed))
    return dataset(variables, coords)


def _renamed_dims(
    name: str, array: xr.DataArray, seen: dict[str, tuple[int, Any]], reserved: Iterable[str]
) -> dict[str, str]:
    """Return the dimensions to rename, and note the others in `seen`, with their lengths and labels."""
    renamed = {}
    for dim, length in array.sizes.items():
        labels = array.coords[dim].values if dim in array.coords and array.coords[dim].dims == (dim,) else None
        before, theirs = seen.setdefault(str(dim), (length, labels))
        if dim in reserved or before != length or not (labels is None or theirs is None or _equal(labels, theirs)):
            renamed[str(dim)] = f"{dim}_{name}"
        elif theirs is None:
            seen[str(dim)] = length, labels
    return renamed


def _unlike(arrays: Mapping[str, xr.DataArray]) -> set[str]:
    """Return the names of coordinates that aren't those of a dimension, nor the same in all arrays that have them."""
    firsts: dict[str, xr.Variable] = {}
    unlike = set(map(str, arrays))
    for each in arrays.values():
        for coord, coordinate in each.coords.items():
            name, variable = str(coord), coordinate.variable
            first = firsts.setdefault(name, variable)
            if name not in each.dims and not (first.dims == variable.dims and _equal(first.values, variable.values)):
                unlike.add(name)
    return unlike


def _with_dims(variable: xr.Variable, renamed: Mapping[str, str]) -> xr.Variable:
    dims = tuple(renamed.get(str(dim), str(dim)) for dim in variable.dims)
    return xr.Variable(dims, variable.data, variable.attrs)


def _equal(one: Any, other: Any) -> bool:
    """Return whether arrays are equal; grids on a sphere have places without a latitude, which is NaN in both."""
    calendars = {each.flat[0].calendar if has_calendar(each) else None for each in (one, other)}
    # Dates of two calendars can't be compared.
    return len(calendars) == 1 and np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fc")


def with_lengths(data: Any) -> Any:
    """Return `data` with a known shape: that of a selection by a condition is known only after computing."""
    return data.compute_chunk_sizes() if math.isnan(math.prod(data.shape)) else data


def is_lazy(variable: xr.Variable) -> bool:
    """Return whether its data are a Dask array."""
    return variable.chunks is not None


def plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without secrets, as text and numbers, which all formats support: the rest as JSON."""
    plain = (str, int, float)
    return {
        name: value if isinstance(value, plain) and not isinstance(value, bool) else json.dumps(value)
        for name, value in redacted(attrs).items()
        if value is not None
    }


def encoded(variable: xr.Variable) -> xr.Variable:
    """Return a variable encoded for files: dates as numbers, text as NumPy's StringDType, GPU arrays on the host.

    Raises BadInputError if it holds neither numbers, text, dates nor durations.
    """
    data, attrs = variable.data, dict(variable.attrs)
    if is_lazy(variable):
        data = with_lengths(data.to_backend("numpy"))
        # Dates of other calendars, read from an answer, are encoded as a whole: their unit depends on all.
        data = data.compute(scheduler="threads") if data.dtype.kind == "O" else data
    else:
        # CuPy arrays are only copied to the host by an explicit `get`.
        data = np.asarray(data.get() if hasattr(data, "__cuda_array_interface__") else data)
    if data.dtype.kind in "Mm" or has_calendar(data):
        data, attrs = _counted(data, attrs)
    if data.dtype.kind == "U" or (data.dtype.kind == "O" and all(isinstance(each, str) for each in data.ravel())):
        data = data.astype(_TEXT)
    if data.dtype.kind not in "biufcT":
        raise BadInputError(
            f"Arrays of {data.dtype} can't be saved: numbers, text, dates and durations can. Make one of these of it."
        )
    return xr.Variable(variable.dims, data, plain_attrs(attrs))


def _counted(data: Any, attrs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Encode dates and durations as whole numbers with a unit, by the conventions for climate and forecast data."""
    if data.dtype.kind == "O":
        unit = "us" if any(value.microsecond for value in data.flat) else "s"
        encoding = {"units": _EPOCH[unit], "calendar": data.flat[0].calendar}
        return xr.coders.CFDatetimeCoder().encode(_variable(data, encoding=encoding)).data, {**attrs, **encoding}
    is_date = data.dtype.kind == "M"
    kind = "datetime64" if is_date else "timedelta64"
    unit = next((unit for unit in _SPAN if ((data == data.astype(f"{kind}[{unit}]")) | np.isnat(data)).all()), "ns")
    # By this dtype xarray distinguishes durations from numbers of seconds.
    encoding = {"units": _EPOCH[unit], "calendar": _CALENDAR} if is_date else {"units": _SPAN[unit]}
    encoding |= {} if is_date else {"dtype": f"timedelta64[{unit}]"}
    return data.astype(f"{kind}[{unit}]").astype("int64"), {**attrs, **encoding}


def dates(data: Any, attrs: Mapping[str, Any]) -> Any:
    """Undo `_counted`; return other data as they are."""
    if data.dtype != "int64":
        return data
    if str(attrs.get("dtype")).startswith("timedelta64"):
        return data.astype(attrs["dtype"])
    unit = next((unit for unit, sentence in _EPOCH.items() if sentence == attrs.get("units")), None)
    if unit and attrs.get("calendar", _CALENDAR) != _CALENDAR:
        # Numbers of another machine's record may be no dates, and cftime may be missing here: they stay numbers.
        with contextlib.suppress(ValueError, OverflowError, ImportError):
            return xr.coders.CFDatetimeCoder(use_cftime=True).decode(_variable(data, attrs)).data
        return data
    return data.astype(f"datetime64[{unit}]") if unit else data


def _variable(data: Any, attrs: Any = None, encoding: Any = None) -> xr.Variable:
    return xr.Variable(tuple(f"axis_{axis}" for axis in range(data.ndim)), data, attrs, encoding)
