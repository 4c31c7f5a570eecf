"""Linked variants are thinned out: of two that vary together within a window, one is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import dask
import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes import bits, kernels
from workbench.genotypes.choosing import as_mask
from workbench.genotypes.operator import blocked
from workbench.genotypes.packing import MISSING, unpack
from workbench.genotypes.reading import as_genotypes
from workbench.genotypes.scaling import Rule
from workbench.genotypes.values import Genotypes
from workbench.linalg import asked
from workbench.linalg.blocks import host, namespace, on_device, one_thread
from workbench.travelling import can_import, everywhere

Matrix = np.ndarray[Any, Any]

Like = Literal["sgkit", "plink"]
# Genotypes compared, from which on compiled loops are worth their start.
_LARGE = 2 * 10**9
# PLINK takes numbers for equal that differ by no more than this part.
_EQUAL = 2.0**-44
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
    like: Like = "sgkit",
    kept: Matrix | None = None,
    rule: Rule | None = None,
) -> Matrix:
    """A mask of the variants that stay when linked ones are thinned out, as sgkit's `ld_prune` or PLINK 2 does.

    Two are linked whose counts have a squared correlation of `r2` over the samples where both are known (Rogers and
    Huff 2008). As sgkit: from the first variant on, each that is still there removes the later ones of its window.

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
    like
        "sgkit", or "plink" for the answer of plink2 --indep-pairwise to the variant: of two linked ones (by more than
        `r2`) that with the rarer allele goes, the later where they are alike; in each window those of its variants
        that a former one hasn't compared take turns until none is linked. What doesn't vary goes, too. Of `unit="bp"`
        windows move by one variant, as PLINK's do. PLINK counts founders alone; here all samples count.
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
    if not isinstance(r2, asked.REAL) or not 0 < r2 <= 1:
        raise BadInputError(f"r2 is a squared correlation above 0 and up to 1, not {r2!r}.")
    mask = as_mask(kept, genotypes)
    allowed = np.ones(genotypes.n_variants, bool) if mask is None else mask
    if like not in get_args(Like):
        raise BadInputError(f"Unknown like {like!r}. Choose one of: {', '.join(get_args(Like))}.")
    step = step if step is not None else 1 if like == "plink" else window
    windows = _windows(genotypes, window, step, unit, like)
    reach = _ends(*windows, genotypes.n_variants)
    compared = int((reach - np.arange(len(reach))).sum()) * genotypes.n_samples
    compiled = compared > _LARGE and not on_device(genotypes.packed._meta) and can_import("numba")
    if compiled:
        everywhere(bits.warm_up)
    task = _Comparing(
        genotypes.n_samples, r2 * (1 + _EQUAL) if like == "plink" else r2, rule, compiled, like == "plink"
    )
    with one_thread():
        found = dask.compute(*_tasks(genotypes, reach, task, allowed))
    stays = np.concatenate([allowed[:0], *(mask for mask, _, _ in found)])
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *(each for _, each, _ in found)])
    if like == "sgkit":
        return stays & ~_lost(pairs[stays[pairs[:, 1]]], len(stays))
    return _taken_turns(stays, pairs, np.concatenate([np.zeros(0), *(common for *_, common in found)]), windows[1])


def _lost(pairs: Matrix, n: int) -> Matrix:
    """Which lose, where pairs are sorted by their first."""
    lost = np.zeros(n, bool)
    firsts, starts = np.unique(pairs[:, 0], return_index=True)
    for first, (start, stop) in zip(firsts, pairwise([*starts, len(pairs)]), strict=True):
        if not lost[first]:
            lost[pairs[start:stop, 1]] = True
    return lost


def _taken_turns(stays: Matrix, pairs: Matrix, common: Matrix, ends: Matrix) -> Matrix:
    """Which stay where of each linked pair one goes, window by window, as the later of the two comes in.

    Each variant of a window that is still there meets the next that is linked with it, in order and again until none
    is left that is.
    """
    entered = np.searchsorted(ends, pairs[:, 1], side="right")
    pairs = pairs[np.argsort(entered, kind="stable")]
    cuts = np.flatnonzero(np.diff(np.sort(entered))) + 1
    there, frequency = stays.tolist(), common.tolist()
    for of_window in np.split(pairs, cuts):
        linked: dict[int, list[int]] = {}
        for i, j in of_window[::-1].tolist():
            linked.setdefault(i, []).append(j)
        turns = list(linked)[::-1]
        while turns:
            turns = [i for i in turns if _meets(i, linked[i], there, frequency)]
    return np.array(there, bool)


def _meets(i: int, others: list[int], there: list[bool], frequency: list[float]) -> bool:
    """Whether variant i was there and met another, the last of the list that is; one of the two is gone now."""
    while there[i] and others:
        j = others.pop()
        if there[j]:
            there[i if frequency[i] > frequency[j] * (1 + _EQUAL) else j] = False
            return True
    return False


