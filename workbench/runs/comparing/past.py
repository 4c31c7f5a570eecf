"""Comparisons of past runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from workbench import formats
from workbench.errors import BadInputError, NotFoundError, quoted
from workbench.jobs import folders
from workbench.runs import store
from workbench.runs.comparing import comparisons
from workbench.runs.comparing.comparisons import MOST_ROWS, Comparison, Row
from workbench.runs.comparing.conductor import sample_of
from workbench.runs.run import Run

_FEWEST = 2


def compare_runs(names: Sequence[str]) -> Comparison:
    """Compare runs that have ended, each a row, and save that as a comparison.

    Raises BadInputError for fewer than two runs or an active one, and NotFoundError for an unknown run.
    """
    runs = list({run.id: run for run in map(store.find, names)}.values())
    if not _FEWEST <= len(runs) <= MOST_ROWS:
        raise BadInputError(f"{len(runs)} runs were given. Give from {_FEWEST} to {MOST_ROWS} different ones.")
    going = [run.id for run in runs if run.active]
    if going:
        raise BadInputError(f"The run {going[0]} is still going on. Compare it when it has ended.")
    workloads = list(dict.fromkeys(run.workload for run in runs))
    note = "Runs of the past, one each: they were not measured in turn, and one time says nothing of its spread."
    return _kept(tuple(_row(run, runs) for run in runs), workloads, (note,))


def _kept(rows: tuple[Row, ...], workloads: Sequence[str], notes: tuple[str, ...]) -> Comparison:
    now = time.time()
    n_runs = sum(len(row.samples) for row in rows)
    return comparisons.create(
        Comparison(
            id=folders.new_id(f"compare-{store.name_of(workloads[0]) if len(workloads) == 1 else 'runs'}"),
            workload=", ".join(workloads),
            mode="past",
            status="done",
            rows=rows,
            notes=(*notes, *(["They are of different workloads."] if len(workloads) > 1 else [])),
            done=n_runs,
            total=n_runs,
            created=now,
            started=now,
            stopped=now,
        )
    )


def compare_groups(names: Sequence[str]) -> Comparison:
    """Compare groups of runs, each a row of all runs with one name, and save that as a comparison.

    If all runs of a name failed, its row has the reason. Raises BadInputError for fewer than two names, and
    NotFoundError for a name without ended runs.
    """
    names = list(dict.fromkeys(names))
    if not _FEWEST <= len(names) <= MOST_ROWS:
        raise BadInputError(f"Given: {formats.count(len(names), 'group')}. Give from {_FEWEST} to {MOST_ROWS}.")
    groups = {name: _ended(name) for name in names}
    empty = [name for name, runs in groups.items() if not runs]
    if empty:
        raise NotFoundError(
            f"No run that has ended is called {quoted(empty[0])}. Name runs by watch(name=…), or in the list."
        )
    workloads = list(dict.fromkeys(run.workload for runs in groups.values() for run in runs))
    codes = {run.function.sha for runs in groups.values() for run in runs if run.function is not None}
    notes = ["Runs of the past, pooled by name: they were not measured in turn."]
    notes += ["They are of different code."] if len(codes) > 1 else []
    rows = tuple(_pooled(name, runs) for name, runs in groups.items())
    return _kept(rows, workloads, tuple(notes))


def _ended(name: str) -> list[Run]:
    """Return the runs of this name that are done, or if there are none, all that ended."""
    ended = [run for run in store.of_name(name) if not run.active]
    return [run for run in ended if run.status == "done"] or ended


def _pooled(name: str, runs: Sequence[Run]) -> Row:
    """Return a row of all runs of one name, the oldest first, with the other fields of the newest."""
    found = _row(runs[0], runs[:1])
    samples = tuple(sample_of(run, number) for number, run in enumerate(reversed(runs)))
    return found.model_copy(update={"on": name, "label": name, "samples": samples})


def _row(run: Run, beside: Sequence[Run]) -> Row:
    # It differs from the others by its name, or else by some parameters.
    differing = [
        f"{name}={value}"
        for name, value in run.parameters.items()
        if any(each.parameters.get(name) != value for each in beside)
    ]
    about = run.title if run.title != run.workload else ", ".join(differing)
    label = f"{run.id}{f' ({about})' if about else ''} on {run.cluster}"
    ended = run.error or f"It is {run.status}."
    return Row(
        on=label,
        label=label,
        workload=run.workload,
        sha=run.function and run.function.sha,
        spec=run.spec,
        cluster=run.cluster,
        parameters=run.parameters,
        resolved=run.resolved,
        reason=None if run.status == "done" else ended,
        samples=(sample_of(run),),
        versions=run.versions,
        inventory=run.inventory,
    )
