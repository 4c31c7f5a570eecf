"""Saved data of a run: its events to replay, its report, pictures of its answer."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import config
from workbench.errors import BadInputError, ConflictError, NotFoundError, quoted
from workbench.runs import store
from workbench.runs.answers import stored_arrays
from workbench.runs.run import ON_SIMULATED

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.figures.answers import Picture
    from workbench.monitor.events import Batch
    from workbench.runs.run import Run
    from workbench.session import Session


def on_simulated(session: Session, record: ClusterRecord) -> bool:
    """Return whether the GPUs of a cluster are simulated, judged by this machine before workers report."""
    return bool(record.spec.devices) and session.hardware().simulated


def read_record(run: Run) -> Batch:
    """Return the recorded events of a run. Raises a WorkbenchError if it is active or has none."""
    if run.active:
        raise ConflictError(f"The run {run.id} is still going on: watch its cluster {run.cluster}.")
    events = _events(run)
    if events is None:
        raise NotFoundError(
            f"The run {run.id} ({run.status}) has no recorded events: none were recorded, or its folder was deleted."
        )
    return events


def report(run: Run) -> str:
    """Return the run's report, saved or newly made."""
    saved = store.folder(run.id) / "report.html"
    return saved.read_text(encoding="utf-8") if saved.exists() else _report(run)


def _report(run: Run) -> str:
    if run.active:
        raise ConflictError(f"The run {run.id} is still going on. Its report is there when it has ended.")
    from workbench.figures.report import report_html
    from workbench.runs.explaining.diagnosis import diagnosed

    return report_html(diagnosed(run), _events(run), pictures_of(run))


def write(run: Run) -> Path:
    """Write a run's report into its folder, and return the path. Raises ConflictError while the run is active."""
    path = store.folder(run.id) / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)  # It may have been deleted by hand.
    config.write_atomically(path, _report(run))
    return path


def pictures_of(run: Run) -> tuple[Picture, ...]:
    """Return the pictures of a run's answer, those of vectors before scree and error plots; most runs have none."""
    from workbench.figures.answers import pictures

    found = pictures(stored_arrays(run), run.result or {})
    if run.simulated:
        found = tuple(replace(each, title=each.title + ON_SIMULATED) for each in found)
    return tuple(sorted(found, key=lambda each: each.name in ("scree", "error")))


@lru_cache(maxsize=16)
def small_pictures(run_id: str, n_bytes: int) -> tuple[tuple[str, str, str], ...]:
    """Return the name, the title and a small PNG in base64 of each picture of a run.

    `n_bytes`, the size of the saved arrays, is part of the cache's key.
    """
    from workbench.figures.paper import page_png

    pictures = pictures_of(store.get(run_id))
    return tuple((each.name, each.title, page_png(each, is_small=True)) for each in pictures)


def picture_of(run: Run, name: str | None = None) -> Picture:
    """Return one picture of a run's answer, by default the most informative one. NotFoundError lists all."""
    found = pictures_of(run)
    if not found:
        raise NotFoundError(f"The answer of the run {run.id} has no pictures.")
    picture = found[0] if name is None else next((each for each in found if each.name == name), None)
    if picture is None:
        names = ", ".join(each.name for each in found)
        raise NotFoundError(f"The run {run.id} has no picture {quoted(name)}. Choose one of: {names}.")
    return picture


def picture_bytes(run: Run, name: str | None, kind: str) -> bytes:
    """Return a picture of a run's answer as the bytes of a PNG, SVG or PDF file."""
    from workbench.figures.paper import write_picture
    from workbench.storage.targets import PICTURES as KINDS

    if kind not in KINDS:
        raise BadInputError(f"A picture can't be {quoted(kind)}. Choose one of: {', '.join(KINDS)}.")
    file = io.BytesIO()
    write_picture(picture_of(run, name), file, kind)
    return file.getvalue()


def _events(run: Run) -> Batch | None:
    from workbench.monitor.record import read_events

    try:
        return read_events(store.folder(run.id) / "events.parquet")
    except NotFoundError:
        return None
