"""Functions of `fast` that numba compiles. Importing this imports numba, and compiles or loads what was compiled.

Tables, names and sums are made by vector instructions of LLVM. As loops, tables take the whole product twice as long,
names three times, and sums in Python's terms go through memory: LLVM doesn't know that two arrays don't overlap.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from workbench.compiled import cached
from workbench.genotypes.fast import COLUMNS, STRIP
from workbench.genotypes.kernels import ROWS_IN_SINGLE

PLANES, THIRD, ROW_BYTES = 4, STRIP // 3, 4 * COLUMNS
# A table has all sums of three rows of lanes, each times 0, 1 or 2, or in tables of sites also times its mean. So many
# tables stay in the first-level cache while rows, or samples, are looked up in them.
TABLES, TABLE_BYTES = 16, 3**3 * ROW_BYTES
TABLES_OF_SITES, TABLE_OF_SITES_BYTES = 7, 4**3 * ROW_BYTES
SITES = 3 * TABLES_OF_SITES
# Rows looked up side by side: an addition to a sum has to wait for the previous one.
ROWS = 4
# Rows, a multiple of SITES and ROWS, that share tables of samples; and strips that share tables of sites.
TILE_ROWS, PANEL = 6 * ROWS * SITES, 8
# Samples whose sums stay in registers: AVX-512 has 32 of sixteen numbers, AVX2 16 of eight.
AT_ONCE = 16 if llvm.get_host_cpu_features().get("avx512f", False) else 4

_FLOAT, _WORD = ir.FloatType(), ir.IntType(64)
_LANES, _OCTETS = ir.VectorType(_FLOAT, COLUMNS), ir.VectorType(ir.IntType(8), THIRD)


def _lowered(result: Any, *kinds: Any) -> Any:
    """Return a function that emits its instructions into compiled code, for a builder and argument types."""

    def declared(put: Any) -> Any:
        def generated(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            value = put(builder, *arguments)
            return context.get_dummy_value() if value is None else value

        @functools.wraps(put)
        def typed(_: Any, *__: Any) -> Any:
            return result(*kinds), generated

        return intrinsic(typed)

    return declared


def _load(builder: Any, kind: Any, address: Any) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def _add_to(builder: Any, address: Any, value: Any) -> None:
    _store(builder, builder.fadd(_load(builder, value.type, address), value, flags=("contract",)), address)


def _on(builder: Any, address: Any, n_bytes: int) -> Any:
    """Return the address so many bytes further."""
    return builder.add(address, ir.Constant(_WORD, n_bytes))


def _spread(builder: Any, value: Any) -> Any:
    """Return the same value in all lanes."""
    first = builder.insert_element(ir.Constant(_LANES, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [0] * COLUMNS)
    return builder.shuffle_vector(first, ir.Constant(_LANES, ir.Undefined), same)


def _bits(builder: Any, codes: Any, shift: int, mask: int) -> Any:
    """Return the codes moved to the left or right, with a mask applied."""
    by = ir.Constant(codes.type, [abs(shift)] * THIRD if codes.type == _OCTETS else abs(shift))
    bits = ir.Constant(codes.type, [mask] * THIRD if codes.type == _OCTETS else mask)
    return builder.and_(builder.shl(codes, by) if shift > 0 else builder.lshr(codes, by), bits)


def _entry(builder: Any, table: Any, word: Any, octet: int, bits: int) -> Any:
    """Return the table entries that the upper `bits` of each byte of a word select, in lanes."""
    eighths = _bits(builder, word, bits - 5 - 8 * octet, 2**bits - 1 << 3)
    place = eighths if word.type == _WORD else builder.zext(eighths, _WORD)
    return _load(builder, _LANES, builder.add(table, builder.mul(place, ir.Constant(_WORD, 8))))


def _put_sums(builder: Any, multiples: Any, out: Any) -> None:
    """Put the sums of a multiple of each of three rows into a table: those of the first row side by side."""
    sums = [ir.Constant(_LANES, [0.0] * COLUMNS)]
    for of_row in reversed(multiples):
        sums = [each if addend is None else builder.fadd(each, addend) for each in sums for addend in of_row]
    for i, each in enumerate(sums):
        _store(builder, each, _on(builder, out, i * ROW_BYTES))


@_lowered(types.void, types.intp, types.intp)
def _make_table(builder, first, out):  # type: ignore[no-untyped-def]
    """Fill each row a + 3b + 9c of a table with a·x + b·y + c·z. Rows x, y and z are THIRD rows apart."""
    rows = [_load(builder, _LANES, _on(builder, first, i * THIRD * ROW_BYTES)) for i in range(3)]
    _put_sums(builder, [(None, row, builder.fadd(row, row)) for row in rows], out)


@_lowered(types.void, types.intp, types.intp, types.intp)
def _make_table_of_sites(builder, first, means, out):  # type: ignore[no-untyped-def]
    """Fill row a + 4b + 16c of a table with a·x + b·y + c·z of three rows; a factor of 3 means the row's mean."""
    multiples = []
    for i in range(3):
        row = _load(builder, _LANES, _on(builder, first, i * ROW_BYTES))
        mean = _spread(builder, _load(builder, _FLOAT, _on(builder, means, 4 * i)))
        multiples.append((None, row, builder.fadd(row, row), builder.fmul(row, mean)))
    _put_sums(builder, multiples, out)


