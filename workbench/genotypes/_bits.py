"""Functions of `bits` that numba compiles. Importing this imports numba, and compiles."""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from workbench.compiled import cached

_U = np.uint64
# Words of a plane that are processed at a time: those of two tiles of samples stay in the second cache.
WORDS = 256
SAMPLES = 32


@numba.njit(inline="always")
def _ones(x):  # type: ignore[no-untyped-def]
    """Return the number of set bits: LLVM turns this text (Hacker's Delight, 5-1) into one instruction."""
    x = x - (x >> _U(1) & _U(0x5555555555555555))
    x = (x & _U(0x3333333333333333)) + (x >> _U(2) & _U(0x3333333333333333))
    x = x + (x >> _U(4)) & _U(0x0F0F0F0F0F0F0F0F)
    return np.int64(x * _U(0x0101010101010101) >> _U(56))


_PLANES = types.Array(types.uint64, 3, "C", readonly=True)


@cached(types.void(_PLANES, _PLANES, types.boolean, types.int64[:, :, ::1]))
def pairs(one, other, same, found):  # type: ignore[no-untyped-def]
    """Add the counts of `bits.pairs` for all pairs to `found`; if both are the `same`, of those above the diagonal."""
    (n, _, words), m = one.shape, len(other)
    for start in range(0, words, WORDS):
        stop = min(start + WORDS, words)
        for i0 in range(0, n, SAMPLES):
            for j0 in range(i0 if same else 0, m, SAMPLES):
                for i in range(i0, min(i0 + SAMPLES, n)):
                    low, high = one[i, 0, start:stop], one[i, 1, start:stop]
                    for j in range(max(j0, i + 1) if same else j0, min(j0 + SAMPLES, m)):
                        lower, higher = other[j, 0, start:stop], other[j, 1, start:stop]
                        both, opposite, left, right = 0, 0, 0, 0
                        for w in range(stop - start):
                            a, b, c, d = low[w], high[w], lower[w], higher[w]
                            both += _ones(a & c & ~(b | d))
                            opposite += _ones(~(a | c) & (b ^ d))
                            left += _ones(a & ~b & ~(c & d))
                            right += _ones(c & ~d & ~(a & b))
                        found[0, i, j] += both
                        found[1, i, j] += opposite
                        found[2, i, j] += left
                        found[3, i, j] += right
