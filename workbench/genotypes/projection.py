"""New samples among the principal components of others, and the shrinkage of their scores.

References
----------
Lee, Zou, Wright: Convergence and prediction of principal component scores in high-dimensional settings. Annals of
Statistics 38, 2010: the shrinkage, for variants that are not linked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
import numpy as np

from workbench import formats
from workbench.errors import BadInputError
from workbench.genotypes import choosing, kernels
from workbench.genotypes.operator import blocked
from workbench.genotypes.packing import MISSING, unpack
from workbench.genotypes.reading import as_genotypes
from workbench.genotypes.scaling import CONVENTIONS, Scaler, factor_of
from workbench.genotypes.values import Genotypes, Variants
from workbench.labels import as_text
from workbench.linalg.gpu import host
from workbench.linalg.threads import one_thread
from workbench.storage import places

if TYPE_CHECKING:
    from workbench.genotypes.pca import GenotypePCA

Matrix = np.ndarray[Any, Any]

_STORE = "a Zarr store of what genotype_pca answered: save=NAME.zarr, or what is kept with the run"
_ROWS = 256
# Shorter loadings, relative to their full length, say too little about a component.
_LEAST = 0.1
# Names are used if they find so many times the variants that places find: of another build, some agree by chance.
_FAR_MORE = 10
_BY_NAMES = "Variants were matched by their names, as hardly any agree in contig, position and alleles. "
_AMBIGUOUS = "{} more have alleles that read the same on both strands, and were left out."
_NO_ALLELE = ("0", ".", "")
"""Placeholders in a .bim, a VCF and VCF Zarr for an allele that no sample of the file has."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Components to project samples onto: from a `GenotypePCA`, or its saved form."""

    loadings: Matrix
    """Variants × components, each of length one."""
    copies: Matrix
    """Copies of the counted allele of each variant, among the samples behind the components."""
    known: Matrix
    """Number of these samples in which it was known."""
    variants: Variants
    singular_values: Matrix
    ratio: Matrix
    """Share of the variance that each component explains."""
    n_samples: int
    scaler: Scaler
    rows: Matrix
    """Indices of these variants, and their total number:"""
    n_variants: int

    @classmethod
    def of(cls, result: GenotypePCA) -> Reference:
        """Make a reference from computed components; takes one more pass over the genotypes for the loadings."""
        loadings, counted = dask.compute(result.loadings, result.counted)
        return cls(
            np.asarray(loadings),
            counted[:, 0],
            counted[:, 1],
            result.variants,
            result.singular_values,
            result.explained_variance_ratio,
            len(result.samples),
            result.scaler,
            np.flatnonzero(result.kept),
            len(result.kept),
        )

    @classmethod
    def read(cls, path: str, storage_options: places.Options | None = None) -> Reference:
        """Read the components that a run of genotype_pca stored or saved as Zarr.

        Raises
        ------
        BadInputError
            There is no such store, or it holds something else.
        """
        import zarr

        place = places.full(path, storage_options)
        with places.sentences_about(place, _STORE):
            try:
                group = zarr.open_group(place.path, mode="r", **place.zarr_options)
            except FileNotFoundError as err:
                raise BadInputError(f"{place} isn't there. Expected {_STORE}.") from err
            members = dict(group.arrays())
            needed = ("loadings", "copies", "known", "row", "singular_values", "explained_variance_ratio", "scores")
            lacking = [name for name in needed if name not in members]
            if lacking:
                raise BadInputError(f"{place} has no {lacking[0]}. Expected {_STORE}.")
            stored = {name: members[name][...] for name in needed[:-1]}
            column = {
                name: members[name][...] if name in members else None
                for name in ("contig", "position", "variant", "other_allele", "counted_allele")
            }
        alleles = [column[name] for name in ("other_allele", "counted_allele")]
        ids, contig = (None if column[name] is None else as_text(column[name]) for name in ("variant", "contig"))
        both = None if any(each is None for each in alleles) else np.stack([as_text(each) for each in alleles], axis=1)
        return cls(
            np.asarray(stored["loadings"], float),
            stored["copies"],
            stored["known"],
            Variants(contig, column["position"], ids, both),
            stored["singular_values"],
            stored["explained_variance_ratio"],
            int(members["scores"].shape[0]),
            members["scores"].attrs["scaler"],
            stored["row"],
            int(members["scores"].attrs["variants"]),
        )

    @property
    def shrinkage(self) -> Matrix:
        """Factor by which scores of new samples fall short, for each component; NaN where it is hidden by noise.

        With γ variants for each sample and a component's variance λ times that of noise, it is (λ − 1) / (λ + γ − 1);
        λ follows from the variance of the reference's own samples, λ (1 + γ / (λ − 1)).
        """
        m, n = len(self.loadings), self.n_samples - 1
        squares = self.singular_values**2
        total = float(squares[0] / self.ratio[0])
        gamma, noise = m / n, total / m
        for _ in range(50):
            level = squares / noise
            root = (level + 1 - gamma) ** 2 - 4 * level
            above = (level > (1 + math.sqrt(gamma)) ** 2) & (root > 0)
            spike = np.where(above, (level + 1 - gamma + np.sqrt(np.maximum(root, 0))) / 2, 1.0)
            # `squares / noise` is n λ̂: variances are means over the samples.
            noise = (total - noise * float((spike[above] - 1).sum())) / m
        return np.where(above, (spike - 1) / (spike + gamma - 1), np.nan)


