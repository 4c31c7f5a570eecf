"""Forecasts before anything runs: memory, time, cost, and time on other hardware.

Everything is computed from the parameters, past runs and a few small files, as quickly as one types.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import formats
from workbench.clusters.plan import explained
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError, FailedError, MissingError, install
from workbench.runs.forecasting import devices, history, machines
from workbench.runs.forecasting.duration import Basis, Duration
from workbench.runs.forecasting.measuring import part_of
from workbench.runs.forecasting.verdicts import Verdict, VerdictName, judge, missing_on, size_of, verdict
from workbench.runs.run import Run
from workbench.workloads.values import Needs, Parameters

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

_log = logging.getLogger(__name__)


class Forecast(NamedTuple):
    """Needs of a workload compared with a cluster's resources, and its duration there."""

    parameters: dict[str, Any]
    """Arguments of the workload's function."""
    notes: tuple[str, ...]
    needs: dict[str, Any]
    fits: bool | None
    """True if it fits; None without a cluster."""
    sentence: str
    cell: str | None
    """Notebook cell that does the same; None without a cluster."""
    verdict: VerdictName | None = None
    seconds: dict[str, float] | None = None
    """Range from `low` to `high` that contains four in five; None if nothing is known of this hardware."""
    rough: bool = False
    """True if these are only the order of magnitude, since too few runs show the spread."""
    memory_per_worker: int | None = None
    """Bytes in the fullest worker."""
    device_memory: int | None = None
    """Bytes on the fullest GPU; None where no arrays lie on GPUs."""
    chunks: str | None = None
    """Size of blocks with which it fits."""
    basis: Basis | None = None
    """Basis of the seconds."""
    source: str | None = None
    """Measurement, or number of runs."""
    off_by: float | None = None
    """Median part by which earlier forecasts of this workload missed."""
    cost: float | None = None
    """Cost at the price of an hour in workbench.prices."""
    elsewhere: tuple[dict[str, Any], ...] = ()
    """Forecasts for other machines: machine, seconds, basis, source, cost."""
    measure: float | None = None
    """Seconds to measure a part of it for a forecast; None if there is no need, or no way."""


def forecast(
    template: Template, parameters: Mapping[str, Any], cluster: ClusterRecord | ClusterSpec | None
) -> Forecast:
    """Return whether it fits, and how long it takes. Raises BadInputError if a parameter can't be used."""
    spec = actual_spec(cluster) if isinstance(cluster, ClusterRecord) else cluster
    if spec is not None and not spec.is_known:
        # The workers' resources are known only once they run.
        spec = None
    checked = template.validate(parameters, **size_of(spec))
    machine = cluster.machine if isinstance(cluster, ClusterRecord) else None
    needs = needs_of(template, checked, spec, machine)
    judged = None if spec is None or not needs.known else verdict(template, parameters, needs, spec, cluster)
    refused = None if cluster is None else refusal(cluster, template)
    if refused is None and spec is not None:
        refused = lacking(template, checked, spec, cluster.name if isinstance(cluster, ClusterRecord) else None)
    if refused is not None:
        judged = (judged or Verdict("can't run", "", 0))._replace(name="can't run", sentence=refused)
    runs = _past(template, checked)
    lasting = None if spec is None else _duration(template, checked, needs, spec, machine, runs)
    price = machines.price_per_hour(spec, devices.host(machine))
    on = cluster if isinstance(cluster, ClusterRecord) else None
    possible = judged is None or judged.name not in ("won't fit", "can't run")
    measure = _seconds_to_measure(template, checked, spec, lasting) if spec is not None and possible else None
    unknown = _unknown(runs, spec, machine, measure)
    return Forecast(
        parameters=dict(checked.resolved),
        notes=checked.notes,
        needs=needs.model_dump(mode="json"),
        fits=None if judged is None else judged.name == "fits",
        sentence=_sentence(needs, judged, lasting, spec, price, unknown, measure),
        cell=None if on is None else template.cell(checked, on.name, on_gpu=bool(on.spec.devices)),
        device_memory=None if judged is None else judged.device_memory,
        chunks=None if judged is None else judged.chunks,
        source=None if lasting is None else lasting.source,
        off_by=None if lasting is None else lasting.off_by,
        cost=None if lasting is None else machines.cost(lasting.middle, price),
        measure=measure,
        elsewhere=tuple(elsewhere(template, checked, needs, runs)),
        **_stored_part(judged, lasting),
    )


def _stored_part(judged: Verdict | None, lasting: Duration | None) -> dict[str, Any]:
    """Return the part of a forecast that is stored with a run."""
    return {
        "verdict": judged and judged.name,
        "memory_per_worker": judged and judged.memory_per_worker,
        "seconds": None if lasting is None else _range(lasting.low, lasting.high),
        "basis": None if lasting is None else lasting.basis,
        "rough": lasting is not None and lasting.rough,
    }


