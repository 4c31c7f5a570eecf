"""Products with packed genotypes, decoded tile by tile, on NumPy and CuPy alike.

Blocks hold our own codes (0, 1, 2 copies, 3 missing), four samples in a byte. A plane is every fourth sample:
`p & (3 << 2k)` is its code times 4ᵏ, so that decoding needs neither shift nor table. The powers of four and the planes'
order go into the narrow factors, where they are exact. Centering and scaling apply to the narrow factors, too:

    Ã Q = D (X Q − μ 1ᵀQ)        ÃᵀY = Xᵀ D Y − 1 (μᵀ D Y)        D the sites' factors
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.genotypes.packing import PER_BYTE, packed_width
from workbench.linalg import products
from workbench.linalg.gpu import host, namespace, on_device, single_is_single, to_device_of

Matrix = np.ndarray[Any, Any]

TILE_ROWS = products.ROWS
TILE_BYTES = 1_500_000
DEVICE_TILE_BYTES = 2**28
# float32 sums are added to a float64 total every so many rows.
ROWS_IN_SINGLE = 2048
# Bytes of a block; each thread of a worker holds one.
LARGEST_BLOCK = 2**24
# Rows factorized at a time, or counted on a GPU.
MANY_ROWS = 1024
# Rows counted at a time: intermediate results stay in the second-level cache.
COUNTED_ROWS = 128


def counted(packed: Any, n_samples: int) -> Matrix:
    """Count samples with 0, 1, 2 copies and missing ones in each row of a packed block: (rows, 4)."""
    xp, width = namespace(packed), packed_width(n_samples)
    words = -(-width // 8)
    counts = np.empty((packed.shape[0], 4), np.int64)
    many = MANY_ROWS if on_device(packed) else COUNTED_ROWS
    buffer = xp.zeros((min(many, packed.shape[0]), 8 * words), np.uint8)
    for part in _parts(packed.shape[0], many):
        tile = buffer[: part.stop - part.start]
        tile[:, :width] = packed[part]
        tile[:, width - 1] &= last_byte(n_samples)
        word = tile.view(np.uint64)
        low, high = word & _LOW, word >> np.uint64(1) & _LOW
        each = [_ones(xp, bits) for bits in (low, high, low & high)]
        one, two, both = (host(bits) for bits in each)
        counts[part, 1], counts[part, 2], counts[part, 3] = one - both, two - both, both
    counts[:, 0] = n_samples - counts[:, 1] - counts[:, 2] - counts[:, 3]
    return counts


_LOW = np.uint64(0x5555_5555_5555_5555)


def _ones(xp: Any, words: Any) -> Any:
    """Return the number of set bits in each row."""
    # A product adds along rows faster than NumPy's sum; in float32 it is exact up to 16 million samples.
    dtype = np.float32 if 64 * words.shape[1] < 2**24 else np.float64
    with quiet():
        return (xp.bitwise_count(words).astype(dtype) @ xp.ones(words.shape[1], dtype)).astype(np.int64)


def quiet() -> Any:
    """Ignore floating-point flags while only finite numbers are multiplied: OpenBLAS sometimes raises them."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore")


def last_byte(n_samples: int) -> Any:
    """Return the bits of a row's last byte that belong to samples."""
    return np.uint8((1 << 2 * (n_samples - PER_BYTE * (packed_width(n_samples) - 1))) - 1)


def _parts(height: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, height)) for start in range(0, height, rows))


def oversamples(k: int) -> int:
    """Return the columns beyond `k` that are worth their time."""
    return 6


# --- narrow factors by planes ------------------------------------------------------------------------------------


def to_planes(q: Matrix, dtype: Any) -> Matrix:
    """Return the rows of `q`, one for each sample, by planes and powers of four: of shape (4, bytes, columns)."""
    n, columns = q.shape
    padded = np.zeros((PER_BYTE * packed_width(n), columns), dtype)
    padded[:n] = q
    planes = padded.reshape(-1, PER_BYTE, columns).transpose(1, 0, 2) / _POWERS.astype(dtype)
    return np.ascontiguousarray(planes)


