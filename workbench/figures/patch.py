"""A change of a screen, as a value. No Bokeh here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of one model of the document, which `source` names.

    The mode 'set' assigns `columns` to the model's properties. For a ColumnDataSource, 'replace' replaces its data with
    `columns`, and 'stream' adds them and keeps the last `rollover` rows. The source 'window' holds the range to show
    while following: its `start` and `end` (ms since the epoch) go into the Range1d 'time', unless the reader has panned
    away.
    """

    source: str
    mode: Literal["stream", "replace", "set"]
    columns: dict[str, Any]
    rollover: int | None = None

    def values(self) -> dict[str, Any]:
        """Return it as values that JSON can represent."""
        columns = {name: each.tolist() if hasattr(each, "tolist") else each for name, each in self.columns.items()}
        return {"source": self.source, "mode": self.mode, "columns": columns, "rollover": self.rollover}


def columns(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows as columns of these names."""
    rows = [*rows]
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def room_for(n: int, name: str) -> Patch:
    """Return the patch that makes room for `n` rows in the axis `name` of a plot, from top to bottom."""
    return Patch(name, "set", {"start": max(n, 1) - 0.5, "end": -0.5})
