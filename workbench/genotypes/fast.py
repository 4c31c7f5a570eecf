"""The products of `kernels` compiled by numba (the extra `fast`), by tables instead of products.

Three genotypes have 27 combinations. For three rows of Q at a time all 27 sums are put into a table, and each site adds
the row that its three genotypes name, where a product would multiply and add three times; for ÃᵀY the same with three
sites and 64 codes (the method of four Russians: Arlazarov, Dinic, Kronrod, Faradzhev 1970; for genotypes the mailman of
Liberty and Zucker 2009). Tables stay in the first cache and sums in registers, written in LLVM's own terms because a
loop in Python leaves sums in memory. A genotype that isn't known is left out of the first table and added by itself.
Columns are taken in groups of sixteen, so widths that sixteen divides are used best. float64 is left to `kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.compiled import load
from workbench.genotypes import kernels, packing
from workbench.genotypes.kernels import ROWS_IN_SINGLE, Narrow
from workbench.genotypes.packing import PER_BYTE
from workbench.linalg.gpu import on_device

Matrix = np.ndarray[Any, Any]

COLUMNS = 16
# Bytes of a row that are looked up together: a byte of each third forms one index.
STRIP = 96


@dataclass(frozen=True, slots=True, eq=False)
class Arranged:
    """Q in float32 as the compiled code reads it: groups of columns, of rows in the order of strips, planes, bytes."""

    right: Matrix
    ones: Matrix

    @property
    def nbytes(self) -> int:
        """Bytes to send."""
        return self.right.nbytes

    def trusted(self, packed: Any) -> Arranged:
        """Return itself: blocks are never on a device."""
        return self


def arranged(q: Narrow) -> Narrow | Arranged:
    """Return Q as `normal` takes it: arranged once for a pass, which takes as long as some hundred rows do."""
    if q.planes.dtype != np.float32:
        return q
    rows = kernels.by_samples(q.planes)
    n_bytes, width = q.planes.shape[1:]
    strips, groups = -(-n_bytes // STRIP), -(-width // COLUMNS)
    padded = np.zeros((strips * STRIP * PER_BYTE, groups * COLUMNS), np.float32)
    padded[: len(rows), :width] = rows
    right = padded.reshape(strips, STRIP, PER_BYTE, groups, COLUMNS).transpose(3, 0, 2, 1, 4)
    ones = np.zeros(groups * COLUMNS, np.float32)
    ones[:width] = q.ones
    return Arranged(np.ascontiguousarray(right).reshape(groups, -1, COLUMNS), ones.reshape(groups, COLUMNS))


def normal(packed: Any, sites: Matrix, q: Narrow | Arranged) -> Matrix:
    """Return a block's sums from which `gathered` makes ÃᵀÃ Q: ordered as Q, and a last row for centering.

    The sums of blocks are added in float64; within few rows they are in float32.
    """
    if isinstance(q, Narrow):
        return kernels.normal(packed, sites, q)
    packed, (groups, lanes, _) = np.ascontiguousarray(packed), q.right.shape
    height, n_bytes = packed.shape
    few = np.zeros((groups, lanes + 1, COLUMNS), np.float32)
    total = np.zeros((groups, lanes + 1 if height > ROWS_IN_SINGLE else 0, COLUMNS))
    # A strip may reach beyond its row, where factors are 0. Copy the last rows, as it must not reach beyond the block.
    first = max(0, height - -(-STRIP // n_bytes))
    tail = np.zeros((height - first) * n_bytes + STRIP, np.uint8)
    tail[:-STRIP] = packed[first:].reshape(-1)
    sites = np.ascontiguousarray(sites, dtype=np.float32)
    _lanes().normal(packed, tail, sites, q.right, q.ones, few, total)
    return total if total.size else few


def gathered(total: Matrix, q: Narrow) -> Matrix:
    """Return ÃᵀÃ Q, (n_samples, columns), from the sums of `normal` over all blocks."""
    if q.planes.dtype != np.float32:
        return total
    groups, _, columns = total.shape
    strips = total[:, :-1].reshape(groups, -1, PER_BYTE, STRIP, columns).transpose(1, 3, 2, 0, 4)
    width = q.planes.shape[2]
    sums = strips.reshape(-1, groups * columns)[: q.n_samples, :width].copy()
    sums -= total[:, -1].reshape(-1)[:width]
    return sums


def counted(packed: Any, n_samples: int) -> Matrix:
    """Count samples with 0, 1, 2 copies and missing ones in each row of a packed block: (rows, 4)."""
    if on_device(packed):
        return kernels.counted(packed, n_samples)
    counts = np.empty((packed.shape[0], 4), np.int64)
    last = int(kernels.last_byte(n_samples))
    _lanes().counted(np.ascontiguousarray(packed), last, counts)
    counts[:, 0] += n_samples
    return counts


def oversamples(k: int) -> int:
    """Return the columns beyond `k` that are worth their time: at least six, and no idle lane."""
    return -(-(k + 6) // COLUMNS) * COLUMNS - k


FAST = replace(
    kernels.NUMPY, arranged=arranged, normal=normal, gathered=gathered, counted=counted, oversamples=oversamples
)
"""The functions of this module. Values needed once, and in float64, are projected by `kernels`."""


def warm_up() -> None:
    """Compile now, or read what an earlier process has compiled, so that no pass has to wait for it."""
    packing.compiled = _lanes().packed_bytes


def _lanes() -> Any:
    return load("workbench.genotypes._lanes")
