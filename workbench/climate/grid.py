"""Climate variables or images as a matrix of samples and places: terms removed, and weights of places."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np

from workbench import formats
from workbench.climate import anomalies
from workbench.climate.anomalies import Removed
from workbench.errors import BadInputError
from workbench.storage import cf, datasets, sources
from workbench.storage.datasets import Picked
from workbench.storage.finding import names_in
from workbench.storage.reading import read_block
from workbench.workloads.values import BadParameterError

ROUNDING = 1e-13
"""Limit below which singular values in float64 are rounding errors."""
FEW = 512
"""Number of times or places up to which all modes are computed at once, in about the time of some passes."""
_FAN_IN = 8
_NAMED = 5
_MONTH, _YEAR = 27.0, 300.0
"""Days between times from which on they count as months, or years."""
_OF_A_DAY = 5
"""Least number of samples of each calendar day, or else its mean is mostly theirs; with fewer, months are used."""
_OURS = {"patterns", "series", "mode", "explained_variance", "explained_variance_ratio"}
_OURS |= {"sampling_error", "singular_values"}


@dataclass(frozen=True, eq=False)
class Grid:
    """A variable as samples and features, with the terms removed and the weights of places."""

    picked: Picked
    samples: tuple[str, ...]
    features: tuple[str, ...]
    removed: Removed
    weights: np.ndarray[Any, Any]
    """Weights by place; of length 1 along dimensions on which they don't depend."""
    remarks: tuple[str, ...] = ()
    slabs: tuple[int, ...] = ()
    """Blocks of all times and some places; the columns of the matrix are these blocks one after the other."""
    states: Any = None
    """Outcome for each place (`workbench.climate.anomalies`); None before it is known."""
    without: tuple[int, ...] = ()
    """Samples at which no place has a value."""
    shares: Any = None
    """The share of the variance that each mode explains."""

    @property
    def dims(self) -> tuple[str, ...]:
        """Dimensions, those of the samples first."""
        return (*self.samples, *self.features)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths along the dimensions of the samples."""
        return _lengths(self.picked, self.samples)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, and lengths of the other dimensions."""
        return (math.prod(self.lengths), *_lengths(self.picked, self.features))

    def unfolded(self, block: Sequence[int]) -> tuple[int, ...]:
        """Return the lengths along `dims` of a block that is whole along all but the first dimension of the samples."""
        inner = self.lengths[1:]
        return (block[0] // math.prod(inner), *inner, *block[1:])

    def near_poles(self) -> np.ndarray[Any, Any]:
        """Return the columns of the matrix whose weight is below a tenth of the largest."""
        weights = np.broadcast_to(self.weights, self.shape[1:])
        small = (weights > 0) & (weights < 0.1 * np.nanmax(weights))
        parts = da.core.slices_from_chunks(da.core.normalize_chunks(self.slabs[1:], self.shape[1:]))
        return np.flatnonzero(np.concatenate([small[part].ravel() for part in parts]))

    def counts(self) -> dict[str, Any]:
        """Count the samples and places that are used, dropped and filled."""
        absent, present, left_out, filled = np.bincount(self.states.ravel(), minlength=4)[:4]
        return {
            "samples": self.shape[0],
            **self.empty_samples(),
            "places": int(present + filled),
            "other_places": {"without values": int(absent), "left out": int(left_out), "filled": int(filled)},
        }

    def remark_without(self) -> str:
        """Return a message about samples without any value, '' where all have some."""
        if not (empty := self.empty_samples().get("samples_without_values")):
            return ""
        first = "; ".join(empty["first"])
        return f" No place has a value at {formats.count(empty['count'], 'sample')}, the first at {first}."

    def empty_samples(self) -> dict[str, Any]:
        """Return the number of samples without any value and names of the first ones; nothing where all have some."""
        if not self.without:
            return {}
        name = self.picked.names(self.samples, self.lengths)
        names = [name((each,)) for each in self.without[:_NAMED]]
        return {"samples_without_values": {"count": len(self.without), "first": names}}

    def of_states(self, states: Any, k: int) -> Grid:
        """Return the same grid with the outcome for each place; BadInputError where fewer than `k` are left."""
        grid = replace(self, states=states.astype("uint8"))
        counts = grid.counts()
        others = counts["other_places"]
        if counts["places"] < k:
            raise BadInputError(
                f"{self.picked.title} has {formats.count(counts['places'], 'place')} with values at all of the "
                f"{self.shape[0]} samples, and k of eofs is {k}: {others['without values']} have none at all, "
                f"and {others['left out']} were left out.{self.remark_without()} Choose another variable or selection"
                f"{', or missing=' + repr('mean') if others['left out'] else ''}."
            )
        return grid


def near_poles(x: da.Array, us: da.Array, grid: Grid) -> da.Array:
    """Return S² V of the columns of small weight, lazily, from U S: the anomalies' products with the series.

    Patterns are divided by weights. An error of V, which is about equal in all columns, would become large there.
    """
    near = grid.near_poles()
    return us.T.dot(x[:, near]) if len(near) else da.zeros((us.shape[1], 0), dtype=x.dtype)


def check_varies(grid: Grid, values: np.ndarray[Any, Any]) -> None:
    """Raise BadInputError if there is nothing to decompose."""
    if not values[0] > 0:
        problem = f"{grid.picked.title} doesn't vary"
        of = formats.count(grid.counts()["places"], "place")
        raise BadInputError(
            f"{problem}: once what is removed is taken off, nothing but rounding is left at any of its {of}. Choose "
            "another variable or selection, or remove less."
        )


def grid_of(picked: Picked, samples: str | None, remove: str, detrend: bool, weights: str) -> Grid:
    """Return the matrix of samples and places that the parameters describe."""
    dims = _of_samples(picked, samples)
    others = tuple(dim for dim in picked.dims if dim not in dims)
    if not others:
        raise BadParameterError(
            f"{picked.title} has the dimension {', '.join(dims)} alone. Expected places in addition, such as latitude.",
            "variable",
        )
    if reserved := _OURS & {*picked.dims, *datasets.along(picked.coords, picked.dims)}:
        raise BadParameterError(
            f"{picked.title} has {', '.join(sorted(reserved))}, as eofs calls what it finds. Rename it there.", "path"
        )
    removed, remarks = _removed(picked, dims, remove, detrend)
    weight, notes = _weights(picked, others, weights)
    return Grid(picked, dims, others, removed, weight, (*picked.numbers.remarks, *remarks, *notes))


def _lengths(picked: Picked, dims: Sequence[str]) -> tuple[int, ...]:
    return tuple(picked.shape[picked.dims.index(dim)] for dim in dims)


def _of_samples(picked: Picked, samples: str | None) -> tuple[str, ...]:
    usual = cf.time_of(picked.coords, picked.dims)
    if usual is None and picked.source.engine == sources.IMAGES and len(picked.dims) > 2:
        usual = picked.dims[0]
    names = names_in(samples or usual)
    if not names or len(set(names)) < len(names) or not set(names) <= set(picked.dims):
        choices = ", ".join(picked.dims) or "none"
        reason = "no dimension is one of times by CF's conventions" if samples is None else f"it was {samples!r}"
        raise BadParameterError(
            f"samples of eofs: {reason}, in {picked.title}. Name the dimensions of the samples, each once, "
            f"among: {choices}.",
            "samples",
        )
    return tuple(names)


def _removed(picked: Picked, samples: tuple[str, ...], remove: str, detrend: bool) -> tuple[Removed, tuple[str, ...]]:
    """Return the terms to subtract, with a note."""
    time = cf.time_of(picked.coords, samples) or samples[0]
    lengths, at = _lengths(picked, samples), samples.index(time)
    length = lengths[at]
    if time in picked.coords.variables and (remove == "seasonal cycle" or detrend):
        gaps = np.flatnonzero(picked.coords[time].isnull().values)
        if len(gaps):
            raise BadParameterError(
                f"{picked.title} has no date in row {gaps[0]} of {time} ({len(gaps)} of {length} are missing). Mend "
                "the file, or choose remove=mean and no detrend.",
                "remove" if remove == "seasonal cycle" else "detrend",
            )
    days = _days(picked, time)
    groups: Any = np.zeros(length, int) if remove == "mean" else None
    remarks: tuple[str, ...] = ()
    if remove == "seasonal cycle":
        if days is None or picked.coords[time].dtype.kind not in "MO":
            units = str(picked.coords[time].attrs.get("units", "")) if days is not None else ""
            are = f"are numbers of {units!r}, which are no dates" if "since" in units else "has no dates"
            raise BadParameterError(
                f"remove of eofs is 'seasonal cycle', and {time} of {picked.title} {are}. Choose mean or none.",
                "remove",
            )
        # Times may be unsorted and repeated.
        steps = np.diff(np.unique(days))
        step = float(np.median(steps)) if len(steps) else 0.0
        if step > _YEAR:
            raise BadParameterError(
                f"remove of eofs is 'seasonal cycle', and the times of {picked.title} are years. Choose mean or none.",
                "remove",
            )
        dates = picked.coords[time].dt
        groups, unit, why = 31 * dates.month.values + dates.day.values, "day", ""
        each = math.prod(lengths) / len(np.unique(groups))
        if step >= _MONTH or round(each) < _OF_A_DAY:
            groups, unit = dates.month.values, "month"
            why = "" if step >= _MONTH else f", as calendar days have {each:.2g} samples each"
        count = formats.count(len(np.unique(groups)), f"calendar {unit}")
        remarks = (f"The seasonal cycle is the mean of each of {count}{why}.",)
    line = (np.arange(length) if days is None else days) if detrend else None

    def of_all(by_time: Any) -> Any:
        return by_time if by_time is None else np.moveaxis(np.broadcast_to(by_time, others), -1, at).ravel()

    others = (*lengths[:at], *lengths[at + 1 :], length)
    return Removed.of(of_all(groups), of_all(line)), remarks


def _days(picked: Picked, time: str) -> np.ndarray[Any, Any] | None:
    """Return times in days (in their own unit, if they are numbers); None if they aren't times."""
    if time not in picked.coords.variables:
        return None
    values = picked.coords[time].values
    if values.dtype.kind in "iuf":
        return values.astype("float64")
    if values.dtype.kind == "M":
        return (values - values[0]) / np.timedelta64(1, "D")
    if cf.has_calendar(values):
        return np.array([(each - values[0]).total_seconds() / 86400 for each in values])
    return None


def _weights(picked: Picked, features: Sequence[str], weights: str) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """Return weights by place, and messages about them."""
    ones = np.ones((1,) * len(features))
    latitude = None if weights == "none" else cf.latitude_of(picked.coords, features)
    if latitude is None:
        if weights == "latitude":
            raise BadParameterError(
                f"weights of eofs is 'latitude', and {picked.title} has no latitude along {', '.join(features)}. "
                "Choose none.",
                "weights",
            )
        return ones, () if weights == "none" else ("There is no latitude: places are not weighted.",)
    dims = [dim for dim in features if dim in latitude.dims]
    values = latitude.transpose(*dims).values.astype("float64")
    if (np.abs(values) > 90.001).any():
        raise BadParameterError(
            f"weights of eofs: the latitudes of {picked.title} go beyond 90 degrees. Choose none.", "weights"
        )
    weight = np.sqrt(np.cos(np.deg2rad(np.clip(values, -90, 90))))
    shape = [latitude.sizes[dim] if dim in dims else 1 for dim in features]
    remarks = ["Places are weighted by the root of the cosine of their latitude."]
    if nowhere := int(np.isnan(values).sum()):
        remarks.append(f"Of {formats.count(nowhere, 'place')} the latitude is unknown: their values count as missing.")
    return weight.reshape(shape), tuple(remarks)


def weighted_anomalies(
    grid: Grid,
    reads: Sequence[int],
    slabs: Sequence[int],
    chunks: Sequence[int],
    dtype: str,
    missing: str,
) -> tuple[da.Array, da.Array, da.Array]:
    """Return samples × features, lazily, the outcome for each place, and for each sample if it has any value.

    The file is read in blocks of `reads`, which become blocks of all times and some places, `slabs`; the
    matrix's columns are those blocks one after the other, cut into `chunks`. Slabs of some times and all places are
    read as they are: the terms to subtract come from one pass over them.
    """
    picked, shape = grid.picked, grid.shape
    unpack = picked.numbers.recipe(picked.dtype)
    stored = picked.dtype if unpack is None else np.dtype("float32" if picked.dtype == "float32" else "float64")
    raw = da.map_blocks(
        partial(read_block, read=picked.reader(grid.dims), unpack=unpack, dtype=stored),
        # A unique name: the file may have changed since another call.
        name=f"read-block-{uuid.uuid4().hex}",
        chunks=da.core.normalize_chunks(grid.unfolded(reads), _lengths(picked, grid.dims)),
        dtype=stored,
        meta=np.empty((0,) * len(grid.dims), stored),
    ).rechunk(grid.unfolded(slabs))
    if len(grid.samples) > 1:
        raw = da.reshape_blockwise(raw, shape)
    widths = [part if length > 1 else (1,) for part, length in zip(raw.chunks[1:], grid.weights.shape, strict=True)]
    weights = da.from_array(np.nan_to_num(grid.weights)[None], chunks=((1,), *widths))
    if (nowhere := np.isnan(grid.weights)).any():
        raw = da.where(da.from_array(nowhere[None], chunks=weights.chunks), np.nan, raw)
    has_value = da.isfinite(raw).any(axis=tuple(range(1, raw.ndim)))
    options: dict[str, Any] = {
        "removed": grid.removed,
        "missing": missing,
        "where": picked.names(grid.dims, grid.lengths),
        "title": picked.title,
        "as_type": dtype,
        "dtype": dtype,
        "meta": np.empty((0,) * len(shape), dtype),
    }
    if slabs[0] < shape[0]:
        fit = _fit(raw, grid.removed, missing).persist()
        shape_options = {"n_times": shape[0], "chunks": raw.chunks}
        x = da.map_blocks(anomalies.fitted_anomalies, raw, weights, fit=fit, **shape_options, **options)
        states = da.from_delayed(fit.state, (math.prod(shape[1:]),), dtype=int).reshape(shape[1:])
        return da.reshape_blockwise(x, (shape[0], math.prod(shape[1:]))).to_backend(), states, has_value
    both = da.map_blocks(anomalies.anomalies, raw, weights, chunks=((shape[0] + 1,), *raw.chunks[1:]), **options)
    x = da.reshape_blockwise(both[:-1], (shape[0], math.prod(shape[1:])))
    return x.rechunk(tuple(chunks)).to_backend(), both[-1], has_value


def _fit(raw: da.Array, removed: Removed, missing: str) -> Any:
    """Return the terms to subtract at each place, lazily, from one pass over all blocks."""
    of_all = dask.delayed(removed, traverse=False)
    starts = np.cumsum((0, *raw.chunks[0]))
    parts = [
        dask.delayed(anomalies.sums)(block, int(first), raw.shape[0], of_all)
        for block, first in zip(raw.to_delayed().ravel(), starts, strict=False)
    ]
    while len(parts) > 1:
        parts = [dask.delayed(anomalies.added)(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    return dask.delayed(anomalies.fitted)(parts[0], of_all, raw.shape[0], missing)
