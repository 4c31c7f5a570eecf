"""VCF Zarr: what bio2zarr and sgkit write from a VCF, in Zarr format 2 or 3.

Source of the format: "VCF Zarr specification", version 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from workbench import formats
from workbench.errors import BadInputError
from workbench.genotypes.arrays import Rows, genotypes_of_counts, in_zarr
from workbench.genotypes.values import Genotypes, Variants, as_text
from workbench.storage import places
from workbench.storage.zarrs import OnDisk, safe

Multiallelic = Literal["any", "drop", "refuse"]
_MULTIALLELIC = ("any", "drop", "refuse")
_FILL = -2
# Each task carries them. Chromosomes and regions are few; of variants chosen one by one some are left out in vain.
_RUNS = 1000
_EXPECTED = "call_genotype (variants × samples × ploidy) and sample_id"


def _copies(
    array: Any, place: str, left_out: Sequence[tuple[int, int]], rows: slice, columns: slice
) -> np.ndarray[Any, Any]:
    """Copies of any alternate allele, from calls of two alleles each.

    Variants that are left out, from the first up to, not including, the last, may be haploid, and are missing there.
    """
    with places.sentences_about(f"{place}, variants {rows.start} to {rows.stop - 1}", "call_genotype whole"):
        calls = np.asarray(OnDisk(array)[rows, columns])
    if calls.size and calls.min() <= _FILL:
        haploid: Any = (calls <= _FILL).any(axis=2)
        for start, stop in left_out:
            haploid[max(0, start - rows.start) : max(0, stop - rows.start)] = False
        if haploid.any():
            row, column = np.argwhere(haploid)[0]
            raise BadInputError(
                f"{place} mixes ploidies: variant {rows.start + row}, sample {columns.start + column} "
                "(counted from 0) has fewer alleles than 2, as on X, Y and mitochondria. Leave such variants out: "
                "autosomes_only, leave_out, or in Python genotypes[mask], as before packing."
            )
    first, second = calls[..., 0], calls[..., 1]
    copies = (first > 0).view(np.int8) + (second > 0).view(np.int8)
    # A call of which one half is known can't be counted: it is missing, as in sgkit.
    return np.where((first < 0) | (second < 0), np.int8(-1), copies)


def read_vcf_zarr(group: Any, place: str, *, multiallelic: Multiallelic = "any", rows: Rows = "auto") -> Genotypes:
    """Genotypes of an open VCF Zarr group: copies of the alternate allele.

    Parameters
    ----------
    group
        A `zarr.Group`.
    multiallelic
        What becomes of sites with more than one alternate allele: "any" counts copies of any of them, as sgkit, Hail
        and scikit-allel do; "drop" leaves these sites out; "refuse" raises.
    rows
        Variants in a block.

    Raises
    ------
    BadInputError
        An array of the specification is missing or of another shape, or calls of variants that take part aren't
        diploid when they are read.
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
    given = {"orientation": "variants×samples", "missing": -1, **labels}
    found = genotypes_of_counts(in_zarr(calls, _copies, place, ()), **given)
    found = replace(found, reread=partial(_reread, calls, place, given))
    several = np.flatnonzero(alternates > 1)
    if not several.size or multiallelic == "any":
        return found
    if multiallelic == "refuse":
        raise BadInputError(
            f"{place} has {several.size} sites with more than one alternate allele, the first at variant {several[0]}. "
            "Choose multiallelic='any' to count copies of any of them, or 'drop'."
        )
    return found[alternates <= 1]


def _reread(calls: Any, place: str, given: Mapping[str, Any], mask: np.ndarray[Any, Any]) -> Any:
    ends = np.flatnonzero(np.diff(~mask, prepend=False, append=False)).reshape(-1, 2)
    longest = ends[np.argsort(ends[:, 0] - ends[:, 1], kind="stable")[:_RUNS]]
    left_out = tuple((first, last) for first, last in longest.tolist())
    return genotypes_of_counts(in_zarr(calls, _copies, place, left_out), **given).packed


def _calls(group: Any, place: str) -> Any:
    if "call_genotype" not in group:
        raise BadInputError(f"{place} has no array call_genotype. Expected a VCF Zarr group with {_EXPECTED}.")
    calls = safe(group["call_genotype"], place)
    size = formats.by(calls.shape)
    if calls.ndim != 3 or calls.dtype.kind != "i":
        raise BadInputError(
            f"{place}: call_genotype is {size} of {calls.dtype}, expected variants × samples × ploidy of whole numbers."
        )
    if calls.shape[2] != 2:
        raise BadInputError(f"{place}: call_genotype is {size}, so the ploidy is {calls.shape[2]}, expected 2.")
    return calls


def _variants(group: Any, n_variants: int, place: str) -> tuple[Variants, np.ndarray[Any, Any]]:
    """What is known of the variants, and how many alternate alleles each has."""
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
