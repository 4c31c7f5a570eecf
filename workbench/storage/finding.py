"""Search for an array in a file, with messages about errors in the request."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from workbench import formats
from workbench.errors import BadInputError, BadParameterError, MissingError, WorkbenchError
from workbench.storage import conventions, places, selecting, sources
from workbench.storage.decoders import check_decoders
from workbench.storage.formats import format_of
from workbench.storage.formats.base import FORMATS, Format, Found, bad
from workbench.storage.formats.netcdf import find_dataset, find_named
from workbench.storage.places import Options, Place
from workbench.storage.written_chunks import bounds_of, of_place, remark
from workbench.storage.zarrs import files_at, images_of, is_marked, outdated_remark


def find_array(
    path: str,
    array: str | None,
    *,
    options: Options | None = None,
    rows: str | None = None,
    select: str | None = None,
    as_matrix: bool = True,
    format: Format | None = None,
) -> Found:
    """Find the array at a path or URL; only its description is read.

    Parameters
    ----------
    options
        Options for fsspec about a URL's server.
    rows, select
        Dimensions of the rows, and the selected part, by names of dimensions or by their numbers. With rows=""
        names of dimensions are found, however few there are.
    as_matrix
        True for rows and columns instead of all dimensions of the array.
    format
        If already known: detecting it takes requests to a URL's server.

    Raises
    ------
    BadParameterError
        There is no such array, or it has no SVD.
    MissingError
        The package that reads this kind of URL isn't installed.
    """
    try:
        place = places.full(path, options)
        with places.sentences_about(place, FORMATS):
            format = format or format_of(place)
            assert format.find is not None, "only a scientific field has formats that its own workloads alone read"
            images = images_of(*files_at(place)) if "zarr" in format.modules and format.dims == "some" else {}
            is_image = bool(images) if array is None else bool(images.get(array.strip("/")))
            by_name, by_xarray = format.dims == "some" and not is_image, None
            if format.dims == "all":
                by_xarray = find_dataset(place, array, select)
            elif by_name and (select or not all(map(str.isdigit, names_in(rows)))):
                by_xarray = find_named(place, array, select)
            found = by_xarray or format.find(place, array)
            if select and not by_xarray:
                found = _part(place, found, select)
            elif by_name and not by_xarray and (rows is not None or (as_matrix and len(found.shape) > 2)):
                with contextlib.suppress(WorkbenchError):
                    found = find_named(place, found.array, None) or found
            if as_matrix:
                found = _folded(found, rows)
        decoded = _decoded(found)
    except MissingError:
        raise
    except BadParameterError as err:
        if err.parameter == "variable":
            raise bad(str(err), "array") from err
        raise
    except WorkbenchError as err:
        raise bad(str(err)) from err
    if array is not None and found.array is None:
        raise BadParameterError(f"{place} holds one array, which has no name; array was given as {array!r}.", "array")
    return replace(decoded, options=dict(place.options))


def existing_chunks(found: Found, missing_chunks: str) -> tuple[str, ...]:
    """Return messages about contradictory metadata and missing chunks.

    Raises BadInputError if most chunks don't exist and `missing_chunks` isn't "fill", and MissingError if a
    package that decompresses them isn't installed.
    """
    source = (found.recipe or {}).get("source") or {}
    if source.get("files"):
        return ()
    place, (format, name) = Place(found.path, found.options), stored_as(found)
    group = source.get("group")
    check_decoders(place, format, name)
    remarks = outdated_remark(place, group) if format in ("zarr", "zarr-zip") else ()
    written = of_place(place, format, name, bounds_of(found.recipe))
    codes = {"missing": (found.unpack or {}).get("missing", ()), "accept": missing_chunks == "fill"}
    note = remark(str(found), written, **codes)
    return (*remarks, note) if note else remarks


def stored_as(found: Found) -> tuple[str, str | None]:
    """Return the format of an array, or the engine that opens its dataset, and its name there, with its group."""
    source = (found.recipe or {}).get("source") or {}
    return stored_at(Place(found.path, source.get("options", {})), found.format, found.array, source)


def stored_at(place: Place, format: str, array: str | None, source: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the same for an array that is described by its parts."""
    group = source.get("group")
    name = f"{group}/{array.rpartition('/')[2]}" if group and array else array
    format = source.get("engine") or format
    if format == sources.IMAGES:
        format = "zarr" if is_marked(place) else "tiff"
    return format, name


