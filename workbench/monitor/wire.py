"""Batches as they travel: rows of what happened on the scheduler, made into events here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.hardware.gauges import sample_of
from workbench.monitor.events import (
    COUNTS,
    KINDS,
    NO_TASKS,
    Batch,
    Links,
    NoGpus,
    Progress,
    Tasks,
    WorkerSample,
    labels,
)
from workbench.monitor.plugin import Row

_CODES = {kind: code for code, kind in enumerate(KINDS)}


def unpack(message: Mapping[str, Any], own: tuple[str, int] | None = None) -> Batch:
    """Batch in a message of `workbench.monitor.plugin`.

    Given the id of one's `own` client and the number of a watch, progress counts what it was given since then alone,
    and other tasks name their client.
    """
    time = message["time"]
    progress = message.get("progress") if own is None else _own_progress(message, own)
    return Batch(
        time=time,
        tasks=_tasks(message["tasks"], own) if "tasks" in message else NO_TASKS,
        samples=tuple(WorkerSample(*row) for row in message.get("samples", ())),
        progress=Progress(time, progress) if progress is not None else None,
        links=_links(message["links"]) if "links" in message else None,
        gpus=tuple(sample_of(sample) for sample in message.get("gpus", ())),
        no_gpus=tuple(NoGpus(*row) for row in message["no_gpus"]) if "no_gpus" in message else None,
    )


def _links(told: Mapping[str, Any]) -> Links:
    return Links(told["needs"], {(receiver, sender): speed for speed, receiver, sender in told["speeds"]})


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


def _tasks(rows: Sequence[Row], own: tuple[str, int] | None) -> Tasks:
    spans = [span for row in rows for span in row[-1]]
    which = np.repeat(np.arange(len(rows)), [len(row[-1]) for row in rows])
    keys, names, workers, threads, sizes, erred, owners, _ = zip(*rows, strict=True)
    foreign = ["" if own is None or _is_own(owner, own) else owner[0] for owner in owners]
    return Tasks(
        key=[keys[index] for index in which.tolist()],
        name=labels(names).take(which),
        worker=labels(workers).take(which),
        # The identifier of a thread is any number of 64 bits.
        thread=np.array(threads, np.uint64).astype(np.int64)[which],
        kind=np.array([_CODES.get(span["action"], _CODES["other"]) for span in spans], np.int8),
        start=np.array([span["start"] for span in spans], float),
        stop=np.array([span["stop"] for span in spans], float),
        nbytes=np.array(sizes, np.int64)[which],
        erred=np.array(erred, bool)[which],
        source=labels(foreign).take(which) if any(foreign) else None,
    )
