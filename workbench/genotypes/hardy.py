"""Whether the genotypes of a site are as frequent as its alleles make them: the exact test of Hardy and Weinberg's law.

References
----------
Wigginton, Cutler, Abecasis: A note on exact tests of Hardy-Weinberg equilibrium. American Journal of Human Genetics 76,
2005. Graffelman, Moreno: The mid p-value in exact tests for Hardy-Weinberg equilibrium. Stat. Appl. Genet. Mol. Biol.
12, 2013.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]

# Probabilities that differ by less of themselves are equal, and differ by rounding alone.
_EQUAL = 1e-8
# Terms below this part of their sum no longer change it.
_NOTHING = 1e-17
# Steps after which sums that are complete are set aside.
_STEPS = 32


def exact_p(counts: Matrix, *, mid: bool = False) -> Matrix:
    """The p of each site: how likely a number of heterozygotes is that is no more likely than the one there.

    `counts` holds the samples with 0, 1 and 2 copies, of shape (sites, 3 or more). With `mid` what is as likely as the
    one there counts half. Where nothing is known, p is 1.
    """
    hets = counts[:, 1].astype(np.int64)
    rare = 2 * np.minimum(counts[:, 0], counts[:, 2]).astype(np.int64) + hets
    n = (counts[:, 0] + counts[:, 1] + counts[:, 2]).astype(np.int64)
    common = 2 * n - rare
    chance = _Chance(rare, common, _log_factorials(int(2 * n.max(initial=1)).bit_length()))
    # The chance of h + 2 heterozygotes is more than that of h up to here (from the ratio of the two).
    rising = (rare * common - 2.0) / (2 * n + 3.0)
    top = np.maximum(0, np.floor(rising).astype(np.int64) + 1)
    top += (top - rare) % 2
    top = np.minimum(top, rare)
    here = chance(hets)
    left = hets < top
    other = _beyond(chance, top, np.where(left, 1, -1), here + _EQUAL)
    there = (other >= 0) & (other <= rare)
    lower, upper = np.where(left, hets, other), np.where(left, other, hets)
    p = chance.tail(lower, -1, ~left & ~there) + chance.tail(upper, 1, left & ~there)
    certain = (hets == top) | (n == 0)
    p = np.where(certain, 1.0, np.minimum(p, 1.0))
    if mid:
        other = np.where(hets == top, top - 2, other)
        there = (other >= 0) & (other <= rare)
        tied = there & (np.abs(chance(np.where(there, other, hets)) - here) <= _EQUAL)
        p = np.where(n == 0, 1.0, p - 0.5 * np.exp(here) * (1 + tied))
    return p


@lru_cache(maxsize=4)
def _log_factorials(bits: int) -> Matrix:
    # Where NumPy has longer numbers, what rounding adds up to over a million terms stays out of the sixteenth digit.
    return np.cumsum(np.log(np.maximum(1, np.arange(2**bits + 1)), dtype=np.longdouble)).astype(np.float64)


class _Chance:
    """How likely each number of heterozygotes is, given how often either allele is there: as a logarithm."""

    def __init__(self, rare: Matrix, common: Matrix, factorials: Matrix) -> None:
        self.rare, self.common, self.factorials = rare, common, factorials
        self.constant = (
            factorials[(rare + common) // 2] + factorials[rare] + factorials[common] - factorials[rare + common]
        )

    def __call__(self, hets: Matrix) -> Matrix:
        f = self.factorials
        other = f[(self.rare - hets) // 2] + f[hets] + f[(self.common - hets) // 2]
        found: Matrix = self.constant + hets * np.log(2.0) - other
        return found

    def tail(self, hets: Matrix, step: int, nothing: Matrix) -> Matrix:
        """The sum over `hets` and all that lie beyond, downwards or upwards; 0 where there is `nothing`."""
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
            more = term > _NOTHING * sums
            total[open_] = sums
            open_, h, rare, common, sums, term = (each[more] for each in (open_, h, rare, common, sums, term))
        return total


def _beyond(chance: _Chance, top: Matrix, direction: Matrix, level: Matrix) -> Matrix:
    """The first number from the likeliest on, upwards or downwards, that is no likelier than `level`.

    One past the last where there is none: chances only fall from the likeliest on, so halving finds it.
    """
    low = np.zeros_like(top)
    high = np.where(direction > 0, (chance.rare - top) // 2, top // 2) + 1
    last = high - 1
    while (low < high).any():
        middle = (low + high) // 2
        found = (chance(top + 2 * direction * np.minimum(middle, last)) <= level) | (middle > last)
        low, high = np.where(found, low, middle + 1), np.where(found, middle, high)
        low = np.minimum(low, high)
    return top + 2 * direction * low