def _windows(genotypes: Genotypes, window: int, step: int, unit: str, like: Like) -> tuple[Matrix, Matrix]:
    """Start and end of windows, all contigs one after the other."""
    window, step, edges = _asked(genotypes, window, step, unit)
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first, last in pairwise(edges):
        if unit == "variants":
            begun = np.arange(0, last - first, step)
            end = np.minimum(begun + window, last - first)
        else:
            places = _in_order(np.asarray(genotypes.variants.position)[first:last])
            if like == "plink":
                # A window starts where the next variant is first in reach, and takes all that are.
                begun = np.unique(np.searchsorted(places, places - window))
                end = np.searchsorted(places, places[begun] + window, side="right")
            else:
                final = max(0, -(-int(places[-1]) // step) - 1) if len(places) else 0
                numbers, begun = np.unique(np.minimum(places // step, final), return_index=True)
                end = np.searchsorted(places, numbers * step + window)
        starts.append(first + begun)
        ends.append(first + end)
    return np.concatenate(starts), np.concatenate(ends)


def _ends(starts: Matrix, ends: Matrix, n_variants: int) -> Matrix:
    """For each variant the end of the last window that has begun there; what lies between windows ends with itself."""
    rows = np.arange(n_variants)
    return np.asarray(np.maximum(ends[np.searchsorted(starts, rows, side="right") - 1], rows + 1))


def _asked(genotypes: Genotypes, window: int, step: int, unit: str) -> tuple[int, int, list[int]]:
    """Window and step as whole numbers, and where contigs begin and end."""
    window, step = (min(asked.whole(name, n, str(unit)), _FAR) for name, n in (("window", window), ("step", step)))
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


def _tasks(genotypes: Genotypes, reach: Matrix, comparing: _Comparing, allowed: Matrix) -> list[Any]:
    """One for each block, given the following blocks as far as it reaches."""
    packed = blocked(genotypes)
    parts = packed.to_delayed()[:, 0]
    edges = np.cumsum([0, *packed.chunks[0]])
    task = dask.delayed(comparing, pure=True)
    found = []
    for i, (start, stop) in enumerate(pairwise(edges)):
        if stop > start:
            ends = reach[start:stop]
            last = int(np.searchsorted(edges, ends.max()))
            found.append(task(list(parts[i:last]), ends - start, allowed[start:stop], int(start)))
    return found


@dataclass(frozen=True, slots=True)
class _Comparing:
    """The task for a block: which of its rows take part, the pairs (i, j), i < j, that are linked, and more for PLINK.

    That is the frequency of the commoner allele; and what doesn't vary takes no part.
    """

    n_samples: int
    r2: float
    rule: Rule | None
    compiled: bool
    like_plink: bool

    def __call__(self, blocks: Sequence[Any], ends: Matrix, allowed: Matrix, first: int) -> tuple[Matrix, ...]:
        packed = blocks[0] if len(blocks) == 1 else namespace(blocks[0]).concatenate(blocks)[: ends.max()]
        stays, common = allowed.copy(), np.zeros(0)
        if self.rule is not None or self.like_plink:
            counts = kernels.counted(blocks[0], self.n_samples)
            if self.rule is not None:
                stays &= self.rule.verdict(counts) == 0
            if self.like_plink:
                stays &= (counts[:, :3] > 0).sum(axis=1) > 1
                frequency = (counts[:, 1] + 2 * counts[:, 2]) / np.maximum(1, 2 * counts[:, :3].sum(axis=1))
                common = np.maximum(frequency, 1 - frequency)
        counted = bits.by_variant(packed, self.n_samples) if self.compiled else None
        pairs = [np.zeros((0, 2), np.int64)]
        for start in range(0, len(ends), ROWS):
            stop = min(start + ROWS, len(ends))
            last = ends[start:stop].max()
            if counted is None:
                linked = self._linked(packed[start:last], stop - start)
                row, column = np.arange(start, stop)[:, None], np.arange(start, last)
                linked &= (column > row) & (column < ends[start:stop, None]) & stays[start:stop, None]
            else:
                planes, ones = (each[start:last] for each in counted)
                part = self.n_samples, ends[start:stop] - start, stays[start:stop]
                linked = bits.linked(planes, ones, *part, self.r2, self.like_plink)
            found = divmod(np.flatnonzero(linked), linked.shape[1])
            pairs.append(np.stack(found, axis=1) + np.int64(start + first))
        return stays, np.concatenate(pairs), common

    def _linked(self, packed: Any, rows: int) -> Matrix:
        """Whether r² of each of the first rows with every row reaches the threshold."""
        xp = namespace(packed)
        counts = unpack(packed, self.n_samples)
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
        if self.like_plink:
            return covariance**2 > self.r2 * variances
        return (variances > 0) & (covariance**2 >= self.r2 * variances)
