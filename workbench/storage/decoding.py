"""Stored variables as xarray reads them: coordinates and dates decoded, images as datasets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from workbench.storage.places import Place
from workbench.storage.zarrs import images_of


def with_coordinates(raw: Any, above: Any) -> Any:
    """Return a group's dataset with those coordinates from the groups above it where CF has readers look for them."""
    named = " ".join(str(each.attrs.get("coordinates", "")) for each in raw.variables.values()).split()
    names = {*raw.sizes, *(name.rpartition("/")[2] for name in named)} - set(raw.variables)
    coords = {
        name: each
        for name, each in above.variables.items()
        if name in names and all(raw.sizes.get(dim) == length for dim, length in each.sizes.items())
    }
    return raw.assign_coords(coords)


def decoded(raw: Any) -> Any:
    """Return the dataset with coordinates, dates and gaps by CF; times with unclear dates stay numbers."""
    import xarray as xr

    # xarray fails on packing attributes that are text; `conventions` refuses them with a message.
    wordy = {
        name: (each.dims, each, {key: value for key, value in each.attrs.items() if key not in words})
        for name, each in raw.variables.items()
        if (words := {key for key in ("scale_factor", "add_offset") if isinstance(each.attrs.get(key), str)})
    }
    raw = raw.assign(wordy) if wordy else raw
    with warnings.catch_warnings():
        # xarray warns about two fill values of a variable; `conventions` handles both.
        warnings.simplefilter("ignore", xr.SerializationWarning)
        try:
            return xr.decode_cf(raw, decode_timedelta=False)
        except (ValueError, OverflowError):
            dateless = {name: each for name, each in raw.variables.items() if not _is_decodable(raw, name)}
            plain = {name: (each.dims, each, each.attrs | {"units": ""}) for name, each in dateless.items()}
            result = xr.decode_cf(raw.assign(plain), decode_timedelta=False)
            for name, each in dateless.items():
                result[name].attrs["units"] = each.attrs.get("units", "")
            return result


def _is_decodable(raw: Any, name: Any) -> bool:
    import xarray as xr

    with suppress(ValueError, OverflowError):
        xr.decode_cf(raw.drop_vars(set(raw.variables) - {name}), decode_timedelta=False)
        return True
    return False


@contextmanager
def images(place: Place) -> Iterator[Any]:
    """Open the first images of a TIFF file, or the finest of OME-Zarr, with names of their dimensions."""
    import zarr
    from xarray import Dataset, Variable
    from xarray.backends import BackendArray
    from xarray.core.indexing import IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter

    class Lazy(BackendArray):
        def __init__(self, array: Any) -> None:
            self.shape, self.dtype, self._array = array.shape, array.dtype, array

        def __getitem__(self, key: Any) -> Any:
            return explicit_indexing_adapter(key, self.shape, IndexingSupport.BASIC, self._array.__getitem__)

    def dataset(name: str, dims: Sequence[str], array: Any) -> Any:
        found = Variable(dims, LazilyIndexedArray(Lazy(array)), encoding={"chunks": array.chunks})
        return Dataset({name: found})

    if images := images_of(*place.storage(whole=True)):
        name, dims = next(iter(images.items()))
        yield dataset(name, dims, zarr.open_array(place.path, path=name, mode="r", **place.zarr_options))
        return
    from tifffile import TiffFile

    with place.open() as file, TiffFile(file) as pages:
        first = pages.series[0]
        yield dataset("0", tuple(first.axes.lower()), zarr.open_array(first.aszarr(level=0), mode="r"))
