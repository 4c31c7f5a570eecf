"""Sums, means and other statistics of an array in a file, over all or some of its dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dask
import dask.array as da
import numpy as np
import xarray as xr
from pydantic import Field

from workbench import formats
from workbench.storage import cf
from workbench.storage.datasets import along, said
from workbench.storage.finding import names_in
from workbench.storage.formats.base import Found
from workbench.storage.reading import array_of
from workbench.storage.variables import dataset
from workbench.workloads import estimates, fields
from workbench.workloads.checks import computed
from workbench.workloads.code import opening
from workbench.workloads.declaring import workload
from workbench.workloads.fields import Text, Words
from workbench.workloads.inputs import checked, facts_of, found_in, imports_of
from workbench.workloads.reductions import absent, histograms, moments, percentiles, variance
from workbench.workloads.registry import Resolution, Template
from workbench.workloads.sizes import grown, shrunk
from workbench.workloads.svd import READ, held, made
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

_BLOCK_BYTES = 32_000_000
WHOLE_BYTES = 1_000_000_000
"""Largest number of bytes for one percentile: they are in one worker's memory several times."""

What = Annotated[
    Literal["sum", "mean", "std", "var", "min", "max", "percentile", "histogram"],
    Words("Statistic to compute. std and var divide by the number of values, like NumPy.", title="What"),
]
Over = Annotated[
    Text,
    Words(
        "Dimensions to reduce over, by name or by number from 0. By default all, which gives one number.",
        allowed="dimensions by name or number, such as time, or 0, 1",
        examples=("time", "0", "latitude, longitude"),
    ),
]
Percent = Annotated[
    float,
    Field(ge=0, le=100, allow_inf_nan=False),
    Words("Percentile; 50 is the median. For what=percentile.", unit="%", only="what=percentile"),
]
Bins = Annotated[
    int,
    Field(ge=1, le=100_000),
    Words(
        "Number of equally wide bins of the histogram, from the smallest to the largest value.", only="what=histogram"
    ),
]
Absent = Annotated[
    Literal["refuse", "leave out"],
    Words("Missing values: refuse them and report where they are, or skip and count them."),
]


_EXACT = ("min", "max")
"""Statistics that are whole numbers for whole numbers."""
_UNWEIGHTED = "The mean isn't weighted by area: cells near the poles count as much as those at the equator."
_NAMES = {"std": "standard deviation", "var": "variance", "min": "minimum", "max": "maximum", "histogram": "histogram"}
_WHOLE = 2**53
"""Number from which on double precision skips whole numbers."""


def reduced(
    x: xr.DataArray, what: str, over: Sequence[str], percent: float, bins: int, skipna: bool, where: str
) -> tuple[xr.DataArray, Any]:
    """Return the requested statistic and the edges of a histogram's bins."""
    if what in ("min", "max"):
        return getattr(x, what)(over, skipna=skipna), None
    axes, remaining, numbers = x.get_axis_num(over), [dim for dim in x.dims if dim not in over], x.data
    each = [(1,) * len(lengths) if axis in axes else lengths for axis, lengths in enumerate(numbers.chunks)]
    if what in ("std", "var") and skipna:
        # Dask's own functions warn on the worker about each place without any value.
        parts = numbers.map_blocks(moments, axes, new_axis=x.ndim, chunks=(*each, (3,)), dtype="float64")
        parts = parts.rechunk(dict.fromkeys(axes, -1))
        result = parts.map_blocks(variance, axes, drop_axis=(*axes, x.ndim), dtype="float64")
        return xr.DataArray(da.sqrt(result) if what == "std" else result, dims=remaining), None
    if what not in ("percentile", "histogram"):
        return getattr(x, what)(over, skipna=skipna, dtype="float64"), None
    if what == "percentile":
        # If values are missing, xarray's quantile calls NumPy once for each place.
        numbers = numbers.rechunk({axis: -1 if axis in axes else "auto" for axis in range(x.ndim)})
        result = numbers.map_blocks(percentiles, percent, axes, drop_axis=axes, dtype=x.dtype, meta=np.empty(0))
        return xr.DataArray(result, dims=remaining), None
    least, largest = map(float, dask.compute(da.nanmin(numbers), da.nanmax(numbers)))
    if math.isnan(least):
        raise ValueError(f"All values of {where} are missing.")
    edges = np.histogram_bin_edges([], bins, range=(least, largest))
    counts = numbers.map_blocks(histograms, edges, axes, new_axis=x.ndim, chunks=(*each, (bins,)), dtype="int64")
    return xr.DataArray(counts.sum(axis=axes), dims=[*remaining, "bin"]), edges


