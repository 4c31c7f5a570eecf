"""Why a run took the time it took: shares of its workers' time, one sentence, and what to try.

It is made from the record alone (the run and its events), so that it can be made again anywhere.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from workbench.errors import DamagedError, NotFoundError
from workbench.formats import percent
from workbench.monitor.events import KINDS, Batch
from workbench.runs import store
from workbench.runs.explaining.rules import WORTH_WHILE, Facts, suggestions
from workbench.runs.explaining.shares import shares_of
from workbench.runs.run import Diagnosis, Peak, Run, Suggestion

_MOSTLY_WAITING = 0.3
_TIGHT = 0.7  # share of a worker's memory from which on there is little left
_PATIENCE = 2.0  # seconds
_INTERVAL = 0.02  # seconds
_CLOCKS = 0.5  # seconds by which the clock of the runner may be off that of the scheduler


def diagnosis(run: Run) -> Diagnosis | None:
    """Diagnosis that was kept with a run, or one that is made of its record now; None where there is none to make."""
    if run.diagnosis is not None or run.seconds is None:
        return run.diagnosis
    from workbench.monitor.record import read_events

    folder = store.folder(run.id)
    try:
        events = read_events(folder / "events.parquet")
    except DamagedError:
        raise
    except NotFoundError:
        return None
    return diagnose(run, events)


def diagnosed(run: Run) -> Run:
    """`run` with its diagnosis; the file of events is read where it was made by an older version."""
    try:
        found = diagnosis(run)
    except DamagedError as err:
        return run.model_copy(update={"notes": (*run.notes, str(err))})
    return run if found is run.diagnosis else run.model_copy(update={"diagnosis": found})


def awaited(run: Run) -> Run:
    """`run` with its diagnosis, which its runner makes a moment after the answer: wait for that, and not for long."""
    deadline = time.monotonic() + _PATIENCE
    while run.diagnosis is None and run.seconds is not None and store.alive(run) and time.monotonic() < deadline:
        time.sleep(_INTERVAL)
        run = store.get(run.id)
    return diagnosed(run)


def diagnose(run: Run, events: Batch) -> Diagnosis | None:
    """Find out where the `seconds` of a run went, from all events that were recorded of it; None without any task."""
    if not run.seconds or not len(events.tasks):
        return None
    events = _started_again(events)
    everything, events = events, _own(events)
    if not len(events.tasks):
        return None
    began, ended = _moments(run, events)
    threads = _threads(run, events)
    # A thread that computes for others is not idle.
    shares = shares_of(everything, began, ended, threads)
    facts = Facts(run, events, shares, threads, ended - began, (began, ended))
    found, peak = suggestions(facts), _peak(everything, began)
    tight = _tight(peak, found)
    said = _sentence(facts, found)
    if tight:
        said = f"{tight}{said.replace('Nothing avoidable was', 'Of the time nothing avoidable was')}"
    return Diagnosis(
        seconds=ended - began,
        threads=facts.n_threads,
        workers=len(threads),
        shares=shares,
        sentence=said + _others(everything, began, ended),
        suggestions=found,
        peak=peak,
    )


def _peak(events: Batch, began: float) -> Peak | None:
    """Return the fullest that a worker was said to be from then on, and what it computed just then."""
    samples = [each for each in events.samples if each.time >= began]
    if not samples:
        return None
    most = max(samples, key=lambda each: (each.memory / each.memory_limit if each.memory_limit else 0.0, each.memory))
    tasks = events.tasks
    mine = np.array([worker == most.worker for worker in tasks.worker.values], bool)[tasks.worker.codes]
    rows = np.flatnonzero(mine & (tasks.kind == KINDS.index("compute")))
    if not len(rows):
        return None
    # In several at once, the one that began last; between two, the one before; before the first, that one.
    begun = rows[tasks.start[rows] <= most.time]
    going = begun[tasks.stop[begun] >= most.time]
    of = next((found for found in (going, begun) if len(found)), rows[:1])
    last = of[np.argmax(tasks.start[of])]
    return Peak(worker=most.name, task=tasks.name[int(last)], bytes=most.memory, limit=most.memory_limit)


def _tight(peak: Peak | None, found: tuple[Suggestion, ...]) -> str:
    """Say that there was little memory left, before all else; nothing where there was enough, or where a rule tells."""
    if peak is None or peak.share < _TIGHT or any(each.rule == "spilling" for each in found):
        return ""
    return (
        f"There was little memory left: {peak.text()}. Dask pauses a worker at 80 % and ends it at 95 %. Try: smaller "
        "chunks, or more memory for each worker. "
    )


def _started_again(events: Batch) -> Batch:
    """Have a worker that was started again be one.

    It has another address then, by the same name; in a queue, where another job takes the place of one that ended, by
    another name, so that whoever came when another had gone took its place.
    """
    tasks = events.tasks
    stops = np.zeros(len(tasks.worker.values))
    np.maximum.at(stops, tasks.worker.codes, tasks.stop)
    stopped = dict(zip(tasks.worker.values, stops.tolist(), strict=True))
    seen: dict[str, tuple[float, float]] = {}
    for each in events.samples:
        began, ended = seen.get(each.name, (each.time, each.time))
        seen[each.name] = min(began, each.time), max(ended, each.time, stopped.get(each.worker, 0.0))
    places: dict[str, str] = {}
    gone: dict[str, float] = {}
    for name, (began, ended) in sorted(seen.items(), key=lambda item: item[1]):
        place = next((place for place, left in gone.items() if left < began), name)
        places[name], gone[place] = place, ended
    first: dict[str, str] = {}
    now = {each.worker: first.setdefault(places[each.name], each.worker) for each in events.samples}
    if len(first) == len(now):
        return events
    workers = tasks.worker
    renamed = np.array([now.get(each, each) for each in workers.values], object)[workers.codes]
    samples = tuple(replace(each, worker=now[each.worker]) for each in events.samples)
    return replace(events, tasks=tasks.replace(worker=renamed), samples=samples)


def _own(events: Batch) -> Batch:
    own = events.tasks.own
    return events if own.all() else replace(events, tasks=events.tasks.take(np.flatnonzero(own)))


def _others(events: Batch, began: float, ended: float) -> str:
    """Sentence on what was computed for others meanwhile; nothing where that was hardly anything."""
    tasks = events.tasks
    seconds = np.clip(tasks.stop, began, ended) - np.clip(tasks.start, began, ended)
    computing = tasks.kind == KINDS.index("compute")
    total, others = float(seconds[computing].sum()), float(seconds[computing & ~tasks.own].sum())
    if not total or others / total < WORTH_WHILE:
        return ""
    return f" Of the computing {percent(others / total)} was for other computations on the same cluster."


def _moments(run: Run, events: Batch) -> tuple[float, float]:
    """Begin and end of the run by the scheduler's clock."""
    assert run.seconds is not None
    last = float(events.tasks.stop.max())
    began = run.started
    # A run that holds its array first is timed from then on, and clocks may differ: its last task ends it in any case.
    if began is None or abs(last - began - run.seconds) > _CLOCKS:
        return last - run.seconds, last
    return began, began + run.seconds


