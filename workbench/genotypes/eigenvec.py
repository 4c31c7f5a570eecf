"""Principal components as PLINK 2 writes them, which takes them for covariates, and for projection of other samples.

`plink2 --read-freq X.acount --score X.eigenvec.var 2 3 header-read no-mean-imputation variance-standardize
--score-col-nums 5-14` projects samples; their averages are those of the file X.eigenvec times √eigenvalue / 2.

References
----------
PLINK 2.0, "File format reference" and "Linear scoring".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes.scaling import CONVENTIONS
from workbench.genotypes.values import IN_FAMILY

SUFFIXES = ("eigenvec", "eigenval", "eigenvec.var", "acount")
_ROWS = 100_000
_BY_FREQUENCY = ("patterson", "hail", "plink")
"""Scalers that center and scale sites by p alone, as PLINK does in projections."""


def lines(arrays: Mapping[str, Any]) -> dict[str, Iterator[str]]:
    """Return the lines of each file by its suffix, from the arrays of a `genotype_pca`.

    The file of loadings and that of allele counts are left out where sites have no names or alleles, or are scaled
    as PLINK doesn't. Raises BadInputError if the arrays are not those of a PCA of genotypes.
    """
    if not {"scores", "singular_values"} <= arrays.keys() or "sample" not in arrays["scores"].coords:
        raise BadInputError("PLINK's files hold scores of samples, which genotype_pca has. Save these arrays as .npz.")
    scaler = arrays["scores"].attrs["scaler"]
    files = {"eigenvec": _eigenvec(arrays["scores"]), "eigenval": _eigenval(arrays, scaler)}
    loadings = arrays.get("loadings")
    needed = {"contig", "variant", "other_allele", "counted_allele"}
    if loadings is not None and scaler in _BY_FREQUENCY and needed <= loadings.coords.keys():
        files |= {"eigenvec.var": _loadings(loadings), "acount": _counts(loadings)}
    return files


def _eigenvec(scores: Any) -> Iterator[str]:
    values, coords = np.asarray(scores.data), scores.coords
    # PLINK's vectors have length one, like singular vectors.
    lengths = np.linalg.norm(values[np.isfinite(values).all(axis=1)], axis=0)
    values = values / np.where(lengths > 0, lengths, 1.0)
    family = along(coords, "family")
    names = along(coords, IN_FAMILY if family is not None and IN_FAMILY in coords else "sample")
    yield "\t".join(("#IID" if family is None else "#FID\tIID", *along(coords, "component")))
    for i, row in enumerate(values):
        yield "\t".join((*(() if family is None else (str(family[i]),)), str(names[i]), *map(number, row)))


def _eigenval(arrays: Mapping[str, Any], scaler: Any) -> Iterator[str]:
    squares = np.asarray(arrays["singular_values"].data) ** 2
    if not CONVENTIONS[scaler].by_variants and "loadings" in arrays:
        # Patterson's sites have twice the variance of PLINK's; both variances are means over the sites.
        squares = squares / ((2 if scaler == "patterson" else 1) * arrays["loadings"].data.shape[0])
    yield from map(number, squares)


def _loadings(loadings: Any) -> Iterator[str]:
    contig, names, other, counted, copies, known = (
        along(loadings.coords, name)
        for name in ("contig", "variant", "other_allele", "counted_allele", "copies", "known")
    )
    yield "\t".join(("#CHROM", "ID", "MAJ", "NONMAJ", *along(loadings.coords, "component")))
    # PLINK's loadings have a variance of one over the sites, and belong to the more frequent allele.
    scale = np.sqrt(len(names))
    for start in range(0, len(names), _ROWS):
        values = np.asarray(loadings.data[start : start + _ROWS]) * scale
        for i, row in enumerate(values, start):
            major = copies[i] > known[i]
            alleles = (counted[i], other[i]) if major else (other[i], counted[i])
            yield "\t".join((str(contig[i]), str(names[i]), *alleles, *map(number, row if major else -row)))


def _counts(loadings: Any) -> Iterator[str]:
    columns = ("contig", "variant", "other_allele", "counted_allele", "copies", "known")
    yield "#CHROM\tID\tREF\tALT\tALT_CTS\tOBS_CT"
    for *names, copies, known in zip(*(along(loadings.coords, name) for name in columns), strict=True):
        yield "\t".join((*map(str, names), str(copies), str(2 * known)))


def along(coords: Mapping[str, Any], name: str) -> Any:
    """Return the values of a coordinate; None where there is none."""
    return coords[name].values if name in coords else None


def number(value: float) -> str:
    """Return a number in eight digits."""
    return f"{value:.8g}"
