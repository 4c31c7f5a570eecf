"""Opening of any format as an `xarray.Dataset`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask.array as da
import xarray as xr

from workbench.errors import BadInputError
from workbench.storage import places
from workbench.storage.datasets import along, said
from workbench.storage.finding import existing_chunks, find_array
from workbench.storage.formats import format_of
from workbench.storage.formats.base import FORMATS, Format, Found, Held, check_any
from workbench.storage.formats.tables import NoNumbersError, joined
from workbench.storage.places import Place
from workbench.storage.reading import array_of
from workbench.storage.servers import options_of
from workbench.storage.variables import array, combined, dataset, indexed

_ALONE = "array"
"""Name for an array without a name in its file."""


def opened(path: str, server_options: Mapping[str, Any], missing_chunks: str) -> xr.Dataset:
    """Open a file as `workbench.storage.open` does."""
    if missing_chunks not in ("refuse", "fill"):
        raise BadInputError(f"missing_chunks is {missing_chunks!r}. Expected 'refuse' or 'fill'.")
    place = places.full(path, options_of("open", path, server_options))
    with places.sentences_about(place, FORMATS):
        format = format_of(place)
        if format.is_table:
            return _table(place, format)
        arrays_held, _ = format.look(place)
    numbers = [each for each in arrays_held if each.has_numbers]
    check_any(place, numbers)
    arrays = {}
    for each in [each for each in numbers if not _is_coordinate(each)] or numbers:
        found = find_array(
            place.path, each.name or None, options=place.options, format=format, rows="", as_matrix=False
        )
        existing_chunks(found, missing_chunks)
        arrays[each.name or _ALONE] = _array(found, each.name or _ALONE)
    return indexed(combined(arrays))


def _is_coordinate(each: Held) -> bool:
    return each.dims == (each.name.rpartition("/")[2],)


def _array(found: Found, name: str) -> xr.DataArray:
    dims, coords = found.dims, {}
    # A matrix of covariances may have the same name twice.
    if dims is None or len(set(dims)) < len(dims):
        dims = tuple(f"{name}_{axis}" for axis in range(len(found.shape)))
    elif found.coords is not None:
        coords = along(found.coords, dims)
    return array(array_of(found, _chunks(found)), dims, coords, said(found.attributes))


def _table(place: Place, format: Format) -> xr.Dataset:
    """Return the columns that hold numbers as arrays along the rows."""
    try:
        columns = (find_array(place.path, None, options=place.options, format=format).recipe or {})["columns"]
    except NoNumbersError as err:
        if not err.numbers:
            raise
        columns = err.numbers
    each = {name: find_array(place.path, joined([name]), options=place.options, format=format) for name in columns}
    return dataset({name: ("row", array_of(found, _chunks(found))[:, 0]) for name, found in each.items()})


def _chunks(found: Found) -> tuple[tuple[int, ...], ...]:
    """Return blocks of several stored chunks each, of the size that Dask's configuration names."""
    size = found.shape if found.whole else "auto"
    chunks: tuple[tuple[int, ...], ...] = da.core.normalize_chunks(
        size, found.shape, dtype=found.dtype, previous_chunks=found.chunks
    )
    return chunks
