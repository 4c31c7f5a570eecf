"""Records on disk: one folder for each cluster, run or comparison, with `record.json` in it.

Only the process of a record writes it; another process may once that one has surely ended. The user's names and notes
are in separate files. Each file is replaced as a whole and nothing is locked, so a network disk is good enough. A
deleted record stays deleted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import ValidationError

from workbench import config
from workbench.errors import BadInputError, ConflictError, NotFoundError, StorageError, reason_of
from workbench.jobs import folders, processes
from workbench.jobs.folders import L, R
from workbench.redaction import redact_json

FILE = "record.json"
_PROCESS = "process"
"""Link whose target is the pid and the start of the record's process: created once, and atomically."""
_GIVEN_UP = "given-up"
"""File that marks that the user no longer waits for a process on another machine."""
_MOST_BYTES = 2**27
PATIENCE = 3600.0
"""Seconds for which the last write of a process waits for room on the disk."""


def create(folder: Path, record: L) -> L:
    """Claim a folder and write its first record. Raises ConflictError if the folder exists already."""
    claim_folder(folder)
    try:
        return write(folder, record)
    except StorageError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def claim_folder(folder: Path) -> None:
    """Create a folder. Raises ConflictError if it exists already."""
    try:
        with config.writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(mode=0o700)
    except StorageError as err:
        if isinstance(err.__cause__, FileExistsError):
            raise ConflictError(f"There is {folder.name} already, in {folder.parent}.") from err
        raise


def write(folder: Path, record: L) -> L:
    """Replace the record in a folder."""
    text = record.model_dump_json(include=set(type(record).model_fields) - record.stored_separately)
    with contextlib.suppress(FileNotFoundError):
        config.write_atomically(folder / FILE, redact_json(text))
    return record


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a regular file of a sensible size. Raises OSError for anything else."""
    # A FIFO would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
            raise OSError(f"{path} is not a file, or has more than {_MOST_BYTES} bytes")
        return file.read()


def damage(error: Exception, method: str) -> str:
    """Return the message on a record that can't be read; `method` of a session deletes it."""
    return f"Its record is damaged ({reason_of(error)}). Delete it in the sidebar, or: workbench.Session().{method}(…)"


def settled(read: Callable[[], L], folder: Path, bury: Callable[[L], dict[str, Any]]) -> L:
    """Return the record from `read`, updated by `bury`, also on disk, if its process has ended.

    If a process elsewhere gives no signs of life, `error` says so and nothing is written: it may be alive.
    """
    current = read()
    if not current.active:
        return current
    current = with_process(current, folder)
    if (silent := folders.silence(current, folder)) is not None:
        if not (folder / _GIVEN_UP).exists():
            return current.model_copy(update={"error": silent})
        return current.model_copy(update={"status": "lost", "error": f"Given up: {silent[0].lower()}{silent[1:]}"})
    if folders.state(current) == "gone":
        # It may have written its last record after the first reading.
        current = with_process(read(), folder)
        if current.active:
            current = current.model_copy(update=bury(current))
            with contextlib.suppress(StorageError):
                write(folder, current)
    return current


def give_up(record: L, folder: Path) -> None:
    """Mark a record as given up while its process elsewhere is silent. If alive after all, that still writes it."""
    if folders.silence(record, folder) is not None:
        with config.writing(folder):
            (folder / _GIVEN_UP).touch(mode=0o600)


def claim(folder: Path, pid: int, pid_created: float | None) -> bool:
    """Make a process the owner of a record; return False if it has another one, or its folder is missing."""
    with contextlib.suppress(FileNotFoundError):
        try:
            with config.writing(folder / _PROCESS):
                (folder / _PROCESS).symlink_to(f"{pid} {pid_created or ''}")
        except StorageError as err:
            if not isinstance(err.__cause__, FileExistsError):
                raise
    return _process(folder)[0] == pid


def start(folder: Path, module: str, argument: str) -> None:
    """Start one of our modules for a record, and note its process."""
    pid = processes.start_detached(sys.executable, module, argument, log=folder / "log.txt")
    claim(folder, pid, processes.created(pid))


def _process(folder: Path) -> tuple[int | None, float | None]:
    try:
        pid, _, created = str((folder / _PROCESS).readlink()).partition(" ")
        return int(pid), float(created) if created else None
    except (OSError, ValueError):
        return None, None


def with_process(record: R, folder: Path) -> R:
    """Add the process that was started for a record, if it hasn't written the record yet."""
    if record.pid is not None:
        return record
    pid, created = _process(folder)
    return record if pid is None else record.model_copy(update={"pid": pid, "pid_created": created})


def discard(folder: Path) -> None:
    """Remove a folder at once for every reader, and then its files."""
    hidden = folder.with_name(f".{folder.name}.{secrets.token_hex(3)}.gone")
    with contextlib.suppress(FileNotFoundError), config.writing(folder):
        folder.rename(hidden)
    for leftover in folder.parent.glob(".*.gone"):
        shutil.rmtree(leftover, ignore_errors=True)


class Writer(Generic[L]):
    """The record of this process, which only this process writes.

    Changes that can't be written now are written with the next one.
    """

    def __init__(self, folder: Path, record: L) -> None:
        self.record = record
        self._folder = folder
        self._lock = threading.Lock()

    def note(self, *, patience: float = 0.0, **changes: Any) -> bool:
        """Change fields and write the record, with retries for `patience` seconds; return whether it was written."""
        with self._lock:
            self._change(changes)
        with contextlib.suppress(StorageError):
            config.patiently(self._write, patience)
            return True
        return False

    def note_while_active(self, **changes: Any) -> None:
        """Do the same once, but only while the record is active."""
        with self._lock, contextlib.suppress(StorageError):
            if self.record.active:
                self._change(changes)
                write(self._folder, self.record)

    def _change(self, changes: dict[str, Any]) -> None:
        self.record = type(self.record).model_validate({**dict(self.record), **changes})

    def _write(self) -> None:
        with self._lock:
            write(self._folder, self.record)


