"""On the GPU? Where the blocks of a run lay, told by their types when the workers got to keep them.

A plugin counts on each worker; nothing is read from a device, and of a block only its type and its size are looked at.
What it counts belongs to a task's name, its step. What Dask made one task of several steps is seen as one: its result.

This module travels to workers as it is here: they may have another version of this package, or none.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.utils import key_split, key_split_group

from workbench.runs.counting import wanted

if TYPE_CHECKING:
    from distributed import Client

# A block smaller than this part of what it was made from is a summary, which may well be worked on elsewhere.
_SUMMARY = 0.01
# Steps in which a result leaves the GPU because somebody wants to read it: workbench.linalg.backend's and Dask's.
_READING = ("to-host", "finalize")

Tally = dict[str, Any]
"""blocks, on_gpu, bytes, bytes_on_gpu, fell, first (seconds since the epoch), fell_at (the same, or None)."""


def is_device_array(kind: type) -> bool:
    """Whether arrays of this type lie in a GPU's memory."""
    return hasattr(kind, "__cuda_array_interface__")


class Places(WorkerPlugin):
    """Counts the blocks that a worker makes, and those of them that lie on its GPU."""

    def __init__(self, name: str, is_device: Callable[[type], bool] = is_device_array) -> None:
        self.name = name
        self._is_device = is_device
        self._tallies: dict[str, Tally] = {}
        self._there: set[Any] = set()
        self._worker: Any = None

    def setup(self, worker: Any) -> None:
        """Count for this worker."""
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Count a block that the worker made, and know which of its blocks, fetched ones too, lie on the GPU."""
        if finish == "memory":
            self._keep(key, made=start in ("executing", "long-running"))
        elif finish in ("released", "forgotten"):
            self._there.discard(key)

    def told(self) -> dict[str, Any]:
        """Where this worker computes, and the tallies by group of tasks."""
        device = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
        return {"device": device, "tallies": self._tallies}

    def _keep(self, key: Any, *, made: bool) -> None:
        task = self._worker.state.tasks[key]
        kinds = [kind for kind in self._kinds(key, task.type) if self._is_device(kind) or issubclass(kind, np.ndarray)]
        on_gpu = bool(kinds) and all(map(self._is_device, kinds))
        if on_gpu:
            self._there.add(key)
        if made and kinds:
            n_bytes = task.nbytes or 0
            came_from = sum(other.nbytes or 0 for other in task.dependencies if other.key in self._there)
            self._count(key_split_group(key), n_bytes, on_gpu, fell=not on_gpu and 0 < _SUMMARY * came_from <= n_bytes)

    def _count(self, group: str, n_bytes: int, on_gpu: bool, *, fell: bool) -> None:
        now = time.time()
        fresh = {"blocks": 0, "on_gpu": 0, "bytes": 0, "bytes_on_gpu": 0, "fell": 0, "first": now, "fell_at": None}
        tally = self._tallies.setdefault(group, fresh)
        tally["blocks"] += 1
        tally["bytes"] += n_bytes
        if on_gpu:
            tally["on_gpu"] += 1
            tally["bytes_on_gpu"] += n_bytes
        if fell:
            tally["fell"] += 1
            tally["fell_at"] = tally["fell_at"] or now

    def _kinds(self, key: Any, kind: type) -> Iterable[type]:
        if not issubclass(kind, (tuple, list, dict)):
            return (kind,)
        return _kinds_in(_held(self._worker.data, key))


def _kinds_in(value: Any) -> Iterable[type]:
    """Return the types inside: a QR decomposition is one block, of two arrays."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [kind for item in value for kind in _kinds_in(item)]
    return (type(value),)


def _held(data: Any, key: Any) -> Any:
    """Value of a key as it is held in memory; None for one that was moved out already, which reading would undo."""
    stores = [getattr(data, name, None) for name in ("device", "host", "fast")]
    there = [store for store in stores if store is not None]
    if not there:
        return data.get(key)
    return next((store[key] for store in there if key in store), None)


@contextlib.contextmanager
def counted(client: Client, name: str, is_device: Callable[[type], bool] = is_device_array) -> Iterator[None]:
    """Count on all workers, those that come later too, until the block ends."""
    client.register_plugin(Places(name, is_device))
    try:
        yield
    finally:
        # Without a scheduler there are no workers that could go on counting.
        with contextlib.suppress(OSError, TimeoutError, CancelledError):
            client.unregister_worker_plugin(name)


def collected(client: Client, name: str) -> dict[str, Any]:
    """Fields of `store.OnGpu` for what this client had computed since it began to count under this name."""
    answers = client.run(told, name).values()
    return summary(answers, without=client.run_on_scheduler(groups_of_others, client.id))


