"""Planning, starting, canceling and awaiting comparisons. Each is conducted by its own process, see `conductor`."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from workbench import formats
from workbench.clusters import records
from workbench.clusters.budget import budget
from workbench.clusters.lines import Line, naming_options, read_line
from workbench.clusters.plan import check_agreed, consent_to_all, plan
from workbench.clusters.profiles import seen
from workbench.clusters.profiles.lookup import look_up, profile
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import WITHOUT_DASK, ClusterSpec
from workbench.errors import BadInputError, ConflictError, FailedError, MissingError, quoted
from workbench.hardware import Inventory
from workbench.jobs import folders, processes, records as on_disk
from workbench.jobs.waiting import Waiting
from workbench.runs import store
from workbench.runs.comparing import comparisons, gate
from workbench.runs.comparing.comparisons import MOST_REPEATS, MOST_ROWS, Comparison, Mode, Request, Row
from workbench.runs.forecasting import machines
from workbench.runs.forecasting.forecast import actual_spec, forecast, lacking, refusal
from workbench.runs.forecasting.verdicts import size_of, verdict
from workbench.runs.settings import read_settings
from workbench.workloads.lookup import template
from workbench.workloads.registry import Template

_CONDUCTOR = "workbench.runs.comparing.conductor"
_POLL = 0.1  # seconds between two readings of an awaited comparison
_LEASE = 6 * 3600.0
"""Seconds that a comparison's cluster may wait for its turn before it ends itself."""

SWEPT_OPTIONS = {
    "workers": "n_workers",
    "n_workers": "n_workers",
    "threads": "threads_per_worker",
    "threads_per_worker": "threads_per_worker",
    "memory": "memory",
}
"""Options of a cluster that can be swept, and the argument of `workbench.plan` for each."""

SETTING = "config."
"""Prefix of a swept setting of Dask."""

_OTHER = {"n_workers": ("threads_per_worker", "--threads 1"), "threads_per_worker": ("n_workers", "--workers 1")}
"""Options that must be fixed while the other is swept: the plan would divide the cores differently each time."""


class Planned(NamedTuple):
    """A planned comparison, before anything starts."""

    rows: tuple[Row, ...]
    mode: Mode
    notes: tuple[str, ...]

    def n_runs(self, request: Request) -> tuple[int, int]:
        """Return the number of runs, and the number of warm-ups among them."""
        n_rows = sum(row.reason is None for row in self.rows)
        warmups = n_rows * request.warmup * (1 if self.mode == "side by side" else request.repeats)
        return n_rows * request.repeats + warmups, warmups


class _RowRequest(NamedTuple):
    line: Line
    swept: dict[str, Any]
    parameters: dict[str, Any]
    settings: dict[str, Any]


def read_request(options: Mapping[str, Any]) -> Request:
    """Return a request from the user's input; numbers may be text. Raises BadInputError with a one-line message."""
    unknown = [name for name in options if name not in Request.model_fields]
    if unknown:
        raise BadInputError(
            f"A comparison has no option {quoted(unknown[0])}. Choose among: {', '.join(Request.model_fields)}. Those "
            "of the workload go into parameters, such as parameters={'size': '1GiB'}."
        )
    try:
        request = Request.model_validate({key: value for key, value in options.items() if value is not None})
    except ValidationError as err:
        problem = err.errors()[0]
        name = str(problem["loc"][0])
        allowed = {
            "repeats": f"a whole number from 1 to {MOST_REPEATS}",
            "warmup": f"a whole number from 0 to {MOST_REPEATS}",
            "on": "lines such as 'cpu --workers 2'",
            "sweep": "values for each name, such as {'chunks': [1000, 2000]}",
        }.get(name, problem["msg"])
        raise BadInputError(f"{name} is {quoted(options.get(name))}. Give {allowed}.") from err
    if not request.on:
        raise BadInputError("on is empty. Give lines such as 'cpu --workers 2', one for each architecture.")
    empty = [name for name, values in request.sweep.items() if not values]
    if empty:
        raise BadInputError(f"sweep of {empty[0]} is empty. Give values, such as {empty[0]}=1,2,4.")
    return request


