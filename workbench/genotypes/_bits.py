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
# Variants that stay in the first cache while each later one is compared with them.
VARIANTS = 8


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


@numba.njit(inline="always")
def _least(n, squares, total, left):  # type: ignore[no-untyped-def]
    """The least of n·Σx² − (Σx)² when as many as `left` of n numbers, each −1, 0 or 1, are left out.

    It is the sum of (x − y)² over all pairs, of which each number that goes takes its own.
    """
    total = abs(total)
    rare = min(left, (squares - total) >> 1)
    common = max(squares, n + squares - 2 * total)
    return n * squares - total * total - rare * (n + squares + 2 * total) - (left - rare) * common


@numba.cfunc(types.void(_PLANES, _N, _N, _NUMBERS, _N, _NUMBERS, _FLAGS, types.CPointer(types.float64), _N, _N, _FLAGS))
def linked(planes, m, words, ones, samples, ends, stays, limit, above, rows, found):  # type: ignore[no-untyped-def]
    """Say of the first rows and those up to their `ends` whether r² reaches `r2`, or is `above` it.

    Of x − 1, which is −1, 0 or 1, all sums are counts of bits; planes are the known, the homozygous and those of two,
    `ones` their bits. Where what isn't known can't lift r² to the limit, whatever it is, two of seven counts will do.
    """
    planes, ones = carray(planes, (m, 3, words)), carray(ones, (m, 3))
    ends, stays = carray(ends, rows), carray(stays, rows)
    found, r2 = carray(found, (rows, m)), carray(limit, 1)[0]
    for first in range(0, rows, VARIANTS):
        last, end = min(first + VARIANTS, rows), 0
        for i in range(first, last):
            end = max(end, ends[i])
        for j in range(first + 1, end):
            knows, homs, twos = planes[j, 0], planes[j, 1], planes[j, 2]
            n_j, q_j, s_j = ones[j, 0], ones[j, 1], 2 * ones[j, 2] - ones[j, 1]
            for i in range(first, min(last, j)):
                if not stays[i] or j >= ends[i]:
                    continue
                known, hom, two = planes[i, 0], planes[i, 1], planes[i, 2]
                n_i, q_i, s_i = ones[i, 0], ones[i, 1], 2 * ones[i, 2] - ones[i, 1]
                product, apart = 0, 0
                for w in range(words):
                    both = hom[w] & homs[w]
                    product += _ones(both)
                    apart += _ones(both & (two[w] ^ twos[w]))
                product -= 2 * apart
                left_i, left_j = samples - n_j, samples - n_i
                fewest = max(0, n_i + n_j - samples)
                most = abs(fewest * product - s_i * s_j) + (min(n_i, n_j) - fewest) * abs(product)
                most += abs(s_i) * left_j + abs(s_j) * left_i + left_i * left_j
                least_i, least_j = _least(n_i, q_i, s_i, left_i), _least(n_j, q_j, s_j, left_j)
                # The margin is far above what rounding can do.
                far = np.float64(most) * most < 0.999 * r2 * (np.float64(least_i) * least_j)
                if far and least_i > 0 and least_j > 0:
                    continue
                n, squares, plus, others, others_plus = 0, 0, 0, 0, 0
                for w in range(words):
                    n += _ones(known[w] & knows[w])
                    squares += _ones(hom[w] & knows[w])
                    plus += _ones(two[w] & knows[w])
                    others += _ones(homs[w] & known[w])
                    others_plus += _ones(twos[w] & known[w])
                total, totals = 2 * plus - squares, 2 * others_plus - others
                covariance = np.float64(n * product - total * totals)
                variances = np.float64(n * squares - total * total) * np.float64(n * others - totals * totals)
                if above:
                    found[i, j] = covariance * covariance > r2 * variances
                else:
                    found[i, j] = variances > 0 and covariance * covariance >= r2 * variances