@_lowered(types.void, types.intp, types.intp, types.intp)
def _name_sums(builder, first, out, stride):  # type: ignore[no-untyped-def]
    """Write table offsets 8 (a + 3b + 9c) of a strip's thirds to `out`. Planes are `stride` bytes apart.

    A missing genotype counts as 0.
    """
    known = []
    for third in range(3):
        codes = _load(builder, _OCTETS, _on(builder, first, third * THIRD))
        upper = builder.and_(codes, _bits(builder, codes, 1, 0xAA))
        known.append(builder.xor(codes, builder.or_(upper, _bits(builder, upper, -1, 0x55))))
    for plane in range(PLANES):
        a, b, c = (_bits(builder, codes, 3 - 2 * plane, 3 << 3) for codes in known)
        for digit in (b, a):
            c = builder.add(digit, builder.add(c, builder.add(c, c)))
        _store(builder, c, builder.add(out, builder.mul(stride, ir.Constant(_WORD, plane))))


@_lowered(types.void, types.intp, types.intp, types.intp, types.intp)
def _name_sums_of_sites(builder, first, second, third, out):  # type: ignore[no-untyped-def]
    """Write table offsets 4 (a + 4b + 16c) of three rows' codes to `out`, plane by plane."""
    rows = [_load(builder, _OCTETS, place) for place in (first, second, third)]
    for plane in range(PLANES):
        a, b, c = (_bits(builder, codes, 2 * (i - plane), 3 << 2 * i) for i, codes in enumerate(rows, 1))
        _store(builder, builder.or_(builder.or_(a, b), c), _on(builder, out, plane * TABLES_OF_SITES * STRIP))


@_lowered(types.void, types.intp, types.intp, types.intp)
def _look_up_rows(builder, octets, tables, out):  # type: ignore[no-untyped-def]
    """Look up each row's TABLES bytes, one in each table. Add the entries to ROWS rows at `out`."""
    sums = [ir.Constant(_LANES, [0.0] * COLUMNS)] * ROWS
    for start in range(0, TABLES, 8):
        words = [_load(builder, _WORD, _on(builder, octets, row * THIRD + start)) for row in range(ROWS)]
        for octet in range(8):
            table = _on(builder, tables, (start + octet) * TABLE_BYTES)
            sums = [builder.fadd(sums[row], _entry(builder, table, words[row], octet, 5)) for row in range(ROWS)]
    for row, value in enumerate(sums):
        _add_to(builder, _on(builder, out, row * ROW_BYTES), value)