def _past(template: Template, checked: Parameters) -> tuple[Run, ...]:
    """Return the past runs for a forecast of time; none on failure, since a run can start without a forecast."""
    try:
        return history.runs_of(template, checked.resolved)
    except (ArithmeticError, TypeError, ValueError) as err:
        _log.warning("Past runs of %s can't be used for a forecast: %r", template.name, err)
        return ()


def _seconds_to_measure(
    template: Template, checked: Parameters, spec: ClusterSpec, lasting: Duration | None
) -> float | None:
    """Return the time to measure a part of it; None if past runs suffice, or no part can be made."""
    if lasting is not None and not lasting.rough:
        return None
    part = part_of(template, checked, size_of(spec))
    return None if part is None else part.seconds


def _unknown(
    runs: Sequence[Run], spec: ClusterSpec | None, machine: Mapping[str, Any] | None, measure: float | None
) -> str:
    """Return the reason for an unknown time, and a remedy."""
    there = dict.fromkeys(run.spec.profile for run in runs if run.spec is not None)
    if spec is None or not there:
        why = "it never ran on this hardware"
    elif any(devices.ran_on(run, spec, machine) for run in runs):
        why = "past runs are too different"
    else:
        why = f"it ran on other hardware only ({', '.join(there)})"
    if measure is None:
        return f"Time unknown: {why}."
    return f"Time unknown: {why}. Measure it (about {formats.duration(round(measure))})."


def needs_of(
    template: Template, checked: Parameters, spec: ClusterSpec | None, machine: Mapping[str, Any] | None = None
) -> Needs:
    """Return the needs of a workload; those of a user's function come from its last run with these parameters."""
    needs = template.needs(checked)
    if needs.known:
        return needs
    past = history.runs_of(template, checked.resolved)
    found = history.needs(past, checked.resolved, needs)
    if spec is None or not found.known or judge(found, spec).name != "won't fit":
        return found
    # A graph has the sizes of blocks, not the memory of a task. A run that ended well there proves that it fits.
    done = history.done_there(past, checked.resolved, spec, machine)
    return (
        found if done is None else needs.model_copy(update={"sentence": f"It fitted such workers in the run {done}."})
    )


def refusal(cluster: ClusterRecord | ClusterSpec, template: Template) -> str | None:
    """Return why a workload can't be run on a cluster, whatever its size; None if it can.

    Forecasts and runs check this.
    """
    if isinstance(cluster, ClusterSpec):
        if cluster.devices and not cluster.cupy:
            return f"Its workers {_NO_CUPY}"
        # The packages of another Python are not known here.
        ours = cluster.python in (None, sys.executable)
        return template.lacking(on_gpu=bool(cluster.devices)) if ours else None
    if cluster.status != "ready":
        why = f" {cluster.message}" if cluster.message else ""
        return f"The cluster {cluster.name} is {cluster.status}, and only a ready one can run something.{why}"
    if not cluster.can_compute and cluster.spec.elsewhere:
        return f"Nothing can be run on {cluster.name}. {cluster.warning}"
    if not cluster.can_compute:
        return (
            f"Nothing can be run on {cluster.name}, which has workers without a device to compute on. "
            f"{cluster.warning} Run it on a cpu cluster."
        )
    lacks = refusal(cluster.spec, template)
    return lacks and lacks.replace("Its workers", f"The workers of {cluster.name}", 1)


_NO_CUPY = (
    "have no CuPy, which makes and computes blocks on a GPU. Install it and start the cluster anew: "
    f"{install('cuda13')}."
)


def recorded_forecast(
    template: Template, checked: Parameters, needs: Needs, cluster: ClusterRecord, *, force: bool
) -> dict[str, Any]:
    """Return the stored part of a run's forecast. Raises ConflictError if it won't fit and isn't forced."""
    spec, machine = actual_spec(cluster), cluster.machine
    judged = verdict(template, checked.given, needs, spec, cluster) if needs.known else None
    if judged is not None and judged.name == "won't fit" and not force:
        raise ConflictError(f"{judged.sentence} To run it anyway, force it.")
    lasting = _duration(template, checked, needs, spec, machine, _past(template, checked))
    return {**_stored_part(judged, lasting), "price_per_hour": machines.price_per_hour(spec, devices.host(machine))}


def foreseen(template: Template, parameters: Mapping[str, Any], needs: Needs, spec: ClusterSpec | None) -> str:
    """Return the needs of a run by its graph, known only once it has started; and why it won't fit, or will spill."""
    judged = verdict(template, parameters, needs, spec) if spec is not None and needs.known else None
    return needs.sentence if judged is None or judged.name == "fits" else f"{needs.sentence} If so: {judged.sentence}"


