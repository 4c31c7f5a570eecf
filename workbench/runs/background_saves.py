"""Background saves of runs: for each run the latest, which outlives the process that requested it.

They are records in the sense of `workbench.jobs.records`.
"""

from __future__ import annotations

import contextlib
import glob
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError, computed_field

from workbench import formats, private
from workbench.errors import ConflictError, NotFoundError
from workbench.jobs import folders, processes, records
from workbench.jobs.folders import Lasting
from workbench.runs import store
from workbench.runs.run import Run

_SAVER = "workbench.views.saving"


class Saving(Lasting, frozen=True):
    """An answer being saved to a path or URL."""

    run: str
    path: str
    kind: str
    only: tuple[str, ...] = ()
    replace: bool = False
    done: int = 0
    total: int = 0
    """Number of blocks; 0 if unknown."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """Progress of the save, or its outcome."""
        if self.active:
            blocks = f": {self.done} of {formats.count(self.total, 'block')}" if self.total else ""
            return " ".join(filter(None, (f"Saving to {self.path} …{blocks}", self.error)))
        return {
            "done": f"Saved to {self.path}.",
            "cancelled": f"Saving to {self.path} was cancelled.",
            "lost": self.error
            or f"The process that saved to {self.path} was ended from outside. Nothing was changed: save again.",
        }.get(self.status, self.error or "It failed.")


def folder(run_id: str) -> Path:
    """Return the folder of a run's save: record.json, log.txt, and signs of its process."""
    return store.folder(run_id) / "saving"


def read(run_id: str) -> Saving | None:
    """Return the current or last save of a run, after a check that its process is alive; None if there is none."""
    place = folder(run_id)
    try:
        return records.settled(
            lambda: Saving.model_validate_json(records.read_bytes(place / records.FILE)), place, _ended
        )
    except (OSError, ValidationError):
        return None


def _ended(saving: Saving) -> dict[str, Any]:
    if "://" not in saving.path:
        _remove_unfinished(saving)
    return {"status": "cancelled" if folders.end_requested(folder(saving.run)) else "lost"}


def _remove_unfinished(saving: Saving) -> None:
    """Remove a killed process's files next to its target."""
    for leftover in Path(saving.path).parent.glob(f".*.{glob.escape(saving.run)}+*-{saving.pid}-*.part"):
        with contextlib.suppress(OSError):
            if private.is_own(leftover.lstat(), leftover):
                shutil.rmtree(leftover)


def get(run_id: str) -> Saving:
    """Return the current or last save of a run. NotFoundError if there is none."""
    saving = read(run_id)
    if saving is None:
        raise NotFoundError(
            f"Nothing of the run {run_id} was saved in the background. Save it: workbench save RUN FILE"
        )
    return saving


def start(run: Run, path: Any, kind: str | None = None, *, only: Sequence[str] = (), replace: bool = False) -> Saving:
    """Start to save a run's answer as `answer_storage.wanted` decides, and return at once.

    Raises ConflictError if the run is being saved already.
    """
    # Reading the progress needs no dask.array, whose import takes longer than listing the runs.
    from workbench.runs import answer_storage

    before = read(run.id)
    if before is not None and before.active:
        raise ConflictError(f"{before.sentence} Wait until it has ended, or cancel it.")
    to, _ = answer_storage.wanted(run, path, kind, only=only, replace=replace)
    records.discard(folder(run.id))
    request = {"path": str(to), "kind": to.kind, "only": tuple(only), "replace": replace}
    records.create(folder(run.id), Saving(run=run.id, created=time.time(), **processes.here(), **request))
    records.start(folder(run.id), _SAVER, run.id)
    return get(run.id)


def cancel(run_id: str) -> Saving:
    """Request the end of a run's save and return at once."""
    saving = get(run_id)
    if not saving.active:
        raise ConflictError(f"There is nothing to cancel. {saving.sentence}")
    folders.ask_to_end(saving, folder(run_id))
    records.give_up(saving, folder(run_id))
    return get(run_id)
