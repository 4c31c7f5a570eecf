"""Write arrays as one file that other programs read: .npy, .npz, NetCDF, or a table of text.

One process writes the file, a few neighboring blocks at a time, so an array may be larger than its memory.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import dask.array as da
import numpy as np
import xarray as xr

from workbench import formats
from workbench.errors import BadInputError
from workbench.storage.variables import dates, is_lazy

Count = Callable[..., None]
"""`count(of=n)` announces n blocks, `count()` reports one that was written."""

_PIECE = 2**25
"""Bytes up to which neighboring blocks are read and written together."""


def is_streamed(array: Any) -> bool:
    """Return whether an array is written block by block. The length of text is known only at the end."""
    return bool(array.ndim and array.size and array.dtype.kind in "biufc")


def write(kind: str, variables: Mapping[str, xr.Variable], path: Path, attrs: Mapping[str, Any], count: Count) -> None:
    """Write variables to a file of this kind. Raises OSError if the disk is full."""
    small = {name: each for name, each in variables.items() if is_lazy(each) and not is_streamed(each.data)}
    loaded = {name: each.compute(scheduler="threads") for name, each in small.items()}
    _FILES[kind]({**variables, **loaded}, path, attrs, count)


def check_room(folder: Path, variables: Mapping[str, xr.Variable], copies: int = 1) -> None:
    """Raise OSError if the disk has no room for these variables: better now than after hours."""
    size = copies * sum(each.data.nbytes for each in variables.values() if is_streamed(each.data))
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, f"{formats.size(size)} are needed, and {os.strerror(errno.ENOSPC)}", str(folder))


def tabled(answer: xr.Dataset) -> list[str]:
    """Return the names of a table's arrays: the first, and those with a value for each of its rows."""
    name, first = next(iter(answer.items()))
    along = (key for key, other in answer.items() if key != name and other.dims == first.dims[:1])
    return [str(name), *map(str, along)]


