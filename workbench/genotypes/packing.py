"""Counts of an allele in two bits each: packing of blocks of NumPy and CuPy where they lie, and of rows of Dask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from workbench.errors import BadInputError
from workbench.linalg import arguments
from workbench.linalg.arrays import TILE_BYTES, refuse_masked, slices, tiles
from workbench.linalg.gpu import namespace, to_device_of
from workbench.linalg.keys import fresh, lasting

MISSING = 255
"""Code of a missing value in an array of counts that this package makes."""

MISSING_CODES = (-127, -9, -2, -1, 3, MISSING, math.nan)
"""Codes of missing values in real files: bed-reader, text files, VCF Zarr (two), the raw code, uint8, floats."""

ReadRows = Callable[[int, int], np.ndarray[Any, Any]]
"""Function that returns the packed rows from the first up to, not including, the last; sent to workers."""

# A block is read and decoded in a fraction of a second, and one in each thread fits easily in a worker's memory.
BLOCK_BYTES = 8 * 2**20
_LEAST_BYTES = 2**18
_LEAST_BLOCKS = 16
_MOST_BYTES = 16 * BLOCK_BYTES
# Rows of a block of many samples: a task also adds sums of each sample, which takes as long as about fifty rows.
_LEAST_ROWS = 1024

PER_BYTE = 4
_FOUR = np.dtype("<u4")  # four samples as four bytes of one integer
# Multiplying four codes in four bytes by this packs them into the highest byte, without carries.
_GATHER = 1 << 24 | 1 << 18 | 1 << 12 | 1 << 6
_LOW = 0x01010101
_CODES = 0x03030303

compiled: Callable[..., tuple[int, int]] | None = None
"""Compiled function for packing, set by `fast` in this process: for bytes that need no further check."""


def packed_width(n_samples: int) -> int:
    """Return the bytes that a row of so many samples takes."""
    return -(-n_samples // PER_BYTE)


def pack(
    counts: Any,
    missing: float | Iterable[float] | None = None,
    *,
    first_row: int = 0,
    first_column: int = 0,
) -> Any:
    """Pack counts 0, 1 and 2 of variants × samples into two bits each, with 3 for a missing one.

    The count of sample j is in byte j // 4 of its row, from bit 2 · (j mod 4) upwards.

    Parameters
    ----------
    counts
        NumPy or CuPy array of whole numbers or floats, of any number of columns.
    missing
        The value, or values, that stand for "not known". Left out, all of `MISSING_CODES` do: -127, -9, -2, -1, 3, 255
        and NaN. A 3 can be one of them because a diploid has at most two copies of an allele.
    first_row, first_column
        Start of the block in the whole array, for the error message.

    Returns
    -------
    Array of uint8 in the memory of `counts`, of shape (variants, ⌈samples / 4⌉). Bits past the last sample are 0.

    Raises
    ------
    BadInputError
        A value is neither a count nor missing; the message says which and where.
    """
    if counts.ndim != 2:
        raise BadInputError(f"Counts have two dimensions, variants × samples; these have {counts.ndim}.")
    refuse_masked(counts)
    xp = namespace(counts)
    rows, columns = counts.shape
    width = packed_width(columns)
    codes = missing_codes(missing)
    packed = xp.empty((rows, width), np.uint8)
    if _packed_by_compiled(counts, packed, 3 in codes):
        return packed
    step = max(1, TILE_BYTES // max(1, PER_BYTE * width))
    buffer = None
    for part in tiles(counts, step):
        tile = _codes(counts[part], codes, first_row + part.start, first_column)
        if columns != PER_BYTE * width:
            tile = xp.pad(tile, ((0, 0), (0, PER_BYTE * width - columns)))
        four = xp.ascontiguousarray(tile).view(_FOUR)
        # Reuse the buffer: with several threads, allocating memory takes longer than the arithmetic.
        buffer = xp.empty_like(four) if buffer is None else buffer[: len(four)]
        xp.multiply(four, _GATHER, out=buffer)
        buffer >>= 24
        packed[part] = buffer
    return packed


def _packed_by_compiled(counts: Any, packed: Any, three_is_missing: bool) -> bool:
    """Pack counts that are codes already; return whether all were."""
    whole = counts.dtype.kind in "iu" and counts.dtype.itemsize == 1 and counts.shape[1] == PER_BYTE * packed.shape[1]
    if compiled is None or not whole or not isinstance(counts, np.ndarray) or not counts.flags.c_contiguous:
        return False
    four = counts.reshape(-1).view(_FOUR)
    if not four.flags.aligned:
        return False
    seen, both = compiled(four, _GATHER, packed)
    return not seen & ~_CODES and (three_is_missing or not both & _LOW)


def unpack(packed: Any, n_samples: int, *, missing: int = MISSING) -> Any:
    """Return the counts of variants × samples, uint8, of a packed block of NumPy or CuPy.

    `missing` is written where none is known. Bits past the last sample may be anything.
    """
    if packed.ndim != 2 or packed.shape[1] != packed_width(n_samples):
        raise BadInputError(
            f"{n_samples} samples take {packed_width(n_samples)} bytes a row; the packed block is "
            f"{' × '.join(map(str, packed.shape))}."
        )
    xp = namespace(packed)
    counts = xp.empty((packed.shape[0], PER_BYTE * packed.shape[1]), np.uint8)
    step = max(1, TILE_BYTES // max(1, 8 * PER_BYTE * packed.shape[1]))
    for part in tiles(packed, step):
        counts[part] = _decoded(packed[part], missing).view(np.uint8)
    return counts if n_samples == counts.shape[1] else xp.ascontiguousarray(counts[:, :n_samples])


def chosen(packed: Any, samples: Any) -> Any:
    """Return the packed rows of some of the samples, by their places and in that order; the codes stay the same."""
    xp, width = namespace(packed), packed_width(len(samples))
    places = np.zeros(PER_BYTE * width, np.int64)
    places[: len(samples)] = samples
    codes = xp.zeros((packed.shape[0], width), np.uint8)
    step = max(1, TILE_BYTES // max(1, packed.shape[1] + width))
    columns = [
        (xp.asarray(each // PER_BYTE), xp.asarray((2 * (each % PER_BYTE)).astype(np.uint8)))
        for each in (places[k::PER_BYTE] for k in range(PER_BYTE))
    ]
    for part in tiles(packed, step):
        for k, (column, shift) in enumerate(columns):
            code = xp.take(packed[part], column, axis=1)
            code >>= shift
            code &= 3
            code <<= 2 * k
            codes[part] |= code
    return codes


def missing_codes(missing: float | Iterable[float] | None) -> tuple[float, ...]:
    """Return the given codes for missing values, or all known ones.

    Raises BadInputError if one of them is a count.
    """
    if missing is None:
        return MISSING_CODES
    codes = tuple(missing) if isinstance(missing, Iterable) else (missing,)
    for code in codes:
        if code in (0, 1, 2):
            raise BadInputError(f"missing={code} is a count of alleles. Name a value other than 0, 1 and 2.")
    return codes


def _decoded(packed: Any, missing: int) -> Any:
    """Return four bytes for each byte of a tile, as one integer: first the codes, then `missing` where they are 3."""
    four = packed.astype(_FOUR)
    four |= four << 12
    four |= four << 6
    four &= _CODES
    unknown = four & four >> 1 & _LOW
    # No byte carries into the next: each 3 is changed to `missing`, and the other bytes stay.
    return four + unknown * (missing - 3) if missing >= 3 else four - unknown * (3 - missing)


def _codes(counts: Any, missing: Sequence[float], first_row: int, first_column: int) -> Any:
    """Return the two-bit codes of a tile of counts, a byte each, with every value checked."""
    xp = namespace(counts)
    if counts.dtype.kind not in "biuf":
        raise BadInputError(f"Counts are whole numbers; these are {counts.dtype}.")
    if counts.dtype.itemsize == 1 and counts.size:
        # Usually nothing is missing, or 3 stands for it: then the largest unsigned byte proves that all are codes.
        own = xp.ascontiguousarray(counts).view(np.uint8)
        if int(own.max()) < 3 + (3 in missing):
            return own
    unknown = _is_missing(counts, missing)
    if counts.dtype.itemsize == 1:  # any other byte than a count stays above 3
        codes = xp.where(unknown, np.uint8(3), xp.ascontiguousarray(counts).view(np.uint8))
        if bool((codes < 3 + (3 in missing)).all()):
            return codes
    wrong = ~(unknown | (counts == 0) | (counts == 1) | (counts == 2))
    if bool(wrong.any()):
        row, column = (int(i[0]) for i in wrong.nonzero())
        raise BadInputError(_neither(counts[row, column].item(), first_row + row, first_column + column, missing))
    return xp.where(unknown, np.uint8(3), xp.where(unknown, counts.dtype.type(0), counts).astype(np.uint8))


def _is_missing(counts: Any, missing: Sequence[float]) -> Any:
    xp = namespace(counts)
    codes = [code for code in missing if not math.isnan(code) and _holds(counts.dtype, code)]
    if counts.dtype.kind == "f" and any(math.isnan(code) for code in missing):
        unknown = xp.isnan(counts)
    else:
        unknown = xp.zeros(counts.shape, bool)
    for code in codes:
        unknown |= counts == counts.dtype.type(code)
    return unknown


def _holds(dtype: np.dtype[Any], code: float) -> bool:
    if dtype.kind == "f":
        return True
    if dtype.kind == "b":
        return False
    limits = np.iinfo(dtype)
    return float(code).is_integer() and limits.min <= code <= limits.max


def _neither(value: float, row: int, column: int, missing: Sequence[float]) -> str:
    codes = ", ".join(f"{code:g}" for code in missing) or "none"
    problem = f"The value {value:g} at variant {row}, sample {column} (counted from 0) is neither a count 0, 1 or 2"
    hint = "Name what stands for a missing value as missing=."
    if value == 3:
        hint = "Add 3 to missing= if it is PLINK's raw code; as a count it means more than two chromosome copies."
    elif 0 < value < 2:
        hint = "Round dosages to whole counts first."
    elif value > 3 and float(value).is_integer():
        hint = "More than two copies mean a ploidy above 2, which two bits can't hold; or name it as missing=."
    return f"{problem} nor a missing value ({codes}). {hint}"


# --- packed rows as a Dask array, sliced before they are read --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Source of blocks for `da.from_array`: a shape and a way to read some of the rows."""

    read: ReadRows
    shape: tuple[int, int]
    ndim: int = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Bytes."""
        return np.dtype(np.uint8)

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        rows, *columns = index if isinstance(index, tuple) else (index,)
        if isinstance(rows, slice):
            indices = range(self.shape[0])[rows]
            if not indices:
                return np.empty((0, self.shape[1]), np.uint8)[(slice(None), *columns)]
            first, last = min(indices), max(indices)
            block = self.read(first, last + 1)[:: abs(indices.step)]
            return (block if indices.step > 0 else block[::-1])[(slice(None), *columns)]
        row = range(self.shape[0])[rows]
        return self.read(row, row + 1)[(0, *columns)]


def block_rows(
    n_variants: int, n_samples: int, rows: int | Literal["auto"] = "auto", *, multiple: int = 1, bytes_each: int = 0
) -> int:
    """Return the rows in a block: as requested, or as many as keep it near 8 MiB and leave work for many threads.

    `multiple` is the number of rows stored together in the file; `bytes_each` is the size of a row there, if larger.
    """
    if rows != "auto":
        return max(1, min(arguments.whole("rows", rows, "variants in a block"), n_variants))
    packed = max(1, packed_width(n_samples))
    width = max(packed, bytes_each)
    most = at_most(BLOCK_BYTES, width) // width
    least = max(_LEAST_BYTES // width, n_variants // _LEAST_BLOCKS)
    preferred = max(1, min(most, least))
    if multiple * packed > _MOST_BYTES:  # rather read a chunk of the file more than once than hold so much
        multiple = 1
    return max(1, min(n_variants, max(1, round(preferred / multiple)) * multiple))


def at_most(nbytes: int, width: int) -> int:
    """Return the bytes of a block with rows of `width` bytes: as given, or more if few rows would fit."""
    return max(nbytes, min(_LEAST_ROWS * width, _MOST_BYTES))


def cut(x: da.Array, heights: Sequence[Sequence[int]]) -> da.Array:
    """Cut each block of rows into views of so many: Dask's own slices would be copies."""
    if all(len(each) == 1 for each in heights):
        return x
    name = lasting("cut", x.name, heights)
    graph: dict[Any, Any] = {}
    for block, each in enumerate(heights):
        graph |= {(name, len(graph) + i, 0): (_rows, (x.name, block, 0), part) for i, part in enumerate(slices(each))}
    whole = HighLevelGraph.from_collections(name, graph, dependencies=[x])
    return da.Array(whole, name, (tuple(chain.from_iterable(heights)) or (0,), (x.shape[1],)), meta=x._meta)


