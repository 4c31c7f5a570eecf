"""Writes arrays with named dimensions as Zarr, .npz, .npy or NetCDF: whole or not at all, block by block.

A Zarr store holds an array for each name, another one for each coordinate, and names of dimensions, as xarray writes
and reads them. Whoever holds a block writes it, into a store or a file beside the target, which becomes the target as
the last step. Machines that write into the same page of a file on a disk which they share spoil it, so several of them
write ranges that begin at pages; blocks that aren't whole rows are put into a store before, and so are all that become
a file behind a URL: this process puts the file together from there.

A path may mean another folder on each worker, in a container above all, and one may join at any time. So each task sees
whether what this process made is there before it writes, and writes nothing where it isn't: Zarr would make the folder.

What a process that was killed had written is gone on with, here and behind URLs: a block that is there already, bit for
bit, is not written again. All are computed again and compared, since nothing else makes sure that they are of one
computation: sums may come in another order on other workers, and the factors were in memory, which is lost with the
process.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import math
import os
import re
import shutil
import stat
import tempfile
import uuid
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from dask.callbacks import Callback
from dask.highlevelgraph import HighLevelGraph
from dask.system import CPU_COUNT

from workbench import formats, private, remote
from workbench.errors import BadInputError, ConflictError, FailedError
from workbench.redaction import redacted
from workbench.storage.labelled import Labelled, equal
from workbench.storage.places import Place, writing_to
from workbench.storage.targets import COPYING, Target, what_is_at
from workbench.storage.zarrs import MARKS, from_store, remove_halves

_SLAB = 2**26  # bytes that are put into a file at a time
_PAGE = 4096  # bytes; longer headers are unsafe to NumPy
_ZIP_HEAD = 30 + 20  # bytes before the name of what is in a zip file, and of its lengths in 64 bits, after it
_FILE = "__file"  # beside arrays of a store, none of which begins so
_LARGEST_BLOCK = 2**30  # bytes; what compresses blocks takes less than 2 GiB
_TEXT = np.dtypes.StringDType()
_EPOCH = {"s": "seconds since 1970-01-01", "ns": "nanoseconds since 1970-01-01"}
_SPAN = {"s": "seconds", "ns": "nanoseconds"}

WRITTEN, KEPT, REFUSED = range(3)
"""What becomes of a block: one that is kept was there already, one is refused where a worker can't reach the folder."""


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

    @property
    def on_one_machine(self) -> bool:
        """Whether all of them see the same pages of a file."""
        return True

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
            self.kept += became(KEPT, da.compute(*written, scheduler="threads", pool=pool))

    def _tasks(self, sources: list[da.Array], targets: list[Any], path: str | None = None) -> list[da.Array]:
        """Tasks that write a block each, unless there is no `path` where they are, and give what became of it."""
        self.count(0, of=sum(source.npartitions for source in sources))
        files = any(isinstance(to.to if isinstance(to, _Begun) else to, _Zone) for to in targets)
        only = remote.machine() if path is not None and files and self.on_one_machine else None
        return [
            source.map_blocks(
                _WriteBlock(to, path, only),
                # A name of its own: two calls that write the same must both write.
                name=f"save-{uuid.uuid4().hex}",
                chunks=tuple((1,) * n for n in source.numblocks),
                meta=np.empty((0,) * source.ndim, np.uint8),
            )
            for source, to in zip(sources, targets, strict=True)
        ]


def became(what: int, blocks: Iterable[Any]) -> int:
    """How many blocks that became of."""
    return sum(int((each == what).sum()) for each in blocks)


