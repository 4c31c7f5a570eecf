"""What numba compiles for `fast`. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from workbench.genotypes.fast import COLUMNS, STRIP
from workbench.genotypes.kernels import ROWS_IN_SINGLE

# Accumulators of sixteen numbers, of the 32 registers that AVX-512 has, or of AVX2's 16 that hold half as much each.
PIECE = 12 if llvm.get_host_cpu_features().get("avx512f", False) else 6
HALF = 2 * STRIP
# Rows of a tile, which 12 and 6 divide. Q and the sums of all samples are gone through once for each; two planes of a
# strip and the other factor stay in the second cache, which half a million samples gain a quarter by, and few lose by.
TILE_ROWS = 192

_FLOAT, _WORD = ir.FloatType(), ir.IntType(64)
_LANES = ir.VectorType(_FLOAT, COLUMNS)


def _spread(builder: Any, value: Any) -> Any:
    """As many of the same value as a register has lanes."""
    lanes = ir.VectorType(value.type, COLUMNS)
    first = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [0] * COLUMNS)
    return builder.shuffle_vector(first, ir.Constant(lanes, ir.Undefined), same)


def _multiplied(builder: Any, left: Any, step: Any, apart: Any, right: Any, count: Any) -> list[Any]:
    """Σᵢ left[i · step + p · apart] · right[i] for PIECE values of p, in as many registers; `right` has lanes."""
    before = builder.block
    loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    zero, one = ir.Constant(_WORD, 0), ir.Constant(_WORD, 1)
    nothing = ir.Constant(_LANES, [0.0] * COLUMNS)
    offsets = [builder.mul(ir.Constant(_WORD, p), apart) for p in range(PIECE)]
    builder.cbranch(builder.icmp_signed(">", count, zero), loop, after)
    builder.position_at_end(loop)
    i = builder.phi(_WORD)
    i.add_incoming(zero, before)
    sums = [builder.phi(_LANES) for _ in range(PIECE)]
    row = builder.bitcast(builder.gep(right, [builder.mul(i, ir.Constant(_WORD, COLUMNS))]), _LANES.as_pointer())
    lanes = builder.load(row)
    lanes.align = 4
    here = builder.mul(i, step)
    more = []
    for total, offset in zip(sums, offsets, strict=True):
        total.add_incoming(nothing, before)
        number = builder.load(builder.gep(left, [builder.add(here, offset)]))
        product = builder.fmul(_spread(builder, number), lanes, flags=("contract",))
        more.append(builder.fadd(total, product, flags=("contract",)))
    following = builder.add(i, one)
    i.add_incoming(following, loop)
    for total, value in zip(sums, more, strict=True):
        total.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    found = []
    for value in more:
        end = builder.phi(_LANES)
        end.add_incoming(nothing, before)
        end.add_incoming(value, loop)
        found.append(end)
    return found


@intrinsic
def _add_products(context, left, step, apart, right, count, out):  # type: ignore[no-untyped-def]
    """Add PIECE sums of products, as `_multiplied` has them, to the rows of lanes at `out`. Addresses are integers."""
    signature = types.void(types.intp, types.intp, types.intp, types.intp, types.intp, types.intp)

    def generated(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        left, step, apart, right, count, out = arguments
        floats = _FLOAT.as_pointer()
        left, right, out = (builder.inttoptr(address, floats) for address in (left, right, out))
        for p, value in enumerate(_multiplied(builder, left, step, apart, right, count)):
            place = builder.gep(out, [ir.Constant(_WORD, p * COLUMNS)])
            place = builder.bitcast(place, _LANES.as_pointer())
            old = builder.load(place)
            old.align = 4
            builder.store(builder.fadd(old, value), place).align = 4
        return context.get_dummy_value()

    return signature, generated


@intrinsic
def _decode(context, source, out, mask, fill):  # type: ignore[no-untyped-def]
    """Put the codes of STRIP bytes under `mask`, and then of the plane above, as floats at `out`; `fill` where it is 3.

    `mask` and `fill` are those of the lower plane, powers of four among them.
    """
    signature = types.void(types.intp, types.intp, types.int32, types.float32)

    def generated(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source, out, mask, fill = arguments
        source = builder.inttoptr(source, ir.IntType(8).as_pointer())
        out = builder.inttoptr(out, _FLOAT.as_pointer())
        planes = [(_spread(builder, mask), _spread(builder, fill))]
        mask, fill = builder.shl(mask, ir.Constant(mask.type, 2)), builder.fmul(fill, ir.Constant(_FLOAT, 4.0))
        planes.append((_spread(builder, mask), _spread(builder, fill)))
        for start in range(0, STRIP, COLUMNS):
            place = builder.gep(source, [ir.Constant(_WORD, start)])
            octets = builder.load(builder.bitcast(place, ir.VectorType(ir.IntType(8), COLUMNS).as_pointer()))
            octets.align = 1
            wide = builder.zext(octets, ir.VectorType(ir.IntType(32), COLUMNS))
            for k, (three, missing) in enumerate(planes):
                code = builder.and_(wide, three)
                known = builder.icmp_signed("!=", code, three)
                number = builder.select(known, builder.sitofp(code, _LANES), missing)
                place = builder.gep(out, [ir.Constant(_WORD, k * STRIP + start)])
                builder.store(number, builder.bitcast(place, _LANES.as_pointer())).align = 4
        return context.get_dummy_value()

    return signature, generated


@intrinsic
def _eight(context, address):  # type: ignore[no-untyped-def]
    """The eight bytes at an address."""

    def generated(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        word = builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()))
        word.align = 1
        return word

    return types.uint64(types.intp), generated


@intrinsic
def _ones(context, word):  # type: ignore[no-untyped-def]
    """How many bits are set."""
    return types.int64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


@numba.njit(nogil=True, cache=True)
def _address(array):  # type: ignore[no-untyped-def]
    """Where an array begins, as a signed number: numba makes a float of the sum of an unsigned and a signed one."""
    return np.intp(array.ctypes.data)


# Blocks may be read-only, as those of a mapped file are; with a type that says so all are taken by the same code.
_BLOCK = types.Array(types.uint8, 2, "C", readonly=True)
_FACTOR, _TOTAL = types.float32[:, :, ::1], types.float64[:, :, ::1]


@numba.njit(
    types.void(_BLOCK, types.float32[:, ::1], _FACTOR, types.float32[:, ::1], _FACTOR, _TOTAL), nogil=True, cache=True
)
def normal(packed, sites, q, ones, few, total):  # type: ignore[no-untyped-def]
    """Add ÃᵀÃ Q of a block to `few`, or every so many rows to `total` if that isn't empty, but for centring.

    Both hold groups of columns, whose rows are those of `q` and one for what centring takes from every other. All
    groups are multiplied by a strip once it is decoded. It is decoded for each of the two products anew: that is
    quicker than to read what the first one left in the second cache.
    """
    (height, n_bytes), (groups, lanes, columns) = packed.shape, q.shape
    x, tail = np.zeros((TILE_ROWS, HALF), np.float32), np.zeros(TILE_ROWS * n_bytes + STRIP, np.uint8)
    y, shift = np.empty((groups, TILE_ROWS, columns), np.float32), np.zeros((groups, columns))
    fills = np.where(sites[:, 2] != 0, sites[:, 0], np.float32(3))
    at_x, at_y, at_q, at_few, at_packed = _address(x), _address(y), _address(q), _address(few), _address(packed)
    row_bytes, pending = 4 * columns, 0
    for start in range(0, height, TILE_ROWS):
        rows = min(TILE_ROWS, height - start)
        at_rows = at_packed + start * n_bytes
        if (height - start - rows) * n_bytes < STRIP:
            # A strip may end behind its row: there the factors are 0, but behind the block it isn't ours to read.
            for r in range(rows):
                tail[r * n_bytes : (r + 1) * n_bytes] = packed[start + r]
            at_rows = _address(tail)
        y[:] = 0
        for half in range(lanes // HALF):
            at_strip, lower = at_rows + half // 2 * STRIP, half % 2 * 2
            mask, scale = np.int32(3 << 2 * lower), np.float32(1 << 2 * lower)
            for r in range(0, rows, PIECE):
                for p in range(min(PIECE, rows - r)):
                    _decode(at_strip + (r + p) * n_bytes, at_x + 4 * p * HALF, mask, fills[start + r + p] * scale)
                for g in range(groups):
                    at_right = at_q + (g * lanes + half * HALF) * row_bytes
                    _add_products(at_x, 1, HALF, at_right, HALF, at_y + (g * TILE_ROWS + r) * row_bytes)
        for g in range(groups):
            for r in range(rows):
                mean, factor = sites[start + r, 0], sites[start + r, 1]
                for c in range(columns):
                    y[g, r, c] = (y[g, r, c] - mean * ones[g, c]) * factor * factor
                    shift[g, c] += mean * y[g, r, c]
        for half in range(lanes // HALF):
            at_strip, lower = at_rows + half // 2 * STRIP, half % 2 * 2
            mask, scale = np.int32(3 << 2 * lower), np.float32(1 << 2 * lower)
            for r in range(rows):
                _decode(at_strip + r * n_bytes, at_x + 4 * r * HALF, mask, fills[start + r] * scale)
            for g in range(groups):
                at_left, at_sums = (
                    at_y + g * TILE_ROWS * row_bytes,
                    at_few + (g * (lanes + 1) + half * HALF) * row_bytes,
                )
                for j in range(0, HALF, PIECE):
                    _add_products(at_x + 4 * j, HALF, 1, at_left, rows, at_sums + j * row_bytes)
        pending += rows
        if total.size and (pending >= ROWS_IN_SINGLE or start + rows >= height):
            for g in range(groups):
                for j in range(lanes):
                    for c in range(columns):
                        total[g, j, c] += few[g, j, c]
                        few[g, j, c] = 0
            pending = 0
    for g in range(groups):
        for c in range(columns):
            if total.size:
                total[g, lanes, c] = shift[g, c]
            else:
                few[g, lanes, c] = shift[g, c]


@numba.njit(types.void(_BLOCK, types.uint8, types.int64[:, ::1]), nogil=True, cache=True)
def counted(packed, last, found):  # type: ignore[no-untyped-def]
    """Put the samples with 0, 1, 2 copies and with none known into the columns of `found`, the first less padding.

    `last` are the bits of a row's last byte that belong to samples.
    """
    height, n_bytes = packed.shape
    words, at_packed, tail = (n_bytes - 1) // 8, _address(packed), np.zeros(8, np.uint8)
    lows = np.uint64(0x5555555555555555)
    for row in range(height):
        one, two, both, at_row = 0, 0, 0, at_packed + row * n_bytes
        for i in range(words + 1):
            if i < words:
                word = _eight(at_row + 8 * i)
            else:
                tail[: n_bytes - 8 * words] = packed[row, 8 * words :]
                tail[n_bytes - 8 * words - 1] &= last
                word = _eight(_address(tail))
            low, high = word & lows, word >> np.uint64(1) & lows
            one, two, both = one + _ones(low), two + _ones(high), both + _ones(low & high)
        found[row, 0], found[row, 1], found[row, 2], found[row, 3] = -one - two + both, one - both, two - both, both


@numba.njit(
    types.UniTuple(types.uint32, 2)(types.Array(types.uint32, 1, "C", readonly=True), types.uint32, types.uint8[::1]),
    nogil=True,
    cache=True,
)
def packed_bytes(four, gather, out):  # type: ignore[no-untyped-def]
    """Put codes, four as the bytes of each integer, into bytes of `out` by the product `gather`.

    The answer is the bits that any of them has, and by an odd bit of its byte whether one has two side by side.
    """
    seen, threes = np.uint32(0), np.uint32(0)
    for i in range(four.size):
        codes = four[i]
        seen |= codes
        threes |= codes & codes >> np.uint32(1)
        out[i] = np.uint8(codes * gather >> np.uint32(24))
    return seen, threes
