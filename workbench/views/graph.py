"""The tasks of a cluster by name as a graph: what is needed stands above what needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from statistics import fmean

from workbench.figures.colors import color_index, neutral_colors
from workbench.figures.markup import meter, tag
from workbench.formats import count

MOST_NAMES = 48
"""Names that are drawn, the largest first."""

_WIDTH, _HEIGHT = 160, 46
_ACROSS, _DOWN = 172, 78
"""Pixels of a node, and from one to the next."""


def graph(
    counts: Mapping[str, Mapping[str, int]], needs: Mapping[str, Iterable[str]], title: Callable[[str], str] = escape
) -> str:
    """Nodes with how much of each is done, and lines from what is needed to what needs it.

    `counts` are by name of tasks 'total', 'done' and 'erred'; `title` makes HTML of a name.
    """
    drawn = sorted(counts, key=lambda name: -counts[name]["total"])[:MOST_NAMES]
    edges = {name: [each for each in needs.get(name, ()) if each in drawn] for name in drawn}
    rows = _rows(edges)
    widest = max(map(len, rows), default=0)
    place = {
        name: (round(((widest - len(row)) / 2 + index) * _ACROSS), level * _DOWN)
        for level, row in enumerate(rows)
        for index, name in enumerate(row)
    }
    width, height = widest * _ACROSS, (len(rows) - 1) * _DOWN + _HEIGHT
    lines = (_line(place[above], place[below]) for below, of in edges.items() for above in of)
    drawing = tag("svg", *lines, width=width, height=height, aria_hidden="true")
    nodes = (_node(name, title(name), counts[name], *place[name]) for row in rows for name in row)
    style = f"width: {width}px; height: {height}px"
    return tag("div", drawing, *nodes, class_="wb-Graph", style=style, role="list", aria_label="Graph of tasks")


def _node(name: str, title: str, counted: Mapping[str, int], x: int, y: int) -> str:
    color = neutral_colors()[color_index(name)]
    return tag(
        "div",
        tag("div", title),
        done_of(name, counted),
        id=f"wb-node-{name}",
        class_="wb-Node",
        style=f"left: {x}px; top: {y}px; width: {_WIDTH}px; height: {_HEIGHT}px; border-left-color: {color}",
        role="listitem",
    )


def done_of(name: str, counted: Mapping[str, int]) -> str:
    """Bar of how many tasks of a name are done."""
    done, total = counted["done"], counted["total"]
    failed = f", {count(counted['erred'])} failed" if counted["erred"] else ""
    return meter(f"Done of {name}", done, total, f"{count(done)} of {count(total)}{failed}")


def _line(above: tuple[int, int], below: tuple[int, int]) -> str:
    (x, y), (to_x, to_y) = (above[0] + _WIDTH // 2, above[1] + _HEIGHT), (below[0] + _WIDTH // 2, below[1])
    bend = max(16, abs(to_y - y) // 2)
    return tag("path", d=f"M{x} {y}C{x} {y + bend} {to_x} {to_y - bend} {to_x} {to_y}")


def _rows(needs: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Names by their longest way from one that needs nothing; each near what it needs in the row above."""
    levels: dict[str, int] = {}

    def level(name: str, way: tuple[str, ...]) -> int:
        # Two names may need each other: 'sum' of a 'mul' of a 'sum'.
        above = [each for each in needs[name] if each not in way and each != name]
        if name not in levels:
            levels[name] = max((1 + level(each, (*way, name)) for each in above), default=0)
        return levels[name]

    rows: dict[int, list[str]] = {}
    for name in needs:
        rows.setdefault(level(name, ()), []).append(name)
    place: dict[str, float] = {}
    for _, row in sorted(rows.items()):
        row.sort(key=lambda name: fmean([place[each] for each in needs[name] if each in place] or [0.0]))
        place |= {name: index - (len(row) - 1) / 2 for index, name in enumerate(row)}
    return [row for _, row in sorted(rows.items())]
