"""Kinship of samples: KING-robust kinship of all pairs, by the bits of packed blocks.

References
----------
Manichaikul, Mychaleckyj, Rich, Daly, Sale, Chen: Robust relationship inference in genome-wide association studies.
Bioinformatics 26, 2010; equation 11. PLINK 2 computes the same (`--make-king-table`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import dask
import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes import bits, choosing, kernels
from workbench.genotypes.operator import blocked
from workbench.genotypes.reading import as_genotypes
from workbench.genotypes.scaling import Rule
from workbench.genotypes.values import IN_FAMILY
from workbench.linalg import arguments
from workbench.linalg.gpu import host
from workbench.sent_code import everywhere

Matrix = np.ndarray[Any, Any]

DEGREES = ("the same or twins", "first", "second", "third")
_BOUNDS = tuple(2 ** -(degree + 1.5) for degree in range(4))
"""Geometric means of the kinship expected of neighboring degrees, as KING has them: 0.354, 0.177, 0.0884, 0.0442."""

SECOND = _BOUNDS[2]

# Samples of a tile: four counts for all pairs take 32 MiB.
TILE = 1024


@dataclass(frozen=True, eq=False)
class Relatedness:
    """Pairs of samples whose kinship is at least the cutoff, the closest first."""

    samples: Matrix
    cutoff: float
    pairs: Matrix
    """Indices of both in `samples`: (pairs, 2)."""
    kinship: Matrix
    known: Matrix
    """Number of variants in which both are known; next, the shares where both are heterozygous, or share no allele."""
    hethet: Matrix
    ibs0: Matrix
    n_variants: int
    """Variants that took part."""
    sample_table: Mapping[str, Matrix] = field(default_factory=dict)
    """Further columns on the samples, as `Genotypes` has them."""

    @property
    def degree(self) -> Matrix:
        """0 for the same person or twins, 1 for parents, children and siblings, up to 3; 4 for none of these."""
        return np.searchsorted(-np.array(_BOUNDS), -self.kinship, side="left")

    @property
    def remove(self) -> Matrix:
        """Names of samples to remove until no pair is left: repeatedly the one with most relatives, the later one."""
        return np.asarray(self.samples)[self._removed]

    @property
    def families(self) -> dict[str, Matrix]:
        """Families of the samples to remove and their names there, as PLINK calls both; empty without families."""
        table = self.sample_table
        if "family" not in table:
            return {}
        return {"FID": table["family"][self._removed], "IID": table.get(IN_FAMILY, self.samples)[self._removed]}

    @cached_property
    def _removed(self) -> list[int]:
        remaining, removed = self.pairs, []
        while len(remaining):
            relatives = np.bincount(remaining.ravel(), minlength=len(self.samples))
            most = len(relatives) - 1 - int(relatives[::-1].argmax())
            removed.append(most)
            remaining = remaining[(remaining != most).all(axis=1)]
        return sorted(removed)

    def table(self) -> dict[str, Matrix]:
        """Return columns of the pairs by name, for `pandas.DataFrame` and others."""
        names = np.asarray(self.samples)
        return {
            "sample_1": names[self.pairs[:, 0]],
            "sample_2": names[self.pairs[:, 1]],
            "kinship": self.kinship,
            "degree": self.degree,
            "known": self.known,
            "hethet": self.hethet,
            "ibs0": self.ibs0,
        }

    def __repr__(self) -> str:
        return (
            f"Relatedness({len(self.pairs)} pairs of {len(self.samples)} samples have a kinship of {self.cutoff:.3g} "
            f"or more, {len(self.remove)} samples to remove)"
        )


def kinship(
    source: Any,
    cutoff: float = SECOND,
    *,
    maf: float = 0.0,
    max_missing: float = 1.0,
    hwe: float = 0.0,
    keep_samples: choosing.Names | None = None,
    remove: choosing.Names | None = None,
    leave_out: choosing.Regions | None = None,
    autosomes_only: bool = False,
    kept: Any = None,
) -> Relatedness:
    """Compute KING-robust kinship of all pairs, and keep the pairs of at least `cutoff`.

    Each pair is counted over the variants where both are known. The workers hold planes of a quarter of a byte for
    each genotype, and twice that while they are made; a task uses at most those of 2048 samples, and 64 MiB for counts.
    Variants needn't be pruned. Those on X, Y and mitochondria are left out, as in PLINK: they mislead.

    Parameters
    ----------
    source, maf, max_missing, hwe, keep_samples, remove, leave_out, autosomes_only, kept
        As in `pca`.
    cutoff
        Least kinship; by default 0.0884, between second and third degree. -inf lists all pairs.

    Raises
    ------
    BadInputError
        There is one sample, or kinship can't be computed for any pair, or all variants are on X, Y and mitochondria.
    """
    if not isinstance(cutoff, arguments.REAL) or not cutoff <= 0.5:
        raise BadInputError(f"cutoff is a kinship of at most 0.5, such as 0.0884 for second degree, not {cutoff!r}.")
    rule = Rule("center", maf, max_missing, hwe) if maf or max_missing < 1 or hwe else None
    genotypes = choosing.of_chosen_samples(as_genotypes(source), keep_samples, remove)
    genotypes = choosing.of_chosen_variants(genotypes, kept=kept, autosomes_only=autosomes_only, leave_out=leave_out)
    genotypes = choosing.of_diploid_variants(genotypes)
    n = genotypes.n_samples
    if n < 2:
        raise BadInputError(f"Samples are related to each other, and there are fewer than two ({n}): give two or more.")
    everywhere(bits.warm_up)
    tiles = [slice(start, min(start + TILE, n)) for start, _ in pairwise([*range(0, n, TILE), n])]
    turned = dask.delayed(_Turning(n, rule), pure=True)
    blocks = [turned(block) for block in blocked(genotypes).to_delayed()[:, 0]]
    planes = [dask.delayed(_joined)(blocks, tile) for tile in tiles]
    related, least = dask.delayed(_related), float(cutoff)
    tasks = [
        related(planes[i], None if i == j else planes[j], (tiles[i].start, tiles[j].start), least)
        for i in range(len(tiles))
        for j in range(i, len(tiles))
    ]
    tables, rows = dask.compute(tasks, [block[1] for block in blocks])
    if not sum(count for *_, count in tables):
        raise BadInputError(
            f"Kinship can't be computed of the {sum(rows)} variants that take part: no two samples are known in the "
            "same ones and heterozygous in some. Leave out fewer variants, or samples in which little is known."
        )
    pairs, numbers = (np.concatenate([table[k] for table in tables]) for k in (0, 1))
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -numbers[:, 0]))
    pairs, (phi, known, hethet, ibs0) = pairs[order], numbers[order].T
    counts = (known.astype(np.int64), hethet, ibs0, sum(rows))
    return Relatedness(genotypes.samples, float(cutoff), pairs, phi, *counts, genotypes.sample_table)


@dataclass(frozen=True, slots=True)
class _Turning:
    """The task of a block: its bits by sample, of the sites that the rule keeps, and their number."""

    n_samples: int
    rule: Rule | None

    def __call__(self, packed: Any) -> tuple[Matrix, int]:
        packed = host(packed)
        if self.rule is not None:
            packed = packed[self.rule.verdict(kernels.counted(packed, self.n_samples)) == 0]
        return bits.by_sample(packed, self.n_samples), len(packed)


def _joined(blocks: Sequence[tuple[Matrix, int]], samples: slice) -> Matrix:
    """Return the planes of some samples in all variants."""
    return bits.joined([planes[samples] for planes, _ in blocks])


def _related(left: Matrix, other: Matrix | None, starts: tuple[int, int], cutoff: float) -> tuple[Matrix, Matrix, int]:
    """Return pairs of two tiles of samples: kinship, variants known, both kinds of shares, and the number of pairs."""
    right = left if other is None else other
    hethet, ibs0, het, other_het = bits.pairs(left, right, other is None)
    least = np.minimum(het, other_het)
    with np.errstate(divide="ignore", invalid="ignore"):
        phi = 0.5 - (het + other_het - 2 * hethet + 4 * ibs0) / (4 * least)
    computable = least > 0
    if other is None:
        computable &= np.arange(len(left))[:, None] < np.arange(len(left))
    related = (phi >= cutoff) & computable
    i, j = np.nonzero(related)
    known = bits.known_together(left[i], right[j])
    numbers = [phi[i, j], known, hethet[i, j] / known, ibs0[i, j] / known]
    return np.stack([i + starts[0], j + starts[1]], axis=1), np.stack(numbers, axis=1), int(computable.sum())
