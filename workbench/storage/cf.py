"""Coordinates of time, latitude and longitude.

Source: "NetCDF Climate and Forecast (CF) Metadata Conventions" 1.11, chapter 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_NORTH = {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"}
_EAST = {each.replace("north", "east").replace("n", "e") for each in _NORTH}
_RADIANS = {"radian", "radians", "rad"}
_TIMES = {"time", "t", "valid_time"}
_LATITUDES = {"lat", "latitude", "nav_lat", "xlat", "clat", "latcell"}
_LONGITUDES = {"lon", "longitude"}


def time_of(coords: Any, dims: Sequence[str]) -> str | None:
    """Return the dimension of the times, by CF; None where there is none, or several."""
    times = [dim for dim in dims if dim in coords.variables and is_time(coords[dim])]
    times = times or [dim for dim in dims if dim.lower() in _TIMES]
    return times[0] if len(times) == 1 else None


def latitude_of(coords: Any, dims: Sequence[str]) -> Any | None:
    """Return the coordinate of latitudes along these dimensions, by CF, in degrees; None where there is none."""
    latitudes = [
        each
        for name, each in coords.variables.items()
        if each.ndim and set(each.dims) <= set(dims) and each.dtype.kind in "iuf" and _is_latitude(str(name), each)
    ]
    # On a rotated grid only a two-dimensional coordinate has true latitudes.
    nearest: Any = min(latitudes, key=lambda each: each.ndim) if latitudes else None
    # Models on triangular grids, such as ICON and MPAS, use radians.
    in_radians = latitudes and str(nearest.attrs.get("units", "")).lower() in _RADIANS
    return np.rad2deg(nearest) if in_radians else nearest


def is_time(coord: Any) -> bool:
    """Return whether a coordinate counts time."""
    if coord.attrs.get("axis") == "T" or coord.attrs.get("standard_name") == "time" or coord.dtype.kind == "M":
        return True
    return coord.dtype.kind == "O" and coord.size > 0 and hasattr(coord.values.flat[0], "calendar")


def has_calendar(values: Any) -> bool:
    """Return whether values are cftime's dates, which xarray takes for calendars that NumPy's dates don't have."""
    is_object = isinstance(values, np.ndarray) and values.dtype.kind == "O" and values.size > 0
    return is_object and all(hasattr(value, "calendar") for value in values.flat)


def is_longitude(name: str, coord: Any) -> bool:
    """Return whether a coordinate of this name has longitudes in degrees."""
    attributes = [str(coord.attrs.get(each, "")).lower() for each in ("units", "standard_name")]
    return attributes[0] in _EAST or ((attributes[1] or name.lower()) in _LONGITUDES and attributes[0] not in _RADIANS)


def _is_latitude(name: str, coord: Any) -> bool:
    """Return whether a coordinate of this name has latitudes, by CF."""
    if coord.attrs.get("standard_name") == "latitude" or str(coord.attrs.get("units", "")).lower() in _NORTH:
        return True
    return name.lower() in _LATITUDES and "rot" not in str(coord.attrs.get("standard_name", ""))


def variables(dataset: Any) -> list[str]:
    """Return the names of the variables that hold numbers along some dimension, without bounds of cells."""
    bounds = {each.attrs.get("bounds") for each in dataset.variables.values()}
    sizes = {str(name): each.shape for name, each in dataset.variables.items()}
    return [
        str(name)
        for name, each in dataset.data_vars.items()
        if each.ndim and each.dtype.kind in "biuf" and name not in bounds and not is_bounds(str(name), sizes)
    ]


def is_bounds(name: str, sizes: Mapping[str, Any]) -> bool:
    """Return whether a variable has the bounds of another one's cells, by its name and both shapes."""
    of = re.sub("_(bnds|bounds|bnd)$", "", name)
    return of != name and sizes.get(of) is not None and tuple(sizes[name] or ())[:-1] == tuple(sizes[of])
