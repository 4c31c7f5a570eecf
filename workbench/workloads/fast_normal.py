"""Normal random numbers, a tile at a time: functions that numba compiles for `generators`. Imports numba.

A tile's numbers follow from the seed and the tile's place alone, so an array doesn't depend on how it is cut into
blocks. Philox4x32-10 (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011) makes the states of 32
generators xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021) from seed and
place; these run side by side, so that the compiler makes vector instructions of them; and Box and Muller's
transformation (1958) makes two normal numbers from two whole ones. The results of TestU01 are in
tests/benchmarks/results.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from workbench.compiled import cached
from workbench.workloads.generators import LANES

_U = np.uint64
_I = np.int64
_LOW = _U(0xFFFFFFFF)
_ONE = _I(0x3FF0000000000000)  # bits of 1.0; with 52 random bits below them, of a number from 1 to 2
_BIG = _I(0x4330000000000000)  # bits of 2**52, whose last place is worth 1
_ROOT_OF_HALF = _I(0x3FE6A09E667F3BCD)  # bits of sqrt(1/2)
_SEEDING = _U(1)  # last word of the counter, so that other uses of the same key don't get the same numbers


@njit
def _bits(x: Any) -> Any:
    """Return the bits of a float64 as an int64."""
    return np.float64(x).view(np.int64)


@njit
def _float(x: Any) -> Any:
    """Return float64 of these bits."""
    return np.int64(x).view(np.float64)


@njit(inline="always")
def _rotated(x: Any, k: int) -> Any:
    return (x << _U(k)) | (x >> _U(64 - k))


@njit
def _philox(key0: Any, key1: Any, c0: Any, c1: Any, c2: Any, c3: Any) -> Any:
    for _ in range(10):
        p0 = _U(0xD2511F53) * c0
        p1 = _U(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> _U(32)) ^ c1 ^ key0, p1 & _LOW, (p0 >> _U(32)) ^ c3 ^ key1, p0 & _LOW
        key0 = (key0 + _U(0x9E3779B9)) & _LOW
        key1 = (key1 + _U(0xBB67AE85)) & _LOW
    return c0, c1, c2, c3


@njit
def seed_states(seed: int, row: int, column: int, states: Any) -> None:
    """Set the states (4, LANES) of a tile's generators."""
    for word in range(4):
        for lane in range(0, LANES, 2):
            a, b, c, d = _philox(
                _U(seed) & _LOW, _U(seed) >> _U(32), _U(row), _U(column), _U(word * LANES + lane), _SEEDING
            )
            states[word, lane] = (a << _U(32)) | b
            states[word, lane + 1] = (c << _U(32)) | d


@njit(inline="always")
def step(states: Any, first: Any, second: Any) -> None:
    """Draw two whole numbers from each generator."""
    s0, s1, s2, s3 = states[0], states[1], states[2], states[3]
    for lane in range(LANES):
        a, b, c, d = s0[lane], s1[lane], s2[lane], s3[lane]
        first[lane] = _rotated(a + d, 23) + a
        shifted = b << _U(17)
        c ^= a
        d ^= b
        b ^= c
        a ^= d
        c ^= shifted
        d = _rotated(d, 45)
        second[lane] = _rotated(a + d, 23) + a
        shifted = b << _U(17)
        c ^= a
        d ^= b
        b ^= c
        a ^= d
        c ^= shifted
        s0[lane], s1[lane], s2[lane], s3[lane] = a, b, c, _rotated(d, 45)


@njit(inline="always")
def _radius(random: Any) -> Any:
    """Return sqrt(-2 log u) of u from 0 (never reached) to 1, from the upper 52 bits."""
    u = _bits(2.0 - _float(_I(random >> _U(12)) | _ONE))
    exponent = (u - _ROOT_OF_HALF) >> _I(52)
    mantissa = _float(u - (exponent << _I(52)))
    # Convert the exponent, -52 to 0, to float64 without an instruction that only the newest processors have.
    whole = _float(_BIG | (exponent + _I(2048))) - (4503599627370496.0 + 2048.0)
    # log((1 + f) / (1 - f)) = 2 atanh(f) with the coefficients of fdlibm's e_log.c.
    f = (mantissa - 1.0) / (mantissa + 1.0)
    z = f * f
    series = 0.14798198605116586
    series = series * z + 0.15313837699209373
    series = series * z + 0.18183572161618050
    series = series * z + 0.22222198432149784
    series = series * z + 0.28571428743662391
    series = series * z + 0.39999999999409419
    series = series * z + 0.66666666666667351
    return math.sqrt(-2.0 * (whole * 0.6931471805599453 + (2.0 * f + f * z * series)))


