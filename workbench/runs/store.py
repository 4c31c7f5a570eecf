"""Records of all runs: a folder for each in the user's data folder.

The process that computes a run writes its `record.json`, a few times a second. The user's name, star
and note are in separate files, written by the user's processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

from pydantic import BaseModel, ValidationError

from workbench import config
from workbench.errors import BadInputError, NotFoundError, quoted
from workbench.jobs import folders, records
from workbench.jobs.folders import Status
from workbench.redaction import redact_json
from workbench.runs.answers import Bytes
from workbench.runs.run import Marks, Moment, Run

_MOST = 2**63 - 1


def name_of(workload: str) -> str:
    """Return a workload's name in ids and files: the last part of `mine.py:total`; 'run' if that is unsuitable."""
    name = workload.rpartition(":")[2]
    return name if re.fullmatch(r"\w[\w.-]{0,99}", name) else "run"


def create(run: Run) -> Run:
    """Save a new run. Raises ConflictError when the id is taken."""
    return _with_marks(records.create(folder(run.id), run))


def save(run: Run) -> Run:
    """Save a run whose folder exists."""
    return _with_marks(records.write(folder(run.id), run))


def update(run_id: str, **changes: Any) -> Run:
    """Change fields of a run that no process computes, and return it."""
    run = _parsed_or_missing(run_id)
    return records.write(folder(run_id), Run.model_validate({**dict(run), **changes}))


def writer(run: Run) -> records.Writer[Run]:
    """Return the writer of the record of a run that this process computes."""
    return records.Writer(folder(run.id), run)


def claim(run_id: str, pid: int, pid_created: float | None) -> Run | None:
    """Return the run that this process is to compute; None if another one does, or the run was deleted.

    It may have been marked as lost, because this process took long to start.
    """
    if not records.claim(folder(run_id), pid, pid_created):
        return None
    fresh = {"pid": pid, "pid_created": pid_created, "status": "starting", "error": None, "stopped": None}
    with contextlib.suppress(NotFoundError):
        return _parsed_or_missing(run_id).model_copy(update=fresh)
    return None


class Wanted(TypedDict, total=False):
    """Criteria of a search for runs; None and omitted ones don't matter."""

    workload: str | None
    status: str | None
    cluster: str | None
    since: float | None
    until: float | None
    """Runs created from the first second to just before the second."""
    text: str | None
    """Text to find in ids, workloads, clusters, parameters, names and notes."""


def select(*, limit: int | None = 50, offset: int = 0, **wanted: Unpack[Wanted]) -> tuple[Run, ...]:
    """Return the runs that match, the newest first, after `offset` others."""
    if limit is not None and not 1 <= limit <= _MOST:
        raise BadInputError(f"limit: given {limit}, allowed are whole numbers from 1 to {_MOST}.")
    if not 0 <= offset <= _MOST:
        raise BadInputError(f"offset: given {offset}, allowed are whole numbers from 0 to {_MOST}.")
    page = _matching(wanted)[offset : None if limit is None else offset + limit]
    return tuple(filter(None, (_shelf.read(each.id) for each in page)))


def count(**wanted: Unpack[Wanted]) -> int:
    """Return the number of runs that match."""
    return len(_matching(wanted))


def find(text: str) -> Run:
    """Return a run by id, by a unique beginning or end of it, by name (the latest), or 'last'."""
    ids = records.names(_shelf.root)
    named = () if text == "last" or folders.one_of(ids, text, "runs") in ids else of_name(text)
    return named[0] if named else _shelf.find(text)


def of_name(name: str) -> tuple[Run, ...]:
    """Return runs with this name from the user, the newest first."""
    return tuple(run for run in select(limit=None, text=name) if run.title == name)


def mark(text: str, *, name: str | None = None, note: str | None = None, star: bool | None = None) -> Run:
    """Write a name, a note or a star on a run; omitted ones stay, and '' removes one."""
    run = find(text)
    marks = {key: value for key, value in (("name", name), ("note", note), ("star", star)) if value is not None}
    try:
        Marks.model_validate(marks)
    except ValidationError as err:
        field = str(err.errors()[0]["loc"][0])
        raise BadInputError(f"{field} of a run is {quoted(marks[field])}. Give a shorter text.") from err
    # It may have been deleted by now.
    with contextlib.suppress(FileNotFoundError):
        _write_marks(run.id, marks)
    return get(run.id)


def alive(run: Run) -> bool:
    """Return whether the run's process is alive on this machine."""
    return folders.state(run) == "here"


class _ListedAnswers(BaseModel, frozen=True):
    kept_bytes: Bytes = 0


class Listed(BaseModel, frozen=True):
    """Facts about a run that are held in memory, to list, filter and search ten thousand of them."""

    id: str
    workload: str
    cluster: str
    status: Status
    created: Moment = 0.0
    parameters: dict[str, Any] = {}
    answers: _ListedAnswers | None = None
    marks: Marks | None = None

    @cached_property
    def text(self) -> str:
        """Text to search, in lower case."""
        marks = () if self.marks is None else (self.marks.name, self.marks.note)
        return "\n".join((self.id, self.workload, self.cluster, *_texts(self.parameters), *marks)).casefold()


_CONDITIONS: Mapping[str, Callable[[Listed, Any], bool]] = {
    "workload": lambda run, value: run.workload == value,
    "status": lambda run, value: run.status == value,
    "cluster": lambda run, value: run.cluster == value,
    "since": lambda run, value: run.created >= value,
    "until": lambda run, value: run.created < value,
    "text": lambda run, value: value in run.text,
}


