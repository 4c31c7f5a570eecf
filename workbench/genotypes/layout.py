"""The store that `pack_to_zarr` writes: a Zarr group, format 3, of genotypes and their labels.

zarr.json          attributes["dask_workbench"]: version, source, and completeness
packed/c.I.0       bytes of four samples as in `Genotypes`, one file for each block of variants
samples/NAME       "name", and the columns of the sample table
variants/NAME      "contig", "position", "id", "alleles", if known
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, cast

import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes.arrays import of_whole_arrays
from workbench.genotypes.packing import packed_array
from workbench.genotypes.values import Genotypes, Variants
from workbench.labels import as_text
from workbench.storage import places
from workbench.storage.places import Place
from workbench.storage.read_errors import in_array, naming_chunks
from workbench.storage.zarrs import OnDisk, safe

PACKED = "packed"
SAMPLE_NAMES = "samples/name"
VERSION = 3
_KEY = "dask_workbench"


@dataclass(frozen=True)
class Description:
    """Attributes that describe a store; packing continues a store only if all of them agree."""

    n_variants: int
    n_samples: int
    rows: int
    source: str | None
    content: str
    version: int = VERSION

    def attributes(self, *, complete: bool) -> dict[str, Any]:
        """Return the attributes of the group."""
        return {_KEY: {**asdict(self), "complete": complete}}

    @property
    def shown(self) -> str:
        """Return a short description for messages."""
        return f"{self.n_variants} variants × {self.n_samples} samples of {self.source or 'an array'}"


def is_store(group: Any) -> bool:
    """Return whether a Zarr group is a packed store."""
    return _KEY in group.attrs


def description(group: Any, place: Place) -> tuple[Description, bool]:
    """Return the attributes of a store, and whether it is complete.

    Raises BadInputError if a later version of this package wrote it.
    """
    attributes = dict(cast("dict[str, Any]", group.attrs[_KEY]))
    if attributes.get("version") != VERSION:
        raise BadInputError(
            f"{place} is a store of version {attributes.get('version')}, expected {VERSION}: "
            "update dask-workbench, or pack again."
        )
    complete = bool(attributes.pop("complete"))
    return Description(**attributes), complete


def finished(place: Place) -> set[int]:
    """Return the numbers of the blocks whose files exist."""
    parts = (name.split(".") for name in (place / PACKED).names())
    return {int(part[1]) for part in parts if len(part) == 3 and part[0] == "c" and part[2] == "0"}


def read_store(group: Any, place: Place) -> Genotypes:
    """Return the genotypes of an open store, read block by block.

    Raises BadInputError if it isn't finished, or an array or a part of it is missing.
    """
    about, complete = description(group, place)
    if not complete:
        raise BadInputError(
            f"{place} is not finished: call pack_to_zarr again with the same source, {about.source or 'an array'}, and "
            "it goes on where it stopped."
        )
    for expected in (PACKED, SAMPLE_NAMES):
        if expected not in group:
            raise BadInputError(f"{place} has no array {expected}, expected as pack_to_zarr writes it. Pack it again.")
    remarks = of_whole_arrays(group, place, (PACKED, SAMPLE_NAMES))
    samples = as_text(safe(group[SAMPLE_NAMES], place)[:])
    table = {key: _column(safe(array, place)) for key, array in group["samples"].arrays() if key != "name"}
    names = {field.name for field in fields(Variants)}
    columns = group["variants"].arrays() if "variants" in group else ()
    variants = Variants(**{key: _column(safe(array, place)) for key, array in columns if key in names})
    read = partial(_read_packed, safe(group[PACKED], place), place.path)
    packed = packed_array(read, about.n_variants, about.n_samples, about.rows)
    return Genotypes(packed, samples, variants, table, source=place.path, remarks=remarks)


def _read_packed(array: Any, place: str, start: int, stop: int) -> np.ndarray[Any, Any]:
    naming = places.sentences_about(f"{place}, variants {start} to {stop - 1}", "a block as pack_to_zarr writes it")
    with naming, naming_chunks(in_array(array, place, slice(start, stop))):
        return np.asarray(OnDisk(array)[start:stop])


def _column(array: Any) -> np.ndarray[Any, Any]:
    return np.asarray(array[:]) if np.dtype(array.dtype).kind in "biuf" else as_text(array[:])
