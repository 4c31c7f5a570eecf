"""Diagnosis of a run's time: shares of its workers' time, a summary, and suggestions.

It depends only on the record (the run and its events), so it can be made again anywhere.
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
from workbench.runs.run import SHARES, Diagnosis, Peak, Run, Suggestion

_MOSTLY_WAITING = 0.3
_TIGHT = 0.7  # share of a worker's memory above which little is left
_PATIENCE = 2.0  # seconds
_INTERVAL = 0.02  # seconds
_CLOCKS = 0.5  # seconds by which the clocks of the runner and the scheduler may differ


def diagnosis(run: Run) -> Diagnosis | None:
    """Return the diagnosis saved with a run, or make it from the record; None if that isn't possible."""
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
    """Return `run` with its diagnosis; for a record of an older version, read the events."""
    try:
        found = diagnosis(run)
    except DamagedError as err:
        return run.model_copy(update={"notes": (*run.notes, str(err))})
    return run if found is run.diagnosis else run.model_copy(update={"diagnosis": found})


def awaited(run: Run) -> Run:
    """Return `run` with its diagnosis; wait up to 2 seconds for the runner, which makes it just after the answer."""
    deadline = time.monotonic() + _PATIENCE
    while run.diagnosis is None and run.seconds is not None and store.alive(run) and time.monotonic() < deadline:
        time.sleep(_INTERVAL)
        run = store.get(run.id)
    return diagnosed(run)


def diagnose(run: Run, events: Batch) -> Diagnosis | None:
    """Diagnose the time of a run from all its recorded events; return None without any task."""
    if not run.seconds or not len(events.tasks):
        return None
    events = _started_again(events)
    everything, events = events, _own(events)
    if not len(events.tasks):
        return None
    began, ended = _moments(run, events)
    threads = _threads(run, events)
    # A thread that computes for other clients is not idle.
    shares = shares_of(everything, began, ended, threads)
    facts = Facts(run, events, shares, threads, ended - began)
    found, peak = suggestions(facts), _peak(everything, began)
    tight = _tight(peak, found)
    summary = _sentence(facts, found)
    if tight:
        summary = f"{tight}{summary.replace('Nothing avoidable was', 'Of the time nothing avoidable was')}"
    return Diagnosis(
        seconds=ended - began,
        threads=facts.n_threads,
        workers=len(threads),
        shares=shares,
        sentence=summary + _others(everything, began, ended),
        suggestions=found,
        peak=peak,
    )


def _peak(events: Batch, began: float) -> Peak | None:
    """Return the highest reported memory of a worker since `began`, and its task at that time."""
    samples = [each for each in events.samples if each.time >= began]
    if not samples:
        return None
    most = max(samples, key=lambda each: (each.memory / each.memory_limit if each.memory_limit else 0.0, each.memory))
    tasks = events.tasks
    mine = np.array([worker == most.worker for worker in tasks.worker.values], bool)[tasks.worker.codes]
    rows = np.flatnonzero(mine & (tasks.kind == KINDS.index("compute")))
    if not len(rows):
        return None
    # If several tasks ran then, take the one that started last; if none ran, the previous one, or else the first.
    started = rows[tasks.start[rows] <= most.time]
    going = started[tasks.stop[started] >= most.time]
    of = next((candidates for candidates in (going, started) if len(candidates)), rows[:1])
    last = of[np.argmax(tasks.start[of])]
    return Peak(worker=most.name, task=tasks.name[int(last)], bytes=most.memory, limit=most.memory_limit)


def _tight(peak: Peak | None, found: tuple[Suggestion, ...]) -> str:
    """Return a warning if little memory was left; '' if there was enough, or if a rule already reports it."""
    if peak is None or peak.share < _TIGHT or any(each.rule == "spilling" for each in found):
        return ""
    return (
        f"There was little memory left: {peak.text()}. Dask pauses a worker at 80 % and ends it at 95 %. Try: smaller "
        "chunks, or more memory for each worker. "
    )


def _started_again(events: Batch) -> Batch:
    """Merge a restarted worker with its earlier self.

    It has another address but the same name. In a queue, a new job has another name as well: a worker that starts
    after another has ended replaces that one.
    """
    tasks = events.tasks
    stops = np.zeros(len(tasks.worker.values))
    np.maximum.at(stops, tasks.worker.codes, tasks.stop)
    stopped = dict(zip(tasks.worker.values, stops.tolist(), strict=True))
    spans: dict[str, tuple[float, float]] = {}
    for each in events.samples:
        began, ended = spans.get(each.name, (each.time, each.time))
        spans[each.name] = min(began, each.time), max(ended, each.time, stopped.get(each.worker, 0.0))
    places: dict[str, str] = {}
    ended_at: dict[str, float] = {}
    for name, (began, ended) in sorted(spans.items(), key=lambda item: item[1]):
        place = next((place for place, end in ended_at.items() if end < began), name)
        places[name], ended_at[place] = place, ended
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
    """Return a sentence on computing for other clients, or '' if there was hardly any."""
    tasks = events.tasks
    seconds = np.clip(tasks.stop, began, ended) - np.clip(tasks.start, began, ended)
    computing = tasks.kind == KINDS.index("compute")
    total, others = float(seconds[computing].sum()), float(seconds[computing & ~tasks.own].sum())
    if not total or others / total < WORTH_WHILE:
        return ""
    return f" Of the computing {percent(others / total)} was for other computations on the same cluster."


def _moments(run: Run, events: Batch) -> tuple[float, float]:
    """Return the start and the end of the run by the scheduler's clock."""
    assert run.seconds is not None
    last = float(events.tasks.stop.max())
    began = run.started
    # A run that first persists its array is timed after that, and clocks may differ. Its last task always ends it.
    if began is None or abs(last - began - run.seconds) > _CLOCKS:
        return last - run.seconds, last
    return began, began + run.seconds


def _threads(run: Run, events: Batch) -> dict[str, int]:
    """Count the threads of each worker, including workers without tasks."""
    threads: dict[str, int] = {}
    for code, worker in enumerate(events.tasks.worker.values):
        rows = events.tasks.worker.codes == code
        if worker and rows.any():
            n_seen = len(set(events.tasks.thread[rows].tolist()))
            threads[worker] = (run.spec and run.spec.threads_per_worker) or n_seen
    threads |= {sample.worker: sample.n_threads for sample in events.samples if sample.n_threads}
    return threads


def _sentence(facts: Facts, found: tuple[Suggestion, ...]) -> str:
    """Return the first suggestion, or if no rule applies, a summary of what took the time."""
    if found:
        return found[0].text()
    computing, handing = facts.shares["computing"], facts.shares["building"] + facts.shares["scheduler"]
    computed = f"the workers computed for {percent(computing)} of their time"
    if handing > _MOSTLY_WAITING:
        return (
            f"For {percent(handing)} of their time the workers waited for the graph, the next task or the transfer of "
            f"the answer. A second run, or a larger one, waits less; {computed}."
        )
    name, share = max(((each, part) for each, part in facts.shares.items() if each != "computing"), key=lambda x: x[1])
    rest = f"; the largest other share is: {SHARES[name].title}, {percent(share)}" if share >= WORTH_WHILE else ""
    if share > computing:
        return f"{computed[0].upper()}{computed[1:]}{rest}."
    return f"Nothing avoidable was found: {computed}{rest}."
