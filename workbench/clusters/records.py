"""Records of clusters, one folder on disk for each, which outlive every process that reads them.

A cluster's host process is the only writer of its `record.json`; a reader rewrites it only if that process ended
without updating it.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import dask.config
import psutil
from pydantic import Field, ValidationError, computed_field

from workbench import config, formats, private
from workbench.clusters.engine import VERBS, Job, Verb, queued
from workbench.clusters.profiles import Broken, of_cluster
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError, FailedError, NotFoundError, StorageError, quoted, reason_of
from workbench.jobs import folders, processes
from workbench.jobs.folders import Record
from workbench.jobs.records import FILE, claim_folder, discard, with_process
from workbench.named_choices import is_name
from workbench.redaction import redact_json
from workbench.threads import finish

Status = Literal["starting", "ready", "stopping", "failed", "lost", "unknown"]
"""'unknown': nothing here can see it, since it is on another machine, or its record is of another version."""
Stage = Literal["preparing", "scheduler", "workers", "ready"]

_TAIL_LINES = 20
_TAIL_BYTES = 16_384


GONE: Mapping[str, Any] = {
    "n_workers": 0,
    "clients": (),
    "jobs": (),
    "expires_at": None,
    "scheduler_address": None,
    "contact_address": None,
    "dashboard_address": None,
}
"""Changes to the record of a cluster that has ended."""


class ClusterRecord(Record):
    """A cluster as its host process last described it."""

    name: str
    spec: ClusterSpec
    status: Status = "starting"
    stage: Stage = "preparing"
    n_workers: int = 0
    """Number of workers that are there now."""
    n_workers_expected: int = 0
    """Number of workers that should be there: the spec's, or the last one scaled to."""
    worker_pids: tuple[int, ...] = ()
    """Pids of the workers, if they are on the host's machine."""
    adaptive: tuple[int, int] | None = None
    """Bounds for the number of workers while it adapts to the load."""
    scheduler_address: str | None = None
    contact_address: str | None = None
    """Address for control and watchers, as in `Place`; None if the scheduler has only one."""
    dashboard_address: str | None = None
    """Address of Dask's own dashboard; None without one.

    For ours the socket, 'unix:<path>', which only its owner may open; for a remote scheduler's, 'http://host:8787'.
    """
    versions: dict[str, str] = Field(default_factory=dict)
    can: tuple[Verb, ...] = VERBS
    """Supported actions. A cluster that can't be stopped is an external one: the user detaches from it."""
    called: str = ""
    """Name of the cluster in the engine that runs it elsewhere, even if the host dies."""
    machine: dict[str, Any] | None = None
    """Machines of its workers, as in an inventory; None for this machine."""
    jobs: tuple[Job, ...] = ()
    """Its jobs, as the queue last reported them."""
    expires_at: float | None = None
    """End of the lease, in seconds since the epoch; None while the cluster works, or without a lease."""
    clients: tuple[str, ...] = ()
    """Ids of the connected Dask clients."""
    message: str | None = None
    """Message on why it failed or was lost, with the remedy."""
    warning: str | None = None
    """Message on what it can't do though it is up."""
    can_compute: bool = True
    """True if each of its workers has a device to compute on; if not, `warning` explains why."""
    log_tail: tuple[str, ...] = ()
    group: str = ""
    """Comparison that it was started for: clusters of one compute in turn, so the budget counts the largest only."""

    @property
    def is_over(self) -> bool:
        """True if nothing of it runs any more and only the record is left."""
        return self.status in ("failed", "lost")

    @property
    def ending(self) -> Literal["stopped", "detached", "dismissed"]:
        """Result of ending it: the cluster stops, it runs on and only its record goes, or it had ended already."""
        if "stop" in self.can and (self.called or not self.is_over):
            return "stopped"
        return "dismissed" if self.is_over else "detached"

    @property
    def taken(self) -> str | None:
        """Message if no other cluster can have its name; None if only a record is left, which is replaced."""
        if self.is_over and self.ending != "stopped":
            return None
        verb = {"stopped": "stop it", "detached": "detach from it"}.get(self.ending)
        remedies = {"stopping": ", or wait until it has ended.", "unknown": f". {self.message}"}
        or_else = remedies.get(self.status, f", or {verb} first: workbench down {self.name}")
        return f"There is a cluster {self.name!r} already ({self.status}). Choose another name{or_else}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def queued(self) -> str:
        """Summary of its jobs in a queue: '6 pending: Priority, start estimated 14:20'."""
        # The queue is checked less often than workers arrive.
        all_there = self.status == "ready" and self.n_workers >= self.n_workers_expected > 0
        return queued(job for job in self.jobs if not (all_there and job.state == "pending"))

    @property
    def waiting(self) -> str:
        """Number of workers, and why the others are missing: '2 of 8 workers; 6 pending: Priority'."""
        return f"{self.n_workers} of {self.n_workers_expected} workers{self.queued and '; '}{self.queued}"

    @property
    def status_message(self) -> str:
        """Message about a cluster that isn't ready, such as 'calm-otter was lost' and why."""
        hows = {
            "starting": f"is still starting ({self.stage}, {self.waiting})",
            "stopping": "is being stopped",
            "failed": "failed to start",
            "lost": "was lost",
            "unknown": "is unknown here",
        }
        why = "Try again in a moment." if self.status == "starting" else self.message
        return f"{self.name} {hows.get(self.status, f'is {self.status}')}. {why or ''}".strip()

    @property
    def contact(self) -> str | None:
        """Address for talking to the scheduler only, by TCP or TLS if it can."""
        return self.contact_address or self.scheduler_address

    @property
    def marker(self) -> str:
        """Marker in the environment of its processes."""
        return processes.marker(folder(self.name), self.created)