@dataclass(frozen=True)
class _WriteBlock:
    """The task that writes a block where it belongs, and says what became of it."""

    to: Any
    path: str | None = None
    only: str | None = None
    """The machine that writes into a file without regard to its pages."""

    def __call__(self, block: Any, block_info: Any = None) -> np.ndarray[Any, Any]:
        place = tuple(slice(*each) for each in block_info[0]["array-location"])
        elsewhere = self.only is not None and remote.machine() != self.only
        if elsewhere or (self.path is not None and remote.unwritable(self.path) is not None):
            done = REFUSED
        elif isinstance(self.to, _Begun) and self.to.holds(place, block):
            done = KEPT
        else:
            self.to[place] = block
            done = WRITTEN
        return np.full((1,) * block.ndim, done, np.uint8)


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
    begun: Place | None = None,
) -> None:
    """Write arrays to a target; where that fails, nothing is there, or what was there before.

    Parameters
    ----------
    attrs
        What is said of all of them, as text and numbers.
    mark
        Part of the name of what is unfinished, which nobody else uses.
    begun
        What a process that was killed left unfinished, to go on with.

    Raises
    ------
    BadInputError
        The target holds no such arrays.
    ConflictError
        Something came to be there meanwhile.
    FailedError
        The disk is full, or may not be written to.
    """
    hands = hands or Hands()
    with writing_to(to.place), _whole(to, mark, begun) as folder:
        found, aside = variables(arrays)
        told = _plain_attrs(attrs) | ({"coordinates": " ".join(aside)} if aside else {})
        if to.kind == "zarr":
            _zarr(found, folder, told, hands)
            return
        _check_holds(to, arrays, found)
        apart = {
            name: each
            for name, each in found.items()
            if each.is_lazy and (folder.is_url or not _has_zone(each.data) or _scattered(each.data, hands))
        }
        stored = _zarr(apart, folder, told, hands) if apart else {}
        with _file(folder / _FILE) as path:
            _FILES[to.kind](found | stored, path, told, hands, stored)


def write_parts(parts: Iterable[bytes], to: Target, *, mark: str) -> None:
    """Write a file part by part to a target, as `write` does."""
    with (
        writing_to(to.place),
        _whole(to, mark) as folder,
        _file(folder / _FILE) as path,
        path.open("wb") as file,
    ):
        file.writelines(parts)


def table(arrays: Mapping[str, Labelled], hands: Hands | None = None) -> Iterator[str]:
    """Lines of the first array as a table: labels along its rows, its columns, then other arrays with a value for each.

    Tabs are between them. Rows without labels are numbered from 0, but not those of a column of text: readers of lists
    would take numbers for names.
    """
    name, each = next(iter(arrays.items()))
    if each.data.ndim not in (1, 2):
        raise BadInputError(f"{name} has {each.data.ndim} dimensions, a table two. Name another, or save as .npz.")
    along = {key: values for key, (dims, values, _) in each.coordinates().items() if dims == (key,)}
    rows, *others = each.dims
    listed = each.data.ndim == 1 and each.data.dtype.kind in "OTU"
    labels = {} if listed and rows not in along else {rows: along.get(rows, range(each.data.shape[0]))}
    labels |= {key: values for key, (dims, values, _) in each.coordinates().items() if dims == (rows,)}
    columns = [name]
    for dim in others:
        numbered = [f"{dim}{i + 1}" for i in range(each.data.shape[1])]
        columns = list(map(str, along.get(dim, numbered)))
    beside = {key: np.asarray(other.data) for key, other in arrays.items() if key != name and other.dims == (rows,)}
    yield "\t".join((*labels, *columns, *beside))
    data, hands = _pieces(da.asarray(each.data)), hands or Hands()
    hands.count(0, of=data.numblocks[0])
    start = 0
    for length in data.chunks[0]:
        block = np.asarray(data[start : start + length]).reshape(length, len(columns))
        for i, row in enumerate(block.tolist(), start):
            before, after = ([str(values[i]) for values in given.values()] for given in (labels, beside))
            yield "\t".join((*before, *map(str, row), *after))
        hands.count()
        start += length


def unfinished(place: Place, mark: str) -> Place:
    """The folder in which what becomes `place` is written first, beside it."""
    return place.beside(f".{place.name}.{mark}.part")


