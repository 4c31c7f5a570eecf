"""From a spec to a running cluster: `launch` starts the host process, which starts what the profile says."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask.config

from workbench import config
from workbench.clusters import names, records, spare
from workbench.clusters.profiles import profile
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError
from workbench.jobs import processes
from workbench.kept import check_name


def launch(spec: ClusterSpec, *, name: str | None = None, force: bool = False, agreed: bool = False) -> ClusterRecord:
    """Start the host process of a cluster and return at once, with a record whose status is 'starting'.

    `name`, `force` and `agreed` are as of `start`.

    Raises
    ------
    BadInputError
        The name, or the setting of the start's time-out, can't be used, or nobody agreed.
    ConflictError
        The name is taken, or the memory budget is exceeded and `force` isn't given.
    MissingError
        The environment `spec.python` lacks what is needed.
    """
    from workbench.clusters.budget import check_budget
    from workbench.clusters.plan import check_agreed, consent
    from workbench.hardware import inventory

    check_agreed(consent(spec), agreed)
    if name is not None:
        check_name(name, "cluster", "calm-otter")
    # The host reads it too, but what is refused there comes back as a cluster that failed.
    config.seconds("start-timeout")
    profile(spec.profile).check(spec)
    if not force and not spec.elsewhere:
        check_budget(spec, inventory(), records.read_all())
    in_this_python = spec.python is None or Path(spec.python) == Path(sys.executable)
    fits_spare = in_this_python and (spec.profile == "cpu" or spec.elsewhere)
    waiting = spare.take(_marked_environment) if fits_spare else None
    record = ClusterRecord(
        name=name or names.new_name(records.names()),
        spec=spec,
        n_workers_expected=spec.n_workers,
        created=time.time(),
        node=platform.node(),
        place=processes.place(),
        mark=waiting.mark if waiting else "",
    )
    try:
        records.create(record)
    except BaseException:
        if waiting is not None:
            waiting.end()
        raise
    if waiting is not None and waiting.become(record.name, records.folder(record.name), _working_folder()):
        return _noted(record, waiting.process)
    return _start_host(record)


def keep_warm(preload: Sequence[str] = ()) -> None:
    """Have a host ready for the next cluster, with these modules imported where its runs start; see `spare`."""
    if config.get("keep-warm"):
        spare.keep(_marked_environment, preload)


def _start_host(record: ClusterRecord) -> ClusterRecord:
    python = record.spec.python or sys.executable
    try:
        host = processes.begin(
            [python, "workbench.clusters.host", record.name],
            log=records.folder(record.name) / "host.log",
            environment=_marked_environment(record.marker, record.spec),
            cwd=_working_folder(),
        )
    except OSError as err:
        records.remove(record.name)
        raise BadInputError(
            f"Python can't be started as {python!r} ({err.strerror}). Give the path of an interpreter."
        ) from err
    return _noted(record, host)


def _noted(record: ClusterRecord, host: subprocess.Popen[bytes]) -> ClusterRecord:
    """Put the process into the record, here and on disk."""
    records.note_process(record.name, host.pid)
    processes.reap(host)
    return record.model_copy(update={"pid": host.pid, "pid_created": processes.created(host.pid)})


def _working_folder() -> str:
    """Where workers look for files and modules: here, as with a cluster started by hand."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return str(Path.home())


def _marked_environment(mark: str, spec: ClusterSpec | None = None) -> dict[str, str]:
    """Environment of a host process; without a spec, of one that waits for a cluster on the cpu profile."""
    settings = {
        **processes.same_folder(),
        "DASK_WORKBENCH__START_TIMEOUT": str(config.get("start-timeout")),
        processes.MARKER: mark,
        # setproctitle, which Dask uses where it is installed, would otherwise write over the marker.
        "SPT_NOENV": "1",
        "PYTHONUNBUFFERED": "1",
    }
    chosen = spec.ucx_variables() if spec else {}
    return {**_worker_environment(), **(_ucx_environment(spec) if spec else {}), **os.environ, **chosen, **settings}


def _ucx_environment(spec: ClusterSpec) -> dict[str, str]:
    """What UCX is told where the user doesn't tell it otherwise."""
    if spec.protocol != "ucx":
        return {}
    # ucxx sets a variable that its own UCX then complains of.
    quiet = {"UCX_WARN_UNUSED_ENV_VARS": "n"}
    if spec.devices:
        return quiet
    return {**quiet, "DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT": "False", "UCX_NET_DEVICES": "lo"}


def _worker_environment() -> dict[str, str]:
    """What Dask's nanny sets before it starts a worker: one BLAS thread per Dask thread, memory given back early.

    Set here since workers are forked from a process that has imported NumPy before the nanny comes to it.
    """
    defaults: dict[str, Any] = {
        "MALLOC_TRIM_THRESHOLD_": 65536,
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
        "PYTHONHASHSEED": 6640,
    }
    chosen = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    return {key: str(value) for key, value in {**defaults, **chosen}.items()}
