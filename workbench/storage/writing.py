"""Writes arrays with named dimensions as Zarr, .npz, .npy or NetCDF: whole or not at all, block by block.

A Zarr store holds an array for each name, another one for each coordinate, and names of dimensions, as xarray writes
and reads them. Zarr and .npy are written by whoever holds the blocks; .npz and NetCDF have room for one writer, through
which blocks pass one by one.

A Zarr store on a disk whose process was killed is gone on with: a block that is there already, bit for bit, is not
written again. All are computed again and compared, since nothing else makes sure that a store is of one computation:
sums may come in another order on other workers, and the factors were in memory, which is lost with the process. Stores
behind URLs, where to compare takes as long as to write, and files are begun anew.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import tempfile
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import dask.array as da
import numpy as np
from dask.callbacks import Callback
from dask.system import CPU_COUNT

from workbench.errors import BadInputError, ConflictError
from workbench.storage.places import writing_to
from workbench.storage.targets import Target
from workbench.storage.zarrs import remove_halves

_SLAB = 2**26  # bytes that pass through one writer at a time
_LARGEST_BLOCK = 2**30  # bytes; what compresses blocks takes less than 2 GiB
_TEXT = np.dtypes.StringDType()
_EPOCH = {"s": "seconds since 1970-01-01", "ns": "nanoseconds since 1970-01-01"}


class Labelled(Protocol):
    """An array, NumPy's or Dask's, with what belongs to it."""

    @property
    def data(self) -> Any: ...  # noqa: D102
    @property
    def dims(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def coords(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def attrs(self) -> Mapping[str, Any]: ...  # noqa: D102


@dataclass(frozen=True)
class Variable:
    """An array or a coordinate as it is written: numbers or text, in NumPy's memory or in blocks that come there."""

    data: Any
    dims: tuple[str, ...]
    attrs: Mapping[str, Any]

    @property
    def blocks(self) -> da.Array | None:
        """The data where Dask has them."""
        return self.data if isinstance(self.data, da.Array) else None


class Hands:
    """Who computes the blocks and writes them: threads of this process.

    `told` hears how many blocks are written, of how many.
    """

    notes: tuple[str, ...] = ()
    """Sentences on how they came there, where that isn't as one expects."""
    kept = 0
    """Blocks that were there already, of a store that was begun earlier."""

    def __init__(self, told: Callable[[int, int], None] | None = None) -> None:
        self._told, self._done, self._total = told, 0, 0

    def count(self, done: int = 1, *, of: int = 0) -> None:
        """Hear of blocks that are written, and of more that are to be."""
        self._done += done
        self._total += of
        if self._told is not None:
            self._told(self._done, self._total)

    def store(self, sources: list[da.Array], targets: list[Any], path: str) -> None:
        """Write each block of the sources where it belongs in the targets, which lie below `path`."""
        written = self._tasks(sources, targets)
        names = {each.name for each in written}

        def posttask(key: Any, *_: Any) -> None:
            if key[0] in names:
                self.count()

        # Where a block fails, those that others have in hand are waited for: a store that is removed would come again.
        with ThreadPoolExecutor(CPU_COUNT) as pool, Callback(posttask=posttask):
            self.kept += sum(map(np.count_nonzero, da.compute(*written, scheduler="threads", pool=pool)))

    def _tasks(self, sources: list[da.Array], targets: list[Any]) -> list[da.Array]:
        """Tasks that write a block each."""
        self.count(0, of=sum(source.npartitions for source in sources))
        return [
            source.map_blocks(
                _WriteBlock(to),
                # A name of its own: two calls that write the same must both write.
                name=f"save-{uuid.uuid4().hex}",
                chunks=tuple((1,) * n for n in source.numblocks),
                meta=np.empty((0,) * source.ndim, bool),
            )
            for source, to in zip(sources, targets, strict=True)
        ]

    def block(self, x: da.Array) -> Any:
        """One block in this process."""
        return x.compute(scheduler="threads")


@dataclass(frozen=True)
class _WriteBlock:
    """The task that writes a block where it belongs, and says whether it was there already."""

    to: Any

    def __call__(self, block: Any, block_info: Any = None) -> np.ndarray[Any, Any]:
        place = tuple(slice(*each) for each in block_info[0]["array-location"])
        there = isinstance(self.to, _Begun) and self.to.holds(place, block)
        if not there:
            self.to[place] = block
        return np.full((1,) * block.ndim, there)


