"""Products with packed genotypes, decoded tile by tile, on NumPy and CuPy alike.

Blocks hold our own codes (0, 1, 2 copies, 3 missing), four samples in a byte. A plane is every fourth sample:
`p & (3 << 2k)` is its code times 4ᵏ, so that decoding needs neither shift nor table. The powers of four and the planes'
order go into the narrow factors, where they are exact. What is centred and scaled are the narrow factors, too:

    Ã Q = D (X Q − μ 1ᵀQ)        ÃᵀY = Xᵀ D Y − 1 (μᵀ D Y)        D the sites' factors
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.genotypes.packing import PER_BYTE, packed_width
from workbench.linalg import blocks
from workbench.linalg.blocks import beside, host, namespace, single_is_single

Matrix = np.ndarray[Any, Any]

# OpenBLAS multiplies without packing its operands first, and faster, up to an M·N·K of a million on the machines that
# have it; a little below, the narrow factor of some thousand samples stays in the first cache.
SMALL = 800_000
# Rows of a tile: with 64 both products stay below SMALL for some thousand samples, and the tile in the second cache.
TILE_ROWS = 64
TILE_BYTES = 1_500_000
DEVICE_TILE_BYTES = 2**28
# Bytes of some rows with which everything stays in the first cache.
SMALL_BYTES = 2**15
# float32 sums are added to a float64 total every so many rows.
ROWS_IN_SINGLE = 2048
# What several threads have in hand beside each other in a worker's memory.
LARGEST_BLOCK = 2**24
# Rows that are factorized, or counted on a device, at a time.
MANY_ROWS = 1024
# Rows that are counted at a time: what comes between stays in the second cache.
COUNTED_ROWS = 128


def counted(packed: Any, n_samples: int) -> Matrix:
    """Samples with 0, 1, 2 copies and with none known, of shape (rows, 4), for a block in our codes."""
    xp, width = namespace(packed), packed_width(n_samples)
    words = -(-width // 8)
    found = np.empty((packed.shape[0], 4), np.int64)
    many = MANY_ROWS if blocks.on_device(packed) else COUNTED_ROWS
    buffer = xp.zeros((min(many, packed.shape[0]), 8 * words), np.uint8)
    for part in _parts(packed.shape[0], many):
        tile = buffer[: part.stop - part.start]
        tile[:, :width] = packed[part]
        tile[:, width - 1] &= last_byte(n_samples)
        word = tile.view(np.uint64)
        low, high = word & _LOW, word >> np.uint64(1) & _LOW
        each = [_ones(xp, bits) for bits in (low, high, low & high)]
        one, two, both = (host(bits) for bits in each)
        found[part, 1], found[part, 2], found[part, 3] = one - both, two - both, both
    found[:, 0] = n_samples - found[:, 1] - found[:, 2] - found[:, 3]
    return found


_LOW = np.uint64(0x5555_5555_5555_5555)


def _ones(xp: Any, words: Any) -> Any:
    """How many bits are set in each row."""
    # A product adds along rows faster than NumPy's sum; in float32 it is exact up to 16 million samples.
    dtype = np.float32 if 64 * words.shape[1] < 2**24 else np.float64
    with quiet():
        return (xp.bitwise_count(words).astype(dtype) @ xp.ones(words.shape[1], dtype)).astype(np.int64)


def quiet() -> Any:
    """Where only finite numbers are multiplied: OpenBLAS now and then raises the processor's flags all the same."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore")


def last_byte(n_samples: int) -> Any:
    """The bits of a row's last byte that belong to samples."""
    return np.uint8((1 << 2 * (n_samples - PER_BYTE * (packed_width(n_samples) - 1))) - 1)


def _parts(height: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, height)) for start in range(0, height, rows))


def oversamples(k: int) -> int:
    """Columns beyond `k` that are worth their time: ten make a pass less, each a quarter longer, and less accuracy."""
    return 6


# --- narrow factors by planes ------------------------------------------------------------------------------------