@_lowered(types.void, types.intp, types.intp, types.intp)
def _look_up_samples(builder, octets, tables, out):  # type: ignore[no-untyped-def]
    """Look up each sample's bytes, one in each table of sites. Add the entries to AT_ONCE rows at `out`."""
    of_word = min(AT_ONCE, 8)
    word_type = ir.IntType(8 * of_word)
    places = [_on(builder, out, sample * ROW_BYTES) for sample in range(AT_ONCE)]
    sums = [_load(builder, _LANES, place) for place in places]
    for i in range(TABLES_OF_SITES):
        table = _on(builder, tables, i * TABLE_OF_SITES_BYTES)
        for start in range(0, AT_ONCE, of_word):
            word = _load(builder, word_type, _on(builder, octets, i * STRIP + start))
            for octet in range(of_word):
                sums[start + octet] = builder.fadd(sums[start + octet], _entry(builder, table, word, octet, 6))
    for value, place in zip(sums, places, strict=True):
        _store(builder, value, place)


@_lowered(types.void, types.intp, types.float32, types.intp)
def _add_multiple(builder, source, factor, out):  # type: ignore[no-untyped-def]
    """Add a multiple of the row of lanes at `source` to that at `out`."""
    row = _load(builder, _LANES, source)
    _add_to(builder, out, builder.fmul(row, _spread(builder, factor), flags=("contract",)))


@_lowered(types.uint64, types.intp)
def _eight(builder, address):  # type: ignore[no-untyped-def]
    """Return the eight bytes at an address."""
    return _load(builder, _WORD, address)


@_lowered(types.int64, types.uint64)
def _ones(builder, word):  # type: ignore[no-untyped-def]
    """Return the number of set bits."""
    return builder.ctpop(word)


@numba.njit
def _address(array):  # type: ignore[no-untyped-def]
    """Return the address of an array as a signed number. In numba, unsigned plus signed is a float."""
    return np.intp(array.ctypes.data)


@numba.njit
def _aligned(n_bytes):  # type: ignore[no-untyped-def]
    """Return zeros that begin on a line of the processor's cache: what lies across two of them takes twice as long."""
    room = np.zeros(n_bytes + 64, np.uint8)
    start = -_address(room) % 64
    return room[start : start + n_bytes]


@numba.njit
def _unknown(places, incomplete, n_incomplete, at, unknown):  # type: ignore[no-untyped-def]
    """Mark the unknown genotypes of sixteen bytes of rows in `unknown`, and return their number.

    Each is 64 times its row, and the bit of it in the first eight bytes, or the odd one after that bit in the others.
    """
    n, lows, one = 0, np.uint64(0x5555555555555555), np.uint64(1)
    for i in range(n_incomplete):
        r = incomplete[i]
        of_row = r * np.uint32(64)
        first, second = _eight(places[r] + at), _eight(places[r] + at + 8)
        both = first & first >> np.uint64(1) & lows | second & second << np.uint64(1) & ~lows
        end = n + _ones(both)
        while True:
            # Always two at a time: a loop of varying length would be mispredicted.
            for k in range(2):
                unknown[n + k] = of_row + np.uint32(_ones((both & -both) - one))
                both &= both - one
            if n + 2 >= end:
                break
            n += 2
        n = end
    return n


@numba.njit
def _add_unknown(places, means, incomplete, n_incomplete, strip, q, unknown, y):  # type: ignore[no-untyped-def]
    """Add a row's mean times what a strip's samples have in Q to X Q, where its genotypes aren't known."""
    (groups, lanes, _), tile_rows = q.shape, y.shape[1]
    # Loop over rows inside bytes: consecutive additions to the same sum would wait for each other.
    for octet in range(0, STRIP, 16):
        n = _unknown(places, incomplete, n_incomplete, strip * STRIP + octet, unknown)
        for g in range(groups):
            at_lane = _address(q) + (g * lanes + strip * PLANES * STRIP + octet) * ROW_BYTES
            at_row = _address(y) + g * tile_rows * ROW_BYTES
            for i in range(n):
                r, bit = unknown[i] >> np.uint32(6), np.intp(unknown[i] & np.uint32(63))
                lane = (bit >> 1 & 3) * STRIP + (bit & 1) * 8 + (bit >> 3)
                _add_multiple(at_lane + lane * ROW_BYTES, means[r], at_row + np.intp(r) * ROW_BYTES)


