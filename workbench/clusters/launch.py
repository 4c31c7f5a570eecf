"""From a spec to a running cluster: `launch` starts the host process, which starts what the profile says."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from workbench import config
from workbench.clusters import names, records, spare
from workbench.clusters.profiles import profile
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError
from workbench.jobs import processes
from workbench.kept import check_name


def launch(
    spec: ClusterSpec, *, name: str | None = None, force: bool = False, agreed: bool = False, group: str = ""
) -> ClusterRecord:
    """Start the host process of a cluster and return at once, with a record whose status is 'starting'.

    `name`, `force` and `agreed` are as of `start`, `group` is as in the record. Raises BadInputError where the name or
    the start's time-out can't be used or nobody agreed, ConflictError where the name is taken or the budget exceeded
    without `force`, and MissingError where the environment `spec.python` lacks what is needed.
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
    check = None if force or spec.elsewhere else partial(check_budget, spec, inventory(), group=group)
    if check is not None:
        # Before a waiting process is taken, too, which a refused start would end.
        check(records.read_all())
    in_this_python = spec.python is None or Path(spec.python) == Path(sys.executable)
    fits_spare = in_this_python and (spec.profile == "cpu" or spec.elsewhere)
    waiting = spare.take() if fits_spare else None
    record = ClusterRecord(
        name=name or names.new_name(records.names()),
        spec=spec,
        n_workers_expected=spec.n_workers,
        created=time.time(),
        **processes.here(),
        group=group,
        mark=waiting.mark if waiting else "",
    )
    try:
        records.create(record, check)
    except BaseException:
        if waiting is not None:
            waiting.end()
        raise
    if waiting is not None and waiting.become(record.name, records.folder(record.name), _working_folder()):
        return _noted(record, waiting.process)
    return _start_host(record)


def _start_host(record: ClusterRecord) -> ClusterRecord:
    python = record.spec.python or sys.executable
    try:
        host = processes.begin(
            [python, "workbench.clusters.host", record.name],
            log=records.folder(record.name) / "host.log",
            environment=spare.environment(record.marker, record.spec),
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
    """Return where workers look for files and modules: here, as with a cluster started by hand."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return str(Path.home())