@dataclass(frozen=True, eq=False)
class Projection:
    """Scores of new samples on the components of others."""

    scores: Matrix
    """Samples × components, in the convention of the reference."""
    samples: Matrix
    unknown_samples: Matrix
    """Names of the samples without a genotype at any variant that was found; their scores are NaN."""
    sample_table: Mapping[str, Matrix]
    shrinkage: Matrix
    """Factor by which scores are nearer to the middle than those of the reference's own samples: see `Reference`."""
    corrected: bool
    """True if scores were divided by it."""
    matched: int
    """Variants of the reference that were found."""
    swapped: int
    """Number of these whose other allele is counted."""
    lacking: int
    """Variants of the reference that aren't there, or have other alleles."""
    ambiguous: int
    """Variants of the reference that are there, but were left out as their alleles are A and T, or C and G."""
    by_names: bool
    """True if variants were matched by their names, as hardly any agree in contig, position and alleles."""

    @property
    def sentence(self) -> str:
        """Summary of the matches and the shrinkage."""
        factors = ", ".join("?" if math.isnan(each) else f"{each:.3g}" for each in self.shrinkage)
        unknown = self.unknown_samples.tolist()
        done = "They were divided by that." if self.corrected else "They are left so; correct=True divides by that."
        return (
            f"{self.matched} of {self.matched + self.lacking + self.ambiguous} variants were found, {self.swapped} of "
            "them with alleles swapped. "
            + (_BY_NAMES if self.by_names else "")
            + (f"{_AMBIGUOUS.format(self.ambiguous)} " if self.ambiguous else "")
            + "Scores of new samples are nearer to the middle by these factors, if variants are not linked: "
            f"{factors}. {done}"
            + (f" Without any genotype there: {formats.shortened(unknown, 10)}." if len(unknown) else "")
        )

    def __repr__(self) -> str:
        return f"Projection({self.scores.shape[1]} components of {len(self.samples)} samples. {self.sentence})"