Stamp = tuple[int, int, int]
"""Time, size and inode of a file, which change when it is replaced."""


def stamp(path: str) -> Stamp | None:
    """Return the stamp of a file, or None if it is missing."""
    try:
        about = os.stat(path)  # noqa: PTH116  a list checks ten thousand files
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


class Brief(Protocol):
    """Facts about a record that lists need."""

    @property
    def id(self) -> str:
        """Name of its folder."""

    @property
    def status(self) -> folders.Status:
        """Status that its process last wrote."""

    @property
    def created(self) -> float:
        """Time of the request, in seconds since the epoch."""


B = TypeVar("B", bound=Brief)


@dataclass
class Shelf(Generic[L, B]):
    """All records of one kind, in one folder of the data folder. Each is read once for each change of its file."""

    name: str
    """Name of the folder, such as "runs"."""
    noun: str
    """Name of one of them in messages."""
    command: str
    """Command that makes one."""
    parse: Callable[[str], L]
    """Function that reads the record in a folder."""
    bury: Callable[[L], dict[str, Any]]
    """Function that returns the changes to a record whose process was killed."""
    damaged: Callable[[Path, Exception], L]
    """Function that returns a record in place of one that can't be read."""
    brief: Callable[[L], B]
    """Function that returns the facts about a record for lists."""
    parse_brief: Callable[[str], B]
    """Function that reads these facts alone."""
    stamp: Callable[[str], Hashable | None] = lambda path: stamp(f"{path}/{FILE}")
    """Function that returns a value that changes with the record in a folder, or None without a record."""
    _known: dict[str, tuple[Hashable, B]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Folder of the records' folders."""
        return config.data_folder() / self.name

    def folder(self, record_id: str) -> Path:
        """Return the folder of a record, which may not exist. Raises BadInputError if no record can have this id."""
        if not folders.is_id(record_id):
            raise BadInputError(f"'{record_id:.80}' is not the id of a {self.noun}. See: workbench {self.name}")
        return self.root / record_id

    def read(self, record_id: str) -> L | None:
        """Return a record, "lost" if its process died; None if it is missing."""
        folder = self.folder(record_id)
        try:
            return settled(lambda: self.parse(str(folder)), folder, self.bury)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValidationError) as err:
            return self.damaged(folder, err)

    def get(self, record_id: str) -> L:
        """Return a record as `read` does. NotFoundError names the latest ones."""
        record = self.read(record_id)
        if record is None:
            raise self.missing(record_id)
        return record

    def missing(self, record_id: str) -> NotFoundError:
        """Return the error that a record is missing."""
        latest = [each.id for each in self.listed()[:5]]
        known = f"The latest are {', '.join(latest)}." if latest else f"There is none yet. Start one: {self.command}"
        return NotFoundError(f"There is no {self.noun} '{record_id:.80}'. {known}")

    def find(self, text: str) -> L:
        """Return a record by id, by a unique beginning or end of its id, or the latest one for 'last'."""
        if text == "last":
            if not (latest := self.listed()):
                raise NotFoundError(f"There is no {self.noun} yet. Start one: {self.command}")
            return self.get(latest[0].id)
        return self.get(folders.one_of(names(self.root), text, self.name))

    def listed(self) -> list[B]:
        """Return all records in brief, the newest first, each with its true status."""
        root, now = self.root, dict[str, tuple[Hashable, B]]()
        for name in names(root):
            path = f"{root}/{name}"
            if (key := self.stamp(path)) is not None:
                known = self._known.get(path)
                with contextlib.suppress(FileNotFoundError):  # deleted since
                    now[path] = known if known is not None and known[0] == key else (key, self._read_brief(path))
        self._known = now
        true = (self._true(each) if each.status in folders.ACTIVE else each for _, each in now.values())
        return sorted(filter(None, true), key=lambda each: (each.created, each.id), reverse=True)

    def _read_brief(self, path: str) -> B:
        try:
            return self.parse_brief(path)
        except FileNotFoundError:
            raise
        except (OSError, ValidationError) as err:
            return self.brief(self.damaged(Path(path), err))

    def _true(self, each: B) -> B | None:
        record = self.read(each.id)
        return None if record is None else self.brief(record)

    def cancel(self, record_id: str) -> L:
        """Request the end of a record's process and return at once; the process cleans up and writes its status."""
        record, folder = self.get(record_id), self.folder(record_id)
        if not record.active:
            raise ConflictError(f"The {self.noun} {record_id} has ended already ({record.status}).")
        folders.ask_to_end(record, folder)
        give_up(record, folder)
        return self.get(record_id)

    def delete(self, record_id: str) -> None:
        """Delete a record and its folder. Raises ConflictError while it is active."""
        record = self.get(record_id)
        if record.active:
            raise ConflictError(f"The {self.noun} {record_id} is still {record.status}. Cancel it first.")
        discard(self.folder(record_id))


def names(root: Path) -> list[str]:
    """Return the names of the folders of records, including those without a record."""
    try:
        return [name for name in os.listdir(root) if not name.startswith(".")]  # noqa: PTH208
    except FileNotFoundError:
        return []
