"""Where every run is kept: one SQLite file in WAL mode, and a folder for each run, in the person's data folder.

The row is the record. While a run is going on, its runner writes `progress.json` beside it a few times a second, and
every change of the row rewrites that file too: whoever watches the folder sees all that happens. What a runner finds
is in `answer.json` until it is in the row, so that a database that is locked, or a disk that is full, loses no answer.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, Unpack, get_args

from pydantic import BaseModel, Field, ValidationError, computed_field

from workbench import config, formats
from workbench.clusters.spec import ClusterSpec
from workbench.errors import (
    BadInputError,
    ConflictError,
    FailedError,
    NotFoundError,
    StorageError,
    WorkbenchError,
    quoted,
    reason_of,
)
from workbench.jobs import folders
from workbench.jobs.folders import ACTIVE, Lasting, Status
from workbench.monitor.energy import Energy
from workbench.redaction import redact_json
from workbench.runs.answers import FILE, Answers, Arrays, arrays, dataset
from workbench.runs.parts import Result
from workbench.runs.statistics import speed
from workbench.workloads.values import Check, Function

FORMAT = 2
"""`PRAGMA user_version` of the files that this module writes."""

SIMULATED = "SIMULATED · "
"""Stands before what comes of GPUs that are simulated."""
ON_SIMULATED = " · SIMULATED GPUs"
"""Stands behind the title of what is drawn of them."""

WATCHED = "watched"
"""Workload of a run that a notebook or script of the person's computed, while `workbench.watch` recorded it."""

_BUSY_TIMEOUT = 5.0  # seconds that a writer waits for another one
_MOST = 2**63 - 1  # what SQLite can count to

Number = Annotated[int, Field(ge=0, le=_MOST)]
Pid = Annotated[int, Field(gt=0, lt=2**31)]
"""Of one process: 0 and -1 mean a group of them, or all, to whoever sends a signal."""
Moment = Annotated[float, Field(ge=0, le=2e11)]
"""Seconds since the epoch, in years that a calendar knows."""


class Count(BaseModel, frozen=True):
    """Tasks done of all."""

    done: Number = 0
    total: Number = 0


class Progress(Count):
    """Tasks done of all, together and by kind."""

    by_name: dict[str, Count] = {}
    stage: Literal["building", "computing", "saving", "checking"] | None = None
    """What a run that goes on is doing; None before and after."""
    more: bool = False
    """Whether more tasks come than are known, so that a bar of these would go backwards."""
    passes: Number = 0
    """Passes over the array that have begun, where their tasks tell."""
    waits: str | None = None
    """Why nothing goes on, in a sentence, where that is known."""

    def after(self, before: Progress) -> Progress:
        """The same, told whether more tasks came since `before`."""
        kinds = ((count, before.by_name.get(name, Count())) for name, count in self.by_name.items())
        fell = any(now.done * then.total < then.done * now.total for now, then in ((self, before), *kinds))
        return self.model_copy(update={"more": before.more or fell})

    def finished(self) -> Progress:
        """The same of a computation that is known to have ended well, whenever it was last counted."""
        by_name = {name: Count(done=count.total, total=count.total) for name, count in self.by_name.items()}
        return self.model_copy(update={"done": self.total, "by_name": by_name, "more": False})

    def words(self) -> str:
        """How far it is: '303 of 312 tasks', or where more tasks come, 'pass 4: 572 tasks done, more come'."""
        if not self.more:
            return f"{formats.count(self.done)} of {formats.count(self.total, 'task')}"
        begun = f"pass {self.passes}: " if self.passes else ""
        return f"{begun}{formats.count(self.done, 'task')} done, more come"


class Blocks(BaseModel, frozen=True):
    """Blocks, and those of them that lay on a GPU."""

    blocks: int
    on_gpu: int
    bytes: int
    bytes_on_gpu: int


class Step(Blocks, frozen=True):
    """Those that the tasks of one name made."""

    name: str


class OnGpu(Blocks, frozen=True):
    """Where the blocks of a run lay, found from their types on the workers."""

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


