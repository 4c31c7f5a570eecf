"""Conversion of received messages to batches: a scheduler may lack pyarrow, so it sends columns of plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.hardware.gauges import sample_of
from workbench.monitor.events import COUNTS, NO_TASKS, Batch, NoGpus, Progress, Tasks, WorkerSample, make_tasks


def unpack(message: Mapping[str, Any], own: tuple[str, int] | None = None) -> Batch:
    """Convert a message of `workbench.monitor.plugin` to a batch.

    `own` is the id of a client and the number of a watch. Given it, progress counts only that client's tasks since
    then, and the other tasks name their client.
    """
    time = message["time"]
    progress = message.get("progress") if own is None else _own_progress(message, own)
    return Batch(
        time=time,
        tasks=_tasks(message["tasks"], own) if "tasks" in message else NO_TASKS,
        samples=tuple(WorkerSample(*row) for row in message.get("samples", ())),
        progress=Progress(time, progress) if progress is not None else None,
        gpus=tuple(sample_of(sample) for sample in message.get("gpus", ())),
        no_gpus=tuple(NoGpus(*row) for row in message["no_gpus"]) if "no_gpus" in message else None,
    )


def _own_progress(message: Mapping[str, Any], own: tuple[str, int]) -> Mapping[str, Mapping[str, int]] | None:
    if "owners" not in message:
        return None
    added: dict[str, dict[str, int]] = {}
    for client, since, counts in message["owners"]:
        for name, numbers in counts.items() if _is_own((client, since), own) else ():
            count = added.setdefault(name, dict.fromkeys(COUNTS, 0))
            for key, number in zip(COUNTS, numbers, strict=True):
                count[key] += number
    return added


def _is_own(owner: tuple[str, int], own: tuple[str, int]) -> bool:
    return owner[0] == own[0] and owner[1] >= own[1]


def _tasks(columns: Sequence[Sequence[Any]], own: tuple[str, int] | None) -> Tasks:
    key, name, worker, thread, nbytes, status, client, since, kind, start, stop = columns
    sources = None
    if own is not None:
        sources = [None if _is_own(owner, own) else owner[0] for owner in zip(client, since, strict=True)]
    return make_tasks(
        key=key,
        name=name,
        worker=worker,
        thread=thread,
        kind=kind,
        start=start,
        stop=stop,
        nbytes=nbytes,
        status=status,
        source=sources,
    )
