"""The section of clusters: state, resources and actions of each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from workbench import markup
from workbench.clusters.budget import refusal, without
from workbench.clusters.profiles import of_cluster
from workbench.clusters.spec import ClusterSpec
from workbench.errors import WorkbenchError
from workbench.formats import count, duration, size
from workbench.markup import folded, fragment, icon_button, meter, paragraph, tag
from workbench.runs.run import SIMULATED
from workbench.sent_code import machine_words
from workbench.views import examples
from workbench.views.answers import API
from workbench.views.forms import given, search
from workbench.views.parts import (
    action,
    button,
    checkbox,
    command,
    confirmed,
    drawer,
    fold,
    link,
    live,
    more,
    notice,
    section,
    text_field,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.views.context import Context

_NEAR = 600
"""Remaining seconds of a lease below which it is shown."""

_FAILED = ("failed", "lost")


_SHOWN = 6
_MORE = 20
"""Number of clusters that are shown at first, and number added by each click."""

_WHOLE = 3
"""Number of clusters up to which all cards are open. Beyond it, only the newest and those with problems are."""


def pace(context: Context) -> float:
    """Return the period of the view: short if the end of a lease is shown."""
    near = any(_seconds_left(each) < _NEAR for each in context.state.get("clusters", ()))
    return 1.0 if near else 30.0


def clusters(context: Context, _: str) -> Markup:
    """Return the section of clusters, the newest first."""
    records = sorted(context.state.get("clusters", ()), key=lambda each: -each["created"])
    failed = [each["name"] for each in records if each["status"] in _FAILED]
    actions = ""
    if len(failed) > 1:
        actions += link("Dismiss failed", **action("stop_all", clusters=failed))
    if len(records) > 1:
        question = f"Stop all {len(records)}?"
        actions += confirmed("stop", "Stop everything", question, "stop-all", **action("stop_all"))
    note = tag("span", str(len(records)), class_="wb-Section-note") if records else ""
    shown = int(context.choices.get("clusters.shown") or _SHOWN)
    compared = context.state.get("comparing", ())
    own = [each for each in records if each["name"] not in compared]
    cards = [_cluster(context, each, None if len(own) <= _WHOLE else each is own[0]) for each in own[:shown]]
    if not own and not compared:
        cards.append(examples.empty("None is running.", examples.start_workers()))
    # For screen readers: the newest is the one that was started last.
    message = f"Cluster {records[0]['name']}: {stage(records[0])}" if records else ""
    body = tag("p", message, role="status", class_="wb-hidden", data_workbench="cluster-stage") + fragment(*cards)
    body += more("clusters", shown, _MORE, len(own) - shown)
    if theirs := [_cluster(context, each) for each in records if each["name"] in compared]:
        # These start and stop during the comparison; unfolded, they would move everything below each time.
        body += folded(f"{count(len(theirs), 'cluster')} of a comparison", fragment(*theirs), id="wb-compared-clusters")
    return section("clusters", "Clusters", notice("stop_all") + body, note=note, actions=actions)


def _cluster(context: Context, cluster: dict[str, Any], is_open: bool | None = None) -> Markup:
    """Return a card; unless `is_open` is None, it can be folded to its first line."""
    name, status = cluster["name"], cluster["status"]
    parts = {"starting": _starting, "ready": _ready, "failed": _failed, "lost": _failed}
    make = parts.get(status, lambda _context, each: paragraph(each["message"] or ""))
    title, body = tag("strong", name, class_="wb-Card-title", translate="no"), make(context, cluster)
    if is_open is not None:
        needs_a_look = status != "ready" or bool(cluster["warning"]) or _seconds_left(cluster) < _NEAR
        title = fold(f"wb-card-{name}", title, is_open=is_open or needs_a_look, title=cluster["description"])
        body = drawer(f"wb-card-{name}", body, is_open=is_open or needs_a_look)
    return tag(
        "article",
        tag(
            "header",
            tag("span", class_="wb-Dot", aria_hidden="true"),
            title,
            tag("span", stage(cluster), class_="wb-Muted", data_workbench="stage"),
            _stop(context, cluster) if status in ("starting", "ready") else "",
            class_="wb-Card-header",
        ),
        body,
        paragraph(cluster["queued"], "wb-Muted", role="status", data_workbench="queued"),
        notice(f"cluster={name}"),
        id=f"wb-cluster-{name}",
        class_=f"wb-Card wb-mod-{status}",
        aria_label=f"Cluster {name}",
        data_workbench=f"cluster-{name}",
        data_status=status,
    )


def _seconds_left(cluster: Mapping[str, Any]) -> float:
    """Return the seconds until the cluster ends by itself."""
    return float(cluster["expires_at"] or 1e18) - time.time()


def stage(cluster: Mapping[str, Any]) -> str:
    """Return the stage of a cluster in one or two words."""
    there, expected = cluster["n_workers"], cluster["n_workers_expected"] or cluster["spec"]["n_workers"]
    workers = f"workers {there} of {expected}"
    if cluster["status"] == "starting":
        return {"scheduler": "scheduler up", "workers": workers}.get(cluster["stage"], str(cluster["stage"]))
    missing = there != cluster["n_workers_expected"] and not cluster["adaptive"]
    if cluster["status"] == "ready" and "stop" not in cluster["can"]:
        return "attached"
    return workers if cluster["status"] == "ready" and missing else str(cluster["status"])


def _stop(context: Context, cluster: dict[str, Any]) -> Markup:
    name, starting = cluster["name"], cluster["status"] == "starting"
    runs = [
        each
        for each in context.state.get("runs", ())
        if each["cluster"] == name and each["status"] in ("starting", "running")
    ]
    verb = "Stop" if "stop" in cluster["can"] else "Detach"
    question = f"{verb} {name} and {count(len(runs), 'run')} on it?" if runs else None
    label = f"Cancel the start of {name}" if starting else f"Stop {name}"
    if verb == "Detach" and not starting:
        label = f"Detach from {name}: it goes on without us"
    hook = "cancel-start" if starting else verb.lower()
    icon = "close" if starting or verb == "Detach" else "stop"
    return confirmed(icon, label, question, hook, **action("stop", cluster=name))


def _starting(_: Context, cluster: dict[str, Any]) -> Markup:
    expected = cluster["n_workers_expected"] or cluster["spec"]["n_workers"] or 1
    reached = {"preparing": 0.1, "scheduler": 0.4, "workers": 0.5 + 0.5 * cluster["n_workers"] / expected}
    return meter(f"Start of {cluster['name']}", reached.get(cluster["stage"], 1.0), 1, "")


def _failed(context: Context, cluster: dict[str, Any]) -> Markup:
    name = cluster["name"]
    log = folded("Last lines of the log", live(f"log-tail:{name}"), id=f"wb-tail-{name}")
    dismiss = button("Dismiss", **action("stop", cluster=name), data_workbench="dismiss")
    message = cluster["message"] or "It ended without saying why."
    row = tag("div", _again(context, cluster), dismiss, class_="wb-Row wb-mod-end")
    return paragraph(message, "wb-Problem", role="alert") + log + row


def _again(context: Context, cluster: dict[str, Any]) -> Markup:
    """Return a button that starts a cluster with the same choices; '' if attached or of an unavailable profile."""
    spec = ClusterSpec.model_validate_json(json.dumps(cluster["spec"]))
    profile = of_cluster(spec.profile)
    try:
        choices = spec.chosen(profile.choices(context.machine.inventory()).model_fields)
    except WorkbenchError:
        return Markup("")  # The profile is gone or fails.
    if profile.verb != "Start":
        return Markup("")
    return button(
        "Start again",
        title=f"A new cluster: {spec.describe()}",
        **action("start", profile=spec.profile, choices=choices),
    )


def _ready(context: Context, cluster: dict[str, Any]) -> Markup:
    name, spec = cluster["name"], cluster["spec"]
    limit, used = cluster["n_workers"] * (spec["memory_limit"] or 0), cluster["memory_used"]
    memory = markup.faint(size(limit)) if limit else ""
    if used is not None:
        memory = meter(f"Memory used by {name}", used, limit, f"{size(used)} of {size(limit)}", memory=True)
    bounds = f" ({cluster['adaptive'][0]}–{cluster['adaptive'][1]})" if cluster["adaptive"] else ""
    threads = f" × {count(spec['threads_per_worker'], 'thread')}" if spec["threads_per_worker"] else ""
    words = f"{count(cluster['n_workers'], 'worker')}{bounds}{threads}"
    left = _seconds_left(cluster)
    lease = f"Idle: ends itself in {duration(round(left))}." if left < _NEAR else ""
    far = cluster["machine"] is not None
    drawers = {"logs": live(f"logs:{name}"), "code": live(f"code:{name}")}
    workers = tag("span", words, data_workbench="workers")
    if "scale" in cluster["can"]:
        drawers["scale"] = _scale(context, cluster)
        workers = fold(
            f"wb-scale-{name}",
            words,
            title="Change the number of workers",
            data_workbench="scale",
        )
    return (
        tag("div", workers, memory, class_="wb-Cluster-size")
        + (paragraph(machine_words(cluster["machine"]), "wb-Muted", data_workbench="machine") if far else "")
        + paragraph(cluster["warning"], "wb-Problem")
        + _notebooks(context, cluster)
        + paragraph(lease, "wb-Lease", role="status", data_workbench="lease")
        + tag("div", *_buttons(context, cluster), class_="wb-Row")
        + fragment(*(drawer(f"wb-{what}-{name}", body) for what, body in drawers.items()))
    )


def _notebooks(context: Context, cluster: dict[str, Any]) -> Markup:
    """Return links to the page's notebooks whose kernels are connected."""
    on = [
        link(
            title,
            title=f"{title} is on {cluster['name']}",
            **command("notebook", kernel=kernel),
        )
        for kernel, title in context.choices.get("notebooks", {}).items()
        if any(f"kernel-{kernel}" in client for client in cluster["clients"])
    ]
    label = f"Notebooks on {cluster['name']}"
    return (
        tag("div", *on, class_="wb-Row", aria_label=label, role="group", data_workbench="notebooks")
        if on
        else Markup("")
    )


