"""Writing of packed genotypes to a Zarr store, block by block, which resumes after an interruption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import dask
import numpy as np

from workbench import remote
from workbench.errors import ConflictError, FailedError
from workbench.genotypes.layout import (
    PACKED,
    SAMPLE_NAMES,
    Description,
    description,
    finished,
    is_store,
    read_store,
)
from workbench.genotypes.packing import block_rows, packed_width
from workbench.genotypes.plink import is_plink, three_files
from workbench.genotypes.reading import open_genotypes
from workbench.genotypes.values import Genotypes
from workbench.labels import as_text
from workbench.linalg.gpu import host
from workbench.linalg.keys import fresh
from workbench.sent_code import cluster_client, reach_cluster, refuse_unwritable, unable
from workbench.storage import places
from workbench.storage.places import Place
from workbench.storage.zarrs import HALF, remove_halves

Progress = Callable[[int, int], None]


def pack_to_zarr(
    source: Any,
    path: str | Path,
    *,
    rows: int | Literal["auto"] = "auto",
    progress: Progress | None = None,
    overwrite: bool = False,
    to_storage_options: places.Options | None = None,
    **opening: Any,
) -> Genotypes:
    """Write genotypes as a Zarr store, four samples in a byte, and return them as read from there.

    Each block is read, packed and written by one Dask task: on the cluster of the current client, or in this process.
    A block's file appears whole or not at all, so a call with the same source resumes one that was killed. Labels
    that are new are added to an existing store.

    A source is the same if its labels are and, for files read here, their names, sizes and modification times.
    Genotypes given as an array or as `Genotypes` are all read once for this check.

    Parameters
    ----------
    source
        Genotypes, or a source for `open_genotypes`; `opening` are its other parameters.
    path
        Folder or URL of the store.
    rows
        Variants in a block, each block one file; "auto" takes those of the source.
    progress
        Called with the number of variants written, and their total.
    overwrite
        Replace an existing store.
    to_storage_options
        Options for fsspec about the server of a `path` that is a URL; `storage_options` are for the source.

    Raises
    ------
    ConflictError
        Something else is at the path, or a store packed from files that have changed since.
    FailedError
        A worker doesn't have that folder, or may not write there.
    """
    reach_cluster()
    genotypes = open_genotypes(source, **opening)
    place = places.full(path, to_storage_options)
    if overwrite and genotypes.source and places.overlap(genotypes.source, place.path):
        raise ConflictError(f"{place} is what is read from ({genotypes.source}). Choose another path.")
    stamp = [] if isinstance(source, Genotypes) else _stamp(genotypes.source, opening.get("storage_options"))
    description = _described(genotypes, rows, stamp)
    with places.writing_to(place):
        group, complete = _open_or_create(place, description, overwrite=overwrite)
        if not complete:
            _check_workers(place)
            _write_blocks(genotypes, place, description, progress)
        _write_labels(group, genotypes)
        if not complete:
            if not place.is_url:
                remove_halves(Path(place.path))
            group.update_attributes(description.attributes(complete=True))
        elif progress is not None:
            progress(description.n_variants, description.n_variants)
        return read_store(group, place)


def _described(genotypes: Genotypes, rows: int | Literal["auto"], stamp: Sequence[str]) -> Description:
    heights = genotypes.packed.chunks[0]
    if rows == "auto" and len(set(heights[:-1])) <= 1 and heights and heights[-1] <= heights[0]:
        rows = max(1, heights[0])
    height = block_rows(genotypes.n_variants, genotypes.n_samples, rows)
    return Description(
        n_variants=genotypes.n_variants,
        n_samples=genotypes.n_samples,
        rows=height,
        source=genotypes.source,
        content=_content(genotypes, stamp),
    )


def _stamp(source: str | None, options: places.Options | None) -> list[str]:
    if source is None:
        return []
    names = three_files(source) if is_plink(source) else [source]
    return [each for name in names for each in Place(name, options or {}).stamp()]


def _content(genotypes: Genotypes, stamp: Sequence[str]) -> str:
    """Return a hash of labels and genotypes; the stamp of their files stands for genotypes if there is one."""
    digest = blake2b("\0".join(stamp).encode(), digest_size=16)
    columns = [genotypes.samples, *(getattr(genotypes.variants, field.name) for field in fields(genotypes.variants))]
    for column in columns:
        if column is not None:
            digest.update("\0".join(map(str, column.ravel().tolist())).encode())
        digest.update(b"\1")
    if not stamp:
        digests = genotypes.packed.map_blocks(
            _digest, dtype=object, chunks=((1,) * genotypes.packed.numblocks[0], (1,)), meta=np.empty((0, 0), object)
        )
        digest.update(b"".join(digests.compute().ravel()))
    return digest.hexdigest()


def _digest(block: Any) -> np.ndarray[Any, Any]:
    # The shape is part of the hash, so that blocks of the same bytes in another shape differ.
    content = np.ascontiguousarray(host(block))
    digest = blake2b(str(content.shape).encode() + content.tobytes(), digest_size=16).digest()
    return np.array([[digest]], object)


def _open_or_create(place: Place, expected: Description, *, overwrite: bool) -> tuple[Any, bool]:
    """Return the group at a path, new or started earlier, and whether it is complete."""
    import zarr

    existing = _existing(place)
    if existing is not None and overwrite:
        place.remove(folder=True)
        existing = None
    if existing is None:
        attributes = expected.attributes(complete=False)
        group = zarr.open_group(place.path, mode="a", zarr_format=3, attributes=attributes, **place.zarr_options)
        complete = False
    else:
        group = existing
        stored, complete = description(group, place)
        if stored != expected:
            raise ConflictError(_differing(place, stored, expected))
    if not complete and PACKED not in group:
        _create_array(group, expected)
    return group, complete


def _differing(place: Place, existing: Description, expected: Description) -> str:
    stored, new = (f"{each.shown} in blocks of {each.rows} variants" for each in (existing, expected))
    if stored == new:
        new = "other genotypes of this size, or from files that have changed since,"
    return f"{place} holds {stored}, but {new} are to be written. Choose another path, or overwrite=True."


def _existing(place: Place) -> Any:
    """Return the store at a path, None where there is nothing."""
    import zarr

    kind = place.kind()
    names = place.names() if kind == "folder" else []
    if kind is None or (kind == "folder" and all(HALF in name for name in names)):
        return None
    if "zarr.json" in names:
        opened = zarr.open(place.path, mode="r+", **place.zarr_options)
        if not hasattr(opened, "shape") and is_store(opened):
            return opened
    raise ConflictError(f"{place} is there already, and pack_to_zarr did not write it. Choose another path.")


def _create_array(group: Any, description: Description) -> None:
    width = packed_width(description.n_samples)
    group.create_array(
        PACKED,
        shape=(description.n_variants, width),
        chunks=(description.rows, max(1, width)),
        dtype=np.uint8,
        compressors=None,
        # One file for each block, all in one folder.
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=("variants", "bytes"),
    )


@dataclass(frozen=True)
class _WriteBlock:
    """The task that writes a block to its place and returns its number of variants."""

    place: Place

    def __call__(self, block: Any, block_info: Any = None) -> np.ndarray[Any, Any]:
        import zarr

        (start, stop), _ = block_info[0]["array-location"]
        where = {"path": PACKED, "mode": "r+", "zarr_format": 3}
        refuse_unwritable(remote.unwritable(self.place.path), self.place.path)
        array = zarr.open_array(self.place.path, **where, **self.place.zarr_options)
        # Write a block of zeros, too: an existing file means that its block is done.
        array = array.with_config({"write_empty_chunks": True})
        array[start:stop] = host(block)
        return np.array([[stop - start]])


def _check_workers(place: Place) -> None:
    """Raise FailedError if a worker can't write blocks to the store; remove workers' folders without blocks."""
    client = cluster_client()
    if client is None:
        return
    try:
        refuse_unwritable(unable(client, remote.unwritable, place.path), place.path)
    except FailedError:
        if not finished(place):
            place.remove(folder=True)
        raise


def _write_blocks(genotypes: Genotypes, place: Place, description: Description, progress: Progress | None) -> None:
    packed = genotypes.packed.rechunk({0: description.rows})
    write = _WriteBlock(place)
    ones = ((1,) * packed.numblocks[0], (1,))
    # A unique name: two calls that write the same must both write.
    name = fresh("pack-genotypes")
    counts = packed.map_blocks(write, dtype=np.int64, chunks=ones, meta=np.empty((0, 0), np.int64), name=name)
    present = finished(place)
    done = sum(packed.chunks[0][i] for i in present)
    if progress is not None:
        progress(done, description.n_variants)
    missing = [i for i in range(packed.numblocks[0]) if i not in present]
    tasks = counts.to_delayed().ravel()[missing].tolist()
    for count in _computed(tasks):
        done += count
        if progress is not None:
            progress(done, description.n_variants)


def _computed(tasks: Sequence[Any]) -> Iterator[int]:
    """Yield the variants that each task, or some tasks together, have written, as they finish."""
    client = cluster_client()
    if client is None:
        batch = 2 * (os.cpu_count() or 1)
        for first in range(0, len(tasks), batch):
            yield sum(int(count.sum()) for count in dask.compute(*tasks[first : first + batch]))
        return
    from distributed import as_completed

    for future in as_completed(client.compute(list(tasks))):
        yield int(future.result().sum())
        future.release()


def _write_labels(group: Any, genotypes: Genotypes) -> None:
    variants = {field.name: getattr(genotypes.variants, field.name) for field in fields(genotypes.variants)}
    columns = {f"samples/{name}": column for name, column in genotypes.sample_table.items()}
    columns |= {f"variants/{name}": column for name, column in variants.items() if column is not None}
    columns[SAMPLE_NAMES] = genotypes.samples
    for name, column in columns.items():
        data = column if column.dtype.kind in "biuf" else as_text(column)
        if name not in group or not np.array_equal(group[name][:], data):
            group.create_array(name, data=data, overwrite=True)
