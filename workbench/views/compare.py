"""The section Compare: pickers for workload, hardware and repeats, and below them the comparisons."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.utils import parse_bytes
from markupsafe import Markup

from workbench.clusters.lines import Line, read_line
from workbench.clusters.plan import consent_to_all, plan
from workbench.clusters.profiles import DEFAULT_PROFILE
from workbench.clusters.profiles.lookup import profile
from workbench.clusters.spec import WITHOUT_DASK, ClusterSpec
from workbench.errors import BadInputError, WorkbenchError
from workbench.formats import shorten_middle, size
from workbench.markup import faint, paragraph, tag
from workbench.runs.comparing.compare import SETTING, SWEPT_OPTIONS, read_request, usual_lines
from workbench.runs.comparing.comparisons import read_values
from workbench.runs.settings import read_settings
from workbench.threads import in_thread
from workbench.views.forms import FIRST, as_text, given, resolved, select
from workbench.views.parts import action, button, checkbox, command, folds, live, notice, text_field
from workbench.views.work import Chosen, chosen_preset, chosen_workload, shown_fields

if TYPE_CHECKING:
    from workbench.hardware import Inventory
    from workbench.views.context import Context
    from workbench.workloads.registry import Template

_ONE_CORE = {"n_workers": 1, "threads_per_worker": 1}

_NOT_SWEPT = ("save", "replace")

_CLUSTERS = 5
"""Number of clusters offered in addition to ticked ones: the newest, or those that match the search."""


class _Offer(NamedTuple):
    """An entry to tick: its name on the page, the line that it adds, its title, and its plan or error."""

    name: str
    line: str
    title: str
    plan: str = ""
    spec: ClusterSpec | None = None
    error: WorkbenchError | None = None


class _Filled(NamedTuple):
    """The comparison that the form describes."""

    workload: Chosen
    typed: Mapping[str, Any]
    """Parameters of the workload."""
    chosen: Mapping[str, Any]
    offers: tuple[_Offer, ...]
    lines: tuple[str, ...]
    values: str
    """Values of the sweep."""
    swept: Mapping[str, str]
    """Titles of everything that can be swept, by name."""
    asks: str | None
    """Message that the user has to agree to first."""
    problem: str | None

    @property
    def template(self) -> Template:
        """The workload's template."""
        return self.workload.template

    @property
    def body(self) -> dict[str, Any]:
        """Body of the button's request."""
        sweep, chosen = self.chosen.get("sweep"), self.chosen
        data: dict[str, Any] = {"workload": self.workload.name, "parameters": dict(self.typed), "on": list(self.lines)}
        data["repeats"] = chosen.get("repeats", 5)
        if sweep:
            data["sweep"] = {sweep: list(read_values(self.values))}
        return data | ({"agreed": bool(chosen.get("agreed"))} if self.asks else {})


async def compare(context: Context, _: str) -> Markup:
    """Return the form of a comparison, and the comparisons below it."""
    filled = _filled(context, await chosen_workload(context))
    begin = button(
        "Compare",
        kind="accept",
        title=filled.problem or "Measure them in turn, round after round",
        disabled=bool(filled.problem) or filled.body.get("agreed") is False,
        **action("compare", **filled.body),
        **command("view"),
        # Read at the click, so that the latest input counts.
        data_take={
            "parameters": f"run.{filled.template.name}.",
            "settings": f"settings.{filled.template.name}",
            "repeats": "compare.repeats",
        },
        data_workbench="compare",
    )
    repeats = _input(
        filled, "repeats", 5, type="number", min=1, id="wb-compare-repeats", class_="wb-Count jp-mod-styled"
    )
    expected = await _expected(context, filled)
    agreement = (
        paragraph(filled.asks, "wb-Problem") + _box(filled, "agreed", "The network is trusted") if filled.asks else ""
    )
    find = _input(filled, "text", "", type="search", aria_label="Search clusters", placeholder="Search clusters")
    return (
        tag("p", _in_words(filled), data_workbench="compare-what")
        + tag("div", *(_chip(each, filled) for each in filled.offers), class_="wb-Chips", role="group", aria_label="On")
        + (find if len(context.ready()) > _CLUSTERS else "")
        + tag("div", *_sweep(filled), class_="wb-Row")
        + agreement
        + paragraph(filled.problem or "", "wb-Problem", data_workbench="compare-problem")
        + paragraph(expected, data_workbench="compare-expected")
        + tag(
            "div",
            tag("label", "Repeats", for_="wb-compare-repeats"),
            repeats,
            tag("span", begin, class_="wb-Icons"),
            class_="wb-Row",
        )
        + notice("compare", "compare-refused")
        + folds(compare_more=("More", _more(filled)))
        + live("comparisons")
    )


