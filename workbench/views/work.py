"""The catalogue of workloads, the form of the chosen one, its forecast, and Run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from workbench import markup
from workbench.errors import WorkbenchError
from workbench.formats import duration, size, span
from workbench.jobs.folders import ACTIVE
from workbench.markup import facts, folded, fragment, paragraph, tag
from workbench.runs.settings import read_settings
from workbench.storage.servers import OPTIONS
from workbench.threads import in_thread
from workbench.views.browsing import Sought, browsing
from workbench.views.examples import start_workers
from workbench.views.forms import Form, Problem, as_text, given, select
from workbench.views.parts import (
    action,
    button,
    command,
    confirmed,
    folds,
    keeping,
    link,
    live,
    notice,
    radios,
    text_field,
)
from workbench.views.result import opens_result
from workbench.workloads.builtin import group_of
from workbench.workloads.forms import applies
from workbench.workloads.user_functions import is_named

if TYPE_CHECKING:
    from workbench.runs.forecasting.forecast import Forecast
    from workbench.views.context import Context
    from workbench.workloads.contents import Contents
    from workbench.workloads.presets import Preset
    from workbench.workloads.registry import Template

_SIZES = ("size", "shape", "chunks")
"""Parameters that follow from the scale of a preset."""

_FORM = "wb-ask"
"""Id of the form that the button Run belongs to."""

_MOST_ARRAYS = 30
_LATE = 4
_TRUE = ("True", "true")
_LINE_END = re.compile(r"(?<![\n-])\n(?![\s*>-])")
"""Line ends within a paragraph of a docstring, since the page breaks lines itself."""
_LONG = 3600
"""Forecast in seconds above which the light is amber."""
_VERDICTS = {"fits": "Fits in memory", "won't fit": "Won't fit in memory", "will spill": "Will use the disk"}
_LIGHTS = {"fits": "good", "will spill": "fair", "won't fit": "bad", "can't run": "bad"}


async def work(context: Context, _: str) -> Markup:
    """Return the section's body: the catalogue, and below it the chosen workload."""
    # Listing the user's workloads may have to read their files.
    there = {each.name: each for each in await in_thread(context.session.workloads)}
    chosen = await chosen_workload(context)
    unlisted = {} if chosen.is_listed else {chosen.name: chosen.template}
    offered = ((name, each.title, each.summary.replace("`", "")) for name, each in (unlisted | there).items())
    groups = {name: group_of(name) for name in unlisted | there}
    catalogue = radios("workload", "Workload", ("wb-Catalogue", "wb-Entry"), offered, chosen.name, groups)
    failed = context.session.broken_workloads(wait=False)
    broken = (paragraph(f"{each.where}: {each.why}", data_workbench="broken") for each in failed)
    unread = paragraph(chosen.problem, "wb-Problem")
    return catalogue + fragment(*broken) + unread + await _own(context) + await _chosen(context, chosen)


class Chosen(NamedTuple):
    """The workload that a page chose."""

    name: str
    """Name in requests: one of the list, or `path:function` for an unlisted file of the user."""
    template: Template
    problem: str = ""
    """Reason why it isn't the function that was chosen."""

    @property
    def is_listed(self) -> bool:
        """True if using it doesn't open a user's file."""
        return not is_named(self.name)


async def chosen_workload(context: Context) -> Chosen:
    """Return the workload that the page chose, or the first."""
    templates, name, problem = context.session.workloads(wait=False), context.choices.get("workload"), ""
    listed = next((each for each in templates if each.name == name), None)
    if listed is None and is_named(name):
        try:
            return Chosen(str(name), await context.ask("workload", name))
        except WorkbenchError as err:
            problem = str(err)
    listed = listed or templates[0]
    return Chosen(listed.name, listed, problem)


def chosen_preset(template: Template, typed: Mapping[str, Any]) -> Preset | None:
    """Return the preset that is chosen, if any."""
    return next((each for each in template.offered if each.name == typed.get("preset")), None)


def target(context: Context) -> dict[str, Any] | None:
    """Return the cluster that workloads run on: the chosen one if it is ready, else the newest ready one."""
    ready = context.ready()
    chosen = [each for each in ready if each["name"] == context.choices.get("cluster")]
    return max(chosen or ready, key=lambda each: each["created"], default=None)


