"""Sums, means and the like of an array in a file, of all of it or along some of its dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dask
import dask.array as da
import numpy as np
from pydantic import Field

from workbench import formats
from workbench.workloads import estimates, fields
from workbench.workloads.checks import computed
from workbench.workloads.fields import Resolved, Text, Words
from workbench.workloads.file import array_of_file, shown
from workbench.workloads.opening import SERVED, Found, array_of, imports_of, names_in
from workbench.workloads.reductions import (
    absent,
    between,
    counted,
    histograms,
    in_order,
    inside,
    moments,
    percentiles,
    spread,
)
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import grown, number_of_blocks, shrunk
from workbench.workloads.svd import READ, held, made
from workbench.workloads.values import BadParameterError, Check, Labelled, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

_BLOCK_BYTES = 32_000_000
WHOLE_BYTES = 256_000_000
"""Of numbers in float64 that a percentile is found of in one task."""
FINE = 20
"""Bits by which the numbers are told apart at each pass that finds a percentile of more of them."""
FEW = 1 << 20
"""Numbers that are put in order at once to find a percentile of many."""

What = Annotated[
    Literal["sum", "mean", "std", "min", "max", "percentile", "histogram"],
    Words("What is computed. std divides by the number of values, as NumPy does.", title="What"),
]
Over = Annotated[
    Text,
    Words(
        "Dimensions that are gone, by name or by number from 0 on; where none is given, all: one number.",
        allowed="dimensions by name or number, such as time, or 0, 1",
        examples=("time", "0", "latitude, longitude"),
    ),
]
Percent = Annotated[
    float,
    Field(ge=0, le=100, allow_inf_nan=False),
    Words("Which percentile: 50 is the median. Of what=percentile only.", unit="%", only="what=percentile"),
]
Bins = Annotated[
    int,
    Field(ge=1, le=100_000),
    Words("Bins of the histogram, equally wide from the least to the largest value.", only="what=histogram"),
]
Absent = Annotated[
    Literal["refuse", "leave out"],
    Words("Missing values: refuse them and say where, or leave them out and count them."),
]


_EXACT = ("min", "max")
"""Of whole numbers these are whole numbers."""
_WHOLE = 2**53
"""From here on double precision leaves out whole numbers."""


def percentile_of_all(x: da.Array, percent: float, where: str) -> float:
    """The percentile as NumPy has it, of more numbers than fit into memory, by two to five passes.

    Numbers are counted by their leading bits. Those of the bin that the percentile lies in are put in order where they
    are few, and counted by the bits that follow where they are not.
    """
    bits, before, rank = 8 * x.dtype.itemsize, 0, -1.0
    low, width, last = -(1 << bits - 1), bits, x.size
    while width == bits or (width and last - before > FEW):
        fine = max(0, width - FINE)
        chunks = (*((1,) * n for n in x.numblocks), (1 << width - fine,))
        counts = x.map_blocks(counted, low, width, fine, new_axis=x.ndim, chunks=chunks, dtype="int64")
        upto = before + counts.sum(axis=tuple(range(x.ndim))).to_backend("numpy").compute().cumsum()
        if width == bits:
            # What is missing is in the last bin.
            rank = percent / 100 * (int(upto[-2]) - 1)
        if rank < 0:
            raise ValueError(f"All values of {where} are missing.")
        place = int(np.searchsorted(upto, math.floor(rank), side="right"))
        before, last = int(upto[place - 1]) if place else before, int(upto[place])
        low, width = low + (place << fine), fine
    if width:
        parts = [dask.delayed(inside)(block, low, width) for block in x.to_delayed().ravel()]
        values = np.sort(np.concatenate(dask.compute(*parts)))
    else:
        number = np.array(low ^ (low >> bits - 1 & (1 << bits - 1) - 1), f"i{bits // 8}").view(x.dtype)
        values = np.broadcast_to(number, last - before)
    values = values[math.floor(rank) - before :][:2]
    below = above = float(values[0])
    if rank % 1:
        above = float(values[1] if len(values) > 1 else da.where(x > below, x, np.inf).min().compute())
    return float(between(below, above, rank % 1))


def reduced(
    x: da.Array, what: str, over: tuple[int, ...], percent: float, bins: int, missing: str, where: str
) -> tuple[da.Array, Any]:
    """What is asked for, and the edges of a histogram's bins."""
    skip = "nan" if missing == "leave out" else ""
    if what == "std" and skip:
        # Dask's nanstd warns of each block without any value.
        chunks = [(1,) * len(lengths) if axis in over else lengths for axis, lengths in enumerate(x.chunks)]
        parts = x.map_blocks(moments, over, new_axis=x.ndim, chunks=(*chunks, (3,)), dtype="float64")
        parts = parts.rechunk(dict.fromkeys(over, -1))
        return parts.map_blocks(spread, over, drop_axis=(*over, x.ndim), dtype="float64"), None
    if what in ("sum", "mean", "std"):
        return getattr(da, f"{skip}{what}")(x, axis=over, dtype="float64"), None
    if what in ("min", "max"):
        return getattr(da, f"{skip}{what}")(x, axis=over), None
    if what == "percentile":
        if math.prod(x.shape[axis] for axis in over) * 8 > WHOLE_BYTES:
            return da.asarray(np.array(percentile_of_all(x, percent, where))), None
        x = x.rechunk({axis: -1 if axis in over else "auto" for axis in range(x.ndim)})
        return x.map_blocks(percentiles, percent, over, drop_axis=over, dtype=x.dtype, meta=np.empty(0)), None
    least, largest = map(float, dask.compute(da.nanmin(x), da.nanmax(x)))
    if math.isnan(least):
        raise ValueError(f"All values of {where} are missing.")
    edges = np.histogram_bin_edges([], bins, range=(least, largest))
    chunks = [(1,) * len(lengths) if axis in over else lengths for axis, lengths in enumerate(x.chunks)]
    counts = x.map_blocks(histograms, edges, over, new_axis=x.ndim, chunks=(*chunks, (bins,)), dtype="int64")
    return counts.sum(axis=over), edges


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
    format: Annotated[str, Resolved()] = "npy",
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
    unpack: Annotated[dict[str, Any] | None, Resolved()] = None,
    shape: Annotated[tuple[int, ...], Resolved()] = (),
    blocks: Annotated[tuple[int, ...], Resolved()] = (),
    stored: Annotated[str, Resolved()] = "float64",
    dtype: Annotated[str, Resolved()] = "float64",
    axes: Annotated[tuple[int, ...], Resolved()] = (),
    dims: Annotated[tuple[str, ...], Resolved()] = (),
) -> tuple[da.Array, da.Array, da.Array, Any, Any, float | None]:
    """Sum, mean, standard deviation, extremes, a percentile or a histogram of an array in a file.

    Of all of it, or along some of its dimensions: over=time of a NetCDF variable, over=0 of an array whose dimensions
    have no names. Each block is read, worked on and forgotten; with persist all are held in memory first, and the
    seconds that reading took are told apart from those of computing. Whole numbers are added up as float64. A
    percentile of more than 256 MB at once is found by counting, in two to five passes, and is the same number.
    """
    x = array_of_file(path, array, options or {}, format, unpack, shape, blocks, stored, missing, instead="'leave out'")
    x, seconds_to_make = x.to_backend().astype(dtype), None
    if persist:
        x, seconds_to_make = held(x)
    where = f"{path} ({array})" if array else path
    gaps = da.isnan(x).sum().map_blocks(absent, x.size, where) if missing == "leave out" else da.zeros((), dtype=int)
    value, edges = reduced(x, what, axes, percent, bins, missing, where)
    return value, value.ravel()[:20], gaps, edges, labels_of(array, options, format, dims, what), seconds_to_make