def plan_comparison(request: Request, inventory: Inventory, there: Sequence[ClusterRecord]) -> Planned:
    """Plan the rows, clusters, memory and parameters of a comparison. Nothing starts.

    Unavailable hardware (no GPU, no memory left) becomes a row with the reason. Raises BadInputError for a line,
    parameter or sweep that can't be used, and NotFoundError for an unknown workload or cluster.
    """
    chosen = template(request.workload)
    if chosen.has_arrays and "save" in request.parameters.keys() | request.sweep.keys():
        raise BadInputError(
            "save: a comparison runs a workload many times, and its answers can't all have one name. Leave save out, "
            "and save the answer of one of its runs: workbench save RUN FILE."
        )
    if chosen.pinned is None and "to" in chosen.schema()["properties"]:
        raise BadInputError(
            f"{chosen.name} writes to one path, and a comparison runs it many times: after the first nothing is left "
            "to be written. Run it by itself, each time with a new path. Compare these runs: workbench compare --runs "
            "RUN RUN."
        )
    requests, notes = _row_requests(request, chosen)
    lines = list(dict.fromkeys(str(requested.line) for requested in requests))
    parsed = {str(requested.line): requested.line for requested in requests}
    specs, mode, memory_notes = _specs([parsed[line] for line in lines], inventory, there, chosen)
    rows, parameter_notes = _rows(chosen, requests, dict(zip(lines, specs, strict=True)), inventory)
    return Planned(rows, mode, (*notes, *memory_notes, *parameter_notes))


def usual_lines(workload: str, parameters: Mapping[str, Any], inventory: Inventory) -> tuple[str, ...]:
    """Return the default lines: those of the preset's profile, such as UCX, TCP and TLS for one about UCX."""
    preset = parameters.get("preset")
    about = template(workload).preset(preset).profile if preset else None
    return profile(about).usual_lines(inventory) if about else Request.model_fields["on"].default


def consent(rows: Sequence[Row]) -> str | None:
    """Return what the user must agree to before these rows are measured, or None if they are harmless."""
    return consent_to_all(row.spec for row in rows if row.spec and row.reason is None and row.cluster is None)


def forecast_comparison(request: Request, inventory: Inventory) -> str:
    """Return a line with the number of runs of a comparison and their expected time. Nothing starts."""
    planned, chosen = _plan_now(request, inventory), template(request.workload)
    rows = [row for row in planned.rows if row.reason is None]
    if not rows:
        return "None of these can be had."
    n_runs, warmups = planned.n_runs(request)
    runs = f"{formats.count(n_runs, 'run')}{f', {warmups} of them to warm up' if warmups else ''}."
    alone = f" Only {rows[0].title} is measured: add what to compare it with." if len(rows) == 1 else ""
    forecasts = [
        forecast(chosen, row.parameters, records.read(str(row.cluster)) if row.on.startswith("--cluster") else row.spec)
        for row in rows
    ]
    unknown = [row.title for row, each in zip(rows, forecasts, strict=True) if each.seconds is None]
    if unknown:
        return f"{runs} Expected time: unknown until it has run on {formats.shortened(unknown, 2)}.{alone}"
    low, high = (
        sum(each.seconds[end] for each in forecasts if each.seconds) * n_runs / len(rows) for end in ("low", "high")
    )
    roughly = "roughly " if any(each.rough for each in forecasts) else ""
    starts = ", plus the start of the clusters" if any(row.cluster is None for row in rows) else ""
    return f"{runs} Expected time: {roughly}{formats.span(low, high)}{starts}.{alone}"


def submit(
    request: Request, inventory: Inventory, *, agreed: bool | Callable[[str], bool] = False, judged: bool = False
) -> Comparison:
    """Start a comparison and return at once. Raises FailedError if none of its architectures is available.

    `agreed` is the user's consent to what starts, if that is required, or a function that asks for it. `judged` is
    True if a gate follows: that needs several rows and repeats, and also judges unavailable rows.
    """
    planned = _plan_now(request, inventory)
    if judged:
        gate.check(planned.rows, request.repeats)
    if all(row.reason for row in planned.rows) and not judged:
        reasons = dict.fromkeys(f"{row.on}: {row.reason}" for row in planned.rows)
        raise FailedError("\n".join(["None of these can be had.", *(f"    {reason}" for reason in reasons)]))
    check_agreed(consent(planned.rows), agreed)
    chosen = template(request.workload)
    comparison = comparisons.create(
        Comparison(
            id=folders.new_id(f"compare-{store.name_of(chosen.name)}"),
            workload=chosen.name,
            request=request.model_copy(update={"workload": chosen.reference}),
            mode=planned.mode,
            seed=secrets.randbits(32),
            rows=planned.rows,
            notes=planned.notes,
            total=planned.n_runs(request)[0],
            inventory=inventory.model_dump(mode="json"),
            created=time.time(),
            **processes.here(),
        )
    )
    return _start_conductor(comparison)