def by_samples(planes: Matrix) -> Matrix:
    """Undo `to_planes` exactly: return rows for the samples of all bytes, in the precision of the planes."""
    _, n_bytes, columns = planes.shape
    rows = np.empty((n_bytes, PER_BYTE, columns), planes.dtype)
    np.multiply(planes.transpose(1, 0, 2), _POWERS[:, 0], out=rows, casting="same_kind")
    return rows.reshape(-1, columns)


def from_planes(z: Matrix, n_samples: int) -> Matrix:
    """Undo `to_planes` for sums: from shape (columns, 4, bytes) to (n_samples, columns)."""
    columns, _, n_bytes = z.shape
    rows = np.empty((n_bytes, PER_BYTE, columns))
    np.divide(z.transpose(2, 1, 0), _POWERS[:, 0], out=rows)
    return rows.reshape(-1, columns)[:n_samples]


_POWERS = 4.0 ** np.arange(PER_BYTE).reshape(PER_BYTE, 1, 1)


# --- a block ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Narrow:
    """Q by planes in the precision of the products, and the sum of each of its columns."""

    planes: Matrix
    ones: Matrix
    n_samples: int

    @property
    def nbytes(self) -> int:
        """Bytes to send."""
        return self.planes.nbytes

    @classmethod
    def of(cls, q: Matrix, single: bool) -> Narrow:
        """Return `q` in float32 or float64."""
        dtype = np.dtype(np.float32 if single else np.float64)
        rounded = q.astype(dtype)
        return cls(to_planes(rounded, dtype), rounded.sum(axis=0, dtype=np.float64), q.shape[0])

    def trusted(self, packed: Any) -> Narrow:
        """Return itself, or its copy in float64 if products of a block in float32 wouldn't have that precision."""
        return self if single_is_single(packed) else replace(self, planes=self.planes.astype(np.float64))


def arranged(q: Narrow) -> Narrow:
    """Return Q as `normal` takes it."""
    return q


def gathered(total: Matrix, q: Narrow) -> Matrix:
    """Return ÃᵀÃ Q of the sums of `normal` over all blocks."""
    return total


