"""Empirical orthogonal functions: spatial patterns and time series of a climate variable, or of images.

Sources: von Storch, Zwiers: Statistical Analysis in Climate Research, chapter 13. North, Bell, Cahalan, Moeng: Sampling
errors in the estimation of empirical orthogonal functions, Monthly Weather Review 110, 1982.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.utils import parse_bytes
from pydantic import Field

from workbench import formats
from workbench.climate import anomalies
from workbench.climate.grid import FEW, ROUNDING, Grid, check_varies, grid_of, near_poles, weighted_anomalies
from workbench.errors import BadInputError
from workbench.formats import by
from workbench.storage import datasets
from workbench.storage.datasets import Picked, pick
from workbench.storage.formats.base import Found
from workbench.storage.formats.netcdf import found_of
from workbench.storage.servers import options_of
from workbench.storage.variables import dataset
from workbench.workloads import checks, estimates, fields
from workbench.workloads.code import calling, to_host
from workbench.workloads.declaring import workload
from workbench.workloads.fields import Text, Words
from workbench.workloads.forms import bad
from workbench.workloads.inputs import checked, facts_of, imports_of
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import block_rows, grown, shrunk
from workbench.workloads.svd import certificate_json
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

_SLAB_BYTES = 32_000_000
"""Bytes of a block with all times, which is processed at once."""
_SMALLEST_SLAB = 1_000_000
_SINGLE = 1e-6
"""Accuracy that anomalies in float32 still have: they are rounded to 6e-8 of themselves."""
_READ_BYTES = 64_000_000
_STREAMED_BYTES = 8_000_000
"""Bytes of a block of some times and all places, which is read again in each pass."""

Samples = Annotated[
    Text,
    Words(
        "Dimensions of the samples, such as time and the members of an ensemble. By default the time dimension.",
        allowed="names of dimensions, such as time or time, member",
        examples=("time", "time, member"),
    ),
]
Removal = Annotated[
    Literal["mean", "seasonal cycle", "none"],
    Words(
        "What to subtract at each place: its mean over time; its seasonal cycle, by calendar month (by "
        "calendar day if times are closer than months and each day has about five samples); or nothing."
    ),
]
Detrend = Annotated[
    bool,
    Words(
        "Also subtract the linear trend over time at each place. It is fitted by least squares together with the mean "
        "or the seasonal cycle that is removed."
    ),
]
Weights = Annotated[
    Literal["auto", "latitude", "none"],
    Words(
        "Weight places by the square root of the cosine of their latitude, so that areas count by their size."
        " auto: if there is a latitude."
    ),
]
Missing = Annotated[
    Literal["refuse", "mean", "leave out"],
    Words(
        "Places with values at some times only: refuse them and report where they are, fill them with the "
        "mean that is removed, or drop the places. Places without any value (land or sea) are always dropped."
    ),
]
Sharpness = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        "Largest relative error of patterns and series of well separated modes; variances are accurate to its"
        " square. Passes continue until error bounds meet it, and a certificate reports the bounds reached.",
        unit="relative",
        examples=(1e-3,),
    ),
]


BlockSize = Annotated[
    int | Text,
    Words(
        "Size of the blocks of anomalies. Each task processes one block.",
        allowed="'auto', or a size such as '32 MiB'",
        unit="bytes",
        examples=("auto", "32 MiB"),
    ),
]


@dataclass(frozen=True)
class Blocks:
    """Blocks in which the anomalies of a grid are read and decomposed."""

    reads: tuple[int, ...]
    """Samples and places along each dimension of a block that is read."""
    slabs: tuple[int, ...]
    """The same for a block in computations: all samples and some places, or if streamed, the reverse."""
    chunks: tuple[int, int]
    """Rows and columns of a block of the matrix."""
    dtype: str


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
    compute: fields.Recompute = False,
    block_size: BlockSize = "auto",
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> tuple[da.Array, da.Array, da.Array, da.Array, Any, Any]:
    """Compute empirical orthogonal functions: spatial patterns and their time series, for climate and images.

    Reads NetCDF, Zarr as written by xarray, and GRIB. A variable's mean or seasonal cycle at each place is subtracted,
    and optionally a trend; places are weighted by the square root of the cosine of their latitude. The SVD of these
    anomalies gives patterns in the variable's units, time series with variance one, and the variance that each mode
    explains, in squared units and as a fraction of the whole. Variances of n samples divide by n - 1. North's rule
    shows if neighboring modes can be distinguished. The sign of each mode makes the largest weighted value of its
    pattern positive.
    """
    from workbench.linalg import svd_compressed

    options = options_of("eofs", path, locals())
    grid = grid_of(pick(path, variable, select, options), samples, remove, detrend, weights)
    blocks = blocks_of(grid, tol, compute, block_size)
    x, states, has_value = weighted_anomalies(grid, blocks.reads, blocks.slabs, blocks.chunks, blocks.dtype, missing)
    slabs = blocks.slabs
    if not compute:
        x, states, has_value = dask.persist(x, states, has_value)
    states, has_value = dask.compute(states, has_value)
    grid = replace(grid, slabs=slabs, without=tuple(map(int, np.flatnonzero(~has_value)))).of_states(states, k)
    basis: dict[str, Any] = {"axis": 0} if slabs[0] < len(x) else {}
    if not basis and min(x.shape) <= FEW:
        # A basis of the whole space takes one pass, however close the modes are.
        basis = {"n_oversamples": min(x.shape) - k}
    # The error of a symmetric matrix's eigenvalue is the square of its vector's error, hence the squared tolerance.
    u, rounded, v = result = svd_compressed(
        x, k, tol=max(tol**2, ROUNDING), seed=seed, coerce_signs=False, keep=not compute, **basis
    )
    s = da.from_array(result.values)
    check_varies(grid, result.values)
    signs = da.where(v.max(axis=1) < -v.min(axis=1), -1, 1).astype(v.dtype)
    u, v = u * signs, v * signs[:, None]
    # Vectors along the longer axis are lazy, so compute U S from the others. Use float64 if squares of the values would
    # leave the range of float32.
    exact = x if 1e-15 < result.values[0] < 1e15 else x.astype("float64")
    us = u * rounded if "axis" not in basis and x.shape[0] < x.shape[1] else exact.dot(v.T)
    polar = near_poles(exact, us, grid)
    return u, s, v, polar, result.certificate, replace(grid, shares=result.shares)


_OF_GRID = ("samples", "remove", "detrend", "weights")


def _resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    """Inspect the file and choose the blocks for reading and for computing."""
    options = options_of("eofs", values["path"], values)
    try:
        picked = pick(values["path"], values["variable"], values["select"], options)
    except BadParameterError as err:
        raise BadParameterError(f"{err.parameter} of eofs: {err}", err.parameter) from err
    except BadInputError as err:
        raise BadParameterError(f"path of eofs: {err}", "path") from err
    found = checked("eofs", _found(picked), values["missing_chunks"])
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
    dtype = _type(grid, values["tol"])
    n_bytes = times * places * np.dtype(dtype).itemsize
    block_size = _block_size(values["block_size"], n_bytes, cluster.threads)
    compute = values["compute"] or not cluster.keeps(n_bytes)
    blocks = blocks_of(grid, values["tol"], compute, block_size)
    notes = (*found.remarks, *grid.remarks)
    if blocks.slabs != blocks.reads:
        message = (
            f"Read in blocks of {by(blocks.reads)} and worked on in blocks of {by(blocks.slabs)}, which have all times."
        )
        notes = (*notes, message)
    if compute and not values["compute"]:
        notes = (*notes, f"{formats.size(n_bytes)} are more than {cluster.too_much}: read again at each pass.")
    facts = {
        **facts_of(found, values["select"]),
        **asdict(blocks),
        "compute": compute,
        "block_size": block_size,
        "samples": ", ".join(grid.samples),
        "variable": values["variable"] or grid.picked.variable,
        "shape": (times, places),
        "grid": grid.shape,
    }
    return values | facts, notes


def _found(picked: Picked) -> Found:
    """Return a variable as an array in a file, without remarks on its numbers, which come from the grid."""
    unpack, options = {"missing": picked.numbers.missing}, dict(picked.source.options)
    return replace(found_of(picked), unpack=unpack, options=options, remarks=())


def _type(grid: Grid, tol: float) -> str:
    """Return the type of the anomalies: float32 where the numbers and the accuracy allow it."""
    return "float32" if grid.picked.dtype == np.float32 and tol >= _SINGLE else "float64"


def _block_size(requested: int | str, n_bytes: int, threads: int | None) -> int:
    """Return the bytes of a block: as requested, or so that every thread gets several."""
    if requested == "auto":
        return min(_SLAB_BYTES, max(n_bytes // (4 * (threads or 1)), _SMALLEST_SLAB))
    try:
        n_bytes_given = int(parse_bytes(requested))
    except ValueError:
        n_bytes_given = 0
    if n_bytes_given < 1:
        raise bad("eofs", "block_size", requested, "'auto', or a size such as '32 MiB'")
    return n_bytes_given


def blocks_of(grid: Grid, tol: float, compute: bool, block_size: int | str = "auto") -> Blocks:
    """Choose the blocks for reading and for computing."""
    times, places = grid.shape[0], math.prod(grid.shape[1:])
    dtype = _type(grid, tol)
    item = np.dtype(dtype).itemsize
    n_bytes = _block_size(block_size, times * places * item, None)
    stored = [grid.picked.stored[grid.picked.dims.index(dim)] for dim in (grid.samples[0], *grid.features)]
    # A stored index along the first sample dimension stands for all samples along the others.
    inner = math.prod(grid.lengths[1:])
    stored[0] *= inner
    slabs, reads = _blocks(grid.shape, tuple(stored), item, n_bytes)
    if slabs != reads and (compute or times > FEW):
        # Rechunking to all times of a place would need the whole array in memory twice.
        high = max(1, _STREAMED_BYTES // (places * item))
        slabs = reads = (min(times - inner, max(1, high // stored[0]) * stored[0]), *grid.shape[1:])
    if slabs[0] < times:
        chunks = slabs[0], math.prod(slabs[1:])
    elif times <= places:
        chunks = times, math.prod(slabs[1:])
    else:
        chunks = block_rows(times, places, item, n_bytes=n_bytes), places
    return Blocks(reads, slabs, chunks, dtype)


def _blocks(
    shape: tuple[int, ...], stored: tuple[int, ...], item: int, n_bytes: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return blocks of all times and some places, of whole stored ones where possible, and blocks in which to read."""
    times, places = shape[0], shape[1:]
    target = max(1, n_bytes // (times * item))
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


def _needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate as for the SVD of a file, with blocks both as read, in float64, and as decomposed."""
    times, item = resolved["shape"][0], np.dtype(resolved["dtype"]).itemsize
    slab = math.prod(resolved["slabs"])
    in_task = max(math.prod(resolved["reads"]) * item, slab * (2 * item + 17))
    streamed = resolved["slabs"][0] < times
    as_svd = {
        "axis": 0 if streamed else None,
        "tol": max(resolved["tol"] ** 2, ROUNDING),
        "method": "workbench",
        "center": False,
        "blocks": (1, in_task // (2 * item) + 1),
        "chunks": resolved["chunks"] if streamed else (times, slab // times),
    }
    return estimates.svd_of_file(threads_per_worker, **{**resolved, **as_svd})


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return singular values, variances with their shares and North's rule, and the outcome for the places."""
    grid, s = results["grid"], np.asarray(results["s"], "float64")
    differs = separated(s**2, grid.shares, grid.shape[0])
    certificate = certificate_json(results["certificate"])
    if results["u"].dtype == np.float32:
        # In float32 anomalies have a relative error of eps / 2; this is the resulting error of the values.
        rounding = float(np.finfo("float32").eps) / 2 / np.sqrt(np.maximum(grid.shares, 1e-300))
        for name, scale in (("bound", 1.0), ("of_largest", s / (s[0] or 1.0))):
            both = zip(certificate[name], rounding * scale, strict=True)
            certificate[name] = [None if each is None else each + float(more) for each, more in both]
        certificate["sentence"] += " That holds for anomalies in float32, which are rounded to 6e-8 of themselves."
    if grid.without:
        certificate["sentence"] += f"{grid.remark_without()} Missing values there are filled."
    return {
        "singular_values": [float(each) for each in s],
        "explained_variance": [float(each) for each in s**2 / max(1, grid.shape[0] - 1)],
        "explained_variance_ratio": [float(each) for each in grid.shares],
        "separated": differs,
        "north": _north(differs),
        **grid.counts(),
        "certificate": certificate,
    }


def separated(variances: np.ndarray[Any, Any], shares: np.ndarray[Any, Any], n_samples: int) -> list[bool | None]:
    """Return for each mode if North's rule separates it from its neighbors; None where the next one isn't known.

    A variance has a sampling error of sqrt(2 / n) of itself. Modes are separate if their variances differ by
    more than the error of the larger one. Samples are assumed to be independent, which climate data seldom are.
    """
    errors = variances * math.sqrt(2 / n_samples)
    differs: list[bool | None] = [bool(each) for each in variances[:-1] - variances[1:] > errors[:-1]]
    # The next variance is unknown, but exceeds neither this one nor the remaining variance.
    remaining = float(variances[-1] * max(0.0, 1 - shares.sum()) / shares[-1]) if shares[-1] else 0.0
    differs.append(True if variances[-1] - remaining > errors[-1] else None)
    separate: list[bool | None] = []
    for number, after in enumerate(differs):
        before = number == 0 or differs[number - 1]
        separate.append(False if before is False or after is False else after)
    return separate


def _north(differs: Sequence[bool | None]) -> str:
    separate = _modes(number for number, each in enumerate(differs, 1) if each)
    mixed = _modes(number for number, each in enumerate(differs, 1) if each is False)
    clauses = [f"{separate} can be separated from the neighboring ones"] if separate else []
    if mixed:
        cannot = "can't" if separate else "can't be separated from the neighboring ones"
        clauses.append(f"{mixed} {cannot}, and may be mixtures")
    if differs[-1] is None:
        clauses.append(f"nothing is known of mode {len(differs)}, the last")
    return f"By North's rule, with independent times, {'; '.join(clauses)}."


def _modes(numbers: Iterable[int]) -> str:
    names = list(map(str, numbers))
    return f"{'modes' if len(names) > 1 else 'mode'} {formats.listed(names)}" if names else ""


def _arrays(results: Mapping[str, Any]) -> xr.Dataset:
    """Return patterns in the variable's units on its grid, series of variance one, and the values of each mode."""
    grid, u, v = results["grid"], results["u"], results["v"]
    picked, s, n = grid.picked, np.asarray(results["s"], "float64"), max(1, grid.shape[0] - 1)
    modes = {"mode": np.arange(1, len(s) + 1)}
    attributes = {name: picked.attrs[name] for name in ("units", "long_name", "standard_name") if name in picked.attrs}
    used = np.isin(grid.states, (anomalies.PRESENT, anomalies.FILLED))
    unit = np.where(used & (grid.weights > 0), 1.0, np.nan) / np.where(grid.weights > 0, grid.weights, 1.0)
    lengths = da.core.normalize_chunks(grid.slabs[1:], grid.shape[1:])
    widths = tuple(map(math.prod, itertools.product(*lengths)))
    near, patterns_scaled = grid.near_poles(), da.asarray(v).to_backend("numpy") * s[:, None]
    if len(near):
        place, small = np.zeros(patterns_scaled.shape[1], int), np.zeros(patterns_scaled.shape[1], bool)
        place[near], small[near] = np.arange(len(near)), True
        # Modes below the rounding error have arbitrary patterns.
        inverse = np.divide(1, s, out=np.zeros_like(s), where=s > s[0] * ROUNDING)[:, None]
        spread = (
            da.asarray(results["polar"])
            .to_backend("numpy")
            .rechunk(-1)
            .map_blocks(np.take, indices=place, axis=1, chunks=((len(s),), (len(place),)), dtype=patterns_scaled.dtype)
        )
        patterns_scaled = da.where(small, spread * inverse, patterns_scaled)
    maps = da.reshape_blockwise(
        patterns_scaled.rechunk((len(s), widths)), (len(s), *grid.shape[1:]), chunks=((len(s),), *lengths)
    )
    by_mode = {
        "explained_variance": s**2 / n,
        "explained_variance_ratio": grid.shares,
        "sampling_error": s**2 / n * math.sqrt(2 / grid.shape[0]),
        "singular_values": s,
    }
    variance_units = {"units": _squared(picked.attrs["units"])} if "units" in picked.attrs else {}
    by_mode_attributes = {
        "explained_variance": {"long_name": f"squared singular value / (n - 1), n = {grid.shape[0]}", **variance_units},
        "sampling_error": {"long_name": "sampling error of the explained variance by North's rule", **variance_units},
    }
    patterns = maps / math.sqrt(n) * da.from_array(unit[None], chunks=((1,), *lengths))
    arrays = {
        "patterns": (("mode", *grid.features), patterns, attributes),
        "series": ((*grid.samples, "mode"), (u * math.sqrt(n)).reshape(*grid.lengths, len(s))),
        **{name: ("mode", values, by_mode_attributes.get(name)) for name, values in by_mode.items()},
    }
    sides = (datasets.along(picked.coords, dims) for dims in (grid.features, grid.samples))
    return dataset(arrays, next(sides) | next(sides) | modes)


def _squared(units: object) -> str:
    """Return the square of a unit as UDUNITS writes it: K2, or (m s-1)2."""
    return f"{units}2" if str(units).isalpha() else f"({units})2"


def _matrix(resolved: Mapping[str, Any]) -> da.Array:
    options = options_of("eofs", resolved["path"], resolved)
    picked = pick(resolved["path"], resolved["variable"], resolved["select"], options)
    grid = grid_of(picked, *(resolved[name] for name in _OF_GRID))
    blocks = blocks_of(grid, resolved["tol"], resolved["compute"], resolved["block_size"])
    matrix = weighted_anomalies(grid, blocks.reads, blocks.slabs, blocks.chunks, blocks.dtype, resolved["missing"])
    return matrix[0]


def _right(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    x = _matrix(resolved)
    return checks.svd_is_certified(x, results, client, axis=0 if resolved["slabs"][0] < len(x) else None)


def _code(on_gpu: bool, **resolved: Any) -> str:
    """Return the notebook cell that calls the function and computes the singular values."""
    names = ("u", "s", "v", "polar", "certificate", "grid")
    call = calling(eofs, arguments(eofs, resolved), ", ".join(names))
    return f"import dask\n{call}u, s, v = dask.persist(u, s, v)\ns{to_host(on_gpu)}, certificate"


EOFS = Template(
    workload(title="Empirical orthogonal functions", prepare=_resolved, needs=_needs, check=_right, code=_code)(eofs),
    imports=imports_of,
    returns=("u", "s", "v", "polar", "certificate", "grid"),
    small=("s",),
    values=("certificate", "grid"),
    summary_of=_summary,
    arrays_of=_arrays,
    extra={"missing_chunks": (fields.MissingChunks, "refuse")},
)
