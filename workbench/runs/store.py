"""Where every run is kept: one SQLite file in WAL mode, and a folder for each run, in the person's data folder.

The row is the record. While a run is going on, its runner writes `progress.json` beside it a few times a second, and
every change of the row rewrites that file too: whoever watches the folder sees all that happens.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, computed_field

from workbench import config
from workbench.clusters import processes
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, NotFoundError

Status = Literal["starting", "running", "done", "failed", "cancelled", "lost"]

ACTIVE: tuple[Status, ...] = ("starting", "running")
FORMAT = 1
"""`PRAGMA user_version` of the files that this module writes."""

WATCHED = "watched"
"""Workload of a run that a notebook or script of the person's computed, while `workbench.watch` recorded it."""

_BUSY_TIMEOUT = 20.0  # seconds that a writer waits for another one
_START_GRACE = 60.0  # seconds in which a run must have got a runner
HEARTBEAT = 10.0
"""Seconds between two signs of life of a runner, for readers on other machines, who can't see its process."""
_SILENCE = 6 * HEARTBEAT
_MOST = 2**63 - 1  # what SQLite can count to


class Count(BaseModel):
    """Tasks done of all."""

    model_config = ConfigDict(frozen=True)

    done: int = 0
    total: int = 0


class Progress(Count):
    """Tasks done of all, or of what else is counted, together and by kind."""

    unit: Literal["tasks", "measurements"] = "tasks"
    by_name: dict[str, Count] = {}
    stage: Literal["building", "computing", "checking"] | None = None
    """What a run that goes on is doing; None before and after."""


class Check(BaseModel):
    """Whether the answer was found right, and how that was tested."""

    model_config = ConfigDict(frozen=True)

    passed: bool
    what: str


class Step(BaseModel):
    """Blocks that the tasks of one name made, and those of them that lay on a GPU."""

    model_config = ConfigDict(frozen=True)

    name: str
    blocks: int
    on_gpu: int
    bytes: int
    bytes_on_gpu: int


class OnGpu(BaseModel):
    """Where the blocks of a run lay, found from their types on the workers."""

    model_config = ConfigDict(frozen=True)

    blocks: int
    on_gpu: int
    bytes: int
    bytes_on_gpu: int
    share: float | None
    """Of the blocks; None where there were none."""
    share_of_bytes: float | None
    steps: tuple[Step, ...] = ()
    """In the order in which they began."""
    devices: dict[str, int] = {}
    """Blocks on each device, by its UUID."""
    sentence: str
    warning: str | None = None
    """The first step in which data fell back to NumPy."""


class Energy(BaseModel):
    """Electricity of GPUs, as `monitor.energy` adds it up."""

    model_config = ConfigDict(frozen=True)

    joules: float
    seconds: float
    n_gpus: int
    n_unknown: int = 0
    source: Literal["counters", "power", "counters and power"]
    """The GPUs' own counters, or their power over time where there is no counter."""

    def text(self) -> str:
        """Such as '12.3 kJ by 8 GPUs in 9.8 s, by their own counters'."""
        size = f"{self.joules / 1000:.3g} kJ" if self.joules >= 1000 else f"{self.joules:.3g} J"
        gpus = "1 GPU" if self.n_gpus == 1 else f"{self.n_gpus} GPUs"
        how = {"counters": "own counters", "power": "power over time"}.get(self.source, "own counters or power")
        unknown = f"; {self.n_unknown} more tell nothing" if self.n_unknown else ""
        return f"{size} by {gpus} in {self.seconds:.3g} s, by their {how}{unknown}"


class Suggestion(BaseModel):
    """One cause of a run's slowness, and one change to try."""

    model_config = ConfigDict(frozen=True)

    rule: str
    share: float
    """Of the workers' time: at most this much can be won."""
    found: str
    """What was found, with its number."""
    change: str


