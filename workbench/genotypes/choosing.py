"""Selection of samples and variants before an analysis."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench import formats
from workbench.errors import BadInputError
from workbench.genotypes.values import IN_FAMILY, Genotypes
from workbench.labels import as_text
from workbench.linalg.arrays import refuse_masked
from workbench.storage import places

Matrix = np.ndarray[Any, Any]
Names = str | Path | Sequence[str]
"""Samples by name, or a path or URL of a text file with a name, or a family and a name, on each line."""
Regions = str | Path | Sequence[str]
"""Regions such as "6:25000000-35000000", or a path or URL of a BED file."""

_LINES = "a text file with a sample's name, or its family and name, on each line"
_BED = "regions such as 6:25000000-35000000, separated by commas, or a BED file (contig, start from 0, end)"
_REGION = re.compile(r"([^\s:,;]+):(\d+)-(\d+)")
# RefSeq's names of the human chromosomes, of which 23 and 24 are X and Y.
_REFSEQ = re.compile(r"nc_0000(0[1-9]|1\d|2[0-4])\.\d+")
_AUTOSOMES = frozenset(map(str, range(1, 23)))
# X, Y and mitochondria, the numbers being PLINK's. Its 25 and XY are parts of X that everyone has twice.
_NOT_DIPLOID = frozenset(("x", "y", "m", "mt", "nc_012920.1"))
_NOT_DIPLOID_NUMBERS = frozenset(("23", "24", "26"))
_HEADS = ("FID", "IID")
_SAVED = "REMOVE"
"""Header of the table that a run of genotype_relatedness saves."""


def of_chosen_samples(
    genotypes: Genotypes,
    keep_samples: Names | None = None,
    remove: Names | None = None,
    storage_options: places.Options | None = None,
) -> Genotypes:
    """Return the genotypes of the samples in `keep_samples` (None: of all) that aren't in `remove`, in their order.

    A name chooses all samples that have it. `remarks` reports names of no sample or of several. Raises
    BadInputError if a list can't be read or names none of the samples, or no sample is left.
    """
    if not genotypes.n_samples:  # callers that need samples check it
        return genotypes
    mask, remarks = np.ones(genotypes.n_samples, bool), [*genotypes.remarks, *_on_repeats(genotypes)]
    for name, names, stays in (("keep_samples", keep_samples, True), ("remove", remove, False)):
        if names is not None:
            mask_of_names, notes = _named(genotypes, name, names, storage_options)
            mask &= mask_of_names if stays else ~mask_of_names
            remarks += notes
    if not mask.any():
        raise BadInputError(f"keep_samples and remove leave none of {genotypes.n_samples} samples. Leave out fewer.")
    selected = genotypes if mask.all() else genotypes.of_samples(mask)
    return replace(selected, remarks=tuple(dict.fromkeys(remarks)))


def _on_repeats(genotypes: Genotypes) -> list[str]:
    names, numbers = np.unique(as_text(genotypes.samples), return_counts=True)
    if len(names) == genotypes.n_samples:
        return []
    n, first = int(numbers[numbers > 1].sum()), names[numbers > 1][0]
    return [f"{n} samples share their name with another, such as {first}: who names one chooses all of that name."]


def _named(
    genotypes: Genotypes, parameter: str, given: Names, options: places.Options | None
) -> tuple[Matrix, list[str]]:
    """Return a mask of the named samples, and a message about names that no sample has."""
    requested, source = _lines(parameter, given, options)
    samples = [str(name) for name in np.asarray(genotypes.samples).tolist()]
    places_of: dict[Any, list[int]] = {}
    for i, name in enumerate(samples):
        places_of.setdefault(name, []).append(i)
    families = genotypes.sample_table.get("family")
    if families is not None:
        names = genotypes.sample_table.get(IN_FAMILY, genotypes.samples)
        for i, pair in enumerate(zip(as_text(families).tolist(), as_text(names).tolist(), strict=True)):
            places_of.setdefault(pair, []).append(i)
    mask, unknown = np.zeros(len(samples), bool), 0
    for words in requested:
        pair = (words[0], words[-1])
        ways: tuple[Any, ...] = (" ".join(words), "_".join(words))
        ways += (pair,) if len(words) == 2 and families is not None and words[0] != "0" else words[-1:]
        at = next((places_of[way] for way in ways if way in places_of), [])
        unknown += not at
        mask[at] = True
    if requested and not mask.any():
        raise BadInputError(
            f"{source} names none of the samples: the first there is {' '.join(requested[0])!r}, the first sample "
            f"{samples[0]!r}. Expected {_LINES}."
        )
    return mask, [f"{source} names {unknown} that are no samples here, of {len(requested)}."] if unknown else []


def _lines(parameter: str, names: Names, options: places.Options | None) -> tuple[list[tuple[str, ...]], str]:
    """Return names, as one or two words each, and their source."""
    if not isinstance(names, (str, Path)):
        words = [str(each) for each in (names.tolist() if hasattr(names, "tolist") else names)]
        return [tuple(each.split(maxsplit=1)) if each.strip() else ("",) for each in words], parameter
    place = places.full(names, options if "://" in str(names) else None)
    with places.sentences_about(place, _LINES):
        lines = [line.split() for line in place.read().decode("utf-8-sig").splitlines() if line.strip()]
    head = [word.lstrip("#").upper() for word in lines[0]] if lines else []
    if head and head[0] in _HEADS:
        columns = [head.index(name) for name in _HEADS if name in head]
        return [tuple(line[i] for i in columns if i < len(line)) for line in lines[1:]], str(place)
    listed = lines[1:] if head == [_SAVED] else lines
    return [tuple(line[:2]) for line in listed if not line[0].startswith("#")], str(place)


def some_on_x(genotypes: Genotypes) -> bool:
    """Return whether any variant is on the human X."""
    contigs = genotypes.variants.contig
    return contigs is not None and any(chromosome(str(name)) in ("x", "23") for name in set(contigs.tolist()))


def not_diploid(genotypes: Genotypes) -> Matrix:
    """Return a mask of the variants on X, Y and mitochondria, of which not everyone has two copies.

    These are the variants that PLINK leaves out of kinship. Variants without contigs count as diploid, and so do those
    on 23 to 26 where there are higher numbers: it is another species, in which these are autosomes.
    """
    contigs = genotypes.variants.contig
    if contigs is None:
        return np.zeros(genotypes.n_variants, bool)
    plain = {name: chromosome(str(name)) for name in set(contigs.tolist())}
    is_human = not any(name.isdecimal() and int(name) > 26 for name in plain.values())
    listed = _NOT_DIPLOID | _NOT_DIPLOID_NUMBERS if is_human else _NOT_DIPLOID
    there = [name for name in plain if plain[name] in listed]
    return np.isin(contigs, there) if there else np.zeros(genotypes.n_variants, bool)


def of_diploid_variants(genotypes: Genotypes) -> Genotypes:
    """Return the genotypes without the variants that are `not_diploid`.

    Raises BadInputError if none is left.
    """
    mask = not_diploid(genotypes)
    if mask.any() and mask.all():
        raise BadInputError(
            f"All {genotypes.n_variants} variants are on X, Y or mitochondria, and kinship needs variants of which "
            "everyone has two copies. Give genotypes with autosomes."
        )
    return genotypes[~mask] if mask.any() else genotypes


def on_autosomes(genotypes: Genotypes) -> np.ndarray[Any, Any]:
    """Return a mask of the variants on one of the 22 human autosomes.

    Raises BadInputError if the variants have no contigs, or none of them is an autosome.
    """
    contigs = genotypes.variants.contig
    if contigs is None:
        raise BadInputError("autosomes_only needs the contig of each variant, which these lack: leave it out.")
    names, number = np.unique(contigs, return_inverse=True)
    autosomes = np.array([chromosome(str(name)) in _AUTOSOMES for name in names], bool)
    if not autosomes.any():
        listed = ", ".join(map(str, names[:5])) or "there are none"
        raise BadInputError(
            f"autosomes_only leaves nothing: no contig is one of 1 to 22 or chr1 to chr22. There are: {listed}."
        )
    mask: np.ndarray[Any, Any] = autosomes[number]
    return mask


def in_regions(genotypes: Genotypes, regions: Regions) -> Matrix:
    """Return a mask of the variants in any of the regions, ends included.

    Contigs are compared by `chromosome`. A BED file counts from 0 and its ends don't belong to the regions.
    Raises BadInputError if the variants lack places, or the regions can't be read.
    """
    contigs, positions = genotypes.variants.contig, genotypes.variants.position
    if contigs is None or positions is None:
        raise BadInputError("leave_out needs the contig and position of each variant, which these lack: leave it away.")
    names, number = np.unique(contigs, return_inverse=True)
    plain = np.array([chromosome(str(name)) for name in names], object)
    mask = np.zeros(genotypes.n_variants, bool)
    for contig, first, last in _read_regions(regions):
        mask |= (plain == chromosome(contig))[number] & (positions >= first) & (positions <= last)
    return mask


def nowhere(genotypes: Genotypes) -> str:
    """Return a warning that no variant lies in the regions."""
    contigs = list(dict.fromkeys(map(str, np.asarray(genotypes.variants.contig).tolist())))
    return f"leave_out: no variant lies there, so none is left out. Contigs are {formats.shortened(contigs, 5)}."


def chromosome(contig: str) -> str:
    """Return one name for all spellings of a contig: "6" for 6, 06, chr6, NC_000006.12; "x" for chrX and NC_000023.11.

    PLINK's 23 to 26 stay numbers: in other species they are ordinary chromosomes.
    """
    name = contig.lower().removeprefix("chr")
    match = _REFSEQ.fullmatch(name)
    if match is None:
        return name.lstrip("0") or name
    return {"23": "x", "24": "y"}.get(match[1], match[1].lstrip("0"))


def are_regions(text: str) -> bool:
    """Return whether a text lists regions and isn't a path."""
    return all(_REGION.fullmatch(part) for part in _split(text))


