"""Comparisons of past runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from workbench.errors import BadInputError
from workbench.jobs import folders
from workbench.runs import store
from workbench.runs.comparing import comparisons
from workbench.runs.comparing.comparisons import MOST_ROWS, Comparison, Row
from workbench.runs.comparing.conductor import sample_of
from workbench.runs.run import Run

_FEWEST = 2


def compare_runs(names: Sequence[str]) -> Comparison:
    """Compare runs that have ended, and save that as a comparison. A row is one run, or all runs of a user's name.

    Raises BadInputError for fewer than two rows or an active run, and NotFoundError for an unknown run.
    """
    groups = dict(map(_group, names))
    if not _FEWEST <= len(groups) <= MOST_ROWS:
        raise BadInputError(f"{len(groups)} runs were given. Give from {_FEWEST} to {MOST_ROWS} different ones.")
    runs = [run for group in groups.values() for run in group]
    going = [run.id for run in runs if run.active]
    if going:
        raise BadInputError(f"The run {going[0]} is still going on. Compare it when it has ended.")
    workloads = list(dict.fromkeys(run.workload for run in runs))
    codes = {run.function.sha for run in runs if run.function is not None}
    notes = ["Runs of the past: they were not measured in turn."]
    notes += ["One time says nothing of its spread."] if any(len(group) == 1 for group in groups.values()) else []
    notes += ["They are of different workloads."] if len(workloads) > 1 else []
    notes += ["They are of different code."] if len(workloads) == 1 and len(codes) > 1 else []
    now = time.time()
    return comparisons.create(
        Comparison(
            id=folders.new_id(f"compare-{store.name_of(workloads[0]) if len(workloads) == 1 else 'runs'}"),
            workload=", ".join(workloads),
            mode="past",
            status="done",
            rows=tuple(_row(name, group, runs) for name, group in groups.items()),
            notes=tuple(notes),
            done=len(runs),
            total=len(runs),
            created=now,
            started=now,
            stopped=now,
        )
    )


def _group(text: str) -> tuple[str, Sequence[Run]]:
    """Return one run and its id, or a name and its runs: the done ones, else all that ended."""
    run = store.find(text)
    if run.title != text:
        return run.id, [run]
    ended = [each for each in store.of_name(text) if not each.active]
    return text, [each for each in ended if each.status == "done"] or ended or [run]


def _row(name: str, runs: Sequence[Run], others: Sequence[Run]) -> Row:
    """Return a row with the fields of the newest run, which is the first; its samples start with the oldest."""
    run = runs[0]
    label = _label(run, others) if name == run.id else name
    return Row(
        on=label,
        label=label,
        workload=run.workload,
        sha=run.function and run.function.sha,
        spec=run.spec,
        cluster=run.cluster,
        parameters=run.parameters,
        resolved=run.resolved,
        reason=None if run.status == "done" else run.error or f"It is {run.status}.",
        samples=tuple(sample_of(each, number) for number, each in enumerate(reversed(runs))),
        versions=run.versions,
        inventory=run.inventory,
    )


def _label(run: Run, others: Sequence[Run]) -> str:
    """Return the label of one run, which differs from the others by its name, or else by some parameters."""
    differing = [
        f"{name}={value}"
        for name, value in run.parameters.items()
        if any(each.parameters.get(name) != value for each in others)
    ]
    about = run.title if run.title != run.workload else ", ".join(differing)
    return f"{run.id}{f' ({about})' if about else ''} on {run.cluster}"