@njit(inline="always")
def _pair(first: Any, second: Any) -> Any:
    """Return two independent standard normal numbers from two random whole ones."""
    radius = _radius(first)
    # Two bits choose the quarter of the circle, the others the angle within it, -pi/4 to pi/4.
    quarter = second >> _U(62)
    x = (_float(_I((second << _U(2)) >> _U(12)) | _ONE) - 1.5) * 1.5707963267948966
    z = x * x
    # fdlibm's kernels of sine and cosine.
    sine = 1.58969099521155010221e-10
    sine = sine * z - 2.50507602534068634195e-08
    sine = sine * z + 2.75573137070700676789e-06
    sine = sine * z - 1.98412698298579493134e-04
    sine = sine * z + 8.33333333332248946124e-03
    sine = sine * z - 1.66666666666666324348e-01
    sine = x + x * z * sine
    cosine = -1.13596475577881948265e-11
    cosine = cosine * z + 2.08757232129817482790e-09
    cosine = cosine * z - 2.75573143513906633035e-07
    cosine = cosine * z + 2.48015872894767294178e-05
    cosine = cosine * z - 1.38888888888741095749e-03
    cosine = cosine * z + 4.16666666666666019037e-02
    cosine = 1.0 - 0.5 * z + z * z * cosine
    # Turn by quarters: exchange the two and set their signs by bit operations, without branches, to be vectorized.
    c, s = _bits(cosine), _bits(sine)
    exchanged = (c ^ s) & -_I(quarter & _U(1))
    c = c ^ exchanged ^ _I(((quarter ^ (quarter >> _U(1))) & _U(1)) << _U(63))
    s = s ^ exchanged ^ _I((quarter >> _U(1)) << _U(63))
    return radius * _float(c), radius * _float(s)


@njit(error_model="numpy", fastmath={"contract"})
def _fill(seed: Any, row: Any, column: Any, words: Any, moments: Any, tile: Any) -> None:
    """Fill a tile, its rows one after the other, with normal numbers of this mean and deviation."""
    seed_states(seed, row, column, words)
    loc, scale = moments
    for start in range(0, len(tile), 2 * LANES):
        step(words, words[4], words[5])
        lower = tile[start : start + LANES]
        upper = tile[start + LANES : start + 2 * LANES]
        for lane in range(LANES):
            x, y = _pair(words[4, lane], words[5, lane])
            lower[lane] = loc + scale * x
            upper[lane] = loc + scale * y


@njit(error_model="numpy", fastmath={"contract", "reassoc"})
def _every_other(tile: Any, rows: int, columns: int, first_row: int, first_column: int) -> float:
    """Sum `x + 1` over every other row and column of the tile's first rows and columns."""
    total = 0.0
    for i in range(first_row, rows, 2):
        part = 0.0
        for j in range(first_column, columns, 2):
            part += tile[i, j] + 1.0
        total += part
    return total


_PLACE, _MOMENTS = types.uint64[::1], types.float64[::1]
_TILES = types.float64, types.float32


@cached(*(types.void(_PLACE, _MOMENTS, each[:, ::1]) for each in _TILES), constants=LANES)
def fill(place: Any, moments: Any, tile: Any) -> None:
    """Fill the tile of a seed, row and column with its numbers."""
    _fill(place[0], place[1], place[2], np.empty((6, LANES), _U), moments, tile.reshape(-1))


@cached(*(types.float64(_PLACE, _MOMENTS, each[:, ::1]) for each in _TILES), constants=LANES)
def sum_every_other(place: Any, moments: Any, tile: Any) -> Any:
    """Return the sum of `x + 1` over every other row and column of a block, tile by tile.

    `place` has the seed and the limits of the block; each tile is drawn into `tile`.
    """
    top, bottom, left, right = _I(place[1]), _I(place[2]), _I(place[3]), _I(place[4])
    side, flat, whole, words = len(tile), tile.reshape(-1), 0.0, np.empty((6, LANES), _U)
    for row in range(top // side, -(-bottom // side)):
        for column in range(left // side, -(-right // side)):
            _fill(place[0], _U(row), _U(column), words, moments, flat)
            y, x = row * side, column * side
            # First even row and column within the block, which may not be the tile's first.
            first_row, first_column = max(top + top % 2 - y, 0), max(left + left % 2 - x, 0)
            whole += _every_other(tile, min(bottom - y, side), min(right - x, side), first_row, first_column)
    return whole
