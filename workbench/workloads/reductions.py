"""Reductions of single blocks, run by tasks: on workers this module needs only NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def histograms(numbers: Any, edges: Any, axis: tuple[int, ...]) -> Any:
    """Count the values in each bin, along some axes, whose length is one then; bins are the last axis."""
    edges, bins = np.asarray(edges, like=numbers), len(edges) - 1
    remaining = [each for each in range(numbers.ndim) if each not in axis]
    rows = numbers.transpose(*remaining, *axis).reshape(math.prod(numbers.shape[each] for each in remaining), -1)
    # The last bin takes in what is as large as the largest.
    place = np.minimum(np.searchsorted(edges, rows, side="right") - 1, bins - 1)
    place += bins * np.arange(len(rows), like=numbers)[:, None]
    counts = np.bincount(place[~np.isnan(rows)], minlength=bins * len(rows))
    return counts.reshape(*(1 if each in axis else numbers.shape[each] for each in range(numbers.ndim)), bins)


def moments(numbers: Any, axis: tuple[int, ...]) -> Any:
    """Return the count of known values along some axes, their mean, and squares around it; along the last axis."""
    numbers = numbers.astype("float64")
    count = (~np.isnan(numbers)).sum(axis=axis, keepdims=True)
    mean = np.nansum(numbers, axis=axis, keepdims=True) / np.maximum(count, 1)
    squares = np.nansum((numbers - mean) ** 2, axis=axis, keepdims=True)
    return np.stack([count.astype("float64"), mean, squares], axis=-1)


def variance(parts: Any, axis: tuple[int, ...]) -> Any:
    """Return the variance from several `moments`; NaN if nothing is known, without a warning."""
    counts, means, squares = parts[..., 0], parts[..., 1], parts[..., 2]
    count = counts.sum(axis=axis, keepdims=True)
    mean = (counts * means).sum(axis=axis, keepdims=True) / np.maximum(count, 1)
    squares = (squares + counts * (means - mean) ** 2).sum(axis=axis)
    count = count.reshape(squares.shape)
    return np.where(count > 0, squares / np.maximum(count, 1), np.nan)


def percentiles(numbers: Any, percent: float, axis: tuple[int, ...]) -> Any:
    """Return a percentile along some axes as NumPy interpolates it; missing values are left out, NaN where all are."""
    remaining = [each for each in range(numbers.ndim) if each not in axis]
    rows = numbers.transpose(*remaining, *axis).reshape(*(numbers.shape[each] for each in remaining), -1)
    rows = np.sort(rows, axis=-1)  # NaN comes last
    rank = np.maximum(percent / 100 * ((~np.isnan(rows)).sum(axis=-1, keepdims=True) - 1), 0)
    below, above = (np.take_along_axis(rows, each(rank).astype(int), axis=-1) for each in (np.floor, np.ceil))
    # The distance of two numbers may be out of the range of their type.
    below, above = below.astype("float64"), above.astype("float64")
    step, part = above - below, rank % 1
    # As NumPy has it, both ends are met exactly.
    result = np.where(part < 0.5, below + step * part, above - step * (1 - part))
    return result[..., 0].astype(numbers.dtype)


def absent(count: Any, size: int, where: str) -> Any:
    """Count missing values. Raises ValueError if all are missing: there is nothing to reduce."""
    if int(count) == size:
        raise ValueError(f"All values of {where} are missing.")
    return count
