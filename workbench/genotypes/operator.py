"""Packed genotypes as the matrix of which `linalg.krylov` finds the leading singular values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed

from workbench.errors import BadInputError
from workbench.genotypes import choosing, kernels
from workbench.genotypes.kernels import Kernel, Narrow
from workbench.genotypes.packing import PER_BYTE, at_most, cut
from workbench.genotypes.scaling import REASONS, Rule, squares
from workbench.genotypes.values import Genotypes
from workbench.linalg.arrays import row_blocks, slices
from workbench.linalg.compressed import for_passes, most_in_memory
from workbench.linalg.gpu import host, namespace, on_device, on_devices, to_device_of
from workbench.linalg.keys import in_pass
from workbench.linalg.krylov import Operator, orthonormal
from workbench.linalg.passes import GRAPH_BYTES, reduction
from workbench.sent_code import cluster_client

Matrix = np.ndarray[Any, Any]

# From this many genotypes on, a few iterations on every 20th variant give the start: a quarter of a pass saves one.
MANY, EVERY, TURNS = 10**8, 20, 5
# Share of the random start in it, so that directions that no sampled variant shows are found as well.
RANDOM = 0.3
# Blocks are cut, so that no thread is idle at the end of a pass, but not below this size, where tasks cost too much.
SMALLEST_BLOCK = 2**20
BLOCKS = 16
# A sample with a shorter row in the first product, relative to the others, may have no genotype at all.
QUIET = 1e-3
LINKED = REASONS.index("linked")


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """Facts about a block's sites from a first pass, for code without the block: a byte each, and Ã's sums."""

    verdict: Matrix
    """Index in `REASONS` of the reason to leave out a site, 0 for those that take part."""
    squares: float
    entries: float
    """Σ f² of all sites."""
    imputed: float
    """Σ f² of all missing values."""


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Result of `Rule.sites` for a block, stored next to it; no array, which would be taken for a block on a GPU."""

    numbers: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over some rows from one reading, and on a first pass the facts learned about each block's sites."""

    product: Matrix
    triangle: Matrix | None
    learned: tuple[Learned, ...] = ()
    sites: Sites | None = None
    """Values of one block."""


