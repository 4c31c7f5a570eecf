"""The hardware of this machine, the ways to compute on it, the plan of a cluster, and Start."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from workbench import markup
from workbench.clusters.budget import refusal
from workbench.clusters.devices import proposed
from workbench.clusters.plan import has_gpus
from workbench.clusters.profiles.lookup import look_up, profile as find
from workbench.clusters.records import ClusterRecord
from workbench.errors import BadInputError, WorkbenchError
from workbench.figures.gpus import Choice, gpu_list, gpu_names
from workbench.formats import count, rate, size
from workbench.hardware.sampling import NO_DRIVER
from workbench.markup import facts, faint, folded, fragment, joined, meter, paragraph, tag
from workbench.named_choices import check_name
from workbench.views.answers import hints
from workbench.views.forms import Form, Problem, given
from workbench.views.parts import (
    action,
    button,
    confirmed,
    drawer,
    fold,
    folds,
    keeping,
    link,
    live,
    notice,
    radios,
    text_field,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.clusters.profiles.lookup import Offered
    from workbench.clusters.spec import ClusterSpec
    from workbench.hardware import Inventory, NetworkCard
    from workbench.views.context import Context


_JUST_NOW = 3.0  # seconds


def hardware(context: Context, _: str) -> Markup:
    """Return the hardware of this machine in two lines, with details below a fold."""
    inventory = context.machine.inventory()
    why = inventory.missing.get("gpus")
    none = "no GPU" if why in (None, NO_DRIVER) else "GPUs unknown"
    cores, memory = inventory.cpu.usable, inventory.memory
    words = (count(cores, "core"), size(memory.limit), gpu_names(inventory) or none)
    free = f"{size(context.session.budget(inventory).left)} free for clusters"
    return (
        tag("p", joined(words), title=why, data_workbench="inventory")
        + paragraph(free, data_workbench="budget")
        + folds(about_machine=("About this machine", _details(inventory)))
    )


def machine(context: Context, _: str) -> Markup:
    """Return the current use of this machine, without any cluster."""
    usage, memory = context.machine.usage()
    busy = sum(usage.cores) / max(1, len(usage.cores))
    used = memory.limit - min(memory.limit, memory.available or 0)
    bars = tag("div", *map(_core, range(len(usage.cores)), usage.cores), class_="wb-Cores", aria_hidden="true")
    meters = {
        "Cores": meter("Cores in use", busy, 1, f"{100 * busy:.0f} % of {len(usage.cores)}") + bars,
        "Memory": meter("Memory in use", used, memory.limit, f"{size(used)} of {size(memory.limit)}", memory=True),
        "Disk": _both("read", usage.disk_read, "written", usage.disk_written),
        "Network": _both("received", usage.received, "sent", usage.sent),
    }
    table = facts({name: body for name, body in meters.items() if body}, data_workbench="usage")
    return tag("div", table, live("gpus:"), class_="wb-Section-body")


def _core(number: int, busy: float) -> Markup:
    bar = tag("span", style=f"height: {100 * busy:.0f}%")
    return tag("span", bar, title=f"Core {number}: {100 * busy:.0f} %")


def _both(into: str, one: float | None, out: str, other: float | None) -> str:
    return "" if one is None or other is None else f"{rate(one)} {into} · {rate(other)} {out}"


def about(inventory: Inventory) -> dict[str, str]:
    """Return the hardware by kind, a line each; details follow after a dot. The terminal prints the same."""
    cpu, memory, cuda = inventory.cpu, inventory.memory, inventory.cuda
    of = f" of {cpu.threads}" if cpu.threads not in (None, cpu.usable) else ""
    physical = f"{cpu.physical_cores} physical" if cpu.physical_cores else None
    limited = memory.limit < memory.total
    where = "container" if memory.limit == memory.cgroup_limit else "job"
    limit = f"limit of this {where}, of {size(memory.total)}" if limited else None
    unused = f"{size(memory.available)} unused" if memory.available is not None else None
    texts = {
        "Cores": joined((f"{cpu.usable}{of}", physical, cpu.model)),
        "Memory": joined((size(memory.limit), limit, unused)),
        "GPUs": inventory.missing.get("gpus", ""),
        "Network": "\n".join(map(_card, inventory.network)),
    }
    if inventory.gpus:
        driver, version = cuda.driver_version, cuda.version
        devices = cuda.visible_devices
        visible = None if devices is None else f"{len(inventory.visible_gpus())} by CUDA_VISIBLE_DEVICES={devices}"
        words = (gpu_names(inventory), driver and f"driver {driver}", version and f"CUDA {version}", visible)
        texts["GPUs"] = joined(words)
    return {name: text for name, text in texts.items() if text}


def _card(card: NetworkCard) -> str:
    names = card.name if card.label == card.name else f"{card.label} ({card.name})"
    speed = None if card.rate is None else f"{card.rate:g} Gbit/s"
    return joined((names, speed, card.link_layer, card.state))


def _details(inventory: Inventory) -> Markup:
    shown = facts({name: Markup("<br>").join(map(_faded, text.split("\n"))) for name, text in about(inventory).items()})
    from workbench.figures.topology import has_ways, topology_html

    if inventory.topology is None or not has_ways(inventory.topology):
        return shown
    between = topology_html(inventory.topology)
    return shown + folded("What lies between the GPUs", between, data_workbench="topology")


def _faded(text: str) -> Markup:
    first, dot, more = text.partition(" · ")
    return fragment(first, faint(f"{dot}{more}") if more else "")


def gpus(context: Context, profile: str) -> Markup:
    """Return bars of each GPU of this machine; for a profile with GPUs, with boxes to choose them."""
    inventory = context.machine.inventory()
    if not inventory.gpus:
        return Markup("")
    return gpu_list(inventory, context.machine.gauges(), place="machine", choice=_choice(profile, inventory))


def _choice(profile: str, inventory: Inventory) -> Choice | None:
    # The tab of this machine shows bars without a profile.
    if not profile or not has_gpus(profile, inventory):
        return None
    most = find(profile).most_workers
    return Choice(one=most == 1, proposed=proposed(inventory, most), name=f"plan.{profile}.devices")


def start(context: Context, _: str) -> Markup:
    """Return the ways to compute, the plan of the chosen one, and Start."""
    inventory = context.machine.inventory()
    profiles = context.session.profiles(inventory)
    offered = [each for each in profiles if each.available]
    more = [each for each in profiles if not each.available]
    chosen = _profile(context, profiles)
    return (
        _ways(offered, chosen)
        + (live(f"gpus:{chosen}") if inventory.gpus else "")
        + (_planner(context, chosen, inventory, more) if chosen else "")
    )


_GROUPS = {"here": "This computer", "elsewhere": "Elsewhere…", "more": "More"}
"""Titles of the groups of profiles; those after the first are folded unless the chosen profile is in them."""


def _ways(offered: list[Offered], chosen: str | None) -> Markup:
    """Return the available profiles by group."""
    groups = {group: [each for each in offered if each.group == group] for group in _GROUPS}
    shown = {
        group: radios(
            "profile",
            _GROUPS[group],
            ("wb-Ways", "wb-Way"),
            ((each.name, each.title, each.summary) for each in profiles),
            chosen,
        )
        for group, profiles in groups.items()
        if profiles
    }
    first = shown.pop("here", "")
    opened = {group: any(each.name == chosen for each in groups[group]) for group in shown}
    words = (
        fold(f"wb-ways-{group}", _GROUPS[group], is_open=opened[group], data_workbench=f"ways-{group}")
        for group in shown
    )
    below = (drawer(f"wb-ways-{group}", body, is_open=opened[group]) for group, body in shown.items())
    return tag("div", first, *words, class_="wb-Folds") + fragment(*below)


def _profile(context: Context, profiles: Iterable[Offered]) -> str | None:
    """Return the profile that the page chose, or the first available one."""
    names = [each.name for each in profiles if each.available]
    chosen = context.choices.get("profile")
    return chosen if chosen in names else next(iter(names), None)


def _unavailable(profiles: list[Offered]) -> Markup:
    """Return the unavailable profiles with reasons."""
    return fragment(
        *(
            tag(
                "p",
                tag("strong", each.title),
                f" {each.reason or each.summary}",
                aria_disabled="true",
                data_workbench=f"profile-{each.name}",
            )
            for each in profiles
        )
    )


class _Planned(NamedTuple):
    """The plan for a profile and its choices, or their problem."""

    profile: str
    typed: dict[str, Any]
    spec: ClusterSpec | None
    problem: Problem | None
    usual: ClusterSpec | None = None
    """The plan without the choice that is wrong."""


def _plan(context: Context, profile: str, inventory: Inventory) -> _Planned:
    typed = given(context.choices, f"plan.{profile}.")
    try:
        return _Planned(profile, typed, context.session.plan(profile, inventory, **typed), None)
    except WorkbenchError as err:
        problem, usual = Problem.of(err), None
        with suppress(WorkbenchError):
            others = {name: each for name, each in typed.items() if name != problem.parameter}
            usual = context.session.plan(profile, inventory, **others)
        return _Planned(profile, typed, None, problem, usual)


def _planner(context: Context, profile: str, inventory: Inventory, more: list[Offered]) -> Markup:
    planned = _plan(context, profile, inventory)
    form, needed, more_fields = _form(context, planned, inventory)
    verb = find(profile).verb
    # An empty field that has to be filled in is not wrong yet.
    waits = planned.problem is not None and planned.problem.parameter in needed and not planned.typed
    spec, problem = planned.spec, planned.problem
    refused = None if spec is None else refusal(spec, inventory, context.session.clusters())
    agreement = None if spec is None else spec.consent
    past = refused or agreement
    body: dict[str, Any] = {"profile": profile, "force": refused is not None, "agreed": agreement is not None}
    if spec is not None and spec.devices:
        # Start on the GPUs that the page shows as proposed, though others may be less busy by now.
        body["choices"] = {"devices": ",".join(spec.devices)}
    # A problem replaces the plan, so that nothing moves; a field that is always visible shows it itself.
    wrong = None if problem is None or waits or problem.parameter in needed else form.in_words(problem.message)
    misnamed = _misnamed(context)
    sentences = [each for each in (refused, agreement) if each]
    name = text_field(
        "name",
        "Name of the cluster",
        context.choices.get("name", ""),
        placeholder="name (optional)",
        data_workbench="field-name",
    )
    begin = button(
        f"{verb} anyway" if past else verb,
        type="submit",
        kind="warn" if past else "accept",
        title=f"{verb} it although: {past}" if past else f"{verb} this cluster",
        disabled=spec is None or misnamed is not None,
        **action("start", **body),
        data_take={"choices": f"plan.{profile}.", "name": "name"},
        data_then={"name": None},
        data_meanwhile=f"Asking {spec.options['address']} …" if spec and "address" in spec.options else None,
        data_workbench="start",
    )
    described = wrong or (spec.describe() if spec else "–")
    looks = "wb-Problem" if wrong else "wb-Plan"
    return (
        (form.html(needed) if needed else "")
        + (live("nearby") if "address" in needed else "")
        + tag("p", described, class_=looks, data_settled=True, data_workbench="plan")
        + (problem.remedy if problem else "")
        # Always one element, so that the fields below aren't replaced while the user types in them.
        + tag(
            "div",
            *(paragraph(each, "wb-Problem") for each in sentences),
            style="display: contents",
        )
        + tag("form", name, begin, class_="wb-Row wb-Start")
        + paragraph(misnamed or "", "wb-Problem", role="status")
        + notice("start", "start-problem")
        + folds(
            more_choices=("More" if needed else "Change", live("plan-form") if more_fields else ""),
            why=("Why", fragment(*map(paragraph, spec.why)) if spec else ""),
            show_code=("Code", markup.code(spec.code, "plan-code") if spec else ""),
            **({"preview": ("Preview", markup.code(spec.preview, "plan-preview"))} if spec and spec.preview else {}),
            **({"more_ways": (f"{len(more)} not available here: see why", _unavailable(more))} if more else {}),
        )
    )


def _misnamed(context: Context) -> str | None:
    """Return the reason why a cluster can't have the typed name; None if it can."""
    name = context.choices.get("name")
    try:
        if name:
            check_name(name, "cluster", "calm-otter")
    except BadInputError as err:
        return str(err)
    # A cluster requested a moment ago has this name: the page clears the field when the request is answered.
    others = (each for each in context.state.get("clusters", ()) if time.time() - each["created"] > _JUST_NOW)
    return next((ClusterRecord.model_construct(**each).taken for each in others if each["name"] == name), None)