def _threads(run: Run, events: Batch) -> dict[str, int]:
    """Threads of each worker, also of one that got no task."""
    threads: dict[str, int] = {}
    for worker, code in zip(events.tasks.worker.values, range(len(events.tasks.worker.values)), strict=True):
        rows = events.tasks.worker.codes == code
        if worker and rows.any():
            seen = len(set(events.tasks.thread[rows].tolist()))
            threads[worker] = seen if run.spec is None else run.spec.threads_per_worker
    threads |= {sample.worker: sample.n_threads for sample in events.samples if sample.n_threads}
    return threads


def _sentence(facts: Facts, found: tuple[Suggestion, ...]) -> str:
    """What to change; where no rule met, what took the time: nothing avoidable only where most of it was work."""
    if found:
        first = found[0]
        return f"{first.found[:1].upper()}{first.found[1:]}. Try: {first.change}."
    computing, handing = facts.shares["computing"], facts.shares["scheduler"]
    computed = f"the workers computed for {percent(computing)} of their time"
    if handing > _MOSTLY_WAITING:
        return (
            f"For {percent(handing)} of their time the workers waited for the graph, the next task or the answer's way "
            f"back, which a second run or a larger one has less of; {computed}."
        )
    name, share = max(((each, part) for each, part in facts.shares.items() if each != "computing"), key=lambda x: x[1])
    rest = f"; the largest other share is {name}, {percent(share)}" if share >= WORTH_WHILE else ""
    return f"Nothing avoidable was found: {computed}{rest}."
