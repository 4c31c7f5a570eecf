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

    def apply(self, model: Any) -> None:
        """Change a Bokeh model of this process."""
        if self.mode == "stream":
            model.stream(self.columns, self.rollover)
        elif self.mode == "replace":
            model.data = self.columns
        else:
            model.update(**self.columns)


def named(root: Any) -> dict[str, Any]:
    """Return the models of a document that patches may name, by name."""
    return {model.name: model for model in root.references() if model.name}


def columns(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows as columns of these names."""
    rows = [*rows]
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def room_for(n: int, name: str) -> Patch:
    """Return the patch that makes room for `n` rows in the axis `name` of a plot, from top to bottom."""
    return Patch(name, "set", {"start": max(n, 1) - 0.5, "end": -0.5})