def labels_of(
    array: str | None, options: Mapping[str, Any] | None, format: str, dims: Sequence[str], what: str
) -> dict[str, Any]:
    """Names of the answer's dimensions, and their coordinates where the file has some."""
    coords: dict[str, Any] = {}
    there = [dim for dim in dims if what != "histogram" or dim != dims[-1]]
    if format == "dataset" and there:
        from workbench.storage.datasets import coords_of

        coords = coords_of((array or "").rpartition("/")[2], options or {}, there)
    return {"dims": dims, "coords": coords, "what": what}


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    wanted = names_in(values["over"])
    names = [each for each in wanted if not each.lstrip("-").isdigit()]
    found, facts = array_of("reduce_file", values, rows=",".join(names), as_matrix=False)
    axes = _axes(found, wanted)
    n_reduced = math.prod(found.shape[axis] for axis in axes)
    if values["what"] == "percentile" and n_reduced * 8 > WHOLE_BYTES and len(axes) < len(found.shape):
        raise BadParameterError(
            f"what of reduce_file is percentile, and {found} has {n_reduced} values along {values['over']}, more than "
            f"{formats.size(WHOLE_BYTES)}. Leave over out for the percentile of all, or select less.",
            "over",
        )
    dims = found.dims or tuple(f"axis_{axis}" for axis in range(len(found.shape)))
    left = [dims[axis] for axis in range(len(dims)) if axis not in axes] + ["bin"] * (values["what"] == "histogram")
    if values["what"] in _EXACT and np.dtype(facts["stored"]).kind in "iu":
        facts["dtype"] = facts["stored"]
    facts |= {"blocks": _blocks(found, np.dtype(facts["dtype"]).itemsize), "axes": axes, "dims": tuple(left)}
    over = f" over {', '.join(dims[axis] for axis in axes)}" if axes else ""
    told = f"{values['what']}{over}: {' × '.join(left) or 'one number'}."
    return values | facts, (*found.remarks, told)


