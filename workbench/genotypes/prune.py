"""Pruning of linked variants: of two that vary together within a window, one is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import dask
import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes import kernels
from workbench.genotypes.choosing import as_mask, not_diploid
from workbench.genotypes.operator import blocked
from workbench.genotypes.packing import MISSING, unpack
from workbench.genotypes.reading import as_genotypes
from workbench.genotypes.scaling import Rule
from workbench.genotypes.values import Genotypes
from workbench.linalg import arguments
from workbench.linalg.gpu import host, namespace
from workbench.linalg.threads import one_thread

Matrix = np.ndarray[Any, Any]

# Rows compared at a time with all rows in their windows.
ROWS = 256
# Sums of products of counts are whole numbers, and exact in float32 up to 2²⁴.
EXACT_SAMPLES = 2**22
# Blocks computed together. Windows that reach beyond a batch read the first blocks of the next one twice.
BATCH = 32
# Longer than any genome, and small enough to add positions to it without overflow.
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
    """Return a mask of the variants that stay when linked ones are thinned out, as sgkit's `ld_prune` does.

    Two variants are linked if their counts have a squared correlation of at least `r2` over the samples where both are
    known (Rogers and Huff 2008). From the first variant on, each remaining one removes the later linked ones of its
    window.

    A block's answer has one bit for each place of its rows' windows, and the answers of `BATCH` blocks are in memory at
    a time: 4 MB for blocks of 8192 variants and windows of 500, whatever is linked.

    Parameters
    ----------
    source
        As in `pca`.
    window
        Size of a window, in variants or in base pairs. No window reaches into another contig.
    r2
        Squared correlation from which on two variants count as linked, above 0 and up to 1.
    step
        Distance between the starts of windows; None is `window`: windows side by side. With 1 every pair that is closer
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
    genotypes = as_genotypes(source)
    if not isinstance(r2, arguments.REAL) or not 0 < r2 <= 1:
        raise BadInputError(f"r2 is a squared correlation above 0 and up to 1, not {r2!r}.")
    mask = as_mask(kept, genotypes)
    allowed = np.ones(genotypes.n_variants, bool) if mask is None else mask
    reach = _ends(*_windows(genotypes, window, step if step is not None else window, unit), genotypes.n_variants)
    stays, lost = np.zeros(genotypes.n_variants, bool), np.zeros(genotypes.n_variants, bool)
    comparing = _Comparing(genotypes.n_samples, r2, rule)
    masks = np.stack([allowed, not_diploid(genotypes)], axis=1)
    with one_thread():
        for first, part, linked in _compared(genotypes, reach, comparing, masks):
            stays[first : first + len(part)] = part
            for i in np.flatnonzero(part & ~lost[first : first + len(part)]) + first:
                # An earlier variant of the block may have removed it.
                if not lost[i]:
                    after = np.unpackbits(linked[i - first], count=reach[i] - i - 1).view(bool)
                    lost[i + 1 : reach[i]] |= after
    return stays & ~lost