class Suggestion(BaseModel, frozen=True):
    """One cause of a run's slowness, and one change to try."""

    rule: str
    share: float
    """Of the workers' time: at most this much can be won."""
    found: str
    """What was found, with its number."""
    change: str


class Peak(BaseModel, frozen=True):
    """The most that a worker held of its memory while a run went on."""

    worker: str
    """Its name."""
    task: str
    """What it computed then."""
    bytes: Number
    limit: Number
    """0 where it has none."""

    @property
    def share(self) -> float:
        """Of the limit; 0 without one."""
        return self.bytes / self.limit if self.limit else 0.0

    def text(self) -> str:
        """Such as "782 MiB of 1 GiB (76 %) by worker 0, in 'sum'"."""
        of = f" of {formats.size(self.limit)} ({100 * self.share:.0f} %)" if self.limit else ""
        return f"{formats.size(self.bytes)}{of} by worker {self.worker}, in '{self.task}'"


class Diagnosis(BaseModel, frozen=True):
    """Where the time of a run's workers went, as `runs.explaining.diagnosis` finds it."""

    seconds: float
    threads: int
    workers: int
    shares: dict[str, float]
    """Of the time of all threads, by `runs.explaining.shares.SHARES`; they add up to 1."""
    sentence: str
    suggestions: tuple[Suggestion, ...] = ()
    """The largest share first."""
    peak: Peak | None = None
    """None where no worker said what it held, as in records of older versions."""


class Figure(BaseModel, frozen=True):
    """Seconds, from low to high, that a text gives for its experiment on one machine."""

    machine: str
    seconds: tuple[float, float]

    def words(self) -> str:
        """Such as '10 s to 15 s on sixteen V100'."""
        return f"{' to '.join(dict.fromkeys(map(formats.duration, self.seconds)))} on {self.machine}"


class Text(BaseModel, frozen=True):
    """What the text says of whose experiment a run is a repetition, and in what the run differs."""

    source: str
    figures: tuple[Figure, ...] = ()
    """Empty where the text gives no time."""
    differs: tuple[str, ...] = ()

    def beside(self, here: str = "") -> str:
        """Its figures, then what was measured here, and in what that differs."""
        told = ", ".join(figure.words() for figure in self.figures) or "gives no time"
        differs = f" Here differ: {'; '.join(self.differs)}." if self.differs else ""
        return f"{self.source}: {told}{here}.{differs}"


class Imported(BaseModel, frozen=True):
    """Where a run came from that was taken in with `workbench import`."""

    machine: str
    """Name of the host it ran on."""
    at: float
    """When it was taken in (seconds since the epoch)."""


class Marks(BaseModel, frozen=True):
    """What a person wrote on a run."""

    name: Annotated[str, Field(max_length=200)] = ""
    note: Annotated[str, Field(max_length=10_000)] = ""
    star: bool = False


