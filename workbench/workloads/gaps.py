"""Matrices with missing values: filled, or without rows or columns."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np


def without_gaps(x: da.Array, missing: str, path: str) -> tuple[da.Array, Any]:
    """Return the array with NaN filled, or without their rows or columns; and the indices that remain, by dimension."""
    if missing == "refuse":
        return x, None
    known = ~da.isnan(x)
    if missing != "mean":
        axis = 1 if missing == "rows" else 0
        complete = np.flatnonzero(known.all(axis=axis).to_backend("numpy").compute())
        if not len(complete):
            other = "columns" if missing == "rows" else "rows"
            raise ValueError(
                f"Of {path} all {missing} hold missing values, so that nothing is left. Choose missing={other}, or "
                "missing=mean where every column has some value."
            )
        return x[complete] if missing == "rows" else x[:, complete], {missing.removesuffix("s"): complete}
    sums, counts = dask.persist(da.nansum(x, axis=0), known.sum(axis=0))
    nothing = int((counts == 0).sum())
    if nothing:
        raise ValueError(
            f"{path} has columns without any value, which have no mean ({nothing} of {x.shape[1]}). Choose "
            "missing=columns, which leaves out all that hold a missing value."
        )
    return da.where(known, x, sums / counts).astype(x.dtype), None
