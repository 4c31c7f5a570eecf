"""Will it fit, how long will it take, what will it cost, and what would it take elsewhere? Asked before anything runs.

Memory follows Dask's own thresholds: a worker spills to disk from 70 % of its limit on and is ended at 95 %. What tasks
have in hand can't be spilled. On GPUs it is the card's memory that arrays must fit, and from `device_memory_limit` on
Dask-CUDA moves their blocks to the host's. All of it is computed from the parameters and a few small files, as quickly
as one types.
"""

from __future__ import annotations

import logging
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import dask.config

from workbench import formats
from workbench.clusters.budget import held
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import MOVES_TO_HOST, ClusterSpec
from workbench.errors import BadInputError, ConflictError, install
from workbench.hardware import memory
from workbench.runs import store
from workbench.runs.forecasting import calibration, devices, history, machines
from workbench.runs.forecasting.duration import RUNS, Basis, Duration, duration, duration_elsewhere, ran_on
from workbench.travelling import missing_here
from workbench.workloads.values import Needs, Parameters

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

_log = logging.getLogger(__name__)

VerdictName = Literal["fits", "will spill", "won't fit", "can't run"]

_SPILLS, _ENDS = 0.7, 0.95  # distributed.worker.memory.spill and .terminate
_PROCESS = 120 * 2**20
"""Bytes of a worker's process before and between tasks: 85 to 200 MiB were measured, most of it shared libraries."""
_PROCESS_SHARE = 0.25
"""Of a small limit, which a worker that does little keeps within."""
_MARGIN = 8 * 2**20
"""Bytes of messages, graphs and what the allocator doesn't give back."""
_SMALLEST_CHUNK = 2**20

_CONTEXT = 512 * 2**20
"""Bytes of a card that a CUDA context and the libraries' kernels take before there is any data."""


class Verdict(NamedTuple):
    """Whether it fits, in a word and a sentence."""

    name: VerdictName
    sentence: str
    memory_per_worker: int
    """Bytes in the fullest worker, its process included."""
    spilled: int = 0
    """Bytes of all workers together that go to disk."""
    device_memory: int | None = None
    """Bytes on the fullest GPU, where the arrays lie on GPUs."""
    chunks: str | None = None
    """Size of blocks with which it would fit; None where it fits, or where smaller ones don't help."""


class Forecast(NamedTuple):
    """What a workload would need, against what a cluster has, and how long it would take there."""

    parameters: dict[str, Any]
    """As the workload's function would get them."""
    notes: tuple[str, ...]
    needs: dict[str, Any]
    fits: bool | None
    """None without a cluster."""
    sentence: str
    cell: str | None
    """Notebook cell that does the same; None without a cluster."""
    verdict: VerdictName | None = None
    seconds: dict[str, float] | None = None
    """`low` and `high`, between which four in five lie; None where nothing is known of this hardware."""
    rough: bool = False
    """Whether these are only the order of magnitude, since too few runs tell how far they lie apart."""
    memory_per_worker: int | None = None
    """Bytes in the fullest worker."""
    device_memory: int | None = None
    """Bytes on the fullest GPU; None where no arrays lie on GPUs."""
    chunks: str | None = None
    """Size of blocks with which it would fit."""
    basis: Basis | None = None
    """What the seconds rest on."""
    source: str | None = None
    """Which measurement, or how many runs."""
    off_by: float | None = None
    """Median part by which earlier forecasts of this workload missed."""
    cost: float | None = None
    """At the price of an hour in workbench.prices."""
    elsewhere: tuple[dict[str, Any], ...] = ()
    """Machines that aren't here: machine, seconds, basis, source, cost."""
    calibrate: bool = False
    """Whether measuring this cluster, which `Session.calibrate` does, would tell how long it takes."""


