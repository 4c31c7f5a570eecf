"""Connections between GPUs and network cards, as a heat map: the closer, the stronger the color."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from pydantic import ValidationError

from workbench.figures.colors import VIRIDIS, ink_on
from workbench.hardware.values import RELATIONS, Topology
from workbench.markup import fragment, tag
from workbench.runs.run import ON_SIMULATED

# From the palette, which grows lighter: neighbors in rank are distinguishable without seeing hues.
_SHADES = {"NV#": 17, "PIX": 13, "PXB": 11, "PHB": 8, "NODE": 5, "SYS": 2}
_ONE_LINK = 15


def has_ways(topology: Topology) -> bool:
    """Return whether there are at least two devices, and so a connection to show."""
    return len(topology.gpus) + len(topology.cards) > 1


def topology_of(inventory: Mapping[str, Any] | None) -> Topology | None:
    """Return a machine's topology as stored in a record; None if there is none, or no connection to show."""
    recorded = (inventory or {}).get("topology")
    try:
        topology = Topology.model_validate(recorded) if recorded else None
    except ValidationError:
        return None  # The record of another machine may hold anything.
    return topology if topology is not None and has_ways(topology) else None


def topology_html(topology: Topology, *, simulated: bool = False) -> Markup:
    """Return the matrix of GPUs × (GPUs and cards) as an HTML table with its legend; the text takes the page's color.

    The letters are those of `nvidia-smi topo -m`. An NVLink is the lightest cell, a connection across sockets the
    darkest; an unknown one is a question mark without color.
    """
    title = f"Between GPUs and network cards{ON_SIMULATED if simulated else ''}"
    head = (tag("th", name, scope="col") for name in (*topology.gpus, *topology.cards))
    rows = (
        tag("tr", tag("th", name, scope="row"), *map(_cell, row))
        for name, row in zip(topology.gpus, topology.rows, strict=True)
    )
    table = tag(
        "table",
        tag("caption", title),
        tag("thead", tag("tr", tag("td"), *head)),
        tag("tbody", *rows),
        style="border-spacing: 1px; font-size: 10px; text-align: center",
    )
    return tag("div", table, style="overflow-x: auto") + _legend(topology)


def _cell(letters: str | None) -> Markup:
    if letters is None or letters == "X":
        return tag("td", letters or "?")
    color = _shade(letters)
    return tag("td", letters, style=f"background:{color};color:{ink_on(color)}", title=_meaning(letters))


def _legend(topology: Topology) -> Markup:
    return fragment(
        *(
            tag("div", tag("span", "\N{EM SPACE}", style=f"background:{_shade(letters)}"), f" {letters}: {meaning}")
            for letters, meaning in topology.legend().items()
        )
    )


def _shade(letters: str) -> str:
    """Return the color of a relation, stronger for two or more NVLinks than for one."""
    place = _ONE_LINK if letters == "NV1" else _SHADES["NV#" if letters.startswith("NV") else letters]
    return VIRIDIS[place]


def _meaning(letters: str) -> str:
    if letters.startswith("NV"):
        count = letters[2:]
        return "one NVLink" if count == "1" else f"{count} NVLinks"
    return RELATIONS[letters]
