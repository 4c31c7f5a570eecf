"""What can be computed, the form of the chosen workload, whether it fits, and Run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.figures import markup
from workbench.figures.markup import folded, joined, paragraph, tag
from workbench.formats import size, span
from workbench.threads import in_thread
from workbench.views.forms import Form, Problem, as_text, given, select
from workbench.views.parts import button, folds, link, notice, radio
from workbench.workloads.registry import PATHS

if TYPE_CHECKING:
    from workbench.session import Forecast
    from workbench.views.page import Sight
    from workbench.workloads.presets import Preset
    from workbench.workloads.registry import Template

_SIZES = ("size", "shape", "chunks")
"""What follows from the scale of a preset."""

_LIGHTS = {"fits": "good", "will spill": "fair", "won't fit": "bad", "can't run": "bad"}


async def work(sight: Sight, _: str) -> str:
    """The section's body: the catalogue, and below it the workload that is chosen."""
    chosen = chosen_workload(sight)
    catalogue = tag(
        "div",
        *(_entry(each, chosen) for each in sight.session.workloads()),
        class_="wb-Catalogue",
        role="radiogroup",
        aria_label="Workload",
    )
    return catalogue + await _chosen(sight, chosen)


def chosen_workload(sight: Sight) -> Template:
    """Return the workload that the page chose, or the first."""
    templates = sight.session.workloads()
    return next((each for each in templates if each.name == sight.choices.get("workload")), templates[0])


def chosen_preset(template: Template, typed: Mapping[str, Any]) -> Preset | None:
    """Return the preset that is chosen, if any."""
    return next((each for each in template.presets if each.name == typed.get("preset")), None)


def _entry(template: Template, chosen: Template) -> str:
    name = template.name
    return radio(
        template.title,
        name == chosen.name,
        {"workload": name},
        class_="wb-Entry",
        title=template.summary.replace("`", ""),
        data_workbench=f"workload-{name}",
    )


def target(sight: Sight) -> dict[str, Any] | None:
    """Return the cluster that workloads run on: the chosen one while it is ready, else the youngest that is."""
    ready = sight.clusters("ready")
    chosen = [each for each in ready if each["name"] == sight.choices.get("cluster")]
    return max(chosen or ready, key=lambda each: each["created"], default=None)


async def _chosen(sight: Sight, template: Template) -> str:
    prefix = f"run.{template.name}."
    typed = given(sight.choices, prefix)
    preset = chosen_preset(template, typed)
    cluster = target(sight)
    needs, problem = None, None
    question = template.name, typed, cluster["name"] if cluster else None
    try:
        if PATHS & typed.keys():
            needs = await sight.ask("needs", *question)
        else:
            # A process of its own is there only after seconds, and each answer of it takes longer.
            needs = await in_thread(sight.session.needs, *question)
    except WorkbenchError as err:
        problem = Problem.of(err)
    schema = template.schema()
    form = Form(schema, prefix, typed, problem, _defaults(preset, needs))
    fields = shown_fields(template, schema, typed, preset)
    first, more = form.split(fields)
    choices = {"parameters": prefix}
    past = needs.sentence if needs and needs.verdict == "won't fit" else None
    body: dict[str, Any] = {"workload": template.name, "force": False}
    if cluster and needs:
        body |= {"cluster": cluster["name"], "force": needs.verdict == "won't fit"}
    stopped = cluster is None or needs is None or needs.verdict == "can't run"
    run = button(
        "Run anyway" if past else "Run",
        kind="warn" if past else "accept",
        title=past or (f"Run on {cluster['name']}" if cluster else "Start a cluster first"),
        disabled=stopped,
        data_request="POST runs",
        data_body=json.dumps(body),
        data_take=json.dumps(choices),
        data_workbench="run-button",
    )
    beside = button(
        "Compare",
        title="On two kinds of hardware or more, measured in turn",
        data_reveal="wb-section-compare",
        data_workbench="compare-this",
    )
    cell = needs.cell if needs else None
    code = cell or template.source
    insert = button(
        "Insert into notebook",
        title="Add a cell with this workload’s Dask code to the notebook",
        disabled=cell is None,
        data_command="dask-workbench:cell",
        data_args=json.dumps({"text": cell or "", "type": "code"}),
        data_workbench="insert-workload",
    )
    return (
        _presets(template, prefix, preset, cluster)
        + form.html(first)
        + _target(sight, cluster)
        + _verdict(needs, form.elsewhere(fields), cluster)
        + tag("div", beside, run, class_="wb-Row wb-mod-end wb-Go")
        + notice("POST runs", "run-problem")
        + folds(
            more_fields=("More", form.html(more)),
            workload_source=(
                "Code",
                markup.code(code, "workload-code") + tag("div", insert, class_="wb-Row wb-mod-end"),
            ),
            about=("About", tag("pre", escape(template.help), class_="wb-Help")),
        )
    )


