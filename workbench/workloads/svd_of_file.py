"""Singular value decomposition of an array in a file: the workload, what it needs and how it is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import dask.array as da
import numpy as np

from workbench.workloads import checks, estimates, fields, file
from workbench.workloads.alone import decomposed
from workbench.workloads.fields import Resolved
from workbench.workloads.file import matrix_of_file
from workbench.workloads.layout import cut
from workbench.workloads.opening import SERVED, array_of
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.svd import READ, factors, held, kept, singular_values
from workbench.workloads.values import Check, Labelled, Surroundings

if TYPE_CHECKING:
    from distributed import Client


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
