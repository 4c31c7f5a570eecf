"""Signs in the folder of a process: that it is alive, and that it is to end."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from pydantic import BaseModel

from workbench import formats
from workbench.errors import BadInputError
from workbench.jobs import processes

_log = logging.getLogger(__name__)

HEARTBEAT = 10.0
"""Seconds between two signs of life of a process, for readers on other machines, which can't see it."""
START_GRACE = 60.0
"""Seconds within which a record must get a process."""
_SILENCE = 6 * HEARTBEAT

State = Literal["starting", "here", "elsewhere", "gone"]
"""'elsewhere' is a process that can't be seen from here, alive or not; 'gone' is one that surely ended."""
Status = Literal["starting", "running", "done", "failed", "cancelled", "lost"]

ACTIVE: tuple[Status, ...] = ("starting", "running")


class Record(BaseModel, frozen=True):
    """Description of a process, last written by itself. Frozen, JSON both ways.

    Fields of a later version are ignored: two environments may share one data folder.
    """

    created: float = 0.0
    """Time of the request, in seconds since the epoch."""
    pid: int | None = None
    pid_created: float | None = None
    """Start of the process by the system's clock: a pid alone may now belong to another process."""
    place: str = ""
    """Boot and pid namespace in which the pid is valid, see `processes.place`."""
    node: str = ""
    """Name of the machine that it runs on."""


class Lasting(Record, frozen=True):
    """A record with a status, of something that runs until it has ended."""

    status: Status = "starting"
    error: str | None = None
    """Message on its failure or loss, or on missing signs of life."""
    stored_separately: ClassVar[frozenset[str]] = frozenset()
    """Fields that aren't part of the record on disk."""

    @property
    def active(self) -> bool:
        """True while it is starting or running."""
        return self.status in ACTIVE


R = TypeVar("R", bound=Record)
L = TypeVar("L", bound=Lasting)


def state(record: Record) -> State:
    """Return the state of a record's process. A record without a process after START_GRACE seconds never gets one.

    Only a process of this machine is ever 'gone': one elsewhere may sleep, be paused or cut off, and the clocks of two
    machines differ.
    """
    if record.place != processes.place():
        return "elsewhere"
    if record.pid is None:
        return "starting" if time.time() - record.created < START_GRACE else "gone"
    return "here" if processes.find(record.pid, record.pid_created) else "gone"


def silence(record: Record, folder: Path) -> str | None:
    """Return a message if a process on another machine gives no signs of life, else None."""
    try:
        last = (folder / "heartbeat").stat().st_mtime
    except OSError:
        last = record.created
    seconds = time.time() - last
    if record.place == processes.place() or seconds < _SILENCE:
        return None
    return f"No sign of life from {record.node or 'the machine it is on'} for {formats.duration(round(seconds))}."


def give_sign_of_life(folder: Path) -> None:
    """Show readers on other machines that the process of this folder is alive."""
    with contextlib.suppress(OSError):  # the folder was deleted or the disk is full, which is no reason to end
        (folder / "heartbeat").touch(mode=0o600)


@contextlib.contextmanager
def meanwhile(do: Callable[[], None], every: float, name: str) -> Iterator[None]:
    """Call a function every `every` seconds, in a thread of this name, until the block ends.

    An error is logged, once if it repeats, and the function is called again.
    """
    ended = threading.Event()

    def repeat() -> None:
        problem = ""
        while not ended.wait(every):
            try:
                do()
            except Exception as err:  # noqa: BLE001  Or signs of life would end, and the process be taken for lost.
                if str(err) != problem:
                    _log.exception("Workbench: the thread %s failed, and tries again", name)
                problem = str(err)

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=1)


def signs_of_life(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Give signs of life until the block ends; end this process if a file in its folder requests it.

    A thread does so, since an event loop may be busy.
    """

    def beat() -> None:
        give_sign_of_life(folder)
        if end_requested(folder):
            os.kill(os.getpid(), signal.SIGTERM)

    give_sign_of_life(folder)
    return meanwhile(beat, HEARTBEAT, "heartbeat")


def ask_to_end(record: Record, folder: Path) -> None:
    """Request that the process ends, and signal it if it is on this machine."""
    with contextlib.suppress(OSError):  # without room for the file, the signal suffices
        (folder / "cancel").touch()
    if record.pid is not None and state(record) == "here":
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)


def end_requested(folder: Path) -> bool:
    """Return whether the end of a folder's process was requested."""
    return (folder / "cancel").exists()


def new_id(what: str) -> str:
    """Return a new id such as 'array_sum-3fa29c'."""
    return f"{what}-{secrets.token_hex(3)}"


def is_id(text: str) -> bool:
    """Return whether a text can be the name of a record's folder."""
    return bool(text) and text == Path(text).name and not text.startswith(".") and "\0" not in text


def one_of(ids: Sequence[str], text: str, what: str) -> str:
    """Return the id that is `text`, or the only one that begins or ends so; `text` if there is none.

    Raises BadInputError if several fit; its message calls them `what`.
    """
    if text in ids:
        return text
    matches = [each for each in ids if each.startswith(text) or each.endswith(text)]
    if len(matches) > 1:
        raise BadInputError(
            f"'{text}' fits {len(matches)} {what}: {formats.shortened(matches, 5)}. Give more of the id."
        )
    return matches[0] if matches else text
