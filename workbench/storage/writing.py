"""Write arrays with named dimensions as Zarr, .npz, .npy or NetCDF: completely or not at all.

Workers write Zarr into a hidden folder next to the target. For a file, this process then streams the arrays from there
into it. Moving the store, or the file, to the target is the last step.

A path may mean another folder on each worker, in a container above all, and a worker may join at any time. So each task
checks that the store that this process made is there, and writes nothing where it isn't: Zarr would make the folder.
"""

from __future__ import annotations

import contextlib
import errno
import math
import shutil
import stat
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from dask.callbacks import Callback
from dask.system import CPU_COUNT

from workbench import private, remote
from workbench.errors import BadInputError, ConflictError, FailedError
from workbench.storage import exports
from workbench.storage.places import Place, writing_to
from workbench.storage.targets import COPYING, Target, what_is_at
from workbench.storage.variables import encoded, is_lazy, plain_attrs
from workbench.storage.zarrs import MARKS, from_store

PART, OLD = "part", "old"
"""Endings of hidden folders: one for the new data, one for the old data that they replace."""
_FILE = "__file"
"""File in a hidden folder, next to the arrays of a store, none of which has such a name."""
_LARGEST_BLOCK = 2**30  # bytes; compressors take less than 2 GiB


class Writer:
    """Writer of blocks, in threads of this process.

    `report` is called with the number of blocks that are written, and their total.
    """

    is_local = True
    """True if this process computes the blocks."""
    notes: tuple[str, ...] = ()
    """Messages about blocks that were written in an unusual way."""

    def __init__(self, report: Callable[[int, int], None] | None = None) -> None:
        self._report, self._done, self._total = report, 0, 0

    def count(self, done: int = 1, *, of: int = 0) -> None:
        """Count blocks that are written, and others that are to be written."""
        self._done += done
        self._total += of
        if self._report is not None:
            self._report(self._done, self._total)

    def store(self, sources: list[da.Array], targets: list[Any], path: str) -> None:
        """Write each block of the sources to its place in the targets, which are Zarr arrays below `path`."""
        tasks = self._tasks(sources, targets)
        names = {each.name for each in tasks}

        def posttask(key: Any, *_: Any) -> None:
            if key[0] in names:
                self.count()

        # If a block fails, wait for the other threads: they would create files of a removed store again.
        with ThreadPoolExecutor(CPU_COUNT) as pool, Callback(posttask=posttask):
            da.compute(*tasks, scheduler="threads", pool=pool)

    def _tasks(self, sources: list[da.Array], targets: list[Any], path: str | None = None) -> list[da.Array]:
        """Return arrays with True for each written block of the sources: False if `path` isn't there."""
        self.count(0, of=sum(source.npartitions for source in sources))
        return [
            source.map_blocks(
                _WriteBlock(to, path),
                # A unique name: two calls that write the same must both write.
                name=f"save-{uuid.uuid4().hex}",
                chunks=tuple((1,) * n for n in source.numblocks),
                meta=np.empty((0,) * source.ndim, bool),
            )
            for source, to in zip(sources, targets, strict=True)
        ]


@dataclass(frozen=True)
class _WriteBlock:
    """Task that writes a block to its place and returns True, or False if the folder is unreachable."""

    to: Any
    path: str | None = None

    def __call__(self, block: Any, block_info: Any = None) -> np.ndarray[Any, Any]:
        can_write = self.path is None or remote.unwritable(self.path) is None
        if can_write:
            self.to[tuple(slice(*each) for each in block_info[0]["array-location"])] = block
        return np.full((1,) * block.ndim, can_write)