@dataclass(frozen=True)
class _Begun:
    """An array that another process began to write."""

    to: Any

    def holds(self, place: tuple[slice, ...], block: Any) -> bool:
        """Whether these bits are there."""
        try:
            there = self.to[place]
        except Exception:  # noqa: BLE001  Whatever codecs say of a block that is damaged, it is written anew.
            return False
        ours, theirs = (np.ascontiguousarray(each, there.dtype).view("u1").data for each in (block, there))
        return ours == theirs

    def __setitem__(self, place: tuple[slice, ...], block: Any) -> None:
        self.to[place] = block


def write(
    arrays: Mapping[str, Labelled],
    to: Target,
    attrs: Mapping[str, Any],
    *,
    mark: str,
    hands: Hands | None = None,
    begun: Path | None = None,
) -> None:
    """Write arrays to a target; where that fails, nothing is there, or what was there before.

    Parameters
    ----------
    attrs
        What is said of all of them, as text and numbers.
    mark
        Part of the name of the unfinished file, which nobody else uses.
    begun
        An unfinished file of a process that was killed, to go on with.

    Raises
    ------
    BadInputError
        The target holds no such arrays.
    ConflictError
        Something came to be there meanwhile.
    FailedError
        The disk is full, or may not be written to.
    """
    with writing_to(to.place), _whole(to, mark, begun) as path:
        _WRITERS[to.kind](arrays, path, attrs, hands or Hands(), to)


def write_parts(parts: Iterable[bytes], to: Target, *, mark: str) -> None:
    """Write a file part by part to a target, as `write` does."""
    with writing_to(to.place), _whole(to, mark) as path, Path(path).open("wb") as file:
        file.writelines(parts)


def table(arrays: Mapping[str, Labelled], hands: Hands | None = None) -> Iterator[str]:
    """Lines of the first array as a table: labels along its rows, its columns, then other arrays with a value for each.

    Tabs are between them.
    """
    name, each = next(iter(arrays.items()))
    if each.data.ndim not in (1, 2):
        raise BadInputError(f"{name} has {each.data.ndim} dimensions, a table two. Name another, or save as .npz.")
    along = {key: given if isinstance(given, tuple) else (key, given) for key, given in each.coords.items()}
    rows, *others = each.dims
    labels = {rows: along.pop(rows, (rows, range(each.data.shape[0])))[1]}
    labels |= {key: values for key, (dim, values) in along.items() if dim == rows}
    columns = [name]
    for dim in others:
        numbered = [f"{dim}{i + 1}" for i in range(each.data.shape[1])]
        columns = list(map(str, along.get(dim, (dim, numbered))[1]))
    beside = {key: np.asarray(other.data) for key, other in arrays.items() if key != name and other.dims == (rows,)}
    yield "\t".join((*labels, *columns, *beside))
    data, hands = _slabs(da.asarray(each.data)), hands or Hands()
    hands.count(0, of=data.numblocks[0])
    start = 0
    for length in data.chunks[0]:
        block = np.asarray(data[start : start + length]).reshape(length, len(columns))
        for i, row in enumerate(block.tolist(), start):
            before, after = ([str(values[i]) for values in given.values()] for given in (labels, beside))
            yield "\t".join((*before, *map(str, row), *after))
        hands.count()
        start += length


def unfinished(path: Path, mark: str) -> Path:
    """Where what becomes `path` is written first."""
    return path.with_name(f".{path.name}.{mark}.part")


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; nothing where nothing is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _whole(to: Target, mark: str, begun: Path | None = None) -> Iterator[str]:
    """A path to write to, from which things come to the target at the end of the block."""
    if to.place.is_url:
        with _sent(to) as there:
            yield there
        return
    path = Path(to.place.path)
    temporary = unfinished(path, mark)
    if begun is not None:
        # What another process took meanwhile is that one's.
        with contextlib.suppress(FileNotFoundError):
            begun.rename(temporary)
    try:
        yield str(temporary)
        if os.path.lexists(path) and not to.replace:
            raise ConflictError(f"{path} came to be there meanwhile, and was left as it is. Save under another name.")
        if path.is_dir():
            before = path.with_name(f".{path.name}.{mark}.old")
            path.rename(before)
            temporary.rename(path)
            remove(before)
        else:
            temporary.replace(path)
    finally:
        remove(temporary)


