"""Linked variants are thinned out: of two that vary together within a window, the later one is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import dask
import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes import kernels
from workbench.genotypes.coding import COUNTS, MISSING
from workbench.genotypes.operator import blocked
from workbench.genotypes.packing import unpack
from workbench.genotypes.scaling import Rule
from workbench.genotypes.values import Genotypes
from workbench.linalg import asked
from workbench.linalg.blas import one_thread
from workbench.linalg.blocks import host, namespace

Matrix = np.ndarray[Any, Any]

# Rows that are compared at a time with all that are in reach.
ROWS = 256
# Sums of products of counts are whole numbers, and exact in float32 up to 2²⁴.
EXACT_SAMPLES = 2**22
# Longer than any genome, and small enough that places can be added to it.
_FAR = 2**60


def ld_prune(
    source: Any,
    window: int,
    r2: float = 0.2,
    *,
    step: int | None = None,
    unit: Literal["variants", "bp"] = "variants",
    kept: Matrix | None = None,
    rule: Rule | None = None,
) -> Matrix:
    """A mask of the variants that stay when linked ones are thinned out, as sgkit's `ld_prune` does.

    From the first variant on, each that is still there removes the later ones of its window whose squared correlation
    with it is at least `r2` (Rogers and Huff 2008: of the counts, over the samples where both are known).

    Parameters
    ----------
    source
        As `pca` takes it.
    window
        Its size, in variants or in base pairs. No window reaches into another contig.
    r2
        Squared correlation from which on two variants count as linked, above 0 and up to 1.
    step
        From one window's start to the next; None is `window`: windows side by side. With 1 every pair that is closer
        than `window` is compared.
    unit
        "variants", or "bp", for which variants need positions.
    kept, rule
        Variants that `kept` or `rule` leave out take no part and are not in the mask, but count towards windows.

    Returns
    -------
    (n_variants,) array of bool

    Raises
    ------
    BadInputError
        A parameter is out of its bounds, or positions are needed and are missing or out of order.
    """
    from workbench.genotypes.pca import as_genotypes, as_mask

    genotypes = as_genotypes(source)
    reach = _reach(genotypes, window, window if step is None else step, unit)
    if not isinstance(r2, asked.REAL) or not 0 < r2 <= 1:
        raise BadInputError(f"r2 is a squared correlation above 0 and up to 1, not {r2!r}.")
    mask = as_mask(kept, genotypes)
    allowed = np.ones(genotypes.n_variants, bool) if mask is None else mask
    with one_thread():
        found = dask.compute(*_tasks(genotypes, reach, r2, allowed, rule))
    stays = np.concatenate([allowed[:0], *(mask for mask, _ in found)])
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *(each for _, each in found)])
    return stays & ~_lost(pairs[stays[pairs[:, 1]]], len(stays))


def _lost(pairs: Matrix, n: int) -> Matrix:
    """Which lose, where pairs are sorted by their first."""
    lost = np.zeros(n, bool)
    firsts, starts = np.unique(pairs[:, 0], return_index=True)
    for first, (start, stop) in zip(firsts, pairwise([*starts, len(pairs)]), strict=True):
        if not lost[first]:
            lost[pairs[start:stop, 1]] = True
    return lost


def _reach(genotypes: Genotypes, window: int, step: int, unit: str) -> Matrix:
    """For each variant the end of the rows that it is compared with: of the last window that has begun there."""
    window, step = (min(asked.whole(name, n, str(unit)), _FAR) for name, n in (("window", window), ("step", step)))
    contigs, positions = genotypes.variants.contig, genotypes.variants.position
    if unit not in ("variants", "bp"):
        raise BadInputError(f"Unknown unit {unit!r}. Choose one of: variants, bp.")
    if unit == "bp" and positions is None:
        raise BadInputError("Windows in base pairs need positions, which these variants lack: use unit='variants'.")
    n = genotypes.n_variants
    names = np.zeros(n) if contigs is None else np.asarray(contigs)
    edges = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), n]
    reach = np.empty(n, np.int64)
    for start, stop in pairwise(edges):
        if positions is None or unit == "variants":
            begun = np.arange(stop - start) // step * step
            reach[start:stop] = np.minimum(start + begun + window, stop)
        elif stop > start:
            reach[start:stop] = start + _reach_in_base_pairs(np.asarray(positions[start:stop]), window, step)
    # What lies between windows is compared with none.
    return np.maximum(reach, np.arange(1, n + 1))


def _reach_in_base_pairs(places: Matrix, window: int, step: int) -> Matrix:
    if (np.diff(places) < 0).any():
        raise BadInputError("Windows in base pairs need variants in the order of their positions within each contig.")
    last = max(0, -(-int(places[-1]) // step) - 1)
    return np.searchsorted(places, np.minimum(places // step, last) * step + window)


def _tasks(genotypes: Genotypes, reach: Matrix, r2: float, allowed: Matrix, rule: Rule | None) -> list[Any]:
    """One for each block, given the following blocks as far as it reaches."""
    packed = blocked(genotypes)
    parts = packed.to_delayed()[:, 0]
    edges = np.cumsum([0, *packed.chunks[0]])
    task = dask.delayed(_Comparing(genotypes.n_samples, r2, rule), pure=True)
    found = []
    for i, (start, stop) in enumerate(pairwise(edges)):
        if stop > start:
            ends = reach[start:stop]
            last = int(np.searchsorted(edges, ends.max()))
            found.append(task(list(parts[i:last]), ends - start, allowed[start:stop], int(start)))
    return found


@dataclass(frozen=True, slots=True)
class _Comparing:
    """The task for a block: which of its rows take part, and the pairs (i, j), i < j, that are linked."""

    n_samples: int
    r2: float
    rule: Rule | None

    def __call__(self, blocks: Sequence[Any], ends: Matrix, allowed: Matrix, first: int) -> tuple[Matrix, Matrix]:
        packed = blocks[0] if len(blocks) == 1 else namespace(blocks[0]).concatenate(blocks)[: ends.max()]
        stays = allowed.copy()
        if self.rule is not None:
            stays &= self.rule.verdict(kernels.counted(blocks[0], self.n_samples)) == 0
        pairs = [np.zeros((0, 2), np.int64)]
        for start in range(0, len(ends), ROWS):
            stop = min(start + ROWS, len(ends))
            linked = self._linked(packed[start : ends[start:stop].max()], stop - start)
            row, column = np.arange(start, stop)[:, None], np.arange(start, start + linked.shape[1])
            linked &= (column > row) & (column < ends[start:stop, None]) & stays[start:stop, None]
            pairs.append(np.argwhere(linked) + np.int64(start + first))
        return stays, np.concatenate(pairs)

    def _linked(self, packed: Any, rows: int) -> Matrix:
        """Whether r² of each of the first rows with every row reaches the threshold."""
        xp = namespace(packed)
        counts = unpack(packed, self.n_samples, COUNTS)
        unknown = counts == MISSING
        dtype = np.float32 if self.n_samples <= EXACT_SAMPLES else np.float64
        x = xp.where(unknown, 0, counts).astype(dtype)
        known = (~unknown).astype(dtype)
        few, few_known = x[:rows], known[:rows]
        n, product = few_known @ known.T, few @ x.T
        sums, others = few @ known.T, few_known @ x.T
        squares, others_squares = few**2 @ known.T, few_known @ (x**2).T
        n, product, sums, others, squares, others_squares = (
            host(each).astype(np.float64) for each in (n, product, sums, others, squares, others_squares)
        )
        # Whole numbers until here, so that what has no variance is seen exactly.
        covariance = n * product - sums * others
        variances = (n * squares - sums**2) * (n * others_squares - others**2)
        return (variances > 0) & (covariance**2 >= self.r2 * variances)