def _buttons(context: Context, cluster: Mapping[str, Any]) -> Iterator[Markup]:
    name = cluster["name"]
    mark = SIMULATED if cluster["spec"]["devices"] and context.state.get("simulated") else ""
    yield button(
        "Connect",
        title="Add a cell to the notebook that connects it, and run the cell",
        **command("cell", text=cluster["cell"], type="code", run=True),
        data_workbench="connect",
    )
    yield button(
        "Watch",
        title="Tasks, CPU and memory as they go",
        **command("watch", cluster=name),
        data_workbench="watch",
    )
    dashboard = icon_button(
        "launch",
        "Dask’s own dashboard, in a new tab",
        data_page=f"{API}/dashboard/{name}/status",
        data_workbench="dashboard",
    )
    icons = (
        dashboard if cluster["dashboard_url"] else "",
        icon_button(
            "refresh",
            "Restart the workers: their data are lost",
            **action("restart", cluster=name),
            data_workbench="restart",
        )
        if "restart" in cluster["can"]
        else "",
        icon_button(
            "table",
            "Workers",
            **command("view", view=f"workers:{name}", label=f"{mark}Workers of {name}"),
            data_workbench="open-workers",
        ),
        icon_button("list", "Logs", data_fold=f"wb-logs-{name}", aria_expanded="false", data_workbench="logs"),
        icon_button("code", "Code", data_fold=f"wb-code-{name}", aria_expanded="false", data_workbench="code"),
    )
    yield tag("span", *icons, class_="wb-Icons")