def clusters_folder() -> Path:
    """Return the folder of all clusters' folders, mode 0700."""
    path = config.data_folder() / "clusters"
    with config.writing(path):
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def folder(name: str) -> Path:
    """Return the folder of one cluster, which may not exist. Raises NotFoundError if `name` is invalid."""
    if not is_name(name):
        raise NotFoundError(_unknown(name))
    return config.data_folder() / "clusters" / name


def read(name: str) -> ClusterRecord:
    """Return the corrected record of one cluster. Raises NotFoundError with the names that exist."""
    record = _true(folder(name))
    if record is None:
        raise NotFoundError(_unknown(name))
    return record


def read_all(*, locked: bool = False) -> tuple[ClusterRecord, ...]:
    """Return the corrected records of all clusters, oldest first, including those on other machines.

    Pass `locked` if the caller holds the lock.
    """
    records = [_true(path, locked=locked) for path in _folders()]
    return tuple(sorted((record for record in records if record is not None), key=lambda record: record.created))


def names() -> tuple[str, ...]:
    """Return the names in use, including clusters on other machines that share the data folder."""
    return tuple(path.name for path in _folders())


def write(record: ClusterRecord) -> None:
    """Replace the record on disk. Raises FileNotFoundError when the cluster's folder is gone."""
    config.write_atomically(folder(record.name) / FILE, redact_json(record.model_dump_json()))


def create(record: ClusterRecord, check: Callable[[tuple[ClusterRecord, ...]], None] | None = None) -> None:
    """Claim the record's name: its folder appears with the record in it.

    A failed or lost cluster of that name is replaced. Raises ConflictError if the name is in use.

    `check` is called with all records and raises if there is no room for this one. No other cluster is created
    between this check and the record, so that two starts are never promised the same memory.
    """
    with lock():
        target = folder(record.name)
        existing = _true(target, locked=True)
        if existing is not None and existing.taken is not None:
            raise ConflictError(existing.taken)
        if check is not None:
            check(read_all(locked=True))
        discard(target)
        # Readers see the folder once it has a record.
        claim_folder(target)
        try:
            write(record)
        except StorageError:
            discard(target)
            raise


def remove(name: str) -> None:
    """Remove the cluster's whole folder."""
    with lock():
        discard(folder(name))


def log(name: str) -> str:
    """Return the end of the output of the host process and its workers."""
    try:
        return config.read_tail(folder(name) / "host.log")
    except OSError:
        return ""


def log_tail(name: str) -> tuple[str, ...]:
    """Return the last lines of the log, which may be long."""
    try:
        text = config.read_tail(folder(name) / "host.log", _TAIL_BYTES)
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-_TAIL_LINES:]


def host_process(record: ClusterRecord) -> psutil.Process | None:
    """Return the cluster's host, None if it has ended."""
    if record.place != processes.place():
        return None
    started = with_process(record, folder(record.name))
    return processes.find(started.pid, started.pid_created)