def _split(text: str) -> list[str]:
    return re.split(r"[,;\s]+", text.strip(",; "))


def _read_regions(given: Regions) -> list[tuple[str, int, int]]:
    parts = _split(str(given)) if isinstance(given, (str, Path)) else [str(each) for each in given]
    matches = [_REGION.fullmatch(part) for part in parts]
    if all(matches):
        regions = [(match[1], int(match[2]), int(match[3])) for match in matches if match]
    elif isinstance(given, (str, Path)) and not any(matches):
        regions = _read_bed(places.full(given))
    else:
        wrong = next(part for part, match in zip(parts, matches, strict=True) if match is None)
        raise BadInputError(f"leave_out has {wrong!r}, expected {_BED}.")
    for contig, first, last in regions:
        if last < first:
            raise BadInputError(f"leave_out has {contig}:{first}-{last}, which ends before it starts.")
    return regions


def _read_bed(place: places.Place) -> list[tuple[str, int, int]]:
    with places.sentences_about(place, _BED):
        lines = place.read().decode("utf-8-sig").splitlines()
    regions = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#") or words[0] in ("track", "browser"):
            continue
        if len(words) < 3 or not (words[1].isdigit() and words[2].isdigit()):
            raise BadInputError(f"{place}, line {number} is {line[:60]!r}, expected {_BED}.")
        regions.append((words[0], int(words[1]) + 1, int(words[2])))
    return regions


