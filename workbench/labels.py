"""Text of any length in arrays: names of samples and sites, and the labels of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

TEXT = np.dtypes.StringDType()
"""Text of any length: in NumPy's other type each value takes the room of the longest, and one allele may be a gene."""


def as_text(column: Any) -> np.ndarray[Any, Any]:
    """Names as an array of text, whatever text, objects or numbers a file or a person gives."""
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
    """Labels of at most so many groups, as more can't be told apart by colour: those of the smallest are "other"."""
    names, counts = np.unique(labels, return_counts=True)
    if len(names) <= most:
        return labels
    return np.where(np.isin(labels, names[np.argsort(-counts, kind="stable")][: most - 1]), labels, "other")


def _word(each: Any) -> str:
    return each.decode() if isinstance(each, bytes) else str(each)
