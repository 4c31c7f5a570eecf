"""Array inputs: conversion, types, blocks, cache-sized tiles, and the check for values that aren't finite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np

from workbench.errors import BadInputError
from workbench.linalg.gpu import namespace, on_device
from workbench.linalg.keys import fresh
from workbench.sent_code import reach_cluster

if TYPE_CHECKING:
    from workbench.hardware import Memory

# Bytes of a tile in a core's second-level cache, next to its results; 256 KiB to 1 MiB were equally fast.
TILE_BYTES = 512 * 1024
# An array in memory is cut into blocks of this size, so that several threads can work on it.
BLOCK_BYTES = 2**26


class ArrayError(BadInputError, ValueError):
    """An array whose values or shape can't be used."""


class ArrayTypeError(BadInputError, TypeError):
    """An object that isn't an array, or an array of unsupported numbers."""


def memory_of_host() -> Memory:
    """Return the memory of this machine, of which a container or a job may have a part only."""
    # Workers, on which tasks of ours run, may lack what the inventory of hardware imports.
    from workbench.hardware import memory

    return memory()


def refuse_masked(x: Any) -> None:
    """Raise if `x` is a masked array: its hidden values are ignored here."""
    if isinstance(x, np.ma.MaskedArray):
        raise ArrayTypeError("A masked array has to be filled first: a.filled(value), or da.ma.filled(a, value).")


def dense(block: Any) -> Any:
    """Return `block` as a plain array: sparse blocks are written out, masked ones refused."""
    refuse_masked(block)
    if isinstance(block, np.ndarray) or on_device(block):
        return np.asarray(block) if isinstance(block, np.matrix) else block
    for name in ("toarray", "todense"):
        if hasattr(block, name):
            return np.asarray(getattr(block, name)())
    return np.asarray(block)


def as_matrix(a: Any, *, view: bool = False) -> Any:
    """Return `a` as a two-dimensional Dask array, or raise an error that says what it is instead.

    The caller owns the result.

    Parameters
    ----------
    a
        An array (Dask, NumPy, CuPy, Zarr), a list of rows, a sparse matrix, a DataFrame (pandas, Dask).
    view
        NumPy's numbers aren't copied, and must not change while the result is used.
    """
    reach_cluster()
    if not isinstance(a, da.Array):
        a = _of_dask(a, view)
    if a.ndim != 2:
        remedy = " Reshape your data: a.reshape(-1, 1) if it is one column." if a.ndim == 1 else ""
        raise ArrayError(f"Array must be 2D. This one has {a.ndim} dimension(s), shape {a.shape}.{remedy}")
    result_dtype(a.dtype)
    refuse_masked(a._meta)
    if not isinstance(a._meta, np.ndarray) and not on_device(a._meta):
        # Results of sparse blocks are dense.
        a = da.Array(a.dask, a.name, a.chunks, meta=np.empty((0, 0), a.dtype))
    return a


def _of_dask(a: Any, view: bool) -> Any:
    refuse_masked(a)
    if hasattr(a, "to_dask_array"):
        return a.to_dask_array(lengths=True)
    if hasattr(a, "tocsr"):
        a = a.tocsr() if a.shape[0] >= a.shape[1] else a.tocsc()
        return da.from_array(a, chunks=_chunks(a), asarray=False)
    if isinstance(a, (list, tuple)) or (hasattr(a, "__array__") and not hasattr(a, "dtype")):
        a = _numbers(a)
    if not hasattr(a, "shape"):
        raise ArrayTypeError(f"An array is needed, not {type(a).__name__}.")
    if not isinstance(a, np.ndarray) or a.ndim != 2:
        return da.asarray(a)
    a = _numbers(a) if a.dtype == object else np.asarray(a)
    if not view:
        return da.from_array(a, chunks=_chunks(a))
    rows, columns = _chunks(a)
    return in_blocks(a, rows) if len(columns) == 1 else in_blocks(a.T, columns).T


