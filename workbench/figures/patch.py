"""What has to change on a screen, as a value. No Bokeh here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of one source of the document.

    `source` names a ColumnDataSource. 'replace' puts `columns` in the place of its data, 'stream' adds them and keeps
    the last `rollover` rows. The source 'window' holds what to show while one follows: its `start` and `end` (ms
    since the epoch) belong into the Range1d 'time', unless the reader has panned away.
    """

    source: str
    mode: Literal["stream", "replace"]
    columns: dict[str, list[Any]]
    rollover: int | None = None