def _scale(context: Context, cluster: dict[str, Any]) -> Markup:
    name = cluster["name"]
    prefix = f"scale.{name}."
    typed = given(context.choices, prefix)
    here = cluster["n_workers_expected"] or cluster["n_workers"]
    adaptive = typed.get("adaptive", cluster["adaptive"] is not None)
    low, high = cluster["adaptive"] or (1, max(2, here))
    n = int(typed.get("n_workers") or here)
    if adaptive:
        body = {"minimum": low, "maximum": high}
        fields = _number(prefix, "minimum", typed.get("minimum", low), "fewest") + "–"
        fields += _number(prefix, "maximum", typed.get("maximum", high), "most")
    else:
        body = {"n_workers": here}
        fields = (
            _step("−", "One worker fewer", {f"{prefix}n_workers": n - 1}, n <= 1)
            + _number(prefix, "n_workers", n, "workers")
            + _step("+", "One worker more", {f"{prefix}n_workers": n + 1}, False)
        )
    most = int(typed.get("maximum") or high) if adaptive else n
    past = _past_budget(context, name, most) if most > max(here, high if cluster["adaptive"] else 0) else None
    take = {field: f"{prefix}{field}" for field in body}
    check = checkbox(f"{prefix}adaptive", checked=bool(adaptive), data_workbench="adaptive")
    words = "The number of workers follows the load between two bounds"
    return tag(
        "form",
        fields,
        tag("label", check, "adaptive", class_="wb-Check", title=words),
        button(
            "Apply anyway" if past else "Apply",
            type="submit",
            kind="warn" if past else None,
            **action("scale", cluster=name, **body, **({"force": True} if past else {})),
            data_take=take,
            data_then={f"{prefix}{field}": None for field in ("n_workers", "minimum", "maximum", "adaptive")},
            data_workbench="apply-scale",
        ),
        class_="wb-Row",
        novalidate=True,
        aria_label=f"Workers of {name}",
    ) + paragraph(past or "", "wb-Problem")


