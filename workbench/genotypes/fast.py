"""The products of `kernels` compiled by numba (the extra `fast`), with accumulators that stay in registers.

Some bytes of some rows at a time are decoded to float32 in the first-level cache. Both products go through it in pieces
of a few rows, or a few samples, by sixteen columns, written in LLVM's own terms because a loop in Python leaves
accumulators in memory.
Columns are taken sixteen at a time, so widths that sixteen divides are used best. float64 is left to `kernels`.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from workbench.errors import MissingError, install
from workbench.genotypes import kernels, packing
from workbench.genotypes.kernels import LARGEST_BLOCK as LARGEST_BLOCK
from workbench.genotypes.kernels import Narrow
from workbench.genotypes.packing import PER_BYTE
from workbench.linalg import blocks

Matrix = np.ndarray[Any, Any]

COLUMNS = 16


def normal(packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    """ÃᵀÃ Q of a block in our codes, in float64: (n_samples, columns)."""
    if q.planes.dtype != np.float32 or blocks.on_device(packed):
        return kernels.normal(packed, sites, q)
    compiled, (_, n_bytes, width) = _compiled(), q.planes.shape
    numbers = np.ascontiguousarray(sites, dtype=np.float32)
    strips = -(-n_bytes // compiled.strip)
    found = np.empty((q.n_samples, width))
    for start in range(0, width, COLUMNS):
        part = slice(start, min(start + COLUMNS, width))
        n = part.stop - start
        right, ones = np.zeros((PER_BYTE, strips * compiled.strip, COLUMNS), np.float32), np.zeros(COLUMNS, np.float32)
        right[:, :n_bytes, :n], ones[:n] = q.planes[:, :, part], q.ones[part]
        right = right.reshape(PER_BYTE, strips, -1, COLUMNS).transpose(1, 0, 2, 3).reshape(-1, COLUMNS)
        total, shift = np.zeros(right.shape), np.zeros(COLUMNS)
        compiled.normal(np.ascontiguousarray(packed), numbers, right, ones, total, shift)
        planes = total.reshape(strips, PER_BYTE, -1, COLUMNS).transpose(1, 3, 0, 2).reshape(PER_BYTE, COLUMNS, -1)
        found[:, part] = kernels.from_planes(planes[:, :n, :n_bytes], q.n_samples) - shift[:n]
    return found


def counted(packed: Any, n_samples: int) -> Matrix:
    """Samples with 0, 1, 2 copies and with none known, of shape (rows, 4), for a block in our codes."""
    if blocks.on_device(packed):
        return kernels.counted(packed, n_samples)
    found = np.empty((packed.shape[0], 4), np.int64)
    _compiled().counted(np.ascontiguousarray(packed), kernels.last_byte(n_samples), found)
    found[:, 0] += n_samples
    return found


def projected(packed: Any, sites: Matrix, q: Narrow) -> Any:
    """Ã Q of a block in our codes, as `kernels` computes it: it is needed once, and in float64."""
    return kernels.projected(packed, sites, q)


def oversamples(k: int) -> int:
    """Columns beyond `k` that are worth their time: at least six, and no idle lane."""
    return -(-(k + 6) // COLUMNS) * COLUMNS - k


def installed() -> bool:
    """Whether numba can be imported."""
    from importlib.util import find_spec

    return find_spec("numba") is not None


def warm_up() -> None:
    """Compile now, or read what an earlier process has compiled, so that no pass has to wait for it."""
    packed, sites = np.zeros((1, 1), np.uint8), np.ones((1, 3))
    normal(packed, sites, Narrow.of(np.ones((4, 1)), True))
    counted(packed, 4)
    packing.compiled = _compiled().packed_bytes
    packing.pack(np.zeros((1, 4), np.uint8))


@cache
def _compiled() -> SimpleNamespace:
    try:
        import numba
    except ImportError as err:
        raise MissingError(f"The fast kernel needs numba: {install('fast')}.") from err
    from workbench.genotypes import _lanes

    return SimpleNamespace(
        normal=_lanes.normal,
        counted=_lanes.counted,
        packed_bytes=_lanes.packed_bytes,
        strip=_lanes.STRIP,
        numba=numba.__version__,
    )