def _numbers(rows: Any) -> np.ndarray[Any, Any]:
    """Return rows of any kind as a NumPy array; numbers of several types, or in objects, become float64."""
    try:
        array = np.asarray(rows)
        return array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError) as err:
        raise ArrayTypeError(f"These can't all be read as numbers: {err}.") from err


def _chunks(a: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return blocks of a fair size, each of them whole along the shorter axis."""
    rows, columns = a.shape
    along = row_blocks(max(rows, columns), max(1, BLOCK_BYTES // max(1, min(rows, columns) * a.dtype.itemsize)))
    return (along, (columns,)) if rows >= columns else ((rows,), along)


def in_blocks(array: Any, heights: Sequence[int]) -> Any:
    """Return an array in memory as a Dask array of blocks of that many rows.

    `da.from_array` copies the whole array, and reads it once more to name it; here blocks are views. The array must not
    change.
    """
    name = fresh("rows")
    graph = {(name, i, 0): array[part] for i, part in enumerate(slices(heights))}
    return da.Array(graph, name, (tuple(heights) or (0,), (array.shape[1],)), meta=array[:0, :0])


def row_blocks(rows: int, height: int) -> tuple[int, ...]:
    """Return `rows` in blocks of `height`, the last of what is left."""
    return tuple(min(height, left) for left in range(rows, 0, -height))


def slices(heights: Sequence[int]) -> list[slice]:
    """Yield slices of so many rows each, one after the other."""
    return [slice(*ends) for ends in pairwise(accumulate(heights, initial=0))]


def result_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of the factors of an array of `dtype`: single precision stays, whole numbers become float64."""
    dtype = np.dtype(dtype)
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.kind in "fc" and dtype.itemsize <= np.dtype("c16" if dtype.kind == "c" else "f8").itemsize:
        return np.promote_types(dtype, np.float32)
    raise ArrayTypeError(
        f"An SVD needs numbers of at most 64 bits (128 if complex), not {dtype}. Try a.astype('float64')."
    )


def working_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the double-precision dtype of the same kind as `dtype`."""
    return np.promote_types(result_dtype(dtype), np.float64)


def tile_rows(columns: int) -> int:
    """Return the number of rows of so many float64 columns that stay in cache: a power of two, at least 64."""
    rows = TILE_BYTES // max(1, columns * 8)
    return int(max(64, 2 ** (max(1, rows).bit_length() - 1)))


def tiles(block: Any, rows: int) -> Iterator[slice]:
    """Yield slices of `block`'s rows, `rows` at a time; a device's block is one tile."""
    height = block.shape[0]
    step = max(1, height) if on_device(block) else rows
    return (slice(start, min(start + step, height)) for start in range(0, height, step))


def check_finite(block: Any, first_row: float, what: str = "row", first_column: int = 0) -> None:
    """Raise with the place of the first NaN or infinity in `block`, whose first row is the array's row `first_row`."""
    if block.dtype.kind not in "fc":
        return
    for part in tiles(block, tile_rows(block.shape[1])):
        bad = ~namespace(block).isfinite(block[part])
        if bad.any():
            row, column = (int(i[0]) for i in bad.nonzero())
            value = complex(block[part][row, column]) if block.dtype.kind == "c" else float(block[part][row, column])
            count = int(bad.sum())
            raise ArrayError(
                _not_finite(value, first_row, part.start + row, first_column + column, count, block.shape[0], what)
            )


def _not_finite(value: complex, first_row: float, row: int, column: int, count: int, height: int, what: str) -> str:
    kind = "NaN" if np.isnan(value) else "Infinity"
    other = "column" if what == "row" else "row"
    if np.isnan(first_row):
        place = f"{what} {row} of a block whose place is unknown"
    else:
        first = int(first_row)
        place = f"{what} {first + row}, {other} {column}, in the block of {what}s {first} to {first + height - 1}"
    others = f" ({count} such values near it)" if count > 1 else ""
    return f"{kind} at {place}{others}. Fill or drop it first: an SVD takes neither NaN nor inf."