def nearby(context: Context, _: str) -> Markup:
    """Return links to schedulers that the user started elsewhere."""
    links = [
        tag(
            "p",
            link(
                each.address,
                title=each.command,
                data_choose={"profile": "address", "plan.address.address": each.address},
                data_workbench="nearby",
            ),
            markup.faint(f" {each.command if each.n_workers is None else count(each.n_workers, 'worker')}"),
        )
        for each in context.session.nearby()
    ]
    return paragraph("Found:") + fragment(*links) if links else Markup("")


def plan_form(context: Context, _: str) -> Markup:
    """Return the optional fields of the profile's form, with the values that empty ones stand for."""
    inventory = context.machine.inventory()
    profile = _profile(context, context.session.profiles(inventory))
    if profile is None:
        return Markup("")
    form, _needed, more = _form(context, _plan(context, profile, inventory), inventory)
    return form._replace(silent=True).html(more) + _keep(context, profile)


def _keep(context: Context, profile: str) -> Markup:
    """Return controls that save the choices under a name, or delete saved ones."""
    forget = confirmed("delete", f"Forget {profile}", "Forget?", "forget", **action("forget_profile", profile=profile))
    is_own = find(profile).name != profile
    typed = context.choices.get("keep.name", "")
    return keeping(
        "keep.name",
        "Name under which these choices are saved",
        typed,
        hook="keep",
        title="A profile of your own: these choices under a name",
        action="keep_profile",
        forget=forget if is_own else "",
        arguments={"profile": profile},
        take={"choices": f"plan.{profile}.", "name": "keep.name"},
        then={"keep.name": None, "profile": typed},
    ) + (notice("forget_profile") if is_own else "")


def _form(context: Context, planned: _Planned, inventory: Inventory) -> tuple[Form, list[str], list[str]]:
    """Return the form of the choices, the required fields, and the others."""
    profile, choices = look_up(planned.profile, planned.typed)
    schema = profile.choices(inventory, choices).model_json_schema()
    needed = list(schema.get("required", ()))
    spec = planned.spec or planned.usual
    defaults = hints(spec) if spec else {}
    options = {}
    if "python" in schema["properties"]:
        options["python"] = _pythons(context, planned.typed.get("python"), defaults.get("python", ""))
    form = Form(schema, f"plan.{planned.profile}.", planned.typed, planned.problem, defaults, options)
    # The GPUs have boxes above.
    return form, needed, [name for name in schema["properties"] if name not in (*needed, "devices")]


def _pythons(context: Context, chosen: str | None, default: str) -> list[tuple[str, str]]:
    """Return the interpreters of the user's kernels and environments, with their titles."""
    titles = {
        each.python: f"{each.title} (not usable)" if each.problems else each.title for each in context.machine.pythons()
    }
    return [(default, default), *titles.items(), *([(chosen, chosen)] if chosen and chosen not in titles else [])]