def _filled(context: Context, workload: Chosen) -> _Filled:
    template, chosen, inventory = workload.template, given(context.choices, "compare."), context.machine.inventory()
    typed = given(context.choices, f"run.{template.name}.")
    offers = tuple(_offers(context, template, typed, chosen))
    further = [_offer(context, "", text, text) for each in chosen.get("lines", "").split(";") if (text := each.strip())]
    there = {each.name: each for each in offers if each.error is None}
    proposed = {name for name in there if name.startswith("usual-")} or _proposed(there)
    ticked = [each for name, each in there.items() if chosen.get(f"on.{name}", name in proposed)] + further
    lines = tuple(dict.fromkeys(each.line for each in ticked))
    asks = consent_to_all(each.spec for each in ticked if each.spec)
    settings: dict[str, Any] = {}
    # If they can't be read, the workload's form reports it.
    with suppress(BadInputError):
        settings = read_settings(context.choices.get(f"settings.{template.name}", ""))
    swept = _swept(template, typed, settings)
    # A sweep chosen for another workload doesn't apply.
    chosen["sweep"] = sweep = sweep if (sweep := chosen.get("sweep", "")) in swept else ""
    values = chosen.get(f"values.{sweep}", _values(sweep, template, typed, settings, inventory))
    filled = _Filled(workload, typed, chosen, offers, lines, values, swept, asks, None)
    # Unavailable hardware becomes a row with the reason, but a line that can't be read is a mistake.
    unread = next((str(each.error) for each in further if isinstance(each.error, BadInputError)), None)
    return filled._replace(problem=unread or _problem(filled))


def _proposed(there: Mapping[str, _Offer]) -> set[str]:
    """Return the offers ticked by default: the cores against most GPUs, one core or NumPy, whichever there is."""
    devices = {name: len(each.spec.devices) for name, each in there.items() if each.spec}
    most = max(devices, key=devices.__getitem__, default="")
    others = [most] if devices.get(most) else [name for name in ("one-core", "numpy") if name in there]
    return {DEFAULT_PROFILE, *others[:1]}


def _problem(filled: _Filled) -> str | None:
    """Return the problem that prevents the comparison, if one is known before it starts."""
    sweep = filled.chosen.get("sweep")
    values = read_values(filled.values) if sweep else ("",)
    if sweep in SWEPT_OPTIONS and not all(each.isdecimal() and int(each) for each in values):
        return f"{sweep} to vary are '{filled.values:.40}'. Give whole numbers with commas between them, such as 1,2,4."
    if len(filled.lines) < (1 if sweep else 2):
        return "Tick two or more, or one and two values to vary."
    try:
        read_request({name: value for name, value in filled.body.items() if name != "agreed"})
    except BadInputError as err:
        return str(err)
    if len(filled.lines) * len(values) < 2:
        return "One value on one kind of hardware is nothing to compare. Give two values or more, or tick one more."
    return None


async def _expected(context: Context, filled: _Filled) -> str:
    """Return the expected number of runs and their time; '' if that is unknown yet."""
    if filled.problem:
        return ""
    request = {name: value for name, value in filled.body.items() if name != "agreed"}
    template = filled.template
    preset = chosen_preset(template, filled.typed)
    values = {**(preset.parameters if preset else {}), **filled.typed, **filled.body.get("sweep", {})}
    try:
        # Reading a path may hang.
        if values.keys() & template.paths or not filled.workload.is_listed:
            return str(await context.ask("forecast_comparison", **request))
        return await in_thread(partial(context.session.forecast_comparison, **request))
    except WorkbenchError:
        # The workload's form reports its problem, and so does a click on Compare.
        return ""


# -- entries to tick


def _offers(
    context: Context, template: Template, typed: Mapping[str, Any], chosen: Mapping[str, Any]
) -> Iterator[_Offer]:
    inventory = context.machine.inventory()
    if inventory.cpu.usable > 1:
        one_core = Line(DEFAULT_PROFILE, _ONE_CORE)
        yield _offer(context, "one-core", str(one_core), one_core.words())
    # Running clusters follow below.
    available = [
        each for each in context.session.profiles(inventory) if each.available and profile(each.name).verb == "Start"
    ]
    for each in available:
        planned = given(context.choices, f"plan.{each.name}.")
        # A comparison ends its clusters itself.
        line = Line(each.name, {name: value for name, value in planned.items() if name != "idle_timeout"})
        offer = _offer(context, each.name, str(line), each.title)
        # A profile that needs more input is offered under Compute on.
        if planned or offer.error is None:
            yield offer
    if template.alone:
        names = {each.name for each in available}
        for name, like in WITHOUT_DASK.items():
            if like.profile in names:
                yield _Offer(name, name, like.title, "without Dask")
    swept = chosen.get("sweep") in SWEPT_OPTIONS
    fixed = BadInputError("It runs already, with the workers that it has.") if swept else None
    clusters = sorted(context.ready(), key=lambda each: each["created"], reverse=True)
    matching = [each for each in clusters if chosen.get("text", "").lower() in each["name"].lower()]
    for cluster in clusters:
        name, plan = cluster["name"], _in_short(cluster["description"])
        if cluster in matching[:_CLUSTERS] or chosen.get(f"on.cluster-{name}"):
            yield _Offer(f"cluster-{name}", f"--cluster {shlex.quote(name)}", name, plan, error=fixed)
    if chosen_preset(template, typed):
        usual = usual_lines(template.name, typed, inventory)
        yield from (_offer(context, f"usual-{line}", line, line) for line in usual if len(usual) > 1)