class Diagnosis(BaseModel):
    """Where the time of a run's workers went, as `runs.explaining.diagnosis` finds it."""

    model_config = ConfigDict(frozen=True)

    seconds: float
    threads: int
    workers: int
    shares: dict[str, float]
    """Of the time of all threads, by `runs.explaining.shares.SHARES`; they add up to 1."""
    sentence: str
    suggestions: tuple[Suggestion, ...] = ()
    """The largest share first."""
    source: Literal["spans and events", "events"]
    """Without spans, serialising and the disk are not told from transferring and computing."""


class Imported(BaseModel):
    """Where a run came from that was taken in with `workbench import`."""

    model_config = ConfigDict(frozen=True)

    machine: str
    """Name of the host it ran on."""
    at: float
    """When it was taken in (seconds since the epoch)."""


class Run(BaseModel):
    """One workload on one cluster, from the request to the answer. Frozen, JSON both ways."""

    # Columns of a later version are ignored: two environments may share one data folder.
    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    workload: str
    parameters: dict[str, Any] = {}
    """As they were given."""
    resolved: dict[str, Any] = {}
    """As the workload's function got them."""
    notes: tuple[str, ...] = ()
    status: Status = "starting"
    cluster: str
    spec: ClusterSpec | None = None
    inventory: dict[str, Any] | None = None
    versions: dict[str, str] = {}
    created: float = 0.0
    started: float | None = None
    """When the runner began to build the graph (seconds since the epoch)."""
    stopped: float | None = None
    seconds: float | None = None
    """Time to build the graph and compute it; neither the start of a process nor the check is in it."""
    bytes: int | None = None
    bytes_per_second: float | None = None
    result: dict[str, Any] | None = None
    check: Check | None = None
    error: str | None = None
    progress: Progress = Progress()
    needs: dict[str, Any] | None = None
    energy: Energy | None = None
    """What all GPUs of the cluster took from the run's beginning to its end; None without GPUs that tell."""
    on_gpu: OnGpu | None = None
    """None for a run on a cluster without GPUs."""
    diagnosis: Diagnosis | None = None
    """Where its time went; it comes a moment after the answer."""
    forecast: dict[str, Any] | None = None
    """What was forecast before it began: verdict, seconds from low to high, memory, and the price of an hour."""
    imported: Imported | None = None
    """None for a run that was made here."""
    pid: int | None = None
    pid_created: float | None = None
    place: str = ""
    """Boot and pid namespace in which the pid counts, see `clusters.processes.place`."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost(self) -> float | None:
        """What its time cost at the price of an hour when it began; None without a price."""
        price = (self.forecast or {}).get("price_per_hour")
        return None if price is None or self.seconds is None else float(price) * self.seconds / 3600

    @property
    def active(self) -> bool:
        """Whether it is still going on."""
        return self.status in ACTIVE


_JSON_COLUMNS = (
    "parameters",
    "resolved",
    "notes",
    "spec",
    "inventory",
    "versions",
    "result",
    "check",
    "progress",
    "needs",
    "energy",
    "on_gpu",
    "diagnosis",
    "forecast",
    "imported",
)
_COLUMNS = tuple(Run.model_fields)
_SCHEMA = """
CREATE TABLE run (
    "id" TEXT PRIMARY KEY,
    "workload" TEXT NOT NULL,
    "parameters" TEXT NOT NULL,
    "resolved" TEXT NOT NULL,
    "notes" TEXT NOT NULL,
    "status" TEXT NOT NULL,
    "cluster" TEXT NOT NULL,
    "spec" TEXT,
    "inventory" TEXT,
    "versions" TEXT NOT NULL,
    "created" REAL NOT NULL,
    "started" REAL,
    "stopped" REAL,
    "seconds" REAL,
    "bytes" INTEGER,
    "bytes_per_second" REAL,
    "result" TEXT,
    "check" TEXT,
    "error" TEXT,
    "progress" TEXT NOT NULL,
    "needs" TEXT,
    "energy" TEXT,
    "on_gpu" TEXT,
    "diagnosis" TEXT,
    "forecast" TEXT,
    "imported" TEXT,
    "pid" INTEGER,
    "pid_created" REAL,
    "place" TEXT NOT NULL
) STRICT;
CREATE INDEX run_created ON run (created);
CREATE INDEX run_workload ON run (workload, created);
CREATE INDEX run_status ON run (status, created);
"""

_LATER_COLUMNS = {"forecast", "on_gpu", "energy", "diagnosis", "imported"}
"""Columns that files of this format may lack; they may be empty, and an older version passes over them."""


def folder(run_id: str) -> Path:
    """Folder of this run: progress.json, log.txt, events.parquet."""
    if not run_id or run_id != Path(run_id).name or run_id.startswith("."):
        raise BadInputError(f"'{run_id}' is not the id of a run. See: workbench runs")
    return config.data_folder() / "runs" / run_id


def new_id(workload: str) -> str:
    """Id that isn't taken, such as 'array_sum-3fa29c'."""
    return f"{workload}-{secrets.token_hex(3)}"