def taken(x: da.Array, rows: np.ndarray[Any, Any]) -> da.Array:
    """Return some of the rows; ascending ones come from their own blocks, by a bit for each row.

    Dask would shuffle them.
    """
    if not (rows.size and rows[0] >= 0 and rows[-1] < len(x) and (np.diff(rows) > 0).all()):
        return x[rows]
    first = int(rows[0])
    x, stays = x[first : int(rows[-1]) + 1], np.zeros(int(rows[-1]) + 1 - first, bool)
    if rows.size == stays.size:
        return x
    stays[rows - first] = True
    parts = [stays[part] for part in slices(x.chunks[0])]
    used = [(block, part) for block, part in enumerate(parts) if part.any()]
    name = lasting("rows", x.name, rows)
    graph = {
        (name, i, 0): (_rows, (x.name, block, 0), np.packbits(part), part.size) for i, (block, part) in enumerate(used)
    }
    whole = HighLevelGraph.from_collections(name, graph, dependencies=[x])
    return da.Array(whole, name, (tuple(int(part.sum()) for _, part in used), (x.shape[1],)), meta=x._meta)


def _rows(block: Any, rows: Any, count: int | None = None) -> Any:
    return block[rows if count is None else to_device_of(np.unpackbits(rows, count=count).view(bool), block)]


def packed_array(read: ReadRows, n_variants: int, n_samples: int, rows: int) -> da.Array:
    """Return the packed rows of a file as a lazy array in blocks of `rows`."""
    source = PackedRows(read, (n_variants, packed_width(n_samples)))
    chunks = (rows, max(1, source.shape[1]))
    meta = np.empty((0, 0), np.uint8)
    return da.from_array(
        source, chunks=chunks, name=fresh("genotypes"), asarray=False, fancy=False, meta=meta, inline_array=True
    )
