"""Conventions for centering and scaling sites before a PCA, and for excluding sites.

With μ the mean count of a site over the samples where it is known, and p = μ / 2 the allele's frequency, a site's row
becomes f (x − μ), and 0 where x is missing, as for the site's mean.

References
----------
Patterson, Price, Reich: Population structure and eigenanalysis. PLoS Genetics 2 (12), e190, 2006. No factor 2.
Hail, `hwe_normalized_pca`; PLINK 2 and GCTA, the variance-standardized relationship matrix.
Wigginton, Cutler, Abecasis: A note on exact tests of Hardy-Weinberg equilibrium. American Journal of Human Genetics 76,
2005. Graffelman, Moreno: The mid p-value in exact tests for Hardy-Weinberg equilibrium. Stat. Appl. Genet. Mol. Biol.
12, 2013.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from workbench.errors import BadInputError
from workbench.linalg import arguments

Matrix = np.ndarray[Any, Any]
Scaler = Literal["patterson", "hail", "plink", "standard", "center"]

KEPT = "kept"
REASONS = (
    KEPT,
    "all missing",
    "monomorphic",
    "constant",
    "rare",
    "often missing",
    "out of equilibrium",
    "linked",
    "not autosomal",
    "in a region left out",
    "not asked for",
)
"""Reasons for leaving out a site, by the number that `Rule.verdict` returns; the first that applies counts."""

# Probabilities with a smaller relative difference count as equal: it is rounding.
_EQUAL = 1e-8
# Terms with a smaller share of their sum no longer change it.
_NOTHING = 1e-17
# Steps after which complete sums are removed from the arrays.
_STEPS = 32


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule that selects and scales the sites of a PCA."""

    scaler: Scaler = "patterson"
    maf: float = 0.0
    """The rarer allele's least frequency."""
    max_missing: float = 1.0
    """The largest part of samples in which a site may be unknown."""
    hwe: float = 0.0
    """The least p of the exact test of Hardy-Weinberg equilibrium."""

    def __post_init__(self) -> None:
        if self.scaler not in get_args(Scaler):
            known = ", ".join(get_args(Scaler))
            raise BadInputError(f"Unknown scaler {self.scaler!r}. Choose one of: {known}; None means center.")
        if not isinstance(self.maf, arguments.REAL) or not 0 <= self.maf <= 0.5:
            raise BadInputError(f"maf is the frequency of the rarer allele, from 0 to 0.5, not {self.maf!r}.")
        if not isinstance(self.max_missing, arguments.REAL) or not 0 <= self.max_missing <= 1:
            raise BadInputError(f"max_missing is a part of the samples, from 0 to 1, not {self.max_missing!r}.")
        if not isinstance(self.hwe, arguments.REAL) or not 0 <= self.hwe < 1:
            raise BadInputError(f"hwe is the least p of the exact test, from 0 to below 1, not {self.hwe!r}.")

    def verdict(self, counts: Matrix, not_diploid: Matrix | None = None) -> Matrix:
        """Return for each site the index in `REASONS` of the reason to leave it out, 0 for those that stay.

        `counts` holds the samples with 0, 1 and 2 copies and those that are missing, of shape (sites, 4). `not_diploid`
        is a mask of the sites to which the test of Hardy-Weinberg equilibrium doesn't apply.
        """
        known = _known(counts)
        p = _mean(counts) / 2
        absent = counts[:, 3] > self.max_missing * (known + counts[:, 3])
        constant = (counts[:, 1] == known) & (self.scaler == "standard")
        rare = np.minimum(p, 1 - p) < self.maf
        unlikely = exact_p(counts) < self.hwe if self.hwe else np.zeros(len(counts), bool)
        if not_diploid is not None:
            unlikely &= ~not_diploid
        tests = (known == 0, (p == 0) | (p == 1), constant, rare, absent, unlikely)
        return np.select(tests, range(1, 1 + len(tests)), 0).astype(np.uint8)

    def sites(self, counts: Matrix, stays: Matrix | None = None) -> Matrix:
        """Return each site's mean, factor and missing values, of shape (sites, 3); factor 0 means left out.

        `stays` is a mask of those that take part, by default those that `verdict` keeps.
        """
        mean = _mean(counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = _FACTORS[self.scaler](mean / 2, counts)
        if stays is None:
            stays = self.verdict(counts) == 0
        return np.stack([mean, np.where(stays, factor, 0.0), counts[:, 3].astype(float)], axis=1)


def _known(counts: Matrix) -> Matrix:
    known: Matrix = counts[:, 0] + counts[:, 1] + counts[:, 2]  # NumPy adds along so short an axis far slower
    return known


def _mean(counts: Matrix) -> Matrix:
    known = _known(counts)
    mean: Matrix = (counts[:, 1] + 2.0 * counts[:, 2]) / np.maximum(known, 1)
    return mean


def _squares(counts: Matrix) -> Matrix:
    """Return each site's Σ (x − μ)², without the cancellation of the shorter formula."""
    mean = _mean(counts)
    squares: Matrix = counts[:, 0] * mean**2 + counts[:, 1] * (1 - mean) ** 2 + counts[:, 2] * (2 - mean) ** 2
    return squares


def squares(counts: Matrix, sites: Matrix) -> float:
    """Return ‖Ã‖²_F of the centered and scaled matrix, exact but for rounding: the sum of all its eigenvalues."""
    return float((_squares(counts) * sites[:, 1] ** 2).sum())


_FACTORS: Mapping[Scaler, Callable[[Matrix, Matrix], Matrix]] = {
    "patterson": lambda p, counts: 1 / np.sqrt(p * (1 - p)),
    "hail": lambda p, counts: 1 / np.sqrt(2 * p * (1 - p)),
    "plink": lambda p, counts: 1 / np.sqrt(2 * p * (1 - p)),
    "standard": lambda p, counts: 1 / np.sqrt(_squares(counts) / _known(counts)),
    "center": lambda p, counts: np.ones_like(p),
}


def factor_of(scaler: Scaler, mean: Matrix) -> Matrix:
    """Return the factors for sites of these mean counts; "standard" takes more than a mean."""
    return _FACTORS[scaler](mean / 2, np.empty((0, 4)))


@dataclass(frozen=True, slots=True)
class Convention:
    """Meaning of a scaler's numbers, and the factor between them and Patterson's."""

    by_variants: bool
    """True if the matrix is also divided by √m, of the m sites kept."""
    unit_scores: bool
    """True if scores are the singular vectors themselves, of length 1."""
    eigenvalues: bool
    """True if a component's variance is σ², and not σ² over the number of samples."""
    sentence: str


CONVENTIONS: Mapping[Scaler, Convention] = {
    "patterson": Convention(
        False,
        False,
        False,
        "Patterson's: each site is (x − 2p) / √(p(1 − p)), as in scikit-allel and sgkit. Scores are U·S, variances are "
        "S² / n for n samples. Singular values are √(2m) times Hail's for m sites kept, eigenvalues 2m times. The same "
        "holds for PLINK's where no genotype is missing, with monomorphic sites counted in m. Missing ones make its "
        "eigenvalues larger: it divides each pair of samples by the sites known in both, while here a missing genotype "
        "counts as the site's mean.",
    ),
    "hail": Convention(
        True,
        False,
        True,
        "Hail's (HWE): each site is (x − 2p) / √(2p(1 − p)m) for m sites kept. Scores are U·S, variances are the "
        "eigenvalues S². Patterson's singular values are √(2m) times these, eigenvalues 2m times.",
    ),
    "plink": Convention(
        True,
        True,
        True,
        "PLINK's: each site is (x − 2p) / √(2p(1 − p)m) for m sites kept. Scores are U, of length 1, variances are the "
        "eigenvalues of the relationship matrix, 1 / (2m) of Patterson's. PLINK itself takes autosomes alone, as "
        "autosomes_only does: of one real panel the third component is that of PLINK to |cos| 0.9999 so, to 0.929 with "
        "the other chromosomes. It divides each pair of samples by the sites that both have, monomorphic ones among "
        "them: its eigenvalues are m / (m + monomorphic) of these and, where a share q of the values is missing, "
        "1 / (1 - q) to 1 / (1 - q)² times these: 2.5 to 5 % more for q = 0.024.",
    ),
    "standard": Convention(
        False,
        False,
        False,
        "Standardised: each site is (x − μ) over its own standard deviation. Scores are U·S, variances are S² / n for "
        "n samples. There is no fixed factor to Patterson's.",
    ),
    "center": Convention(
        False,
        False,
        False,
        "Centred only: each site is x − μ. Scores are U·S, variances are S² / n for n samples. There is no fixed "
        "factor to Patterson's, which weighs rare alleles more.",
    ),
}


# --- Hardy-Weinberg equilibrium ---------------------------------------------------------------------------------------


def exact_p(counts: Matrix, *, mid: bool = False) -> Matrix:
    """Return the p of each site: the probability of a number of heterozygotes at most as likely as the observed one.

    `counts` holds the samples with 0, 1 and 2 copies, of shape (sites, 3 or more). With `mid` outcomes as likely as the
    observed one count half. Where nothing is known, p is 1.
    """
    hets = counts[:, 1].astype(np.int64)
    rare = 2 * np.minimum(counts[:, 0], counts[:, 2]).astype(np.int64) + hets
    n = (counts[:, 0] + counts[:, 1] + counts[:, 2]).astype(np.int64)
    common = 2 * n - rare
    chance = _Chance(rare, common, _log_factorials(int(2 * n.max(initial=1)).bit_length()))
    # Up to here h + 2 heterozygotes are more probable than h (by the ratio of the two).
    rising = (rare * common - 2.0) / (2 * n + 3.0)
    top = np.maximum(0, np.floor(rising).astype(np.int64) + 1)
    top += (top - rare) % 2
    top = np.minimum(top, rare)
    observed = chance(hets)
    left = hets < top
    other = _beyond(chance, top, np.where(left, 1, -1), observed + _EQUAL)
    is_rarer = (other >= 0) & (other <= rare)
    lower, upper = np.where(left, hets, other), np.where(left, other, hets)
    p = chance.tail(lower, -1, ~left & ~is_rarer) + chance.tail(upper, 1, left & ~is_rarer)
    certain = (hets == top) | (n == 0)
    p = np.where(certain, 1.0, np.minimum(p, 1.0))
    if mid:
        other = np.where(hets == top, top - 2, other)
        is_rarer = (other >= 0) & (other <= rare)
        tied = is_rarer & (np.abs(chance(np.where(is_rarer, other, hets)) - observed) <= _EQUAL)
        p = np.where(n == 0, 1.0, p - 0.5 * np.exp(observed) * (1 + tied))
    return p


@lru_cache(maxsize=4)
def _log_factorials(bits: int) -> Matrix:
    # With longdouble, rounding errors of a million terms don't reach the sixteenth digit.
    return np.cumsum(np.log(np.maximum(1, np.arange(2**bits + 1)), dtype=np.longdouble)).astype(np.float64)


class _Chance:
    """Log probability of each number of heterozygotes, given the counts of both alleles."""

    def __init__(self, rare: Matrix, common: Matrix, factorials: Matrix) -> None:
        self.rare, self.common, self.factorials = rare, common, factorials
        self.constant = (
            factorials[(rare + common) // 2] + factorials[rare] + factorials[common] - factorials[rare + common]
        )

    def __call__(self, hets: Matrix) -> Matrix:
        f = self.factorials
        other = f[(self.rare - hets) // 2] + f[hets] + f[(self.common - hets) // 2]
        logarithm: Matrix = self.constant + hets * np.log(2.0) - other
        return logarithm

    def tail(self, hets: Matrix, step: int, nothing: Matrix) -> Matrix:
        """Return the sum over `hets` and all that lie beyond, downwards or upwards; 0 where there is `nothing`."""
        total = np.where(nothing, 0.0, np.exp(self(np.clip(hets, 0, self.rare))))
        (open_,) = np.nonzero(total)
        h, rare, common = (each[open_].astype(float) for each in (hets, self.rare, self.common))
        sums = total[open_]
        term = sums.copy()
        while open_.size:
            for _ in range(_STEPS):
                if step < 0:
                    term = term * (h * (h - 1) / ((rare - h + 2) * (common - h + 2)))
                else:
                    term = term * ((rare - h) * (common - h) / ((h + 2) * (h + 1)))
                h = h + 2 * step
                sums += term
            growing = term > _NOTHING * sums
            total[open_] = sums
            open_, h, rare, common, sums, term = (each[growing] for each in (open_, h, rare, common, sums, term))
        return total


def _beyond(chance: _Chance, top: Matrix, direction: Matrix, level: Matrix) -> Matrix:
    """Return the first number from the likeliest on, upwards or downwards, that is no likelier than `level`.

    One past the last if there is none: probabilities only fall from the likeliest on, so halving finds it.
    """
    low = np.zeros_like(top)
    high = np.where(direction > 0, (chance.rare - top) // 2, top // 2) + 1
    last = high - 1
    while (low < high).any():
        middle = (low + high) // 2
        is_beyond = (chance(top + 2 * direction * np.minimum(middle, last)) <= level) | (middle > last)
        low, high = np.where(is_beyond, low, middle + 1), np.where(is_beyond, middle, high)
        low = np.minimum(low, high)
    return top + 2 * direction * low
