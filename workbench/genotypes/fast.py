"""The products of `kernels` compiled by numba (the extra `fast`), by tables instead of products.

Three genotypes can be 27 things. For three rows of Q at a time all 27 sums are put into a table, and each site adds the
row that its three genotypes name, where a product would multiply and add three times; for ÃᵀY the same with three sites
and 64 codes (the method of four Russians: Arlazarov, Dinic, Kronrod, Faradzhev 1970; for genotypes the mailman of
Liberty and Zucker 2009). Tables stay in the first cache and sums in registers, written in LLVM's own terms because a
loop in Python leaves sums in memory. A genotype that isn't known is left out of the first table and added by itself.
Columns are taken in groups of sixteen, so widths that sixteen divides are used best. float64 is left to `kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from workbench.compiled import Loop, aligned, loops
from workbench.genotypes import kernels, packing
from workbench.genotypes.kernels import LARGEST_BLOCK as LARGEST_BLOCK, ROWS_IN_SINGLE, Narrow
from workbench.genotypes.packing import PER_BYTE
from workbench.linalg import blocks

Matrix = np.ndarray[Any, Any]

COLUMNS = 16
# Bytes of a row whose genotypes are looked up at a time, each with one of both other thirds.
STRIP = 96
PLANES, THIRD, ROW_BYTES = 4, STRIP // 3, 4 * COLUMNS
# Rows of a table: all sums of three rows of lanes, each 0, 1 or 2 times, or of sites also as many times as its mean. So
# many such tables stay in the first cache while rows, or samples, are looked up in them.
TABLES, TABLE_BYTES = 16, 3**3 * ROW_BYTES
TABLES_OF_SITES, TABLE_OF_SITES_BYTES = 7, 4**3 * ROW_BYTES
SITES = 3 * TABLES_OF_SITES
# Rows that are looked up beside each other: what is added to one sum has to wait for what was added before.
ROWS = 4
# Rows for which the tables of samples are made once, a multiple of SITES and ROWS, and strips for which those of sites.
TILE_ROWS, PANEL = 6 * ROWS * SITES, 8
# Bytes of the rows that are brought to the second cache while those before are computed with: half of it.
FETCHED = 2**19


@dataclass(frozen=True, slots=True, eq=False)
class Arranged:
    """Q in float32 as the compiled code reads it: groups of columns, of rows in the order of strips, planes, bytes."""

    right: Matrix
    ones: Matrix

    @property
    def nbytes(self) -> int:
        """What it takes to send."""
        return self.right.nbytes

    def trusted(self, packed: Any) -> Arranged:
        """Itself: blocks are never on a device."""
        return self


def arranged(q: Narrow) -> Narrow | Arranged:
    """Q as `normal` takes it: arranged once for a pass, which takes as long as some hundred rows of many samples do."""
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
    """What `gathered` makes ÃᵀÃ Q of, for a block in our codes: the order of Q, and a last row for centring.

    It adds up over blocks, in float64: that of few rows is in float32, as they are summed.
    """
    if isinstance(q, Narrow):
        return kernels.normal(packed, sites, q)
    packed, (groups, lanes, _) = np.ascontiguousarray(packed), q.right.shape
    height, n_bytes = packed.shape
    few = np.zeros((groups, lanes + 1, COLUMNS), np.float32)
    total = np.zeros((groups, lanes + 1 if height > ROWS_IN_SINGLE else 0, COLUMNS))
    # A strip may end behind its row, where the factors are 0; behind the block it isn't ours to read.
    first = max(0, height - -(-STRIP // n_bytes))
    tail = np.zeros((height - first) * n_bytes + STRIP, np.uint8)
    tail[:-STRIP] = packed[first:].reshape(-1)
    # Rows are looked up so many at a time, and then so many are put into tables: both need room to the end.
    tile_rows = min(TILE_ROWS, -(-height // (ROWS * SITES)) * ROWS * SITES)
    _loops()["normal"](
        *(packed, height, n_bytes, tail, first, np.ascontiguousarray(sites, dtype=np.float32)),
        *(q.right, q.ones, groups, lanes, few, total, int(total.size > 0), tile_rows),
        aligned(groups * tile_rows * ROW_BYTES, np.float32),
        aligned(max(TABLES * TABLE_BYTES, TABLES_OF_SITES * TABLE_OF_SITES_BYTES)),
        aligned(PLANES * max(tile_rows * THIRD, PANEL * TABLES_OF_SITES * STRIP)),
        np.empty(64 * tile_rows + 2, np.uint32),
        np.empty(tile_rows, np.int64),
        np.empty(tile_rows, np.uint32),
        np.empty(tile_rows, np.float32),
        np.zeros((groups, COLUMNS)),
    )
    return total if total.size else few


def gathered(total: Matrix, q: Narrow) -> Matrix:
    """ÃᵀÃ Q, (n_samples, columns), of the sums of `normal` over all blocks."""
    if q.planes.dtype != np.float32:
        return total
    groups, _, columns = total.shape
    strips = total[:, :-1].reshape(groups, -1, PER_BYTE, STRIP, columns).transpose(1, 3, 2, 0, 4)
    width = q.planes.shape[2]
    found = strips.reshape(-1, groups * columns)[: q.n_samples, :width].copy()
    found -= total[:, -1].reshape(-1)[:width]
    return found


def counted(packed: Any, n_samples: int) -> Matrix:
    """Samples with 0, 1, 2 copies and with none known, of shape (rows, 4), for a block in our codes."""
    if blocks.on_device(packed):
        return kernels.counted(packed, n_samples)
    found = np.empty((packed.shape[0], 4), np.int64)
    last = int(kernels.last_byte(n_samples))
    _loops()["counted"](np.ascontiguousarray(packed), *packed.shape, last, np.zeros(8, np.uint8), found)
    found[:, 0] += n_samples
    return found


def projected(packed: Any, sites: Matrix, q: Narrow) -> Any:
    """Ã Q of a block in our codes, as `kernels` computes it: it is needed once, and in float64."""
    return kernels.projected(packed, sites, q)


def oversamples(k: int) -> int:
    """Columns beyond `k` that are worth their time: at least six, and no idle lane."""
    return -(-(k + 6) // COLUMNS) * COLUMNS - k


def warm_up() -> None:
    """Compile now, or read what an earlier process has compiled, so that no pass has to wait for it."""
    packed, sites = np.zeros((1, 1), np.uint8), np.ones((1, 3))
    normal(packed, sites, arranged(Narrow.of(np.ones((4, 1)), True)))
    counted(packed, 4)
    packing.compiled = _loops()["packed_bytes"]


@cache
def _loops() -> dict[str, Loop]:
    return loops("workbench.genotypes._lanes", normal=22, counted=6, packed_bytes=5)
