"""Shared budget of arrays saved with runs: those of the oldest runs without a star are dropped for new ones."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Sequence
from typing import NamedTuple

from workbench import config, formats
from workbench.errors import NotFoundError
from workbench.jobs.folders import ACTIVE
from workbench.runs import store
from workbench.runs.answers import FILE


class Room(NamedTuple):
    """Room that all arrays saved with runs take together."""

    used: int
    most: int
    next: tuple[str, ...]
    """Runs whose arrays are dropped next, the oldest first, if less than a tenth is left."""

    def words(self) -> str:
        """Return a text such as '9.1 of 10 GiB', and the runs whose arrays are dropped next."""
        text = f"Arrays kept with runs take {formats.size(self.used)} of {formats.size(self.most)}."
        if not self.next:
            return text
        return f"{text} Dropped next are those of {', '.join(self.next)}; a star on a run keeps its own."


def room() -> Room:
    """Return the room taken by arrays saved with runs, its limit, and the arrays that would be dropped next."""
    most, runs = config.size("answers.all"), _keeping()
    used = sum(map(_size, runs))
    return Room(used, most, _oldest(runs, used - most + most // 10))


def make_room(n_bytes: int) -> tuple[str, ...]:
    """Drop the arrays of the oldest runs without a star until so many bytes fit; return the runs' ids."""
    runs = _keeping()
    dropped = _oldest(runs, sum(map(_size, runs)) + n_bytes - config.size("answers.all"))
    for run_id in dropped:
        drop(run_id)
    return dropped


def drop(run_id: str) -> None:
    """Remove the arrays saved with a run; those saved elsewhere stay."""
    with contextlib.suppress(NotFoundError):
        answers = store.get(run_id).answers
        shutil.rmtree(store.folder(run_id) / FILE, ignore_errors=True)
        if answers is not None:
            changes = {"kept": (), "kept_bytes": 0, "dropped": time.time()}
            store.update(run_id, answers=answers.model_copy(update=changes))


def _keeping() -> list[store.Listed]:
    """Return the runs that have ended and have saved arrays, the oldest first."""
    return [run for run in reversed(store.listed()) if run.status not in ACTIVE and _size(run)]


def _size(run: store.Listed) -> int:
    return run.answers.kept_bytes if run.answers else 0


def _oldest(runs: Sequence[store.Listed], needed: int) -> tuple[str, ...]:
    """Return ids of the oldest without a star that hold so many bytes together."""
    ids = []
    for run in runs:
        if needed <= 0:
            break
        if not (run.marks and run.marks.star) and _is_complete(run.id):
            ids.append(run.id)
            needed -= _size(run)
    return tuple(ids)


def _is_complete(run_id: str) -> bool:
    """Return False for a run that has just ended and whose process still writes its record, or that was deleted."""
    try:
        return not store.alive(store.get(run_id))
    except NotFoundError:
        return False