def project(
    reference: GenotypePCA | Reference | str, source: Any, *, correct: bool = False, ambiguous: bool = False
) -> Projection:
    """Return scores of new samples on the components of a PCA of others, from packed blocks.

    Variants are matched by contig, position and alleles, whichever allele is counted. If these are missing or hardly
    any agree, as with another build of the genome, variants are matched by their names. An allele that a file lacks,
    because no sample has it, is taken from the reference. If variants are missing, the scores are the best fit to the
    others. A missing genotype counts as the mean of the reference, so samples with many are nearer to the middle.

    Parameters
    ----------
    reference
        A `GenotypePCA`, or the path or URL of what a run of genotype_pca saved as Zarr.
    source
        `Genotypes` of the new samples, or a source for `open_genotypes`.
    correct
        True divides scores by the shrinkage that theory expects; see `Projection.shrinkage`.
    ambiguous
        True uses variants with the alleles A and T, or C and G. They read the same on both strands, so a file of
        the other strand would count the wrong allele; use them where both come from one laboratory.

    Raises
    ------
    BadInputError
        The two share too few variants, or only those that read the same on both strands, or the reference is scaled by
        each site's own deviation.
    """
    from workbench.genotypes.pca import GenotypePCA

    if isinstance(source, (GenotypePCA, Reference)) or not isinstance(reference, (GenotypePCA, Reference, str, Path)):
        raise BadInputError(
            "The reference comes first, a GenotypePCA or the path of its saved form, then the genotypes to project: "
            f"not {type(reference).__name__} and {type(source).__name__}."
        )
    if isinstance(reference, GenotypePCA):
        reference = Reference.of(reference)
    elif not isinstance(reference, Reference):
        reference = Reference.read(reference)
    if reference.scaler == "standard":
        raise BadInputError(
            "Components of scaler='standard' can't be projected onto: the sites' standard deviations weren't stored."
        )
    genotypes = as_genotypes(source)
    rows, places_there, swapped, left_out, by_names = _matched(reference, genotypes, ambiguous)
    if ambiguous:
        _refuse_other_strand(reference, places_there)
    mean = reference.copies[places_there] / np.maximum(1, reference.known[places_there])
    numbers = np.stack([np.where(swapped, 2 - mean, mean), np.where(swapped, -1.0, 1.0)], axis=1)
    loadings = reference.loadings[places_there]
    factor = factor_of(reference.scaler, mean)
    gram = loadings.T @ loadings
    if np.linalg.eigvalsh(gram)[0] < _LEAST:
        found = f"{len(rows)} of {len(reference.loadings)} variants of the reference are there"
        raise BadInputError(
            (f"Only {found}, too few for its {loadings.shape[1]} components. " if len(rows) else f"{found}. ")
            + "Positions may be of another build of the genome, alleles of the other strand or in lower case. "
            + (f"{_AMBIGUOUS.format(left_out)} " if left_out else "")
            + f"Give genotypes with the same variants{', or take fewer components' if len(rows) else ''}."
        )
    packed = blocked(genotypes[rows])
    task = dask.delayed(_projected, pure=True)
    edges = np.cumsum([0, *packed.chunks[0]])
    weighted = loadings * (factor * numbers[:, 1])[:, None]
    with one_thread():
        parts = dask.compute(
            *(
                task(block, genotypes.n_samples, numbers[start:stop, 0], weighted[start:stop])
                for block, start, stop in zip(packed.to_delayed()[:, 0], edges[:-1], edges[1:], strict=True)
            )
        )
    sums, known = (sum(each) for each in zip(*parts, strict=True))
    scores = np.linalg.solve(gram, sums.T).T
    scores[known == 0] = np.nan
    convention = CONVENTIONS[reference.scaler]
    if convention.by_variants:
        scores /= math.sqrt(len(reference.loadings))
    if convention.unit_scores:
        scores /= np.where(reference.singular_values > 0, reference.singular_values, np.inf)
    shrinkage = reference.shrinkage
    if correct:
        scores = scores / np.where(np.isnan(shrinkage), 1.0, shrinkage)
    return Projection(
        scores,
        genotypes.samples,
        genotypes.samples[known == 0],
        genotypes.sample_table,
        shrinkage,
        correct,
        len(rows),
        int(swapped.sum()),
        len(reference.loadings) - len(rows) - left_out,
        left_out,
        by_names,
    )


def _projected(packed: Any, n_samples: int, means: Matrix, weighted: Matrix) -> tuple[Matrix, Matrix]:
    """Return centered counts times loadings, samples × components of a block, and the known genotypes per sample."""
    packed, sums, known = host(packed), np.zeros((n_samples, weighted.shape[1])), np.zeros(n_samples, np.int64)
    for start in range(0, len(packed), _ROWS):
        part = slice(start, start + _ROWS)
        counts = unpack(packed[part], n_samples)
        known += np.count_nonzero(counts != MISSING, axis=0)
        x = np.where(counts == MISSING, 0.0, counts - means[part, None])
        with kernels.quiet():
            sums += x.T @ weighted[part]
    return sums, known


class _Matches(NamedTuple):
    """Variants that both have."""

    rows: Matrix
    """Rows here, in their order; next, the places there of the same variants, and where the other allele is counted."""
    places_there: Matrix
    swapped: Matrix
    left_out: int = 0
    """Number of further matches if ambiguous ones were used."""
    by_names: bool = False
    """True if matched by names though both have places."""


def _matched(reference: Reference, genotypes: Genotypes, ambiguous: bool) -> _Matches:
    names_there, names_here = _names(reference.variants), _names(genotypes.variants)
    both = [name for name in names_there if name in names_here]
    if not both:
        n = len(reference.loadings)
        if genotypes.n_variants != reference.n_variants:
            raise BadInputError(
                "Variants have neither names nor places by which to find them again, and there are "
                f"{genotypes.n_variants}, not {reference.n_variants} as those of the reference."
            )
        return _Matches(reference.rows, np.arange(n), np.zeros(n, bool))
    found: list[_Matches] = []
    for by in both:
        found.append(_matched_by(by, names_there[by], names_here[by], reference, genotypes, ambiguous))
        if _FAR_MORE * len(found[0].rows) >= len(reference.loadings):
            break
    if len(found[-1].rows) > _FAR_MORE * len(found[0].rows):
        return found[-1]._replace(by_names=True)
    return found[0]


