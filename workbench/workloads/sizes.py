"""Shape and blocks of an array from the user's input, with the reason for each choice."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import parse_bytes

from workbench import formats
from workbench.workloads.fields import ALLOWED_CHUNKS, ALLOWED_SIZE, Layout
from workbench.workloads.forms import bad
from workbench.workloads.registry import Resolution
from workbench.workloads.values import BadParameterError, Surroundings

# Of 500, 1000, 2000 and 4000, blocks of 2000 × 2000 float64 were quickest for array_sum and transpose_sum, on two
# processes of one thread (November 2026).
_BLOCK_BYTES = 32_000_000
# Of 32, 64, 128, 256 and 512 MB of float64 made of uint8, for compressed_svd with method=dask, on the same: larger ones
# took less time by 8 % at most.
_WHOLE_BLOCK_BYTES = 128_000_000
_SMALLEST_BLOCK = 1_000_000
_BLOCKS_PER_THREAD = 4
# The scheduler spends about a millisecond on a task, so a graph of this many blocks already costs minutes.
_GOOD_NUMBER_OF_BLOCKS = 20_000
_MOST_BLOCKS = 200_000
_MOST_BYTES = 2**60
_COLUMNS_OF_TALL = 100
_ROWS_PER_COLUMN_OF_WIDE = 20
_COLUMNS_OF_BLOCK = 5000  # as in the post "Large SVDs"

_TEXT_OF_SIZE = re.compile(r"\d+(\.\d*)?\s*([kmgtp]i?)?b?", re.IGNORECASE)


@dataclass(frozen=True)
class ArrayRequest:
    """Requirements of a workload for the shape and blocks of its random array."""

    workload: str
    layout: Layout
    dtype: np.dtype[Any]
    """Dtype of blocks in computations: uint8 becomes float64 in a product."""
    stored: np.dtype[Any]
    """Dtype of the stored array."""
    block_bytes: int = _BLOCK_BYTES
    """Size of a block that was quickest when measured."""
    multiple: int = 1
    """Number of which the sides of a block are multiples."""
    turned: bool = False
    """True if rows and columns are swapped relative to the user's view."""
    reason: str | None = None
    """Reason for the block size, if it isn't the one that was quickest when measured."""


def shape_of(
    request: ArrayRequest, values: Mapping[str, Any], given: Mapping[str, Any], around: Surroundings
) -> tuple[int, int]:
    """Return the shape that `size` or `shape` requests."""
    shape = values["shape"]
    if shape is None:
        n_bytes = size_in_bytes(request.workload, values["size"], around)
        return _shape_of_size(request, n_bytes, values["size"])
    if given.get("size") is not None:
        raise BadParameterError(
            f"{request.workload} was given both size ({given['size']!r}) and shape ({list(shape)}). Give one of them.",
            "size",
        )
    if math.prod(shape) * request.stored.itemsize > _MOST_BYTES:
        raise bad(
            request.workload, "shape", list(shape), f"rows and columns that make at most {formats.size(_MOST_BYTES)}"
        )
    if request.layout == "square" and request.workload == "transpose_sum" and shape[0] != shape[1]:
        raise bad(request.workload, "shape", list(shape), "as many rows as columns, such as 10000, 10000")
    if request.layout == "tall" and shape[0] < shape[1]:
        raise bad(request.workload, "shape", list(shape), "at least as many rows as columns, such as 1000000, 100")
    return (int(shape[0]), int(shape[1]))


def size_in_bytes(workload: str, size: int | float | str, around: Surroundings) -> int:
    """Return the bytes of a size, which may be a fraction of the cluster's memory."""
    fraction = _fraction(size)
    if fraction is not None:
        if around.memory is None:
            raise BadParameterError(
                f"size of {workload} is {size!r}, a fraction of a cluster's memory, and no cluster was named. "
                "Name a cluster, or give a size such as '2GiB'.",
                "size",
            )
        return int(fraction * around.memory)
    n_bytes = _bytes(size)
    if n_bytes is None or n_bytes <= 0:
        raise bad(workload, "size", size, ALLOWED_SIZE)
    if n_bytes > _MOST_BYTES:
        raise bad(workload, "size", size, f"at most {formats.size(_MOST_BYTES)}")
    return n_bytes


