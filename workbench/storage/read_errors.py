"""Errors of readers of blocks, with a message that names the file and the chunk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from workbench.errors import WorkbenchError, whole
from workbench.storage.places import Place, of_server

_MOST = 10_000
"""Chunks that are read one by one to find the one that can't be decoded."""
_SHOWN = 120


class UnreadableError(ValueError):
    """A block of a file can't be decoded; the message is complete."""


@contextmanager
def naming_chunks(explain: Callable[[Exception], str | None]) -> Iterator[None]:
    """Raise UnreadableError with what `explain` says of an error in place of it; other errors pass."""
    try:
        yield
    except Exception as err:
        sentence = None if passes(err) else explain(err)
        if sentence is None:
            raise
        raise UnreadableError(sentence) from err


def passes(error: Exception) -> bool:
    """Return whether an error is clear by itself: a missing file or package, a server, or a complete message."""
    if isinstance(error, (WorkbenchError, UnreadableError, MemoryError, ImportError, ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return True
    return of_server(error) or (isinstance(error, ValueError) and str(error).endswith("."))


def explained(
    error: Exception,
    path: str,
    array: str | None,
    format: str,
    options: Mapping[str, Any],
    where: Sequence[slice],
) -> Exception | None:
    """Return the error to raise for a reader's error in `workbench.storage.formats`; None to raise the original."""
    if passes(error):
        return None
    part: Any = None
    with suppress(Exception):
        if format in ("zarr", "zarr-zip"):
            part = _of_stored_zarr(Place(path, options), array or "", where)
        elif format == "hdf5":
            part = of_hdf5(Place(path, options), array or "", where)
        elif format == "tiff":
            part = _of_tiff(Place(path, options), array, where)
    whose = f"{path} ({array})" if array else path
    return UnreadableError(part or sentence(whose, error, where))


def sentence(whose: object, error: BaseException, where: Sequence[slice] = ()) -> str:
    """Return a message about a block of which no chunk is known."""
    spans = " × ".join(f"{part.start} to {part.stop - 1}" for part in where if part.start is not None)
    block = f", block {spans}," if spans else ""
    return f"{whose}{block} can't be decoded ({_reason(error)}). Copy or write it again."


def of_zarr(
    array: Any, whose: str, where: Sequence[slice], size: Callable[[str], int | None], unit: str = "Chunk"
) -> str | None:
    """Return a message about the first chunk of a Zarr array, in a part of it, that can't be decoded."""
    sides = array.shards or array.chunks
    for at, part in _chunks(array.shape, sides, where):
        try:
            array[part]
        except Exception as err:  # noqa: BLE001  codecs raise what they like
            key = array.metadata.encode_chunk_key(at)
            return _chunk("Shard" if array.shards else unit, key, whose, err, size(key))
    return None


def in_array(array: Any, place: str, *where: slice) -> Callable[[Exception], str]:
    """Return a function for `naming_chunks` that explains an error in reading a part of an open Zarr array."""
    name = array.path.strip("/")
    whose = place if place.endswith(name) else f"{place}/{name}"

    def size(key: str) -> int | None:
        with suppress(OSError, AttributeError):
            return int((array.store.root / array.path / key).stat().st_size)
        return None

    def explain(error: Exception) -> str:
        return of_zarr(array, whose, where, size) or sentence(whose, error, where)

    return explain


def of_hdf5(place: Place, name: str, where: Sequence[slice]) -> str | None:
    """Return a message about the first chunk of an HDF5 dataset, in a part of it, that can't be decoded."""
    import h5py

    from workbench.storage.written_chunks import hdf5_name

    with place.open() as file, h5py.File(file, "r") as opened:
        dataset = opened[hdf5_name(opened, name)]
        if dataset.chunks is None:
            return None
        for at, part in _chunks(dataset.shape, dataset.chunks, where):
            try:
                dataset[part]
            except Exception as err:
                with suppress(Exception):
                    start = tuple(map(int.__mul__, at, dataset.chunks))
                    n_bytes = dataset.id.get_chunk_info_by_coord(start).size
                    return _chunk("Chunk", ".".join(map(str, at)), f"{place} ({name})", err, n_bytes)
                raise
    return None


def size_in(place: Place, name: str = "") -> Callable[[str], int | None]:
    """Return a function that returns the bytes of a chunk's file below an array."""

    def size(key: str) -> int | None:
        from workbench.storage.zarrs import files_at

        with suppress(Exception):
            fs, root = files_at(place)
            return int(fs.info("/".join(filter(None, (root.rstrip("/"), name.strip("/"), key))))["size"])
        return None

    return size


def _of_stored_zarr(place: Place, name: str, where: Sequence[slice]) -> str | None:
    import zarr

    from workbench.storage.zarrs import opened_at

    with opened_at(place) as store:
        array = zarr.open_array(store, path=name, mode="r", **place.zarr_options)
        return of_zarr(array, f"{place}/{name}" if name else place.path, where, size_in(place, name))


def _of_tiff(place: Place, name: str | None, where: Sequence[slice]) -> str | None:
    import zarr
    from tifffile import TiffFile

    with place.open() as file, TiffFile(file) as pages:
        series = pages.series[int(name or 0)]
        array = zarr.open_array(series.aszarr(level=0), mode="r")
        return of_zarr(array, place.path, where, lambda _: None, "Tile")


def _chunks(
    shape: Sequence[int], sides: Sequence[int], where: Sequence[slice]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    parts = [part.indices(length) for part, length in zip(where, shape, strict=False)]
    parts += [(0, length, 1) for length in shape[len(parts) :]]
    ranges = (range(start // side, -(-stop // side)) for (start, stop, _), side in zip(parts, sides, strict=True))
    for at in itertools.islice(itertools.product(*ranges), _MOST):
        yield (
            at,
            tuple(
                slice(i * side, min((i + 1) * side, length)) for i, side, length in zip(at, sides, shape, strict=True)
            ),
        )


def _chunk(unit: str, key: str, whose: str, error: BaseException, size: int | None) -> str:
    length = f"{size} bytes: " if size is not None else ""
    return f"{unit} {key} of {whose} can't be decompressed ({length}{_reason(error)}). Copy or write it again."


def _reason(error: BaseException) -> str:
    return whole(str(error), _SHOWN).rstrip(" .") or type(error).__name__
