"""Positions of a selection along dimensions: "time=1990:2020, level=500", or "0=:1%" of the first dimension."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench import formats
from workbench.errors import BadParameterError
from workbench.storage.cf import is_longitude, is_time
from workbench.storage.places import Place

_END = r"[^:]*[T ]\d{1,2}(?::\d\d){1,2}Z?|[^:]*"
_RANGE = re.compile(f"({_END})(?:(:)({_END}))?")
"""Pattern of two ends with a colon between them, which times of day have, too."""
_TIME = re.compile(r"(-?\d{1,4})(?:-?(\d\d)(?:-?(\d\d)(?:[T ](\d\d?)(?::(\d\d)(?::(\d\d))?)?Z?)?)?)?")
_SHARE = re.compile(r":\s*(\d+(?:\.\d+)?)\s*%")
"""Pattern of the first part of a dimension, such as ":1%"."""
_FIRST = (-9999, 1, 1, 0, 0, 0)
_LAST = (9999, 12, 31, 23, 59, 59)


def parse(select: str | None) -> dict[str, str]:
    """Parse the selection for each dimension: "time=1990:2020, level=500"."""
    selection: dict[str, str] = {}
    for part in filter(None, map(str.strip, re.split(r"[,;]", select or ""))):
        name, sign, value = map(str.strip, part.partition("="))
        if not name or not sign or not value:
            raise BadParameterError(
                f"select is {part!r}. Give dimensions with values or ranges, such as time=1990:2020, level=500.",
                "select",
            )
        selection[name] = value
    return selection


def positions(place: Place, array: Any, selection: Mapping[str, str]) -> dict[str, Sequence[int] | int]:
    """Return the selection along each dimension: one position, or start, stop and step."""
    dims = [str(dim) for dim in array.dims]
    if 0 in array.shape:
        lengths = formats.by(array.shape)
        raise BadParameterError(f"{place} ({array.name}) is empty ({lengths}). Give a variable with values.", "path")
    by_dim = {dims[int(name)] if _is_number_of(name, dims) else name: value for name, value in selection.items()}
    if len(by_dim) < len(selection):
        raise BadParameterError(f"select names a dimension of {place} twice. Name each once.", "select")
    for name in by_dim:
        if name not in dims:
            raise BadParameterError(
                f"{place} ({array.name}) has no dimension {name!r} to select. It has: {formats.shortened(dims)}.",
                "select",
            )
    return {dim: _of_dimension(place, array, dim, by_dim.get(dim)) for dim in dims}


def _is_number_of(name: str, dims: Sequence[str]) -> bool:
    """Return whether a name is the number of a dimension, from 0, and not itself the name of one."""
    return name not in dims and name.isdecimal() and int(name) < len(dims)


def _first_part(array: Any, dim: str, share: float) -> tuple[int, int, int]:
    """Return the positions of the first part of a dimension, up to the end of a stored chunk."""
    length, stored = array.sizes[dim], (array.encoding.get("preferred_chunks") or {}).get(dim, 1)
    chunk = int(max(stored) if isinstance(stored, tuple) else stored)
    return 0, min(length, max(1, math.ceil(length * share / chunk)) * chunk), 1


def _of_dimension(place: Place, array: Any, dim: str, text: str | None) -> Sequence[int] | int:
    """Return one position, or start, stop and step of several; longitudes across the file's ends start below 0."""
    length = array.sizes[dim]
    if text is None:
        return (0, length, 1)
    if (part := _SHARE.fullmatch(text)) is not None:
        return _first_part(array, dim, float(part[1]) / 100)
    coordinate = array.coords.get(dim)
    values = np.arange(length) if coordinate is None else coordinate.values
    first, sign, last = _ends(text)
    try:
        indices = _chosen(array, dim, values, first, last, bool(sign))
    except BadParameterError:
        raise
    except (KeyError, ValueError, TypeError, OverflowError, AttributeError):
        indices = np.arange(0)
    if not len(indices):
        raise BadParameterError(
            f"Nothing of {place} lies at {dim}={text}. {dim} goes from {shown(values[0])} to "
            f"{shown(values[-1])} in {length} steps.",
            "select",
        )
    if not sign and len(indices) == 1:
        return int(indices[0])
    step = int(indices[1] - indices[0]) if len(indices) > 1 else 1
    if (np.diff(indices) != step).any() or step < 1:
        raise BadParameterError(
            f"{dim}={text} lies in several pieces of {place}, as {dim} is in no order. Sort it first.",
            "select",
        )
    return (int(indices[0]), int(indices[-1]) + 1, step)


def _ends(text: str) -> tuple[str, str, str]:
    """Split a range into its ends, which may be times of day with colons of their own."""
    match = _RANGE.fullmatch(text)
    return (match[1].strip(), match[2] or "", (match[3] or "").strip()) if match else (text, "", "")


def _chosen(
    array: Any, dim: str, values: np.ndarray[Any, Any], first: str, last: str | None, ranged: bool
) -> np.ndarray[Any, Any]:
    if values.dtype.kind in "biuf":
        low, high = float(first or -np.inf), float((last if ranged else first) or np.inf)
        if ranged and np.isfinite(high - low) and _goes_around(dim, array.coords.get(dim)):
            indices = _eastwards(values, low, high)
            if indices is not None:
                return indices
        return _near(values, *_in_order(dim, values, low, high, low > high), ranged)
    if is_time(array.coords[dim]):
        return _at_times(array.coords[dim], dim, first, last if ranged else first)
    import xarray as xr

    positions = xr.DataArray(np.arange(len(values)), coords={dim: array.coords[dim].variable}, dims=dim)
    labels = slice(first or None, last or None) if ranged else first
    return np.atleast_1d(positions.sel({dim: labels}).values)