def _past_budget(context: Context, name: str, n_workers: int) -> str | None:
    """Return the reason why so many workers exceed the budget; None if they don't."""
    records = context.session.clusters()
    spec = next((each.spec for each in records if each.name == name), None)
    if spec is None:
        return None
    spec = spec.model_copy(update={"n_workers": n_workers})
    return refusal(spec, context.machine.inventory(), without(records, name))


def _number(prefix: str, field: str, value: Any, label: str) -> Markup:
    return text_field(
        f"{prefix}{field}",
        label,
        value,
        type="number",
        min=0 if field == "minimum" else 1,
        title=label,
        class_="wb-Count jp-mod-styled",
        data_first=field != "maximum",
        data_workbench=field.replace("_", "-"),
    )


def _step(sign: str, label: str, choices: dict[str, Any], disabled: bool) -> Markup:
    looks = "wb-Button wb-Step jp-mod-styled"
    return button(sign, class_=looks, title=label, aria_label=label, disabled=disabled, data_choose=choices)


def code(context: Context, name: str) -> Markup:
    """Return code that connects to a cluster, and code that starts the same cluster without this package."""
    record = record_of(context, name)
    if record is None:
        return Markup("")
    connecting = paragraph("To connect a notebook or script to it:") + markup.code(record["cell"], "connect-code")
    # A record of an earlier version has no code.
    if not (code := record["spec"]["code"]):
        return connecting
    return connecting + paragraph("The same cluster without this package:") + markup.code(code, "cluster-code")


def record_of(context: Context, name: str) -> dict[str, Any] | None:
    """Return the state of a cluster; None if there is none of this name."""
    return next((each for each in context.state.get("clusters", ()) if each["name"] == name), None)


def log_tail(context: Context, name: str) -> Markup:
    """Return the last lines in the log of a failed cluster."""
    record = record_of(context, name) or {}
    return markup.log("\n".join(record.get("log_tail", ())))


async def logs(context: Context, name: str) -> Markup:
    """Return the logs of host, scheduler and workers, each below its name, filtered by writer and text."""
    texts = await context.session.control.logs(name)
    prefix = f"logs.{name}."
    filters = given(context.choices, prefix)
    who, text = filters.get("who", ""), str(filters.get("text") or "").lower()
    matching = {}
    for each, log in texts.items():
        lines = [line for line in log.splitlines() if text in line.lower()]
        if who in ("", each) and (lines or not text):
            matching[each] = "\n".join(lines)
    writers = [("", "all"), *((each, each) for each in texts)]
    parts = [
        # A search makes a separate element, so that this one stays as the user folded it.
        folded(each, markup.log(log), open=place == 0 or bool(text), id=f"wb-log-{each}{'-found' * bool(text)}")
        for place, (each, log) in enumerate(matching.items())
    ]
    if not parts:
        every = link("Show all lines", data_choose={f"{prefix}text": None, f"{prefix}who": None})
        parts.append(examples.empty("No line has this.", every))
    return search(prefix, "Search the log", "logs", {"who": ("Written by", writers, who)}) + fragment(*parts)