def table(answer: xr.Dataset, count: Count | None = None) -> Iterator[str]:
    """Yield the lines of the first array as a table: row labels, its columns, other arrays with a value for each row.

    Tabs separate them. Rows without labels are numbered from 0, except in a column of text: readers of lists
    would take the numbers for names.
    """
    name, each = next(iter(answer.items()))
    if each.data.ndim not in (1, 2):
        raise BadInputError(f"{name} has {each.data.ndim} dimensions, a table two. Name another, or save as .npz.")
    along = {dim: each.coords[dim].values for dim in each.dims if dim in each.coords}
    rows, *others = each.dims
    listed = each.data.ndim == 1 and each.data.dtype.kind in "OTU"
    labels = {} if listed and rows not in along else {rows: along.get(rows, range(each.data.shape[0]))}
    labels |= {key: values.values for key, values in each.coords.items() if values.dims == (rows,)}
    columns = [name]
    for dim in others:
        numbered = [f"{dim}{i + 1}" for i in range(each.data.shape[1])]
        columns = list(map(str, along.get(dim, numbered)))
    columns_along = {key: np.asarray(answer[key].data) for key in tabled(answer)[1:]}
    yield "\t".join((*labels, *columns, *columns_along))
    data = da.asarray(each.data)
    rows_at_once = max(1, min(data.chunksize[0], _PIECE // (data.dtype.itemsize * len(columns))))
    number = 0
    for _, block in _blocks(data.rechunk((rows_at_once, *data.shape[1:])), count or _count_nothing):
        for row in block.reshape(-1, len(columns)).tolist():
            before, after = ([str(values[number]) for values in part.values()] for part in (labels, columns_along))
            yield "\t".join((*before, *map(str, row), *after))
            number += 1


def _count_nothing(*_: Any, **__: Any) -> None:
    pass


def regions(x: da.Array) -> Iterator[tuple[tuple[slice, ...], da.Array]]:
    """Yield each block of an array and its place."""
    places, indices = da.core.slices_from_chunks(x.chunks), np.ndindex(*x.numblocks)
    # An array without dimensions can't be indexed by block.
    return ((place, x.blocks[index] if index else x) for place, index in zip(places, indices, strict=True))


def _blocks(x: da.Array, count: Count) -> Iterator[tuple[tuple[slice, ...], np.ndarray[Any, Any]]]:
    """Compute one block after another in threads of this process, whatever cluster is Dask's default."""
    count(0, of=x.npartitions)
    for place, block in regions(x):
        yield place, np.asarray(block.compute(scheduler="threads"))
        count()


def _pieces(x: da.Array) -> da.Array:
    """Merge neighboring blocks along the last axes, up to _PIECE bytes: the numbers of a piece are in long runs."""
    chunks, size = list(x.chunksize), math.prod(x.chunksize) * x.dtype.itemsize
    for axis in reversed(range(x.ndim)):
        merged = max(1, min(x.numblocks[axis], _PIECE // max(1, size)))
        chunks[axis], size = min(chunks[axis] * merged, x.shape[axis]), size * merged
        if merged < x.numblocks[axis]:
            break
    return x.rechunk(tuple(chunks))


def _is_sequential(x: da.Array) -> bool:
    """Return whether the blocks of an array follow each other in a file in C order."""
    first = next((axis for axis, length in enumerate(x.chunksize) if length > 1), 0)
    return all(n == 1 for n in x.numblocks[first + 1 :])


def _bytes(block: np.ndarray[Any, Any]) -> memoryview:
    return np.asarray(block, order="C").reshape(-1).view("u1").data


def _fill(x: da.Array, dtype: np.dtype[Any], file: IO[bytes], start: int, count: Count) -> None:
    """Write an array in C order into a file, from byte `start` on.

    The file isn't mapped into memory: a full disk would end the process, and on a network go unnoticed.
    """
    strides = [math.prod(x.shape[axis + 1 :]) * dtype.itemsize for axis in range(x.ndim)]
    for place, values in _blocks(_pieces(x), count):
        block = values.astype(dtype, copy=False)
        # From this axis on, the numbers of a block are contiguous in the file.
        whole = max((axis for axis, n in enumerate(x.shape) if block.shape[axis] != n), default=0)
        offsets = np.array(start + place[whole].start * strides[whole])
        for each, stride in zip(place[:whole], strides, strict=False):
            offsets = np.add.outer(offsets, np.arange(each.start, each.stop) * stride)
        for run, offset in zip(block.reshape(offsets.size, -1), offsets.flat, strict=True):
            file.seek(offset)
            file.write(_bytes(run))


def _npy(variables: Mapping[str, xr.Variable], path: Path, attrs: Mapping[str, Any], count: Count) -> None:
    with path.open("wb") as file:
        _write_npy(next(iter(variables.values())), file, path.parent, count)


def _npz(variables: Mapping[str, xr.Variable], path: Path, attrs: Mapping[str, Any], count: Count) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, each in variables.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write_npy(each, member, path.parent, count)


def _write_npy(each: xr.Variable, file: IO[bytes], folder: Path, count: Count) -> None:
    """Write an array as .npy to a file that is written from its beginning to its end; `folder` has room for a copy."""
    data = dates(each.data, each.attrs)
    # Text has a fixed width, and dates of other calendars are text: NumPy's files hold both without pickling.
    data = np.array(data.tolist(), dtype="U") if data.dtype.kind in "OT" else data
    header = {"descr": np.lib.format.dtype_to_descr(data.dtype), "fortran_order": False, "shape": data.shape}
    np.lib.format.write_array_header_1_0(file, header)
    if not isinstance(data, da.Array):
        file.write(_bytes(data))
    elif _is_sequential(pieces := _pieces(data)):
        for _, block in _blocks(pieces, count):
            file.write(_bytes(block))
    else:
        with tempfile.TemporaryFile(dir=folder) as scratch:
            _fill(data, data.dtype, scratch, 0, count)
            scratch.seek(0)
            shutil.copyfileobj(scratch, file, _PIECE)


def _nc(variables: Mapping[str, xr.Variable], path: Path, attrs: Mapping[str, Any], count: Count) -> None:
    import h5netcdf
    import h5py

    in_memory = sum(each.data.nbytes for each in variables.values() if not is_lazy(each))
    # HDF5 may end its process on a full disk. So it writes metadata and small variables only, for which there is room.
    with tempfile.TemporaryFile(dir=path.parent) as probe:
        probe.write(bytes(2**20 + in_memory))
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    with _full_disk_of_hdf5(), h5netcdf.File(path, "w") as file:
        for each in variables.values():
            for dim, length in zip(each.dims, each.data.shape, strict=True):
                if dim not in file.dimensions:
                    file.dimensions[dim] = length
        for name, each in variables.items():
            dtype = h5py.string_dtype() if each.data.dtype.kind == "T" else _netcdf_type(each.data.dtype)
            variable = file.create_variable(name, each.dims, dtype, **({"dcpl": early} if is_lazy(each) else {}))
            variable.attrs.update(each.attrs)
            if not is_lazy(each):
                variable[...] = each.data.astype(object if each.data.dtype.kind == "T" else dtype)
        file.attrs.update(attrs)
    lazy = {name: each.data for name, each in variables.items() if is_lazy(each)}
    with h5py.File(path) as file:
        places = {name: (file[name].dtype, file[name].id.get_offset()) for name in lazy}
    with path.open("r+b") as opened:
        for name, (dtype, start) in places.items():
            _fill(lazy[name], dtype, opened, start, count)


@contextlib.contextmanager
def _full_disk_of_hdf5() -> Iterator[None]:
    """Raise OSError for a full disk, also where HDF5 notices it when it closes a file."""
    try:
        yield
    except RuntimeError as err:
        number = re.search(r"errno = (\d+)", str(err))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from err


def _netcdf_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of NetCDF that holds all values of NumPy's."""
    return np.dtype({"?": "int8", "e": "float32"}.get(dtype.char, dtype))


_FILES = {"npz": _npz, "npy": _npy, "nc": _nc}