class Run(Lasting, frozen=True):
    """One workload on one cluster, from the request to the answer."""

    id: str
    workload: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    """As they were given."""
    resolved: dict[str, Any] = Field(default_factory=dict)
    """As the workload's function got them."""
    notes: tuple[str, ...] = ()
    save: str | None = None
    """Path or URL that the arrays of its answer are saved to."""
    replace: bool = False
    """Whether what is there may be replaced."""
    files: dict[str, str] = Field(default_factory=dict)
    """State of each file that it reads when it was submitted, by parameter."""
    cluster: str
    spec: ClusterSpec | None = None
    inventory: dict[str, Any] | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    created: Moment = 0.0
    started: Moment | None = None
    """When the runner began to build the graph (seconds since the epoch)."""
    stopped: Moment | None = None
    seconds: Annotated[float, Field(ge=0, le=2e11)] | None = None
    """Time to build the graph and compute it; neither the start of a process nor the check is in it."""
    bytes: Number | None = None
    """Size of the array, however often it was gone through."""
    result: Result | None = None
    check: Check | None = None
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
    preset: str | None = None
    """Name of the text's experiment, or of the preset of one's own, whose parameters it began from."""
    text: Text | None = None
    measurement: bool = False
    """Whether it ran only so that forecasts know the hardware, with a part of a workload."""
    settings: dict[str, Any] | None = None
    """Settings of Dask that it was computed with beside those that held anyway."""
    function: Function | None = None
    """The person's function that it is a run of; None for a workload of ours."""
    marks: Marks | None = None
    """Name, note and star that a person gave it later."""
    answers: Answers | None = None
    """The arrays of its answer, and where they lie; None where it has none."""
    pid: Pid | None = None
    pid_created: Moment | None = None

    def __repr__(self) -> str:
        took = "" if self.seconds is None else f" in {formats.duration(self.seconds)}"
        checked = self.check and f", check {'passed' if self.check.passed else 'failed'}"
        said = f"{self.workload} on {self.cluster}, {self.status}{took}{checked or ''}"
        return f"<Run {self.id}: {said}{f': {self.error}' if self.error else ''}>"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bytes_per_second(self) -> float | None:
        """Speed, from the size of the array and the time."""
        return speed(self.bytes, self.seconds)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost(self) -> float | None:
        """What its time cost at the price of an hour when it began; None without a price."""
        price = (self.forecast or {}).get("price_per_hour")
        return None if price is None or self.seconds is None else float(price) * self.seconds / 3600

    @computed_field  # type: ignore[prop-decorator]
    @property
    def title(self) -> str:
        """What a person called it, then or later, else its workload."""
        if self.marks and self.marks.name:
            return self.marks.name
        if self.measurement:
            return f"{self.workload} (measurement)"
        name = self.parameters.get("name") if self.workload == WATCHED else None
        return name if isinstance(name, str) and name else self.workload

    @computed_field  # type: ignore[prop-decorator]
    @property
    def beside_text(self) -> str | None:
        """The text's figures beside its own time, with what differs; None where it repeats no text's experiment."""
        took = "an unknown time" if self.seconds is None else formats.duration(self.seconds)
        here = f"; here: {took} on {self._processors}" if self.status == "done" else ""
        return None if self.text is None else self.text.beside(here)

    @property
    def _processors(self) -> str:
        if self.spec is None:
            return "this machine"
        number, what = (len(self.spec.devices), "GPU") if self.spec.devices else (self.spec.threads, "CPU thread")
        return formats.count(number, what)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def simulated(self) -> bool:
        """Whether its GPUs were simulated, as its machine told: then neither time nor answer is one of a GPU."""
        return on_simulated(self.spec, self.inventory)

    @property
    def arrays(self) -> Arrays:
        """Arrays of its answer by name, as Dask arrays that are read when they are computed."""
        return arrays(self)

    @property
    def dataset(self) -> Any:
        """Its arrays as an `xarray.Dataset`, with certificate, parameters and versions as attributes."""
        return dataset(self)


def on_simulated(spec: ClusterSpec | None, inventory: Mapping[str, Any] | None) -> bool:
    """Whether a cluster had GPUs that are simulated, as its machine told: no GPU computed there."""
    names = [gpu["name"] or "" for gpu in (inventory or {}).get("gpus") or ()]
    return spec is not None and bool(spec.devices) and any("SIMULATED" in name for name in names)