def memory_used(record: ClusterRecord) -> int | None:
    """Return the bytes used by the cluster's workers, as Dask counts them, in whole MiB; None if unknown.

    Memory of the host, with the scheduler in it, doesn't count toward any worker's limit.
    """
    if record.is_over or not record.worker_pids or host_process(record) is None:
        return None
    return memory_of_children(record, record.worker_pids.__contains__) >> 20 << 20


def memory_of_children(record: ClusterRecord, counts: Callable[[int], bool]) -> int:
    """Return the bytes used by the descendants of the cluster's host whose pid counts."""
    host, n_bytes = None if record.is_over else host_process(record), 0
    if host is not None:
        with contextlib.suppress(psutil.Error):
            for process in host.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    n_bytes += process.memory_info().rss if counts(process.pid) else 0
    return n_bytes


def memory_words(record: ClusterRecord) -> str:
    """Return the memory that its workers use of their limit: '198 MiB of 1 GiB'."""
    if record.spec.memory_limit is None:
        return "memory unknown"
    used, limit = memory_used(record), formats.size(record.n_workers * record.spec.memory_limit)
    return limit if used is None else f"{formats.size(used)} of {limit}"


def end_processes(record: ClusterRecord) -> str | None:
    """Kill the rest of the cluster's processes, cancel its jobs and remove its keys; return why jobs may be left.

    Only processes of this machine are known to have ended, so clusters of others are left unchanged.
    """
    if record.place != processes.place():
        return None
    problem, profile = None, of_cluster(record.spec.profile)
    host = host_process(record)
    if host is not None:
        processes.end([host])
    if profile.ends_with_owner and record.called:
        try:
            finish(profile.end(record.spec, record.called))
        except FailedError as err:
            problem = str(err)
    if (pid := with_process(record, folder(record.name)).pid) is not None:
        processes.end(processes.leftovers(pid, record.marker))
    remove_keys(record.name)
    remove_temporary()
    return problem


def remove_temporary() -> None:
    """Remove the temporary folders of hosts that were killed; those of live hosts are locked."""
    with contextlib.suppress(OSError):
        private.sweep(private.SOCKETS)
        private.sweep(private.SPILL, dask.config.get("temporary-directory", None))


def remove_keys(name: str) -> None:
    """Remove the cluster's TLS keys."""
    shutil.rmtree(folder(name) / "tls", ignore_errors=True)


def _folders() -> list[Path]:
    # The folder may be missing if nothing can be written.
    return [path.parent for path in config.data_folder().glob(f"clusters/*/{FILE}") if is_name(path.parent.name)]


def _unknown(name: str) -> str:
    existing = sorted(names())
    remedy = f"There are: {', '.join(existing)}." if existing else "No cluster is running. Start one: workbench up cpu"
    return f"Unknown cluster {quoted(name)}. {remedy}"


def lock() -> contextlib.AbstractContextManager[None]:
    """Return the lock for changes by processes that don't own the cluster."""
    return config.locked(clusters_folder() / ".lock")


def _parse(path: Path) -> ClusterRecord | None:
    """Return the record as it is on disk; a substitute with a message if it can't be read; None without one."""
    try:
        text = redact_json((path / FILE).read_bytes()).encode()
    except FileNotFoundError:
        return None
    except OSError as err:
        return _unreadable(path, err)
    try:
        record = ClusterRecord.model_validate_json(text)
    except ValidationError as err:
        return _of_another_version(path, text, err) or _unreadable(path, err)
    return record if record.name == path.name else record.model_copy(update={"name": path.name})


def _of_another_version(path: Path, text: bytes, error: ValidationError) -> ClusterRecord | None:
    """Return a record for a cluster whose spec this version doesn't know; None if the record is damaged."""
    try:
        content = json.loads(text)
        profile, node = content["spec"]["profile"], content.get("node")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    where = f" on {node}" if isinstance(node, str) and node else ""
    return _unreadable(path, error).model_copy(
        update={
            "status": "unknown",
            "node": node if where else "",
            "message": f"It was started{where} with profile {quoted(profile)} by another version of dask-workbench, "
            f"and this version can't read its record ({reason_of(error)}). See or stop it with that version.",
        }
    )