_waiting = Waiting(lambda id: lambda: comparisons.get(id), _POLL)
wait, finish = _waiting.wait, _waiting.finish
"""Functions that wait for the end of a comparison, with a timeout."""


def _plan_now(request: Request, inventory: Inventory) -> Planned:
    # When it is this comparison's turn, the clusters of the others have stopped.
    others = {name for each in comparisons.select(limit=None) if each.active for name in comparisons.clusters_of(each)}
    return plan_comparison(request, inventory, [each for each in records.read_all() if each.name not in others])


# -- from lines and sweeps to requested rows


def _row_requests(request: Request, chosen: Template) -> tuple[list[_RowRequest], tuple[str, ...]]:
    fields = chosen.schema()["properties"]
    options = {name: SWEPT_OPTIONS[name] for name in request.sweep if name in SWEPT_OPTIONS and name not in fields}
    unknown = [name for name in request.sweep if not name.startswith(SETTING) and name not in {*options, *fields}]
    if unknown:
        raise BadInputError(
            f"sweep: {quoted(unknown[0])} is no parameter of {chosen.name}. Choose among: "
            f"{', '.join([*fields, 'workers', 'threads', 'memory'])}."
        )
    requests = []
    notes: list[str] = []
    for text, values in itertools.product(request.on, itertools.product(*request.sweep.values())):
        line = read_line(text)
        swept = dict(zip(request.sweep, values, strict=True))
        if line.profile in WITHOUT_DASK:
            # It has no workers, so one row stands for all swept options.
            swept = {name: value for name, value in swept.items() if name not in options}
        chosen_options = {options[name]: value for name, value in swept.items() if name in options}
        if line.cluster is not None and chosen_options:
            raise BadInputError(f"{next(iter(options))} can't be swept on {line.cluster}, which runs already.")
        line, still = _fix_other_option(line.having(**chosen_options), chosen_options)
        notes += still
        settings = {name.removeprefix(SETTING): value for name, value in swept.items() if name.startswith(SETTING)}
        parameters = {
            name: value for name, value in swept.items() if name not in options and not name.startswith(SETTING)
        }
        settings = read_settings({**request.settings, **settings})
        requests.append(_RowRequest(line, swept, {**chosen.spelt_out(request.parameters), **parameters}, settings))
    if len(requests) > MOST_ROWS:
        raise BadInputError(f"This makes {len(requests)} rows. Give at most {MOST_ROWS}: fewer lines or swept values.")
    unique = list(
        {
            (str(requested.line), repr(requested.parameters), repr(requested.settings)): requested
            for requested in requests
        }.values()
    )
    return unique, tuple(dict.fromkeys(notes))


def _fix_other_option(line: Line, swept: Mapping[str, Any]) -> tuple[Line, list[str]]:
    if not swept or line.profile is None:
        return line, []
    try:
        chosen, choices = look_up(line.profile, line.choices)
    except MissingError:
        # It becomes a row with the reason.
        return line, []
    for option, (other, flag) in _OTHER.items():
        if option in swept and other not in choices and chosen.divides_cores:
            why = f"{flag} in every row: the plan would else divide the cores differently in each."
            return line.having(**{other: 1}), [why]
    return line, []


# -- from lines to specs


