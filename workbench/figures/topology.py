"""What lies between GPUs and network cards, as a heat map: the nearer, the stronger the colour."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.figures.colors import THEMES, VIRIDIS, Theme, ink_on
from workbench.hardware.values import RELATIONS, Topology
from workbench.runs.store import ON_SIMULATED

if TYPE_CHECKING:
    from bokeh.models import Column, Plot

_CELL = 46
"""Pixels across a cell, which holds four letters."""

_LEFT = 70
"""Pixels for the names of the rows."""

# Of the palette, which grows lighter: neighbours in rank stay apart for those who see no hues.
_SHADES = {"NV#": 17, "PIX": 13, "PXB": 11, "PHB": 8, "NODE": 5, "SYS": 2}
_ONE_LINK = 15


def has_ways(topology: Topology) -> bool:
    """Whether there is anything between anything: a GPU alone has no ways to tell of."""
    return len(topology.gpus) + len(topology.cards) > 1


def topology_of(inventory: Mapping[str, Any] | None) -> Topology | None:
    """Topology of a machine as a record keeps it; None where it has no ways to tell of."""
    told = (inventory or {}).get("topology")
    found = Topology.model_validate(told) if told else None
    return found if found is not None and has_ways(found) else None


def topology_figure(
    topology: Topology,
    theme: str = "light",
    *,
    simulated: bool = False,
) -> Column:
    """Matrix of GPUs × (GPUs and cards), with the legend in words below it.

    The letters are those of `nvidia-smi topo -m`. An NVLink is the lightest cell, the way across the sockets the
    darkest; what can't be told is a question mark without colour.
    """
    from bokeh.layouts import column
    from bokeh.models import ColumnDataSource, Div, HoverTool
    from bokeh.plotting import figure

    look = THEMES[theme]
    names = [*topology.gpus, *topology.cards]
    source = ColumnDataSource(_columns(topology, look))
    plot = figure(
        x_range=names,
        y_range=list(reversed(topology.gpus)),
        x_axis_location="above",
        frame_width=_CELL * len(names),
        frame_height=_CELL * len(topology.gpus),
        min_border_left=_LEFT,
        toolbar_location=None,
        tools="",
        background_fill_color=look.background,
        border_fill_color=look.background,
        outline_line_color=None,
    )
    cells = plot.rect(
        x="column", y="row", width=0.95, height=0.93, source=source, fill_color="color", line_color="line"
    )
    plot.text(
        x="column",
        y="row",
        text="letters",
        text_color="ink",
        text_font_size="12px",
        text_align="center",
        text_baseline="middle",
        source=source,
    )
    plot.add_tools(HoverTool(renderers=[cells], tooltips=[("", "@row to @column"), ("", "@meaning")]))
    plot.grid.grid_line_color = None
    for axis in plot.axis:
        axis.major_label_text_color = look.text
        axis.axis_line_color = axis.major_tick_line_color = None
    if topology.cards:
        _part_from_cards(plot, len(topology.gpus), look)
    # Not the plot's own title, which is cut where there are two GPUs.
    head = Div(
        text=f"Between GPUs and network cards{ON_SIMULATED if simulated else ''}",
        styles={"color": look.text, "font-size": "13px", "font-weight": "bold"},
        margin=(5, 5, 0, 5),
    )
    words = Div(
        name="legend",
        text=_legend(topology),
        styles={"color": look.text, "font-size": "12px"},
        margin=(2, 5, 10, _LEFT),
    )
    return column(head, plot, words, styles={"background": look.background}, name="topology")


def topology_html(topology: Topology) -> str:
    """Matrix as an HTML table with its legend, for a page without Bokeh; the text takes the page's own colour."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in (*topology.gpus, *topology.cards))
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(map(_cell, row))}</tr>'
        for name, row in zip(topology.gpus, topology.rows, strict=True)
    )
    style = "border-spacing: 1px; font-size: 10px; text-align: center"
    return (
        f'<div style="overflow-x: auto"><table style="{style}"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{_legend(topology)}"
    )


def _cell(letters: str | None) -> str:
    if letters is None or letters == "X":
        return f"<td>{letters or '?'}</td>"
    color = _shade(letters)
    return f'<td style="background:{color};color:{ink_on(color)}" title="{_meaning(letters)}">{letters}</td>'


def _legend(topology: Topology) -> str:
    return "".join(
        f'<div><span style="background:{_shade(letters)}">&emsp;</span> {letters}: {meaning}</div>'
        for letters, meaning in topology.legend().items()
    )


def _columns(topology: Topology, look: Theme) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        name: [] for name in ("row", "column", "letters", "meaning", "color", "ink", "line")
    }
    for gpu, row in zip(topology.gpus, topology.rows, strict=True):
        for other, letters in zip((*topology.gpus, *topology.cards), row, strict=True):
            color = _color(letters, look)
            columns["row"].append(gpu)
            columns["column"].append(other)
            columns["letters"].append(letters or "?")
            columns["meaning"].append(_meaning(letters))
            columns["color"].append(color)
            columns["ink"].append(look.muted if letters in (None, "X") else ink_on(color))
            columns["line"].append(look.grid)
    return columns


def _shade(letters: str) -> str:
    """Colour of a relation, stronger for two NVLinks and more than for one."""
    place = _ONE_LINK if letters == "NV1" else _SHADES["NV#" if letters.startswith("NV") else letters]
    return VIRIDIS[place]


def _color(letters: str | None, look: Theme) -> str:
    if letters is None or letters == "X":
        return look.background
    return _shade(letters)


def _meaning(letters: str | None) -> str:
    if letters is None:
        return "can't be told"
    if letters == "X":
        return "itself"
    if letters.startswith("NV"):
        count = letters[2:]
        return "one NVLink" if count == "1" else f"{count} NVLinks"
    return RELATIONS[letters]


def _part_from_cards(plot: Plot, count: int, look: Theme) -> None:
    """Draw a line between the GPUs and the cards."""
    from bokeh.models import Span

    plot.add_layout(Span(location=count, dimension="height", line_color=look.muted, line_width=2))
