"""The products of `kernels` compiled by numba (the extra `fast`), with accumulators that stay in registers.

Rows of a tile are decoded to float32 in the second-level cache. Both products go through it in pieces of a few rows, or
a few samples, by sixteen columns, written in LLVM's own terms because a loop in Python leaves accumulators in memory.
Columns are taken sixteen at a time, so widths that sixteen divides are used best. float64 is left to `kernels`.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from workbench.errors import MissingError
from workbench.genotypes import kernels
from workbench.genotypes.kernels import Narrow, last_byte
from workbench.genotypes.packing import PER_BYTE
from workbench.linalg import blocks

Matrix = np.ndarray[Any, Any]

COLUMNS = 16


def normal(packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    """ÃᵀÃ Q of a block in our codes, in float64: (n_samples, columns)."""
    if q.planes.dtype != np.float32 or blocks.on_device(packed):
        return kernels.normal(packed, sites, q)
    compiled, width = _compiled(), q.planes.shape[2]
    numbers = np.ascontiguousarray(sites, dtype=np.float32)
    lanes = -(-PER_BYTE * packed.shape[1] // compiled.piece) * compiled.piece
    found = np.empty((q.n_samples, width))
    for start in range(0, width, COLUMNS):
        part = slice(start, min(start + COLUMNS, width))
        right, ones = np.zeros((lanes, COLUMNS), np.float32), np.zeros(COLUMNS, np.float32)
        n = part.stop - part.start
        right[: PER_BYTE * packed.shape[1], :n] = q.planes[:, :, part].reshape(-1, n)
        ones[:n] = q.ones[part]
        total, shift = np.zeros((lanes, COLUMNS)), np.zeros(COLUMNS)
        compiled.normal(np.ascontiguousarray(packed), numbers, right, ones, last_byte(q.n_samples), total, shift)
        planes = total[: PER_BYTE * packed.shape[1], :n].reshape(PER_BYTE, -1, n).transpose(0, 2, 1)
        found[:, part] = kernels.from_planes(planes, q.n_samples) - shift[:n]
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


@cache
def _compiled() -> SimpleNamespace:
    try:
        import numba
    except ImportError as err:
        raise MissingError("The fast kernel needs numba: pip install 'dask-workbench[fast]'.") from err
    from workbench.genotypes import _lanes

    return SimpleNamespace(normal=_lanes.normal, piece=_lanes.PIECE, numba=numba.__version__)