@numba.njit
def _add_rows(places, rows, strip, q, named, tables, y):  # type: ignore[no-untyped-def]
    """Add the samples of a strip to X Q of all rows; a genotype that isn't known counts 0."""
    (groups, lanes, _), tile_rows = q.shape, y.shape[1]
    at_named, at_tables, at_y = _address(named), _address(tables), _address(y)
    at_q = _address(q) + strip * PLANES * STRIP * ROW_BYTES
    for r in range(rows):
        at_strip = places[r] + strip * STRIP
        _name_sums(at_strip, at_named + r * THIRD, tile_rows * THIRD)
    for g in range(groups):
        for plane in range(PLANES):
            for part in range(0, THIRD, TABLES):
                at_lane = at_q + (g * lanes + plane * STRIP + part) * ROW_BYTES
                for t in range(TABLES):
                    _make_table(at_lane + t * ROW_BYTES, at_tables + t * TABLE_BYTES)
                at_part = at_named + plane * tile_rows * THIRD + part
                for r in range(0, rows, ROWS):
                    _look_up_rows(at_part + r * THIRD, at_tables, at_y + (g * tile_rows + r) * ROW_BYTES)


@numba.njit
def _add_samples(places, means, panel, end, row, y, named, tables, sums):  # type: ignore[no-untyped-def]
    """Add SITES rows to XᵀY of the samples of a panel, its strips up to `end`."""
    (groups, tile_rows, _), (_, lanes, _) = y.shape, sums.shape
    at_named, at_tables, at_y, at_sums = _address(named), _address(tables), _address(y), _address(sums)
    at_means, plane_bytes = _address(means) + 4 * row, TABLES_OF_SITES * STRIP
    for strip in range(panel, end):
        at_of_strip = at_named + (strip - panel) * PLANES * plane_bytes
        for t in range(TABLES_OF_SITES):
            first, second, third = places[row + 3 * t], places[row + 3 * t + 1], places[row + 3 * t + 2]
            for here in range(0, STRIP, THIRD):
                at = strip * STRIP + here
                _name_sums_of_sites(first + at, second + at, third + at, at_of_strip + t * STRIP + here)
    for g in range(groups):
        at_row = at_y + (g * tile_rows + row) * ROW_BYTES
        for t in range(TABLES_OF_SITES):
            _make_table_of_sites(at_row + 3 * t * ROW_BYTES, at_means + 12 * t, at_tables + t * TABLE_OF_SITES_BYTES)
        for plane in range((end - panel) * PLANES):
            at_sum = at_sums + (g * lanes + (panel * PLANES + plane) * STRIP) * ROW_BYTES
            for j in range(0, STRIP, AT_ONCE):
                _look_up_samples(at_named + plane * plane_bytes + j, at_tables, at_sum + j * ROW_BYTES)


def _given(kind: Any, n_dimensions: int) -> Any:
    """Return the type of an array that is only read, which may be read-only."""
    return types.Array(kind, n_dimensions, "C", readonly=True)