class GenotypeOperator(Operator):
    """Centred and scaled genotypes of variants × samples. Sites are counted on the first pass, within it.

    `allowed_rows` is a mask of the sites that may take part. With `keep`, packed blocks stay in memory between passes.
    """

    def __init__(
        self,
        genotypes: Genotypes,
        rule: Rule,
        *,
        kernel: Kernel,
        allowed_rows: Matrix | None = None,
        keep: bool | None = None,
        at_least: int = 1,
    ) -> None:
        self.rule, self.kernel, self.at_least = rule, kernel, at_least
        self.allowed_rows = allowed_rows
        nbytes = int(genotypes.packed.nbytes)
        in_memory = nbytes < most_in_memory(on_devices(genotypes.packed)) if keep is None else keep
        super().__init__(genotypes.shape, nbytes, in_memory)
        packed = blocked(genotypes, self.in_memory, kernel.largest_block)
        self.packed = for_passes(packed, self.in_memory)
        self._genotypes = replace(genotypes, packed=self.packed)
        # Σ f² over all genotypes, and over the missing ones, which are replaced by their site's mean.
        self._entries, self._imputed = 0.0, 0.0
        self._quiet = np.zeros(0, np.intp)
        self.verdict = np.zeros(0, np.uint8)
        self._more: list[Any] = [None] * len(self.packed.chunks[0])
        if allowed_rows is not None or rule.hwe:
            allowed = np.ones(self.shape[0], bool) if allowed_rows is None else allowed_rows
            masks = np.stack([allowed, choosing.not_diploid(genotypes)], axis=1)
            self._more = _sent([masks[part] for part in slices(self.packed.chunks[0])])
        # Facts on each block's sites stay on the worker that computed them: 24 bytes a site, for millions of sites.
        self._sites: list[Delayed] = []

    @property
    def used_sites(self) -> Matrix:
        """Sites that are included."""
        return self.verdict == 0

    def input_error(self, s: Matrix, single: bool) -> Matrix:
        """Return the error of singular values from rounding means and factors; counts are never rounded.

        Factors, and their squares, that are off by at most 2 ε of themselves change each singular value by at most as
        much of itself (Ostrowski). Means are off by some δ of at most ε, as they are at most 2. That makes Ã + δ 1ᵀ of
        Ã, but for the missing values, which stay 0: those entries, of norm ε √imputed, change no singular value by
        more than that. As Ã 1 = 0, δ 1ᵀ is to Ã what a column √n δ more is: no σ² falls, none rises by more than
        n ‖δ‖².
        """
        eps = float(np.finfo(np.float32 if single else np.float64).eps)
        column = eps * math.sqrt(self._entries)
        # Twice the error of σ that follows from that of σ², as s itself is only near the true value.
        risen = np.minimum(column, 2 * column**2 / np.maximum(s, np.finfo(float).tiny))
        return 2 * eps * s + eps * math.sqrt(self._imputed) + risen

    def started(self, q: Matrix, single: bool) -> Matrix:
        """Return `q`, or, for many genotypes in memory, q turned towards the leading vectors of some variants."""
        if not self.in_memory or math.prod(self.shape) < MANY:
            return q
        rows = np.arange(self.shape[0]) if self.allowed_rows is None else np.flatnonzero(self.allowed_rows)
        sample = GenotypeOperator(self._genotypes[rows[::EVERY]], self.rule, kernel=self.kernel, keep=True, at_least=0)
        turned = q
        for _ in range(TURNS):
            turned = orthonormal(sample.normal(turned, single))
        return turned + RANDOM * q

    def _read(self, q: Matrix, single: bool, with_triangle: bool) -> Sums:
        first = self.passes == 0
        self.passes += 1
        task = _Reading(self.kernel, self.rule, self.shape[1], with_triangle, first)
        narrow = Narrow.of(q, single)
        factors = narrow if with_triangle else self.kernel.arranged(narrow)
        name, extra = in_pass("genotypes", self.passes), [(each,) for each in self._more]
        total = reduction(name, self.packed, task, factors, _added, extra)
        sums: Sums
        if first:
            sums, self._sites = total.computed_and_left(_sites)
            self._learn(sums.learned)
        else:
            sums = total.computed()
        # Difference between the rounded matrix that is multiplied and the exact one.
        self.squares_error = 4 * float(np.finfo(np.float32 if single else np.float64).eps) * self.squares
        product = self.kernel.gathered(sums.product, narrow)
        if first:
            lengths = np.linalg.norm(product, axis=1)
            self._quiet = np.flatnonzero(lengths <= QUIET * np.sqrt(np.mean(lengths**2)))
        return replace(sums, product=product)

    def _learn(self, blocks: Sequence[Learned]) -> None:
        self.verdict = np.concatenate([block.verdict for block in blocks])
        n_used = int(np.count_nonzero(self.used_sites))
        if n_used < self.at_least:
            raise BadInputError(
                f"Of {self.shape[0]} variants {n_used} can take part, and {self.at_least} components need as many: the "
                "others are monomorphic, all missing or left out. Ask for fewer components or leave out less."
            )
        self.squares = math.fsum(block.squares for block in blocks)
        self._entries = self.shape[1] * math.fsum(block.entries for block in blocks)
        self._imputed = math.fsum(block.imputed for block in blocks)
        self._more = [each.dask[each.key] for each in self._sites]

    def unknown_samples(self) -> Matrix:
        """Return the indices of samples without a known site among those that take part.

        Their columns of Ã are zero, so that they change no component. Only samples whose part of the first product is
        almost zero are checked, in one more pass; usually there are none.
        """
        if not self._quiet.size:
            return self._quiet
        read = dask.delayed(_known_at, pure=True)
        used = [self.used_sites[part] for part in slices(self.packed.chunks[0])]
        blocks = zip(self.packed.to_delayed()[:, 0], used, strict=True)
        seen = np.any(dask.compute(*(read(block, stays, self._quiet) for block, stays in blocks)), axis=0)
        return self._quiet[~seen]

    def counted(self) -> da.Array:
        """Return copies of the counted allele and samples in which it is known, for each site that takes part."""
        counting = dask.delayed(_counted, pure=True)
        parts = [counting(sites, self.shape[1]) for sites in self._sites]
        return self._joined(parts, 2, np.empty((0, 2), np.int64))

    def projected(self, v: Matrix) -> da.Array:
        """Return Ã v as a lazy Dask array, of the sites that take part: computing it takes a pass over the blocks."""
        narrow, projecting = Narrow.of(v, False), dask.delayed(_projected, pure=True)
        blocks = zip(self.packed.to_delayed()[:, 0], self._sites, strict=True)
        parts = [projecting(self.kernel, block, sites, narrow) for block, sites in blocks]
        return self._joined(parts, v.shape[1], self.packed._meta.astype(np.float64))

    def _joined(self, parts: Sequence[Delayed], columns: int, meta: Any) -> da.Array:
        """Join the results of each block's sites that take part into one array."""
        heights = [int(np.count_nonzero(self.used_sites[part])) for part in slices(self.packed.chunks[0])]
        arrays = zip(parts, heights, strict=True)
        return da.concatenate([da.from_delayed(part, (height, columns), meta=meta) for part, height in arrays])


