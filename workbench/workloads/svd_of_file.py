"""Singular value decomposition of an array in a file: the function, its blocks, its answer and its check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.base import wait

from workbench.formats import by, size
from workbench.storage.formats.base import Found
from workbench.storage.reading import array_of
from workbench.workloads import checks, estimates, fields
from workbench.workloads.code import opening
from workbench.workloads.declaring import workload
from workbench.workloads.forms import refuse_more
from workbench.workloads.gaps import without_gaps
from workbench.workloads.inputs import checked, facts_of, found_in, imports_of
from workbench.workloads.registry import Resolution, Template
from workbench.workloads.sizes import ArrayRequest, chunks_of, grown
from workbench.workloads.svd import READ, decomposing, factors, held, imports_for, recomputed, singular_values
from workbench.workloads.values import BadParameterError, Check, Surroundings
from workbench.workloads.without_dask import decomposed

if TYPE_CHECKING:
    from distributed import Client

_LARGEST_SIDE = 5000
"""Limit of the small factor that a full SVD decomposes in one worker: 200 MB, and about a minute."""
_READ_BYTES = 32_000_000
_DIRECT_BYTES = 4 * _READ_BYTES


def svd_of_file(
    path: fields.Path,
    array: fields.ArrayName | None = None,
    k: fields.Components | None = None,
    center: fields.Center = False,
    rows: fields.Rows | None = None,
    select: fields.Selection | None = None,
    missing: fields.Gaps = "refuse",
    method: fields.Method = "workbench",
    tol: fields.Accuracy = 1e-3,
    n_power_iter: fields.Iterations = 4,
    iterator: fields.Iterator = "QR",
    compute: fields.Recompute = False,
    chunks: fields.Chunks = "auto",
    seed: fields.Seed = 0,
    persist: fields.Persist = False,
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> tuple[da.Array, da.Array, da.Array, Any, Any, float | None]:
    """Compute the SVD of your own array, from .npy, .npz, HDF5, NetCDF, Zarr, TIFF, Parquet or CSV.

    Without k, all singular values are computed exactly in one pass; the array must be narrow in one direction. With k,
    only the first k are computed: by workbench.linalg to the accuracy tol with a certificate, or by Dask approximately,
    and the check reports how large the error may be. Integers are converted to float64, packed values of NetCDF and
    Zarr are decoded, and variables with three or more dimensions become a matrix of rows and columns. Subtract the
    means of the columns (center) for a principal component analysis. With persist, the time to read the file is
    reported separately.
    """
    ours = method == "workbench"
    found = found_in("svd_of_file", locals(), rows=rows)
    x, complete = matrix_of_file(found, k, chunks, missing)
    if center and not (ours and k is not None):  # ours subtracts the means inside its products
        x = x - means(x, compute)
    seconds_to_make = None
    if persist:
        x, seconds_to_make = held(x)
    if ours:
        from workbench.linalg import svd, svd_compressed

        if k is None:
            u, s, v = svd(x)
            return u, s, v, None, complete, seconds_to_make
        u, _, v = result = svd_compressed(x, k, tol=tol, seed=seed, center=0 if center else None, keep=not compute)
        s = da.from_array(result.values)
        return u, s, v, result.certificate, complete, seconds_to_make
    if k is None:
        u, s, v = da.linalg.svd(x)
        if x.npartitions == 1:
            # Dask's SVD of a single block drops tasks that its graph needs: those of the means, or of the block itself.
            u, s, v = dask.persist(u, s, v)
    else:
        # A RandomState draws its numbers where x is, on the CPU or a GPU.
        rs = da.random.RandomState(seed)
        u, s, v = da.linalg.svd_compressed(x, k, iterator=iterator, n_power_iter=n_power_iter, seed=rs, compute=compute)
    return u, s, v, None, complete, seconds_to_make


def matrix_of_file(source: Found, k: int | None, chunks: Any, missing: str) -> tuple[da.Array, Any]:
    """Return an array in a file as a matrix in blocks for its SVD, and the remaining rows or columns.

    Missing values are refused, filled or left out; the last two take one more pass first.
    """
    chunks = tuple(chunks) if isinstance(chunks, list) else chunks
    blocks, chunks, _ = cut(source, k, chunks, Surroundings())
    # Move blocks to the GPU (if array.backend is "cupy") as stored, which may be an eighth of the bytes.
    x = array_of(source, blocks, missing).to_backend().astype(source.working_type).rechunk(chunks)
    return without_gaps(x, missing, source.path)


def means(x: da.Array, compute: bool) -> da.Array:
    """Return the means of the columns."""
    mean = x.mean(axis=0)
    if compute:
        # Compute the means first, or all blocks would wait in memory for them.
        mean = mean.persist()
        wait(mean)
    return mean


def _resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    found = checked("svd_of_file", found_in("svd_of_file", values, rows=values["rows"]), values["missing_chunks"])
    blocks, chunks, notes = cut(found, values["k"], values["chunks"], cluster)
    facts = facts_of(found, values["select"]) | {
        "lengths": found.lengths,
        "axes": found.axes,
        "blocks": blocks,
        "chunks": chunks,
    }
    if found.dtype.name != found.working_type:
        notes = (*notes, f"The array holds {found.dtype.name} and is decomposed as {found.working_type}.")
    n_bytes = math.prod(found.shape) * np.dtype(found.working_type).itemsize
    compute, reasons = (values["compute"], ()) if values["k"] is None else recomputed(values, n_bytes, cluster)
    return values | facts | {"compute": compute}, (*found.remarks, *notes, *reasons)


def cut(
    array: Found, k: int | None, chunks: Any, around: Surroundings
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Return blocks in which the file is read, blocks in which it is decomposed, and the reasons."""
    refuse_impossible(array, k)
    chosen, notes = _wanted(array, k, chunks, around)
    if array.whole:
        parts = "one block" if chosen == array.shape else f"blocks of {by(chosen)}"
        note = f"{array.path} can only be read as a whole, by one worker; then it is cut into {parts}."
        return array.shape, chosen, (*notes, note)
    if array.chunks is None:
        return chosen, chosen, notes
    if chunks == "auto":
        direct = _aligned(array, chosen)
        if math.prod(direct) * 8 <= _DIRECT_BYTES:
            return direct, direct, _read_note(array, direct, k)
    elif all(part % stored == 0 or part == length for part, stored, length in _axes(array, chosen)):
        return chosen, chosen, notes
    # Read several small stored blocks as one.
    part = tuple(map(min, array.chunks, array.shape))
    read = grown(part, array.shape, max(1, _READ_BYTES // np.dtype(array.working_type).itemsize))
    why = "a full SVD needs whole rows or columns in each" if k is None else "as good for the products as for memory"
    note = f"Stored in blocks of {by(array.chunks)}, read in blocks of {by(read)} and rechunked to {by(chosen)}: {why}."
    return read, chosen, (*notes, note) if chunks != "auto" else (note,)


def refuse_impossible(found: Found, k: int | None) -> None:
    """Raise if the array has no such SVD."""
    small = min(found.shape)
    if k is None and small > _LARGEST_SIDE:
        raise BadParameterError(
            f"k of svd_of_file is missing, and {found.path} ({by(found.shape)}) is too wide for a full SVD: one "
            f"worker would decompose a factor of {by((small, small))} ({size(small * small * 8)}). "
            "Give k, such as 10.",
            "k",
        )
    if k is not None:
        refuse_more("svd_of_file", "k", k, small, f": {found.path} is {by(found.shape)}")


def _wanted(found: Found, k: int | None, chunks: Any, around: Surroundings) -> tuple[tuple[int, ...], tuple[str, ...]]:
    dtype = np.dtype(found.working_type)
    rows, columns = found.shape
    fat = k is None and rows < columns
    request = ArrayRequest("svd_of_file", "wide" if k is not None else "tall", dtype, dtype, turned=fat)
    turned = chunks[::-1] if fat and isinstance(chunks, tuple) else chunks
    block, notes = chunks_of(request, (columns, rows) if fat else (rows, columns), turned, around)
    return (block[::-1] if fat else block), notes


def _aligned(found: Found, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nearest block that is made of whole stored blocks."""
    return tuple(
        min(length, max(stored, part // stored * stored)) if part < length else length
        for part, stored, length in _axes(found, wanted)
    )


def _axes(found: Found, wanted: tuple[int, ...]) -> list[tuple[int, int, int]]:
    assert found.chunks is not None
    return list(zip(wanted, found.chunks, found.shape, strict=True))


def _read_note(found: Found, direct: tuple[int, ...], k: int | None) -> tuple[str, ...]:
    assert found.chunks is not None
    if direct == found.chunks:
        return (f"Read in the blocks of {by(direct)} in which it is stored.",)
    whole = ", with whole rows or columns as a full SVD needs" if k is None else ""
    note = f"Stored in blocks of {by(found.chunks)}, read in blocks of {by(direct)}, which are made of them{whole}."
    return (note,)


def _matrix_of_file(resolved: Mapping[str, Any]) -> da.Array:
    found = found_in("svd_of_file", resolved, rows=resolved["rows"])
    x, _ = matrix_of_file(found, resolved["k"], resolved["chunks"], resolved["missing"])
    # The check processes blocks one by one, so none may wait for the means.
    return x - means(x, compute=True) if resolved["center"] else x


def _check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Check the answer, and say which numbers it covers."""
    checked = checks.svd_is_right(_matrix_of_file(resolved), resolved, results, client)
    messages = [
        f"{resolved['shape'][dim == 'column'] - len(mask)} of {resolved['shape'][dim == 'column']} {dim}s hold missing "
        "values and were left out."
        for dim, mask in (results.get("kept") or {}).items()
    ]
    return checked.model_copy(update={"what": " ".join((checked.what, *messages, *resolved["remarks"]))})


def _factors(results: Mapping[str, Any]) -> xr.Dataset:
    """Return U, s and Vᵀ, with the lengths of rows or columns that go through two dimensions of the file."""
    dataset, lengths = factors(results), results.get("lengths") or ()
    for name, axes in zip(("u", "v"), results.get("axes") or (), strict=False):
        if len(axes) == 2 and not dataset[name].coords:
            rows, columns = (lengths[axis] for axis in axes)
            dataset[name].attrs.update(grid_rows=rows, grid_columns=columns)
    return dataset


def _code(on_gpu: bool, **resolved: Any) -> str:
    """Return the notebook cell of the SVD of an array in a file."""
    lines, axes = [opening(resolved)], resolved["axes"]
    folded = ".to_backend()" if on_gpu else ""
    if axes is not None:
        order = [axis for group in axes for axis in group]
        folded += "" if order == sorted(order) else f".transpose({order})"
        folded += f".reshape({list(resolved['shape'])})"
    lines.append(f'x = x.data{folded}.astype("{resolved["dtype"]}").rechunk({tuple(resolved["chunks"])})')
    lines += {
        "refuse": [],
        "mean": ["x = da.where(da.isnan(x), da.nanmean(x, axis=0), x)"],
        "rows": ["x = x[~da.isnan(x).any(axis=1).compute()]"],
        "columns": ["x = x[:, ~da.isnan(x).any(axis=0).compute()]"],
    }[resolved["missing"]]
    if resolved["center"] and (resolved["k"] is None or resolved["method"] == "dask"):
        lines.append("x = x - x.mean(axis=0)")
    if resolved["persist"]:
        lines.append("x = x.persist()")
    return "\n".join((imports_for(resolved, "storage"), *lines, decomposing(resolved, on_gpu)))


OF_FILE = Template(
    workload(
        title="SVD of your own array",
        prepare=_resolved,
        needs=partial(estimates.with_input, estimates.svd_of_file),
        check=_check,
        code=_code,
    )(svd_of_file),
    imports=imports_of,
    returns=("u", "s", "v", "certificate", "kept", "seconds_to_make"),
    small=("s",),
    values=("certificate", "kept", "seconds_to_make"),
    summary_of=partial(singular_values, called=READ),
    arrays_of=_factors,
    alone=decomposed(lambda resolved: _matrix_of_file({**resolved, "center": False})),
    extra={
        "missing_chunks": (fields.MissingChunks, "refuse"),
        "tolerance": (fields.Tolerance, 0.1),
    },
)