def _decoded(found: Found) -> Found:
    """Return the array with its attributes applied: scale, offset, missing values."""
    try:
        recipe = conventions.stored(str(found), found.dtype, found.attributes, found.fill)
    except BadInputError as err:
        raise bad(f"{err} Or open it in a function of your own, with xarray and decode_cf=False.") from err
    if found.hidden:
        raise bad(
            f"{found} comes with a mask, which hides {found.hidden} of its values if it is that of a NumPy array. "
            "Fill them and save it without a mask, or load it in a function of your own."
        )
    turned = "MATLAB_class" in found.attributes
    remarks = ("MATLAB wrote it: its rows are columns here, and its columns rows.",) if turned else ()
    return replace(found, unpack=recipe.recipe(found.dtype), remarks=(*found.remarks, *recipe.remarks, *remarks))


def _part(place: Place, found: Found, select: str) -> Found:
    """Return a part of an array whose dimensions have no coordinates, by positions along them."""
    if found.recipe is not None:
        raise bad(f"{found} is a table, of which no rows can be selected. Leave select out.", "select")
    import xarray as xr

    dims = found.dims or tuple(map(str, range(len(found.shape))))
    nothing = xr.DataArray(np.broadcast_to(0, found.shape), dims=dims, name=found.array or "its array")
    nothing.encoding["preferred_chunks"] = dict(zip(dims, found.chunks or (), strict=False))
    where = selecting.positions(place, nothing, selecting.parse(select))
    part = {dim: [each] if isinstance(each, int) else [*each[:2]] for dim, each in where.items()}
    axes = {axis: part[dim] for axis, dim in enumerate(dims) if len(part[dim]) > 1}
    shape = tuple(stop - start for start, stop in axes.values())
    chunks = found.chunks and tuple(min(found.chunks[axis], stop - start) for axis, (start, stop) in axes.items())
    recipe = {"options": dict(place.options), "part": [*part.values()], "names": found.dims}
    names = tuple(dims[axis] for axis in axes) if found.dims else None
    return replace(found, shape=shape, chunks=chunks, dims=names, recipe=recipe)


def names_in(names: str | None) -> list[str]:
    """Return names, or numbers, of dimensions from a comma-separated text."""
    return [each.strip() for each in (names or "").split(",") if each.strip()]


def _folded(found: Found, rows: str | None) -> Found:
    """Return a matrix, whose rows go through some dimensions of an array, and its columns through all others."""
    if len(found.shape) < 2 and found.dims:
        raise bad(f"{found} has one dimension as it was selected. Select less, so that two are left.", "select")
    if len(found.shape) < 2 or (found.dims is None and rows is None):
        _check_matrix(found)
        return found
    numbers = tuple(map(str, range(len(found.shape))))
    dims = found.dims or numbers
    by_number = dict(zip(numbers, dims, strict=True)) | {dim: dim for dim in dims}
    of_rows = [by_number.get(each, each) for each in names_in(rows)] or [found.rows or dims[0]]
    of_columns = [dim for dim in dims if dim not in of_rows]
    if not of_columns or len(set(of_rows)) < len(of_rows) or not set(of_rows) <= set(dims):
        raise bad(f"rows is {rows!r}. Name some of the dimensions of {found}, but not all: {', '.join(dims)}.", "rows")
    axes = tuple(tuple(dims.index(dim) for dim in group) for group in (of_rows, of_columns))
    stored = found.chunks or (1,) * (len(dims) - 1) + found.shape[-1:]
    inner = [math.prod(found.shape[axis] for axis in group[1:]) for group in axes]
    shape, chunks = (
        tuple(lengths[group[0]] * each for group, each in zip(axes, inner, strict=True))
        for lengths in (found.shape, stored)
    )
    remark = f"Rows are {' × '.join(of_rows)}, columns {' × '.join(of_columns)}."
    return replace(found, shape=shape, chunks=chunks, lengths=found.shape, axes=axes, remarks=(*found.remarks, remark))


def _check_matrix(found: Found) -> None:
    count, shape = len(found.shape), found.shape
    if count == 2:
        return
    size = f" ({formats.by(shape)})" if shape else ""
    hint = f" Save it as {formats.by((shape[0], math.prod(shape[1:])))}, for example." if count > 2 else ""
    hint += " Or name those of the rows: rows=0, or rows=time where they have names." if count > 2 else ""
    raise bad(f"{found} has {formats.count(count, 'dimension')}{size}. Give an array with 2, rows and columns.{hint}")
