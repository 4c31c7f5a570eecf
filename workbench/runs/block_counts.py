"""Counts on workers of the blocks that they make; sent to them as text."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.utils import key_split_group

# A block smaller than this part of its input is a summary, such as a sum, which the CPU may well process.
_SUMMARY = 0.01


def is_device_array(kind: type) -> bool:
    """Return whether arrays of this type lie in a GPU's memory."""
    return hasattr(kind, "__cuda_array_interface__")


class Places(WorkerPlugin):
    """Counter of the blocks that a worker makes, and of those on its GPU."""

    def __init__(self, name: str, is_device: Callable[[type], bool] = is_device_array) -> None:
        self.name = name
        self._is_device = is_device
        self._tallies: dict[str, dict[str, Any]] = {}
        self._on_gpu: set[Any] = set()
        self._worker: Any = None

    def setup(self, worker: Any) -> None:
        """Start to count for this worker."""
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Count a block that the worker made, and note which of its blocks, fetched ones too, lie on the GPU."""
        if finish == "memory":
            self._note(key, made=start in ("executing", "long-running"))
        elif finish in ("released", "forgotten"):
            self._on_gpu.discard(key)

    def tallies(self) -> dict[str, Any]:
        """Return this worker's device, and the tallies by group of tasks."""
        device = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
        return {"device": device, "tallies": self._tallies}

    def _note(self, key: Any, *, made: bool) -> None:
        task = self._worker.state.tasks[key]
        kinds = [kind for kind in self._kinds(key, task.type) if self._is_device(kind) or issubclass(kind, np.ndarray)]
        on_gpu = bool(kinds) and all(map(self._is_device, kinds))
        if on_gpu:
            self._on_gpu.add(key)
        if made and kinds:
            n_bytes = task.nbytes or 0
            n_bytes_in = sum(other.nbytes or 0 for other in task.dependencies if other.key in self._on_gpu)
            self._count(key_split_group(key), n_bytes, on_gpu, fell=not on_gpu and 0 < _SUMMARY * n_bytes_in <= n_bytes)

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
        return _kinds_in(_value_in_memory(self._worker.data, key))


def _kinds_in(value: Any) -> Iterable[type]:
    """Return the types inside: a QR decomposition is one block, of two arrays."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [kind for item in value for kind in _kinds_in(item)]
    return (type(value),)


def _value_in_memory(data: Any, key: Any) -> Any:
    """Return the value of a key in memory; None for a spilled one, which reading would bring back."""
    stores = [getattr(data, name, None) for name in ("device", "host", "fast")]
    levels = [store for store in stores if store is not None]
    if not levels:
        return data.get(key)
    return next((store[key] for store in levels if key in store), None)


def read_tallies(name: str, dask_worker: Any) -> dict[str, Any] | None:
    """Return the counts of the plugin of this name on a worker."""
    plugin = dask_worker.plugins.get(name)
    return None if plugin is None else dict(plugin.tallies())
