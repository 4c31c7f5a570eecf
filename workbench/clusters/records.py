"""What is known of each cluster, one folder on disk for each, which outlives every process that reads it.

A cluster's host process is the only writer of its `record.json`; a reader rewrites it only when that process has
ended without saying so. Folders appear and disappear by renaming, so that nobody sees half of one.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import dask.config
import psutil
from pydantic import Field, ValidationError, computed_field

from workbench import config, formats, private
from workbench.clusters.handle import VERBS, Job, Verb, queued
from workbench.clusters.host import CRASHED, FOLDER, SPILL
from workbench.clusters.profiles import Broken, of_cluster
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError, FailedError, NotFoundError, StorageError, quoted, reason_of
from workbench.jobs import folders, processes
from workbench.jobs.folders import Record
from workbench.kept import is_name
from workbench.redaction import redact_json
from workbench.threads import finish

Status = Literal["starting", "ready", "stopping", "failed", "lost", "unknown"]
"""'unknown' is one that nothing here can see: it is on another machine, or its record is of another version."""
Stage = Literal["preparing", "scheduler", "workers", "ready"]

# Between making a folder and starting the process lie milliseconds; a slow disk may take longer.
_PROCESS_DUE = 15.0
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
"""What is no longer true of a cluster that is over."""


class ClusterRecord(Record):
    """One cluster as its host process last described it."""

    name: str
    spec: ClusterSpec
    status: Status = "starting"
    stage: Stage = "preparing"
    n_workers: int = 0
    """Workers that are there now."""
    n_workers_expected: int = 0
    """Workers that should be there: the spec's number, or what scaling asked for since."""
    worker_pids: tuple[int, ...] = ()
    """Processes of the workers, where they are on the host's machine."""
    adaptive: tuple[int, int] | None = None
    """Bounds between which the number of workers follows the load."""
    scheduler_address: str | None = None
    contact_address: str | None = None
    """Where control and watchers reach a scheduler that speaks UCX: over TCP. None where it speaks that anyway."""
    dashboard_address: str | None = None
    """Dask's own dashboard: the socket of ours, 'unix:<path>', which only its owner may open, or the address,
    'http://host:8787', at which a scheduler elsewhere serves it; None without one."""
    versions: dict[str, str] = Field(default_factory=dict)
    can: tuple[Verb, ...] = VERBS
    """What can be asked of it. One that can't be stopped is somebody else's: one detaches from it."""
    called: str = ""
    """What it is called by what started it elsewhere and goes on when the host dies."""
    machine: dict[str, Any] | None = None
    """What is known of the machines that its workers run on, as an inventory says it; None for this one."""
    missing: dict[str, dict[str, int]] | None = None
    """As in a spec: modules that its workers can't import. None: nobody has asked them."""
    jobs: tuple[Job, ...] = ()
    """Those that a queue has for it, as it last said."""
    expires_at: float | None = None
    """When the lease runs out (seconds since the epoch); None while the cluster works, or without a lease."""
    clients: tuple[str, ...] = ()
    """Ids of the Dask clients that are connected."""
    message: str | None = None
    """Why it failed or was lost, in one sentence, with the remedy."""
    warning: str | None = None
    """What it can't do though it is up, in one sentence."""
    can_compute: bool = True
    """Whether each of its workers has something to compute on; where not, `warning` says what is lacking."""
    log_tail: tuple[str, ...] = ()
    group: str = ""
    """The comparison that it was started for: its clusters compute in turn, so the budget counts the largest only."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more and only the record is left."""
        return self.status in ("failed", "lost")

    @property
    def ending(self) -> Literal["stopped", "detached", "dismissed"]:
        """What becomes of it where it is to end: of one that is over only the record is left, or what goes on there."""
        if "stop" in self.can and (self.called or not self.is_over):
            return "stopped"
        return "dismissed" if self.is_over else "detached"

    @property
    def taken(self) -> str | None:
        """Why no other cluster can have its name, and what to do; None where only a record is left, which goes."""
        if self.is_over and self.ending != "stopped":
            return None
        verb = {"stopped": "stop it", "detached": "detach from it"}.get(self.ending)
        what = {"stopping": ", or wait until it has ended.", "unknown": f". {self.message}"}
        or_else = what.get(self.status, f", or {verb} first: workbench down {self.name}")
        return f"There is a cluster {self.name!r} already ({self.status}). Choose another name{or_else}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def queued(self) -> str:
        """What is to be said of its jobs in a queue: '6 pending: Priority, start estimated 14:20'."""
        # The queue is asked less often than workers come.
        all_there = self.status == "ready" and self.n_workers >= self.n_workers_expected > 0
        return queued(job for job in self.jobs if not (all_there and job.state == "pending"))

    @property
    def waiting(self) -> str:
        """How many workers are there, and why the others aren't: '2 of 8 workers; 6 pending: Priority'."""
        return f"{self.n_workers} of {self.n_workers_expected} workers{self.queued and '; '}{self.queued}"

    @property
    def told(self) -> str:
        """What is to be said of one that isn't ready, such as 'calm-otter was lost' and why."""
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
        """Address for those who only talk to the scheduler; none of them needs UCX for that."""
        return self.contact_address or self.scheduler_address

    @property
    def marker(self) -> str:
        """What its processes carry in their environment."""
        return processes.marker(folder(self.name), self.created)


