"""Counts of an allele in an array: NumPy, CuPy, Dask, or a .npy, HDF5 or Zarr file, packed where they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import dask.array as da
import numpy as np

from workbench import formats
from workbench.errors import BadInputError
from workbench.genotypes.packing import PER_BYTE, block_rows, missing_codes, pack, packed_array, packed_width
from workbench.genotypes.values import Genotypes, Variants
from workbench.labels import as_text
from workbench.linalg.arrays import in_blocks, refuse_masked, row_blocks
from workbench.linalg.keys import lasting
from workbench.storage import places, written_chunks
from workbench.storage.places import Place
from workbench.storage.read_errors import in_array, naming_chunks
from workbench.storage.zarrs import OnDisk, safe

Rows = int | Literal["auto"]
ORIENTATIONS = ("variants×samples", "samples×variants")
_READ_BYTES = 32 * 2**20
ZARR = "a Zarr array of counts, whole"


@dataclass(frozen=True)
class Counts:
    """Stored counts that are read a rectangle at a time."""

    read: Callable[[slice, slice], np.ndarray[Any, Any]]
    """Function that returns the counts in a rectangle."""
    shape: tuple[int, ...]
    """Rows × columns as they are stored."""
    itemsize: int
    """Bytes of a stored value."""
    chunks: tuple[int, int] | None = None
    """Shape of the parts stored together; None if any rectangle reads equally well."""


def in_zarr(array: Any, read: Callable[..., np.ndarray[Any, Any]], place: str, *more: Any) -> Counts:
    """Return counts that `read` finds in a rectangle of a Zarr array; it gets the array and extra arguments first."""
    rows, columns = (array.shards or array.chunks)[:2]
    itemsize = array.dtype.itemsize * math.prod(array.shape[2:])
    return Counts(partial(read, array, place, *more), tuple(array.shape[:2]), int(itemsize), (int(rows), int(columns)))


def of_whole_arrays(group: Any, place: Place, names: Sequence[str]) -> tuple[str, ...]:
    """Return a message if it is unknown whether all chunks of some arrays of a Zarr group exist.

    Raises BadInputError if some don't: these arrays are never empty in part, and Zarr would give zeros.
    """
    messages = (
        written_chunks.remark(f"{place} ({name})", written_chunks.of_zarr(group[name], place, name), never=True)
        for name in names
        if name in group
    )
    return tuple(filter(None, messages))


def read_zarr(array: Any, place: str, rows: slice, columns: slice) -> np.ndarray[Any, Any]:
    """Read a rectangle of a Zarr array."""
    naming = places.sentences_about(f"{place}, rows {rows.start} to {rows.stop - 1}", ZARR)
    with naming, naming_chunks(in_array(array, place, rows, columns)):
        return np.asarray(OnDisk(array)[rows, columns])


@dataclass(frozen=True)
class _ReadCounts:
    """Reader of rows of stored counts that packs them, some columns at a time."""

    counts: Counts
    n_samples: int
    columns: int
    transposed: bool
    missing: tuple[float, ...]

    def __call__(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        packed = np.empty((stop - start, packed_width(self.n_samples)), np.uint8)
        for first in range(0, self.n_samples, self.columns):
            last = min(first + self.columns, self.n_samples)
            variants, samples = slice(start, stop), slice(first, last)
            block = self.counts.read(samples, variants).T if self.transposed else self.counts.read(variants, samples)
            part = slice(first // PER_BYTE, packed_width(last))
            packed[:, part] = pack(block, self.missing, first_row=start, first_column=first)
        return packed


@dataclass(frozen=True)
class _PackBlock:
    """Packer of a block of a Dask array, which knows its place."""

    missing: tuple[float, ...]

    def __call__(self, block: Any, block_info: Any = None) -> Any:
        (row, _), (column, _) = block_info[0]["array-location"]
        return pack(block, self.missing, first_row=row, first_column=column)


def genotypes_of_counts(
    counts: Counts,
    *,
    orientation: str | None = None,
    missing: float | Iterable[float] | None = None,
    samples: Sequence[str] | None = None,
    variants: Variants | None = None,
    rows: Rows = "auto",
    source: str | None = None,
) -> Genotypes:
    """Return the genotypes of counts in a file, read where they are needed; parameters as `open_genotypes` has them."""
    transposed = is_transposed(counts.shape, orientation, samples, source or "The array")
    n_variants, n_samples = counts.shape[::-1] if transposed else counts.shape[:2]
    chunks = counts.chunks or (1, n_samples)
    together, across = chunks[::-1] if transposed else chunks
    per_row = packed_width(n_samples * counts.itemsize)
    height = block_rows(n_variants, n_samples, rows, multiple=together, bytes_each=per_row)
    # Read multiples of four columns, which make whole bytes.
    step = math.lcm(max(1, across), PER_BYTE)
    step *= max(1, min(n_samples, _READ_BYTES // (height * counts.itemsize)) // step)
    read = _ReadCounts(counts, n_samples, step, transposed, missing_codes(missing))
    packed = packed_array(read, n_variants, n_samples, height)
    return Genotypes(packed, _names(samples, n_samples), variants or Variants(), source=source)


def genotypes_of_array(
    array: Any,
    *,
    orientation: str | None = None,
    missing: float | Iterable[float] | None = None,
    samples: Sequence[str] | None = None,
    variants: Variants | None = None,
    rows: Rows = "auto",
) -> Genotypes:
    """Return the genotypes of an array of counts in memory (NumPy, CuPy) or of Dask, packed block by block.

    Arrays in memory aren't copied, and must not change.
    """
    transposed = is_transposed(array.shape, orientation, samples, "The array")
    refuse_words(array.dtype, "The array")
    refuse_masked(getattr(array, "_meta", array))
    if not isinstance(array, da.Array):
        n_variants, n_samples = array.shape[::-1] if transposed else array.shape
        height = block_rows(n_variants, n_samples, rows, bytes_each=packed_width(n_samples * array.dtype.itemsize))
        x = in_blocks(array.T if transposed else array, row_blocks(n_variants, height))
    else:
        x = array.T if transposed else array
    if rows != "auto":
        x = x.rechunk({0: rows})
    if any(columns % PER_BYTE for columns in x.chunks[1][:-1]):
        x = x.rechunk({1: -1})
    codes = missing_codes(missing)
    chunks = (x.chunks[0], tuple(packed_width(columns) for columns in x.chunks[1]))
    name = lasting("genotypes", x.name, codes)
    meta = x._meta.astype(np.uint8)
    packed = x.map_blocks(_PackBlock(codes), dtype=np.uint8, chunks=chunks, meta=meta, name=name)
    return Genotypes(packed, _names(samples, x.shape[1]), variants or Variants())


def refuse_words(dtype: Any, name: str) -> None:
    """Raise a BadInputError unless this type can hold counts."""
    if np.dtype(dtype).kind not in "biuf":
        raise BadInputError(f"{name} holds {dtype}, expected counts 0, 1 and 2 of variants × samples as numbers.")


def is_transposed(shape: Sequence[int], orientation: str | None, samples: Sequence[str] | None, name: str) -> bool:
    """Return whether the rows are samples.

    Raises
    ------
    BadInputError
        The array isn't a matrix, or its orientation is unknown, or contradicts the labels.
    """
    if len(shape) != 2:
        raise BadInputError(f"{name} has {len(shape)} dimensions ({formats.by(shape)}), expected variants × samples.")
    if orientation is not None:
        orientation = orientation.replace(" ", "").replace("x", "×")
        if orientation not in ORIENTATIONS:
            raise BadInputError(f"Unknown orientation {orientation!r}. Choose one of: {', '.join(ORIENTATIONS)}.")
    rows, columns = shape
    if samples is not None:
        return _as_named(rows, columns, len(samples), orientation, name)
    if orientation is None and rows < columns:
        raise BadInputError(
            f"{name} is {formats.by((rows, columns))}, and variants are mostly more than samples: say which way it "
            f"lies, orientation='{ORIENTATIONS[0]}' or orientation='{ORIENTATIONS[1]}'."
        )
    return orientation == ORIENTATIONS[1]


def _as_named(rows: int, columns: int, n_names: int, orientation: str | None, name: str) -> bool:
    fits = [length == n_names for length in (columns, rows)]
    if not any(fits):
        raise BadInputError(
            f"{name} is {formats.by((rows, columns))}, and neither is the number of samples named, {n_names}."
        )
    if orientation is None:
        if all(fits) and rows != 1:
            raise BadInputError(
                f"{name} is {formats.by((rows, columns))} with {n_names} samples, so it could lie either way: say "
                f"orientation='{ORIENTATIONS[0]}' or orientation='{ORIENTATIONS[1]}'."
            )
        return not fits[0]
    transposed = orientation == ORIENTATIONS[1]
    if not fits[transposed]:
        raise BadInputError(
            f"{name} is {formats.by((rows, columns))}: {n_names} samples are named, which contradicts "
            f"orientation='{orientation}'. Try orientation='{ORIENTATIONS[not transposed]}'."
        )
    return transposed


def _names(samples: Sequence[str] | None, n_samples: int) -> np.ndarray[Any, Any]:
    if samples is None:
        return as_text([f"sample {i}" for i in range(n_samples)])
    return as_text(samples)


# --- VCF Zarr ---------------------------------------------------------------------------------------------------------
# What bio2zarr and sgkit write from a VCF, in Zarr format 2 or 3. Source: "VCF Zarr specification", version 0.4.

Multiallelic = Literal["any", "drop", "refuse"]
_MULTIALLELIC = ("any", "drop", "refuse")
_FILL = -2
_EXPECTED = "call_genotype (variants × samples × ploidy) and sample_id"


def _copies(array: Any, place: str, rows: slice, columns: slice) -> np.ndarray[Any, Any]:
    """Count copies of any alternate allele. The one allele of a haploid call counts twice, as PLINK writes it."""
    naming = places.sentences_about(f"{place}, variants {rows.start} to {rows.stop - 1}", "call_genotype whole")
    with naming, naming_chunks(in_array(array, place, rows, columns)):
        calls = np.asarray(OnDisk(array)[rows, columns])
    if calls.shape[2] == 1:
        calls = np.repeat(calls, 2, axis=2)
    elif calls.size and calls.min() <= _FILL:
        calls = np.where(calls <= _FILL, calls.max(axis=2, keepdims=True), calls)
    first, second = calls[..., 0], calls[..., 1]
    copies = (first > 0).view(np.int8) + (second > 0).view(np.int8)
    # A half-known call counts as missing, as in sgkit.
    return np.where((first < 0) | (second < 0), np.int8(-1), copies)


def read_vcf_zarr(group: Any, place: str, *, multiallelic: Multiallelic = "any", rows: Rows = "auto") -> Genotypes:
    """Return the genotypes of an open VCF Zarr group: copies of the alternate allele.

    The one allele of a haploid call, which has a ploidy of 1 or a -2 in place of its second allele, counts twice: males
    on X are as in PLINK's .bed files. Singular values of haploid samples are twice those of counts 0 and 1.

    Parameters
    ----------
    group
        A `zarr.Group`.
    multiallelic
        Treatment of sites with more than one alternate allele: "any" counts copies of any of them, as sgkit, Hail
        and scikit-allel do; "drop" leaves these sites out; "refuse" raises.
    rows
        Variants in a block.

    Raises
    ------
    BadInputError
        An array of the specification is missing or of another shape.
    """
    if multiallelic not in _MULTIALLELIC:
        raise BadInputError(f"Unknown multiallelic={multiallelic!r}. Choose one of: {', '.join(_MULTIALLELIC)}.")
    calls = _calls(group, place)
    n_variants, n_samples = calls.shape[:2]
    samples = _column(group, "sample_id", n_samples, place)
    if samples is None:
        raise BadInputError(f"{place} has no array sample_id. Expected a VCF Zarr group with {_EXPECTED}.")
    variants, alternates = _variants(group, n_variants, place)
    labels = {"samples": samples.tolist(), "variants": variants, "rows": rows, "source": place}
    options = {"orientation": "variants×samples", "missing": -1, **labels}
    genotypes = genotypes_of_counts(in_zarr(calls, _copies, place), **options)
    genotypes = replace(genotypes, remarks=(*genotypes.remarks, *_remarks(calls, place)))
    several = np.flatnonzero(alternates > 1)
    if not several.size:
        return genotypes
    if multiallelic == "any":
        note = f"Sites with several alternate alleles: {several.size:,}. Copies of any of these are counted together."
        return replace(genotypes, remarks=(*genotypes.remarks, note))
    if multiallelic == "refuse":
        raise BadInputError(
            f"{place} has {several.size} sites with more than one alternate allele, the first at variant {several[0]}. "
            "Choose multiallelic='any' to count copies of any of them, or 'drop'."
        )
    return genotypes[alternates <= 1]


_HAPLOID = "Haploid calls: the one allele of each counts twice, as in PLINK's .bed files."


def _remarks(calls: Any, place: str) -> tuple[str, ...]:
    """Return notes on haploid and half-known calls, as the first call and its chunk have them."""
    if calls.shape[2] == 1:
        return (_HAPLOID,)
    if 0 in calls.shape:
        return ()
    rows, columns = (slice(min(sizes)) for sizes in zip(calls.shape[:2], calls.chunks[:2], strict=True))
    with places.sentences_about(place, "call_genotype whole"):
        chunk = np.asarray(OnDisk(calls)[rows, columns])
    remarks = [_HAPLOID] if chunk[0, 0].min() <= _FILL else []
    if half := np.count_nonzero((chunk.min(axis=2) == -1) & (chunk.max(axis=2) >= 0)):
        n = chunk.shape[0] * chunk.shape[1]
        remarks.append(f"Half-known calls, such as ./1, count as missing: {half:,} of the first {n:,} calls are.")
    return tuple(remarks)


def _calls(group: Any, place: str) -> Any:
    if "call_genotype" not in group:
        raise BadInputError(f"{place} has no array call_genotype. Expected a VCF Zarr group with {_EXPECTED}.")
    calls = safe(group["call_genotype"], place)
    size = formats.by(calls.shape)
    if calls.ndim != 3 or calls.dtype.kind != "i":
        raise BadInputError(
            f"{place}: call_genotype is {size} of {calls.dtype}, expected variants × samples × ploidy of whole numbers."
        )
    if calls.shape[2] not in (1, 2):
        raise BadInputError(f"{place}: call_genotype is {size}, so the ploidy is {calls.shape[2]}, expected 1 or 2.")
    return calls


def _variants(group: Any, n_variants: int, place: str) -> tuple[Variants, np.ndarray[Any, Any]]:
    """Return the variants and the number of alternate alleles of each."""
    position, id, alleles, contig = (
        _column(group, f"variant_{name}", n_variants, place) for name in ("position", "id", "allele", "contig")
    )
    if contig is not None:
        names = (
            safe(group["contig_id"], place)[:] if "contig_id" in group else np.arange(int(contig.max(initial=-1)) + 1)
        )
        contig = as_text(names)[contig]
    if id is not None:
        id = as_text(id)
    if alleles is None or not alleles.shape[1]:
        return Variants(contig, position, id, None), np.zeros(n_variants, int)
    alleles = as_text(alleles)
    alternates = (alleles[:, 1:] != "").sum(axis=1)
    both = np.stack([alleles[:, 0], alleles[:, 0]], axis=1)
    both[:, 1] = [",".join(filter(None, row)) for row in alleles[:, 1:]]
    return Variants(contig, position, id, both), alternates


def _column(group: Any, name: str, length: int, place: str) -> np.ndarray[Any, Any] | None:
    if name not in group:
        return None
    column = np.asarray(safe(group[name], place)[:])
    if len(column) != length:
        raise BadInputError(f"{place}: {name} has {len(column)} entries, expected {length} as call_genotype has.")
    return column
