"""Datasets of HDF5 files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workbench.storage import conventions
from workbench.storage.cf import is_bounds
from workbench.storage.formats.base import (
    COUNTING,
    Format,
    Found,
    Listed,
    bad,
    check,
    choose,
    count_written,
    described,
    held_as,
    known,
    lengths,
)
from workbench.storage.places import Place
from workbench.storage.written_chunks import NON_COORDINATE


@contextlib.contextmanager
def hdf5_datasets(place: Place, array: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield all datasets of an HDF5 file by name, while it is open; behind links only the one that is named."""
    import h5py

    datasets = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            datasets[name] = item

    with place.open() as file, h5py.File(file, "r") as opened:
        opened.visititems(note)
        if array is not None and array.strip("/"):
            note(array.strip("/"), opened.get(array))
        yield datasets


def find_hdf5(place: Place, array: str | None) -> Found:
    """Describe a dataset of an HDF5 file."""
    import h5py

    with hdf5_datasets(place, array) as datasets:
        sizes = {each: datasets[each].shape for each in datasets}
        name = choose(
            place, array, sorted(datasets), lambda each: h5py.h5ds.is_scale(datasets[each].id) or is_bounds(each, sizes)
        )
        dataset = datasets[name]
        if dataset.shape is None:
            raise bad(f"{place} ({name}) holds no value (h5py.Empty). Give an array with at least one.")
        shape, dtype = dataset.shape, np.dtype(dataset.dtype)
        check(place, name, shape, dtype)
        for other in (each.file_name for each in (dataset.virtual_sources() if dataset.is_virtual else ())):
            # HDF5 reads fill values if the file is missing.
            if place.is_url or not ("%" in other or (Path(place.path).parent / other).exists()):
                raise bad(f"{place} ({name}) is made of other files, of which {other} isn't on this machine. Copy it.")
        chunks = dataset.chunks and lengths(dataset.chunks)
        attributes = {key: value for key, value in dataset.attrs.items() if not isinstance(value, h5py.Empty)}
        fill = conventions.netcdf_fill(dtype, dataset.fillvalue)
        return Found(place.path, name, "hdf5", lengths(shape), dtype, chunks, attributes=attributes, fill=fill)


def look_hdf5(place: Place) -> Listed:
    """Return the arrays of such a file, and messages about them."""
    arrays = []
    until = time.monotonic() + COUNTING
    with hdf5_datasets(place) as datasets:
        for name, item in datasets.items():
            if not item.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension"):
                stored = {"chunks": item.chunks, "compression": item.compression}
                facts = described(item.dtype, item.attrs) | count_written(place, "hdf5", name, until)
                name = name.replace(NON_COORDINATE, "")
                arrays.append(held_as(name, item.shape or (), item.dtype, dims=_scales(name, item), **stored, **facts))
    return tuple(arrays), ()


def _scales(name: str, item: Any) -> tuple[str, ...] | None:
    """Return names of an HDF5 dataset's dimensions, by the scales that are attached to them."""
    import h5py

    if h5py.h5ds.is_scale(item.id):
        return (name.rpartition("/")[2],) if item.ndim == 1 else None
    names = tuple(each[0].name.rpartition("/")[2] if len(each) else "" for each in item.dims)
    return names if names and all(names) else None


def read_hdf5(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Read a block of a dataset in an HDF5 file."""
    import contextlib

    import fsspec
    import h5py

    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401  it registers the filters that it brings
    with fsspec.open(path, "rb", **known(path, options)) as file, h5py.File(file, "r") as datasets:
        if not (datasets[array].is_virtual or datasets[array].external):
            return datasets[array][where]
    # Open by path only here, where HDF5 needs it to find the other files: it would refuse a file that another process
    # has open for writing.
    with h5py.File(path, "r") as datasets:
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        # By default HDF5 looks for these files in the working directory, which differs on a worker.
        access.set_efile_prefix(b"${ORIGIN}")
        return h5py.Dataset(h5py.h5d.open(datasets.id, (array or "").encode(), access))[where]


HDF5 = Format(
    "HDF5",
    look_hdf5,
    starts=lambda start, place: start == b"\x89HDF\r\n\x1a\n",
    find=find_hdf5,
    readers={"hdf5": read_hdf5},
    modules=("h5py",),
    dims="some",
)