def clusters_folder() -> Path:
    """Folder of all clusters' folders, mode 0700."""
    path = config.data_folder() / "clusters"
    with config.writing(path):
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def folder(name: str) -> Path:
    """Folder of one cluster, there or not. Raises NotFoundError when `name` can't be a cluster's."""
    if not is_name(name):
        raise NotFoundError(_unknown(name))
    return config.data_folder() / "clusters" / name


def read(name: str) -> ClusterRecord:
    """Record of one cluster as it truly is. Raises NotFoundError with the names that exist."""
    record = _true(folder(name))
    if record is None:
        raise NotFoundError(_unknown(name))
    return record


def read_all(*, locked: bool = False) -> tuple[ClusterRecord, ...]:
    """Records of all clusters as they truly are, oldest first; those on other machines, too, are shown.

    `locked` says that the caller holds the lock.
    """
    records = [_true(path, locked=locked) for path in _folders()]
    return tuple(sorted((record for record in records if record is not None), key=lambda record: record.created))


def names() -> tuple[str, ...]:
    """Names in use, those of clusters on other machines that share the data folder included."""
    return tuple(path.name for path in _folders())


def write(record: ClusterRecord) -> None:
    """Replace the record on disk. Raises FileNotFoundError when the cluster's folder is gone."""
    config.write_atomically(folder(record.name) / "record.json", redact_json(record.model_dump_json()))


def create(record: ClusterRecord, check: Callable[[tuple[ClusterRecord, ...]], None] | None = None) -> None:
    """Claim the record's name: its folder appears with the record in it.

    What is left of a failed or lost cluster of that name is replaced. Raises ConflictError when the name is in use.

    `check` is called with all records and raises where there is no room for this one. No other cluster is created
    between this check and the record, so that two starts are never promised the same memory.
    """
    with lock():
        target = folder(record.name)
        existing = _true(target, locked=True)
        if existing is not None and existing.taken is not None:
            raise ConflictError(existing.taken)
        if check is not None:
            check(read_all(locked=True))
        _discard(target)
        _sweep()
        draft = target.with_name(f".{record.name}.{os.getpid()}")
        with config.writing(target):
            draft.mkdir(mode=0o700)
        config.write_atomically(draft / "record.json", redact_json(record.model_dump_json()))
        draft.rename(target)


def remove(name: str) -> None:
    """Forget the cluster: its folder goes, whole."""
    with lock():
        _discard(folder(name))


def log(name: str) -> str:
    """Return the end of what the host process and its workers printed."""
    try:
        return config.read_tail(folder(name) / "host.log")
    except OSError:
        return ""


