"""Variables as xarray opens them: NetCDF, GRIB, series of NetCDF files, and others with named dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench import formats
from workbench.errors import BadParameterError, MissingError, WorkbenchError
from workbench.storage import cf, datasets, sources
from workbench.storage.formats.base import Format, Found, Listed, described, held_as
from workbench.storage.places import Place


def find_dataset(place: Place, array: str | None, select: str | None = None) -> Found:
    """Find a variable as xarray opens it."""
    return found_of(datasets.pick(place.path, array, select, place.options))


def found_of(picked: datasets.Picked) -> Found:
    """Return a variable of a dataset as an array in a file."""
    return Found(
        picked.source.path,
        picked.name,
        "dataset",
        picked.shape,
        picked.dtype,
        picked.stored,
        attributes=picked.attrs,
        fill=picked.fill,
        remarks=picked.numbers.remarks[:1] if picked.source.packed_differently else (),
        recipe=picked.recipe(),
        coords=picked.coords,
        dims=picked.dims,
        rows=cf.time_of(picked.coords, picked.dims),
    )


def find_named(place: Place, array: str | None, select: str | None) -> Found | None:
    """Find a variable whose dimensions have names; None for other arrays, which xarray can't describe better."""
    try:
        variable = find_dataset(place, array, None)
    except (BadParameterError, MissingError):
        raise
    except WorkbenchError:
        return None
    # xarray's name for dimensions of HDF5 without a name.
    if any(dim.startswith("phony_dim") for dim in variable.dims or ()):
        return None
    return find_dataset(place, array, select) if select else variable


def look_by_xarray(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    items = []
    source = sources.source_of(place)
    with source.opened() as raw, source.decoded(raw) as dataset:
        for name, each in dataset.variables.items():
            kind = each.encoding.get("dtype", each.dtype)
            dims = tuple(map(str, each.dims))
            items.append(held_as(str(name), each.shape, kind, dims=dims, **described(kind, each.encoding | each.attrs)))
    return tuple(items), ()


def look_by_files(place: Place) -> Listed:
    """Return the arrays of the first of several files, and a message about the others."""
    files = datasets.files_of(place)
    arrays, _ = look_by_xarray(Place(files[0]))
    shapes = f"Shapes are those of the first of {formats.count(len(files), 'file')}."
    return arrays, (f"{shapes} They are read as one if they differ along one dimension alone.",)


def read_dataset(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of a variable of a dataset as xarray opens it; `options` select a part of it."""
    from workbench.storage.datasets import read_part

    return read_part(array or "", where, options)


NETCDF3 = Format(
    "NetCDF 3",
    look_by_xarray,
    starts=lambda start, place: start.startswith(b"CDF"),
    find=find_dataset,
    readers={"dataset": read_dataset},
    dims="all",
)
GRIB = Format(
    "GRIB", look_by_xarray, starts=lambda start, place: start.startswith(b"GRIB"), find=find_dataset, dims="all"
)
NETCDF_FILES = Format("NetCDF files", look_by_files, find=find_dataset, dims="all")
