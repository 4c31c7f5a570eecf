"""Empirical orthogonal functions: patterns in space and series in time of a variable of climate, or of images.

Sources: von Storch, Zwiers: Statistical Analysis in Climate Research, chapter 13. North, Bell, Cahalan, Moeng: Sampling
errors in the estimation of empirical orthogonal functions, Monthly Weather Review 110, 1982.
"""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dask
import dask.array as da
import numpy as np
from pydantic import Field

from workbench import formats
from workbench.errors import BadInputError
from workbench.formats import by
from workbench.linalg import anomalies
from workbench.linalg.anomalies import Removed
from workbench.storage import datasets
from workbench.storage.datasets import Picked
from workbench.storage.places import Place
from workbench.workloads import checks, estimates, fields
from workbench.workloads.fields import Resolved, Text, Words
from workbench.workloads.file import read_numbers
from workbench.workloads.opening import SERVED, Found, existing_chunks, imports_of, names_in, options_of
from workbench.workloads.registry import Resolution, Template
from workbench.workloads.sizes import block_rows, grown, number_of_blocks, shrunk
from workbench.workloads.svd import certificate_json
from workbench.workloads.values import BadParameterError, Check, Labelled, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

_SLAB_BYTES = 32_000_000
"""Of a block with all times, which is worked on at once."""
_SMALLEST_SLAB = 1_000_000
_SINGLE = 1e-6
"""Accuracy that anomalies in float32 still have: they are rounded to 6e-8 of themselves."""
ROUNDING = 1e-13
"""Below which singular values in float64 are rounding."""
FEW = 512
"""Times or places of which all modes are found at once, in about the time of the passes that some of them take."""
_READ_BYTES = 64_000_000
_STREAMED_BYTES = 8_000_000
"""Of a block of some times and all places, which is read anew at each pass."""
_FAN_IN = 8
_NAMED = 5
_MONTH, _YEAR = 27.0, 300.0
"""Days between times from which on they are months, or years."""
_OF_A_DAY = 5
"""Samples of each calendar day, without which its mean is mostly theirs: then months are taken."""
_OURS = {"patterns", "series", "mode", "explained_variance", "explained_variance_ratio"}
_OURS |= {"sampling_error", "singular_values"}

Samples = Annotated[
    Text,
    Words(
        "Dimensions of the samples, such as time and the members of an ensemble; where none is given, that "
        "of the times.",
        allowed="names of dimensions, such as time or time, member",
        examples=("time", "time, member"),
    ),
]
Removal = Annotated[
    Literal["mean", "seasonal cycle", "none"],
    Words(
        "What is taken off each place: its mean over time; the mean of each calendar month (of each "
        "calendar day, where times are closer than months and each day has five samples or so); nothing."
    ),
]
Detrend = Annotated[bool, Words("Take off each place's straight line over time, too.")]
Weights = Annotated[
    Literal["auto", "latitude", "none"],
    Words(
        "Weight places by the root of the cosine of their latitude, so that areas count as they are large. "
        "auto: where there is a latitude."
    ),
]
Missing = Annotated[
    Literal["refuse", "mean", "leave out"],
    Words(
        "Places that have values at some times only: refuse them and say where, fill them with the mean "
        "that is removed, or leave the places out. Those without any value (land, sea) are always left out."
    ),
]
Sharpness = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        "How far patterns and series may be off, where modes are well apart; variances are right to its "
        "square. Passes are made until bounds on the error say so, and a certificate tells how far they came.",
        unit="relative",
        examples=(1e-3,),
    ),
]