def _offer(context: Context, name: str, line: str, title: str) -> _Offer:
    """Return the entry of a line, with its plan or the error."""
    try:
        read = read_line(line)
        if read.profile is None or read.profile in WITHOUT_DASK:
            return _Offer(name, line, title)
        # Planned as if no other cluster ran: if both together are too large, rows are measured one at a time.
        spec = plan(read.profile, context.machine.inventory(), **read.choices)
    except WorkbenchError as err:
        return _Offer(name, line, title, error=err)
    return _Offer(name, line, title, _in_short(spec.describe()), spec)


def _in_short(description: str) -> str:
    """Return workers and threads without the memory, which is the same for all compared clusters."""
    return description.partition(",")[0]


def _swept(template: Template, typed: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return titles by name of workers, threads, the form's fields except for saving, and the form's settings."""
    schema = template.schema()
    names = shown_fields(template, schema, typed, chosen_preset(template, typed))
    titles = {name: schema["properties"][name].get("title", name) for name in names if name not in _NOT_SWEPT}
    parameters = {name: f"{title[0].lower()}{title[1:]}" for name, title in titles.items()}
    settled = {f"{SETTING}{name}": name for name in settings}
    return {"": "nothing", "workers": "workers", "threads": "threads"} | parameters | settled


def _values(
    sweep: str, template: Template, typed: Mapping[str, Any], settings: Mapping[str, Any], inventory: Inventory
) -> str:
    """Return the default values of a sweep."""
    schema = template.schema()
    field = resolved(schema["properties"].get(sweep, {}), schema)
    if sweep in SWEPT_OPTIONS and not field:
        return ",".join(str(2**power) for power in range(inventory.cpu.usable.bit_length()))
    if sweep != "size":
        values = [True, False] if field.get("type") == "boolean" else field.get("enum")
        if values:
            return ",".join(map(as_text, values))
        now = as_text(typed.get(sweep, field.get("default")) if field else settings.get(sweep.removeprefix(SETTING)))
        return f"{now};" if "," in now else now
    largest = 0
    with suppress(ValueError, TypeError, KeyError):
        largest = int(parse_bytes(typed.get("size") or schema["properties"]["size"]["default"]))
    # A share of the cluster's memory, such as 0.5, isn't a size in bytes.
    largest = largest if largest > 2**10 else 2**31
    return ", ".join(size(largest * part) for part in (0.25, 0.5, 1))


# -- HTML


def _in_words(filled: _Filled) -> str:
    """Return the workload and its parameters from its form, as a phrase."""
    template, typed = filled.template, filled.typed
    schema, preset = template.schema(), chosen_preset(template, typed)
    words = [template.title, *([f"preset {preset.name}"] if preset else [])]
    for name in shown_fields(template, schema, typed, preset):
        field = schema["properties"][name]
        value = as_text(typed.get(name, None if preset or name not in FIRST else field.get("default")))
        title = field.get("title", name)
        words += [f"{title[0].lower()}{title[1:]} {shorten_middle(value)}"] if value else []
    return ", ".join(words)


def _chip(offer: _Offer, filled: _Filled) -> Markup:
    box = checkbox(
        f"compare.on.{offer.name}",
        checked=offer.error is None and offer.line in filled.lines,
        disabled=offer.error is not None,
        data_workbench=f"compare-on-{offer.name}",
    )
    words = tag("span", offer.title, " ", faint(offer.plan))
    return tag("label", box, words, class_="wb-Chip", title=offer.error or offer.line)


def _sweep(filled: _Filled) -> Iterator[Markup]:
    sweep = filled.chosen.get("sweep", "")
    shared = {"id": "wb-compare-sweep", "name": "compare.sweep", "data_workbench": "compare-sweep"}
    yield tag("label", "Vary", for_="wb-compare-sweep")
    title = "Workers, threads, a parameter, or one of Dask's settings that stand under More of the workload"
    yield select(filled.swept.items(), sweep, data_default="", title=title, **shared)
    if sweep:
        yield _input(filled, f"values.{sweep}", filled.values, aria_label="Values to try")


def _more(filled: _Filled) -> Markup:
    label = "Further clusters, as in the terminal, with semicolons between them"
    example = "cpu --workers 2 --no-encrypt; gpus"
    return _input(filled, "lines", "", placeholder=example, aria_label=label, title=label)


def _input(filled: _Filled, name: str, default: Any, **attributes: Any) -> Markup:
    hook, label = f"compare-{name.partition('.')[0]}", attributes.pop("aria_label", None)
    return text_field(f"compare.{name}", label, filled.chosen.get(name, default), data_workbench=hook, **attributes)


def _box(filled: _Filled, name: str, label: str, **attributes: Any) -> Markup:
    checked, hook = bool(filled.chosen.get(name)), f"compare-{name}"
    box = checkbox(f"compare.{name}", checked=checked, data_workbench=hook)
    return tag("label", box, label, class_="wb-Check", **attributes)