def forecast(
    template: Template, parameters: Mapping[str, Any], cluster: ClusterRecord | ClusterSpec | None
) -> Forecast:
    """Will it fit, how long will it take? Raises BadInputError where a parameter can't be used."""
    spec = actual_spec(cluster) if isinstance(cluster, ClusterRecord) else cluster
    if spec is not None and not spec.is_known:
        # What its workers have shows when they are there.
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
    lasting = None if spec is None else _duration(template, checked.resolved, needs, spec, judged, machine)
    price = machines.price_per_hour(spec, calibration.host(machine))
    on = cluster if isinstance(cluster, ClusterRecord) else None
    return Forecast(
        parameters=dict(checked.resolved),
        notes=(*checked.notes, *calibration.damaged()),
        needs=needs.model_dump(mode="json"),
        fits=None if judged is None else judged.name == "fits",
        sentence=_sentence(
            needs, judged, lasting, spec, price, None if lasting else _elsewhere_only(template, spec, machine)
        ),
        cell=None if on is None else template.cell(checked, on.name, on_gpu=bool(on.spec.devices)),
        device_memory=None if judged is None else judged.device_memory,
        chunks=None if judged is None else judged.chunks,
        source=None if lasting is None else lasting.source,
        off_by=None if lasting is None else lasting.off_by,
        cost=None if lasting is None else machines.cost(lasting.middle, price),
        calibrate=on is not None and refused is None and _unmeasured(needs, lasting),
        elsewhere=tuple(elsewhere(template, checked, needs)),
        **_told(judged, lasting),
    )


def _told(judged: Verdict | None, lasting: Duration | None) -> dict[str, Any]:
    """Return what a run keeps of its forecast, too."""
    return {
        "verdict": judged and judged.name,
        "memory_per_worker": judged and judged.memory_per_worker,
        "seconds": None if lasting is None else _range(lasting.low, lasting.high),
        "basis": None if lasting is None else lasting.basis,
        "rough": lasting is not None and lasting.rough,
    }


def _elsewhere_only(template: Template, spec: ClusterSpec | None, machine: Mapping[str, Any] | None) -> str | None:
    """Say that a workload ran on other hardware only; None where it ran on this or on none."""
    runs = [run for run in store.select(workload=template.name, status="done", limit=RUNS) if run.spec is not None]
    if spec is None or not runs or any(ran_on(run, spec, machine) for run in runs):
        return None
    there = dict.fromkeys(run.spec.profile for run in runs if run.spec is not None)
    return f"It ran on other hardware only ({', '.join(there)}), which tells nothing of this."


def needs_of(
    template: Template, checked: Parameters, spec: ClusterSpec | None, machine: Mapping[str, Any] | None = None
) -> Needs:
    """What it needs, as the workload says, or for a person's function as its last run of these parameters found."""
    needs = template.needs(checked)
    if needs.known:
        return needs
    past = history.runs_of(template, checked.resolved)
    found = history.needs(past, checked.resolved, needs)
    if spec is None or not found.known or _judge(found, spec).name != "won't fit":
        return found
    # A graph tells sizes of blocks, and not what a task holds of them; a run that ended well there tells that it fits.
    done = history.done_there(past, checked.resolved, spec, machine)
    return (
        found if done is None else needs.model_copy(update={"sentence": f"It fitted such workers in the run {done}."})
    )


def refusal(cluster: ClusterRecord | ClusterSpec, template: Template) -> str | None:
    """Why a workload can't be run on a cluster, whatever its size; None where it can. Forecasts and runs ask this."""
    if isinstance(cluster, ClusterSpec):
        if cluster.devices and not cluster.cupy:
            return f"Its workers {_NO_CUPY}"
        # What another Python has is not known here.
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


def _unmeasured(needs: Needs, lasting: Duration | None) -> bool:
    """Return whether measuring the hardware would tell a time, or a better one than was told when it was busy."""
    return bool(needs.work) and (lasting is None or "not calibrated" in lasting.source or "busy" in lasting.source)


def kept_with_run(
    template: Template, checked: Parameters, needs: Needs, cluster: ClusterRecord, *, force: bool
) -> dict[str, Any]:
    """Return what a run keeps of its forecast. Raises ConflictError where it won't fit and nobody insists."""
    spec, machine = actual_spec(cluster), cluster.machine
    judged = verdict(template, checked.given, needs, spec, cluster) if needs.known else None
    if judged is not None and judged.name == "won't fit" and not force:
        raise ConflictError(f"{judged.sentence} To run it all the same, force it.")
    lasting = _duration(template, checked.resolved, needs, spec, judged, machine)
    return {**_told(judged, lasting), "price_per_hour": machines.price_per_hour(spec, calibration.host(machine))}