def reduce_file(
    path: fields.Path,
    what: What = "mean",
    over: Over | None = None,
    array: fields.ArrayName | None = None,
    select: fields.Selection | None = None,
    missing: Absent = "refuse",
    percent: Percent = 50.0,
    bins: Bins = 100,
    persist: fields.Persist = False,
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> tuple[da.Array, da.Array, da.Array, Any, Any, float | None]:
    """Compute the sum, mean, standard deviation, variance, extremes, a percentile or a histogram of an array in a file.

    It covers all of the array, or some of its dimensions: over=time of a NetCDF variable, over=0 of an array whose
    dimensions have no names. Each block is read, reduced and discarded; with persist all are held in memory first, and
    the times of reading and computing are reported separately. Whole numbers are added up as float64. The values of one
    percentile must fit in a worker's memory.
    """
    found, axes, dims = _found(locals())
    x, seconds_to_make = _numbers(found, what, missing), None
    if persist:
        x, seconds_to_make = held(x)
    skipna = missing == "leave out"
    gaps = da.isnan(x).sum().map_blocks(absent, x.size, str(found)) if skipna else da.zeros((), dtype=int)
    reduced_dims = [dims[axis] for axis in axes]
    answer, edges = reduced(xr.DataArray(x, dims=dims), what, reduced_dims, percent, bins, skipna, str(found))
    coords = {} if found.coords is None or not answer.dims else along(found.coords, answer.dims)
    attributes = _attributes(found, f"percentile {percent:g}" if what == "percentile" else what)
    labels = {"what": what, "dims": answer.dims, "coords": coords, "attributes": attributes}
    return answer.data, answer.data.ravel()[:20], gaps, edges, labels, seconds_to_make


def _attributes(found: Found, what: str) -> dict[str, Any]:
    """Return the attributes of a statistic: its name, and the unit where it is the array's."""
    attributes = said(found.attributes)
    name, units = attributes.get("long_name", found.array), attributes.get("units")
    has_units = units is not None and what not in ("var", "histogram")
    return {
        **({"long_name": f"{_NAMES.get(what, what)} of {name}"} if name else {}),
        **({"units": units} if has_units else {}),
    }


def _resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    found, axes, dims = _found(values)
    found = checked("reduce_file", found, values["missing_chunks"])
    n_bytes = 8 * math.prod(found.shape[axis] for axis in axes)
    if values["what"] == "percentile" and n_bytes > WHOLE_BYTES:
        raise BadParameterError(
            f"A percentile over {', '.join(dims[axis] for axis in axes)} of {found} needs {formats.size(n_bytes)} in "
            f"one worker's memory, and {formats.size(WHOLE_BYTES)} are allowed. Name fewer dimensions as over, or "
            "select a part.",
            "over",
        )
    rest = [dims[axis] for axis in range(len(dims)) if axis not in axes] + ["bin"] * (values["what"] == "histogram")
    dtype = _type(found, values["what"])
    facts = facts_of(found, values["select"]) | {
        "dtype": dtype,
        "blocks": _blocks(found, dtype),
        "axes": axes,
        "dims": dims,
    }
    over = f" over {', '.join(dims[axis] for axis in axes)}" if axes else ""
    description = f"{values['what']}{over}: {' × '.join(rest) or 'one number'}."
    reduced_dims = [dims[axis] for axis in axes]
    latitude = None if found.coords is None else cf.latitude_of(found.coords, reduced_dims)
    notes = [_UNWEIGHTED] if values["what"] == "mean" and latitude is not None and latitude.size > 1 else []
    return values | facts, (*found.remarks, description, *notes)


def _found(values: Mapping[str, Any]) -> tuple[Found, tuple[int, ...], tuple[str, ...]]:
    """Return the array, the axes to reduce over and the names of all."""
    requested = names_in(values["over"])
    names = [each for each in requested if not each.lstrip("-").isdigit()]
    found = found_in("reduce_file", values, rows=",".join(names), as_matrix=False)
    dims = tuple(f"axis_{axis}" for axis in range(len(found.shape)))
    # A matrix of covariances may have the same name twice.
    if found.dims and len(set(found.dims)) == len(dims):
        dims = found.dims
    return found, _axes(found, requested), dims


def _numbers(found: Found, what: str, missing: str) -> da.Array:
    dtype = _type(found, what)
    x = array_of(found, _blocks(found, dtype), missing, instead="'leave out'")
    return x.to_backend().astype(dtype)


def _type(found: Found, what: str) -> str:
    """Return the dtype for computations: that of whole numbers for their extremes, else floating point."""
    exact = what in _EXACT and np.dtype(found.number_type).kind in "iu"
    return found.number_type if exact else found.working_type


def _axes(found: Found, requested: Sequence[str]) -> tuple[int, ...]:
    count = len(found.shape)
    if not requested:
        return tuple(range(count))
    axis_of = {**{str(axis): axis % count for axis in range(-count, count)}}
    axis_of |= {dim: axis for axis, dim in enumerate(found.dims or ())}
    axes = [axis_of.get(each) for each in requested]
    if None in axes or len(set(axes)) < len(axes):
        dims = ", ".join(found.dims or map(str, range(count)))
        raise BadParameterError(
            f"over of reduce_file is {', '.join(requested)!r}. Name some of the dimensions of {found}: {dims}.", "over"
        )
    return tuple(sorted(axis for axis in axes if axis is not None))


def _blocks(found: Found, dtype: str) -> tuple[int, ...]:
    """Return blocks that join several stored ones, about 32 MB; a part of one where it is larger."""
    if found.whole:
        return found.shape
    room = max(1, _BLOCK_BYTES // np.dtype(dtype).itemsize)
    if found.chunks is None:
        return shrunk(found.shape, room)
    stored = tuple(map(min, found.chunks, found.shape))
    return grown(stored, found.shape, room) if math.prod(stored) <= room else stored


def _needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate one pass, or two of a histogram, whose bins depend on the least and largest value."""
    shape, blocks, item = resolved["shape"], resolved["blocks"], np.dtype(resolved["dtype"]).itemsize
    n_bytes, block = math.prod(shape) * item, math.prod(blocks) * item
    n_reduced = math.prod(shape[axis] for axis in resolved["axes"])
    at_once, passes = resolved["what"] == "percentile", 2 if resolved["what"] == "histogram" else 1
    # A block as stored, as computed with, and its mask of missing values; a percentile needs whole dimensions.
    held_ = 3 * max(block, n_reduced * item if at_once else 0) * threads_per_worker
    answer = n_bytes // max(1, n_reduced)
    if resolved["what"] == "histogram":
        remaining = [axis for axis in range(len(shape)) if axis not in resolved["axes"]]
        answer, counts = (8 * resolved["bins"] * math.prod(of[axis] for axis in remaining) for of in (shape, blocks))
        # The counts of a few blocks wait to be added.
        held_ += 6 * counts * threads_per_worker
    stays = n_bytes if at_once else answer * 2
    return Needs.of(
        input_bytes=n_bytes,
        passes=passes,
        held=held_,
        kept=stays,
        n_rounds=passes,
        on_host=2 * block * threads_per_worker,
        sentence=f"Reads {formats.size(n_bytes)} {('once', 'twice')[passes - 1]} and forgets each "
        f"block: {formats.size(held_)} in a worker at a time"
        + (f", and {formats.size(stays)} wait for their percentile." if at_once else " is enough."),
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    value, head = results["value"], np.asarray(results["head"])
    # JSON has no NaN: None where there was no value.
    first = [each.item() if np.isfinite(each) else None for each in head]
    answer: dict[str, Any] = {"value": first[0]} if value.ndim == 0 else {"shape": list(value.shape), "first": first}
    gaps = int(results["gaps"])
    return answer | ({"missing": gaps} if gaps else {}) | made(results, READ)


def _arrays(results: Mapping[str, Any]) -> xr.Dataset:
    labels = results["labels"]
    coords = dict(labels["coords"])
    if labels["what"] == "histogram":
        edges = np.asarray(results["edges"])
        coords |= {"left": ("bin", edges[:-1]), "right": ("bin", edges[1:])}
    return dataset({labels["what"]: (labels["dims"], results["value"], labels["attributes"])}, coords)


def _right(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Compare with NumPy on a part of the answer, or one number with sums or counts of other kinds."""
    what, value, axes = resolved["what"], results["value"], tuple(resolved["axes"])
    x = _numbers(_found(resolved)[0], what, resolved["missing"])
    remarks, n_known = " ".join(resolved["remarks"]), x.size - int(results["gaps"])
    # If missing values are left out, NaN means a place without any value.
    beyond_range = da.isinf(value) if resolved["missing"] == "leave out" else ~da.isfinite(value)
    if computed(client, beyond_range.any())[0]:
        return Check(
            passed=False, what=f"The {what} is too large for float64. Scale the numbers first. {remarks}".strip()
        )
    if what == "histogram" or (what == "percentile" and value.ndim == 0):
        return _counted(resolved, results, x, n_known, client)
    if what in _EXACT and not value.ndim:
        same, beyond = computed(client, (x == value).sum(), (x < value if what == "min" else x > value).sum())
        words = f"{int(same)} of the {x.size} values are the one that was found, and {int(beyond)} lie beyond it."
        return Check(passed=bool(same > 0 and beyond == 0), what=f"{words} {remarks}".strip())
    if value.ndim:
        # Check both ends and the middle of each remaining dimension.
        of_what = f"{math.prod(min(3, length) for length in value.shape)} of the {value.size} values"
        for axis, whole in enumerate(axis for axis in range(x.ndim) if axis not in axes):
            places = sorted({0, value.shape[axis] // 2, value.shape[axis] - 1})
            x, value = da.take(x, places, axis=whole), da.take(value, places, axis=axis)
        numbers, got = computed(client, x, value)
        expected = _by_numpy(numbers, what, axes, resolved["percent"])
        largest = float(np.abs(numbers[~np.isnan(numbers)]).max(initial=0))
        n_added = math.prod(numbers.shape[axis] for axis in axes)
    else:
        got, of_what, n_added = float(computed(client, value)[0]), "The value", x.size
        parts = da.nansum(x, dtype="float64"), da.nanmin(x), da.nanmax(x)
        total, low, high = (float(each) for each in computed(client, *parts))
        largest = max(abs(low), abs(high))
        expected = total / n_known if what == "mean" else total
        if what in ("std", "var"):
            (squares,) = computed(client, da.nansum((x.astype("float64") - total / n_known) ** 2))
            expected = float(squares) / n_known
            expected = math.sqrt(expected) if what == "std" else expected
    size = {"sum": largest * n_added, "var": largest**2}.get(what, largest)
    if np.dtype(resolved["stored"]).kind in "iu" and size > _WHOLE and what not in _EXACT:
        remarks = f"{remarks} Whole numbers above 2⁵³ are rounded to 16 digits, NumPy's as well.".strip()
    off = float(np.nanmax(np.abs(np.asarray(got) - expected), initial=0))
    # Pairwise summation: rounding grows with the logarithm of the length, which is below 64.
    allowed = 0.0 if what in _EXACT else 64 * float(np.finfo(resolved["dtype"]).eps) * size
    same = (
        np.array_equal(got, expected, equal_nan=True) if what in _EXACT else (np.isnan(got) == np.isnan(expected)).all()
    )
    words = f"{of_what} compared with NumPy's: " + (
        f"they differ by at most {off:.1e} ({allowed:.1e} allowed)." if off or not same else "equal."
    )
    return Check(passed=off <= allowed and bool(same), what=f"{words} {remarks}".strip(), rounding=allowed)


def _by_numpy(numbers: Any, what: str, axes: tuple[int, ...], percent: float) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of dimensions that are missing as a whole
        numbers = numbers if what in _EXACT else numbers.astype("float64")
        if what == "percentile":
            return np.nanpercentile(numbers, percent, axis=axes)
        return getattr(np, f"nan{what}")(numbers, axis=axes)


def _counted(resolved: Mapping[str, Any], results: Mapping[str, Any], x: da.Array, n_known: int, client: Any) -> Check:
    remarks = " ".join(resolved["remarks"])
    if resolved["what"] == "histogram":
        counts, edges = np.asarray(computed(client, results["value"])[0]), np.asarray(results["edges"])
        middle = counts.shape[-1] // 2
        (below,) = computed(client, (x < edges[middle]).sum(axis=resolved["axes"]))
        same = bool((below == counts[..., :middle].sum(axis=-1)).all()) and int(counts.sum()) == n_known
        words = f"{int(counts.sum())} of {n_known} values are histograms, {int(below.sum())} below the middle"
        return Check(passed=same, what=f"{words}, by another pass. {remarks}".strip())
    value = float(computed(client, results["value"])[0])
    nearest = da.where(x < value, x, -np.inf).max(), da.where(x > value, x, np.inf).min()
    low, high, before, after = map(float, computed(client, (x < value).sum(), (x <= value).sum(), *nearest))
    rank = resolved["percent"] / 100 * (n_known - 1)
    # Values at the two ranks around it: the value itself or a neighbor, depending on the number of smaller ones.
    below, above = (value if low <= at < high else before if at < low else after for at in (rank // 1, -(-rank // 1)))
    off, size = abs(value - below - (above - below) * (rank % 1)), max(abs(below), abs(above))
    passed = low <= rank // 1 + 1 <= high and off <= 64 * float(np.finfo(resolved["dtype"]).eps) * size
    words = f"{low:.0f} of {n_known} values are below {value:.10g}, and {high:.0f} not above"
    return Check(passed=passed, what=f"{words}: {resolved['percent']:g} % were requested. {remarks}".strip())


def _code(on_gpu: bool, **resolved: Any) -> str:
    """Return the notebook cell of a statistic of an array in a file."""
    what, axes, skipna = resolved["what"], list(resolved["axes"]), resolved["missing"] == "leave out"
    lines = [opening(resolved), f"over = [x.dims[axis] for axis in {axes}]"]
    if what == "histogram":
        lines += [
            f"edges = np.histogram_bin_edges([], {resolved['bins']}, range=(float(x.min()), float(x.max())))",
            "value = xr.apply_ufunc(",
            "    lambda numbers: np.histogram(numbers, edges)[0],",
            "    x.chunk(dict.fromkeys(over, -1)),",
            '    input_core_dims=[over],\n    output_core_dims=[["bin"]],',
            '    vectorize=True,\n    dask="parallelized",\n    output_dtypes=[int],',
            f'    dask_gufunc_kwargs={{"output_sizes": {{"bin": {resolved["bins"]}}}}},\n)',
        ]
    elif what == "percentile":
        share = resolved["percent"] / 100
        lines.append(f"value = x.chunk(dict.fromkeys(over, -1)).quantile({share}, over, skipna={skipna})")
    elif what in _EXACT:
        lines.append(f"value = x.{what}(over, skipna={skipna})")
    else:
        lines.append(f'value = x.{what}(over, skipna={skipna}, dtype="float64")')
    imports = "import numpy as np\nimport xarray as xr\n" if what == "histogram" else ""
    return f"{imports}from workbench import storage\n\n" + "\n".join((*lines, "value.compute()"))


TEMPLATE = Template(
    workload(
        title="Sum, mean or percentile of your own array",
        prepare=_resolved,
        needs=partial(estimates.with_input, _needs),
        check=_right,
        code=_code,
    )(reduce_file),
    imports=imports_of,
    returns=("value", "head", "gaps", "edges", "labels", "seconds_to_make"),
    small=("head", "gaps"),
    values=("edges", "labels", "seconds_to_make"),
    summary_of=_summary,
    arrays_of=_arrays,
    extra={"missing_chunks": (fields.MissingChunks, "refuse")},
)