def _known_at(packed: Any, stays: Matrix, samples: Matrix) -> Matrix:
    """Return a mask of the samples with a genotype in the remaining rows of a packed block."""
    codes = host(packed[:, to_device_of(samples // PER_BYTE, packed)])[stays] >> (2 * (samples % PER_BYTE)).astype(
        np.uint8
    )
    seen: Matrix = (codes & 3 != 3).any(axis=0)
    return seen


def blocked(genotypes: Genotypes, held: bool = False, largest: int = kernels.LARGEST_BLOCK) -> Any:
    """Return the packed blocks, of sizes that keep several threads busy and fit in memory together.

    Blocks to be `held` are views of the blocks as read; of others only the needed rows are read. Blocks are joined if
    the `largest` exceeds the size read at once, or half of a block is larger than any of them.
    """
    packed = genotypes.packed
    row = max(1, packed.shape[1])
    rows = min(max(SMALLEST_BLOCK // row, -(-packed.shape[0] // BLOCKS)), at_most(largest, row) // row)
    rows = max(kernels.TILE_ROWS, -(-rows // kernels.TILE_ROWS) * kernels.TILE_ROWS)
    joined = largest > kernels.LARGEST_BLOCK or 2 * max(packed.chunks[0], default=0) <= rows
    heights = [row_blocks(height, rows) for height in ([packed.shape[0]] if joined else packed.chunks[0])]
    if held and not joined:
        return cut(packed, heights)
    # Without a method, Dask would import distributed to choose one.
    return packed.rechunk({0: tuple(chain.from_iterable(heights)) or (0,)}, method="tasks")


def _sent(parts: list[Matrix]) -> list[Any]:
    """Return each block's own numbers, already on the workers where a cluster computes and they're many."""
    client = cluster_client()
    if client is None or sum(part.nbytes for part in parts) <= GRAPH_BYTES:
        return list(parts)
    futures: list[Any] = client.scatter(parts, hash=False)
    return futures


def _added(parts: Sequence[Sums]) -> Sums:
    triangles = [part.triangle for part in parts if part.triangle is not None]
    product = parts[0].product.astype(np.float64)
    for part in parts[1:]:
        product += part.product  # np.sum would join them first
    return Sums(
        product,
        np.asarray(np.linalg.qr(np.concatenate(triangles), mode="r")) if triangles else None,
        tuple(learned for part in parts for learned in part.learned),
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    """The task of one pass: called with a block, Q, and its `Sites`; on the first pass, two masks or None.

    The masks are of the sites that may take part, and of those that are `not_diploid`: sites × 2.
    """

    kernel: Kernel
    rule: Rule
    n_samples: int
    with_triangle: bool
    first: bool

    def __call__(self, panel: Sequence[Any], q: Any, of_sites: Any) -> Sums:
        packed, learned_sites = panel[0], of_sites
        learned: list[Learned] = []
        if self.first:
            learned_sites, *learned = self._learned(packed, of_sites)
        packed, sites = taking_part(packed, learned_sites.numbers)
        with kernels.quiet():
            product = self.kernel.normal(packed, sites, q.trusted(packed))
            triangle = _triangle(self.kernel.projected, packed, sites, q) if self.with_triangle else None
        return Sums(product, triangle, tuple(learned), learned_sites if self.first else None)

    def _learned(self, packed: Any, masks: Matrix | None) -> tuple[Sites, Learned]:
        counts = self.kernel.counted(packed, self.n_samples)
        verdict = self.rule.verdict(counts, None if masks is None else masks[:, 1])
        if masks is not None:
            verdict[(verdict == 0) & ~masks[:, 0]] = LINKED
        numbers = self.rule.sites(counts, verdict == 0)
        squared = numbers[:, 1] ** 2
        entries, imputed = float(numbers[:, 1] @ numbers[:, 1]), float(squared @ numbers[:, 2])
        return Sites(numbers), Learned(verdict, squares(counts, numbers), entries, imputed)


def _sites(sums: Sums) -> Sites | None:
    return sums.sites


def _counted(sites: Sites, n_samples: int) -> Matrix:
    mean, factor, missing = sites.numbers.T
    known = n_samples - missing[factor != 0]
    return np.rint(np.stack([mean[factor != 0] * known, known], axis=1)).astype(np.int64)


def taking_part(packed: Any, sites: Matrix) -> tuple[Any, Matrix]:
    """Return the rows of a block that aren't left out."""
    stays = sites[:, 1] != 0
    return (packed, sites) if stays.all() else (packed[to_device_of(np.flatnonzero(stays), packed)], sites[stays])


def _triangle(projected: Callable[..., Any], packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    columns = q.planes.shape[2]
    triangle = np.zeros((0, columns))
    if on_device(packed) and len(packed):
        y = projected(packed, sites, q)
        return host(namespace(y).linalg.qr(y, mode="r"))
    for start in range(0, packed.shape[0], kernels.MANY_ROWS):
        part = slice(start, start + kernels.MANY_ROWS)
        y = host(projected(packed[part], sites[part], q))
        triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, y]), mode="r"))
    return triangle


def _projected(kernel: Kernel, packed: Any, sites: Sites, q: Narrow) -> Any:
    with kernels.quiet():
        return kernel.projected(*taking_part(packed, sites.numbers), q)
