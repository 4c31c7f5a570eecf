"""Pictures of a run's answer, bandwidth between workers, and topology, in its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from workbench.figures.answers import Picture
from workbench.figures.bandwidth import bandwidth_html
from workbench.figures.paper import LACKING, can_write, page_png
from workbench.figures.topology import topology_html, topology_of
from workbench.markup import fragment, paragraph, tag
from workbench.runs.run import ON_SIMULATED


def pictures_html(pictures: Sequence[Picture]) -> Markup:
    """Return pictures of an answer, each with its title."""
    if pictures and not can_write():
        return paragraph(LACKING)
    return fragment(*(tag("figure", tag("figcaption", each.title), _image(each)) for each in pictures))


def measurements_html(run: Mapping[str, Any]) -> Markup:
    """Return the bandwidth between workers and the links between GPUs; nothing for most runs."""
    return fragment(_bandwidth(run), _topology(run))


def _image(picture: Picture) -> Markup:
    source = f"data:image/png;base64,{page_png(picture)}"
    return tag("img", alt=picture.title, src=source, style="width: 760px; max-width: 100%")


def _bandwidth(run: Mapping[str, Any]) -> Markup:
    bandwidth = (run.get("result") or {}).get("bandwidth")
    heat_map = bandwidth and bandwidth_html(bandwidth, ON_SIMULATED if run.get("simulated") else "")
    if not heat_map:
        return Markup("")
    return fragment(
        tag("h2", "Bandwidth between workers"),
        tag("p", "Quartiles of the messages' bandwidth; color is the median."),
        tag("div", heat_map, style="overflow-x: auto"),
    )


def _topology(run: Mapping[str, Any]) -> Markup:
    topology = topology_of(run.get("inventory"))
    if topology is None or not (run.get("spec") or {}).get("devices"):
        return Markup("")
    drawn = topology_html(topology, simulated=bool(run.get("simulated")))
    return tag("h2", "Between the GPUs") + drawn
