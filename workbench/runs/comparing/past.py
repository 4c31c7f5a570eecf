"""Runs of the past beside one another."""

from __future__ import annotations

import time
from collections.abc import Sequence

from workbench.errors import BadInputError
from workbench.runs import store
from workbench.runs.comparing import comparisons
from workbench.runs.comparing.comparisons import MOST_ROWS, Comparison, Row
from workbench.runs.comparing.conductor import sample_of
from workbench.runs.store import Run

_FEWEST = 2


def compare_runs(names: Sequence[str]) -> Comparison:
    """Put runs beside one another, each a row, and keep that as a comparison.

    Parameters
    ----------
    names
        Ids of runs that have ended, their beginnings or ends, or "last".

    Raises
    ------
    BadInputError
        Fewer than two runs, or one that goes on.
    NotFoundError
        There is no such run.
    """
    runs = list({run.id: run for run in map(store.find, names)}.values())
    if not _FEWEST <= len(runs) <= MOST_ROWS:
        raise BadInputError(f"{len(runs)} runs were given. Give from {_FEWEST} to {MOST_ROWS} different ones.")
    going = [run.id for run in runs if run.active]
    if going:
        raise BadInputError(f"The run {going[0]} is still going on. Compare it when it has ended.")
    now = time.time()
    workloads = list(dict.fromkeys(run.workload for run in runs))
    return comparisons.create(
        Comparison(
            id=comparisons.new_id(workloads[0] if len(workloads) == 1 else "runs"),
            workload=", ".join(workloads),
            mode="past",
            status="done",
            rows=tuple(_row(run) for run in runs),
            notes=_notes(runs, workloads),
            done=len(runs),
            total=len(runs),
            created=now,
            started=now,
            stopped=now,
        )
    )


def _row(run: Run) -> Row:
    label = f"{run.id}{f' ({run.title})' if run.title != run.workload else ''} on {run.cluster}"
    ended = run.error or f"It is {run.status}."
    return Row(
        on=label,
        label=label,
        workload=run.workload,
        spec=run.spec,
        cluster=run.cluster,
        parameters=run.parameters,
        resolved=run.resolved,
        reason=None if run.status == "done" else ended,
        samples=(sample_of(run),),
        versions=run.versions,
        inventory=run.inventory,
    )


def _notes(runs: Sequence[Run], workloads: Sequence[str]) -> tuple[str, ...]:
    notes = ["Runs of the past, one each: they were not measured in turn, and one time says nothing of its spread."]
    if len(workloads) > 1:
        notes.append("They are of different workloads.")
    return tuple(notes)