def write(answer: xr.Dataset, to: Target, *, mark: str, writer: Writer | None = None) -> None:
    """Write a dataset to a target; if that fails, nothing is there, or what was there before.

    Parameters
    ----------
    mark
        Unique part of the name of the hidden folder.

    Raises
    ------
    BadInputError
        The target holds no such arrays.
    ConflictError
        Something was created there meanwhile.
    FailedError
        The disk is full or read-only.
    """
    writer = writer or Writer()
    with writing_to(to.place), _whole(to, mark) as folder:
        variables = {str(name): encoded(answer.variables[name]) for name in (*answer.data_vars, *answer.coords)}
        # By CF's conventions this attribute names the coordinates that aren't those of a dimension.
        others = " ".join(str(name) for name in answer.coords if name not in answer.dims)
        attrs = plain_attrs(answer.attrs) | ({"coordinates": others} if others else {})
        if to.kind == "zarr":
            _write_zarr(variables, folder, attrs, writer)
            return
        _check_holds(to, answer, variables)
        with _file(folder / _FILE) as path:
            exports.check_room(path.parent, variables, copies=1 if writer.is_local or folder.is_url else 2)
            if not writer.is_local:
                lazy = {name: each for name, each in variables.items() if is_lazy(each)}
                # Compressing takes longer than writing, and this store is read once.
                store = _write_zarr(lazy, folder, {}, writer, compressors=None)
                variables |= {name: each.copy(data=_stored(store[name])) for name, each in lazy.items()}
            exports.write(to.kind, variables, path, attrs, writer.count)


def write_parts(parts: Iterable[bytes], to: Target, *, mark: str) -> None:
    """Write a file part by part to a target, as `write` does."""
    with (
        writing_to(to.place),
        _whole(to, mark) as folder,
        _file(folder / _FILE) as path,
        path.open("wb") as file,
    ):
        file.writelines(parts)


def unfinished(place: Place, mark: str) -> Place:
    """Return the hidden folder next to `place` for the new data."""
    return place.sibling(f".{place.name}.{mark}.{PART}")


def set_aside(place: Place, mark: str) -> Place:
    """Return the hidden folder to which a store at `place` is moved before another takes its place."""
    return place.sibling(f".{place.name}.{mark}.{OLD}")


def remove(place: Place) -> None:
    """Remove a file, or a folder with all its contents; ignore a missing one."""
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
def _whole(to: Target, mark: str) -> Iterator[Place]:
    """Make a hidden folder next to the target to write in; at the end it, or the file in it, becomes the target.

    An existing target stays until then. Behind a URL a store can't be renamed: the old one is removed
    before the new one is copied, which stays in its folder if that fails.
    """
    folder, is_removed = unfinished(to.place, mark), False
    if folder.is_url:
        remove(folder)
    else:
        _make_own(Path(folder.path))
    try:
        yield folder
        existing = what_is_at(to.place)
        if existing is not None and not to.replace:
            raise ConflictError(f"{to} was created meanwhile, and is unchanged. Save under another name.")
        before = set_aside(to.place, mark)
        if existing == "folder" and to.place.is_url:
            remove(to.place)
            is_removed = True
        elif existing == "folder":
            _move(to.place, before)
        try:
            with writing_to(to.place):
                _move(folder if to.kind == "zarr" else folder / _FILE, to.place)
        except FailedError as err:
            if is_removed:
                raise FailedError(
                    f"{err} The old target was removed; the new arrays are complete in {folder}."
                ) from err
            raise
        is_removed = False
        if not to.place.is_url:
            remove(before)
    finally:
        if not is_removed:
            remove(folder)


def _make_own(folder: Path) -> None:
    """Make an empty folder, in place of this user's own. Raises OSError if another user has taken its name."""
    try:
        folder.mkdir()
    except FileExistsError as err:
        if not is_own(Place(str(folder))):
            raise OSError(errno.EEXIST, f"another user has taken the name {folder.name}", str(folder)) from err
        shutil.rmtree(folder)
        folder.mkdir()


def is_own(place: Place) -> bool:
    """Return whether the folder at a place is this user's, and no link; True behind a URL, whose owner is unknown."""
    if place.is_url:
        return True
    about = Path(place.path).lstat()
    return stat.S_ISDIR(about.st_mode) and private.is_own(about, place.path)


def try_out(to: Target) -> None:
    """Write a byte next to a target behind a URL, and remove it: only writing shows if the server accepts it.

    Raises
    ------
    FailedError
        There is no such bucket, or writing there isn't allowed.
    """
    if to.place.is_url:
        trial = unfinished(to.place, f"trial-{uuid.uuid4().hex}")
        with writing_to(to.place):
            fs, root = trial.storage()
            fs.pipe_file(root, b"\n")
            fs.rm(root)