def _windows(genotypes: Genotypes, window: int, step: int, unit: str) -> tuple[Matrix, Matrix]:
    """Return start and end of windows, all contigs one after the other."""
    window, step, edges = _limits(genotypes, window, step, unit)
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first, last in pairwise(edges):
        if unit == "variants":
            starts_here = np.arange(0, last - first, step)
            end = np.minimum(starts_here + window, last - first)
        else:
            places = _in_order(np.asarray(genotypes.variants.position)[first:last])
            final = max(0, -(-int(places[-1]) // step) - 1) if len(places) else 0
            numbers, starts_here = np.unique(np.minimum(places // step, final), return_index=True)
            end = np.searchsorted(places, numbers * step + window)
        starts.append(first + starts_here)
        ends.append(first + end)
    return np.concatenate(starts), np.concatenate(ends)


def _ends(starts: Matrix, ends: Matrix, n_variants: int) -> Matrix:
    """Return for each variant the end of the last window that starts at or before it."""
    rows = np.arange(n_variants)
    return np.asarray(np.maximum(ends[np.searchsorted(starts, rows, side="right") - 1], rows + 1))


def _limits(genotypes: Genotypes, window: int, step: int, unit: str) -> tuple[int, int, list[int]]:
    """Return window and step as whole numbers, and the limits of the contigs."""
    window, step = (min(arguments.whole(name, n, str(unit)), _FAR) for name, n in (("window", window), ("step", step)))
    contigs = genotypes.variants.contig
    if unit not in ("variants", "bp"):
        raise BadInputError(f"Unknown unit {unit!r}. Choose one of: variants, bp.")
    if unit == "bp" and genotypes.variants.position is None:
        raise BadInputError("Windows in base pairs need positions, which these variants lack: use unit='variants'.")
    n = genotypes.n_variants
    names = np.zeros(n) if contigs is None else np.asarray(contigs)
    return window, step, [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), n]


def _in_order(places: Matrix) -> Matrix:
    if (np.diff(places) < 0).any():
        raise BadInputError("Windows in base pairs need variants in the order of their positions within each contig.")
    return places


def _compared(
    genotypes: Genotypes, reach: Matrix, comparing: _Comparing, masks: Matrix
) -> Iterator[tuple[int, Matrix, Matrix]]:
    """Yield the first row of each block, and its result of `comparing`, in order."""
    packed = blocked(genotypes)
    parts = packed.to_delayed()[:, 0]
    edges = np.cumsum([0, *packed.chunks[0]])
    task = dask.delayed(comparing, pure=True)
    tasks = []
    for i, (start, stop) in enumerate(pairwise(edges)):
        if stop > start:
            ends = reach[start:stop]
            last = int(np.searchsorted(edges, ends.max()))
            tasks.append((int(start), task(list(parts[i:last]), ends - start, masks[start:stop])))
    for i in range(0, len(tasks), BATCH):
        batch = tasks[i : i + BATCH]
        for (first, _), result in zip(batch, dask.compute(*(task for _, task in batch)), strict=True):
            yield first, *result


@dataclass(frozen=True, slots=True)
class _Comparing:
    """The task for a block, given the following blocks as far as it reaches.

    `masks` are of the rows that may take part, and of those that are `not_diploid`: rows × 2. It returns a mask of the
    rows that take part, and for each row the linked ones among the following, as bits.
    """

    n_samples: int
    r2: float
    rule: Rule | None

    def __call__(self, blocks: Sequence[Any], ends: Matrix, masks: Matrix) -> tuple[Matrix, Matrix]:
        packed = blocks[0] if len(blocks) == 1 else namespace(blocks[0]).concatenate(blocks)[: ends.max()]
        stays, not_diploid = masks.T.copy()
        if self.rule is not None:
            stays &= self.rule.verdict(kernels.counted(blocks[0], self.n_samples), not_diploid) == 0
        rows = np.arange(len(ends))
        packed_links = np.zeros((len(ends), -(-int((ends - rows - 1).max()) // 8)), np.uint8)
        for start in range(0, len(ends), ROWS):
            stop = min(start + ROWS, len(ends))
            linked = self._linked(packed[start : ends[start:stop].max()], stop - start)
            for i in rows[start:stop]:
                after = np.packbits(linked[i - start, i - start + 1 : ends[i] - start])
                packed_links[i, : len(after)] = after
        return stays, packed_links

    def _linked(self, packed: Any, rows: int) -> Matrix:
        """Return a mask of the pairs of the first rows with every row whose r² reaches the threshold."""
        xp = namespace(packed)
        counts = unpack(packed, self.n_samples)
        unknown = counts == MISSING
        dtype = np.float32 if self.n_samples <= EXACT_SAMPLES else np.float64
        x = xp.where(unknown, 0, counts).astype(dtype)
        known = (~unknown).astype(dtype)
        x_here, known_here = x[:rows], known[:rows]
        n, product = known_here @ known.T, x_here @ x.T
        sums, others = x_here @ known.T, known_here @ x.T
        squares, others_squares = x_here**2 @ known.T, known_here @ (x**2).T
        n, product, sums, others, squares, others_squares = (
            host(each).astype(np.float64) for each in (n, product, sums, others, squares, others_squares)
        )
        # These are whole numbers, so a variance of zero is exact.
        covariance = n * product - sums * others
        variances = (n * squares - sums**2) * (n * others_squares - others**2)
        return (variances > 0) & (covariance**2 >= self.r2 * variances)