def verdict(
    template: Template,
    parameters: Mapping[str, Any],
    needs: Needs,
    spec: ClusterSpec,
    cluster: ClusterRecord | ClusterSpec | None = None,
) -> Verdict:
    """Say whether a workload fits the workers' memory, with a size of blocks that would.

    Of a running `cluster` what its workers hold already counts as theirs.
    """
    judged = _judge(needs, spec)
    if judged.name != "won't fit" and (taken := _taken_by_others(judged, spec, cluster)):
        return judged._replace(name="won't fit", sentence=taken)
    if judged.name == "fits":
        return judged
    chunks = _chunks_that_fit(template, parameters, needs, spec)
    remedies = [f"Blocks of {chunks} would fit: chunks={chunks}."] if chunks else []
    if not chunks and _may_recompute(template, parameters):
        remedies = ["With compute=true it is made or read again instead of held."]
    if not remedies:
        more = "more or larger GPUs" if judged.device_memory else "a cluster with more memory for each worker"
        remedies = [f"Use a smaller size, or {more}."]
    return judged._replace(sentence=" ".join((judged.sentence, *remedies)), chunks=chunks)


def foreseen(template: Template, parameters: Mapping[str, Any], needs: Needs, spec: ClusterSpec | None) -> str:
    """What a run needs by its graph, which says it only when it has begun; and why that won't fit, or will spill."""
    judged = verdict(template, parameters, needs, spec) if spec is not None and needs.known else None
    return needs.sentence if judged is None or judged.name == "fits" else f"{needs.sentence} If so: {judged.sentence}"


def elsewhere(template: Template, checked: Parameters, needs: Needs) -> Iterator[dict[str, Any]]:
    """Machines that others measured, then those of which a time for the same workload was published."""
    for found in calibration.kept("elsewhere"):
        lasting = duration_elsewhere(needs, found)
        if lasting is not None:
            yield _there(found.machine, (lasting.low, lasting.high), lasting.middle, lasting.basis, lasting.source)
    for one, ends in machines.comparable(template.name, checked.resolved, needs.bytes_processed):
        yield _there(one.name, ends, sum(ends) / 2, "published", f"scaled from {one.source}")


def _there(machine: str, ends: tuple[float, float], middle: float, basis: str, source: str) -> dict[str, Any]:
    """Return what it would take on hardware that isn't here, and where that is known from."""
    cost = machines.cost(middle, machines.price_per_hour(None, machine))
    return {"machine": machine, "seconds": _range(*ends), "basis": basis, "source": source, "cost": cost}


def actual_spec(record: ClusterRecord) -> ClusterSpec:
    """Spec of a cluster with the workers that it has now, which scaling may have changed."""
    return record.spec.model_copy(update={"n_workers": max(1, record.n_workers), "missing": record.missing})


def missing_on(spec: ClusterSpec) -> Mapping[str, Mapping[str, int]] | None:
    """Return the modules that workers can't import; of a cluster that isn't there yet, those missing in its Python.

    None where nobody knows: of another Python, or of other machines.
    """
    if spec.missing is not None or spec.elsewhere or spec.python not in (None, sys.executable):
        return spec.missing
    return missing_here(spec.n_workers)


def lacking(template: Template, checked: Parameters, spec: ClusterSpec, name: str | None = None) -> str | None:
    """Return what to do about modules that tasks need and workers can't import; None where all are there."""
    missing = missing_on(spec)
    if not missing:
        # What it imports may take a look into a file.
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


def size_of(spec: ClusterSpec | None) -> dict[str, Any]:
    """Return what a template's `validate` wants to know of a cluster."""
    if spec is None:
        return {}
    return {
        "memory": spec.memory,
        "threads": spec.threads,
        "threads_per_worker": spec.threads_per_worker,
        "missing": None if (missing := missing_on(spec)) is None else frozenset(missing),
        "on_gpu": bool(spec.devices),
        "device_memory": None if (card := _card(spec)) is None else spec.n_workers * _room(spec, card),
    }


def _duration(
    template: Template,
    resolved: Mapping[str, Any],
    needs: Needs,
    spec: ClusterSpec,
    judged: Verdict | None,
    machine: Mapping[str, Any] | None,
) -> Duration | None:
    try:
        past = history.runs_of(template, resolved)
        if past and (lasting := history.duration(past, resolved, spec, machine)) is not None:
            return lasting
        return duration(template.name, needs, spec, spilled=judged.spilled if judged else 0, machine=machine)
    except (ArithmeticError, TypeError, ValueError) as err:
        # Numbers of somebody's, of which there is no logarithm: a run begins without, too.
        _log.warning("There is no forecast of how long %s takes: %r", template.name, err)
        return None