def eofs(
    path: fields.DatasetPath,
    variable: fields.VariableName | None = None,
    select: fields.Selection | None = None,
    k: fields.Components = 10,
    samples: Samples | None = None,
    remove: Removal = "mean",
    detrend: Detrend = False,
    weights: Weights = "auto",
    missing: Missing = "refuse",
    tol: Sharpness = 1e-3,
    seed: fields.Seed = 0,
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
    reads: Annotated[tuple[int, ...], Resolved()] = (),
    slabs: Annotated[tuple[int, ...], Resolved()] = (),
    chunks: Annotated[tuple[int, int], Resolved()] = (0, 0),
    dtype: Annotated[str, Resolved()] = "float64",
    keep: Annotated[bool, Resolved()] = True,
) -> tuple[da.Array, da.Array, da.Array, da.Array, Any, Any]:
    """Empirical orthogonal functions of a variable: patterns and their time series, for climate and images.

    Reads NetCDF, Zarr groups as xarray writes them, and GRIB. Of each place its mean or seasonal cycle, and a trend if
    you like, is taken off, and places count by the root of the cosine of their latitude. Of what is left the SVD gives
    patterns (in the variable's units), series (of variance one) and the share of the variance that each explains, with
    North's rule for whether neighbours can be told apart. The largest weighted value of each pattern is positive.
    """
    from workbench.linalg import svd_compressed
    from workbench.storage.datasets import pick
    from workbench.workloads.eofs import FEW, ROUNDING, check_varies, grid_of, near_poles, weighted_anomalies

    grid = grid_of(pick(path, variable, select, options), samples, remove, detrend, weights)
    x, states, known = weighted_anomalies(grid, reads, slabs, chunks, dtype, missing)
    if keep:
        x, states, known = dask.persist(x, states, known)
    states, known = dask.compute(states, known)
    grid = replace(grid, slabs=slabs, without=tuple(map(int, np.flatnonzero(~known)))).of_states(states, k)
    more: dict[str, Any] = {"axis": 0} if slabs[0] < len(x) else {}
    if not more and min(x.shape) <= FEW:
        # A basis of everything takes one pass, however near to each other the modes are.
        more = {"n_oversamples": min(x.shape) - k}
    # Of a symmetric matrix's value the error is the square of that of its vector.
    u, rounded, v = result = svd_compressed(
        x, k, tol=max(tol**2, ROUNDING), seed=seed, coerce_signs=False, keep=keep, **more
    )
    s = da.from_array(result.values)
    check_varies(grid, result.values)
    signs = da.where(v.max(axis=1) < -v.min(axis=1), -1, 1).astype(v.dtype)
    u, v = u * signs, v * signs[:, None]
    # Of the longer axis the vectors are lazy: U S is had from those that are at hand.
    # Squares of larger values leave the range of float32.
    exact = x if 1e-15 < result.values[0] < 1e15 else x.astype("float64")
    us = u * rounded if "axis" not in more and x.shape[0] < x.shape[1] else exact.dot(v.T)
    polar = near_poles(exact, us, grid)
    return u, s, v, polar, result.certificate, replace(grid, shares=result.shares)


