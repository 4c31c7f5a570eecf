"""Text of any length in arrays: names of samples and sites, and the labels of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

TEXT = np.dtypes.StringDType()
"""Text of any length. In NumPy's fixed-width type, one long allele would enlarge every value."""


def as_text(column: Any) -> np.ndarray[Any, Any]:
    """Return names as an array of text, given text, objects or numbers."""
    if not hasattr(column, "dtype"):
        column = list(column)
        plain = all(isinstance(each, str) for each in column)
        return np.array(column, TEXT) if plain else as_text(np.asarray(column))
    column = np.asarray(column)
    if column.dtype.kind in "UT":
        return column.astype(TEXT)
    if column.dtype.kind == "O":
        return np.array(list(map(_word, column.ravel())), TEXT).reshape(column.shape)
    return column.astype(str).astype(TEXT)


def grouped(labels: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """Return labels of at most `most` groups, the number that colors distinguish; the smallest become "other"."""
    names, counts = np.unique(labels, return_counts=True)
    if len(names) <= most:
        return labels
    return np.where(np.isin(labels, names[np.argsort(-counts, kind="stable")][: most - 1]), labels, "other")


def _word(each: Any) -> str:
    return each.decode() if isinstance(each, bytes) else str(each)