def remove(place: Place) -> None:
    """Remove a file, or a folder with all that is in it; nothing where nothing is."""
    path = Path(place.path)
    if place.is_url:
        fs, root = place.storage()
        with contextlib.suppress(OSError):
            fs.rm(root, recursive=True)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _whole(to: Target, mark: str, begun: Place | None = None) -> Iterator[Place]:
    """A folder beside the target to write in; at the end of the block it, or the file in it, becomes the target.

    What is there already stays until then. Behind a URL a store can't be renamed: one that is replaced has to go before
    the other is copied, which stays in its folder where that fails.
    """
    folder, gone = unfinished(to.place, mark), False
    if begun is not None:
        # What another process took meanwhile is that one's.
        with contextlib.suppress(FileNotFoundError):
            _move(begun, folder)
    if not folder.is_url:
        _make_own(Path(folder.path))
    try:
        yield folder
        there = what_is_at(to.place)
        if there is not None and not to.replace:
            raise ConflictError(f"{to} came to be there meanwhile, and was left as it is. Save under another name.")
        before = to.place.beside(f".{to.place.name}.{mark}.old")
        if there == "folder" and to.place.is_url:
            remove(to.place)
            gone = True
        elif there == "folder":
            _move(to.place, before)
        try:
            with writing_to(to.place):
                _move(folder if to.kind == "zarr" else folder / _FILE, to.place)
        except FailedError as err:
            if gone:
                raise FailedError(f"{err} What was there is gone, and the new arrays lie whole in {folder}.") from err
            raise
        gone = False
        if not to.place.is_url:
            remove(before)
    finally:
        if not gone:
            remove(folder)


def _make_own(folder: Path) -> None:
    """Make the folder of what is unfinished. Raises OSError where another user has taken its name."""
    try:
        folder.mkdir()
    except FileExistsError as err:
        if not is_own(Place(str(folder))):
            raise OSError(errno.EEXIST, f"another user has taken the name {folder.name}", str(folder)) from err


def is_own(place: Place) -> bool:
    """Return whether the folder at a place is this user's, and no link; of what is behind a URL nothing is known."""
    if place.is_url:
        return True
    about = Path(place.path).lstat()
    return stat.S_ISDIR(about.st_mode) and private.is_own(about, place.path)


def try_out(to: Target) -> None:
    """Write a byte beside a target behind a URL, and remove it: whether its server takes it, no question tells.

    Raises
    ------
    FailedError
        There is no such bucket, or nobody lets us write there.
    """
    if to.place.is_url:
        trial = unfinished(to.place, f"trial-{uuid.uuid4().hex}")
        with writing_to(to.place):
            fs, root = trial.storage()
            fs.pipe_file(root, b"\n")
            fs.rm(root)


def _move(place: Place, to: Place) -> None:
    """Have what is at a place be at another one beside it."""
    if not place.is_url:
        Path(place.path).replace(to.path)
        return
    fs, root = place.storage()
    there = to.storage()[1]
    if not fs.async_impl:
        fs.mv(root, there, recursive=True)
        return
    # A bucket has no folders that could be renamed. What makes it a store comes last: before that nobody reads it.
    marks = {f"{root}/{mark}" for mark in MARKS}
    found = set(fs.find(root))
    fs.pipe_file(f"{there}/{COPYING}", b"")
    try:
        for paths in (list(found - marks), list(found & marks)):
            fs.copy(paths, [there + path.removeprefix(root) for path in paths])
    except BaseException:
        remove(to)
        raise
    fs.rm([f"{there}/{COPYING}", root], recursive=True)


@contextlib.contextmanager
def _file(place: Place) -> Iterator[Path]:
    """A path to write a file to: in the folder of what is unfinished, or here, and it is sent to a URL when whole."""
    if not place.is_url:
        yield Path(place.path)
        return
    with tempfile.TemporaryDirectory(prefix="workbench-save-") as folder:
        yield Path(folder, place.name)
        fs, root = place.storage()
        fs.makedirs(root.rpartition("/")[0], exist_ok=True)
        fs.put_file(f"{folder}/{place.name}", root)