def normal(packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    """Return ÃᵀÃ Q of a packed block, in float64: (n_samples, columns)."""
    xp, (height, n_bytes), width = namespace(packed), packed.shape, q.planes.shape[2]
    means, factors = rounded(packed, sites, q)
    y_room, squared = xp.empty((height, width), q.planes.dtype), factors * factors
    total, shift = xp.zeros((width, PER_BYTE * n_bytes), np.float64), xp.zeros(width, np.float64)
    recent, product = xp.zeros(total.shape, y_room.dtype), xp.empty(total.shape, y_room.dtype)
    pending = 0
    for x, y, part in _tiles(packed, sites, means, q, y_room):
        y *= squared[part]
        shift += (means[part] * y).sum(axis=0)
        recent += products.left(y, x, product)
        pending += len(y)
        if pending >= ROWS_IN_SINGLE:
            total += recent
            recent[...], pending = 0, 0
    total += recent
    return from_planes(host(total).reshape(width, PER_BYTE, n_bytes), q.n_samples) - host(shift)


def projected(packed: Any, sites: Matrix, q: Narrow) -> Any:
    """Return Ã Q of a packed block."""
    result = namespace(packed).empty((packed.shape[0], q.planes.shape[2]), q.planes.dtype)
    means, factors = rounded(packed, sites, q)
    for _ in _tiles(packed, sites, means, q, result):
        pass
    result *= factors
    return result


def rounded(packed: Any, sites: Matrix, q: Narrow) -> tuple[Any, Any]:
    """Return the means and factors as columns, where the block is and in the precision of Q.

    Means are rounded so that subtracting 3 from them, and adding it, is exact.
    """
    numbers = (sites[:, :2] - _THREE).astype(q.planes.dtype)
    numbers += _THREE.astype(numbers.dtype)
    numbers = to_device_of(numbers, packed)
    return numbers[:, :1], numbers[:, 1:]


_THREE = np.array([3.0, 0.0])


def _tiles(packed: Any, sites: Matrix, means: Any, q: Narrow, out: Any) -> Iterator[tuple[Any, Any, slice]]:
    """Yield some decoded rows at a time, in a reused buffer; X Q − μ 1ᵀQ is put into their rows of `out`."""
    xp, (height, n_bytes), width = namespace(packed), packed.shape, q.planes.shape[2]
    rows = _tile_rows(packed, q.planes.dtype.itemsize)
    buffer = xp.empty((rows, PER_BYTE, n_bytes), q.planes.dtype)
    right = to_device_of(q.planes.reshape(-1, width), packed)
    ones, masks = to_device_of(q.ones.astype(q.planes.dtype), packed), to_device_of(_MASKS, packed)
    incomplete = [bool((sites[part, 2] != 0).any()) for part in _parts(height, rows)]
    between = xp.empty((rows if any(incomplete) else 0, n_bytes), q.planes.dtype)
    room = products.room_for(buffer.reshape(rows, -1), width)
    for part, fill in zip(_parts(height, rows), incomplete, strict=True):
        p, mean, y = packed[part], means[part], out[part]
        decoded = buffer[: len(p)]
        xp.bitwise_and(p[:, None], masks, out=decoded)
        if fill:
            _fill_missing(decoded, p, mean, between[: len(p)])
        x = decoded.reshape(len(p), -1)
        products.right(x, right, y, room)
        y -= mean * ones
        yield x, y, part


_MASKS = np.array([3 << 2 * k for k in range(PER_BYTE)], np.uint8).reshape(PER_BYTE, 1)


def _tile_rows(packed: Any, itemsize: int) -> int:
    height, n_bytes = packed.shape
    row_bytes = PER_BYTE * max(1, n_bytes) * itemsize
    rows = TILE_ROWS if PER_BYTE * n_bytes >= products.MANY else 4 * TILE_ROWS
    most = DEVICE_TILE_BYTES // row_bytes if on_device(packed) else min(rows, TILE_BYTES // row_bytes)
    return max(1, min(max(16, most), height))


def _fill_missing(decoded: Any, p: Any, mean: Any, plane: Any) -> None:
    """Put the site's mean where a code is 3, so that centering leaves 0 there. `plane` is working memory.

    Every sample is processed: a search for missing ones takes longer if they are more than one in a thousand.
    """
    xp = namespace(p)
    missing = p & p >> 1 & 0x55
    for k in range(PER_BYTE):
        xp.bitwise_and(missing, np.uint8(1 << 2 * k), out=plane)
        plane *= mean - 3
        decoded[:, k] += plane


@dataclass(frozen=True, slots=True)
class Kernel:
    """Functions that multiply a block of two-bit codes."""

    largest_block: int
    """Packed bytes of a task."""
    arranged: Callable[[Narrow], Any]
    """Q as `normal` takes it, made once for a pass."""
    normal: Callable[[Any, Matrix, Any], Matrix]
    """Sums over a block, from its sites and Q, that add up in float64 over all blocks."""
    gathered: Callable[[Matrix, Narrow], Matrix]
    """ÃᵀÃ Q in float64 of those sums."""
    counted: Callable[[Any, int], Matrix]
    """Counts of samples with 0, 1, 2 copies and missing ones, of shape (rows, 4)."""
    projected: Callable[[Any, Matrix, Narrow], Any]
    """Ã Q in the precision of Q."""
    oversamples: Callable[[int], int]
    """Columns beyond k that are worth their time."""


NUMPY = Kernel(LARGEST_BLOCK, arranged, normal, gathered, counted, projected, oversamples)
"""The functions of this module."""