@contextlib.contextmanager
def _sent(to: Target) -> Iterator[str]:
    """The URL itself for a store of many files, whose list comes last; else a file here, which is sent when whole.

    What is there already stays until what replaces it lies whole beside it.
    """
    fs, root = to.place.storage()
    before = to.replace and fs.exists(root)
    place = to.place + ".part" if before else to.place
    there = place.storage()[1]
    try:
        # Left by a process that was killed.
        if before and fs.exists(there):
            fs.rm(there, recursive=True)
        if to.kind == "zarr":
            yield place.path
        else:
            with tempfile.TemporaryDirectory(prefix="workbench-save-") as folder:
                yield f"{folder}/{to.place.name}"
                fs.put_file(f"{folder}/{to.place.name}", there)
    except BaseException:
        with contextlib.suppress(OSError):
            fs.rm(there, recursive=True)
        raise
    if before:
        fs.rm(root, recursive=True)
        # One by one: moving a folder takes the folders of a bucket, which are only names, for files.
        for each in fs.find(there):
            moved = root + each.removeprefix(there)
            fs.makedirs(moved.rpartition("/")[0], exist_ok=True)
            fs.mv(each, moved)
        with contextlib.suppress(OSError):
            fs.rm(there, recursive=True)


def variables(arrays: Mapping[str, Labelled]) -> tuple[dict[str, Variable], tuple[str, ...]]:
    """Arrays and their coordinates by name, and the names of those coordinates that no dimension is called."""
    found = {name: _variable(each.data, each.dims, each.attrs) for name, each in arrays.items()}
    aside = []
    for each in arrays.values():
        for name, given in each.coords.items():
            # As xarray tells values from a dimension with values.
            dim, values = given if isinstance(given, tuple) else (name, given)
            coordinate = _variable(np.asarray(values), (dim,), {})
            if name in found and not np.array_equal(found[name].data, coordinate.data):
                raise BadInputError(f"The answer has two different arrays called {name!r}. Give them different names.")
            found.setdefault(name, coordinate)
            if name != dim and name not in aside:
                aside.append(name)
    return found, tuple(aside)


def _variable(data: Any, dims: tuple[str, ...], attrs: Mapping[str, Any]) -> Variable:
    if isinstance(data, da.Array):
        data = data.to_backend("numpy")
        data = data.compute_chunk_sizes() if math.isnan(math.prod(data.shape)) else data
    else:
        # CuPy's arrays come to the host only where they are asked to.
        data = np.asarray(data.get() if hasattr(data, "__cuda_array_interface__") else data)
    if data.dtype.kind == "M":
        return _counted(data, dims, attrs)
    if data.dtype.kind == "U" or (data.dtype.kind == "O" and all(isinstance(each, str) for each in data.ravel())):
        data = data.astype(_TEXT)
    if data.dtype.kind not in "biufcT":
        raise BadInputError(f"Arrays of {data.dtype} can't be saved: numbers, text and dates can.")
    return Variable(data, tuple(dims), attrs)


def _counted(data: Any, dims: tuple[str, ...], attrs: Mapping[str, Any]) -> Variable:
    """Dates as whole numbers with a unit, by the conventions for climate and forecast data."""
    unit = "s" if (data == data.astype("datetime64[s]")).all() else "ns"
    numbers = data.astype(f"datetime64[{unit}]").astype("int64")
    return Variable(numbers, tuple(dims), {**attrs, "units": _EPOCH[unit], "calendar": "proleptic_gregorian"})


def regions(x: da.Array) -> Iterator[tuple[tuple[slice, ...], da.Array]]:
    """Each block of an array, and where it belongs."""
    places, indices = da.core.slices_from_chunks(x.chunks), np.ndindex(*x.numblocks)
    return ((place, x.blocks[index]) for place, index in zip(places, indices, strict=True))


