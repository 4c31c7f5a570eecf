"""What a process and those who ask for it leave in its folder: that it lives, and that it is to end."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from pydantic import BaseModel

from workbench import formats
from workbench.errors import BadInputError
from workbench.jobs import processes

HEARTBEAT = 10.0
"""Seconds between two signs of life of a process, for readers on other machines, who can't see it."""
START_GRACE = 60.0
"""Seconds in which a record must have got a process."""
_SILENCE = 6 * HEARTBEAT

State = Literal["starting", "here", "elsewhere", "gone"]
"""'elsewhere' is a process that can't be seen from here, whether it lives or not; 'gone' is one that surely ended."""
Status = Literal["starting", "running", "done", "failed", "cancelled", "lost"]

ACTIVE: tuple[Status, ...] = ("starting", "running")


class Record(BaseModel, frozen=True):
    """What is known of a process, as it last described itself. Frozen, JSON both ways.

    Fields of a later version are ignored: two environments may share one data folder.
    """

    created: float = 0.0
    """When it was asked for (seconds since the epoch)."""
    pid: int | None = None
    pid_created: float | None = None
    """Start of the process by the system's clock: a pid alone may have been given to another one."""
    place: str = ""
    """Boot and pid namespace in which the pid counts, see `processes.place`."""
    node: str = ""
    """Name of the machine that it runs on."""


class Lasting(Record, frozen=True):
    """What goes on until it has ended."""

    status: Status = "starting"
    error: str | None = None
    """How it failed or was lost, or that nothing is heard from it, in a sentence."""
    stored_apart: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no part of the record on disk."""

    @property
    def active(self) -> bool:
        """Whether it is still going on."""
        return self.status in ACTIVE


L = TypeVar("L", bound=Lasting)


def state(record: Record, folder: Path, *, mark: str = "", grace: float = START_GRACE) -> State:
    """Return where the process of a record is, which gets one within `grace` seconds, or none.

    `mark` is what it carries in its environment. Only a process of this machine can be known to be gone: one that is
    elsewhere may sleep, be paused or cut off, and the clocks of two machines differ.
    """
    if record.place != processes.place():
        return "elsewhere"
    if record.pid is None:
        return "starting" if time.time() - record.created < grace else "gone"
    return "here" if processes.find(record.pid, record.pid_created, mark) else "gone"


def silence(record: Record, folder: Path) -> str | None:
    """Return for how long there was no sign of life of a process elsewhere; None where there was one, or it is here."""
    try:
        last = (folder / "heartbeat").stat().st_mtime
    except OSError:
        last = record.created
    unheard = time.time() - last
    if record.place == processes.place() or unheard < _SILENCE:
        return None
    return f"No sign of life from {record.node or 'the machine it is on'} for {formats.duration(round(unheard))}."


def give_sign_of_life(folder: Path) -> None:
    """Let readers on other machines know that the process of this folder is there."""
    with contextlib.suppress(OSError):  # deleted meanwhile, or a full disk, which is no reason to end
        (folder / "heartbeat").touch(mode=0o600)


@contextlib.contextmanager
def meanwhile(do: Callable[[], None], every: float, name: str) -> Iterator[None]:
    """Call a function every so many seconds, in a thread of this name, until the block ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every):
            do()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=1)


@contextlib.contextmanager
def living(folder: Path) -> Iterator[None]:
    """Give signs of life until the block ends, from a thread: a busy event loop is no reason to be taken for dead."""
    give_sign_of_life(folder)
    with meanwhile(partial(give_sign_of_life, folder), HEARTBEAT, "heartbeat"):
        yield


def signs_of_life(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Give them until the end of the block, and end when that is asked for from where no signal comes from."""

    def beat() -> None:
        give_sign_of_life(folder)
        if asked_to_end(folder):
            os.kill(os.getpid(), signal.SIGTERM)

    give_sign_of_life(folder)
    return meanwhile(beat, HEARTBEAT, "heartbeat")


def ask_to_end(record: Record, folder: Path) -> None:
    """Leave word that the process is to end, and wake it where it is here."""
    with contextlib.suppress(OSError):  # without room for this word, the signal tells
        (folder / "cancel").touch()
    if record.pid is not None and state(record, folder) == "here":
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)


def asked_to_end(folder: Path) -> bool:
    """Return whether somebody asked for it to end."""
    return (folder / "cancel").exists()


def new_id(what: str) -> str:
    """Id such as 'array_sum-3fa29c'."""
    return f"{what}-{secrets.token_hex(3)}"


def is_id(text: str) -> bool:
    """Return whether it can be the name of a folder, and of none but one among the others."""
    return bool(text) and text == Path(text).name and not text.startswith(".") and "\0" not in text


def one_of(ids: Sequence[str], text: str, what: str) -> str:
    """The id that `text` is, or the only one that begins or ends with it; `text` where there is none.

    Raises BadInputError where it fits several; `what` they are is in its sentence.
    """
    if text in ids:
        return text
    matches = [each for each in ids if each.startswith(text) or each.endswith(text)]
    if len(matches) > 1:
        raise BadInputError(
            f"'{text}' fits {len(matches)} {what}: {formats.shortened(matches, 5)}. Give more of the id."
        )
    return matches[0] if matches else text