def answered(workload: str, result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What a run answered: what was watched may have kept nothing, but only how many tasks there were."""
    if workload != WATCHED or result is None:
        return result
    return {name: value for name, value in result.items() if name not in ("tasks", "tasks_of_others")} or None


_SQLITE = (3, 37)
"""The first that knows STRICT tables."""

_SCHEMA = """
CREATE TABLE run (
    record TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE AS (json_extract(record, '$.id')) STORED,
    workload TEXT NOT NULL AS (json_extract(record, '$.workload')) STORED,
    cluster TEXT NOT NULL AS (json_extract(record, '$.cluster')) STORED,
    status TEXT NOT NULL AS (json_extract(record, '$.status')) STORED,
    created REAL NOT NULL AS (json_extract(record, '$.created')) STORED,
    kept INTEGER AS (json_extract(record, '$.answers.kept_bytes')) STORED,
    star INTEGER AS (json_extract(record, '$.marks.star')) STORED,
    text TEXT AS (lower(
        id || ' ' || workload || ' ' || cluster || ' ' || json_extract(record, '$.parameters') || ' '
        || coalesce(json_extract(record, '$.marks'), '')
    )) STORED
) STRICT;
CREATE INDEX run_created ON run (created);
CREATE INDEX run_workload ON run (workload, created);
CREATE INDEX run_status ON run (status, created)
"""
"""A run is a JSON object; what is looked for stands in columns of its own."""


def folder(run_id: str) -> Path:
    """Folder of this run: progress.json, log.txt, events.parquet."""
    if not folders.is_id(run_id):
        raise BadInputError(f"'{run_id}' is not the id of a run. See: workbench runs")
    return config.data_folder() / "runs" / run_id


def name_of(workload: str) -> str:
    """Name of a workload in ids and of files: of `mine.py:total` its last part; 'run' where that can't be one."""
    name = workload.rpartition(":")[2]
    return name if re.fullmatch(r"\w[\w.-]{0,99}", name) else "run"


def create(run: Run) -> Run:
    """Keep a new run. Raises ConflictError when the id is taken."""
    with config.writing(folder(run.id)):
        folder(run.id).mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with _database() as database:
            told = redact_json(run.model_dump_json(include=set(Run.model_fields)))
            database.execute("INSERT INTO run (record) VALUES (?)", (told,))
    except sqlite3.IntegrityError as err:
        raise ConflictError(f"There is a run {run.id} already.") from err
    except WorkbenchError:
        with contextlib.suppress(OSError):  # of one that isn't empty
            folder(run.id).rmdir()
        raise
    _announce(run)
    return run


_held: dict[str, dict[str, Any]] = {}
"""Changes of runs that this process computes which aren't in the database yet."""


def keep(run_id: str, *, patience: float = 0.0, **changes: Any) -> bool:
    """Change columns of a run that this process computes, now or as soon as it can be done; whether they are written.

    They are written into the run's folder, and from there into the database by this process or by whoever reads the
    run after its end. Where neither can be written within `patience` seconds, they are held, and tried again with the
    next change.
    """
    held = _held.setdefault(run_id, {})
    held |= changes
    with contextlib.suppress(StorageError):
        config.patiently(lambda: _leave(run_id, held), patience)
        return True
    return False


def _leave(run_id: str, changes: dict[str, Any]) -> None:
    left = False
    # Somebody may have deleted the run and its folder: the database tells.
    with contextlib.suppress(StorageError, FileNotFoundError):
        config.write_atomically(folder(run_id) / "answer.json", json.dumps({"changes": _told(changes)}))
        left = True
    try:
        _take_in(run_id, changes)
    except StorageError:
        if not left:
            raise


# A run that was given up, while its runner was silent, is done all the same when that finishes.
_RUNNERS: tuple[Status, ...] = (*ACTIVE, "lost")


def _take_in(run_id: str, changes: dict[str, Any], only_if: Sequence[Status] = _RUNNERS) -> Run:
    run = update(run_id, only_if=only_if, **changes)
    _held.pop(run_id, None)
    with contextlib.suppress(OSError):
        (folder(run_id) / "answer.json").unlink(missing_ok=True)
    return run


def _answer(run_id: str) -> dict[str, Any]:
    """What its runner found that isn't in the database."""
    if run_id in _held:
        return _held[run_id]
    try:
        found: dict[str, Any] = json.loads((folder(run_id) / "answer.json").read_bytes())["changes"]
        _changed(run_id, found)
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return found


def update(run_id: str, *, only_if: Sequence[Status] | None = None, **changes: Any) -> Run:
    """Change columns of a run and return it as it is then.

    Given `only_if` it is changed only while its status is one of these: how two processes agree on who ends a run.
    """
    told = _told(changes)
    fields = "".join(f", '$.{name}', json(?)" for name in told)
    allowed = get_args(Status) if only_if is None else tuple(only_if)
    with _database() as database:
        database.execute(
            f"UPDATE run SET record = json_set(record{fields}) "
            f"WHERE id = ? AND status IN ({', '.join('?' * len(allowed))})",
            (*map(json.dumps, told.values()), run_id, *allowed),
        )
        run = _one(database, run_id)
    _announce(run)
    return run


def claim(run_id: str, pid: int, pid_created: float) -> Run | None:
    """Make a process the runner of a run that is starting; None where another one is, or it was called off."""
    with _database() as database:
        taken = database.execute(
            "UPDATE run SET record = json_set(record, '$.pid', ?, '$.pid_created', ?) WHERE id = ? "
            "AND status = 'starting' AND coalesce(json_extract(record, '$.pid'), ?) = ?",
            (pid, pid_created, run_id, pid, pid),
        )
        return _one(database, run_id) if taken.rowcount == 1 else None


def get(run_id: str) -> Run:
    """Run of this id, told truthfully: one whose runner died is lost. NotFoundError names the latest runs."""
    # Before the row: its runner changes that first, and then takes away what it has left in the folder.
    left = _answer(run_id)
    with _database(reading=True) as database:
        run = _one(database, run_id)
    return _settle(run, left)


class Wanted(TypedDict, total=False):
    """Which runs are meant; what is None or left out doesn't matter."""

    workload: str | None
    status: str | None
    cluster: str | None
    since: float | None
    until: float | None
    """Runs that were made from the first second to just before the second."""
    text: str | None
    """Looked for in ids, workloads, clusters, parameters, names and notes."""


def select(*, limit: int | None = 50, offset: int = 0, **wanted: Unpack[Wanted]) -> tuple[Run, ...]:
    """Return the runs that match, the newest first, from that on which comes after `offset` others."""
    if limit is not None and not 1 <= limit <= _MOST:
        raise BadInputError(f"limit: given {limit}, allowed are whole numbers from 1 to {_MOST}.")
    if not 0 <= offset <= _MOST:
        raise BadInputError(f"offset: given {offset}, allowed are whole numbers from 0 to {_MOST}.")
    where, values = _condition(wanted)
    # What has died since is told first, so that the filter is about the truth.
    settle()
    with _database(reading=True) as database:
        rows = database.execute(
            f"SELECT * FROM run {where} ORDER BY created DESC, rowid DESC LIMIT ? OFFSET ?",
            (*values, -1 if limit is None else limit, offset),
        ).fetchall()
    return tuple(_settle(_run(row)) for row in rows)


def count(**wanted: Unpack[Wanted]) -> int:
    """How many runs match."""
    where, values = _condition(wanted)
    with _database(reading=True) as database:
        (found,) = database.execute(f"SELECT COUNT(*) FROM run {where}", values).fetchone()
    return int(found)


def kept_answers() -> tuple[tuple[str, int, bool], ...]:
    """Id, bytes of the arrays that are kept, and whether it has a star, of each run that keeps some; the oldest first.

    Runs that go on are left out.
    """
    ended = f"status NOT IN ({', '.join('?' * len(ACTIVE))})"
    with _database(reading=True) as database:
        rows = database.execute(
            f"SELECT id, kept, star FROM run WHERE kept > 0 AND {ended} ORDER BY created", ACTIVE
        ).fetchall()
    return tuple((row["id"], row["kept"], bool(row["star"])) for row in rows)


class Room(NamedTuple):
    """What the arrays that are kept take together."""

    used: int
    most: int
    next: tuple[str, ...]
    """Runs whose arrays are dropped next, the oldest first, where less than a tenth is left."""

    def words(self) -> str:
        """Such as '9.1 of 10 GiB', and what goes next."""
        told = f"Arrays kept with runs take {formats.size(self.used)} of {formats.size(self.most)}."
        if not self.next:
            return told
        return f"{told} Dropped next are those of {', '.join(self.next)}; a star on a run keeps its own."


def room() -> Room:
    """What the arrays that are kept with runs take, of how much, and which would be dropped next."""
    most = config.size("answers.all")
    kept = kept_answers()
    used = sum(size for _, size, _ in kept)
    return Room(used, most, _oldest(kept, used - most + most // 10))


def make_room(n_bytes: int) -> tuple[str, ...]:
    """Drop the arrays of the oldest runs without a star until so many bytes fit; ids of those runs."""
    kept = kept_answers()
    dropped = _oldest(kept, sum(size for _, size, _ in kept) + n_bytes - config.size("answers.all"))
    for run_id in dropped:
        drop(run_id)
    return dropped


def _oldest(kept: Sequence[tuple[str, int, bool]], needed: int) -> tuple[str, ...]:
    """Ids of the oldest without a star that hold so many bytes together."""
    chosen = []
    for run_id, size, star in kept:
        if needed <= 0:
            break
        if not star:
            chosen.append(run_id)
            needed -= size
    return tuple(chosen)


def drop(run_id: str) -> None:
    """Remove the arrays that are kept with a run; what it saved elsewhere stays."""
    try:
        answers = get(run_id).answers
    except NotFoundError:
        return
    shutil.rmtree(folder(run_id) / FILE, ignore_errors=True)
    if answers is not None:
        gone = {"kept": (), "kept_bytes": 0, "dropped": time.time()}
        update(run_id, answers=answers.model_copy(update=gone))


_CONDITIONS = {
    "workload": "workload = ?",
    "status": "status = ?",
    "cluster": "cluster = ?",
    "since": "created >= ?",
    "until": "created < ?",
    "text": "holds(text, ?)",
}

_ESCAPED = re.compile(r'(?:\\(?:u[0-9a-f]{4}|["\\/bfnrt]))+')


def _holds(text: str, wanted: str) -> bool:
    """Whether `wanted` stands in a text with escapes of JSON, in small letters or large: SQLite knows ASCII's only."""
    plain = _ESCAPED.sub(lambda escaped: json.loads(f'"{escaped[0]}"'), text)
    return wanted.casefold() in plain.casefold()


def _condition(wanted: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    unknown = next((name for name in wanted if name not in _CONDITIONS), None)
    if unknown is not None:
        raise BadInputError(f"Runs can't be looked for by {quoted(unknown)}. Choose among: {', '.join(_CONDITIONS)}.")
    if wanted.get("status") not in (None, *get_args(Status)):
        raise BadInputError(f"status: given '{wanted['status']}', allowed are {', '.join(get_args(Status))}.")
    given = {_CONDITIONS[name]: value for name, value in wanted.items() if value is not None}
    return f"WHERE {' AND '.join(given)}" if given else "", tuple(given.values())


def find(text: str) -> Run:
    """Run of this id, or of the only id that begins or ends so, the latest of this name, or the latest for 'last'."""
    if text == "last":
        latest = select(limit=1)
        if not latest:
            raise NotFoundError("There is no run yet. Start one with: workbench run WORKLOAD --on cpu")
        return latest[0]
    with _database(reading=True) as database:
        ids = [row["id"] for row in database.execute("SELECT id FROM run ORDER BY created DESC")]
    found = folders.one_of(ids, text, "runs")
    named = () if found in ids else of_name(text)
    return named[0] if named else get(found)


def of_name(name: str) -> tuple[Run, ...]:
    """Runs that a person called so, the newest first."""
    return tuple(run for run in select(limit=None, text=name) if run.title == name)


def mark(text: str, *, name: str | None = None, note: str | None = None, star: bool | None = None) -> Run:
    """Write a name, a note or a star on a run; what is left out stays as it is, and '' takes it off."""
    run = find(text)
    given = {key: value for key, value in (("name", name), ("note", note), ("star", star)) if value is not None}
    try:
        Marks.model_validate(given)
    except ValidationError as err:
        field = str(err.errors()[0]["loc"][0])
        raise BadInputError(f"{field} of a run is {quoted(given[field])}. Give a shorter text.") from err
    # In one statement, so that a star set by another process at the same time is kept.
    marks = "json_patch(coalesce(json_extract(record, '$.marks'), '{}'), ?)"
    with _database() as database:
        database.execute(
            f"UPDATE run SET record = json_set(record, '$.marks', json({marks})) WHERE id = ?",
            (json.dumps(given), run.id),
        )
        run = _one(database, run.id)
    _announce(run)
    return run


def delete(run_id: str) -> None:
    """Forget a run and remove its folder. Raises ConflictError while it is going on."""
    run = get(run_id)
    if run.active:
        raise ConflictError(f"The run {run_id} is still {run.status}. Cancel it first: workbench cancel {run_id}")
    # First: on a full disk that makes the room which the next needs.
    shutil.rmtree(folder(run_id), ignore_errors=True)
    with _database() as database:
        database.execute("DELETE FROM run WHERE id = ?", (run_id,))


def settle() -> tuple[str, ...]:
    """Tell the truth about runs whose runner died; ids of those that changed."""
    if not (config.data_folder() / "runs.db").exists():
        return ()
    with _database(reading=True) as database:
        rows = database.execute(
            f"SELECT * FROM run WHERE status IN ({', '.join('?' * len(ACTIVE))})",
            ACTIVE,
        ).fetchall()
    runs = [_run(row) for row in rows]
    return tuple(run.id for run in runs if _settle(run).status != run.status)


def alive(run: Run) -> bool:
    """Whether the run's own process is here."""
    return folders.state(run, folder(run.id)) == "here"


def write_progress(run: Run, progress: Progress) -> None:
    """Write how far a run is that goes on, for whoever watches."""
    _announce(run.model_copy(update={"status": "running", "progress": progress}))


def told(run: Run) -> Run | None:
    """`run` as its announcement beside the row has it; None where it has ended, or there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        written = json.loads((folder(run.id) / "progress.json").read_text(encoding="utf-8"))
        if written["status"] in ACTIVE:
            found = Progress.model_validate(written["progress"])
            return run.model_copy(update={"status": written["status"], "progress": found})
    return None


def _settle(run: Run, left: Mapping[str, Any] | None = None) -> Run:
    if not run.active:
        return run
    run = overlaid(run, left)
    if folders.state(run, folder(run.id)) != "gone":
        silent = folders.silence(run, folder(run.id))
        return run if silent is None else run.model_copy(update={"error": silent})
    changes = dict(left or _answer(run.id))
    if run.active:
        status, sentence = _epitaph(run)
        changes |= {"status": status, "error": sentence, "stopped": time.time(), "progress": run.progress}
    try:
        # A runner that ended well has written its last status before it was gone: then this changes nothing.
        return _take_in(run.id, changes, only_if=ACTIVE)
    except StorageError:
        return run.model_copy(update=changes)


def _epitaph(run: Run) -> tuple[Status, str]:
    if folders.asked_to_end(folder(run.id)):
        return "cancelled", "Cancelled before it began to compute."
    if run.pid is None:
        return "lost", "Its runner process never started. The program that asked for the run was ended too early."
    if run.status == "starting":
        return "lost", (
            f"Its runner process (pid {run.pid}) ended before it began. Its log may say why: "
            f"workbench show {run.id} --log"
        )
    done = f" after {run.progress.done} of {run.progress.total} tasks" if run.progress.total else ""
    own = "by its own function or a library that crashed, or " if run.function else ""
    return "lost", (
        f"Its runner process (pid {run.pid}) was ended {own}from outside{done}: killed, short of memory, or the "
        f"machine went down. Nothing was computed further; run it again, or see: workbench show {run.id} --log"
    )


def overlaid(run: Run, left: Mapping[str, Any] | None = None) -> Run:
    """`run` with what its runner wrote beside the row; `left` is what was in the folder before the row was read."""
    found = left or _answer(run.id)
    changes = {name: getattr(_changed(run.id, found), name) for name in found}
    return (told(run) or run).model_copy(update=changes)


def _announce(run: Run) -> None:
    told = run.model_dump(mode="json", include={"id", "status", "progress"})
    # A run that was deleted meanwhile has no folder any more, and nobody to tell; on a full disk the next change tells.
    with contextlib.suppress(FileNotFoundError, StorageError):
        config.write_atomically(folder(run.id) / "progress.json", json.dumps(told))


@contextlib.contextmanager
def _database(*, reading: bool = False) -> Iterator[sqlite3.Connection]:
    path = config.data_folder() / "runs.db"
    try:
        with contextlib.closing(_opened(path, reading=reading)) as database, database:
            yield database
    except sqlite3.IntegrityError:
        raise
    except sqlite3.Error as err:
        raise _unusable(path, err) from err


def _opened(path: Path, *, reading: bool) -> sqlite3.Connection:
    database = _connected(path, timeout=_BUSY_TIMEOUT)
    try:
        # In WAL mode this keeps the file whole through a crash; the last change may be lost with the power.
        database.execute("PRAGMA synchronous = NORMAL")
        _prepare(database, path)
    except sqlite3.Error as err:
        database.close()
        if not reading or not path.exists() or _code(err) not in _FAULTS_OF_THE_DISK:
            raise
        # Even a reader makes files beside it, unless it is told that nobody writes: nobody can.
        database = _connected(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        if database.execute("PRAGMA user_version").fetchone()[0] == 0:
            # The disk was full before there were tables, so no run was ever kept.
            database.close()
            database = _connected(":memory:")
            database.executescript(_SCHEMA)
    except BaseException:
        database.close()
        raise
    return database


def _connected(where: Path | str, **options: Any) -> sqlite3.Connection:
    database = sqlite3.connect(where, **options)
    database.row_factory = sqlite3.Row
    database.create_function("holds", 2, _holds, deterministic=True)
    return database


_FAULTS_OF_THE_DISK = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF


def _unusable(path: Path, error: sqlite3.Error) -> WorkbenchError:
    if sqlite3.sqlite_version_info < _SQLITE:
        needed = ".".join(map(str, _SQLITE))
        return FailedError(
            f"SQLite {sqlite3.sqlite_version} is loaded here, as the eccodes of cfgrib brings it; the record of runs "
            f"needs {needed}. Put import workbench before what opens data, or run it in a process of its own."
        )
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(f"Another program has locked the record of runs {path}. Try again in a moment.")
    if code in _FAULTS_OF_THE_DISK:
        return StorageError(config.trouble() or f"The record of runs {path} can't be written now ({error}). Try again.")
    return ConflictError(
        f"The record of runs {path} is damaged ({error}). Move it away, or set workbench.data-folder to another folder."
    )


def _changed(run_id: str, changes: Mapping[str, Any]) -> Run:
    """A run that has nothing but these columns."""
    return Run.model_validate({"id": run_id, "workload": "", "cluster": "", **changes})


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == FORMAT:
        return
    if version:
        which, remedy = ("a newer", "Update dask-workbench") if version > FORMAT else ("an older", "Move it away")
        raise ConflictError(
            f"The record of runs {path} was written by {which} dask-workbench (format {version}, this one reads "
            f"{FORMAT}). {remedy}, or set workbench.data-folder to another folder."
        )
    path.chmod(0o600)
    database.execute("PRAGMA journal_mode=WAL")
    with database:
        database.execute("BEGIN IMMEDIATE")
        # Another process may have been here between the question and the lock.
        if database.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {FORMAT}")


def _one(database: sqlite3.Connection, run_id: str) -> Run:
    row = database.execute("SELECT * FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        latest = [item["id"] for item in database.execute("SELECT id FROM run ORDER BY created DESC LIMIT 5")]
        known = f"The latest are {', '.join(latest)}." if latest else "There is none yet."
        raise NotFoundError(f"There is no run '{run_id}'. {known}")
    return _run(row)


def _run(row: sqlite3.Row) -> Run:
    """The run in a row; where it can't be read, one that says so, so that the others are shown."""
    try:
        folder(row["id"])
        return Run.model_validate_json(redact_json(row["record"]))
    except (ValidationError, BadInputError) as err:
        return _damaged(row, err)


def _damaged(row: sqlite3.Row, error: ValidationError | BadInputError) -> Run:
    return Run(
        id=row["id"],
        workload=row["workload"],
        cluster=row["cluster"],
        status="lost",
        created=row["created"] if 0 <= row["created"] < 2e11 else 0.0,
        error=f"Its record is damaged ({reason_of(error)}). Delete it in the sidebar, or: "
        "workbench.Session().delete_run(…)",
    )


def _told(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same as JSON has it."""
    told: dict[str, Any] = json.loads(redact_json(_changed("", changes).model_dump_json(include=set(changes))))
    return told
