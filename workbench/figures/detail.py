"""Every task of a record within a page that has neither server nor kernel, thinned there to what a plot can show.

The columns are held as bytes, compressed: four to eight bytes for each task. What `Timeline.view` does in Python the
page does for the stretch of time in view: tasks wider than a pixel column as they are, the others one rectangle for
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
"""Tasks up to which a page holds their keys too: they take more room than all else."""

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
    """A record as values that labext/src/figures/detail.ts shows in a document.

    `lane` and `category` are of each task the row of the plot and the index of its colour, `lanes` names of the workers
    of all rows. No more than `limit` rectangles are drawn at once.
    """
    order = np.argsort(tasks.start, kind="stable")
    begin = np.rint(1e6 * (tasks.start[order] - tasks.start[order[0]]))
    labels, label = _labels(tasks)
    columns = {
        "delta": np.diff(begin, prepend=0.0),
        "length": np.rint(1e6 * (tasks.stop - tasks.start)[order]),
        # Sizes are read, not added up: whole KiB will do.
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
    """Lowest bytes of all rows, then the next ones: like beside like, which compresses to a fraction."""
    whole = np.clip(column, 0, 256.0**width - 1).astype("<u4")
    return whole.view(np.uint8).reshape(-1, 4)[:, :width].T.tobytes()


def _labels(tasks: Tasks) -> tuple[list[str], npt.NDArray[np.int64]]:
    parts = np.stack([tasks.name.codes.astype(np.int64), tasks.kind.astype(np.int64), tasks.erred.astype(np.int64)])
    found, label = np.unique(parts, axis=1, return_inverse=True)
    texts = [
        (tasks.name.values[name] if kind == _COMPUTE else f"{KINDS[kind]} for {tasks.name.values[name]}")
        + (" (failed)" if erred else "")
        for name, kind, erred in found.T.tolist()
    ]
    return texts, label.reshape(-1)
