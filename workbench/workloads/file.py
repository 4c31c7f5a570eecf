"""Arrays in files, read block by block: what tasks run, which needs Dask and NumPy alone where it arrives."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import wait
from dask.utils import SerializableLock

_HEADERS = SerializableLock("headers of .npy")
"""Keeps alive what readers name anew, as a notebook's cell holds each of them by itself."""


def read_npy(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of a .npy file, which is mapped into memory: only the block itself is read."""
    # Python before 3.11.8 and 3.12.2 raises a SystemError where threads read headers at once (gh-106905).
    with SerializableLock("headers of .npy"):
        stored = np.load(path, mmap_mode="r")
    return np.array(stored[where])


def read_npy_url(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of a .npy file that is somewhere else; only its rows are fetched."""
    import fsspec

    with fsspec.open(path, "rb", **known(path, options)) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with SerializableLock("headers of .npy"):
            shape, _, dtype = header(file)
        row = math.prod(shape[1:]) * dtype.itemsize
        file.seek(file.tell() + where[0].start * row)
        found = np.frombuffer(file.read((where[0].stop - where[0].start) * row), dtype)
    return found.reshape(-1, *shape[1:])[:, *where[1:]]


def read_npz(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of an array in a .npz file, which can only be read as a whole."""
    import fsspec

    with (
        fsspec.open(path, "rb", **known(path, options)) as file,
        np.load(file) as arrays,
        SerializableLock("headers of .npy"),
    ):
        return arrays[array][where]


def read_hdf5(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of a dataset in an HDF5 file."""
    import contextlib

    import fsspec
    import h5py

    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401  it registers the filters that it brings
    with fsspec.open(path, "rb", **known(path, options)) as file, h5py.File(file, "r") as datasets:
        if not (datasets[array].is_virtual or datasets[array].external):
            return datasets[array][where]
    # What other files hold of it is found by the path of this one. Otherwise nothing is opened by its path: HDF5 would
    # refuse what somebody has open to write.
    with h5py.File(path, "r") as datasets:
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        # HDF5 looks for such files in the working directory, which is another one on a worker.
        access.set_efile_prefix(b"${ORIGIN}")
        return h5py.Dataset(h5py.h5d.open(datasets.id, (array or "").encode(), access))[where]


def read_zarr(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of a Zarr array in a folder or at a URL."""
    import zarr

    # For a path on this machine there are no options, and Zarr wants to hear of none.
    told = known(path, options, whole=True) or None
    return plain(zarr.open_array(path, path=array, mode="r", storage_options=told))[where]


def read_zarr_zip(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of a Zarr array in a .zip file."""
    import zarr

    with zarr.storage.ZipStore(path, mode="r") as store:
        return plain(zarr.open_array(store, path=array, mode="r"))[where]


def read_dataset(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of a variable of a dataset as xarray opens it; `options` say which part of it is meant."""
    from workbench.storage.datasets import read_part

    return read_part(array or "", where, options)


def read_tiff(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of a series of pages in a TIFF file, the first where none is named; only its pages or tiles are read."""
    import fsspec
    import zarr
    from tifffile import TiffFile

    with fsspec.open(path, "rb", **known(path, options)) as file, TiffFile(file) as pages:
        return zarr.open_array(pages.series[int(array or 0)].aszarr(level=0), mode="r")[where]


def read_parquet(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of the columns of a Parquet table: only the groups of rows are read that it is in.

    `options` say which files it is made of, how many rows there are up to the end of each, and which columns are meant.
    """
    import fsspec
    from pyarrow.parquet import ParquetFile

    ends, blocks = options["ends"], []
    begin, end = np.searchsorted(ends, (where[0].start, where[0].stop - 1), "right")
    for number in range(begin, end + 1):
        above = ends[number - 1] if number else 0
        start, stop = max(where[0].start - above, 0), min(where[0].stop, ends[number]) - above
        with (
            fsspec.open(options["files"][number], "rb", **known(path, options["options"])) as file,
            ParquetFile(file) as table,
        ):
            names = options["columns"][where[1]]
            groups = np.cumsum([table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)])
            first, last = np.searchsorted(groups, (start, stop - 1), "right")
            found = table.read_row_groups(list(range(first, last + 1)), columns=names)
        rows = found.slice(start - (groups[first - 1] if first else 0), stop - start)
        blocks.append(np.column_stack([rows[name].to_numpy().astype("float64") for name in names]))
    return np.concatenate(blocks)


def read_csv(path: str, array: str | None, options: dict[str, Any], *where: slice) -> np.ndarray[Any, Any]:
    """Block of columns of a table in text; `options` say which, and where its pieces begin and end."""
    import io

    import fsspec
    from pyarrow import ArrowInvalid, csv

    starts, ends, names = options["starts"], options["ends"], options["names"]
    first, last = np.searchsorted(ends, (where[0].start, where[0].stop - 1), "right")
    above = ends[first - 1] if first else 0
    with fsspec.open(path, "rb", **known(path, options["options"])) as file:
        file.seek(starts[first])
        text = file.read(starts[last + 1] - starts[first])
    wanted = options["columns"][where[1]]
    try:
        rows = csv.read_csv(
            io.BytesIO(text),
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(delimiter=options["delimiter"]),
            csv.ConvertOptions(
                include_columns=wanted,
                column_types={name: "bool" if name in options["flags"] else "float64" for name in wanted},
            ),
        )
    except ArrowInvalid as err:
        raise ValueError(f"{path}, rows {above} to {ends[last] - 1}: {err}") from None
    if len(rows) < ends[last] - above:
        raise ValueError(f"{path} has empty lines below row {above}. Remove them.")
    rows = rows.slice(where[0].start - above, where[0].stop - where[0].start)
    return np.column_stack([rows[name].to_numpy().astype("float64") for name in wanted])


def known(path: str, options: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """What fsspec is told of a URL's server, with the token that a variable of the environment holds."""
    if "token_variable" not in options and not path.startswith(("http://", "https://")):
        return options
    from workbench.storage.places import with_token

    return with_token(path, options, whole=whole)


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
    "dataset": read_dataset,
    "tiff": read_tiff,
    "parquet": read_parquet,
    "csv": read_csv,
}


def read_stored(
    format: str, path: str, array: str | None, options: dict[str, Any], *where: slice
) -> np.ndarray[Any, Any]:
    """Block of an array in a file, as it is stored; an error names the file and the chunk that can't be decoded."""
    try:
        return READERS[format](path, array, options, *where)
    except Exception as err:
        from workbench.storage.unreadable import explained

        error = explained(err, path, array, format, options, where)
        if error is None:
            raise
        raise error from err


_OF_PATHS = ("npy", "zarr-zip", "dataset")
"""Formats whose readers here are told nothing of a server."""


def shown(resolved: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a notebook's cell holds for `array_of_file` to read a file with these parameters."""
    format, reader = resolved["format"], READERS[resolved["format"]]
    used = {unpacked: resolved["unpack"], folded: resolved.get("lengths"), part_of: "part" in resolved["options"]}
    parts = [each for each, is_used in used.items() if is_used]
    first = ((plain,) if format.startswith("zarr") else ()) + ((known,) if format not in _OF_PATHS else ())
    return (
        *first,
        reader,
        f'READERS = {{"{format}": {reader.__name__}}}',
        read_stored,
        *parts,
        read_block,
        array_of_file,
    )


def part_of(read: Callable[..., Any], part: Sequence[Sequence[int]], *where: slice) -> np.ndarray[Any, Any]:
    """Block of what was selected of an array that `read` reads; dimensions of which one position was are gone."""
    left = iter(where)
    wanted = ((at[0], slice(0, 1) if len(at) == 1 else next(left)) for at in part)
    found = read(*(slice(start + each.start, start + each.stop) for start, each in wanted))
    return found.reshape([each.stop - each.start for each in where])


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
    # Of one number without dimensions NumPy makes a scalar, into which nothing can be written.
    numbers = np.asarray(np.multiply(block, scale, dtype="float64"))
    numbers += offset
    numbers[absent] = np.nan
    return numbers


def folded(
    read: Callable[..., Any], lengths: Sequence[int], axes: Sequence[Sequence[int]], *where: slice
) -> np.ndarray[Any, Any]:
    """Block of a matrix, whose rows and columns each go through some axes of an array that `read` reads."""
    parts = [slice(0, length) for length in lengths]
    inside, sides = [], []
    for group, part in zip(axes, where, strict=True):
        # Of the first axis as many places as are needed, of the others all.
        inner = math.prod(lengths[axis] for axis in group[1:])
        first, last = part.start // inner, -(-part.stop // inner)
        parts[group[0]] = slice(first, last)
        inside.append(slice(part.start - first * inner, part.stop - first * inner))
        sides.append((last - first) * inner)
    return read(*parts).transpose([axis for group in axes for axis in group]).reshape(sides)[tuple(inside)]


def read_block(
    block_info: Any,
    read: Callable[..., Any],
    unpack: dict[str, Any] | None,
    stored: str,
    missing: str,
    whose: str,
    shape: tuple[int, ...],
    dims: Sequence[str] | None,
    instead: str,
) -> np.ndarray[Any, Any]:
    """Block of the numbers that stored ones stand for; what is missing is refused, or NaN."""
    where = [slice(*bounds) for bounds in block_info[None]["array-location"]]
    found = np.asarray(read(*where))
    block = (found if unpack is None else unpacked(found, **unpack)).astype(stored, copy=False)
    infinite = np.isinf(block)
    absent = infinite if infinite.any() or missing != "refuse" else np.isnan(block)
    if absent.any():
        places = np.argwhere(absent)
        first = [part.start + int(index) for part, index in zip(where, places[0], strict=True)]
        named = len(shape) == 2
        at = f"row {first[0]}, column {first[1]}" if named else str(first)
        if not named and dims is not None:
            at = "position " + ", ".join(map("{} of {}".format, first, dims))
        spans = [f"{part.start} to {part.stop - 1}" for part in where]
        inside = f"rows {spans[0]} and columns {spans[1]}" if named else f"[{', '.join(spans)}]"
        others = "" if block.shape == shape else " Other blocks, which were not looked at, may have more."
        what = "that are infinite, which is not missing" if infinite.any() else "that are missing"
        choice = "" if infinite.any() else f", or choose missing={instead}"
        raise ValueError(
            f"{whose} has values {what}: {len(places)} of the {block.size} in {inside}, the first at {at}: "
            f"{found[tuple(places[0])]}.{others} Replace them{choice}."
        )
    return block


def read_numbers(block_info: Any, read: Callable[..., Any], unpack: Mapping[str, Any] | None, dtype: Any) -> Any:
    """Block of what the stored numbers stand for; NaN is missing."""
    block = read(block_info)
    return block if unpack is None else unpacked(block, **unpack).astype(dtype, copy=False)


def array_of_file(
    path: str,
    array: str | None,
    options: dict[str, Any],
    format: str,
    unpack: dict[str, Any] | None,
    shape: tuple[int, ...],
    blocks: tuple[int, ...],
    stored: str,
    missing: str = "refuse",
    lengths: tuple[int, ...] = (),
    axes: Sequence[Sequence[int]] | None = None,
    instead: str = "mean, rows or columns",
) -> da.Array:
    """Array in a file, read block by block where the blocks are needed; what is missing is refused, or NaN."""
    read = partial(read_stored, format, path, array, options["options"] if "part" in options else options)
    if "part" in options:
        read = partial(part_of, read, options["part"])
    if axes is not None:
        read = partial(folded, read, lengths, axes)
    return da.map_blocks(
        read_block,
        read=read,
        unpack=unpack,
        stored=stored,
        missing=missing,
        whose=f"{path} ({array})" if array else path,
        shape=shape,
        dims=options.get("dims"),
        instead=instead,
        # Of this call alone: since another call the file may have been written again.
        name=f"read-block-{uuid.uuid4().hex}",
        chunks=da.core.normalize_chunks(blocks, shape),
        dtype=stored,
        meta=np.empty((0,) * len(shape), stored),
    )


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
    missing: str = "refuse",
    lengths: tuple[int, ...] = (),
    axes: Sequence[Sequence[int]] | None = None,
) -> tuple[da.Array, Any]:
    """Array in a file as a matrix, and which rows or columns of it are kept.

    What is missing is refused, filled or left out; for the last two, the array is gone through once more, first.
    """
    x = array_of_file(path, array, options, format, unpack, shape, blocks, stored, missing, lengths, axes)
    # Onto the GPU where array.backend says so, else nowhere: as it is stored, which may be an eighth of the bytes.
    x, kept = without_gaps(x.to_backend().astype(dtype).rechunk(chunks), missing, path)
    if center:
        mean = x.mean(axis=0)
        if compute:
            # Known beforehand, the means let each block pass by; otherwise all of them wait in memory for the means.
            mean = mean.persist()
            wait(mean)
        x = x - mean
    return x, kept


def without_gaps(x: da.Array, missing: str, path: str) -> tuple[da.Array, Any]:
    """The array without NaN, filled or without rows or columns that hold one; and which of these are kept."""
    if missing == "refuse":
        return x, None
    known = ~da.isnan(x)
    if missing != "mean":
        axis = 1 if missing == "rows" else 0
        kept = np.flatnonzero(known.all(axis=axis).to_backend("numpy").compute())
        if not len(kept):
            other = "columns" if missing == "rows" else "rows"
            raise ValueError(
                f"Of {path} all {missing} hold missing values, so that nothing is left. Choose missing={other}, or "
                "missing=mean where every column has some value."
            )
        return x[kept] if missing == "rows" else x[:, kept], {missing.removesuffix("s"): kept}
    sums, counts = dask.persist(da.nansum(x, axis=0), known.sum(axis=0))
    nothing = int((counts == 0).sum())
    if nothing:
        raise ValueError(
            f"{path} has columns without any value, which have no mean ({nothing} of {x.shape[1]}). Choose "
            "missing=columns, which leaves out all that hold a missing value."
        )
    return da.where(known, x, sums / counts).astype(x.dtype), None
