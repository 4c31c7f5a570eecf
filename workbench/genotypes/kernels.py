"""Products with packed genotypes, decoded tile by tile, on NumPy and CuPy alike.

Blocks hold our own codes (`COUNTS`: 0, 1, 2 copies, 3 missing), four samples in a byte. A plane is every fourth sample:
`p & (3 << 2k)` is its code times 4ᵏ, so that decoding needs neither shift nor table. The powers of four and the planes'
order go into the narrow factors, where they are exact. What is centred and scaled are the narrow factors, too:

    Ã Q = D (X Q − μ 1ᵀQ)        ÃᵀY = Xᵀ D Y − 1 (μᵀ D Y)        D the sites' factors
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.genotypes.coding import PLINK, Coding
from workbench.genotypes.packing import PER_BYTE, packed_width
from workbench.linalg import blocks
from workbench.linalg.blocks import beside, host, namespace

Matrix = np.ndarray[Any, Any]

# OpenBLAS multiplies without packing its operands first, and faster, up to this M·N·K on the machines that have it.
SMALL = 1_000_000
# Rows of a tile: with 64 both products stay below SMALL for some thousand samples, and the tile in the second cache.
TILE_ROWS = 64
TILE_BYTES = 1_500_000
DEVICE_TILE_BYTES = 2**28
# float32 sums are added to a float64 total every so many rows.
ROWS_IN_SINGLE = 2048
# Rows that are factorized, or counted on a device, at a time.
MANY_ROWS = 1024
# Rows that are counted at a time: what comes between stays in the second cache.
COUNTED_ROWS = 128


def recoded(packed: Any, coding: Coding) -> Any:
    """The block in our own codes."""
    if coding.copies == (0, 1, 2, None):
        return packed
    if coding == PLINK:
        # 00, 01, 10, 11 stand for 2, missing, 1, 0: the upper bit is turned, the lower one is the sum of both.
        return ~packed & 0xAA | (packed ^ packed >> 1) & 0x55
    xp = namespace(packed)
    codes = [3 if count is None else count for count in coding.copies]
    byte = np.arange(256)
    table = sum(np.array(codes)[byte >> 2 * k & 3] << 2 * k for k in range(PER_BYTE))
    return xp.asarray(table.astype(np.uint8))[packed]


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
    found[:, 0] = n_samples - found[:, 1:].sum(axis=1)
    return found


_LOW = np.uint64(0x5555_5555_5555_5555)


def _ones(xp: Any, words: Any) -> Any:
    """How many bits are set in each row."""
    if hasattr(xp, "bitwise_count"):
        found = xp.bitwise_count(words)
    else:
        few = (words & np.uint64(0x3333_3333_3333_3333)) + (words >> np.uint64(2) & np.uint64(0x3333_3333_3333_3333))
        few = few + (few >> np.uint64(4)) & np.uint64(0x0F0F_0F0F_0F0F_0F0F)
        found = few * np.uint64(0x0101_0101_0101_0101) >> np.uint64(56)
    # A product adds along rows faster than NumPy's sum; in float32 it is exact up to 16 million samples.
    dtype = np.float32 if 64 * words.shape[1] < 2**24 else np.float64
    return (found.astype(dtype) @ xp.ones(words.shape[1], dtype)).astype(np.int64)


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


def from_planes(z: Matrix, n_samples: int) -> Matrix:
    """What `to_planes` undoes, from shape (4, columns, bytes): (n_samples, columns)."""
    return (z / _POWERS).transpose(2, 0, 1).reshape(-1, z.shape[1])[:n_samples]


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


def normal(packed: Any, sites: Matrix, q: Narrow) -> Matrix:
    """ÃᵀÃ Q of a block in our codes, in float64: (n_samples, columns)."""
    xp, width = namespace(packed), q.planes.shape[2]
    total = xp.zeros((PER_BYTE, width, packed.shape[1]), np.float64)
    few = xp.zeros(total.shape, q.planes.dtype)
    product = xp.empty(total.shape, q.planes.dtype)
    shift, pending = xp.zeros(width, np.float64), 0
    for x, y, mean, factor in _tiles(packed, sites, q):
        y *= factor * factor
        shift += mean[:, 0] @ y
        for cut in _cuts(x, width):
            xp.matmul(y.T, x[:, :, cut], out=product[:, :, cut])
        few += product
        pending += x.shape[1]
        if pending >= ROWS_IN_SINGLE:
            total += few
            few[...] = 0
            pending = 0
    total += few
    return from_planes(host(total), q.n_samples) - host(shift)


def projected(packed: Any, sites: Matrix, q: Narrow) -> Any:
    """Ã Q of a block in our codes."""
    xp = namespace(packed)
    found = xp.empty((packed.shape[0], q.planes.shape[2]), q.planes.dtype)
    row = 0
    for x, y, _, factor in _tiles(packed, sites, q):
        found[row : row + x.shape[1]] = y * factor
        row += x.shape[1]
    return found


def _tiles(packed: Any, sites: Matrix, q: Narrow) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Some rows at a time: their planes, X Q − μ 1ᵀQ, means and factors. Buffers are used again for the next."""
    xp, dtype, width = namespace(packed), q.planes.dtype, q.planes.shape[2]
    height, n_bytes = packed.shape
    row_bytes = PER_BYTE * n_bytes * dtype.itemsize
    rows = max(16, DEVICE_TILE_BYTES // row_bytes) if blocks.on_device(packed) else _tile_rows(row_bytes)
    rows = max(1, min(rows, height))
    planes, partial = xp.empty((PER_BYTE, rows, n_bytes), dtype), xp.empty((PER_BYTE, rows, width), dtype)
    right, ones = beside(q.planes, packed), beside(q.ones.astype(dtype), packed)
    numbers = beside(sites[:, :2].astype(dtype), packed)
    incomplete = bool(sites[:, 2].any())
    for part in _parts(height, rows):
        p, n = packed[part], part.stop - part.start
        x, partials = planes[:, :n], partial[:, :n]
        for k in range(PER_BYTE):
            xp.bitwise_and(p, np.uint8(3 << 2 * k), out=x[k])
        mean, factor = numbers[part, :1], numbers[part, 1:]
        if incomplete and sites[part, 2].any():
            _fill_missing(x, p, mean[:, 0], q.n_samples)
        y = mean * -ones
        for cut in _cuts(x, width):
            xp.matmul(x[:, :, cut], right[:, cut], out=partials)
            for each in partials:
                y += each
        yield x, y, mean, factor


def _tile_rows(row_bytes: int) -> int:
    return min(TILE_ROWS, max(16, TILE_BYTES // row_bytes))


def _cuts(x: Any, width: int) -> list[slice]:
    """Columns of a tile that are multiplied at a time."""
    if blocks.on_device(x):
        return [slice(None)]
    n_bytes = x.shape[2]
    pieces = -(-n_bytes * x.shape[1] * width // SMALL)
    step = -(-n_bytes // pieces)
    return [slice(start, start + step) for start in range(0, n_bytes, step)]


def _fill_missing(x: Any, p: Any, mean: Any, n_samples: int) -> None:
    """The site's mean where a code is 3, so that centring leaves 0 there."""
    xp = namespace(p)
    missing = p & p >> 1 & 0x55
    missing[:, -1] &= last_byte(n_samples)
    places = xp.flatnonzero(missing != 0)
    row, column = places // p.shape[1], places % p.shape[1]
    bits, values = missing[row, column], mean[row]
    for k in range(PER_BYTE):
        here = (bits & np.uint8(1 << 2 * k)) != 0
        x[k, row[here], column[here]] = values[here] * 4**k
