"""What was kept of a run: its events to replay, its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.monitor.events import Batch
    from workbench.runs.store import Run
    from workbench.session import Session


def on_simulated(session: Session, record: ClusterRecord) -> bool:
    """Whether the GPUs of a cluster are simulated, as this machine tells before any worker has."""
    return bool(record.spec.devices) and session.hardware().simulated


def read_batches(run: Run) -> list[Batch]:
    """Return the recorded events of a run. Raises a WorkbenchError when it goes on or left none."""
    if run.active:
        raise ConflictError(f"The run {run.id} is still going on: watch its cluster {run.cluster}.")
    found = _events(run)
    if found is None:
        raise NotFoundError(f"No events were recorded of the run {run.id} ({run.status}).")
    return [found]


def report(run: Run) -> str:
    """Return the run's report, made now when none was saved with it."""
    from workbench.runs import store

    if run.active:
        raise ConflictError(f"The run {run.id} is still going on. Its report is there when it has ended.")
    saved = store.folder(run.id) / "report.html"
    if saved.exists():
        return saved.read_text()
    from workbench.figures.report import report_html
    from workbench.runs.explaining.diagnosis import diagnosed

    return report_html(diagnosed(run), _events(run))


def beside(runs: Sequence[Run]) -> str:
    """Return the records of runs one above the other as a page. Raises a WorkbenchError where one left none."""
    events = [batch for run in runs for batch in read_batches(run)]
    from workbench.figures.report import beside_html

    return beside_html(runs, events)


def _events(run: Run) -> Batch | None:
    from workbench.monitor.record import read_events
    from workbench.runs import store

    try:
        return read_events(store.folder(run.id) / "events.parquet")
    except NotFoundError:
        return None
