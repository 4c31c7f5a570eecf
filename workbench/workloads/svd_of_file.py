"""Singular value decomposition of an array in a file: the workload, what it needs and how it is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import dask.array as da
import numpy as np

from workbench.formats import by, size
from workbench.workloads import checks, estimates, fields, file
from workbench.workloads.alone import decomposed
from workbench.workloads.fields import Resolved
from workbench.workloads.file import matrix_of_file
from workbench.workloads.opening import SERVED, Found, array_of
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import Wish, chunks_of, grown
from workbench.workloads.svd import READ, factors, held, kept, singular_values
from workbench.workloads.values import BadParameterError, Check, Labelled, Surroundings

if TYPE_CHECKING:
    from distributed import Client

_LARGEST_SIDE = 5000
"""Of the small factor that a full SVD decomposes in one worker: 200 MB, and about a minute."""
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
    format: Annotated[str, Resolved()] = "npy",
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
    unpack: Annotated[dict[str, Any] | None, Resolved()] = None,
    shape: Annotated[tuple[int, int], Resolved()] = (0, 0),
    blocks: Annotated[tuple[int, int], Resolved()] = (0, 0),
    stored: Annotated[str, Resolved()] = "float64",
    dtype: Annotated[str, Resolved()] = "float64",
    keep: Annotated[bool, Resolved()] = True,
    lengths: Annotated[tuple[int, ...], Resolved()] = (),
    axes: Annotated[tuple[tuple[int, ...], ...] | None, Resolved()] = None,
) -> tuple[da.Array, da.Array, da.Array, Any, Any, float | None]:
    """SVD of your own array, from .npy, .npz, HDF5, NetCDF, Zarr, TIFF, Parquet or CSV.

    Without k all singular values are found, exactly and in one pass; the array must be narrow in one direction. With k
    only the first k are found: by workbench.linalg to the accuracy tol, with a certificate, or by Dask approximately,
    and the check says how far off they may be. Whole numbers are worked on as float64; packed ones, of NetCDF or
    xarray's Zarr, are unpacked first; variables of three dimensions become rows and columns. Take the mean off
    the columns (center) for a principal component analysis. Held in memory first (persist), how long it takes to read
    is told apart from how long it takes to compute.
    """
    ours = method == "workbench"
    read = (path, array, options or {}, format, unpack, shape, blocks, chunks, stored, dtype)
    # Ours takes the means off inside its products.
    x, kept = matrix_of_file(*read, center and not (ours and k is not None), compute, missing, lengths, axes)
    seconds_to_make = None
    # Dask's SVD of a single block loses hold of what is held.
    if persist and (ours or k is not None or x.npartitions > 1):
        x, seconds_to_make = held(x)
    if ours:
        from workbench.linalg import svd, svd_compressed

        if k is None:
            u, s, v = svd(x)
            return u, s, v, None, kept, seconds_to_make
        u, _, v = result = svd_compressed(x, k, tol=tol, seed=seed, center=0 if center else None, keep=keep)
        s = da.from_array(result.values)
        return u, s, v, result.certificate, kept, seconds_to_make
    if k is None:
        u, s, v = da.linalg.svd(x)
    else:
        # A RandomState makes its numbers where x is, on the CPU or a GPU.
        rs = da.random.RandomState(seed)
        u, s, v = da.linalg.svd_compressed(x, k, iterator=iterator, n_power_iter=n_power_iter, seed=rs, compute=compute)
    return u, s, v, None, kept, seconds_to_make


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    found, facts = array_of("svd_of_file", values, rows=values["rows"])
    blocks, chunks, notes = cut(found, values["k"], values["chunks"], around)
    facts |= {"lengths": found.lengths, "axes": found.axes, "blocks": blocks, "chunks": chunks}
    if found.dtype.name != facts["dtype"]:
        notes = (*notes, f"The array holds {found.dtype.name} and is decomposed as {facts['dtype']}.")
    notes = (*found.remarks, *notes)
    n_bytes = math.prod(found.shape) * np.dtype(facts["dtype"]).itemsize
    keep, told = (True, ()) if values["k"] is None else kept(values, n_bytes, around)
    return values | facts | {"keep": keep}, (*notes, *told)


def cut(
    found: Found, k: int | None, chunks: Any, around: Surroundings
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Blocks in which the file is read, blocks in which it is decomposed, and the reasons."""
    refuse_impossible(found, k)
    wanted, notes = _wanted(found, k, chunks, around)
    if found.whole:
        note = f"{found.path} can only be read as a whole, by one worker; then it is cut into {_blocks(found, wanted)}."
        return found.shape, wanted, (*notes, note)
    if found.chunks is None:
        return wanted, wanted, notes
    if chunks == "auto":
        direct = _aligned(found, wanted)
        if math.prod(direct) * 8 <= _DIRECT_BYTES:
            return direct, direct, _read_note(found, direct, k)
    elif all(part % stored == 0 or part == length for part, stored, length in _axes(found, wanted)):
        return wanted, wanted, notes
    # Several stored blocks as one where they are small.
    part = tuple(map(min, found.chunks, found.shape))
    read = grown(part, found.shape, max(1, _READ_BYTES // np.dtype(found.working_type).itemsize))
    why = "a full SVD needs whole rows or columns in each" if k is None else "as good for the products as for memory"
    note = f"Stored in blocks of {by(found.chunks)}, read in blocks of {by(read)} and rechunked to {by(wanted)}: {why}."
    return read, wanted, (*notes, note) if chunks != "auto" else (note,)


def refuse_impossible(found: Found, k: int | None) -> None:
    """Raise where the array has no such SVD."""
    rows, columns = found.shape
    small = min(rows, columns)
    if k is None and small > _LARGEST_SIDE:
        raise BadParameterError(
            f"k of svd_of_file is missing, and {found.path} ({rows} × {columns}) is too wide for a full SVD: one "
            f"worker would decompose a factor of {small} × {small} ({size(small * small * 8)}). "
            "Give k, such as 10.",
            "k",
        )
    if k is not None and k > small:
        raise BadParameterError(
            f"k of svd_of_file is {k}. Give a whole number from 1 to {small}: {found.path} is {rows} × {columns}.", "k"
        )


def _wanted(found: Found, k: int | None, chunks: Any, around: Surroundings) -> tuple[tuple[int, ...], tuple[str, ...]]:
    dtype = np.dtype(found.working_type)
    rows, columns = found.shape
    fat = k is None and rows < columns
    wish = Wish("svd_of_file", "wide" if k is not None else "tall", dtype, dtype, turned=fat)
    turned = chunks[::-1] if fat and isinstance(chunks, tuple) else chunks
    block, notes = chunks_of(wish, (columns, rows) if fat else (rows, columns), turned, around)
    return (block[::-1] if fat else block), notes


def _aligned(found: Found, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Nearest block that is made of whole stored blocks."""
    aligned = [
        min(length, max(stored, part // stored * stored)) if part < length else length
        for part, stored, length in _axes(found, wanted)
    ]
    return aligned[0], aligned[1]


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


def _blocks(found: Found, block: tuple[int, ...]) -> str:
    return "one block" if block == found.shape else f"blocks of {by(block)}"


def _matrix_of_file(resolved: Mapping[str, Any]) -> Any:
    # The check goes over the blocks one by one, so none may wait for the means of the columns.
    return matrix_of_file(**arguments(matrix_of_file, {**resolved, "compute": True}))[0]


def _readers(resolved: Mapping[str, Any]) -> tuple[Any, ...]:
    return *file.shown(resolved), file.without_gaps, matrix_of_file, held


def _check(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Whether the answer is right, and of which numbers it is."""
    checked = checks.svd_is_right(_matrix_of_file(resolved), resolved, results, client)
    gone = [
        f"{resolved['shape'][dim == 'column'] - len(kept)} of {resolved['shape'][dim == 'column']} {dim}s hold missing "
        "values and were left out."
        for dim, kept in (results.get("kept") or {}).items()
    ]
    return checked.model_copy(update={"what": " ".join((checked.what, *gone, *resolved["remarks"]))})


def _factors(results: Mapping[str, Any]) -> dict[str, Labelled]:
    """U, s and Vᵀ, which say of rows or columns that go through two dimensions of the file how long these are."""
    found, lengths = factors(results), results.get("lengths") or ()
    for name, axes in zip(("u", "v"), results.get("axes") or (), strict=False):
        if len(axes) == 2 and not found[name].coords:
            rows, columns = (lengths[axis] for axis in axes)
            found[name] = replace(found[name], attrs={"grid_rows": rows, "grid_columns": columns})
    return found


TEMPLATE = Template(
    svd_of_file,
    title="SVD of your own array",
    returns=("u", "s", "v", "certificate", "kept", "seconds_to_make"),
    small=("s",),
    values=("certificate", "kept", "seconds_to_make"),
    resolver=_resolved,
    estimate=partial(estimates.with_input, estimates.svd_of_file),
    checker=_check,
    summary_of=partial(singular_values, called=READ),
    arrays_of=_factors,
    parts=_readers,
    alone=decomposed(lambda resolved: _matrix_of_file({**resolved, "center": False})),
    extra={"raw": (fields.Raw, False), **SERVED, "tolerance": (fields.Tolerance, 0.1)},
)