def _specs(
    lines: Sequence[Line], inventory: Inventory, there: Sequence[ClusterRecord], chosen: Template
) -> tuple[list[ClusterSpec | str], Mode, tuple[str, ...]]:
    """Return the spec of each line or why it is unavailable, the mode in which clusters start, and its reason.

    Only one cluster computes at a time, so each gets all the memory that is left.
    """
    free = budget(inventory, there)
    in_use = {"promised": free.promised, "held": free.held}
    specs = [_spec(line, inventory, chosen, **in_use) for line in lines]
    new = [spec for line, spec in zip(lines, specs, strict=True) if line.cluster is None and not isinstance(spec, str)]
    if not new:
        return specs, "side by side", ("All clusters run already; only one computes at a time.",)
    why_not = _not_at_once([spec for spec in new if not spec.elsewhere])
    # If clusters start one after another, the last starts long after this plan, and other programs may have taken
    # some memory by then.
    memory = free.left if why_not is None else free.left - free.left // 10
    specs = [_with_memory(line, spec, inventory, memory) for line, spec in zip(lines, specs, strict=True)]
    if why_not is None:
        why = "All clusters run until the end, each with all the memory: only one computes at a time."
        return specs, "side by side", (why,)
    why = (
        f"The clusters can't run at once: {why_not} So each is started anew in each round, warmed up and stopped, "
        "which takes longer."
    )
    return specs, "one after another", (why,)


def _spec(line: Line, inventory: Inventory, chosen: Template, **in_use: int) -> ClusterSpec | str:
    """Return the spec of a cluster that has all the memory, or why it is unavailable."""
    if line.cluster is not None:
        record = records.read(line.cluster)
        return refusal(record, chosen) or actual_spec(record)
    try:
        spec = seen(_planned(line, inventory, **in_use))
        if not spec.is_known:
            takes = "threads_per_worker" in profile(spec.profile).choices(inventory).model_fields
            first = "Add --threads and --memory, or start" if takes else "Start"
            return f"What its workers have isn't known before it is up. {first} it first, and use --cluster NAME."
        return refusal(spec, chosen) or spec
    except (MissingError, ConflictError) as err:
        return str(err)


def _planned(line: Line, inventory: Inventory, **choices: Any) -> ClusterSpec:
    """Plan a line; one without Dask becomes a cluster of one worker, which stands for the computing process."""
    if line.profile is None or line.profile not in WITHOUT_DASK:
        with naming_options(line.choices):
            return plan(str(line.profile), inventory, **{**line.choices, **choices})
    if line.choices:
        raise BadInputError(f"'{line}': {line.profile} is one process without Dask, and takes no options.")
    as_if = WITHOUT_DASK[line.profile]
    like = plan(as_if.profile, inventory, **as_if.choices, **choices)
    return like.model_copy(update={"profile": line.profile, "protocol": "tcp", "why": (), "code": "", "consent": None})


def _not_at_once(new: Sequence[ClusterSpec]) -> str | None:
    """Return why clusters can't run at the same time, or None if they can."""
    devices = [device for spec in new for device in spec.devices]
    if len(devices) > len(set(devices)):
        return "they would share GPUs, and with them the GPUs' memory."
    return None


def _with_memory(line: Line, spec: ClusterSpec | str, inventory: Inventory, memory: int) -> ClusterSpec | str:
    if isinstance(spec, str) or line.cluster is not None or spec.elsewhere or "memory" in line.choices:
        return spec
    try:
        return _planned(line, inventory, memory=memory)
    except (MissingError, ConflictError, BadInputError) as err:
        return str(err)


# -- from requested rows and specs to rows