def _matching(wanted: Mapping[str, Any]) -> list[Listed]:
    unknown = next((name for name in wanted if name not in _CONDITIONS), None)
    if unknown is not None:
        raise BadInputError(f"Runs can't be looked for by {quoted(unknown)}. Choose among: {', '.join(_CONDITIONS)}.")
    if wanted.get("status") not in (None, *get_args(Status)):
        raise BadInputError(f"status: given '{wanted['status']}', allowed are {', '.join(get_args(Status))}.")
    criteria = {name: value for name, value in wanted.items() if value is not None}
    if "text" in criteria:
        criteria["text"] = criteria["text"].casefold()
    return [each for each in listed() if all(_CONDITIONS[name](each, value) for name, value in criteria.items())]


def _texts(value: Any, name: str = "") -> Iterator[str]:
    """Yield names and values of parameters, as one types them: 'size=2GiB'."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, name)
    else:
        yield f"{name}={value}"


def _key(path: str) -> Hashable | None:
    record = records.stamp(f"{path}/{records.FILE}")
    if record is None or not os.path.isdir(f"{path}/{_MARKS}"):  # noqa: PTH112  a Path for each of thousands is slow
        return record
    return record, *(records.stamp(f"{path}/{_MARKS}/{name}") for name in Marks.model_fields)


def _brief(run: Run) -> Listed:
    return Listed.model_validate(run.model_dump(include=set(Listed.model_fields)))


def _parsed_brief(path: str) -> Listed:
    run = Listed.model_validate_json(records.read_bytes(f"{path}/{records.FILE}"))
    return run.model_copy(update={"id": os.path.basename(path), "marks": _marks(path)})  # noqa: PTH119


def _parsed(path: str) -> Run:
    run = Run.model_validate_json(records.read_bytes(f"{path}/{records.FILE}"))
    return run.model_copy(update={"id": os.path.basename(path), "marks": _marks(path)})  # noqa: PTH119


def _parsed_or_missing(run_id: str) -> Run:
    try:
        return _parsed(str(folder(run_id)))
    except FileNotFoundError as err:
        raise _shelf.missing(run_id) from err


def _damaged(path: Path, error: Exception) -> Run:
    """Return a run that reports its damaged record, with its readable fields."""
    try:
        fields = Listed.model_validate_json(records.read_bytes(path / records.FILE)).model_dump()
    except (OSError, ValidationError):
        fields = {}
    workload = path.name.rpartition("-")[0] or path.name
    about = {"workload": workload, "cluster": "", "created": path.stat().st_mtime} | {
        name: fields[name] for name in ("workload", "cluster", "created") if name in fields
    }
    return Run(id=path.name, status="lost", marks=_marks(str(path)), error=records.damage(error, "delete_run"), **about)


_MARKS = "marks"
"""Subfolder of a run, with a file for each mark: two marks set at once are both saved, without a lock."""


def _marks(path: str) -> Marks | None:
    values = {}
    for name in Marks.model_fields if os.path.isdir(f"{path}/{_MARKS}") else ():  # noqa: PTH112
        with contextlib.suppress(OSError, ValueError):
            values[name] = json.loads(records.read_bytes(f"{path}/{_MARKS}/{name}"))
    with contextlib.suppress(ValidationError):
        return Marks.model_validate(values) if values else None
    return None


def _write_marks(run_id: str, marks: Mapping[str, Any]) -> None:
    place = folder(run_id) / _MARKS
    with config.writing(place):
        place.mkdir(exist_ok=True, mode=0o700)
    for name, value in marks.items():
        config.write_atomically(place / name, redact_json(json.dumps(value)))


def _with_marks(run: Run) -> Run:
    if run.marks is not None:
        _write_marks(run.id, run.marks.model_dump(exclude_unset=True))
    return run


def _bury(run: Run) -> dict[str, Any]:
    """Return the changes to a run whose process has ended without a final report."""
    status, error = _epitaph(run)
    return {"status": status, "error": error, "stopped": time.time()}


def _epitaph(run: Run) -> tuple[Status, str]:
    if folders.end_requested(folder(run.id)):
        return "cancelled", "Cancelled before it began to compute."
    if run.pid is None:
        return "lost", "Its runner process never started. The program that submitted the run ended too early."
    if run.status == "starting":
        return "lost", (
            f"Its runner process (pid {run.pid}) ended before it began. Its log may say why: "
            f"workbench show {run.id} --log"
        )
    done = f" after {run.progress.done} of {run.progress.total} tasks" if run.progress.total else ""
    own = "by its own function or a library that crashed, or " if run.function else ""
    return "lost", (
        f"Its runner process (pid {run.pid}) was ended {own}from outside{done}: killed, short of memory, or the "
        f"machine went down. Nothing was computed further; run it again, or see its log: workbench show {run.id} --log"
    )


_shelf = records.Shelf(
    "runs",
    "run",
    "workbench run WORKLOAD --on cpu",
    parse=_parsed,
    bury=_bury,
    damaged=_damaged,
    brief=_brief,
    parse_brief=_parsed_brief,
    stamp=_key,
)
folder, get, listed, cancel, delete = _shelf.folder, _shelf.get, _shelf.listed, _shelf.cancel, _shelf.delete
