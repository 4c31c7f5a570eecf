"""Start, cancel and await runs. Each has a process of its own, so that callers aren't blocked."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.clusters import records
from workbench.clusters.forking import start_warm
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError
from workbench.jobs import folders, processes
from workbench.jobs.records import claim
from workbench.jobs.waiting import Waiting
from workbench.runs import inputs, store
from workbench.runs.forecasting import devices, machines, measuring
from workbench.runs.forecasting.forecast import actual_spec, lacking, needs_of, recorded_forecast, refusal
from workbench.runs.forecasting.verdicts import size_of
from workbench.runs.run import WATCHED, Run
from workbench.runs.settings import read_settings
from workbench.workloads.values import Parameters

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

_RUNNER = "workbench.runs.runner"
_POLL = 0.05  # seconds between two checks of an awaited run


def submit(
    workload: str,
    parameters: Mapping[str, Any],
    record: ClusterRecord,
    *,
    inventory: Mapping[str, Any] | None = None,
    force: bool = False,
    sha: str | None = None,
    settings: Mapping[str, Any] | str | None = None,
    measurement: bool = False,
) -> Run:
    """Start a run and return at once.

    Raises BadInputError if a parameter can't be used, and ConflictError if the cluster isn't ready, its GPUs
    can't compute, or the workload won't fit and isn't forced.

    Parameters
    ----------
    force
        Start it even if it won't fit.
    sha
        Hash of the text of a user's function, if only that text may be run.
    settings
        Dask's settings by name, for this run.
    measurement
        True if it only runs so that forecasts know the cluster.
    """
    from workbench.workloads.lookup import template

    chosen = template(workload)
    refused = refusal(record, chosen)
    if refused is not None:
        raise ConflictError(refused)
    if sha is not None and (chosen.pinned is None or chosen.pinned.sha != sha):
        raise ConflictError(
            f"{chosen.name} has changed meanwhile, so its times are not of the same code. Compare again."
        )
    spec = actual_spec(record)
    checked = chosen.validate(parameters, **size_of(spec))
    if (lacks := lacking(chosen, checked, spec, record.name)) is not None:
        raise ConflictError(lacks)
    needs = needs_of(chosen, checked, spec, record.machine)
    run = _new(chosen, checked, record.name, spec, inventory).model_copy(
        update={
            "settings": read_settings(settings or {}) or None,
            "needs": needs.model_dump(mode="json"),
            "forecast": recorded_forecast(chosen, checked, needs, record, force=force),
            "measurement": measurement,
        }
    )
    return _start_runner(store.create(run), record.spec.python or sys.executable)


def measure(
    workload: str,
    parameters: Mapping[str, Any],
    record: ClusterRecord,
    *,
    inventory: Mapping[str, Any] | None = None,
) -> Run:
    """Start a run of about a hundredth of a workload, for later forecasts, and return at once.

    Raises the errors of `part_of` and `submit`.
    """
    part = part_of(workload, parameters, actual_spec(record))
    return submit(workload, part, record, inventory=inventory, measurement=True)


def part_of(workload: str, parameters: Mapping[str, Any], spec: ClusterSpec) -> dict[str, Any]:
    """Return the parameters that measure a workload. Raises BadInputError if it can't be measured in part."""
    from workbench.workloads.lookup import template

    chosen, around = template(workload), size_of(spec)
    part = measuring.part_of(chosen, chosen.validate(parameters, **around), around)
    if part is None:
        raise BadInputError(
            f"{chosen.name} can't be measured in part: it is small, or no parameter makes it smaller. Run it: its time "
            "is known from then on."
        )
    return part.parameters


def submit_alone(
    workload: str, parameters: Mapping[str, Any], spec: ClusterSpec, *, inventory: Mapping[str, Any] | None = None
) -> Run:
    """Start a run without a cluster, as `spec.alone` says, and return at once."""
    from workbench.workloads.lookup import template

    price = machines.price_per_hour(spec, devices.host())
    chosen = template(workload)
    run = _new(chosen, chosen.validate(parameters, **size_of(spec)), spec.profile, spec, inventory)
    return _start_runner(store.create(run.model_copy(update={"forecast": {"price_per_hour": price}})), sys.executable)


def _new(
    chosen: Template,
    checked: Parameters,
    cluster: str,
    spec: ClusterSpec,
    inventory: Mapping[str, Any] | None,
) -> Run:
    return Run(
        id=folders.new_id(store.name_of(chosen.name)),
        workload=chosen.name,
        parameters=dict(checked.given),
        resolved=dict(checked.resolved),
        notes=checked.notes,
        save=checked.save,
        replace=checked.replace,
        files=inputs.states(chosen, checked.resolved),
        cluster=cluster,
        spec=spec,
        inventory=dict(inventory) if inventory is not None else None,
        created=time.time(),
        **processes.here(),
        preset=checked.preset,
        function=chosen.pinned,
        text=machines.text(chosen, checked, size_of(spec)),
    )


def cancel(run_id: str) -> Run:
    """Request the end of a run and return at once. Its process frees the workers and writes the status "cancelled"."""
    run = store.get(run_id)
    if run.active and run.workload == WATCHED:
        raise ConflictError(
            f"The run {run_id} is computed by a notebook or a script of yours (pid {run.pid}), which watches itself. "
            "Interrupt it there."
        )
    return store.cancel(run_id)


_waiting = Waiting(lambda run_id: lambda: store.get(run_id), _POLL)
wait, finish = _waiting.wait, _waiting.finish
"""Return the run when it has ended, or as it is after a time."""


def _start_runner(run: Run, python: str) -> Run:
    """Start the runner: forked by the cluster's host, where Dask is already imported, else as a new process."""
    log = store.folder(run.id) / "log.txt"
    pid = None
    if run.spec is None or not run.spec.alone:
        pid = start_warm(records.folder(run.cluster), _RUNNER, [run.id], log=log)
    try:
        pid = pid or processes.start_detached(python, _RUNNER, run.id, log=log)
    except OSError as err:
        return store.update(
            run.id,
            status="failed",
            stopped=time.time(),
            error=f"The Python of the cluster, {python}, can't be started ({err.strerror}).",
        )
    claim(store.folder(run.id), pid, processes.created(pid))
    return store.get(run.id)