@dataclass(frozen=True, eq=False)
class Grid:
    """A variable as samples and features: where its values are, what is removed, how places are weighted."""

    picked: Picked
    samples: tuple[str, ...]
    features: tuple[str, ...]
    removed: Removed
    weights: np.ndarray[Any, Any]
    """By place; of length 1 along dimensions on which they don't depend."""
    told: tuple[str, ...] = ()
    slabs: tuple[int, ...] = ()
    """Blocks of all times and some places, one after the other of which the columns of the matrix are."""
    states: Any = None
    """Of each place, what became of it (`workbench.linalg.anomalies`); None before it is known."""
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
        """How many samples there are, and the lengths along those of the places."""
        return (math.prod(self.lengths), *_lengths(self.picked, self.features))

    def unfolded(self, block: Sequence[int]) -> tuple[int, ...]:
        """Lengths along `dims` of a block that has all along each but the first dimension of the samples."""
        inner = self.lengths[1:]
        return (block[0] // math.prod(inner), *inner, *block[1:])

    def near_poles(self) -> np.ndarray[Any, Any]:
        """Columns of the matrix whose weight is below a tenth of the largest."""
        weights = np.broadcast_to(self.weights, self.shape[1:])
        small = (weights > 0) & (weights < 0.1 * np.nanmax(weights))
        parts = da.core.slices_from_chunks(da.core.normalize_chunks(self.slabs[1:], self.shape[1:]))
        return np.flatnonzero(np.concatenate([small[part].ravel() for part in parts]))

    def counts(self) -> dict[str, Any]:
        """How many samples and places took part, and what became of the others."""
        absent, present, left_out, filled = np.bincount(self.states.ravel(), minlength=4)[:4]
        return {
            "samples": self.shape[0],
            **self.empty_samples(),
            "places": int(present + filled),
            "other_places": {"without values": int(absent), "left out": int(left_out), "filled": int(filled)},
        }

    def remark_without(self) -> str:
        """Return a sentence on samples without any value, '' where all have some."""
        if not (found := self.empty_samples().get("samples_without_values")):
            return ""
        first = "; ".join(found["first"])
        return f" No place has a value at {formats.count(found['count'], 'sample')}, the first at {first}."

    def empty_samples(self) -> dict[str, Any]:
        """Return the number of samples without any value and names of the first ones; nothing where all have some."""
        if not self.without:
            return {}
        name = self.picked.names(self.samples, self.lengths)
        named = [name((each,)) for each in self.without[:_NAMED]]
        return {"samples_without_values": {"count": len(self.without), "first": named}}

    def of_states(self, states: Any, k: int) -> Grid:
        """The same with what became of each place; BadInputError where fewer than `k` are left."""
        found = replace(self, states=states.astype("uint8"))
        counts = found.counts()
        others = counts["other_places"]
        if counts["places"] < k:
            raise BadInputError(
                f"{self.picked.title} has {formats.count(counts['places'], 'place')} with values at all of the "
                f"{self.shape[0]} samples, and k of eofs is {k}: {others['without values']} have none at all, "
                f"and {others['left out']} were left out.{self.remark_without()} Choose another variable or selection"
                f"{', or missing=' + repr('mean') if others['left out'] else ''}."
            )
        return found


def near_poles(x: da.Array, us: da.Array, grid: Grid) -> da.Array:
    """S² V of the columns of small weight, lazily, from U S: what series have in common with the anomalies themselves.

    Patterns are divided by weights. An error of V, which is about equal in all columns, would become large there.
    """
    near = grid.near_poles()
    return us.T.dot(x[:, near]) if len(near) else da.zeros((us.shape[1], 0), dtype=x.dtype)


def check_varies(grid: Grid, values: np.ndarray[Any, Any]) -> None:
    """Raise BadInputError where there is nothing to decompose."""
    if not values[0] > 0:
        what = f"{grid.picked.title} doesn't vary"
        of = formats.count(grid.counts()["places"], "place")
        raise BadInputError(
            f"{what}: once what is removed is taken off, nothing but rounding is left at any of its {of}. Choose "
            "another variable or selection, or remove less."
        )


_OF_GRID = ("samples", "remove", "detrend", "weights")


def grid_of(picked: Picked, samples: str | None, remove: str, detrend: bool, weights: str) -> Grid:
    """What is decomposed of a variable, from the words of a person."""
    dims = _of_samples(picked, samples)
    others = tuple(dim for dim in picked.dims if dim not in dims)
    if not others:
        raise BadParameterError(
            f"{picked.title} has the dimension {', '.join(dims)} alone. Expected places beside it, such as latitude.",
            "variable",
        )
    if taken := _OURS & {*picked.dims, *datasets.along(picked.coords, picked.dims)}:
        raise BadParameterError(
            f"{picked.title} has {', '.join(sorted(taken))}, as eofs calls what it finds. Rename it there.", "path"
        )
    removed, told = _removed(picked, dims, remove, detrend)
    weight, more = _weights(picked, others, weights)
    return Grid(picked, dims, others, removed, weight, (*picked.numbers.remarks, *told, *more))


def _lengths(picked: Picked, dims: Sequence[str]) -> tuple[int, ...]:
    return tuple(picked.shape[picked.dims.index(dim)] for dim in dims)


def _of_samples(picked: Picked, samples: str | None) -> tuple[str, ...]:
    usual = datasets.time_of(picked.coords, picked.dims)
    if usual is None and picked.source.engine == datasets.IMAGES and len(picked.dims) > 2:
        usual = picked.dims[0]
    found = names_in(samples or usual)
    if not found or len(set(found)) < len(found) or not set(found) <= set(picked.dims):
        there = ", ".join(picked.dims) or "none"
        given = "no dimension is one of times by CF's conventions" if samples is None else f"it was {samples!r}"
        raise BadParameterError(
            f"samples of eofs: {given}, in {picked.title}. Name the dimensions of the samples, each once, "
            f"among: {there}.",
            "samples",
        )
    return tuple(found)


def _removed(picked: Picked, samples: tuple[str, ...], remove: str, detrend: bool) -> tuple[Removed, tuple[str, ...]]:
    """What is taken off, and a sentence on it."""
    time = datasets.time_of(picked.coords, samples) or samples[0]
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
    told: tuple[str, ...] = ()
    if remove == "seasonal cycle":
        if days is None or picked.coords[time].dtype.kind not in "MO":
            units = str(picked.coords[time].attrs.get("units", "")) if days is not None else ""
            are = f"are numbers of {units!r}, which are no dates" if "since" in units else "has no dates"
            raise BadParameterError(
                f"remove of eofs is 'seasonal cycle', and {time} of {picked.title} {are}. Choose mean or none.",
                "remove",
            )
        # In whatever order they are, and however often.
        apart = np.diff(np.unique(days))
        step = float(np.median(apart)) if len(apart) else 0.0
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
        told = (f"The seasonal cycle is the mean of each of {count}{why}.",)
    line = (np.arange(length) if days is None else days) if detrend else None

    def of_all(by_time: Any) -> Any:
        return by_time if by_time is None else np.moveaxis(np.broadcast_to(by_time, others), -1, at).ravel()

    others = (*lengths[:at], *lengths[at + 1 :], length)
    return Removed.of(of_all(groups), of_all(line)), told


def _days(picked: Picked, time: str) -> np.ndarray[Any, Any] | None:
    """Times in days (in what they are numbers of, where they are numbers); None where they are none."""
    if time not in picked.coords.variables:
        return None
    values = picked.coords[time].values
    if values.dtype.kind in "iuf":
        return values.astype("float64")
    if values.dtype.kind == "M":
        return (values - values[0]) / np.timedelta64(1, "D")
    if values.dtype.kind == "O" and hasattr(values[0], "calendar"):
        return np.array([(each - values[0]).total_seconds() / 86400 for each in values])
    return None


def _weights(picked: Picked, features: Sequence[str], weights: str) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """Weights by place, and a sentence on them."""
    ones = np.ones((1,) * len(features))
    latitude = None if weights == "none" else datasets.latitude_of(picked.coords, features)
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
    found = np.sqrt(np.cos(np.deg2rad(np.clip(values, -90, 90))))
    shape = [latitude.sizes[dim] if dim in dims else 1 for dim in features]
    told = ["Places are weighted by the root of the cosine of their latitude."]
    if nowhere := int(np.isnan(values).sum()):
        told.append(f"Of {formats.count(nowhere, 'place')} the latitude isn't known: what is there counts as missing.")
    return found.reshape(shape), tuple(told)


def weighted_anomalies(
    grid: Grid,
    reads: Sequence[int],
    slabs: Sequence[int],
    chunks: Sequence[int],
    dtype: str,
    missing: str,
) -> tuple[da.Array, da.Array, da.Array]:
    """Samples × features, lazily, what became of each place, and whether each sample has any value.

    The file is read in blocks of `reads`, which become blocks of all times and some places, `slabs`; of the matrix,
    columns are those blocks one after the other, cut into `chunks`. Slabs of some times and all places are read as they
    are: what to take off is found out by going through them once.
    """
    picked, shape = grid.picked, grid.shape
    unpack = picked.numbers.recipe(picked.dtype)
    stored = picked.dtype if unpack is None else np.dtype("float32" if picked.dtype == "float32" else "float64")
    raw = da.map_blocks(
        partial(read_numbers, read=picked.reader(grid.dims), unpack=unpack, dtype=stored),
        # Of this call alone: since another call the file may have been written again.
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
    known = da.isfinite(raw).any(axis=tuple(range(1, raw.ndim)))
    told: dict[str, Any] = {
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
        more = {"n_times": shape[0], "chunks": raw.chunks}
        x = da.map_blocks(anomalies.fitted_anomalies, raw, weights, fit=fit, **more, **told)
        states = da.from_delayed(fit.state, (math.prod(shape[1:]),), dtype=int).reshape(shape[1:])
        return da.reshape_blockwise(x, (shape[0], math.prod(shape[1:]))).to_backend(), states, known
    both = da.map_blocks(anomalies.anomalies, raw, weights, chunks=((shape[0] + 1,), *raw.chunks[1:]), **told)
    x = da.reshape_blockwise(both[:-1], (shape[0], math.prod(shape[1:])))
    return x.rechunk(tuple(chunks)).to_backend(), both[-1], known


def _fit(raw: da.Array, removed: Removed, missing: str) -> Any:
    """What is to be taken off each place, lazily, from one reading of all blocks."""
    of_all = dask.delayed(removed, traverse=False)
    starts = np.cumsum((0, *raw.chunks[0]))
    parts = [
        dask.delayed(anomalies.sums)(block, int(first), raw.shape[0], of_all)
        for block, first in zip(raw.to_delayed().ravel(), starts, strict=False)
    ]
    while len(parts) > 1:
        parts = [dask.delayed(anomalies.added)(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    return dask.delayed(anomalies.fitted)(parts[0], of_all, raw.shape[0], missing)


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    """What is in the file, and the blocks in which it is read and worked on."""
    options = options_of("eofs", values["path"], values)
    try:
        picked = datasets.pick(values["path"], values["variable"], values["select"], options)
    except BadParameterError as err:
        raise BadParameterError(f"{err.parameter} of eofs: {err}", err.parameter) from err
    except BadInputError as err:
        raise BadParameterError(f"path of eofs: {err}", "path") from err
    told = _existing_chunks(picked, values["missing_chunks"])
    grid = grid_of(picked, *(values[name] for name in _OF_GRID))
    times, places = grid.shape[0], math.prod(grid.shape[1:])
    most = min(times - grid.removed.rank, places)
    if values["k"] > most:
        samples = formats.count(times, "sample")
        raise BadParameterError(
            f"k of eofs is {values['k']}. Give a whole number from 1 to {most}: there are {samples}, of which "
            f"{grid.removed.rank} are taken by what is removed, and {places} places."
            if most > 0
            else f"{grid.picked.title} has {samples}, and as many are taken by what is removed: nothing is left.",
            "k" if most > 0 else "select",
        )
    dtype = "float32" if grid.picked.dtype == np.float32 and values["tol"] >= _SINGLE else "float64"
    item = np.dtype(dtype).itemsize
    stored = [grid.picked.stored[grid.picked.dims.index(dim)] for dim in (grid.samples[0], *grid.features)]
    # With each place along the first dimension of the samples come all along the others.
    inner = math.prod(grid.lengths[1:])
    stored[0] *= inner
    slabs, reads = _blocks(grid.shape, tuple(stored), item, around.threads)
    n_bytes = times * places * item
    keep = around.keeps(n_bytes)
    if slabs != reads and not (keep and times <= FEW):
        # To put all times of a place together, all would have to be in memory, twice.
        high = max(1, _STREAMED_BYTES // (places * item))
        slabs = reads = (min(times - inner, max(1, high // stored[0]) * stored[0]), *grid.shape[1:])
    streamed = slabs[0] < times
    chunks = (
        (slabs[0] if streamed else times, math.prod(slabs[1:]))
        if streamed or times <= places
        else (block_rows(times, places, item, threads=around.threads), places)
    )
    notes = (*told, *grid.told)
    if slabs != reads:
        notes = (
            *notes,
            f"Read in blocks of {by(reads)} and worked on in blocks of {by(slabs)}, which have all times.",
        )
    if not keep:
        notes = (*notes, f"{formats.size(n_bytes)} are more than {around.too_much}: read again at each pass.")
    facts = {
        "path": grid.picked.source.path,
        "options": options,
        "engine": grid.picked.source.engine,
        "samples": ", ".join(grid.samples),
        "variable": values["variable"] or grid.picked.variable,
        "reads": reads,
        "slabs": slabs,
        "chunks": chunks,
        "dtype": dtype,
        "keep": keep,
        "shape": (times, places),
        "grid": grid.shape,
        "n_stored": number_of_blocks(picked.shape, picked.stored),
    }
    return values | facts, notes


def _existing_chunks(picked: Picked, missing_chunks: str) -> tuple[str, ...]:
    """Return sentences on metadata that contradict each other and on chunks that don't exist."""
    recipe, missing = picked.recipe(), picked.numbers.missing
    unpack = {"missing": missing}
    found = Found(picked.source.path, picked.name, "dataset", picked.shape, picked.dtype, recipe=recipe, unpack=unpack)
    place = Place(picked.source.path, picked.source.options)
    try:
        return existing_chunks(found, place, missing_chunks)
    except BadInputError as err:
        raise BadParameterError(f"path of eofs: {err}", "path") from err


def _blocks(
    shape: tuple[int, ...], stored: tuple[int, ...], item: int, threads: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks of all times and some places, of whole stored ones where that can be, and blocks in which to read."""
    times, places = shape[0], shape[1:]
    share = math.prod(shape) * item // (4 * (threads or 1))
    target = max(1, min(_SLAB_BYTES, max(share, _SMALLEST_SLAB)) // (times * item))
    of_places = stored[1:]
    slab = (times, *(grown(of_places, places, target) if math.prod(of_places) <= target else shrunk(of_places, target)))
    if stored[0] >= times and all(
        part % each == 0 or part == length for part, each, length in zip(slab[1:], of_places, places, strict=True)
    ):
        return slab, slab
    room = max(1, _READ_BYTES // item)
    wide = grown(of_places, places, max(1, room // stored[0]))
    high = min(times, stored[0] * max(1, room // (math.prod(wide) * stored[0])))
    return slab, (high, *wide)


def _needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """As for the SVD of a file, whose blocks are in hand as they are read, in float64 and as they are decomposed."""
    times, item = resolved["shape"][0], np.dtype(resolved["dtype"]).itemsize
    slab = math.prod(resolved["slabs"])
    taken = max(math.prod(resolved["reads"]) * item, slab * (2 * item + 17))
    streamed = resolved["slabs"][0] < times
    as_svd = {
        "axis": 0 if streamed else None,
        "tol": max(resolved["tol"] ** 2, ROUNDING),
        "method": "workbench",
        "center": False,
        "blocks": (1, taken // (2 * item) + 1),
        "chunks": resolved["chunks"] if streamed else (times, slab // times),
    }
    return estimates.svd_of_file({**resolved, **as_svd}, threads_per_worker)


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Singular values, variances with their shares and North's rule, and what became of the places."""
    grid, s = results["grid"], np.asarray(results["s"], "float64")
    apart = separated(s**2, grid.shares, grid.shape[0])
    told = certificate_json(results["certificate"])
    if results["u"].dtype == np.float32:
        # Held in float32, anomalies are rounded to half of eps of themselves; together that moves a value by so much.
        rounding = float(np.finfo("float32").eps) / 2 / np.sqrt(np.maximum(grid.shares, 1e-300))
        for name, scale in (("bound", 1.0), ("of_largest", s / (s[0] or 1.0))):
            both = zip(told[name], rounding * scale, strict=True)
            told[name] = [None if each is None else each + float(more) for each, more in both]
        told["sentence"] += " That is of anomalies in float32, which are rounded to 6e-8 of themselves."
    if grid.without:
        told["sentence"] += f"{grid.remark_without()} What isn't known there is filled."
    return {
        "singular_values": [float(each) for each in s],
        "explained_variance": [float(each) for each in s**2 / max(1, grid.shape[0] - 1)],
        "explained_variance_ratio": [float(each) for each in grid.shares],
        "separated": apart,
        "north": _north(apart),
        **grid.counts(),
        "certificate": told,
    }


def separated(variances: np.ndarray[Any, Any], shares: np.ndarray[Any, Any], n_samples: int) -> list[bool | None]:
    """By North's rule, whether each mode can be told from its neighbours; None where the one after it isn't known.

    A variance has a sampling error of sqrt(2 / n) of itself. Modes are apart where the distance of their variances is
    more than the error of the larger one. Samples are taken as independent, which those of a climate seldom are.
    """
    errors = variances * math.sqrt(2 / n_samples)
    apart: list[bool | None] = [bool(each) for each in variances[:-1] - variances[1:] > errors[:-1]]
    # Of the next variance all that is known is that it is no more than this one, and than all that is left.
    left = float(variances[-1] * max(0.0, 1 - shares.sum()) / shares[-1]) if shares[-1] else 0.0
    apart.append(True if variances[-1] - left > errors[-1] else None)
    found: list[bool | None] = []
    for number, after in enumerate(apart):
        before = number == 0 or apart[number - 1]
        found.append(False if before is False or after is False else after)
    return found


def _north(apart: Sequence[bool | None]) -> str:
    names = [str(number) for number, each in enumerate(apart, 1) if each]
    mixed = [str(number) for number, each in enumerate(apart, 1) if each is False]
    said = [f"{', '.join(names)} can be told from {'their' if len(names) > 1 else 'its'} neighbours"] if names else []
    said += (
        [
            f"{', '.join(mixed)} can't, and may be mixtures"
            if said
            else f"{', '.join(mixed)} can't be told from their neighbours and may be mixtures"
        ]
        if mixed
        else []
    )
    said += [f"of {len(apart)} nothing is known, as it is the last"] if apart[-1] is None else []
    return f"By North's rule, with independent times, of the modes {'; '.join(said)}."


def _arrays(results: Mapping[str, Any]) -> dict[str, Labelled]:
    """Patterns in the variable's units on its grid, series of variance one, and what belongs to each mode."""
    grid, u, v = results["grid"], results["u"], results["v"]
    picked, s, n = grid.picked, np.asarray(results["s"], "float64"), max(1, grid.shape[0] - 1)
    modes = {"mode": np.arange(1, len(s) + 1)}
    known = {name: picked.attrs[name] for name in ("units", "long_name", "standard_name") if name in picked.attrs}
    used = np.isin(grid.states, (anomalies.PRESENT, anomalies.FILLED))
    unit = np.where(used & (grid.weights > 0), 1.0, np.nan) / np.where(grid.weights > 0, grid.weights, 1.0)
    lengths = da.core.normalize_chunks(grid.slabs[1:], grid.shape[1:])
    widths = tuple(map(math.prod, itertools.product(*lengths)))
    near, found = grid.near_poles(), da.asarray(v).to_backend("numpy") * s[:, None]
    if len(near):
        place, small = np.zeros(found.shape[1], int), np.zeros(found.shape[1], bool)
        place[near], small[near] = np.arange(len(near)), True
        # Of modes that are rounding the patterns are any.
        inverse = np.divide(1, s, out=np.zeros_like(s), where=s > s[0] * ROUNDING)[:, None]
        spread = (
            da.asarray(results["polar"])
            .to_backend("numpy")
            .rechunk(-1)
            .map_blocks(np.take, indices=place, axis=1, chunks=((len(s),), (len(place),)), dtype=found.dtype)
        )
        found = da.where(small, spread * inverse, found)
    maps = da.reshape_blockwise(
        found.rechunk((len(s), widths)), (len(s), *grid.shape[1:]), chunks=((len(s),), *lengths)
    )
    by_mode = {
        "explained_variance": s**2 / n,
        "explained_variance_ratio": grid.shares,
        "sampling_error": s**2 / n * math.sqrt(2 / grid.shape[0]),
        "singular_values": s,
    }
    return {
        "patterns": Labelled(
            maps / math.sqrt(n) * da.from_array(unit[None], chunks=((1,), *lengths)),
            ("mode", *grid.features),
            modes | datasets.along(picked.coords, grid.features),
            known,
        ),
        "series": Labelled(
            (u * math.sqrt(n)).reshape(*grid.lengths, len(s)),
            (*grid.samples, "mode"),
            modes | datasets.along(picked.coords, grid.samples),
        ),
        **{name: Labelled(values, ("mode",), modes) for name, values in by_mode.items()},
    }


def _matrix(resolved: Mapping[str, Any]) -> da.Array:
    picked = datasets.pick(*(resolved[name] for name in ("path", "variable", "select", "options")))
    grid = grid_of(picked, *(resolved[name] for name in _OF_GRID))
    return weighted_anomalies(grid, *(resolved[name] for name in ("reads", "slabs", "chunks", "dtype", "missing")))[0]


def _right(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    x = _matrix(resolved)
    return checks.svd_is_certified(x, results, client, axis=0 if resolved["slabs"][0] < len(x) else None)


TEMPLATE = Template(
    eofs,
    imports=imports_of,
    title="Empirical orthogonal functions",
    returns=("u", "s", "v", "polar", "certificate", "grid"),
    small=("s",),
    values=("certificate", "grid"),
    resolver=_resolved,
    estimate=_needs,
    checker=_right,
    summary_of=_summary,
    arrays_of=_arrays,
    extra={"missing_chunks": (fields.MissingChunks, "refuse"), **SERVED},
)