def variables(arrays: Mapping[str, Labelled]) -> tuple[dict[str, Labelled], tuple[str, ...]]:
    """Arrays and their coordinates by name, and the names of those coordinates that no dimension is called."""
    found = {name: _variable(each.data, each.dims, each.attrs) for name, each in arrays.items()}
    aside = []
    for each in arrays.values():
        for name, (dims, values, told) in each.coordinates().items():
            coordinate = _variable(values if isinstance(values, da.Array) else np.asarray(values), dims, told)
            if name in found and not equal(found[name].data, coordinate.data):
                raise BadInputError(f"The answer has two different arrays called {name!r}. Give them different names.")
            found.setdefault(name, coordinate)
            if dims != (name,) and name not in aside:
                aside.append(name)
    return found, tuple(aside)


def _check_holds(to: Target, arrays: Mapping[str, Labelled], found: Mapping[str, Labelled]) -> None:
    """Raise BadInputError where a file of this kind doesn't hold such arrays."""
    if to.kind == "npy" and len(arrays) != 1:
        raise BadInputError(
            f"{to} would hold one array, and there are {len(arrays)}: {', '.join(arrays)}. Name one of them, or give a "
            "name that ends with .npz, .nc or .zarr."
        )
    strange = next((name for name, each in found.items() if each.data.dtype.kind == "c"), None)
    if to.kind == "nc" and strange is not None:
        raise BadInputError(f"{strange} holds complex numbers, for which NetCDF has no type. Save it as .zarr or .npz.")


def with_lengths(data: Any) -> Any:
    """`data`, whose shape is known: of what was selected by a condition it is not before it is computed."""
    return data.compute_chunk_sizes() if math.isnan(math.prod(data.shape)) else data


def _variable(data: Any, dims: tuple[str, ...], attrs: Mapping[str, Any]) -> Labelled:
    if isinstance(data, da.Array):
        data = with_lengths(data.to_backend("numpy"))
    else:
        # CuPy's arrays come to the host only where they are asked to.
        data = np.asarray(data.get() if hasattr(data, "__cuda_array_interface__") else data)
    if data.dtype.kind in "Mm":
        return _counted(data, dims, attrs)
    if data.dtype.kind == "U" or (data.dtype.kind == "O" and all(isinstance(each, str) for each in data.ravel())):
        data = data.astype(_TEXT)
    if data.dtype.kind not in "biufcT":
        raise BadInputError(
            f"Arrays of {data.dtype} can't be saved: numbers, text, dates and durations can. Make one of these of it."
        )
    return Labelled(data, tuple(dims), attrs=attrs)


def _counted(data: Any, dims: tuple[str, ...], attrs: Mapping[str, Any]) -> Labelled:
    """Dates and durations as whole numbers with a unit, by the conventions for climate and forecast data."""
    is_date = data.dtype.kind == "M"
    kind = "datetime64" if is_date else "timedelta64"
    unit = "s" if (data == data.astype(f"{kind}[s]")).all() else "ns"
    # xarray tells durations from numbers of seconds by the type.
    more = {"units": _EPOCH[unit], "calendar": "proleptic_gregorian"} if is_date else {"units": _SPAN[unit]}
    more |= {} if is_date else {"dtype": f"timedelta64[{unit}]"}
    return Labelled(data.astype(f"{kind}[{unit}]").astype("int64"), tuple(dims), attrs={**attrs, **more})


def regions(x: da.Array) -> Iterator[tuple[tuple[slice, ...], da.Array]]:
    """Each block of an array, and where it belongs."""
    places, indices = da.core.slices_from_chunks(x.chunks), np.ndindex(*x.numblocks)
    # Dask takes no block of an array without dimensions.
    return ((place, x.blocks[index] if index else x) for place, index in zip(places, indices, strict=True))


def dates(data: Any, attrs: Mapping[str, Any]) -> Any:
    """Undo `_counted`; other data come back as they are."""
    if data.dtype != "int64":
        return data
    if str(attrs.get("dtype")).startswith("timedelta64"):
        return data.astype(attrs["dtype"])
    unit = next((unit for unit, sentence in _EPOCH.items() if sentence == attrs.get("units")), None)
    return data.astype(f"datetime64[{unit}]") if unit else data


