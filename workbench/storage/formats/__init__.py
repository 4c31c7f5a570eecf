"""Formats of files: one module for each, and the table of all.

A new format is a module here with a `Format`, one line in the table, and its test.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.storage import datasets
from workbench.storage.formats import csv, hdf5, netcdf, npy, parquet, tiff, zarr
from workbench.storage.formats.base import FORMATS, Format, Reader, bad
from workbench.storage.places import Place
from workbench.storage.zarrs import MARKS, is_marked

# Formats are tried in this order: any .zip file that isn't NumPy's may be a Zarr store, and any text a table.
ALL: tuple[Format, ...] = (
    npy.NPY,
    npy.NPZ,
    hdf5.HDF5,
    zarr.ZARR,
    zarr.ZARR_ZIP,
    netcdf.NETCDF3,
    netcdf.GRIB,
    netcdf.NETCDF_FILES,
    parquet.PARQUET,
    tiff.TIFF,
    csv.CSV,
)
READERS: Mapping[str, Reader] = {name: read for each in ALL for name, read in each.readers.items()}
"""Reader of each `Found.format`."""
MODULES: Mapping[str, tuple[str, ...]] = {name: each.modules for each in ALL for name in each.readers}
"""Modules with which tasks read an array, by `Found.format`."""


_SUFFIXES = frozenset((".npy", ".npz", ".h5", ".hdf5", ".nc", ".tif", ".tiff", ".parquet"))
"""Ends of names of files whose first bytes tell the format."""


def format_of(place: Place) -> Format:
    """Return the format of the file at a place. Raises BadParameterError if it is none of these."""
    if not place.is_url:
        if not Path(place.path).is_dir() and datasets.files_of(place):
            return netcdf.NETCDF_FILES
        return _of_folder(place) if Path(place.path).is_dir() else _of_file(place)
    fs, root = place.storage()
    if is_marked(place):
        return zarr.ZARR
    if not fs.isfile(root) and fs.isdir(root):
        return _of_folder(place)
    if not fs.exists(root):
        fs.info(root)  # its error says why
        raise FileNotFoundError(place)
    found = _of_file(place)
    if found is zarr.ZARR_ZIP:
        raise bad(f"{place} is a .zip file at a URL. Copy it to this machine, or unpack it there.")
    return found


def _of_folder(place: Place) -> Format:
    entries = zarr.entries(*place.storage())
    if any(map(parquet.is_part, entries)):
        return parquet.PARQUET
    parts = sorted(name for name, kind in entries.items() if kind == "directory" and "=" in name)
    if parts:
        raise bad(f"{place} is a table in folders, such as {parts[0]}. Give one of them, or write it into one folder.")
    return netcdf.NETCDF_FILES if datasets.files_of(place) else zarr.ZARR


def _of_file(place: Place) -> Format:
    with place.open() as file:
        start = file.read(8)
    if place.name in MARKS:
        raise bad(f"{place} belongs to a Zarr array. Give the folder that it is in.")
    for each in ALL:
        if each.starts(start, place):
            return each
    if start[:2] == b"\x1f\x8b":
        raise bad(
            f"{place} is compressed as a whole, so no part of it can be read alone. Unpack it first: gunzip FILE."
        )
    if not start:
        raise bad(f"{place} is empty. Give the path of {FORMATS}.")
    if (suffix := Path(place.name).suffix.lower()) in _SUFFIXES:
        raise bad(
            f"{place} begins with {start!r}, as no {suffix} file does. It is damaged, or its name is wrong. Write it "
            f"again, or give the path of {FORMATS}."
        )
    # This looks like a table of numbers, which is only recognized by its name.
    hint = (
        " A table of numbers as text has a name that ends with .csv or .tsv." if start[:1] in b"-+.0123456789" else ""
    )
    raise bad(f"{place} is in no format that can be read here. Give the path of {FORMATS}.{hint}")
