"""What numba compiles for `bits`. Importing this imports numba, and compiles."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import carray, types
from numba.extending import intrinsic

# Words of a plane that are gone through at a time: those of two tiles of samples stay in the second cache.
WORDS = 256
SAMPLES = 32


@intrinsic
def _ones(context: Any, word: Any) -> Any:
    """How many bits are set."""
    return types.int64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


_PLANES, _NUMBERS, _FLAGS = (types.CPointer(kind) for kind in (types.uint64, types.int64, types.uint8))
_N = types.intp


@numba.cfunc(types.void(_PLANES, _N, _PLANES, _N, _N, _N, _NUMBERS))
def pairs(one, n, other, m, words, same, found):  # type: ignore[no-untyped-def]
    """Add to `found` what `bits.pairs` counts for all pairs; where both are the `same`, of those above the diagonal."""
    one, other, found = carray(one, (n, 2, words)), carray(other, (m, 2, words)), carray(found, (4, n, m))
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


@numba.cfunc(types.void(_PLANES, _N, _N, _NUMBERS, _FLAGS, types.CPointer(types.float64), _N, _N, _FLAGS))
def linked(planes, m, words, ends, stays, limit, above, rows, found):  # type: ignore[no-untyped-def]
    """Say of the first rows and those up to their `ends` whether r² reaches `r2`, or is `above` it.

    Of x − 1, which is −1, 0 or 1, all sums are counts of bits; planes are the known, the homozygous and those of two.
    """
    planes, ends, stays = carray(planes, (m, 3, words)), carray(ends, rows), carray(stays, rows)
    found, r2 = carray(found, (rows, m)), carray(limit, 1)[0]
    for i in range(rows):
        if not stays[i]:
            continue
        known, hom, two = planes[i, 0], planes[i, 1], planes[i, 2]
        for j in range(i + 1, ends[i]):
            knows, homs, twos = planes[j, 0], planes[j, 1], planes[j, 2]
            n, product, apart, squares, plus, others, others_plus = 0, 0, 0, 0, 0, 0, 0
            for w in range(words):
                both = hom[w] & homs[w]
                product += _ones(both)
                apart += _ones(both & (two[w] ^ twos[w]))
                n += _ones(known[w] & knows[w])
                squares += _ones(hom[w] & knows[w])
                plus += _ones(two[w] & knows[w])
                others += _ones(homs[w] & known[w])
                others_plus += _ones(twos[w] & known[w])
            total, totals = 2 * plus - squares, 2 * others_plus - others
            covariance = np.float64(n * (product - 2 * apart) - total * totals)
            variances = np.float64(n * squares - total * total) * np.float64(n * others - totals * totals)
            if above:
                found[i, j] = covariance * covariance > r2 * variances
            else:
                found[i, j] = variances > 0 and covariance * covariance >= r2 * variances