def _plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes without secrets, as text and numbers, which all formats hold: the rest as JSON."""
    plain = (str, int, float)
    return {
        name: value if isinstance(value, plain) and not isinstance(value, bool) else json.dumps(value)
        for name, value in redacted(attrs).items()
        if value is not None
    }


# --- Zarr -------------------------------------------------------------------------------------------------------------


def _zarr(found: Mapping[str, Labelled], place: Place, attrs: Mapping[str, Any], hands: Hands) -> dict[str, Labelled]:
    """Write a store; the same variables, to be read from there."""
    import zarr

    group = zarr.open_group(place.path, mode="a", use_consolidated=False, **place.zarr_options)
    group.attrs.put(dict(attrs))
    # Of a store that another process began.
    for name in set(group) - found.keys():
        del group[name]
    sources, targets = [], []
    for name, each in found.items():
        data = _regular(each.data) if each.is_lazy else each.data
        blocks = tuple(max(1, lengths[0]) for lengths in data.chunks) if each.is_lazy else "auto"
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
        if not each.is_lazy:
            target[...] = data
        elif data.size:
            sources.append(data)
            targets.append(target)
    if sources:
        hands.store(sources, targets, place.path)
    if not place.is_url:
        remove_halves(Path(place.path))
    with warnings.catch_warnings():
        # Who reads with xarray is warned without it, who writes with zarr is warned with it.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)
    # Numbers in blocks, and text in memory.
    there = {name: from_store(group[name]) if _has_zone(group[name]) else group[name][...] for name in found}
    return {name: replace(each, data=there[name]) for name, each in found.items()}


def _has_zone(array: Any) -> bool:
    """Whether its numbers lie in a zone of a file: how long text is shows when it is there."""
    return bool(array.ndim and array.size and array.dtype.kind in "biufc")


def _scattered(x: da.Array, hands: Hands) -> bool:
    """Whether blocks of `x` would be written to a file in tiny runs, or into pages that another machine writes to."""
    if all(n == 1 for n in x.numblocks[1:]):
        return False  # of whole rows, which lie in one piece
    run = x.dtype.itemsize
    for block, length in zip(reversed(x.chunksize), reversed(x.shape), strict=True):
        run *= block
        if block < length:
            break
    return run < _PAGE or not hands.on_one_machine


def _regular(x: da.Array) -> da.Array:
    """`x` in blocks of one size but for the last of each dimension, none of them too large to be compressed."""
    even = all(len(set(lengths[:-1])) <= 1 and lengths[-1] <= lengths[0] for lengths in x.chunks)
    if even and math.prod(x.chunksize) * x.dtype.itemsize <= _LARGEST_BLOCK:
        return x
    return x.rechunk(da.core.normalize_chunks("auto", x.shape, dtype=x.dtype))


# --- Files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Zone:
    """Where the numbers of an array lie in a file, row after row."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, place: tuple[slice, ...]) -> Any:
        return np.array(np.memmap(self.path, self.dtype, "r", self.offset, self.shape)[place])

    def __setitem__(self, place: tuple[slice, ...], block: Any) -> None:
        # Not by mapping the file: a disk that is full would end the process, or on a network's not even be told.
        block = np.ascontiguousarray(block, self.dtype)
        strides = [math.prod(self.shape[axis + 1 :]) * self.dtype.itemsize for axis in range(block.ndim)]
        # Of this axis and those after it, a block's numbers are next to each other in the file.
        whole = max((axis for axis, n in enumerate(self.shape) if block.shape[axis] != n), default=0)
        offsets = np.array(self.offset + place[whole].start * strides[whole])
        for each, stride in zip(place[:whole], strides, strict=False):
            offsets = np.add.outer(offsets, np.arange(each.start, each.stop) * stride)
        file = os.open(self.path, os.O_WRONLY)
        try:
            for run, offset in zip(block.reshape(offsets.size, -1), offsets.flat, strict=True):
                left = run.view("u1").data
                while left:
                    left = left[os.pwrite(file, left, offset + run.nbytes - len(left)) :]
        finally:
            os.close(file)

    def bytes(self) -> Iterator[bytes]:
        """All of them, a slab at a time."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for start in range(self.offset, self.end, _SLAB):
                yield file.read(min(_SLAB, self.end - start))


def _fill(
    zones: Mapping[str, _Zone],
    found: Mapping[str, Labelled],
    path: Path,
    size: int,
    hands: Hands,
    stored: Collection[str],
) -> None:
    """Have blocks written where they belong in a file of so many bytes; what is around them is left as it is.

    This process writes what is `stored` beside it: whether that is where a worker is, nobody knows.
    """
    begun = path.exists()
    with path.open("r+b" if begun else "w+b") as file:
        file.truncate(size)
    _check_room(path, size - 512 * path.stat().st_blocks)
    for by, is_stored in (hands, False), (Hands(), True):
        names = [name for name in zones if (name in stored) == is_stored]
        sources, targets = [found[name].data for name in names], [zones[name] for name in names]
        for i, (x, zone) in enumerate(zip(sources, targets, strict=True)):
            if not by.on_one_machine or _scattered(x, by):
                sources[i] = _ranges(x, zone)
                targets[i] = replace(zone, shape=sources[i].shape)
        if names:
            by.store(sources, [_Begun(zone) if begun else zone for zone in targets], str(path.parent))
        if by is not hands:
            hands.kept += by.kept


def _check_room(path: Path, size: int) -> None:
    """Raise OSError where a disk hasn't so many bytes: better now than after hours."""
    if shutil.disk_usage(path.parent).free < size:
        raise OSError(errno.ENOSPC, f"{formats.size(size)} are needed, and {os.strerror(errno.ENOSPC)}", str(path))