def _move(place: Place, to: Place) -> None:
    """Move a file or folder to another place next to it."""
    if not place.is_url:
        Path(place.path).replace(to.path)
        return
    fs, root = place.storage()
    destination = to.storage()[1]
    if not fs.async_impl:
        fs.mv(root, destination, recursive=True)
        return
    # A bucket has no folders that could be renamed. The metadata is written last: without it, readers see no store.
    marks = {f"{root}/{mark}" for mark in MARKS}
    paths_found = set(fs.find(root))
    fs.pipe_file(f"{destination}/{COPYING}", b"")
    try:
        for paths in (list(paths_found - marks), list(paths_found & marks)):
            fs.copy(paths, [destination + path.removeprefix(root) for path in paths])
    except BaseException:
        remove(to)
        raise
    fs.rm([f"{destination}/{COPYING}", root], recursive=True)


@contextlib.contextmanager
def _file(place: Place) -> Iterator[Path]:
    """Yield a path to write a file to; for a URL it is on this disk until the file is complete."""
    if not place.is_url:
        yield Path(place.path)
        return
    with tempfile.TemporaryDirectory(prefix="workbench-save-") as folder:
        yield Path(folder, place.name)
        fs, root = place.storage()
        fs.makedirs(root.rpartition("/")[0], exist_ok=True)
        fs.put_file(f"{folder}/{place.name}", root)


def _check_holds(to: Target, answer: xr.Dataset, variables: Mapping[str, xr.Variable]) -> None:
    """Raise BadInputError if a file of this kind doesn't hold such arrays."""
    if to.kind == "npy" and len(answer) != 1:
        names = ", ".join(map(str, answer))
        raise BadInputError(
            f"{to} would hold one array, and there are {len(answer)}: {names}. Name one of them, or give a name that "
            "ends with .npz, .nc or .zarr."
        )
    strange = next((name for name, each in variables.items() if each.data.dtype.kind == "c"), None)
    if to.kind == "nc" and strange is not None:
        raise BadInputError(f"{strange} holds complex numbers, for which NetCDF has no type. Save it as .zarr or .npz.")


def _write_zarr(
    variables: Mapping[str, xr.Variable], place: Place, attrs: Mapping[str, Any], writer: Writer, **options: Any
) -> Any:
    """Write a store and return its group."""
    import zarr

    group = zarr.open_group(place.path, mode="a", use_consolidated=False, **place.zarr_options)
    group.attrs.put(dict(attrs))
    sources, targets = [], []
    for name, each in variables.items():
        data = _regular(each.data) if is_lazy(each) else each.data
        target = group.create_array(
            name,
            shape=data.shape,
            dtype=str if data.dtype.kind == "T" else data.dtype.newbyteorder("="),
            chunks=tuple(max(1, lengths[0]) for lengths in data.chunks) if is_lazy(each) else "auto",
            dimension_names=each.dims,
            attributes=each.attrs,
            **options,
        )
        if not is_lazy(each):
            target[...] = data
        elif data.size:
            sources.append(data)
            targets.append(target)
    if sources:
        writer.store(sources, targets, place.path)
    with warnings.catch_warnings():
        # xarray warns when it reads a store without it; Zarr warns when it is written.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)
    return group


def _stored(array: Any) -> Any:
    """Return an array of a store: Dask's if a file is written from it block by block, else NumPy's."""
    return from_store(array) if exports.is_streamed(array) else array[...]


def _regular(x: da.Array) -> da.Array:
    """Return `x` in blocks of one size except the last of each dimension, small enough to be compressed."""
    even = all(len(set(lengths[:-1])) <= 1 and lengths[-1] <= lengths[0] for lengths in x.chunks)
    if even and math.prod(x.chunksize) * x.dtype.itemsize <= _LARGEST_BLOCK:
        return x
    return x.rechunk(da.core.normalize_chunks("auto", x.shape, dtype=x.dtype))
