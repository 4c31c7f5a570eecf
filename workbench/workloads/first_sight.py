"""A first picture of an array in a file: some of its numbers as a small image, of a part that costs little to read."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from workbench.storage.places import Place
from workbench.workloads import file, opening
from workbench.workloads.opening import Found

MOST_BYTES = 8 * 2**20
"""Of stored blocks that are read for a picture."""
_SIDE = 64
_PALETTE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Five of viridis's colours, from the least to the largest value."""


class Picture(BaseModel, frozen=True):
    """An image of some numbers of an array."""

    array: str
    caption: str
    """Which part it is of, and of which values its colours are."""
    png: str
    """As base64."""


def picture_of(place: Place, array: str | None, *, from_below: bool = False) -> Picture | None:
    """The last two dimensions at the first place of the others, or a corner of them; None where that takes too much.

    The first row is on top, or `from_below` at the bottom.
    """
    found = opening.find_array(place.path, array, options=place.options, as_matrix=False)
    window = _window(found)
    if window is None:
        return None
    options = dict(place.options if found.recipe is None else found.recipe)
    block = file.READERS[found.format](found.path, found.array, options, *window)
    numbers = block if found.unpack is None else file.unpacked(block, **found.unpack)
    numbers = np.asarray(numbers, "float64").reshape(numbers.shape[-2:])
    shown = numbers[:: _step(numbers.shape[0]), :: _step(numbers.shape[1])]
    known = shown[np.isfinite(shown)]
    if not known.size:
        return None
    low, high = np.percentile(known, (2, 98))
    parts = [f"{part.start} to {part.stop - 1}" for part in window[-2:]]
    of = "" if [part.stop for part in window] == list(found.shape) else "part of "
    caption = f"{of}{found.array or 'the array'}: {parts[0]} by {parts[1]}, values from {low:.4g} to {high:.4g}"
    return Picture(array=found.array or "", caption=caption, png=_png(shown[::-1] if from_below else shown, low, high))


def _window(found: Found) -> tuple[slice, ...] | None:
    """The part that is read: all of the last two dimensions, halved until its stored blocks are few enough bytes."""
    if len(found.shape) < 2 or min(found.shape[-2:]) < 2:
        return None
    before = [slice(0, 1) for _ in found.shape[:-2]]
    if found.chunks is None and not found.whole:
        # In one piece, of which some rows can be read.
        return (*before, *(slice(0, length, _step(length)) for length in found.shape[-2:]))
    chunks = found.chunks or found.shape
    lengths = [*(1 for _ in before), *found.shape[-2:]]
    while _covered(lengths, chunks) * found.dtype.itemsize > MOST_BYTES:
        axis = max((-2, -1), key=lambda axis: lengths[axis] / chunks[axis])
        if lengths[axis] <= chunks[axis]:
            return None
        lengths[axis] = -(-lengths[axis] // 2)
    return tuple(slice(0, length) for length in lengths)


def _step(length: int) -> int:
    return max(1, -(-length // _SIDE))


def _covered(lengths: Sequence[int], chunks: Sequence[int]) -> int:
    return math.prod(-(-length // chunk) * chunk for length, chunk in zip(lengths, chunks, strict=True))


def _png(numbers: np.ndarray[Any, Any], low: float, high: float) -> str:
    from PIL import Image

    known = np.isfinite(numbers)
    at = np.clip((np.where(known, numbers, low) - low) / ((high - low) or 1.0), 0, 1)
    colors = np.array(_PALETTE).T
    bands = [np.interp(at, np.linspace(0, 1, len(_PALETTE)), band) for band in colors]
    rgba = np.stack([*bands, 255.0 * known], axis=-1).astype("uint8")
    told = io.BytesIO()
    Image.fromarray(rgba, "RGBA").save(told, "png", optimize=True)
    return base64.b64encode(told.getvalue()).decode()
