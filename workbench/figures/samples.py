"""CPU and memory of workers: over time as line segments, and the current values in one line. No Bokeh here."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from workbench.formats import count, size
from workbench.markup import joined
from workbench.monitor.events import WorkerSample

GAP = 10.0
"""Seconds without a sample after which a line is broken: the worker reported nothing."""


class Series:
    """Samples of one worker, in columns."""

    def __init__(self) -> None:
        self.latest: WorkerSample | None = None
        self._time = array("d")
        self._values = {"cpu": array("d"), "memory": array("d")}

    def __len__(self) -> int:
        return len(self._time)

    def add(self, sample: WorkerSample) -> None:
        """Add a sample, unless it is a repetition, which two watchers of one scheduler may cause."""
        if self.latest is None or sample.time > self.latest.time:
            self.latest = sample
            self._time.append(sample.time)
            for quantity, column in self._values.items():
                column.append(getattr(sample, quantity))

    def segments(self, quantity: str, start: float, end: float, most: int) -> Segments:
        """Return the line of 'cpu' or 'memory' from `start` to `end`, in at most about `most` segments."""
        time = np.array(self._time)
        # One sample beyond each end, so that the line reaches the edges of the plot.
        first = max(0, int(np.searchsorted(time, start)) - 1)
        last = int(np.searchsorted(time, end)) + 1
        return line(*extremes(time[first:last], np.array(self._values[quantity][first:last]), most))

    def segments_since(self, quantity: str, n_known: int) -> Segments:
        """Return the line from the sample before the `n_known`-th on."""
        first = max(0, n_known - 1)
        return line(np.array(self._time[first:]), np.array(self._values[quantity][first:]))


class Samples:
    """Samples of workers, by their names in Dask: a restarted worker continues under its name."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.names: dict[str, str] = {}
        """Names by address."""

    def add(self, samples: Iterable[WorkerSample]) -> None:
        """Add samples."""
        for sample in samples:
            self.names[sample.worker] = sample.name
            self.series.setdefault(sample.name, Series()).add(sample)

    def name(self, worker: str) -> str:
        """Return the name of the worker of an address, or the address itself if it is unknown."""
        return self.names.get(worker, worker)


class Workers:
    """The latest sample of each worker of a cluster: a batch holds only workers with new samples."""

    def __init__(self) -> None:
        self._latest: dict[str, WorkerSample] = {}

    def feed(self, samples: Iterable[WorkerSample]) -> None:
        """Take in samples, and forget workers without a sample for the time that breaks their line."""
        for sample in samples:
            before = self._latest.get(sample.name, sample)
            self._latest[sample.name] = max(before, sample, key=lambda each: each.time)
        now = max((each.time for each in self._latest.values()), default=0.0)
        self._latest = {worker: each for worker, each in self._latest.items() if now - each.time <= GAP}

    def summary(self) -> str:
        """Return the line above a figure for all workers together; '' before the first sample."""
        if not self._latest:
            return ""
        quantities = ("cpu", "memory", "memory_limit", "spilled")
        cpu, memory, limit, spilled = (sum(getattr(each, of) for each in self._latest.values()) for of in quantities)
        parts = (
            count(len(self._latest), "worker"),
            f"{cpu:.0f} % CPU",
            f"{size(memory)} of {size(limit)}" if limit else size(memory),
            f"{size(spilled)} spilled" if spilled else None,
        )
        return joined(parts)


@dataclass(frozen=True, slots=True)
class Segments:
    """Parts of a line in columns: from (`x0`, `y0`) to (`x1`, `y1`)."""

    x0: npt.NDArray[np.float64]
    y0: npt.NDArray[np.float64]
    x1: npt.NDArray[np.float64]
    y1: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.x0)

    def __iter__(self) -> Iterator[tuple[float, float, float, float]]:
        return zip(self.x0.tolist(), self.y0.tolist(), self.x1.tolist(), self.y1.tolist(), strict=True)


def line(time: npt.NDArray[np.float64], values: npt.NDArray[np.float64], gap: float = GAP) -> Segments:
    """Return the line through samples, broken at gaps longer than `gap` seconds."""
    connected = np.diff(time) <= max(gap, 3 * float(np.median(np.diff(time))) if len(time) > 1 else 0.0)
    return Segments(time[:-1][connected], values[:-1][connected], time[1:][connected], values[1:][connected])


def extremes(
    time: npt.NDArray[np.float64], values: npt.NDArray[np.float64], most: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the least and largest value of each of `most` / 2 groups of neighbors, so that all peaks remain."""
    n_groups = max(1, most // 2)
    if len(time) <= 2 * n_groups:
        return time, values
    edges = np.linspace(0, len(time), n_groups + 1).astype(int)
    extrema = []
    for begin, stop in pairwise(edges.tolist()):
        part = values[begin:stop]
        extrema += sorted({begin + int(part.argmin()), begin + int(part.argmax())})
    rows = np.array([0, *extrema, len(time) - 1])
    rows = np.unique(rows)
    return time[rows], values[rows]
