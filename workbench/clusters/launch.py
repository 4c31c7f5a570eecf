"""Launch of a cluster from its spec: `launch` starts the host process, which starts what the profile says."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import dask.config

from workbench import config
from workbench.clusters import names, records
from workbench.clusters.profiles import of_cluster
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, StorageError
from workbench.jobs import processes
from workbench.jobs.records import claim
from workbench.named_choices import check_name


def launch(
    spec: ClusterSpec, *, name: str | None = None, force: bool = False, agreed: bool = False, group: str = ""
) -> ClusterRecord:
    """Start the host process of a cluster and return at once, with a record whose status is 'starting'.

    `name`, `force` and `agreed` are as in `start`, `group` is as in the record. Raises BadInputError if the name or the
    start time-out is invalid or consent is missing, ConflictError if the name is taken or the budget exceeded without
    `force`, and MissingError if the environment `spec.python` lacks packages.
    """
    from workbench.clusters.budget import check_budget
    from workbench.clusters.plan import check_agreed
    from workbench.hardware import inventory

    # Not `spec.consent`: the spec may come from somebody else's record.
    check_agreed(of_cluster(spec.profile).consent(spec), agreed)
    if name is not None:
        check_name(name, "cluster", "calm-otter")
    # The host reads it too, but an error there would come back as a failed cluster.
    config.seconds("start-timeout")
    of_cluster(spec.profile).check(spec)
    check = None if force or spec.elsewhere else partial(check_budget, spec, inventory(), group=group)
    record = ClusterRecord(
        name=name or names.new_name(records.names()),
        spec=spec,
        n_workers_expected=spec.n_workers,
        created=time.time(),
        **processes.here(),
        group=group,
    )
    records.create(record, check)
    return _start_host(record)


def _start_host(record: ClusterRecord) -> ClusterRecord:
    python = record.spec.python or sys.executable
    try:
        host = processes.begin(
            [python, "workbench.clusters.host", record.name],
            log=records.folder(record.name) / "host.log",
            environment=environment(record),
            cwd=_working_folder(),
        )
    except OSError as err:
        records.remove(record.name)
        raise BadInputError(
            f"Python can't be started as {python!r} ({err.strerror}). Give the path of an interpreter."
        ) from err
    created = processes.created(host.pid)
    with contextlib.suppress(StorageError):
        claim(records.folder(record.name), host.pid, created)
    processes.reap(host)
    return record.model_copy(update={"pid": host.pid, "pid_created": created})


def environment(record: ClusterRecord) -> dict[str, str]:
    """Return the environment of the process that hosts a cluster."""
    settings = {
        **processes.same_folder(),
        "DASK_WORKBENCH__START_TIMEOUT": str(config.get("start-timeout")),
        processes.MARKER: record.marker,
        # setproctitle, which Dask uses if installed, would otherwise overwrite the marker.
        "SPT_NOENV": "1",
        "PYTHONUNBUFFERED": "1",
    }
    defaults, from_spec = of_cluster(record.spec.profile).environment(record.spec)
    return {**_worker_environment(), **defaults, **os.environ, **from_spec, **settings}


def _worker_environment() -> dict[str, str]:
    """Return the variables of Dask's nanny for workers: one BLAS thread per Dask thread, memory given back early.

    Set here because workers are forked from a process that imported NumPy before the nanny could set them.
    """
    defaults: dict[str, Any] = {
        "MALLOC_TRIM_THRESHOLD_": 65536,
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
        "PYTHONHASHSEED": 6640,
    }
    configured = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    return {key: str(value) for key, value in {**defaults, **configured}.items()}


def _working_folder() -> str:
    """Return the folder where workers look for files and modules: this one, as for a cluster started by hand."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return str(Path.home())