def dates(data: Any, attrs: Mapping[str, Any]) -> Any:
    """Undo `_counted`; other data come back as they are."""
    unit = {sentence: unit for unit, sentence in _EPOCH.items()}.get(str(attrs.get("units")))
    return data.astype(f"datetime64[{unit}]") if unit and data.dtype == "int64" else data


def _plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as text and numbers, which all formats hold: the rest as JSON."""
    plain = (str, int, float)
    return {
        name: value if isinstance(value, plain) and not isinstance(value, bool) else json.dumps(value)
        for name, value in attrs.items()
        if value is not None
    }


# --- Zarr -------------------------------------------------------------------------------------------------------------


def _zarr(arrays: Mapping[str, Labelled], path: str, attrs: Mapping[str, Any], hands: Hands, to: Target) -> None:
    import zarr

    found, aside = variables(arrays)
    told = _plain_attrs(attrs) | ({"coordinates": " ".join(aside)} if aside else {})
    group = zarr.open_group(path, mode="a", use_consolidated=False, **to.place.zarr_options)
    group.attrs.put(told)
    # Of a store that another process began.
    for name in set(group) - found.keys():
        del group[name]
    sources, targets = [], []
    for name, each in found.items():
        data = each.data if each.blocks is None else _regular(each.blocks)
        blocks = "auto" if each.blocks is None else tuple(max(1, lengths[0]) for lengths in data.chunks)
        layout = data.shape, str if data.dtype.kind == "T" else data.dtype.newbyteorder("="), blocks
        begun = group.get(name)
        if begun is not None and (begun.shape, begun.dtype, begun.chunks) == layout:
            begun.attrs.put(_plain_attrs(each.attrs))
            target: Any = _Begun(begun)
        else:
            target = group.create_array(
                name,
                **dict(zip(("shape", "dtype", "chunks"), layout, strict=True)),
                dimension_names=each.dims,
                attributes=_plain_attrs(each.attrs),
                overwrite=begun is not None,
            )
        if each.blocks is None:
            target[...] = data
        elif data.size:
            sources.append(data)
            targets.append(target)
    if sources:
        hands.store(sources, targets, path)
    if not to.place.is_url:
        remove_halves(Path(path))
    with warnings.catch_warnings():
        # Who reads with xarray is warned without it, who writes with zarr is warned with it.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)


def _regular(x: da.Array) -> da.Array:
    """`x` in blocks of one size but for the last of each dimension, none of them too large to be compressed."""
    even = all(len(set(lengths[:-1])) <= 1 and lengths[-1] <= lengths[0] for lengths in x.chunks)
    if even and math.prod(x.chunksize) * x.dtype.itemsize <= _LARGEST_BLOCK:
        return x
    return x.rechunk(da.core.normalize_chunks("auto", x.shape, dtype=x.dtype))


# --- NumPy's files ----------------------------------------------------------------------------------------------------


class Rows:
    """A .npy file that exists, into which many processes write rows; it travels to workers as its path."""

    def __init__(self, path: str, start: int, row: int) -> None:
        self.path, self.start, self.row = path, start, row

    def __setitem__(self, region: tuple[slice, ...], rows: Any) -> None:
        """Write whole rows."""
        with Path(self.path).open("r+b") as file:
            file.seek(self.start + (region[0].start or 0) * self.row)
            file.write(np.ascontiguousarray(rows).data)


def _npy(arrays: Mapping[str, Labelled], path: str, attrs: Mapping[str, Any], hands: Hands, to: Target) -> None:
    if len(arrays) != 1:
        raise BadInputError(
            f"{to} would hold one array, and there are {len(arrays)}: {', '.join(arrays)}. Name one of them, or give a "
            "name that ends with .npz, .nc or .zarr."
        )
    found, _ = variables(arrays)
    data = found[next(iter(arrays))].data
    data = _slabs(data) if isinstance(data, da.Array) else data
    with Path(path).open("wb") as file:
        if not isinstance(data, da.Array):
            np.save(file, _fixed(data), allow_pickle=False)
            return
        _header(file, data)
        start = file.tell()
        _reserve(file, start + data.nbytes)
    row = math.prod(data.shape[1:]) * data.dtype.itemsize
    if data.size:
        hands.store([data], [Rows(path, start, row)], path)


def _npz(arrays: Mapping[str, Labelled], path: str, attrs: Mapping[str, Any], hands: Hands, to: Target) -> None:
    found, _ = variables(arrays)
    slabs = {name: _slabs(each.blocks) for name, each in found.items() if each.blocks is not None}
    hands.count(0, of=sum(data.npartitions for data in slabs.values()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, each in found.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                if name not in slabs:
                    np.save(file, _fixed(each.data), allow_pickle=False)
                    continue
                data = slabs[name]
                _header(file, data)
                for index in range(data.numblocks[0] if data.ndim else 1):
                    block = hands.block(data.blocks[index] if data.ndim else data)
                    file.write(np.ascontiguousarray(block).data)
                    hands.count()


def _reserve(file: IO[bytes], n_bytes: int) -> None:
    """Have room for a file, or raise OSError before others write to it in the middle."""
    if hasattr(os, "posix_fallocate"):  # not on macOS
        os.posix_fallocate(file.fileno(), 0, max(1, n_bytes))


def _fixed(data: Any) -> Any:
    """Text in a fixed width, which NumPy's files hold without running anything."""
    return np.array(data.tolist(), dtype="U") if data.dtype.kind == "T" else data