def to_planes(q: Matrix, dtype: Any) -> Matrix:
    """Rows of `q`, one for each sample, by planes and over the powers of four: of shape (4, bytes, columns)."""
    n, columns = q.shape
    padded = np.zeros((PER_BYTE * packed_width(n), columns), dtype)
    padded[:n] = q
    planes = padded.reshape(-1, PER_BYTE, columns).transpose(1, 0, 2) / _POWERS.astype(dtype)
    return np.ascontiguousarray(planes)


def by_samples(planes: Matrix) -> Matrix:
    """What `to_planes` did, undone exactly: rows for the samples of all bytes, in the precision of the planes."""
    _, n_bytes, columns = planes.shape
    found = np.empty((n_bytes, PER_BYTE, columns), planes.dtype)
    np.multiply(planes.transpose(1, 0, 2), _POWERS[:, 0], out=found, casting="same_kind")
    return found.reshape(-1, columns)


def from_planes(z: Matrix, n_samples: int) -> Matrix:
    """What `to_planes` did to sums, undone, from shape (4, columns, bytes): (n_samples, columns)."""
    _, columns, n_bytes = z.shape
    found = np.empty((n_bytes, PER_BYTE, columns))
    np.divide(z.transpose(2, 0, 1), _POWERS[:, 0], out=found)
    return found.reshape(-1, columns)[:n_samples]


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
        """What it takes to send."""
        return self.planes.nbytes

    @classmethod
    def of(cls, q: Matrix, single: bool) -> Narrow:
        """`q` in float32 or float64."""
        dtype = np.dtype(np.float32 if single else np.float64)
        rounded = q.astype(dtype)
        return cls(to_planes(rounded, dtype), rounded.sum(axis=0, dtype=np.float64), q.shape[0])

    def trusted(self, packed: Any) -> Narrow:
        """Itself, or in float64 where products of a block in float32 wouldn't have its precision."""
        return self if single_is_single(packed) else replace(self, planes=self.planes.astype(np.float64))


def arranged(q: Narrow) -> Narrow:
    """Q as `normal` takes it."""
    return q


def gathered(total: Matrix, q: Narrow) -> Matrix:
    """ÃᵀÃ Q of the sums of `normal` over all blocks."""
    return total