def _ranges(x: da.Array, zone: _Zone) -> da.Array:
    """The numbers of `x` as they lie in a file, in ranges that begin at its pages."""
    x = _pieces(x).astype(zone.dtype)
    blocks, lengths = np.ndindex(*x.numblocks), tuple(map(math.prod, itertools.product(*x.chunks)))
    name = f"flat-{uuid.uuid4().hex}"
    tasks = {(name, i): (np.ravel, (x.name, *block)) for i, block in enumerate(blocks)}
    flat = da.Array(HighLevelGraph.from_collections(name, tasks, [x]), name, (lengths,), zone.dtype)
    step = _SLAB // zone.dtype.itemsize
    first = -zone.offset % _SLAB // zone.dtype.itemsize
    edges = [0, *range(first or step, flat.size, step), flat.size]
    return flat.rechunk((tuple(np.diff(edges).tolist()),), method="tasks")


def _npy(
    found: Mapping[str, Labelled], path: Path, attrs: Mapping[str, Any], hands: Hands, stored: Collection[str]
) -> None:
    name, each = next(iter(found.items()))
    if not each.is_lazy:
        with path.open("wb") as file:
            np.save(file, _fixed(each.data), allow_pickle=False)
        return
    head = _head(each.data)
    zone = _Zone(path, len(head), each.data.shape, each.data.dtype)
    _fill({name: zone}, found, path, zone.end, hands, stored)
    with path.open("r+b") as file:
        file.write(head)


def _npz(
    found: Mapping[str, Labelled], path: Path, attrs: Mapping[str, Any], hands: Hands, stored: Collection[str]
) -> None:
    parts, zones, at = {}, {}, 0
    for name, each in found.items():
        data = each.data if each.is_lazy else np.asarray(_fixed(dates(each.data, each.attrs)), order="C")
        at += _ZIP_HEAD + len(f"{name}.npy".encode())
        head = _head(data, at)
        at += len(head)
        if each.is_lazy:
            zones[name] = _Zone(path, at, data.shape, data.dtype)
        parts[name] = head, data
        at += data.nbytes
    _fill(zones, found, path, at, hands, stored)
    # The sums that a zip file has for what it holds come of the whole, so it is read once more.
    with _Around(path, zones.values()) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, (head, data) in parts.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(head)
                plain = data.view("i8") if data.dtype.kind in "Mm" else data
                for piece in zones[name].bytes() if name in zones else [plain.data]:
                    member.write(piece)