def log_tail(name: str) -> tuple[str, ...]:
    """Last lines of the log, which may be long."""
    try:
        text = config.read_tail(folder(name) / "host.log", _TAIL_BYTES)
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-_TAIL_LINES:]


def note_process(name: str, pid: int) -> None:
    """Write down which process was started as host, before it can say so itself."""
    text = json.dumps({"pid": pid, "pid_created": processes.created(pid)})
    with contextlib.suppress(FileNotFoundError, StorageError):
        config.write_atomically(folder(name) / "host.json", text)


def host_process(record: ClusterRecord) -> psutil.Process | None:
    """The cluster's host, None when it has ended."""
    if record.place != processes.place():
        return None
    return processes.find(*_pid(record), record.marker)


def memory_used(record: ClusterRecord) -> int | None:
    """Bytes that the cluster's workers hold, as Dask counts them, in whole MiB; None where they can't be seen.

    What the host holds itself, with the scheduler in it, counts for no worker's limit.
    """
    if record.is_over or not record.worker_pids or host_process(record) is None:
        return None
    return memory_of_children(record, record.worker_pids.__contains__) >> 20 << 20


def memory_of_children(record: ClusterRecord, counts: Callable[[int], bool]) -> int:
    """Bytes that those processes hold which the cluster's host started and whose pid counts."""
    host, held = None if record.is_over else host_process(record), 0
    if host is not None:
        with contextlib.suppress(psutil.Error):
            for process in host.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    held += process.memory_info().rss if counts(process.pid) else 0
    return held


def memory_words(record: ClusterRecord) -> str:
    """Return what its workers hold of what they may: '198 MiB of 1 GiB'."""
    used, limit = memory_used(record), formats.size(record.n_workers * record.spec.memory_limit)
    return limit if used is None else f"{formats.size(used)} of {limit}"


def end_processes(record: ClusterRecord) -> str | None:
    """Kill what is left of the cluster's processes, cancel its jobs and remove its keys; why jobs may be left, or None.

    Only a process that was on this machine is known to have ended, so of others nothing is touched.
    """
    if record.place != processes.place():
        return None
    left, known = None, of_cluster(record.spec.profile)
    host = host_process(record)
    if host is not None:
        processes.end([host])
    if known.ends_with_owner and record.called:
        try:
            finish(known.end(record.spec, record.called))
        except FailedError as err:
            left = str(err)
    pid, _ = _pid(record)
    if pid is not None:
        processes.end(processes.leftovers(pid, record.marker))
    remove_keys(record.name)
    remove_temporary()
    return left


def remove_temporary() -> None:
    """Remove the temporary folders of hosts that were killed; those of living ones are locked."""
    with contextlib.suppress(OSError):
        private.sweep(FOLDER)
        private.sweep(SPILL, dask.config.get("temporary-directory", None))


def remove_keys(name: str) -> None:
    """Remove the cluster's TLS keys, which nobody needs any more."""
    shutil.rmtree(folder(name) / "tls", ignore_errors=True)


def _folders() -> list[Path]:
    # It may be missing where nothing can be written.
    return [path.parent for path in config.data_folder().glob("clusters/*/record.json") if is_name(path.parent.name)]


def _unknown(name: str) -> str:
    existing = sorted(names())
    there = f"There are: {', '.join(existing)}." if existing else "No cluster is running. Start one: workbench up cpu"
    return f"Unknown cluster {quoted(name)}. {there}"


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """One process at a time changes what it doesn't own."""
    with config.locked(clusters_folder() / ".lock"):
        yield


def _parse(path: Path) -> ClusterRecord | None:
    """The record as it stands on disk; a made-up one that says so when it can't be read; None without one."""
    try:
        text = redact_json((path / "record.json").read_bytes()).encode()
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
    """What can be told of a cluster with a spec that this version doesn't know; None where the record is damaged."""
    try:
        told = json.loads(text)
        profile, node = told["spec"]["profile"], told.get("node")
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
        spec=ClusterSpec(n_workers=1, threads_per_worker=1, memory_limit=1, why=("The record can't be read.",)),
        status="lost",
        message=f"Its record can't be read ({reason_of(error)}). Dismiss it: workbench down {path.name}",
        created=(path / "record.json").stat().st_mtime,
        place=processes.place(),
    )