def _in_order(dim: str, values: np.ndarray[Any, Any], first: Any, last: Any, falls: bool) -> tuple[Any, Any]:
    """Return both ends of a range, the smaller first.

    A range may fall as its dimension does, unless it has another meaning.
    """
    if falls and not values[0] > values[-1]:
        raise BadParameterError(
            f"select has {dim} from the larger to the smaller, and {dim} goes from {shown(values[0])} to "
            f"{shown(values[-1])}. Give the smaller first.",
            "select",
        )
    return (last, first) if falls else (first, last)


def _goes_around(dim: str, coordinate: Any) -> bool:
    """Return whether these are longitudes in degrees, in rising order, all around the earth."""
    if coordinate is None or not is_longitude(dim, coordinate):
        return False
    steps, whole = np.diff(coordinate.values), np.ptp(coordinate.values)
    return bool(len(steps) and (steps > 0).all() and whole <= 360 < whole + 1.5 * steps.max())


def _eastwards(values: np.ndarray[Any, Any], first: float, last: float) -> np.ndarray[Any, Any] | None:
    """Return the positions of longitudes from one to the other; None if the file's ends aren't between."""
    room = _room(values)
    if first <= last and values[0] - room[0] <= first and last <= values[-1] + room[-1]:
        return None
    off = (values.astype("float64") - first) % 360
    span = (last - first) % 360 if last - first < 360 else 360
    inside = (off <= span + room) | (off >= 360 - room)
    others = np.flatnonzero(~inside)
    if inside[0] and inside[-1] and len(others):
        return np.arange(others[-1] + 1 - len(values), others[0])
    return np.flatnonzero(inside)


def _near(values: np.ndarray[Any, Any], low: float, high: float, ranged: bool) -> np.ndarray[Any, Any]:
    """Return the positions of numbers from one to another, or the nearest to a single one."""
    numbers = values.astype("float64")
    off = np.maximum(low - numbers, numbers - high)
    near = np.flatnonzero(off <= _room(values))
    return near if ranged else near[np.argsort(off[near], kind="stable")][:1]


def _room(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the tolerance around each value: a thousandth of the way to its neighbor, or its rounding."""
    numbers = values.astype("float64")
    unique, inverse = np.unique(numbers, return_inverse=True)
    with np.errstate(invalid="ignore"):
        gaps = np.diff(unique, prepend=-np.inf, append=np.inf)
    gap = np.fmin(gaps[:-1], gaps[1:])[inverse]
    # A single value has no neighbor: it matches if five digits agree.
    room = np.where(np.isfinite(gap), 1e-3 * gap, 1e-5 * np.abs(numbers) + 1e-9)
    return np.maximum(room, np.spacing(np.abs(values)) / 2) if values.dtype.kind == "f" else room


def _at_times(times: Any, dim: str, first: str, last: str | None) -> np.ndarray[Any, Any]:
    """Return the positions of times from one to another, in any calendar and any order: "1990" is the whole year."""
    matching = np.ones(times.size, dtype=bool)
    bounds = [_time(dim, each) for each in (first, last) if each]
    if first and last:
        early, late = ((*each, *_FIRST[len(each) :]) for each in bounds)
        bounds = list(_in_order(dim, times.values, bounds[0], bounds[1], early > late))
    if first:
        matching &= _fields(times, len(bounds[0])) >= _whole(bounds[0])
    if last:
        matching &= _fields(times, len(bounds[-1])) <= _whole(bounds[-1])
    return np.flatnonzero(matching)


def _time(dim: str, text: str) -> tuple[int, ...]:
    """Parse year, month, day, hour, minute and second, as far as given."""
    match = _TIME.fullmatch(text)
    numbers = [int(each) for each in match.groups() if each is not None] if match else []
    if not numbers or any(not least <= each <= most for each, least, most in zip(numbers, _FIRST, _LAST, strict=False)):
        raise BadParameterError(
            f"{dim}={text} is no time. Give such as 1990, 1990-06, 1990-06-01 or 1990-06-01T12:00, or a range of two "
            "with a colon between them.",
            "select",
        )
    return tuple(numbers)


def _whole(parts: Sequence[int]) -> int:
    """Return the fields of a time as one number that sorts like the times."""
    return sum(each * 100**place for place, each in enumerate(reversed(parts)))


def _fields(times: Any, count: int) -> Any:
    """Return the first fields of each time as one number, as `_whole` does; NaN where there is no time."""
    parts = [getattr(times.dt, name).values for name in ("year", "month", "day", "hour", "minute", "second")[:count]]
    return sum(each.astype("float64") * 100**place for place, each in enumerate(reversed(parts)))


def shown(value: Any) -> str:
    """Return a coordinate's value as text that can be given back."""
    if isinstance(value, (float, np.floating)):
        # Print the digits of its type without rounding errors: 0.1 for float32, 20200131 for a date as a number.
        return f"{float(str(value)):.10g}"
    return str(value)[:19].removesuffix("T00:00:00").removesuffix(" 00:00:00")
