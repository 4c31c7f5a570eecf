"""What numba compiles for `fast`. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from workbench.genotypes.kernels import ROWS_IN_SINGLE

COLUMNS = 16
# Accumulators of sixteen numbers, of the 32 registers that AVX-512 has, or of AVX2's 16 that hold half as much each.
PIECE = 12 if llvm.get_host_cpu_features().get("avx512f", False) else 6
# Which 12 and 6 divide; of some thousand samples they stay in the second cache.
TILE_ROWS = 48

_FLOAT, _WORD = ir.FloatType(), ir.IntType(64)
_LANES = ir.VectorType(_FLOAT, COLUMNS)


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
        first = builder.insert_element(ir.Constant(_LANES, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        same = ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [0] * COLUMNS)
        spread = builder.shuffle_vector(first, ir.Constant(_LANES, ir.Undefined), same)
        more.append(builder.fadd(total, builder.fmul(spread, lanes, flags=("contract",)), flags=("contract",)))
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


@numba.njit(nogil=True, cache=True)
def _decode(packed, means, missing, last, x):  # type: ignore[no-untyped-def]
    """Codes times their powers of four in float32, by planes, and means where a code is 3."""
    height, n_bytes = packed.shape
    for r in range(height):
        row = packed[r]
        for k in range(4):
            plane, mask = x[r, k * n_bytes : (k + 1) * n_bytes], np.uint8(3 << 2 * k)
            for b in range(n_bytes):
                plane[b] = np.float32(np.int32(row[b] & mask))
        if missing[r]:
            for b in range(n_bytes):
                bits = row[b] & (row[b] >> 1) & 0x55
                if b == n_bytes - 1:
                    bits &= last
                if bits:
                    for k in range(4):
                        if bits >> 2 * k & 1:
                            x[r, k * n_bytes + b] = means[r] * np.float32(1 << 2 * k)


@numba.njit(nogil=True, cache=True)
def normal(packed, sites, q, ones, last, total, shift):  # type: ignore[no-untyped-def]
    """Add ÃᵀÃ Q of a block to `total`, less what centring takes from every row, which is added to `shift`."""
    height, (lanes, columns) = packed.shape[0], q.shape
    x = np.zeros((TILE_ROWS, lanes), np.float32)
    y = np.empty((TILE_ROWS, columns), np.float32)
    few = np.zeros((lanes, columns), np.float32)
    row_bytes, pending = 4 * columns, 0
    for start in range(0, height, TILE_ROWS):
        rows = min(TILE_ROWS, height - start)
        part = sites[start : start + rows]
        _decode(packed[start : start + rows], part[:, 0], part[:, 2], last, x)
        y[:] = 0
        for r in range(0, rows, PIECE):
            left = x.ctypes.data + 4 * r * lanes
            _add_products(left, 1, lanes, q.ctypes.data, lanes, y.ctypes.data + r * row_bytes)
        for r in range(rows):
            factor = part[r, 1] * part[r, 1]
            for c in range(columns):
                y[r, c] = (y[r, c] - part[r, 0] * ones[c]) * factor
                shift[c] += part[r, 0] * y[r, c]
        for j in range(0, lanes, PIECE):
            _add_products(x.ctypes.data + 4 * j, lanes, 1, y.ctypes.data, rows, few.ctypes.data + j * row_bytes)
        pending += rows
        if pending >= ROWS_IN_SINGLE or start + rows >= height:
            for j in range(lanes):
                for c in range(columns):
                    total[j, c] += few[j, c]
                    few[j, c] = 0
            pending = 0