def chunks_of(
    request: ArrayRequest, shape: tuple[int, int], chunks: Any, around: Surroundings
) -> tuple[tuple[int, int], tuple[str, ...]]:
    """Return rows and columns of a block, and the reason if they were chosen here."""
    notes: tuple[str, ...]
    if chunks == "auto":
        block = _good_block(request, shape, around.threads)
        notes = (_why(request, shape, block, around.threads),)
    elif isinstance(chunks, str):
        n_bytes = _bytes(chunks)
        if n_bytes is None:
            raise bad(request.workload, "chunks", chunks, ALLOWED_CHUNKS)
        block = _block_of_size(request, shape, n_bytes)
        notes = (f"Blocks of at most {formats.size(n_bytes)}: {_pair(block[:: -1 if request.turned else 1])}.",)
    else:
        block, notes = _block_as_given(request, shape, chunks), ()
    _refuse_too_many(request, shape, block, chunks)
    return block, notes


def number_of_blocks(shape: tuple[int, ...], block: tuple[int, ...]) -> int:
    """Return the number of blocks of this size that cover the shape."""
    return math.prod(math.ceil(length / part) for length, part in zip(shape, block, strict=True))


def block_rows(
    rows: int,
    columns: int,
    itemsize: int,
    *,
    at_least: int = 1,
    threads: int | None = None,
    most: int = _GOOD_NUMBER_OF_BLOCKS,
    n_bytes: int = _BLOCK_BYTES,
) -> int:
    """Return rows of a block of these columns: about `n_bytes`, several blocks a thread, at most `most` of them."""
    preferred = max(1, n_bytes // (columns * itemsize))
    smallest = max(1, _SMALLEST_BLOCK // (columns * itemsize))
    share = math.ceil(rows / ((threads or 1) * _BLOCKS_PER_THREAD))
    preferred = max(min(preferred, max(share, smallest)), at_least, math.ceil(rows / most))
    count = math.ceil(rows / preferred)
    if threads and preferred > smallest and threads < count < 2 * threads * _BLOCKS_PER_THREAD:
        # With few blocks, make their number a multiple of the threads, so that none is idle at the end.
        preferred = max(at_least, math.ceil(rows / (math.ceil(count / threads) * threads)))
    return _even_out(rows, preferred) if preferred > at_least else min(preferred, rows)


def grown(part: Sequence[int], whole: Sequence[int], most: int) -> tuple[int, ...]:
    """Return a multiple of a block that has at most so many places, larger along the last dimensions first."""
    lengths = list(part)
    for axis in reversed(range(len(lengths))):
        lengths[axis] = min(whole[axis], lengths[axis] * max(1, most // math.prod(lengths)))
        if lengths[axis] < whole[axis]:
            break
    return tuple(lengths)


def shrunk(part: Sequence[int], most: int) -> tuple[int, ...]:
    """Return a part of a block that has about so many places, smaller along the first dimensions first."""
    lengths = list(part)
    for axis in range(len(lengths)):
        lengths[axis] = max(1, min(lengths[axis], most * lengths[axis] // math.prod(lengths)))
    return tuple(lengths)


def _fraction(size: int | float | str) -> float | None:
    """Return the size as a fraction of the memory, None if it means bytes."""
    number: float
    if isinstance(size, str):
        text = size.strip()
        if not text.endswith("%"):
            return None
        try:
            number = float(text[:-1]) / 100
        except ValueError:
            return None
    else:
        number = size
    return number if 0 < number <= 1 else None


def _bytes(size: int | float | str) -> int | None:
    if isinstance(size, str):
        text = size.strip()
        return int(parse_bytes(text)) if _TEXT_OF_SIZE.fullmatch(text) else None
    # 1.5 is neither a fraction nor a number of bytes.
    return size if isinstance(size, int) else int(size) if math.isfinite(size) and size.is_integer() else None


def _shape_of_size(request: ArrayRequest, n_bytes: int, size: Any) -> tuple[int, int]:
    elements = n_bytes // request.stored.itemsize
    if request.layout == "square":
        side = math.isqrt(elements)
        shape = (side, side)
    elif request.layout == "tall":
        columns = min(_COLUMNS_OF_TALL, math.isqrt(elements))
        shape = (elements // columns if columns else 0, columns)
    else:
        columns = math.isqrt(elements // _ROWS_PER_COLUMN_OF_WIDE)
        shape = (elements // columns if columns else 0, columns)
    if 0 in shape:
        least = request.stored.itemsize * (_ROWS_PER_COLUMN_OF_WIDE if request.layout == "wide" else 1)
        raise bad(request.workload, "size", size, f"at least {least} bytes, which hold the smallest array")
    return shape


def _good_block(request: ArrayRequest, shape: tuple[int, int], threads: int | None) -> tuple[int, int]:
    rows, columns = shape
    if request.layout == "tall":
        return block_rows(rows, columns, request.dtype.itemsize, at_least=min(rows, columns), threads=threads), columns
    if request.layout == "wide":
        width = _even_out(columns, max(_COLUMNS_OF_BLOCK, columns * 10 // math.isqrt(_GOOD_NUMBER_OF_BLOCKS)))
        most = _GOOD_NUMBER_OF_BLOCKS // math.ceil(columns / width)
        n_bytes, itemsize = request.block_bytes, request.dtype.itemsize
        return block_rows(rows, width, itemsize, threads=threads, most=most, n_bytes=n_bytes), width
    # A block of whole tiles is one task, which holds only one tile in memory.
    tiled = request.multiple > 1
    smallest = request.multiple if tiled else math.isqrt(_SMALLEST_BLOCK // request.dtype.itemsize)

    def rounded(length: int) -> int:
        return length // request.multiple * request.multiple if tiled else _round(length)

    def n_blocks() -> int:
        return number_of_blocks(shape, (min(side, rows), min(side, columns)))

    side = rounded(math.isqrt(request.block_bytes // request.dtype.itemsize))
    while side > smallest and n_blocks() < (threads or 1) * _BLOCKS_PER_THREAD:
        side = max(rounded(side // 2), smallest)
    while n_blocks() > _GOOD_NUMBER_OF_BLOCKS:
        side *= 2
    if tiled:
        return min(side, rows), min(side, columns)
    return _even_out(rows, side), _even_out(columns, side)


def _why(request: ArrayRequest, shape: tuple[int, int], block: tuple[int, int], threads: int | None) -> str:
    count = number_of_blocks(shape, block)
    n_bytes = formats.size(math.prod(block) * request.dtype.itemsize)
    worked = " as float64" if request.dtype != request.stored else ""
    as_given = block[::-1] if request.turned else block
    text = f"{formats.count(count, 'block')} of {formats.by(as_given)} ({n_bytes}{worked})"
    if threads:
        text += f" for {formats.count(threads, 'thread')}"
    if request.layout == "tall":
        text += f", each with all {'rows' if request.turned else 'columns'}, as a full SVD needs"
    return f"{text}: {_reason(request, math.prod(block) * request.dtype.itemsize, count)}"


def _reason(request: ArrayRequest, n_bytes: int, count: int) -> str:
    good = formats.size(request.block_bytes)
    if count == 1:
        return "the array is small."
    if request.reason is not None:
        return request.reason
    if n_bytes < request.block_bytes / 2:
        return f"smaller than the {good} that were quickest when measured, so that every thread gets several."
    if n_bytes > request.block_bytes * 2:
        return f"larger than the {good} that were quickest when measured, so that there are not too many of them."
    return f"about {good} were quickest when measured; smaller ones cost more scheduling, larger ones more memory."


def _block_of_size(request: ArrayRequest, shape: tuple[int, int], n_bytes: int) -> tuple[int, int]:
    elements = n_bytes // request.stored.itemsize
    rows, columns = shape
    if elements < (columns if request.layout == "tall" else 1):
        size = formats.size(n_bytes)
        raise bad(
            request.workload, "chunks", size, "a size that holds at least one element, or one row of a tall array"
        )
    if request.layout == "tall":
        return min(rows, elements // columns), columns
    side = math.isqrt(elements)
    if rows == columns:
        # Square, so that they match the blocks of the transpose.
        return min(rows, side), min(rows, side)
    width = min(columns, max(side, elements // rows))
    return min(rows, elements // width), width


def _block_as_given(request: ArrayRequest, shape: tuple[int, int], chunks: int | tuple[int, int]) -> tuple[int, int]:
    rows, columns = shape
    turn = -1 if request.turned else 1
    value = chunks if isinstance(chunks, int) else list(chunks[::turn])
    if isinstance(chunks, int):
        if chunks < 1:
            raise bad(request.workload, "chunks", chunks, "lengths of at least 1")
        block = (chunks, columns) if request.layout == "tall" else (chunks, chunks)
    else:
        block = (int(chunks[0]), int(chunks[1]))
    if block[0] > rows or block[1] > columns:
        raise bad(
            request.workload, "chunks", value, f"at most {_pair((rows, columns)[::turn])}, the shape of the array"
        )
    if request.layout == "tall" and block[1] != columns:
        raise bad(
            request.workload, "chunks", value, f"blocks that hold all {columns} columns, such as {block[0]}, {columns}"
        )
    return block


def _refuse_too_many(request: ArrayRequest, shape: tuple[int, int], block: tuple[int, int], chunks: Any) -> None:
    count = number_of_blocks(shape, block)
    if count > _MOST_BLOCKS:
        as_given = chunks if isinstance(chunks, (int, str)) else list(chunks)
        raise bad(
            request.workload,
            "chunks",
            as_given,
            f"larger blocks: an array of {formats.by(shape)} would have {formats.count(count)} of them, and "
            f"{formats.count(_MOST_BLOCKS)} are the most that the scheduler is asked to hold",
        )


def _pair(lengths: tuple[int, ...]) -> str:
    return ", ".join(str(length) for length in lengths)


def _even_out(length: int, part: int) -> int:
    """Return a length near this one that divides the whole evenly, and is even: then `[::2]` meets all blocks alike."""
    each = math.ceil(length / math.ceil(length / part))
    return min(length, each + each % 2)


def _round(length: int) -> int:
    """Round to two leading digits, for numbers that read well."""
    if length < 100:
        return max(length, 1)
    step = 10 ** (len(str(length)) - 2)
    return length // step * step


def random_array(
    given: Mapping[str, Any],
    cluster: Surroundings,
    *,
    workload: str,
    layout: Layout,
    liked: Mapping[str, Any] = {},
    **values: Any,
) -> Resolution:
    """Return shape, block sizes and dtype of a generated array, from the user's input and the available memory."""
    stored = np.dtype(values["dtype"])
    # Dask's products convert whole blocks to float64, ours a tile at a time.
    whole = stored.kind != "f" and values.get("method") != "workbench"
    if whole and layout == "wide":
        liked = {**liked, "block_bytes": _WHOLE_BLOCK_BYTES}
    request = ArrayRequest(workload, layout, np.dtype("float64") if whole else stored, stored, **liked)
    shape = shape_of(request, values, given, cluster)
    chunks, notes = chunks_of(request, shape, values["chunks"], cluster)
    others = {name: value for name, value in values.items() if name not in ("size", "shape", "chunks")}
    return {"shape": shape, "chunks": chunks, **others}, notes