def _axes(found: Found, wanted: Sequence[str]) -> tuple[int, ...]:
    count = len(found.shape)
    if not wanted:
        return tuple(range(count))
    known = {**{str(axis): axis % count for axis in range(-count, count)}}
    known |= {dim: axis for axis, dim in enumerate(found.dims or ())}
    axes = [known.get(each) for each in wanted]
    if None in axes or len(set(axes)) < len(axes):
        there = ", ".join(found.dims or map(str, range(count)))
        raise BadParameterError(
            f"over of reduce_file is {', '.join(wanted)!r}. Name some of the dimensions of {found}: {there}.", "over"
        )
    return tuple(sorted(axis for axis in axes if axis is not None))


def _blocks(found: Found, item: int) -> tuple[int, ...]:
    """Several stored blocks that are read as one, about 32 MB; a part of one where it is larger."""
    if found.whole:
        return found.shape
    room = max(1, _BLOCK_BYTES // item)
    if found.chunks is None:
        return shrunk(found.shape, room)
    stored = tuple(map(min, found.chunks, found.shape))
    return grown(stored, found.shape, room) if math.prod(stored) <= room else stored


def _needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass, or two where the least and largest value must be known first, or three of a percentile of many."""
    shape, blocks, item = resolved["shape"], resolved["blocks"], np.dtype(resolved["dtype"]).itemsize
    n_bytes, block = math.prod(shape) * item, math.prod(blocks) * item
    n_blocks, n_reduced = number_of_blocks(shape, blocks), math.prod(shape[axis] for axis in resolved["axes"])
    at_once = resolved["what"] == "percentile" and n_reduced * 8 <= WHOLE_BYTES
    by_counting = resolved["what"] == "percentile" and not at_once
    passes = 3 if by_counting else 2 if resolved["what"] == "histogram" else 1
    # A block as it is stored, as it is worked on, and which of it is missing; a percentile waits for whole dimensions.
    held_ = 3 * max(block, n_reduced * item if at_once else 0) * threads_per_worker
    answer = n_bytes // max(1, n_reduced)
    if resolved["what"] == "histogram":
        left = [axis for axis in range(len(shape)) if axis not in resolved["axes"]]
        answer, counts = (8 * resolved["bins"] * math.prod(of[axis] for axis in left) for of in (shape, blocks))
        # Those of a few blocks wait to be added up.
        held_ += 6 * counts * threads_per_worker
    if by_counting:
        held_ += 6 * 8 * (1 << FINE) * threads_per_worker
    kept = n_bytes if at_once else answer * 2
    return Needs.of(
        input_bytes=n_bytes,
        passes=passes,
        held=held_,
        kept=kept,
        n_tasks=estimates.several(2.4 * passes, n_blocks),
        n_stored=passes * resolved.get("n_stored", 0),
        n_blocks=n_blocks,
        n_rounds=passes,
        work={"read": 2 * passes * n_bytes, "write": passes * n_bytes},
        on_host=2 * block * threads_per_worker,
        sentence=f"Reads {formats.size(n_bytes)} {('once', 'twice', 'two to five times')[passes - 1]} and forgets each "
        f"block: {formats.size(held_)} in a worker at a time"
        + (f", and {formats.size(kept)} wait for their percentile." if at_once else " is enough."),
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    value, head = results["value"], np.asarray(results["head"])
    # JSON has no NaN: None where there was no value.
    first = [each.item() if np.isfinite(each) else None for each in head]
    told: dict[str, Any] = {"value": first[0]} if value.ndim == 0 else {"shape": list(value.shape), "first": first}
    gaps = int(results["gaps"])
    return told | ({"missing": gaps} if gaps else {}) | made(results, READ)


def _arrays(results: Mapping[str, Any]) -> dict[str, Labelled]:
    labels = results["labels"]
    coords = dict(labels["coords"])
    if labels["what"] == "histogram":
        edges = np.asarray(results["edges"])
        coords |= {"left": ("bin", edges[:-1]), "right": ("bin", edges[1:])}
    return {labels["what"]: Labelled(results["value"], tuple(labels["dims"]), coords)}


def _numbers(resolved: Mapping[str, Any]) -> da.Array:
    given = arguments(array_of_file, {name: value for name, value in resolved.items() if name != "axes"})
    return array_of_file(**given).to_backend().astype(resolved["dtype"])


def _right(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """By another way: NumPy on a part of the answer; of one number each block's own sums, or counts below it."""
    what, value, axes, x = resolved["what"], results["value"], resolved["axes"], _numbers(resolved)
    remarks = " ".join(resolved["remarks"])
    # NaN stands for places without any value where missing ones are left out.
    beyond_range = da.isinf(value) if resolved["missing"] == "leave out" else ~da.isfinite(value)
    if computed(client, beyond_range.any())[0]:
        return Check(
            passed=False, what=f"The {what} is too large for float64. Scale the numbers first. {remarks}".strip()
        )
    if what == "histogram" or (what == "percentile" and value.ndim == 0):
        return _counted(resolved, results, x, client, remarks)
    if what in _EXACT and not value.ndim:
        same, beyond = computed(client, (x == value).sum(), (x < value if what == "min" else x > value).sum())
        words = f"{int(same)} of the {x.size} values are the one that was found, and {int(beyond)} lie beyond it."
        return Check(passed=bool(same > 0 and beyond == 0), what=f"{words} {remarks}".strip())
    if value.ndim:
        # Both ends and the middle of each dimension that is left.
        places = [sorted({0, length // 2, length - 1}) for length in value.shape]
        left = iter(places)
        part = x
        for axis in range(x.ndim):
            part = part if axis in axes else da.take(part, next(left), axis=axis)
        for axis, place in enumerate(places):
            value = da.take(value, place, axis=axis)
        numbers, got = computed(client, part, value)
        of_what = f"{got.size} of the {math.prod(results['value'].shape)} values"
    else:
        sums = [da.nansum(x, dtype="float64"), da.nanmin(x), da.nanmax(x)]
        numbers, got, of_what = None, float(computed(client, value)[0]), "The value"
        n_gone = int(results["gaps"])
        total, least, largest = (float(each) for each in computed(client, *sums))
        mean = total / max(1, x.size - n_gone)
        if what == "std":
            (spread,) = computed(client, da.nansum((x.astype("float64") - mean) ** 2))
        expected: Any = {"sum": total, "mean": mean}.get(what)
        expected = math.sqrt(float(spread) / max(1, x.size - n_gone)) if expected is None else expected
        size = max(abs(least), abs(largest)) * (x.size if what == "sum" else 1)
    if numbers is not None:
        known = ~np.isnan(numbers)
        with np.errstate(all="ignore"):
            expected = _by_numpy(numbers, what, tuple(axes), resolved["percent"])
        size = float(np.abs(numbers[known]).max(initial=0)) * (numbers[..., :1].size if what == "sum" else 1)
    if np.dtype(resolved["stored"]).kind in "iu" and size > _WHOLE and what not in _EXACT:
        remarks = f"{remarks} Whole numbers above 2⁵³ are rounded to 16 digits, NumPy's as well.".strip()
    off = float(np.nanmax(np.abs(np.asarray(got) - expected), initial=0))
    # Sums are made pairwise: rounding grows with the logarithm of their length, which is below 64.
    allowed = 0.0 if what in _EXACT else 64 * float(np.finfo(resolved["dtype"]).eps) * size
    same = (
        np.array_equal(got, expected, equal_nan=True) if what in _EXACT else (np.isnan(got) == np.isnan(expected)).all()
    )
    words = f"{of_what} differ{'' if value.ndim else 's'} from NumPy's by at most {off:.1e} ({allowed:.1e} allowed)."
    return Check(passed=off <= allowed and bool(same), what=f"{words} {remarks}".strip(), rounding=allowed)


def _by_numpy(numbers: Any, what: str, axes: tuple[int, ...], percent: float) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of dimensions that are missing as a whole
        numbers = numbers if what in _EXACT else numbers.astype("float64")
        if what == "percentile":
            return np.nanpercentile(numbers, percent, axis=axes)
        return getattr(np, f"nan{what}")(numbers, axis=axes)


def _counted(resolved: Mapping[str, Any], results: Mapping[str, Any], x: da.Array, client: Any, remarks: str) -> Check:
    n_known = math.prod(resolved["shape"]) - int(results["gaps"])
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
    # The numbers of the two ranks around it, told by how many are smaller: the value itself, or one beside it.
    below, above = (value if low <= at < high else before if at < low else after for at in (rank // 1, -(-rank // 1)))
    off, size = abs(value - float(between(below, above, rank % 1))), max(abs(below), abs(above))
    passed = low <= rank // 1 + 1 <= high and off <= 64 * float(np.finfo(resolved["dtype"]).eps) * size
    words = f"{low:.0f} of {n_known} values are below {value:.10g}, and {high:.0f} not above"
    return Check(passed=passed, what=f"{words}: {resolved['percent']:g} % are asked for. {remarks}".strip())


def _parts(resolved: Mapping[str, Any]) -> tuple[Any, ...]:
    numbers = f"WHOLE_BYTES, FINE, FEW = {WHOLE_BYTES}, {FINE}, {FEW}"
    finding = (moments, spread, between, percentiles, in_order, counted, inside, percentile_of_all)
    return *shown(resolved), held, numbers, histograms, *finding, absent, reduced, labels_of


TEMPLATE = Template(
    reduce_file,
    imports=imports_of,
    title="Sum, mean or percentile of your own array",
    returns=("value", "head", "gaps", "edges", "labels", "seconds_to_make"),
    small=("head", "gaps"),
    values=("edges", "labels", "seconds_to_make"),
    resolver=_resolved,
    estimate=lambda resolved, threads: estimates.with_input(_needs, resolved, threads),
    checker=_right,
    summary_of=_summary,
    arrays_of=_arrays,
    parts=_parts,
    extra={"raw": (fields.Raw, False), "missing_chunks": (fields.MissingChunks, "refuse"), **SERVED},
)