def _pid(record: ClusterRecord) -> tuple[int | None, float | None]:
    if record.pid is not None:
        return record.pid, record.pid_created
    try:
        noted = json.loads((folder(record.name) / "host.json").read_text(encoding="utf-8"))
        return int(noted["pid"]), None if noted["pid_created"] is None else float(noted["pid_created"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None, None


def _state(record: ClusterRecord) -> folders.State | None:
    """Return where its host is; None where there is none any more, or nobody can tell."""
    if record.is_over or record.status == "unknown":
        return None
    pid, pid_created = _pid(record)
    started = record.model_copy(update={"pid": pid, "pid_created": pid_created})
    return folders.state(started, folder(record.name), mark=record.marker, grace=_PROCESS_DUE)


def _far(record: ClusterRecord) -> str:
    """Return what is known of a cluster whose processes can't be seen from here. It is left as it is."""
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
    """The record at `path`, put right on disk when its host has died; None when there is none."""
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
            # Another reader may have been quicker, or the host may have ended well and taken its folder along.
            record = _parse(path)
            if record is None or _state(record) != "gone":
                return record
            return _bury(record)
    except StorageError:
        return None if record is None else _buried(record)


def _bury(record: ClusterRecord) -> ClusterRecord | None:
    if isinstance(of_cluster(record.spec.profile), Broken):
        # Who has the profile knows what there is to end.
        return _buried(record)
    left = end_processes(record)
    if left is None and of_cluster(record.spec.profile).ends_with_owner:
        record = record.model_copy(update={"called": ""})
    if record.status == "stopping" and not record.called:
        _discard(folder(record.name))
        return None
    buried = _buried(record, left)
    write(buried)
    return buried


def _buried(record: ClusterRecord, left: str | None = None) -> ClusterRecord:
    tail = log_tail(record.name)
    failed = record.status == "starting"
    message = _never_started(record, tail) if failed else _died(record, tail)
    return record.model_copy(
        update={
            "status": "failed" if failed else "lost",
            "message": " ".join(filter(None, (message, left))),
            "log_tail": tail,
            **GONE,
        }
    )


def _never_started(record: ClusterRecord, tail: tuple[str, ...]) -> str:
    last = f"It said last: {tail[-1]}" if tail else config.trouble() or "It said nothing."
    started = f" What it started elsewhere may still run. End it: workbench down {record.name}" if record.called else ""
    return f"Its process ended before the cluster was up. {last}{started}"


def _died(record: ClusterRecord, tail: tuple[str, ...]) -> str:
    crash = next((line for line in reversed(tail) if line.startswith(("Fatal Python error", CRASHED))), None)
    how = f"The process that holds the cluster {'was killed (signal 9)' if crash is None else 'crashed'}"
    known = of_cluster(record.spec.profile)
    if isinstance(known, Broken):
        return (
            f"{how}. What it started elsewhere may still run. {known.reason} Mend that and look again, or "
            f"remove its record: workbench down {record.name} --forget"
        )
    if known.attaches:
        ends = f", or end it: workbench down {record.name}" if record.ending == "stopped" else ""
        return f"{how}. What it started elsewhere may still run: look there, attach to it{ends}."
    if crash is not None:
        return f"{how}, and its workers and their data with it. Its log says why: workbench logs {record.name}"
    return (
        f"{how}, as a system does that is short of memory; its workers and their data went with it. Start the cluster "
        "again."
    )


def _sweep() -> None:
    """Remove what was left half made or half removed by processes that were killed at it."""
    for path in clusters_folder().glob(".*.*"):
        if time.time() - path.stat().st_mtime > _PROCESS_DUE:
            shutil.rmtree(path, ignore_errors=True)


def _discard(path: Path) -> None:
    """Remove the folder at once for every reader, and then its files."""
    trash = path.with_name(f".{path.name}.gone.{os.getpid()}.{time.monotonic_ns()}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)