def elsewhere(template: Template, checked: Parameters, needs: Needs, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield the machines of imported runs, then those with a published time for the same workload."""
    for machine, theirs in groupby(sorted(filter(_machine_of, runs), key=_machine_of), key=_machine_of):
        there = list(theirs)
        spec, scaling = there[0].spec, _scaling(template, needs)
        if spec is None:
            continue
        lasting = history.seconds_of(there, checked.resolved, scaling, spec, there[0].inventory or {}, "imported")
        if lasting is not None:
            source = f"{formats.count(lasting.n_runs, 'imported run')} with {spec.describe()}"
            yield _there(machine, (lasting.low, lasting.high), lasting.middle, lasting.basis, source)
    for one, ends in machines.comparable(template.name, checked.resolved, needs.bytes_processed):
        yield _there(one.name, ends, sum(ends) / 2, "published", f"scaled from {one.source}")


def _machine_of(run: Run) -> str:
    return "" if run.imported is None else run.imported.machine


def _scaling(template: Template, needs: Needs) -> Needs | None:
    """Return the needs by which times are scaled; None for a user's function, which only states its memory."""
    return None if template.pinned is not None else needs


def _there(machine: str, ends: tuple[float, float], middle: float, basis: str, source: str) -> dict[str, Any]:
    """Return the time on other hardware, and its source."""
    cost = machines.cost(middle, machines.price_per_hour(None, machine))
    return {"machine": machine, "seconds": _range(*ends), "basis": basis, "source": source, "cost": cost}


def actual_spec(record: ClusterRecord) -> ClusterSpec:
    """Return the spec of a cluster with its current workers, which scaling may have changed."""
    spec = record.spec.model_copy(update={"n_workers": max(1, record.n_workers)})
    if spec.n_workers != record.spec.n_workers:
        # The package of its profile may be gone.
        with contextlib.suppress(FailedError, MissingError):
            return explained(spec)
    return spec


def lacking(template: Template, checked: Parameters, spec: ClusterSpec, name: str | None = None) -> str | None:
    """Return the remedy for modules that tasks need and workers can't import; None if all are installed."""
    missing = missing_on(spec)
    if not missing:
        # Finding its imports may require reading a file.
        return None
    for module, instead in template.imports(checked.resolved).items():
        if module not in missing:
            continue
        hosts, count = missing[module], sum(missing[module].values())
        where = f" of {name}" if name else ""
        which = f"{count} of {max(count, spec.n_workers)}{f', on {formats.shortened(sorted(hosts))}' * spec.elsewhere}"
        return (
            f"{module} isn't installed on the workers{where} ({which}), and {template.name} needs it there with these "
            f"parameters. Install it in their environment (pip install {module}) and start the workers anew"
            f"{instead and ', or '}{instead}."
        )
    return None


def _duration(
    template: Template,
    checked: Parameters,
    needs: Needs,
    spec: ClusterSpec,
    machine: Mapping[str, Any] | None,
    runs: Sequence[Run],
) -> Duration | None:
    try:
        return history.seconds_of(runs, checked.resolved, _scaling(template, needs), spec, machine)
    except (ArithmeticError, TypeError, ValueError) as err:
        # A record may hold numbers that have no logarithm. A run can start without a forecast.
        _log.warning("There is no forecast of how long %s takes: %r", template.name, err)
        return None


def _range(low: float, high: float) -> dict[str, float]:
    return {"low": low, "high": high}


def _sentence(
    needs: Needs,
    judged: Verdict | None,
    lasting: Duration | None,
    spec: ClusterSpec | None,
    price: float | None,
    unknown: str,
    measure: float | None,
) -> str:
    """Summarize a forecast: the fit, the time, and the reasons."""
    if judged is not None and judged.name == "can't run":
        return judged.sentence
    how_long = unknown if lasting is None else _time(lasting, spec, price, measure)
    if spec is None:
        how_long = ""
    return " ".join(filter(None, (judged and judged.sentence, how_long, needs.sentence)))


def _time(lasting: Duration, spec: ClusterSpec | None, price: float | None, measure: float | None) -> str:
    off = "" if lasting.off_by is None else f"; so far off by {100 * lasting.off_by:.0f} %"
    costing = machines.cost(lasting.middle, price)
    costs = "" if costing is None else f", at a cost of about {machines.cost_text(costing, 2)}"
    walltime = spec.options.get("walltime") if spec else None
    late = ""
    if walltime is not None and lasting.high > walltime:
        likely = "will" if lasting.low > walltime else "may"
        late = f" That {likely} be longer than the walltime of a job, {formats.duration(walltime)}: ask for more."
    span = formats.span(lasting.low, lasting.high)
    more = "" if measure is None else f" Measure it (about {formats.duration(round(measure))})."
    duration = f"Too few runs to say how long; to an order of magnitude {span}" if lasting.rough else f"Takes {span}"
    return f"{duration}{costs} ({formats.count(lasting.n_runs, 'run')}{off}).{more}{late}"
