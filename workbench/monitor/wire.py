"""Batches as they travel: columns packed as bytes by the scheduler, unpacked into events here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.hardware.gauges import sample_of
from workbench.monitor.events import COUNTS, NO_TASKS, Batch, Labels, Links, NoGpus, Progress, Tasks, WorkerSample


def unpack(message: Mapping[str, Any], own: tuple[str, int] | None = None) -> Batch:
    """Batch in a message of `workbench.monitor.plugin`.

    Given the id of one's `own` client and the number of a watch, progress counts what it was given since then alone,
    and other tasks name their client.
    """
    time = message["time"]
    progress = message.get("progress") if own is None else _own_progress(message, own)
    return Batch(
        time=time,
        tasks=_tasks(message["tasks"], message["byteorder"], own) if "tasks" in message else NO_TASKS,
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


def _tasks(columns: Mapping[str, Any], byteorder: str, own: tuple[str, int] | None) -> Tasks:
    order = "<" if byteorder == "little" else ">"

    def column(name: str, dtype: str) -> np.ndarray[Any, Any]:
        return np.frombuffer(columns[name], order + dtype)

    task = column("task", "i4")
    keys = columns["keys"]
    return Tasks(
        key=[keys[index] for index in task.tolist()],
        name=Labels(tuple(columns["names"]), column("name", "i4")[task].astype(np.int32, copy=False)),
        worker=Labels(tuple(columns["workers"]), column("worker", "i4")[task].astype(np.int32, copy=False)),
        thread=column("thread", "u8")[task].astype(np.int64),
        kind=column("kind", "i1").astype(np.int8, copy=False),
        start=column("start", "f8").astype(np.float64, copy=False),
        stop=column("stop", "f8").astype(np.float64, copy=False),
        nbytes=column("nbytes", "i8")[task].astype(np.int64, copy=False),
        erred=column("erred", "i1")[task].astype(bool),
        source=_source(columns, column("owner", "i4")[task], own) if own is not None and "owner" in columns else None,
    )


def _source(columns: Mapping[str, Any], codes: np.ndarray[Any, Any], own: tuple[str, int]) -> Labels | None:
    owners = tuple("" if _is_own(owner, own) else owner[0] for owner in columns["owners"])
    return Labels(owners, codes.astype(np.int32, copy=False)) if any(owners) else None