def _judge(needs: Needs, spec: ClusterSpec) -> Verdict:
    """Return whether it fits a worker's memory, and where its arrays lie on GPUs, theirs."""
    card = _card(spec) if needs.on_device else None
    if card is not None:
        return _judge_devices(needs, spec, card)
    process, several = _process(spec), needs.received if spec.n_workers > 1 else 0
    return _judge_workers(needs.held_per_worker + several + process, needs.peak(spec.n_workers) + process, spec)


def _judge_workers(in_hand: int, peak: int, spec: ClusterSpec) -> Verdict:
    """Verdict on so many bytes in the hands of one worker, and so many at most with what can be spilled."""
    limit, n_workers = spec.memory_limit, spec.n_workers
    if in_hand > _ENDS * limit:
        return Verdict(
            "won't fit",
            f"Won't fit: needs {formats.size(in_hand)} in one worker at once, and a worker has {formats.size(limit)} "
            "of memory. Dask would end and restart it until it gives up.",
            peak,
        )
    if peak <= _SPILLS * limit:
        return Verdict(
            "fits", f"Fits: {formats.size(peak)} in a worker at most, which has {formats.size(limit)}.", peak
        )
    together = f"{formats.size(spec.memory)} together" if n_workers > 1 else formats.size(limit)
    spilled = int(peak - _SPILLS * limit) * n_workers
    # The disks of other machines aren't known.
    if not spec.elsewhere and spilled > _free_disk():
        return Verdict(
            "won't fit",
            f"Won't fit: needs {formats.size(peak * n_workers)} at once, the workers have {together}, and the disk "
            f"has no room for the other {formats.size(spilled)}.",
            peak,
            spilled,
        )
    return Verdict(
        "will spill",
        f"Will spill: needs {formats.size(peak)} in a worker, and from {formats.size(_SPILLS * limit)} on its blocks "
        f"go to disk; the workers have {together}. About {formats.size(spilled)} are written and read back, which "
        "takes long.",
        peak,
        spilled,
    )


def _taken_by_others(judged: Verdict, spec: ClusterSpec, cluster: ClusterRecord | ClusterSpec | None) -> str | None:
    """Say that other programs hold what the workers were promised; None where this machine still has it."""
    free = None if spec.elsewhere else memory().available
    # A worker spills what is above that share of its limit.
    needed = spec.n_workers * min(judged.memory_per_worker, int(_SPILLS * spec.memory_limit))
    if free is None or needed <= free:
        return None
    free += held(cluster) if isinstance(cluster, ClusterRecord) else 0
    if needed <= free:
        return None
    return (
        f"Won't fit: needs {formats.size(needed)} in all workers together, and other programs leave them "
        f"{formats.size(free)} of this machine's memory. The system would end a process. End other programs, or use a "
        "smaller size."
    )


def _judge_devices(needs: Needs, spec: ClusterSpec, card: int) -> Verdict:
    """Return whether it fits GPUs of `card` bytes, and what they hand to their workers fits those."""
    limit = _room(spec, card)
    has = formats.size(card)
    several = needs.received if spec.n_workers > 1 else 0
    in_hand, peak = needs.held_per_worker + several + _CONTEXT, needs.peak(spec.n_workers) + _CONTEXT
    over, read = max(0, peak - limit), needs.on_host + _process(spec)
    beside = _judge_workers(read, read + over, spec)._replace(device_memory=peak)
    if in_hand > card:
        return beside._replace(
            name="won't fit",
            sentence=f"Won't fit: needs {formats.size(in_hand)} on one GPU at once, and a GPU has {has} of memory. "
            "CuPy would find none left.",
        )
    if beside.name != "fits":
        why = f" {formats.size(over)} of it is what a GPU of {has} has no room for." if over else ""
        return beside._replace(sentence=f"{beside.sentence}{why}")
    if not over:
        return beside._replace(
            sentence=f"Fits: {formats.size(peak)} on a GPU at most, which has {has}, and "
            f"{formats.size(beside.memory_per_worker)} in its worker, which has {formats.size(spec.memory_limit)}.",
        )
    return beside._replace(
        name="will spill",
        sentence=f"Will spill: needs {formats.size(peak)} on a GPU of {has}, and from {formats.size(limit)} on its "
        f"blocks move to the memory of its worker, which has {formats.size(spec.memory_limit)}. About "
        f"{formats.size(over * spec.n_workers)} go there and come back, which takes long.",
    )