def collected_over(clients: Iterable[Client], name: str) -> dict[str, Any]:
    """Fields of `store.OnGpu` for all that was computed on clusters which belong to nobody else."""
    return summary(answer for client in clients for answer in client.run(told, name).values())


def told(name: str, dask_worker: Any) -> dict[str, Any] | None:
    """What the plugin of this name counted on a worker; runs there."""
    plugin = dask_worker.plugins.get(name)
    return None if plugin is None else dict(plugin.told())


def groups_of_others(client_id: str, dask_scheduler: Any = None) -> list[str]:
    """Names of the groups of tasks that other clients want and this one doesn't; runs on the scheduler."""
    of: dict[bool, set[str]] = {True: set(), False: set()}
    for name, client in dask_scheduler.clients.items():
        groups, tasks = wanted(client, dask_scheduler)
        of[name == client_id] |= {group.name for group in groups} | {task.group.name for task in tasks}
    return list(of[False] - of[True])


def summary(answers: Iterable[Mapping[str, Any] | None], without: Iterable[str] = ()) -> dict[str, Any]:
    """Fields of `store.OnGpu`, from what the workers told.

    Parameters
    ----------
    without
        Groups of tasks that belong to somebody else.
    """
    left_out = set(without)
    steps: dict[str, Tally] = {}
    devices: dict[str, int] = {}
    for answer in filter(None, answers):
        for group, tally in answer["tallies"].items():
            step = key_split(group)
            if group in left_out or step.startswith(_READING):
                continue
            steps[step] = _added(steps.get(step), tally)
            if tally["on_gpu"]:
                devices[answer["device"]] = devices.get(answer["device"], 0) + tally["on_gpu"]
    ordered = dict(sorted(steps.items(), key=lambda item: item[1]["first"]))
    counts = {name: sum(tally[name] for tally in ordered.values()) for name in _COUNTS}
    share, share_of_bytes = _part(counts["on_gpu"], counts["blocks"]), _part(counts["bytes_on_gpu"], counts["bytes"])
    return {
        **counts,
        "share": share,
        "share_of_bytes": share_of_bytes,
        "steps": [{"name": name, **{count: tally[count] for count in _COUNTS}} for name, tally in ordered.items()],
        "devices": devices,
        "sentence": _sentence(counts, share, share_of_bytes),
        "warning": _warning(ordered),
    }


_COUNTS = ("blocks", "on_gpu", "bytes", "bytes_on_gpu")


def _added(before: Tally | None, tally: Tally) -> Tally:
    if before is None:
        return dict(tally)
    fell = [at for at in (before["fell_at"], tally["fell_at"]) if at is not None]
    sums = {name: before[name] + tally[name] for name in (*_COUNTS, "fell")}
    return sums | {"first": min(before["first"], tally["first"]), "fell_at": min(fell, default=None)}


def _part(some: int, all_: int) -> float | None:
    return some / all_ if all_ else None


def _sentence(counts: Mapping[str, int], share: float | None, share_of_bytes: float | None) -> str:
    if share is None:
        return "There was no block, on a GPU or elsewhere."
    if counts["on_gpu"] == counts["blocks"]:
        return f"All {counts['blocks']} blocks were on a GPU."
    if not counts["on_gpu"]:
        return f"None of {counts['blocks']} blocks was on a GPU."
    of_bytes = "" if share_of_bytes is None else f", {_percent(share_of_bytes)} of their bytes"
    return f"{counts['on_gpu']} of {counts['blocks']} blocks were on a GPU{of_bytes}."


def _percent(part: float) -> str:
    # 99.96 % of a thing isn't all of it.
    return f"{int(part * 1000) / 10:g} %"


def _warning(steps: Mapping[str, Tally]) -> str | None:
    fallen = {name: tally for name, tally in steps.items() if tally["fell"]}
    if fallen:
        name, tally = min(fallen.items(), key=lambda item: item[1]["fell_at"])
        more = f" So it did in later steps: {', '.join(sorted(set(fallen) - {name}))}." if len(fallen) > 1 else ""
        return (
            f"Data fell back to NumPy in the step {name!r}, where {tally['fell']} of {tally['blocks']} blocks were "
            f"made on the CPU from blocks on the GPU.{more} Look there for np.asarray, .get() or what CuPy lacks."
        )
    if steps and not any(tally["on_gpu"] for tally in steps.values()):
        return (
            f"No block was on a GPU, from the first step {next(iter(steps))!r} on: the workers computed with NumPy. "
            "CuPy makes the blocks where array.backend is 'cupy'."
        )
    return None
