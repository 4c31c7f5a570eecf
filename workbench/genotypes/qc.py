"""Quality control of sites and samples before an analysis: counts, missing values, and improbable ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import dask
import numpy as np

from workbench.genotypes import choosing, kernels
from workbench.genotypes.operator import blocked
from workbench.genotypes.packing import PER_BYTE
from workbench.genotypes.reading import as_genotypes
from workbench.genotypes.scaling import exact_p
from workbench.genotypes.values import Variants
from workbench.linalg.gpu import host
from workbench.sent_code import scheduler

Matrix = np.ndarray[Any, Any]

USUAL: Mapping[str, tuple[float, ...]] = {"missing": (0.02, 0.05, 0.1), "maf": (0.01, 0.05), "hwe": (1e-6, 1e-10)}
"""Thresholds at which variants are commonly left out: missing above, the others below."""

# Rows whose bits are added in bytes before they are added in longer numbers: 3 in two bits, 5 in four, 17 in eight.
_TOGETHER = 3 * 5 * 17
# Partial sums that are added in one task.
_FAN_IN = 8


@dataclass(frozen=True, eq=False)
class Quality:
    """Counts of genotypes by site and by sample, and derived statistics."""

    samples: Matrix
    variants: Variants
    counts: Matrix
    """Counts of samples with 0, 1 and 2 copies and missing ones, of shape (variants, 4)."""
    by_sample: Matrix
    """Counts of variants with 0, 1 and 2 copies and missing ones, of shape (samples, 4)."""
    hwe: Matrix
    """p of the exact test of Hardy-Weinberg equilibrium for each site; 1 where nothing is known.

    NaN on X, Y and mitochondria: the test assumes two copies in each sample."""

    @cached_property
    def missing(self) -> Matrix:
        """Share of the samples in which a site is unknown."""
        return _share(self.counts[:, 3], self.counts.sum(axis=1))

    @cached_property
    def frequency(self) -> Matrix:
        """Frequency of the counted allele; NaN where nothing is known."""
        return _share(self.counts[:, 1] + 2 * self.counts[:, 2], 2 * self.counts[:, :3].sum(axis=1))

    @property
    def maf(self) -> Matrix:
        """Frequency of the rarer allele."""
        return np.minimum(self.frequency, 1 - self.frequency)

    @cached_property
    def sample_missing(self) -> Matrix:
        """Share of the variants in which a sample is unknown."""
        return _share(self.by_sample[:, 3], self.by_sample.sum(axis=1))

    @cached_property
    def sample_het(self) -> Matrix:
        """Share of a sample's known genotypes that are heterozygous."""
        return _share(self.by_sample[:, 1], self.by_sample[:, :3].sum(axis=1))

    def would_go(self) -> dict[str, int]:
        """Return the number of variants that each of the usual thresholds would exclude."""
        kinds = {"missing": ("missing >", self.missing), "maf": ("maf <", self.maf), "hwe": ("hwe p <", self.hwe)}
        counts = {"monomorphic or unknown": int((~(self.maf > 0)).sum())}
        for kind, (words, values) in kinds.items():
            for level in USUAL[kind]:
                over = values > level if kind == "missing" else values < level
                counts[f"{words} {level:g}"] = int(over.sum())
        return counts

    def __repr__(self) -> str:
        return f"Quality({len(self.counts)} variants × {len(self.samples)} samples, would go: {self.would_go()})"


def qc(
    source: Any,
    *,
    keep_samples: choosing.Names | None = None,
    remove: choosing.Names | None = None,
    leave_out: choosing.Regions | None = None,
    autosomes_only: bool = False,
    kept: Any = None,
    mid_p: bool = False,
) -> Quality:
    """Compute missing values, allele counts, equilibrium and heterozygosity, in one pass over packed blocks.

    On X, Y and mitochondria, p of the equilibrium is NaN, and a frequency counts the one copy of males twice.

    Parameters
    ----------
    source, keep_samples, remove, leave_out, autosomes_only, kept
        As in `pca`.
    mid_p
        True gives half weight to outcomes as likely as the observed one, in the exact test.
    """
    genotypes = choosing.of_chosen_samples(as_genotypes(source), keep_samples, remove)
    genotypes = choosing.of_chosen_variants(genotypes, kept=kept, autosomes_only=autosomes_only, leave_out=leave_out)
    task = dask.delayed(_Counting(genotypes.n_samples, mid_p), pure=True)
    parts = [task(block) for block in blocked(genotypes).to_delayed()[:, 0]]
    sites, sums = [part[:2] for part in parts], [part[2] for part in parts]
    while len(sums) > 1:
        sums = [dask.delayed(_added)(sums[i : i + _FAN_IN]) for i in range(0, len(sums), _FAN_IN)]
    tables, totals = dask.compute(sites, sums, scheduler=scheduler())
    p = np.concatenate([np.zeros(0), *(p for _, p in tables)])
    p[choosing.not_diploid(genotypes)] = np.nan
    return Quality(
        genotypes.samples,
        genotypes.variants,
        np.concatenate([np.zeros((0, 4), np.int64), *(counts for counts, _ in tables)]),
        totals[0] if totals else np.zeros((genotypes.n_samples, 4), np.int64),
        p,
    )


@dataclass(frozen=True, slots=True)
class _Counting:
    """The task of a block: counts of its sites, their p, and counts of the samples."""

    n_samples: int
    mid_p: bool

    def __call__(self, packed: Any) -> tuple[Matrix, Matrix, Matrix]:
        packed = host(packed)
        counts = kernels.counted(packed, self.n_samples)
        return counts, exact_p(counts, mid=self.mid_p), by_sample(packed, self.n_samples)


def _added(parts: Sequence[Matrix]) -> Matrix:
    return np.asarray(sum(parts[1:], start=parts[0]))


def by_sample(packed: Matrix, n_samples: int) -> Matrix:
    """Count each sample's rows of a packed block with 0, 1, 2 copies and missing ones: (n_samples, 4)."""
    counts = np.zeros((n_samples, 4), np.int64)
    for start, stop in pairwise([*range(0, len(packed), _TOGETHER), len(packed)]):
        tile = packed[start:stop]
        low, high = tile & 0x55, tile >> 1 & 0x55
        one, two, both = (_down(bits)[:n_samples] for bits in (low, high, low & high))
        counts += np.stack([stop - start - one - two + both, one - both, two - both, both], axis=1)
    return counts


def _down(bits: Matrix) -> Matrix:
    """Count the rows that have each sample's lower bit set, in fields of two, four and eight bits."""
    rows, width = bits.shape
    padded = np.zeros((_TOGETHER, width), np.uint8)
    padded[:rows] = bits
    threes = padded[0::3] + padded[1::3] + padded[2::3]
    totals = np.empty((width, PER_BYTE), np.int64)
    for shift in (0, 1):
        four = np.add.reduce((threes >> 2 * shift & 0x33).reshape(17, 5, width), axis=1, dtype=np.uint8)
        for upper in (0, 1):
            totals[:, shift + 2 * upper] = np.add.reduce(four >> 4 * upper & 0x0F, axis=0, dtype=np.uint8)
    return totals.reshape(-1)


def _share(part: Matrix, whole: Matrix) -> Matrix:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)