@cached(
    types.void(
        *(_given(types.uint8, 2), _given(types.uint8, 1), _given(types.float32, 2), _given(types.float32, 3)),
        *(_given(types.float32, 2), types.float32[:, :, ::1], types.float64[:, :, ::1]),
    ),
    constants=(COLUMNS, STRIP, ROWS_IN_SINGLE),
)
def normal(packed, tail, sites, q, ones, few, total):  # type: ignore[no-untyped-def]
    """Add ÃᵀÃ Q of a block, before centering, to `few`; move sums to `total`, unless empty, every ROWS_IN_SINGLE rows.

    Both hold groups of columns, whose rows are those of `q` and one for the centering of all others. The last
    rows are read from `tail`, which has room for a strip behind them.
    """
    (height, n_bytes), (groups, lanes, _) = packed.shape, q.shape
    strips, first, in_total = lanes // (PLANES * STRIP), height - (len(tail) - STRIP) // n_bytes, total.size > 0
    # A multiple of both ROWS and SITES: lookups and tables work on whole groups.
    tile_rows = min(TILE_ROWS, -(-height // (ROWS * SITES)) * ROWS * SITES)
    y = _aligned(groups * tile_rows * ROW_BYTES).view(np.float32).reshape(groups, tile_rows, COLUMNS)
    tables = _aligned(max(TABLES * TABLE_BYTES, TABLES_OF_SITES * TABLE_OF_SITES_BYTES))
    named = _aligned(PLANES * max(tile_rows * THIRD, PANEL * TABLES_OF_SITES * STRIP))
    unknown, incomplete = np.empty(64 * tile_rows + 2, np.uint32), np.empty(tile_rows, np.uint32)
    places, means = np.empty(tile_rows, np.int64), np.empty(tile_rows, np.float32)
    shift = np.zeros((groups, COLUMNS))
    pending = 0
    for start in range(0, height, TILE_ROWS):
        rows, n_incomplete = min(TILE_ROWS, height - start), 0
        for r in range(tile_rows):
            row = min(start + r, height - 1)
            places[r] = _address(packed) + row * n_bytes if row < first else _address(tail) + (row - first) * n_bytes
            means[r] = sites[row, 0] if r < rows else 0
            if r < rows and sites[row, 2] != 0:
                incomplete[n_incomplete] = r
                n_incomplete += 1
        numbers = sites[start : start + rows]
        y[:] = 0
        for strip in range(strips):
            _add_rows(places, rows, strip, q, named, tables, y)
            _add_unknown(places, means, incomplete, n_incomplete, strip, q, unknown, y)
        for g in range(groups):
            for r in range(tile_rows):
                mean, factor = (numbers[r, 0], numbers[r, 1]) if r < rows else (0, 0)
                for c in range(COLUMNS):
                    y[g, r, c] = (y[g, r, c] - mean * ones[g, c]) * factor * factor
                    shift[g, c] += mean * y[g, r, c]
        for panel in range(0, strips, PANEL):
            for r in range(0, rows, SITES):
                _add_samples(places, means, panel, min(panel + PANEL, strips), r, y, named, tables, few)
        pending += rows
        if in_total and (pending >= ROWS_IN_SINGLE or start + rows >= height):
            for g in range(groups):
                for lane in range(lanes):
                    for c in range(COLUMNS):
                        total[g, lane, c] += few[g, lane, c]
                        few[g, lane, c] = 0
            pending = 0
    for g in range(groups):
        for c in range(COLUMNS):
            if in_total:
                total[g, lanes, c] = shift[g, c]
            else:
                few[g, lanes, c] = shift[g, c]


@cached(types.void(_given(types.uint8, 2), types.uint8, types.int64[:, ::1]))
def counted(packed, last, found):  # type: ignore[no-untyped-def]
    """Count samples with 0, 1, 2 copies and missing ones into the columns of `found`.

    `last` has the bits of a row's last byte that belong to samples. The first column lacks the number of samples.
    """
    (height, n_bytes), tail, at_packed = packed.shape, np.zeros(8, np.uint8), _address(packed)
    words = (n_bytes - 1) // 8
    lows = np.uint64(0x5555555555555555)
    for row in range(height):
        one, two, both, at_row = 0, 0, 0, at_packed + row * n_bytes
        for i in range(words + 1):
            if i < words:
                word = _eight(at_row + 8 * i)
            else:
                for octet in range(8 * words, n_bytes):
                    tail[octet - 8 * words] = packed[row, octet]
                tail[n_bytes - 8 * words - 1] &= last
                word = _eight(_address(tail))
            low, high = word & lows, word >> np.uint64(1) & lows
            one, two, both = one + _ones(low), two + _ones(high), both + _ones(low & high)
        found[row, 0], found[row, 1], found[row, 2], found[row, 3] = -one - two + both, one - both, two - both, both


@cached(types.UniTuple(types.uint32, 2)(_given(types.uint32, 1), types.uint32, types.uint8[:, ::1]))
def packed_bytes(four, gather, out):  # type: ignore[no-untyped-def]
    """Put codes, four as the bytes of each integer, into bytes of `out` by the product `gather`.

    Return the bits that any of them has, and by an odd bit of its byte whether one has two side by side.
    """
    bits, threes, flat = np.uint32(0), np.uint32(0), out.reshape(-1)
    for i in range(len(four)):
        codes = four[i]
        bits |= codes
        threes |= codes & codes >> np.uint32(1)
        flat[i] = np.uint8(codes * gather >> np.uint32(24))
    return bits, threes