def _card(spec: ClusterSpec) -> int | None:
    """Bytes of a worker's GPU; of one that isn't on this machine, what the spec says that it has at least."""
    if not spec.devices:
        return None
    asked = max(spec.device_memory_limit or 0, spec.rmm_pool_size or 0)
    return devices.memory(spec) or asked or None


def _room(spec: ClusterSpec, card: int) -> int:
    """Bytes of a GPU that blocks may fill before they move to the memory of its worker."""
    return min(spec.device_memory_limit or int(MOVES_TO_HOST * card), card)


def _process(spec: ClusterSpec) -> int:
    """Bytes that a worker's process takes by itself."""
    return min(_PROCESS, int(spec.memory_limit * _PROCESS_SHARE)) + min(_MARGIN, spec.memory_limit // 32)


def _free_disk() -> int:
    try:
        return shutil.disk_usage(dask.config.get("temporary-directory", None) or tempfile.gettempdir()).free
    except OSError:
        return 2**63


def _chunks_that_fit(template: Template, parameters: Mapping[str, Any], needs: Needs, spec: ClusterSpec) -> str | None:
    """Largest size of blocks, halved from what it is, with which the verdict is the best that blocks can make it."""
    if "chunks" not in template.schema()["properties"]:
        return None
    # The memory of a worker, or of its GPU, is the most that a block could fill.
    most = max(spec.memory_limit, _card(spec) or 0)
    size = 2 ** int(math.log2(max(_SMALLEST_CHUNK, min(needs.input_bytes, most))))
    while size >= _SMALLEST_CHUNK:
        chunks = f"{size // 2**20}MiB"
        size //= 2
        try:
            checked = template.validate({**parameters, "chunks": chunks}, **size_of(spec))
        except BadInputError:
            continue
        fewer = template.needs(checked)
        if fewer.known and _judge(fewer, spec).name == "fits":
            return chunks
    return None


def _may_recompute(template: Template, parameters: Mapping[str, Any]) -> bool:
    offered = template.schema()["properties"]
    return "compute" in offered and str(parameters.get("compute", "false")).lower() not in ("true", "yes", "on", "1")


def _range(low: float, high: float) -> dict[str, float]:
    return {"low": low, "high": high}


def _sentence(
    needs: Needs,
    judged: Verdict | None,
    lasting: Duration | None,
    spec: ClusterSpec | None,
    price: float | None,
    other: str | None,
) -> str:
    """Say first whether it fits, then how long it takes, then why."""
    if judged is None:
        told = f"How long: {other}" if other else ""
        told = told if lasting is None else _time(lasting, spec, price)
        return " ".join(filter(None, (told, needs.sentence)))
    if judged.name == "can't run":
        return judged.sentence
    if lasting is None:
        measure = "Calibrate this hardware first, which takes some seconds." if needs.work else None
        how_long = " ".join(filter(None, (other, measure))) or "unknown until it has run here."
        parts = [judged.sentence, f"How long: {how_long[:1].lower()}{how_long[1:]}"]
    else:
        parts = [judged.sentence, _time(lasting, spec, price)]
    return " ".join(filter(None, (*parts, needs.sentence)))


def _time(lasting: Duration, spec: ClusterSpec | None, price: float | None) -> str:
    off = "" if lasting.off_by is None else f"; so far off by {100 * lasting.off_by:.0f} %"
    runs = f", {formats.count(lasting.n_runs, 'run')}" if lasting.n_runs else ""
    doubt = "; calibrate again when this machine is quiet" if "busy" in lasting.source else ""
    costing = machines.cost(lasting.middle, price)
    costs = "" if costing is None else f", at a cost of about {machines.cost_text(costing, 2)}"
    walltime = spec.options.get("walltime") if spec else None
    late = ""
    if walltime is not None and lasting.high > walltime:
        likely = "will" if lasting.low > walltime else "may"
        late = f" That {likely} be longer than the walltime of a job, {formats.duration(walltime)}: ask for more."
    span = formats.span(lasting.low, lasting.high)
    told = f"Too few runs to say how long; to an order of magnitude {span}" if lasting.rough else f"Takes {span}"
    return f"{told}{costs} ({lasting.basis}{runs}{off}{doubt}).{late}"