async def _chosen(context: Context, chosen: Chosen) -> Markup:
    template = chosen.template
    prefix = f"run.{template.name}."
    typed = given(context.choices, prefix)
    preset = chosen_preset(template, typed)
    cluster = target(context)
    contents, needs, problem = None, None, None
    question = chosen.name, typed, cluster["name"] if cluster else None
    try:
        # A preset may also name a path, and reading it may hang.
        values = {**(preset.parameters if preset else {}), **typed}
        if values.keys() & template.paths or not chosen.is_listed:
            contents, found = await _contents_and_forecast(context, template, values, question)
            if isinstance(found, WorkbenchError):
                raise found
            needs = found
        else:
            if template.paths and context.look:
                await context.look(None)
            # In this process, since a separate one starts only after seconds and answers more slowly.
            needs = await in_thread(context.session.forecast, *question)
    except WorkbenchError as err:
        problem = Problem.of(err)
    settings = context.choices.get(f"settings.{template.name}", "")
    try:
        read_settings(settings)
    except WorkbenchError as err:
        needs, problem = None, problem or Problem(str(err))
    schema = template.schema()
    # A user's function may use a field's name with another meaning.
    options = _choices(None if template.pinned else contents, typed)
    form = Form(schema, prefix, typed, problem, _defaults(preset, needs), options, _FORM)
    fields = shown_fields(template, schema, typed, preset)
    first, more = form.split(fields)
    choices = {"parameters": prefix, "settings": f"settings.{template.name}"}
    past = needs.sentence if needs and needs.verdict == "won't fit" else None
    body: dict[str, Any] = {"workload": chosen.name, "force": False}
    if cluster and needs:
        body |= {"cluster": cluster["name"], "force": needs.verdict == "won't fit"}
    stopped = cluster is None or needs is None or needs.verdict == "can't run"
    run = button(
        "Run anyway" if past else "Run",
        type="submit",
        kind="warn" if past else "accept",
        title=past or (f"Run on {cluster['name']}" if cluster else "Start a cluster first"),
        disabled=stopped,
        data_confirm=_second(context, template, cluster),
        **action("run", **body),
        data_take=choices,
        **opens_result(),
        data_workbench="run-button",
    )
    compare = button(
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
        **command("cell", text=cell or "", type="code"),
        data_workbench="insert-workload",
    )
    ways = await _browsing(context, template, typed, fields)
    go = tag(
        "div",
        _verdict(needs, form.elsewhere(fields), cluster),
        _time(needs, cluster, chosen.name, prefix),
        notice("run", "run-problem"),
        live(f"latest:{template.name}"),
        # In one element, or Run alone would wrap to the next line while a run is active.
        tag("span", compare, run, class_="wb-Row"),
        class_="wb-Row wb-mod-end wb-Go",
    )
    return (
        # One block that stays in view, so that Run never covers a field or its error.
        tag(
            "form",
            _presets(template, prefix, preset, cluster),
            form.html(first, ways),
            problem.remedy if problem else "",
            _holds(contents),
            _target(context, cluster),
            go,
            id=_FORM,
            class_="wb-Ask",
        )
        + folds(
            more_fields=(
                "More",
                form.html(more, ways) + _settings(template, settings) + _keep(context, chosen, prefix, typed, preset),
            ),
            needs_why=("Why", _why(needs)),
            workload_source=(
                "Code",
                markup.code(code, "workload-code") + tag("div", insert, class_="wb-Row wb-mod-end"),
            ),
            about=("About", tag("pre", markup.with_code(_LINE_END.sub(" ", template.help)), class_="wb-Help")),
        )
    )


async def _own(context: Context) -> Markup:
    """Return a search for the user's functions in unlisted files."""
    listed = context.state.get("titles", {})
    runs = (run for run in context.state.get("runs", ()) if run["function"] and run["workload"] not in listed)
    late = dict.fromkeys(run["function"]["reference"] for run in runs)
    function = Sought("browse.functions", "workload", {}, ending=".py")
    search = await browsing(context, function, "A function of your own", list(late)[:_LATE], ".")
    return tag("div", search, class_="wb-Browse")


async def _contents_and_forecast(
    context: Context, template: Template, typed: Mapping[str, Any], question: tuple[Any, ...]
) -> tuple[Contents | None, Forecast | WorkbenchError]:
    """Return the file's contents and the forecast or its error: the user may still have to choose a variable."""
    requests = (_contents(context, template, typed), context.ask("forecast", *question))
    contents, needs = await asyncio.gather(*requests, return_exceptions=True)
    for each in (contents, needs):
        if isinstance(each, BaseException) and not isinstance(each, WorkbenchError):
            raise each
    return contents, needs


async def _contents(context: Context, template: Template, typed: Mapping[str, Any]) -> Contents | None:
    """Return the contents of the first given file; None without one, or if it can't be read."""
    path = next((typed[name] for name in _to_read(template) if typed.get(name)), None)
    if path is None:
        return None
    try:
        contents: Contents = await context.ask("look", path, **_server(typed))
    except WorkbenchError:
        return None  # The forecast reports the problem.
    return contents


