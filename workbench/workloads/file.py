"""Singular value decomposition of an array in a file."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any

import dask.array as da
import numpy as np
from dask.base import wait

from workbench.workloads.fields import (
    Accuracy,
    ArrayName,
    Center,
    Chunks,
    Components,
    Iterations,
    Iterator,
    Method,
    Path,
    Recompute,
    Resolved,
    Seed,
)


def read_npy(
    path: str, array: str | None, options: dict[str, Any], rows: slice, columns: slice
) -> np.ndarray[Any, Any]:
    """Block of a .npy file, which is mapped into memory: only the block itself is read."""
    return np.array(np.load(path, mmap_mode="r")[rows, columns])


def read_npy_url(
    path: str, array: str | None, options: dict[str, Any], rows: slice, columns: slice
) -> np.ndarray[Any, Any]:
    """Block of a .npy file that is somewhere else; only its rows are fetched."""
    import fsspec

    with fsspec.open(path, "rb", **options) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        row = shape[1] * dtype.itemsize
        file.seek(file.tell() + rows.start * row)
        found = np.frombuffer(file.read((rows.stop - rows.start) * row), dtype)
    return found.reshape(-1, shape[1])[:, columns]


def read_npz(
    path: str, array: str | None, options: dict[str, Any], rows: slice, columns: slice
) -> np.ndarray[Any, Any]:
    """Block of an array in a .npz file, which can only be read as a whole."""
    import fsspec

    with fsspec.open(path, "rb", **options) as file, np.load(file) as arrays:
        return arrays[array][rows, columns]


def read_hdf5(
    path: str, array: str | None, options: dict[str, Any], rows: slice, columns: slice
) -> np.ndarray[Any, Any]:
    """Block of a dataset in an HDF5 file."""
    import fsspec
    import h5py

    with fsspec.open(path, "rb", **options) as file, h5py.File(file, "r") as datasets:
        return datasets[array][rows, columns]


def read_zarr(
    path: str, array: str | None, options: dict[str, Any], rows: slice, columns: slice
) -> np.ndarray[Any, Any]:
    """Block of a Zarr array in a folder or at a URL."""
    import zarr

    # For a path on this machine there are no options, and Zarr wants to hear of none.
    return plain(zarr.open_array(path, path=array, mode="r", storage_options=options or None))[rows, columns]


def read_zarr_zip(
    path: str, array: str | None, options: dict[str, Any], rows: slice, columns: slice
) -> np.ndarray[Any, Any]:
    """Block of a Zarr array in a .zip file."""
    import zarr

    with zarr.storage.ZipStore(path, mode="r") as store:
        return plain(zarr.open_array(store, path=array, mode="r"))[rows, columns]


def plain(array: Any) -> Any:
    """The Zarr array, unless reading it unpickles, which runs what the file says."""
    if "pickle" in f"{array.filters} {array.compressors}".lower():
        raise ValueError(f"{array.store} is written with the codec pickle, which could run anything: it isn't read.")
    return array


READERS = {
    "npy": read_npy,
    "npy-url": read_npy_url,
    "npz": read_npz,
    "hdf5": read_hdf5,
    "zarr": read_zarr,
    "zarr-zip": read_zarr_zip,
}


def unpacked(
    block: np.ndarray[Any, Any],
    dtype: str | None = None,
    missing: Sequence[float] = (),
    low: float | None = None,
    high: float | None = None,
    scale: float = 1.0,
    offset: float = 0.0,
) -> np.ndarray[Any, Any]:
    """Numbers that stored ones stand for: bits read as dtype, NaN where none is known, times scale, plus offset."""
    if dtype is not None:
        block = block.astype(block.dtype.newbyteorder("=")).view(dtype)
    absent = np.isin(block, np.array(missing, block.dtype))
    if low is not None:
        absent |= block < low
    if high is not None:
        absent |= block > high
    numbers = np.multiply(block, scale, dtype="float64")
    numbers += offset
    numbers[absent] = np.nan
    return numbers


def matrix_of_file(
    path: str,
    array: str | None,
    options: dict[str, Any],
    format: str,
    unpack: dict[str, Any] | None,
    shape: tuple[int, int],
    blocks: tuple[int, int],
    chunks: int | tuple[int, int] | str,
    stored: str,
    dtype: str,
    center: bool,
    compute: bool,
) -> da.Array:
    """Array in a file, read block by block where the blocks are needed."""

    def read_block(block_info: Any) -> Any:
        (top, bottom), (left, right) = block_info[None]["array-location"]
        found = READERS[format](path, array, options, slice(top, bottom), slice(left, right))
        block = (found if unpack is None else unpacked(found, **unpack)).astype(stored, copy=False)
        if not np.isfinite(block).all():
            absent = np.argwhere(~np.isfinite(block))
            row, column = absent[0]
            others = "" if block.shape == shape else " Other blocks, which were not looked at, may have more."
            raise ValueError(
                f"{path}{f' ({array})' if array else ''} has values that are missing or not finite: {len(absent)} of "
                f"the {block.size} in rows {top} to {bottom - 1} and columns {left} to {right - 1}, the first at row "
                f"{top + row}, column {left + column}: {found[row, column]}.{others} Replace them or leave them out."
            )
        return block

    x = da.map_blocks(
        read_block,
        # Of this call alone: since another call the file may have been written again.
        name=f"read-block-{uuid.uuid4().hex}",
        chunks=da.core.normalize_chunks(blocks, shape),
        dtype=stored,
        meta=np.empty((0, 0), stored),
    )
    # Onto the GPU where array.backend says so, else nowhere: as it is stored, which may be an eighth of the bytes.
    x = x.to_backend().astype(dtype).rechunk(chunks)
    if center:
        mean = x.mean(axis=0)
        if compute:
            # Known beforehand, the means let each block pass by; otherwise all of them wait in memory for the means.
            mean = mean.persist()
            wait(mean)
        x = x - mean
    return x


def svd_of_file(
    path: Path,
    array: ArrayName | None = None,
    k: Components | None = None,
    center: Center = False,
    method: Method = "workbench",
    tol: Accuracy = 1e-3,
    n_power_iter: Iterations = 4,
    iterator: Iterator = "QR",
    compute: Recompute = False,
    chunks: Chunks = "auto",
    seed: Seed = 0,
    format: Annotated[str, Resolved()] = "npy",
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
    unpack: Annotated[dict[str, Any] | None, Resolved()] = None,
    shape: Annotated[tuple[int, int], Resolved()] = (0, 0),
    blocks: Annotated[tuple[int, int], Resolved()] = (0, 0),
    stored: Annotated[str, Resolved()] = "float64",
    dtype: Annotated[str, Resolved()] = "float64",
    keep: Annotated[bool, Resolved()] = True,
) -> tuple[da.Array, da.Array, da.Array, Any]:
    """SVD of your own array, from .npy, .npz, HDF5 or Zarr.

    Without k all singular values are found, exactly and in one pass; the array must be narrow in one direction. With k
    only the first k are found: by workbench.linalg to the accuracy tol, with a certificate, or by Dask approximately,
    and the check says how far off they may be. Whole numbers are worked on as float64; packed ones, of NetCDF or
    xarray's Zarr, are unpacked first. Take the mean off the columns (center) for a principal component analysis.
    """
    if method == "workbench":
        from workbench.linalg import svd, svd_compressed

        x = matrix_of_file(
            path,
            array,
            options or {},
            format,
            unpack,
            shape,
            blocks,
            chunks,
            stored,
            dtype,
            center and k is None,
            compute,
        )
        if k is None:
            u, s, v = svd(x)
            return u, s, v, None
        u, s, v = result = svd_compressed(x, k, tol=tol, seed=seed, center=0 if center else None, keep=keep)
        return u, s, v, result.certificate
    x = matrix_of_file(
        path, array, options or {}, format, unpack, shape, blocks, chunks, stored, dtype, center, compute
    )
    if k is None:
        u, s, v = da.linalg.svd(x)
    else:
        # A RandomState makes its numbers where x is, on the CPU or a GPU.
        rs = da.random.RandomState(seed)
        u, s, v = da.linalg.svd_compressed(x, k, iterator=iterator, n_power_iter=n_power_iter, seed=rs, compute=compute)
    return u, s, v, None