def _unreadable(path: Path, error: Exception) -> ClusterRecord:
    return ClusterRecord(
        name=path.name,
        spec=ClusterSpec(profile="unknown", n_workers=0, threads_per_worker=None, memory_limit=None),
        status="lost",
        message=f"Its record can't be read ({reason_of(error)}). Dismiss it: workbench down {path.name}",
        created=(path / FILE).stat().st_mtime,
        place=processes.place(),
    )


def _state(record: ClusterRecord) -> folders.State | None:
    """Return the state of its host; None if it has no host any more, or if that is unknown."""
    if record.is_over or record.status == "unknown":
        return None
    return folders.state(with_process(record, folder(record.name)))


def _far(record: ClusterRecord) -> str:
    """Return a message about a cluster whose processes can't be seen from here. It is left unchanged."""
    silent = folders.silence(record, folder(record.name))
    if silent is None:
        where = record.node or "another machine"
        return f"It is on {where}, which shares this data folder and can't be reached from here. Use and stop it there."
    restarted = " Either that restarted since, or it is in a container." if record.node == platform.node() else ""
    return (
        f"{silent}{restarted} The cluster may still run: look there. If it is gone, or is to end, remove its record: "
        f"workbench down {record.name} --forget"
    )


def _true(path: Path, *, locked: bool = False) -> ClusterRecord | None:
    """Return the record at `path`, corrected on disk if its host has died; None if there is none."""
    record = _parse(path)
    if record is None:
        return None
    state = _state(record)
    if state == "elsewhere":
        return record.model_copy(update={"status": "unknown", "message": _far(record)})
    if state != "gone":
        trouble = None if record.is_over else config.trouble()
        return record.model_copy(update={"warning": record.warning or trouble}) if trouble else record
    try:
        with contextlib.nullcontext() if locked else lock():
            # Another reader may have been faster, or the host may have ended normally and removed its folder.
            record = _parse(path)
            if record is None or _state(record) != "gone":
                return record
            return _bury(record)
    except StorageError:
        return None if record is None else _buried(record)


def _bury(record: ClusterRecord) -> ClusterRecord | None:
    if isinstance(of_cluster(record.spec.profile), Broken):
        # A process that has the profile knows what to end.
        return _buried(record)
    problem = end_processes(record)
    if problem is None and of_cluster(record.spec.profile).ends_with_owner:
        record = record.model_copy(update={"called": ""})
    if record.status == "stopping" and not record.called:
        discard(folder(record.name))
        return None
    buried = _buried(record, problem)
    write(buried)
    return buried


def _buried(record: ClusterRecord, problem: str | None = None) -> ClusterRecord:
    tail = log_tail(record.name)
    failed = record.status == "starting"
    message = _never_started(record, tail) if failed else _died(record, tail)
    return record.model_copy(
        update={
            "status": "failed" if failed else "lost",
            "message": " ".join(filter(None, (message, problem))),
            "log_tail": tail,
            **GONE,
        }
    )


def _never_started(record: ClusterRecord, tail: tuple[str, ...]) -> str:
    last = f"It said last: {tail[-1]}" if tail else config.trouble() or "It said nothing."
    started = f" What it started elsewhere may still run. End it: workbench down {record.name}" if record.called else ""
    return f"Its process ended before the cluster was up. {last}{started}"


def _died(record: ClusterRecord, tail: tuple[str, ...]) -> str:
    crash = next((line for line in reversed(tail) if line.startswith(("Fatal Python error", private.CRASHED))), None)
    how = f"The process that holds the cluster {'was killed (signal 9)' if crash is None else 'crashed'}"
    profile = of_cluster(record.spec.profile)
    if isinstance(profile, Broken):
        return (
            f"{how}. What it started elsewhere may still run. {profile.reason} Mend that and look again, or "
            f"remove its record: workbench down {record.name} --forget"
        )
    if profile.attaches:
        ends = f", or end it: workbench down {record.name}" if record.ending == "stopped" else ""
        return f"{how}. What it started elsewhere may still run: look there, attach to it{ends}."
    if crash is not None:
        return f"{how}, and its workers and their data with it. Its log says why: workbench logs {record.name}"
    return (
        f"{how}, as a system does that is short of memory; its workers and their data went with it. Start the cluster "
        "again."
    )