def barred(
    genotypes: Genotypes,
    *,
    kept: Any = None,
    autosomes_only: bool = False,
    leave_out: Regions | None = None,
) -> Mapping[str, Matrix]:
    """Return masks of the excluded variants by reason (`scaling.REASONS`); the last reason that applies counts."""
    masks: dict[str, Matrix] = {}
    if autosomes_only:
        masks["not autosomal"] = ~on_autosomes(genotypes)
    if leave_out is not None:
        masks["in a region left out"] = inside = in_regions(genotypes, leave_out)
        if len(leave_out if isinstance(leave_out, Sequence) else str(leave_out)) and not inside.any():
            warnings.warn(nowhere(genotypes), UserWarning, stacklevel=3)
    mask = as_mask(kept, genotypes)
    return masks if mask is None else masks | {"not asked for": ~mask}


def rest(barred: Mapping[str, Matrix]) -> Matrix | None:
    """Return a mask of the variants that no reason excludes; None for all."""
    return ~np.logical_or.reduce(list(barred.values())) if barred else None


def of_chosen_variants(genotypes: Genotypes, **choices: Any) -> Genotypes:
    """Return the genotypes of the variants that `barred` doesn't exclude; the parameters are the same.

    Raises BadInputError if none is left.
    """
    mask = rest(barred(genotypes, **choices))
    if mask is None or mask.all():
        return genotypes
    if not mask.any():
        raise BadInputError(f"All {genotypes.n_variants} variants are left out. Leave out fewer.")
    return genotypes[mask]


def as_mask(kept: Any, genotypes: Genotypes) -> Matrix | None:
    """Return `kept` as a mask of the variants; None for all."""
    if kept is None:
        return None
    refuse_masked(kept)
    mask = np.asarray(kept)
    if mask.dtype != bool or mask.shape != (genotypes.n_variants,):
        raise BadInputError(
            f"kept is a mask of {genotypes.n_variants} true or false values, one for each variant, "
            f"not {mask.dtype} of shape {mask.shape}."
        )
    return mask