def normal(packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    """ÃᵀÃ Q of a block in our codes, in float64: (n_samples, columns)."""
    xp, (height, n_bytes), width = namespace(packed), packed.shape, q.planes.shape[2]
    factors, left = rounded(packed, sites, q)[1], xp.empty((height, width), q.planes.dtype)
    squared = factors * factors
    total = few = product = None
    pending = 0
    for x, y, part in _tiles(packed, sites, q, left):
        y *= squared[part]
        if product is None:
            shape = (*x.shape[:2], width, x.shape[3])
            total, few, product = xp.zeros(shape, np.float64), xp.zeros(shape, x.dtype), xp.empty(shape, x.dtype)
        xp.matmul(y.T, x, out=product)
        few += product
        pending += y.shape[0]
        if pending >= ROWS_IN_SINGLE:
            total += few
            few[...] = 0
            pending = 0
    if total is None:
        return np.zeros((q.n_samples, width))
    total += few
    planes = total[:, 0] if total.shape[1] == 1 else total.transpose(0, 2, 1, 3).reshape(PER_BYTE, width, -1)
    found = from_planes(host(planes[:, :, :n_bytes]), q.n_samples)
    found -= host(planes[0, :, n_bytes])
    return found


def projected(packed: Any, sites: Matrix, q: Narrow) -> Any:
    """Ã Q of a block in our codes."""
    found = namespace(packed).empty((packed.shape[0], q.planes.shape[2]), q.planes.dtype)
    for _ in _tiles(packed, sites, q, found):
        pass
    found *= rounded(packed, sites, q)[1]
    return found


def rounded(packed: Any, sites: Matrix, q: Narrow) -> tuple[Any, Any]:
    """Means and factors as columns, where the block is and in the precision of Q.

    Means are rounded to what 3 can be taken from, and added to, without rounding again.
    """
    numbers = (sites[:, :2] - _THREE).astype(q.planes.dtype)
    numbers += _THREE.astype(numbers.dtype)
    numbers = beside(numbers, packed)
    return numbers[:, :1], numbers[:, 1:]


_THREE = np.array([3.0, 0.0])


def _tiles(packed: Any, sites: Matrix, q: Narrow, left: Any) -> Iterator[tuple[Any, Any, slice]]:
    """Some rows at a time, whose X Q − μ 1ᵀQ is put into their rows of `left`, (rows, columns).

    With that come their decoded planes by pieces, (4, pieces, rows, bytes), in a buffer that is used again. Behind the
    samples of its first plane stand the means, and behind Q's −1ᵀQ: so products centre, and sum what centring takes.

    Little is left to Python between one large product and the next: where two threads compute, one waits for the other
    to pass Python's lock on whenever they meet there, and a processor that waited takes its time to go on.
    """
    xp, dtype, width = namespace(packed), q.planes.dtype, q.planes.shape[2]
    height, n_bytes = packed.shape
    rows, pieces = _cut(packed, dtype.itemsize, width)
    step = -(-(n_bytes + 1) // pieces)
    planes = xp.zeros((PER_BYTE, rows, pieces * step), dtype)
    partial = xp.empty((PER_BYTE, pieces, rows, width), dtype)
    right = xp.zeros((PER_BYTE, pieces * step, width), dtype)
    right[:, :n_bytes] = beside(q.planes, packed)
    right[0, n_bytes] = beside(-q.ones.astype(dtype), packed)
    right = right.reshape(PER_BYTE, pieces, step, width)
    masks = beside(_MASKS, packed)
    means = rounded(packed, sites, q)[0]
    unknown = sites[:, 2] != 0
    incomplete = [bool(unknown[part].any()) for part in _parts(height, rows)]
    between = xp.empty((rows if any(incomplete) else 0, n_bytes), dtype)
    decoded, x, partials, n = planes, planes, partial, -1
    for part, fill in zip(_parts(height, rows), incomplete, strict=True):
        p, mean, y = packed[part], means[part], left[part]
        if len(p) != n:
            n = len(p)
            decoded, partials = planes[:, :n, :n_bytes], partial[:, :, :n]
            x = planes[:, :n].reshape(PER_BYTE, n, pieces, step).transpose(0, 2, 1, 3)
        xp.bitwise_and(p, masks, out=decoded)
        planes[0, :n, n_bytes] = mean[:, 0]
        if fill:
            _fill_missing(decoded, p, mean, between[:n])
        xp.matmul(x, right, out=partials)
        partials.sum(axis=(0, 1), out=y)
        yield x, y, part


_MASKS = np.array([3 << 2 * k for k in range(PER_BYTE)], np.uint8).reshape(PER_BYTE, 1, 1)


def _cut(packed: Any, itemsize: int, width: int) -> tuple[int, int]:
    """Rows of a tile, and into how many pieces its bytes are cut, each multiplied for itself."""
    height, n_bytes = packed.shape
    row_bytes = PER_BYTE * n_bytes * itemsize
    if blocks.on_device(packed):
        return max(1, min(max(16, DEVICE_TILE_BYTES // row_bytes), height)), 1
    rows = max(1, min(TILE_ROWS, max(16, TILE_BYTES // row_bytes), height))
    return rows, -(-n_bytes * rows * width // SMALL)


def _fill_missing(decoded: Any, p: Any, mean: Any, plane: Any) -> None:
    """The site's mean where a code is 3, so that centring leaves 0 there. `plane` is for what is computed between.

    Every sample is touched: to look for those that are missing takes longer from one in a thousand on.
    """
    xp = namespace(p)
    missing = p & p >> 1 & 0x55
    for k in range(PER_BYTE):
        xp.bitwise_and(missing, np.uint8(1 << 2 * k), out=plane)
        plane *= mean - 3
        decoded[k] += plane