def _header(file: IO[bytes], data: da.Array) -> None:
    """Write the head of a .npy file."""
    head = {"descr": np.lib.format.dtype_to_descr(data.dtype), "fortran_order": False, "shape": data.shape}
    np.lib.format.write_array_header_1_0(file, head)


def _slabs(x: da.Array) -> da.Array:
    """`x` in blocks of whole rows, as they lie in a file."""
    if not x.ndim:
        return x
    row = math.prod(x.shape[1:]) * x.dtype.itemsize
    return x.rechunk({0: max(1, _SLAB // max(1, row)), **dict.fromkeys(range(1, x.ndim), -1)})


# --- NetCDF -----------------------------------------------------------------------------------------------------------


def _nc(arrays: Mapping[str, Labelled], path: str, attrs: Mapping[str, Any], hands: Hands, to: Target) -> None:
    import h5netcdf
    import h5py

    found, aside = variables(arrays)
    strange = next((name for name, each in found.items() if each.data.dtype.kind == "c"), None)
    if strange is not None:
        raise BadInputError(f"{strange} holds complex numbers, for which NetCDF has no type. Save it as .zarr or .npz.")
    # HDF5 that meets a full disk may take its process down.
    with tempfile.TemporaryFile(dir=Path(path).parent) as probe:
        _reserve(probe, sum(each.data.nbytes for each in found.values()))
    hands.count(0, of=sum(each.blocks.npartitions for each in found.values() if each.blocks is not None))
    with _room_for_hdf5(), h5netcdf.File(path, "w") as file:
        for each in found.values():
            for dim, length in zip(each.dims, each.data.shape, strict=True):
                if dim not in file.dimensions:
                    file.dimensions[dim] = length
        for name, each in found.items():
            dtype = h5py.string_dtype() if each.data.dtype.kind == "T" else _of_netcdf(each.data.dtype)
            variable = file.create_variable(name, each.dims, dtype)
            variable.attrs.update(_plain_attrs(each.attrs))
            if each.blocks is None:
                variable[...] = each.data.astype(object if each.data.dtype.kind == "T" else dtype)
                continue
            for region, block in regions(each.blocks):
                variable[region] = np.asarray(hands.block(block)).astype(dtype)
                hands.count()
        file.attrs.update(_plain_attrs(attrs) | ({"coordinates": " ".join(aside)} if aside else {}))


@contextlib.contextmanager
def _room_for_hdf5() -> Iterator[None]:
    """Have a full disk be an OSError, also where HDF5 finds it out when it closes a file."""
    try:
        yield
    except RuntimeError as err:
        number = re.search(r"errno = (\d+)", str(err))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from err


def _of_netcdf(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of NetCDF that holds all values of NumPy's."""
    return np.dtype({"?": "int8", "e": "float32"}.get(dtype.char, dtype))


_WRITERS = {"zarr": _zarr, "npz": _npz, "npy": _npy, "nc": _nc}
