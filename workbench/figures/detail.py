"""All tasks of a record for a page without server or kernel, which thins them for its plot.

The columns are compressed bytes: four to eight for each task. The page does for the visible stretch of time what
`Timeline.view` does in Python: tasks wider than a pixel column are drawn as they are, the others as one rectangle for
each lane, column and category.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.figures.colors import ERRED, N_CATEGORIES, TRANSFER, Theme, category_colors
from workbench.monitor.events import KINDS, Tasks

WITH_KEYS = 20_000
"""Largest number of tasks for which a page holds the keys too: they take more room than everything else."""

_WIDTHS = {"delta": 4, "length": 4, "nbytes": 4, "lane": 2, "category": 1, "label": 2}
_COMPUTE = KINDS.index("compute")


def record_values(
    tasks: Tasks,
    lane: npt.NDArray[np.int64],
    category: npt.NDArray[np.int64],
    lanes: Sequence[str],
    themes: Sequence[Theme],
    limit: int,
) -> dict[str, Any]:
    """Return a record as values that labext/src/figures/detail.ts shows in a document.

    For each task, `lane` is the row of the plot and `category` the index of its color. `lanes` holds the worker name of
    every row. No more than `limit` rectangles are drawn at once.
    """
    order = np.argsort(tasks.start, kind="stable")
    begin = np.rint(1e6 * (tasks.start[order] - tasks.start[order[0]]))
    labels, label = _labels(tasks)
    columns = {
        "delta": np.diff(begin, prepend=0.0),
        "length": np.rint(1e6 * (tasks.stop - tasks.start)[order]),
        # Sizes are read, not added up, so whole KiB are precise enough.
        "nbytes": np.rint(tasks.nbytes[order] / 1024),
        "lane": lane[order],
        "category": category[order],
        "label": label[order],
    }
    planes = b"".join(_planes(columns[name], width) for name, width in _WIDTHS.items())
    return {
        "n": len(tasks),
        "widths": _WIDTHS,
        "packed": base64.b64encode(gzip.compress(planes, 6, mtime=0)).decode(),
        "start": 1000 * float(tasks.start[order[0]]),
        "lanes": list(lanes),
        "labels": labels,
        "keys": [key[:120] for key in tasks.take(order).table["key"].to_pylist()] if len(tasks) <= WITH_KEYS else None,
        "limit": limit,
        "colors": {
            theme.name: {"page": theme.background, "palette": category_colors(theme)[:N_CATEGORIES]} for theme in themes
        },
        "transfer": TRANSFER,
        "erred": ERRED,
    }


def _planes(column: npt.NDArray[Any], width: int) -> bytes:
    """Return the lowest bytes of all rows, then the next ones: similar bytes together compress to a fraction."""
    whole = np.clip(column, 0, 256.0**width - 1).astype("<u4")
    return whole.view(np.uint8).reshape(-1, 4)[:, :width].T.tobytes()


def _labels(tasks: Tasks) -> tuple[list[str], npt.NDArray[np.int64]]:
    parts = np.stack([tasks.name.codes.astype(np.int64), tasks.kind.astype(np.int64), tasks.erred.astype(np.int64)])
    unique, label = np.unique(parts, axis=1, return_inverse=True)
    texts = [
        (tasks.name.values[name] if kind == _COMPUTE else f"{KINDS[kind]} for {tasks.name.values[name]}")
        + (" (failed)" if erred else "")
        for name, kind, erred in unique.T.tolist()
    ]
    return texts, label.reshape(-1)