def _server(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a URL's server from the form."""
    options = {name: typed[name] for name in OPTIONS if typed.get(name)}
    return options | {"anon": str(typed.get("anon")) in _TRUE}


async def _browsing(
    context: Context, template: Template, typed: Mapping[str, Any], fields: Sequence[str]
) -> dict[str, Markup]:
    """Return a search for each field that takes a path: paths of recent runs, and folders to browse."""
    schema, found = template.schema()["properties"], {}
    for name in (each for each in _to_read(template) if each in fields):
        path = Sought(f"browse.{name}", f"run.{template.name}.{name}", _server(typed))
        title = f"Browse for {schema[name].get('title', name).lower()}"
        way = await browsing(context, path, title, _late_paths(context, name), str(typed.get(name) or "."))
        found[name] = tag("div", way, class_="wb-Browse")
    return found


def _to_read(template: Template) -> list[str]:
    """Return the path fields that can name existing data."""
    fields = template.schema()["properties"]
    return [name for name in template.paths if fields[name]["path"] != "new"]


def _late_paths(context: Context, name: str) -> list[str]:
    """Return the absolute paths and URLs of recent runs."""
    paths = (run["resolved"].get(name) for run in context.state.get("runs", ()))
    full = (each for each in paths if isinstance(each, str) and ("://" in each or each.startswith("/")))
    return list(dict.fromkeys(full))[:_LATE]


def _choices(contents: Contents | None, typed: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return the options that a file offers, by field, with those that the user typed."""
    if contents is None:
        return {}
    own = {name: [str(typed[name])] if typed.get(name) else [] for name in contents.choices}
    return {
        name: [(each, each) for each in dict.fromkeys((*names, *own[name]))] for name, names in contents.choices.items()
    }


def _holds(contents: Contents | None) -> Markup:
    """Return a summary of the file, with its arrays and dimensions below a fold."""
    if contents is None:
        return Markup("")
    arrays = {each.name or "array": each.line() for each in contents.arrays[:_MOST_ARRAYS]}
    more = len(contents.arrays) - len(arrays)
    inside = facts(arrays | {f"{each.name} ↦": each.line() for each in contents.dimensions})
    inside += fragment(*map(paragraph, (*([f"{more} more arrays"] if more else []), *contents.remarks)))
    return folded(contents.sentence(), inside, id="wb-holds", data_workbench="holds")


def shown_fields(
    template: Template, schema: Mapping[str, Any], typed: Mapping[str, Any], preset: Preset | None
) -> list[str]:
    """Return the fields that apply to the current choices."""
    values = {name: field.get("default") for name, field in schema["properties"].items()}
    values |= {**(preset.parameters if preset else {}), **typed}
    return [
        name
        for name, field in schema["properties"].items()
        if name != "preset"
        and (name != "scale" or preset in template.presets)
        and (name in typed or applies(field.get("only"), values))
    ]


def _defaults(preset: Preset | None, needs: Forecast | None) -> dict[str, str]:
    """Return the values of unchanged fields in a preset; its dimensions follow from scale, size or shape."""
    if preset is None:
        return {}
    # A preset without a size has that of the form.
    sized = preset.parameters.keys() & {"size", "shape"}
    laid_out = {name: as_text(needs.parameters.get(name)) if needs else "" for name in _SIZES if sized}
    return {name: as_text(value) for name, value in preset.parameters.items()} | laid_out


def _presets(template: Template, prefix: str, preset: Preset | None, cluster: dict[str, Any] | None) -> Markup:
    """Return a list of presets: experiments of the texts, and the user's own."""
    offered = template.offered
    if not offered:
        return Markup("")
    options = [("", "none"), *((each.name, each.title) for each in offered)]
    control = select(
        options,
        preset.name if preset else "",
        id="wb-preset",
        name=f"{prefix}preset",
        data_default="",
        data_alone=prefix,
        title=preset.source if preset else "Parameters of an experiment, or ones that you saved",
        data_workbench="preset",
    )
    other = preset and preset.profile and cluster and cluster["spec"].get("profile") != preset.profile
    return (
        _wide("Preset", control, "wb-preset")
        + (paragraph(f"From: {preset.source}") if preset else "")
        + (paragraph(f"The text used a cluster of the kind {preset.profile}.") if preset and other else "")
    )


def _settings(template: Template, typed: str) -> Markup:
    """Return the field for Dask's settings of a run."""
    control = text_field(
        f"settings.{template.name}",
        "Settings of Dask",
        typed,
        placeholder="e.g. array.rechunk.threshold=5",
        id="wb-settings",
        data_workbench="field-settings",
    )
    return _wide("Dask settings", control, "wb-settings", title="For a run or comparison; spaces between them")


def _wide(label: str, control: str, id_: str | None, **attributes: Any) -> Markup:
    """Return a field of full width."""
    words = tag("label", label, for_=id_, **attributes)
    field = tag("div", words, tag("span", control, class_="wb-Field-control"), class_="wb-Field wb-mod-wide")
    return tag("div", field, class_="wb-Form")


def _keep(context: Context, chosen: Chosen, prefix: str, typed: Mapping[str, Any], preset: Preset | None) -> Markup:
    """Return controls that save the parameters as a preset, or delete the chosen one."""
    forget = ""
    if preset and preset.removable:
        then = {f"{prefix}preset": None}
        deletes = action("forget_preset", workload=chosen.name, preset=preset.name)
        forget = confirmed("delete", f"Forget {preset.name}", "Forget?", "preset-forget", **deletes, data_then=then)
    name = context.choices.get("preset.name", "")
    return keeping(
        "preset.name",
        "Name under which these parameters are saved",
        name,
        hook="preset-keep",
        title="A preset of your own: these parameters under a name",
        action="keep_preset",
        forget=forget,
        arguments={"workload": chosen.name},
        take={"parameters": prefix, "name": "preset.name"},
        then={"preset.name": None, **{f"{prefix}{each}": None for each in typed}, f"{prefix}preset": name},
    ) + (notice("forget_preset") if forget else "")


def _target(context: Context, cluster: dict[str, Any] | None) -> Markup:
    ready = context.ready()
    if not ready or cluster is None:
        control = markup.faint("waiting for a cluster …")
        if not context.clusters("starting"):
            control = start_workers("start-for-work", "Start two workers", class_="wb-Link")
    else:
        options = [(each["name"], f"{each['name']} ({each['description']})") for each in ready]
        control = select(options, cluster["name"], id="wb-target", name="cluster")
    return _wide("Cluster", control, "wb-target" if ready else None)


def _second(context: Context, template: Template, cluster: dict[str, Any] | None) -> str | None:
    """Return the question before a second run of a workload that already runs; None for the first."""
    runs = (run for run in context.state.get("runs", ()) if run["status"] in ACTIVE)
    same = any(run["workload"] == template.name and cluster and run["cluster"] == cluster["name"] for run in runs)
    return "It runs already. Run a second?" if same else None


def _verdict(needs: Forecast | None, problem: str | None, cluster: dict[str, Any] | None) -> Markup:
    """Return the verdict on memory, in one line with a light."""
    if needs is None:
        # Reserve a line for the verdict, or everything below it would move during typing.
        message = paragraph(problem or "", "wb-Problem") or tag("p", "\N{NO-BREAK SPACE}")
        return tag("div", message, class_="wb-Needs")
    short = _VERDICTS.get(needs.verdict or "", (needs.verdict or "").capitalize())
    if short and needs.memory_per_worker:
        limit = cluster and cluster["spec"].get("memory_limit")
        short += f" ({size(needs.memory_per_worker)}{f' of {size(limit)}' if limit else ''})"
    if not short and needs.needs.get("known"):
        short = f"About {size(needs.needs['held_total'])} of memory"
    if not short and needs.seconds is None and cluster is not None:
        short = "Memory unknown until it runs"  # The next line says the same of the time.
    return _lit(_LIGHTS.get(needs.verdict or "", "none"), short or needs.sentence, needs.sentence, "needs")


def _lit(light: str, text: str, title: str, hook: str, *further: str) -> Markup:
    """Return a line with a light, and further elements next to it."""
    dot = tag("span", class_=f"wb-Light wb-mod-{light}", aria_hidden="true")
    return tag("div", tag("p", dot, text, title=title), *further, class_="wb-Needs", data_workbench=hook)


def _time(needs: Forecast | None, cluster: dict[str, Any] | None, workload: str, prefix: str) -> Markup:
    """Return the forecast of time, amber above an hour or if unknown, with a button that measures it."""
    if needs is None or cluster is None or needs.verdict in ("won't fit", "can't run"):
        return Markup("")
    light, lasting = "fair", "Time unknown"
    if needs.seconds is not None:
        lasting = span(needs.seconds["low"], needs.seconds["high"])
        lasting = f"Roughly {lasting}" if needs.rough else f"Time: {lasting}"
        light = "fair" if needs.seconds["high"] > _LONG else "good"
    return _lit(light, lasting, needs.sentence, "time", _measure(needs, cluster, workload, prefix))


def _measure(needs: Forecast, cluster: dict[str, Any], workload: str, prefix: str) -> Markup:
    if needs.measure is None:
        return Markup("")
    measure = link(
        f"Measure ({duration(max(1, round(needs.measure)))})",
        title=f"Run a part of it on {cluster['name']}, so that forecasts know how long it takes",
        **action("measure", workload=workload, cluster=cluster["name"]),
        data_take={"parameters": prefix},
        data_workbench="measure",
    )
    return measure + notice("measure", "measurement")


def _why(needs: Forecast | None) -> Markup:
    """Return the sentences that explain the verdict."""
    return Markup("") if needs is None else fragment(*map(paragraph, (needs.sentence, *needs.notes)))