def _matched_by(
    by: str,
    names_there: list[Any],
    names_here: list[Any],
    reference: Reference,
    genotypes: Genotypes,
    ambiguous: bool,
) -> _Matches:
    theirs_all = reference.variants
    alleles = _completed(names_here, genotypes.variants.alleles, names_there, theirs_all.alleles)
    if by == "places":
        names_there = _with_alleles(names_there, theirs_all.alleles)
        names_here = _with_alleles(names_here, alleles)
    place = {name: i for i, name in enumerate(names_there)}
    if by == "names":
        # A name of several variants, such as '.', identifies none.
        numbers = Counter(names_there), Counter(names_here)
        place = {name: i for name, i in place.items() if all(each[name] == 1 for each in numbers)}
    pairs = [(row, place[name]) for row, name in enumerate(names_here) if name in place]
    rows, places_there = np.array(pairs, np.int64).reshape(-1, 2).T
    _, first = np.unique(places_there, return_index=True)
    first = np.sort(first)
    rows, places_there = rows[first], places_there[first]
    if theirs_all.alleles is None or alleles is None:
        return _Matches(rows, places_there, np.zeros(len(rows), bool))
    ours, theirs = alleles[rows], theirs_all.alleles[places_there]
    same, swapped = (ours == theirs).all(axis=1), (ours == theirs[:, ::-1]).all(axis=1)
    fits = same | swapped
    either = _is_ambiguous(ours) & (not ambiguous)
    left_out, fits = int((fits & either).sum()), fits & ~either
    return _Matches(rows[fits], places_there[fits], (swapped & ~same)[fits], left_out)


def _is_ambiguous(alleles: Matrix) -> Matrix:
    """Return a mask of the pairs of alleles that read the same on both strands."""
    return np.isin(np.strings.add(alleles[:, 0], alleles[:, 1]), ("AT", "TA", "CG", "GC"))


def _refuse_other_strand(reference: Reference, places_there: Matrix) -> None:
    """Raise BadInputError if all matches are ambiguous, which those of the other strand are, and others are there."""
    if reference.variants.alleles is None or not len(places_there):
        return
    either = _is_ambiguous(reference.variants.alleles)
    if either[places_there].all() and not either.all():
        raise BadInputError(
            f"All {len(places_there)} variants found have the alleles A and T, or C and G, and none of the other "
            f"{int((~either).sum())} of the reference was found: the genotypes are probably of the other strand, and "
            "the wrong allele would be counted. Bring them to the reference's strand, such as with plink1.9 --flip."
        )


def _completed(names_here: Sequence[Any], here: Any, names_there: Sequence[Any], there: Any) -> Any:
    """Return the alleles here; those that a file lacks because its samples don't have them come from the reference."""
    if here is None or there is None:
        return here
    lacking = np.logical_or.reduce([here == word for word in _NO_ALLELE])
    rows = np.flatnonzero(lacking.any(axis=1)).tolist()
    pairs: dict[Any, set[tuple[str, str]]] = {names_here[row]: set() for row in rows}
    for name, pair in zip(names_there, there.tolist(), strict=True):
        if name in pairs:
            pairs[name].add(tuple(pair))
    completed = here.copy()
    for row in rows:
        present = set(here[row][~lacking[row]])
        fits = [pair for pair in pairs[names_here[row]] if present <= set(pair)]
        if len(fits) == 1:
            ((one, other),) = fits
            completed[row] = [other, one] if here[row, 0] == other or here[row, 1] == one else [one, other]
    return completed


def _with_alleles(names: Sequence[Any], alleles: Any) -> list[Any]:
    return [(*name, frozenset(pair)) for name, pair in zip(names, alleles.tolist(), strict=True)]


def _names(variants: Variants) -> dict[str, list[Any]]:
    """Return the identifiers by which variants may be found, the surest first; positions need alleles with them."""
    names: dict[str, list[Any]] = {}
    if variants.contig is not None and variants.position is not None and variants.alleles is not None:
        contigs = [choosing.chromosome(str(name)) for name in variants.contig.tolist()]
        names["places"] = list(zip(contigs, np.asarray(variants.position).tolist(), strict=True))
    if variants.id is not None:
        names["names"] = variants.id.tolist()
    return names