class _Around(io.FileIO):
    """A file of which zones are passed over, not written again."""

    def __init__(self, path: Path, zones: Iterable[_Zone]) -> None:
        super().__init__(path, "r+")
        self._zones = [(zone.offset, zone.end) for zone in zones]

    def write(self, data: Any, /) -> int:
        at, size = self.tell(), memoryview(data).nbytes
        if any(start <= at and at + size <= end for start, end in self._zones):
            self.seek(size, os.SEEK_CUR)
            return size
        return super().write(data)


def _head(data: Any, at: int = 0) -> bytes:
    """What a .npy file has before its numbers; where others are before it, so long that these begin at a page."""
    file = io.BytesIO()
    head = {"descr": np.lib.format.dtype_to_descr(data.dtype), "fortran_order": False, "shape": data.shape}
    np.lib.format.write_array_header_1_0(file, head)
    usual = file.getvalue()
    text = usual[10:-1] + b" " * (-(at + len(usual)) % _PAGE if at else 0) + b"\n"
    return usual[:8] + len(text).to_bytes(2, "little") + text


def _fixed(data: Any) -> Any:
    """Text in a fixed width, which NumPy's files hold without running anything."""
    return np.array(data.tolist(), dtype="U") if data.dtype.kind == "T" else data


def _pieces(x: da.Array) -> da.Array:
    """`x` in blocks, each of which lies in a file in one piece: of whole rows, or of a part of one that is long."""
    chunks, inner = {}, x.dtype.itemsize
    for axis in reversed(range(x.ndim)):
        chunks[axis] = max(1, min(x.shape[axis], _SLAB // inner))
        inner *= max(1, x.shape[axis])
    return x.rechunk(chunks)


def _nc(
    found: Mapping[str, Labelled], path: Path, attrs: Mapping[str, Any], hands: Hands, stored: Collection[str]
) -> None:
    import h5netcdf
    import h5py

    # HDF5 that meets a full disk may take its process down.
    with tempfile.TemporaryFile(dir=path.parent) as probe:
        probe.write(bytes(2**20 + sum(each.data.nbytes for each in found.values() if not each.is_lazy)))
    frame = path.with_name(f"{path.name}-frame")
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    at_pages = {} if hands.on_one_machine else {"alignment_threshold": 1, "alignment_interval": _PAGE}
    with _room_for_hdf5(), h5netcdf.File(frame, "w", **at_pages) as file:
        for each in found.values():
            for dim, length in zip(each.dims, each.data.shape, strict=True):
                if dim not in file.dimensions:
                    file.dimensions[dim] = length
        for name, each in found.items():
            dtype = h5py.string_dtype() if each.data.dtype.kind == "T" else _of_netcdf(each.data.dtype)
            variable = file.create_variable(name, each.dims, dtype, **({"dcpl": early} if each.is_lazy else {}))
            variable.attrs.update(_plain_attrs(each.attrs))
            if not each.is_lazy:
                variable[...] = each.data.astype(object if each.data.dtype.kind == "T" else dtype)
        file.attrs.update(attrs)
    with h5py.File(frame) as file:
        zones = {
            name: _Zone(path, file[name].id.get_offset(), each.data.shape, file[name].dtype)
            for name, each in found.items()
            if each.is_lazy
        }
    size = frame.stat().st_size
    _fill(zones, found, path, size, hands, stored)
    # Where the numbers are to be, the frame has none, nor room on the disk.
    with frame.open("rb") as source, path.open("r+b") as to:
        for zone in sorted(zones.values(), key=lambda zone: zone.offset):
            to.write(source.read(zone.offset - source.tell()))
            source.seek(zone.end)
            to.seek(zone.end)
        to.write(source.read())
    frame.unlink()


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


_FILES = {"npz": _npz, "npy": _npy, "nc": _nc}
