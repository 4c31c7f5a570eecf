"""Pictures of a run's answer, bandwidth between workers, and topology, in its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import xarray as xr
from bokeh.embed import json_item
from markupsafe import Markup

from workbench.figures.answers import Picture, pictures
from workbench.figures.bandwidth import bandwidth_html
from workbench.figures.components import answer_figure
from workbench.figures.topology import topology_html, topology_of
from workbench.markup import fragment, tag
from workbench.runs.run import ON_SIMULATED


class Section(NamedTuple):
    """A part of a report: its heading, its HTML, and possibly a figure by theme."""

    title: str
    body: Markup
    figure: Callable[[str], Any] | None = None


def sections(run: Mapping[str, Any], arrays: xr.Dataset | None = None) -> list[Section]:
    """Return sections for pictures of a run's answer, and then for its measurements; most runs have none."""
    drawn = pictures(xr.Dataset() if arrays is None else arrays, run.get("result") or {})
    found = [*map(_pictured, drawn), *_bandwidth(run)]
    if run.get("simulated"):
        found = [each._replace(figure=each.figure and _marked(each.figure)) for each in found]
    return [*found, *_topology(run)]


def _marked(figure: Callable[[str], Any]) -> Callable[[str], Any]:
    def drawn(theme: str) -> Any:
        plot = figure(theme)
        plot.title.text += ON_SIMULATED
        return plot

    return drawn


def sections_html(found: Sequence[Section]) -> Markup:
    """Return the sections with a placeholder for each figure."""
    return fragment(
        *(
            (tag("h2", section.title) if section.title else "")
            + section.body
            + (tag("div", id=f"measured-{index}", style="overflow-x: auto") if section.figure else "")
            for index, section in enumerate(found)
        )
    )


def sections_items(found: Sequence[Section]) -> dict[str, Any]:
    """Return the figures as Bokeh's JSON, light and dark, by the ids of their placeholders."""
    return {
        f"measured-{index}": {theme: json_item(section.figure(theme)) for theme in ("light", "dark")}
        for index, section in enumerate(found)
        if section.figure is not None
    }


def _pictured(picture: Picture) -> Section:
    return Section("", Markup(""), lambda theme: answer_figure(picture, theme))


def _bandwidth(run: Mapping[str, Any]) -> list[Section]:
    bandwidth = (run.get("result") or {}).get("bandwidth")
    if not bandwidth or not bandwidth["n_messages"]:
        return []
    said = tag("p", "Quartiles of the messages' bandwidth; colour is the median.")
    heat_map = bandwidth_html(bandwidth, ON_SIMULATED if run.get("simulated") else "")
    return [Section("Bandwidth between workers", said + tag("div", heat_map, style="overflow-x: auto"))]


def _topology(run: Mapping[str, Any]) -> list[Section]:
    topology = topology_of(run.get("inventory"))
    if topology is None or not (run.get("spec") or {}).get("devices"):
        return []
    return [Section("Between the GPUs", topology_html(topology, simulated=bool(run.get("simulated"))))]
