"""Records on disk: one folder for each thing that goes on, and in it `record.json`.

The process that does the thing is the only one that writes its record. Another process writes it when that one has
surely ended. What users say of it is in files of their own. Each file is replaced whole and nothing is locked, so that
a network disk is good enough. What was deleted stays deleted.
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
from pathlib import Path
from typing import Any, Generic, TypeVar

from workbench import config
from workbench.errors import ConflictError, StorageError, reason_of
from workbench.jobs import folders, processes
from workbench.jobs.folders import L
from workbench.redaction import redact_json

FILE = "record.json"
_PROCESS = "process"
"""Link whose target is the pid of the record's process and when that started: made once, and whole at once."""
_GIVEN_UP = "given-up"
"""File that says that the user no longer waits for a process on another machine."""
_MOST_BYTES = 2**27

T = TypeVar("T")


def create(folder: Path, record: L) -> L:
    """Claim a folder and write its first record. Raises ConflictError where the folder is there already."""
    claim_folder(folder)
    try:
        return write(folder, record)
    except StorageError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def claim_folder(folder: Path) -> None:
    """Make a folder that no other process has made. Raises ConflictError where it is there already."""
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
    text = record.model_dump_json(include=set(type(record).model_fields) - record.stored_apart)
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
    """Return what to say of a record that can't be read; `method` of a session deletes it."""
    return f"Its record is damaged ({reason_of(error)}). Delete it in the sidebar, or: workbench.Session().{method}(…)"


def settled(read: Callable[[], L], folder: Path, bury: Callable[[L], dict[str, Any]]) -> L:
    """Return the record that `read` gives, as it truly is: changed by `bury`, also on disk, if its process has ended.

    Of a process elsewhere that is silent the `error` says so, and nothing is written: it may be alive.
    """
    found = _with_process(read(), folder)
    if not found.active:
        return found
    if (silent := folders.silence(found, folder)) is not None:
        if not (folder / _GIVEN_UP).exists():
            return found.model_copy(update={"error": silent})
        return found.model_copy(update={"status": "lost", "error": f"Given up: {silent[0].lower()}{silent[1:]}"})
    if folders.state(found, folder) == "gone":
        # It may have written its last record between the reading and the looking.
        found = _with_process(read(), folder)
        if found.active:
            found = found.model_copy(update=bury(found))
            with contextlib.suppress(StorageError):
                write(folder, found)
    return found


def give_up(record: L, folder: Path) -> None:
    """Call a record lost while its process elsewhere is silent. If it lives after all, it has the last word."""
    if folders.silence(record, folder) is not None:
        with config.writing(folder):
            (folder / _GIVEN_UP).touch(mode=0o600)


def claim(folder: Path, pid: int, pid_created: float | None) -> bool:
    """Make a process that of a record; return False where another one is, or the folder is gone."""
    with contextlib.suppress(FileNotFoundError):
        try:
            with config.writing(folder / _PROCESS):
                (folder / _PROCESS).symlink_to(f"{pid} {pid_created or ''}")
        except StorageError as err:
            if not isinstance(err.__cause__, FileExistsError):
                raise
    return _process(folder)[0] == pid


def start(folder: Path, module: str, argument: str) -> None:
    """Start a module of ours for a record, and say which process it is: it may be stopped before it can itself."""
    pid = processes.start_apart(sys.executable, module, argument, log=folder / "log.txt")
    claim(folder, pid, processes.created(pid))


def _process(folder: Path) -> tuple[int | None, float | None]:
    try:
        pid, _, created = str((folder / _PROCESS).readlink()).partition(" ")
        return int(pid), float(created) if created else None
    except (OSError, ValueError):
        return None, None


def _with_process(record: L, folder: Path) -> L:
    """Return a record with the process that was started for it, where that has not written its own record yet."""
    if not record.active or record.pid is not None:
        return record
    pid, created = _process(folder)
    return record if pid is None else record.model_copy(update={"pid": pid, "pid_created": created})


def discard(folder: Path) -> None:
    """Remove a folder at once for every reader, and then its files."""
    gone = folder.with_name(f".{folder.name}.{secrets.token_hex(3)}.gone")
    with contextlib.suppress(FileNotFoundError), config.writing(folder):
        folder.rename(gone)
    for left in folder.parent.glob(".*.gone"):
        shutil.rmtree(left, ignore_errors=True)


class Writer(Generic[L]):
    """The record of what this process does, which it alone writes.

    What can't be written now is held, and written with the next change.
    """

    def __init__(self, folder: Path, record: L) -> None:
        self.record = record
        self._folder = folder
        self._lock = threading.Lock()

    def note(self, *, patience: float = 0.0, **changes: Any) -> bool:
        """Change fields, and write the record, within `patience` seconds; return whether it is written."""
        with self._lock:
            self._change(changes)
        with contextlib.suppress(StorageError):
            config.patiently(self._write, patience)
            return True
        return False

    def note_while_active(self, **changes: Any) -> None:
        """Do the same for what is true only until it has ended, and may come too late."""
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
"""What changes when a file is replaced: time, size and inode."""


def stamp(path: str) -> Stamp | None:
    """Return the stamp of a file; None where there is none."""
    try:
        about = os.stat(path)  # noqa: PTH116  ten thousand of them are looked at for a list
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


class Index(Generic[T]):
    """What is known of all records in a folder, each of which is read once for each change.

    `key` says from the path of a record's folder what changes with it, None where there is no record; `read` reads it.
    """

    def __init__(self, key: Callable[[str], Hashable | None], read: Callable[[str], T]) -> None:
        self._key, self._read = key, read
        self._root: Path | None = None
        self._known: dict[str, tuple[Hashable, T]] = {}

    def all(self, root: Path) -> dict[str, T]:
        """Return what is known, by the name of the folder."""
        before = self._known if root == self._root else {}
        now: dict[str, tuple[Hashable, T]] = {}
        for name in names(root):
            path = f"{root}/{name}"
            if (key := self._key(path)) is None:
                continue
            known = before.get(name)
            if known is None or known[0] != key:
                try:
                    known = key, self._read(path)
                except FileNotFoundError:  # deleted since
                    continue
            now[name] = known
        self._root, self._known = root, now
        return {name: value for name, (_, value) in now.items()}


def names(root: Path) -> list[str]:
    """Return the names of the folders of records, whether or not there is a record in them."""
    try:
        return [name for name in os.listdir(root) if not name.startswith(".")]  # noqa: PTH208
    except FileNotFoundError:
        return []