def create(run: Run) -> Run:
    """Keep a new run. Raises ConflictError when the id is taken."""
    names = ", ".join(f'"{name}"' for name in _COLUMNS)
    with _database() as database:
        try:
            database.execute(
                f"INSERT INTO run ({names}) VALUES ({', '.join('?' * len(_COLUMNS))})",
                _values(run, _COLUMNS),
            )
        except sqlite3.IntegrityError as err:
            raise ConflictError(f"There is a run {run.id} already.") from err
    folder(run.id).mkdir(parents=True, exist_ok=True, mode=0o700)
    _announce(run)
    return run


def update(run_id: str, *, only_if: Sequence[Status] | None = None, **changes: Any) -> Run:
    """Change columns of a run and return it as it is then.

    Parameters
    ----------
    only_if
        Change it only while its status is one of these: how two processes agree on who ends a run.
    """
    changed = Run.model_validate({"id": run_id, "workload": "", "cluster": "", **changes})
    columns = tuple(changes)
    assignments = ", ".join(f'"{name}" = ?' for name in columns)
    allowed = tuple(only_if) if only_if is not None else ("starting", "running", "done", "failed", "cancelled", "lost")
    with _database() as database:
        database.execute(
            f"UPDATE run SET {assignments} WHERE id = ? AND status IN ({', '.join('?' * len(allowed))})",
            (*_values(changed, columns), run_id, *allowed),
        )
        run = _one(database, run_id)
    _announce(run)
    return run


def claim(run_id: str, pid: int, created: float) -> Run | None:
    """Make a process the runner of a run that is starting; None where another one is, or it was called off."""
    with _database() as database:
        taken = database.execute(
            "UPDATE run SET pid = ?, pid_created = ? WHERE id = ? AND status = 'starting' AND (pid IS NULL OR pid = ?)",
            (pid, created, run_id, pid),
        )
        return _one(database, run_id) if taken.rowcount == 1 else None


def get(run_id: str) -> Run:
    """Run of this id, told truthfully: one whose runner died is lost. NotFoundError names the latest runs."""
    with _database() as database:
        run = _one(database, run_id)
    return _settle(run)


def select(
    *,
    limit: int | None = 50,
    offset: int = 0,
    workload: str | None = None,
    status: str | None = None,
    cluster: str | None = None,
    since: float | None = None,
) -> tuple[Run, ...]:
    """Return the runs that match, the newest first, from that on which comes after `offset` others."""
    if limit is not None and not 1 <= limit <= _MOST:
        raise BadInputError(f"limit: given {limit}, allowed are whole numbers from 1 to {_MOST}.")
    if not 0 <= offset <= _MOST:
        raise BadInputError(f"offset: given {offset}, allowed are whole numbers from 0 to {_MOST}.")
    where, values = _condition(workload=workload, status=status, cluster=cluster, since=since)
    # What has died since is told first, so that the filter is about the truth.
    settle()
    with _database() as database:
        rows = database.execute(
            f"SELECT * FROM run {where} ORDER BY created DESC, rowid DESC LIMIT ? OFFSET ?",
            (*values, -1 if limit is None else limit, offset),
        ).fetchall()
    return tuple(_overlay(_run(row)) for row in rows)


