"""Genotypes as passed from readers to analyses: packed rows of two bits, and the labels of rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import dask.array as da
import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes.packing import MISSING, PER_BYTE, chosen, packed_width, taken, unpack
from workbench.sent_code import reach_cluster

IN_FAMILY = "name_in_family"
"""Column of names that repeat across families, if the samples' names combine both."""


@dataclass(frozen=True, eq=False)
class Variants:
    """Columns with facts about each variant: arrays as long as there are variants, or None."""

    contig: np.ndarray[Any, Any] | None = None
    position: np.ndarray[Any, Any] | None = None
    """Position in base pairs, as in the file."""
    id: np.ndarray[Any, Any] | None = None
    alleles: np.ndarray[Any, Any] | None = None
    """Alleles of shape (variants, 2): the other one, then the counted one: a VCF's REF and ALT, a .bim's A2 and A1."""

    def __getitem__(self, rows: Any) -> Variants:
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        return Variants(**{name: None if column is None else column[rows] for name, column in columns.items()})


@dataclass(frozen=True, eq=False)
class Genotypes:
    """Copies of an allele of variants × samples, two bits each, in a Dask array that is read on demand.

    Bits of a row's last byte past the last sample may be anything; `tail` is the number of samples in that byte.
    """

    packed: da.Array
    """uint8 of shape (variants, ⌈samples / 4⌉), in blocks of whole rows, as `pack` makes them."""
    samples: np.ndarray[Any, Any]
    """Name of each sample."""
    variants: Variants = field(default_factory=Variants)
    sample_table: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """Further columns on the samples by name, such as family, sex, phenotype or population."""
    source: str | None = None
    """Path or URL of the source."""
    remarks: tuple[str, ...] = ()
    """Warnings of a reader about possible errors in the files."""

    def __post_init__(self) -> None:
        if self.packed.ndim != 2 or self.packed.dtype != np.uint8:
            raise BadInputError(
                f"Packed genotypes are a matrix of uint8, not {self.packed.ndim}-d {self.packed.dtype}."
            )
        if self.packed.shape[1] != packed_width(self.n_samples):
            raise BadInputError(
                f"{self.n_samples} samples take {packed_width(self.n_samples)} bytes a row, "
                f"and the packed genotypes have {self.packed.shape[1]}."
            )
        if len(self.packed.chunks[1]) > 1:
            object.__setattr__(self, "packed", self.packed.rechunk({1: -1}))
        for name, column in self.sample_table.items():
            if len(column) != self.n_samples:
                raise BadInputError(f"The column {name!r} has {len(column)} values for {self.n_samples} samples.")
        for name, values in ((each.name, getattr(self.variants, each.name)) for each in fields(self.variants)):
            if values is not None and len(values) != self.n_variants:
                raise BadInputError(f"variants.{name} has {len(values)} values for {self.n_variants} variants.")

    @property
    def n_variants(self) -> int:
        """Number of rows."""
        return int(self.packed.shape[0])

    @property
    def n_samples(self) -> int:
        """Number of samples, which are the columns."""
        return len(self.samples)

    @property
    def shape(self) -> tuple[int, int]:
        """Variants × samples."""
        return self.n_variants, self.n_samples

    @property
    def tail(self) -> int:
        """Samples in a row's last byte: 1 to 4, 0 where there is no sample."""
        return self.n_samples - PER_BYTE * max(0, packed_width(self.n_samples) - 1)

    def counts(self, missing: int = MISSING) -> da.Array:
        """Return copies of the counted allele, lazily: uint8 of variants × samples; `missing` where none is known."""
        reach_cluster()
        return self.packed.map_blocks(
            unpack,
            self.n_samples,
            missing=missing,
            dtype=np.uint8,
            chunks=(self.packed.chunks[0], (self.n_samples,)),
            meta=self.packed._meta,
            name=None,
        )

    def __getitem__(self, rows: Any) -> Genotypes:
        """Return some of the variants (a slice, a mask or indices) of all samples."""
        if isinstance(rows, tuple):
            raise BadInputError("Genotypes are indexed by variant alone: a slice, a mask or an array of row numbers.")
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            rows = np.flatnonzero(self._mask(rows)) if rows.dtype == bool else np.atleast_1d(rows)
        packed = self.packed[rows] if isinstance(rows, slice) else taken(self.packed, rows)
        return replace(self, packed=packed, variants=self.variants[rows])

    def of_samples(self, samples: Any) -> Genotypes:
        """Return some of the samples of all variants: a mask, or places in any order. They stay packed throughout."""
        places = np.asarray(samples)
        if places.dtype == bool:
            if places.shape != (self.n_samples,):
                raise BadInputError(f"The mask has {places.size} values for {self.n_samples} samples.")
            places = np.flatnonzero(places)
        packed = self.packed.map_blocks(
            chosen,
            places,
            dtype=np.uint8,
            chunks=(self.packed.chunks[0], (packed_width(len(places)),)),
            meta=self.packed._meta,
            name=None,
        )
        table = {name: np.asarray(column)[places] for name, column in self.sample_table.items()}
        return replace(self, packed=packed, samples=np.asarray(self.samples)[places], sample_table=table)

    def _mask(self, mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if mask.shape != (self.n_variants,):
            raise BadInputError(f"The mask has {mask.size} values for {self.n_variants} variants.")
        return mask

    def __repr__(self) -> str:
        source = f", from {self.source}" if self.source else ""
        size = f"{self.n_variants} variants × {self.n_samples} samples, {self.packed.numblocks[0]} blocks"
        return f"Genotypes({size}{source})"