def _rows(
    chosen: Template,
    requests: Sequence[_RowRequest],
    specs: Mapping[str, ClusterSpec | str],
    inventory: Inventory,
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Make the rows, with parameters resolved once for all of them, and notes on those."""
    available = [spec for spec in specs.values() if isinstance(spec, ClusterSpec)]
    rows, notes, texts, resolved_by = [], [], [], []
    for requested in requests:
        spec = specs[str(requested.line)]
        swept = "".join(
            f", {name}={_plain(value)}"
            for name, value in requested.swept.items()
            if name in requested.parameters or name.startswith(SETTING)
        )
        label = f"{requested.line}{swept}"
        common: dict[str, Any] = {
            "on": str(requested.line),
            "label": label,
            "workload": chosen.reference,
            "swept": requested.swept,
        }
        common |= {"sha": chosen.pinned and chosen.pinned.sha, "settings": requested.settings}
        if isinstance(spec, str):
            rows.append(Row(**common, reason=spec))
            continue
        pinned, chosen_notes = _pinned(chosen, requested.parameters, available)
        checked = chosen.validate(pinned, **size_of(spec))
        notes += chosen_notes
        fields = {"spec": spec, "parameters": pinned, "resolved": dict(checked.resolved)}
        if spec.alone:
            reason = _not_alone(chosen, checked.resolved, spec, inventory) or lacking(chosen, checked, spec)
            rows.append(Row(**common, **fields, cluster=spec.profile, reason=reason))
            if reason is None:
                notes.append(_ALONE.format(name=spec.profile, library="CuPy" if spec.devices else "NumPy"))
                resolved_by.append(checked.resolved)
            continue
        if (lacks := lacking(chosen, checked, spec, requested.line.cluster)) is not None:
            rows.append(Row(**common, **fields, cluster=requested.line.cluster, reason=lacks))
            continue
        judged = verdict(chosen, pinned, chosen.needs(checked), spec)
        if judged.name == "won't fit":
            notes.append(f"{label}: {judged.sentence}")
        if (text := machines.text(chosen, checked, size_of(spec))) is not None:
            texts.append(text.compare())
        resolved_by.append(checked.resolved)
        rows.append(Row(**common, **fields, cluster=requested.line.cluster))
    if not available:
        chosen.validate(requests[0].parameters, memory=2**30)
    same = len({repr(_numbers_of(each)) for each in resolved_by}) <= 1
    if same and len(available) > 1 and notes:
        notes.insert(0, "Shape and blocks were chosen once for all rows, so that all work on the same numbers.")
    if not same:
        notes.append("Not all rows work on the same numbers, since a swept parameter changes them.")
    notes += texts
    return tuple(rows), tuple(dict.fromkeys(notes))


_ALONE = (
    "{name}: one process, without Dask. It makes the same numbers block by block in one thread, holds the whole array, "
    "and leaves the rest to {library}."
)


def _not_alone(chosen: Template, resolved: Mapping[str, Any], spec: ClusterSpec, inventory: Inventory) -> str | None:
    """Return why NumPy or CuPy can't do it alone, or None if they can."""
    from workbench.workloads import without_dask

    if chosen.alone is None:
        return f"{chosen.name} has no form without Dask."
    cards = [gpu.memory_total for gpu in inventory.gpus if gpu.uuid in spec.devices]
    there = min((card for card in cards if card is not None), default=spec.memory)
    needed = without_dask.memory(chosen, resolved)
    if needed <= there:
        return None
    where = "the GPU has" if spec.devices else "is left for it"
    return f"In one piece it needs {formats.size(needed)}, and {formats.size(there)} {where}."


def _numbers_of(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that determine a random array's numbers; some generators don't depend on the chunks."""
    by_tile = resolved.get("generator") in ("tiles", "fast", "fused")
    return {name: value for name, value in resolved.items() if not (by_tile and name == "chunks")}


def _pinned(
    chosen: Template, given: Mapping[str, Any], specs: Sequence[ClusterSpec]
) -> tuple[dict[str, Any], list[str]]:
    """Return parameters that mean the same on every cluster: defaults by memory or threads are resolved here."""
    around: dict[str, Any] = {
        "memory": min(spec.memory for spec in specs),
        "threads": max(spec.threads for spec in specs),
        "threads_per_worker": max(spec.worker_threads for spec in specs),
        "on_gpu": any(spec.devices for spec in specs),
        "device_memory": min((size for spec in specs if (size := size_of(spec)["device_memory"])), default=None),
    }
    fields = chosen.schema()["properties"]
    checked = chosen.validate(given, **around)
    pinned = dict(given)
    if "generator" in fields:
        pinned["generator"] = checked.resolved["generator"]
    if "shape" in fields and "shape" in checked.resolved:
        pinned = {name: value for name, value in pinned.items() if name not in ("size", "scale")}
        pinned["shape"] = checked.resolved["shape"]
    if "chunks" in fields and "chunks" in checked.resolved:
        pinned["chunks"] = checked.resolved["chunks"]
    return pinned, list(checked.notes)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def with_lease(spec: ClusterSpec) -> ClusterSpec:
    """Return a spec whose idle timeout lets the cluster wait for its turn."""
    timeout = spec.idle_timeout
    return spec if timeout is None else spec.model_copy(update={"idle_timeout": max(timeout, _LEASE)})


# -- the process


def _start_conductor(comparison: Comparison) -> Comparison:
    on_disk.start(comparisons.folder(comparison.id), _CONDUCTOR, comparison.id)
    return comparisons.get(comparison.id)