def count(*, workload: str | None = None, status: str | None = None) -> int:
    """How many runs match."""
    where, values = _condition(workload=workload, status=status)
    with _database() as database:
        (found,) = database.execute(f"SELECT COUNT(*) FROM run {where}", values).fetchone()
    return int(found)


def _condition(
    *, workload: str | None, status: str | None, cluster: str | None = None, since: float | None = None
) -> tuple[str, tuple[Any, ...]]:
    if status is not None and status not in (*ACTIVE, "done", "failed", "cancelled", "lost"):
        raise BadInputError(
            f"status: given '{status}', allowed are starting, running, done, failed, cancelled and lost."
        )
    asked = {"workload = ?": workload, "status = ?": status, "cluster = ?": cluster, "created >= ?": since}
    conditions = {text: value for text, value in asked.items() if value is not None}
    return f"WHERE {' AND '.join(conditions)}" if conditions else "", tuple(conditions.values())


def find(text: str) -> Run:
    """Run of this id, or of the only id that begins or ends with `text`, or the latest one for 'last'."""
    if text == "last":
        latest = select(limit=1)
        if not latest:
            raise NotFoundError("There is no run yet. Start one with: workbench run WORKLOAD --on cpu")
        return latest[0]
    with _database() as database:
        ids = [row["id"] for row in database.execute("SELECT id FROM run ORDER BY created DESC")]
    matches = [run_id for run_id in ids if run_id == text] or [
        run_id for run_id in ids if run_id.startswith(text) or run_id.endswith(text)
    ]
    if len(matches) > 1:
        raise BadInputError(f"'{text}' fits {len(matches)} runs: {_names(matches)}. Give more of the id.")
    return get(matches[0] if matches else text)


def delete(run_id: str) -> None:
    """Forget a run and remove its folder. Raises ConflictError while it is going on."""
    run = get(run_id)
    if run.active:
        raise ConflictError(f"The run {run_id} is still {run.status}. Cancel it first: workbench cancel {run_id}")
    with _database() as database:
        database.execute("DELETE FROM run WHERE id = ?", (run_id,))
    shutil.rmtree(folder(run_id), ignore_errors=True)


def settle() -> tuple[str, ...]:
    """Tell the truth about runs whose runner died; ids of those that changed."""
    if not (config.data_folder() / "runs.db").exists():
        return ()
    with _database() as database:
        rows = database.execute(
            f"SELECT * FROM run WHERE status IN ({', '.join('?' * len(ACTIVE))})",
            ACTIVE,
        ).fetchall()
    runs = [_run(row) for row in rows]
    return tuple(run.id for run in runs if _settle(run).status != run.status)


def alive(run: Run) -> bool:
    """Whether the run's own process is there; a pid alone may have been given to another one since."""
    return run.pid is not None and processes.lives(run.pid, run.pid_created)


def write_progress(run: Run, progress: Progress) -> None:
    """Write how far a run is that goes on, for whoever watches."""
    _announce(run.model_copy(update={"progress": progress}))


def give_sign_of_life(run_id: str) -> None:
    """Let readers on other machines know that the runner is there."""
    with contextlib.suppress(FileNotFoundError):
        (folder(run_id) / "heartbeat").touch()


def cancel_requested(run_id: str) -> bool:
    """Whether somebody asked for this run to end."""
    return (folder(run_id) / "cancel").exists()


def _settle(run: Run) -> Run:
    if not run.active:
        return run
    run = _overlay(run)
    if _may_live(run):
        return run
    status, sentence = _epitaph(run)
    # A runner that ended well has written its last status before it was gone: then this changes nothing.
    return update(run.id, only_if=ACTIVE, status=status, error=sentence, stopped=time.time(), progress=run.progress)


def _may_live(run: Run) -> bool:
    if run.pid is None:
        return time.time() - run.created < _START_GRACE
    if run.place == processes.place():
        return alive(run)
    # Elsewhere, or before this machine was started again: only the signs of life tell.
    return time.time() - _last_sign(run) < _SILENCE


def _last_sign(run: Run) -> float:
    try:
        return (folder(run.id) / "heartbeat").stat().st_mtime
    except OSError:
        return run.created