def shown_fields(
    template: Template, schema: Mapping[str, Any], typed: Mapping[str, Any], preset: Preset | None
) -> list[str]:
    """Fields that do something with what is chosen."""
    values = {name: field.get("default") for name, field in schema["properties"].items()}
    values |= {**(preset.parameters if preset else {}), **typed}
    return [
        name
        for name, field in schema["properties"].items()
        if name != "preset" and (preset or name != "scale") and (name in typed or _matters(field.get("only"), values))
    ]


def _matters(only: str | None, values: Mapping[str, Any]) -> bool:
    """Whether a field counts, which may depend on another's value: 'method=dask', 'path', '!path'."""
    if only is None:
        return True
    name, equals, value = only.removeprefix("!").partition("=")
    if name not in values:
        return True
    there = str(values.get(name)) == value if equals else values.get(name) not in (None, "")
    return there is not only.startswith("!")


def _defaults(preset: Preset | None, needs: Forecast | None) -> dict[str, str]:
    """What fields come to in a preset that are left alone; how large it is follows from scale, size or shape."""
    if preset is None:
        return {}
    laid_out = {name: as_text(needs.parameters.get(name)) if needs else "" for name in _SIZES}
    return {name: as_text(value) for name, value in preset.parameters.items()} | laid_out


def _presets(template: Template, prefix: str, preset: Preset | None, cluster: dict[str, Any] | None) -> str:
    """Experiments of the texts, to begin from."""
    if not template.presets:
        return ""
    options = [("", "none"), *((each.name, each.title) for each in template.presets)]
    control = select(
        options,
        preset.name if preset else "",
        id="wb-preset",
        name=f"{prefix}preset",
        data_default="",
        data_alone=prefix,
        title=preset.source if preset else "Parameters of an experiment that somebody has published",
        data_workbench="preset",
    )
    label = tag("label", "Preset", for_="wb-preset")
    field = tag("div", label, tag("span", control, class_="wb-Field-control"), class_="wb-Field wb-mod-wide")
    other = preset and preset.profile and cluster and cluster["spec"].get("profile") != preset.profile
    return (
        tag("div", field, class_="wb-Form")
        + (paragraph(f"From: {preset.source}") if preset else "")
        + (paragraph(f"The text used a cluster of the kind {preset.profile}.") if preset and other else "")
    )


def _target(sight: Sight, cluster: dict[str, Any] | None) -> str:
    ready = sight.clusters("ready")
    if not ready or cluster is None:
        words = "waiting for a cluster …" if sight.clusters("starting") else "start one above"
        control = markup.faint(words)
    else:
        options = [(each["name"], f"{each['name']} ({each['description']})") for each in ready]
        control = select(options, cluster["name"], id="wb-target", name="cluster", data_workbench="field-cluster")
    label = tag("label", "Cluster", for_="wb-target" if ready else None)
    inside = tag("div", label, tag("span", control, class_="wb-Field-control"), class_="wb-Field wb-mod-wide")
    return tag("div", inside, class_="wb-Form")


def _verdict(needs: Forecast | None, problem: str | None, cluster: dict[str, Any] | None) -> str:
    """One line with a light, and the sentences below a fold."""
    if needs is None:
        said = paragraph(problem, "wb-Problem", data_workbench="run-problem") if problem else paragraph("–")
        return tag("div", said, class_="wb-Needs")
    lasting = span(needs.seconds["low"], needs.seconds["high"]) if needs.seconds else None
    memory = f"{size(needs.memory_per_worker)} a worker" if needs.memory_per_worker else None
    short = joined(((needs.verdict or "").capitalize() or None, lasting, memory)) or needs.sentence
    light = _LIGHTS.get(needs.verdict or "", "none")
    measure, request = "", f"POST clusters/{cluster['name']}/calibrate" if cluster else ""
    if needs.calibrate and cluster:
        measure = link(
            "Measure this cluster",
            title="Some seconds, so that forecasts know how long things take",
            data_request=request,
            data_meanwhile=f"Measuring {cluster['name']} …",
            data_workbench="calibrate",
        )
    more = "".join(map(paragraph, (needs.sentence, *needs.notes))) + measure
    return tag(
        "div",
        tag(
            "p", tag("span", class_=f"wb-Light wb-mod-{light}", aria_hidden="true"), escape(short), title=needs.sentence
        ),
        folded("Why", more, id="wb-needs-why", data_workbench="needs-why"),
        notice(request, "calibration") if cluster else "",
        class_="wb-Needs",
        aria_live="polite",
        data_workbench="needs",
    )
