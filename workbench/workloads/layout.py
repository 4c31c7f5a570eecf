"""How the array of a file is cut into blocks for an SVD, and why it is read or cut otherwise than it is stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from workbench.formats import by, size
from workbench.workloads.opening import Found
from workbench.workloads.sizes import Wish, chunks_of, grown
from workbench.workloads.values import BadParameterError, Surroundings

_LARGEST_SIDE = 5000
"""Of the small factor that a full SVD decomposes in one worker: 200 MB, and about a minute."""
_READ_BYTES = 32_000_000
_DIRECT_BYTES = 4 * _READ_BYTES


def cut(
    found: Found, k: int | None, chunks: Any, around: Surroundings
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Blocks in which the file is read, blocks in which it is decomposed, and the reasons."""
    refuse_impossible(found, k)
    wanted, notes = _wanted(found, k, chunks, around)
    if found.whole:
        note = f"{found.path} can only be read as a whole, by one worker; then it is cut into {_blocks(found, wanted)}."
        return found.shape, wanted, (*notes, note)
    if found.chunks is None:
        return wanted, wanted, notes
    if chunks == "auto":
        direct = _aligned(found, wanted)
        if math.prod(direct) * 8 <= _DIRECT_BYTES:
            return direct, direct, _read_note(found, direct, k)
    elif all(part % stored == 0 or part == length for part, stored, length in _axes(found, wanted)):
        return wanted, wanted, notes
    # Several stored blocks as one where they are small.
    part = tuple(map(min, found.chunks, found.shape))
    read = grown(part, found.shape, max(1, _READ_BYTES // np.dtype(found.working_type).itemsize))
    why = "a full SVD needs whole rows or columns in each" if k is None else "as good for the products as for memory"
    note = f"Stored in blocks of {by(found.chunks)}, read in blocks of {by(read)} and rechunked to {by(wanted)}: {why}."
    return read, wanted, (*notes, note) if chunks != "auto" else (note,)


def refuse_impossible(found: Found, k: int | None) -> None:
    """Raise where the array has no such SVD."""
    rows, columns = found.shape
    small = min(rows, columns)
    if k is None and small > _LARGEST_SIDE:
        raise BadParameterError(
            f"k of svd_of_file is missing, and {found.path} ({rows} × {columns}) is too wide for a full SVD: one "
            f"worker would decompose a factor of {small} × {small} ({size(small * small * 8)}). "
            "Give k, such as 10.",
            "k",
        )
    if k is not None and k > small:
        raise BadParameterError(
            f"k of svd_of_file is {k}. Give a whole number from 1 to {small}: {found.path} is {rows} × {columns}.", "k"
        )


def _wanted(found: Found, k: int | None, chunks: Any, around: Surroundings) -> tuple[tuple[int, ...], tuple[str, ...]]:
    dtype = np.dtype(found.working_type)
    rows, columns = found.shape
    fat = k is None and rows < columns
    wish = Wish("svd_of_file", "wide" if k is not None else "tall", dtype, dtype, turned=fat)
    turned = chunks[::-1] if fat and isinstance(chunks, tuple) else chunks
    block, notes = chunks_of(wish, (columns, rows) if fat else (rows, columns), turned, around)
    return (block[::-1] if fat else block), notes


def _aligned(found: Found, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Nearest block that is made of whole stored blocks."""
    aligned = [
        min(length, max(stored, part // stored * stored)) if part < length else length
        for part, stored, length in _axes(found, wanted)
    ]
    return aligned[0], aligned[1]


def _axes(found: Found, wanted: tuple[int, ...]) -> list[tuple[int, int, int]]:
    assert found.chunks is not None
    return list(zip(wanted, found.chunks, found.shape, strict=True))


def _read_note(found: Found, direct: tuple[int, ...], k: int | None) -> tuple[str, ...]:
    assert found.chunks is not None
    if direct == found.chunks:
        return (f"Read in the blocks of {by(direct)} in which it is stored.",)
    whole = ", with whole rows or columns as a full SVD needs" if k is None else ""
    note = f"Stored in blocks of {by(found.chunks)}, read in blocks of {by(direct)}, which are made of them{whole}."
    return (note,)


def _blocks(found: Found, block: tuple[int, ...]) -> str:
    return "one block" if block == found.shape else f"blocks of {by(block)}"