def _epitaph(run: Run) -> tuple[Status, str]:
    if cancel_requested(run.id):
        return "cancelled", "Cancelled before it began to compute."
    if run.pid is None:
        return "lost", "Its runner process never started. The program that asked for the run was ended too early."
    if run.status == "starting":
        return "lost", (
            f"Its runner process (pid {run.pid}) ended before it began. Its log may say why: "
            f"workbench show {run.id} --log"
        )
    done = f" after {run.progress.done} of {run.progress.total} {run.progress.unit}" if run.progress.total else ""
    return "lost", (
        f"Its runner process (pid {run.pid}) was ended from outside{done}: killed, short of memory, or the machine "
        "went down. Nothing was computed further; run it again."
    )


def _overlay(run: Run) -> Run:
    """`run` with the progress that its runner wrote beside the row."""
    if not run.active:
        return run
    try:
        told = json.loads((folder(run.id) / "progress.json").read_text())
        return run.model_copy(update={"progress": Progress.model_validate(told["progress"])})
    except (OSError, ValueError, KeyError):
        return run


def _announce(run: Run) -> None:
    told = run.model_dump(mode="json", include={"id", "status", "progress"})
    # A run that was deleted meanwhile has no folder any more, and nobody to tell.
    with contextlib.suppress(FileNotFoundError):
        config.write_atomically(folder(run.id) / "progress.json", json.dumps(told))


@contextlib.contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    path = config.data_folder() / "runs.db"
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT)) as database:
            database.row_factory = sqlite3.Row
            # In WAL mode this keeps the file whole through a crash; the last change may be lost with the power.
            database.execute("PRAGMA synchronous = NORMAL")
            _prepare(database, path)
            with database:
                yield database
    except sqlite3.IntegrityError:
        raise
    except sqlite3.Error as err:
        raise ConflictError(
            f"The record of runs {path} can't be used ({err}). Move it away, or set workbench.data-folder to another "
            "folder."
        ) from err


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise ConflictError(
            f"The record of runs {path} was written by a newer dask-workbench (format {version}, this one reads up to "
            f"{FORMAT}). Update dask-workbench, or set workbench.data-folder to another folder."
        )
    if version == FORMAT:
        _complete(database)
        return
    path.chmod(0o600)
    database.execute("PRAGMA journal_mode=WAL")
    with database:
        database.execute("BEGIN IMMEDIATE")
        # Another process may have been here between the question and the lock.
        if database.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {FORMAT}")


def _complete(database: sqlite3.Connection) -> None:
    """Add the columns that came later."""
    if not _missing(database):
        return
    with database:
        database.execute("BEGIN IMMEDIATE")
        # Another process may have been here between the question and the lock.
        for name in _missing(database):
            database.execute(f'ALTER TABLE run ADD COLUMN "{name}" TEXT')


def _missing(database: sqlite3.Connection) -> set[str]:
    return _LATER_COLUMNS - {row["name"] for row in database.execute("PRAGMA table_info(run)")}


def _one(database: sqlite3.Connection, run_id: str) -> Run:
    row = database.execute("SELECT * FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        latest = [item["id"] for item in database.execute("SELECT id FROM run ORDER BY created DESC LIMIT 5")]
        known = f"The latest are {_names(latest)}." if latest else "There is none yet."
        raise NotFoundError(f"There is no run '{run_id}'. {known}")
    return _run(row)


def _run(row: sqlite3.Row) -> Run:
    parts = (
        f'"{name}": {row[name]}' if name in _JSON_COLUMNS else f'"{name}": {json.dumps(row[name])}'
        for name in _COLUMNS
        if row[name] is not None
    )
    return Run.model_validate_json("{" + ", ".join(parts) + "}")


def _values(run: Run, columns: Sequence[str]) -> tuple[Any, ...]:
    told = run.model_dump(mode="json", include=set(columns))
    return tuple(
        json.dumps(told[name]) if name in _JSON_COLUMNS and told[name] is not None else told[name] for name in columns
    )


def _names(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:5])
    return f"{shown}, …" if len(ids) > 5 else shown
