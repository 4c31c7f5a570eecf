"""Totals of a computation as text and as a table with bars: HTML that needs no script. No Bokeh here.

It fits a light and a dark page, so that it can be saved in a notebook and viewed anywhere.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from workbench import formats
from workbench.figures.colors import TaskColors, neutral_color
from workbench.figures.samples import GAP
from workbench.hardware.gauges import GpuSample
from workbench.markup import fragment, tag
from workbench.monitor.events import KINDS, Batch, Tasks

_MOST_ROWS = 8
"""Largest number of task names in the table; one more row sums up the remaining ones."""
_BAR = (100, 10)
"""Width of the longest bar, and height of all, in pixels."""
_COMPUTE, _TRANSFER = KINDS.index("compute"), KINDS.index("transfer")


@dataclass(slots=True)
class Row:
    """Totals of the tasks of one name."""

    name: str
    color: str
    tasks: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Gpu:
    """Samples of one GPU."""

    latest: GpuSample
    use: float = 0.0
    """Sum of the percentages of all samples that have one."""
    n_samples: int = 0
    memory: int = 0
    """Largest number of bytes seen."""


class Totals:
    """Collector of events, batch by batch, that sums them up at any time."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.n_others = 0
        self._transferring = 0.0
        self._colors = TaskColors()
        self._names: dict[str, str] = {}
        self._addresses: set[str] = set()
        self._memory: dict[str, tuple[float, int]] = {}
        self._peak = 0
        self._gpus: dict[str, _Gpu] = {}

    def feed(self, batches: Iterable[Batch]) -> None:
        """Take in events."""
        for batch in batches:
            self._count(batch.tasks)
            for sample in batch.samples:
                self._names[sample.worker] = sample.name
                self._memory[sample.name] = sample.time, sample.memory
            now = max((time for time, _ in self._memory.values()), default=0.0)
            # A worker that reports nothing any more has ended.
            self._peak = max(self._peak, sum(held for time, held in self._memory.values() if now - time <= GAP))
            for gpu in batch.gpus:
                self._add(gpu)

    @property
    def n_tasks(self) -> int:
        """Number of its own finished tasks."""
        return sum(row.tasks for row in self.rows.values())

    def summary(self) -> str:
        """Return one line about the computation, such as '125 tasks on 2 workers, 1.2 s of computing'."""
        workers = {self._names.get(address, address) for address in self._addresses} | set(self._memory)
        parts = [
            f"{formats.count(self.n_tasks, 'task')} on {formats.count(len(workers), 'worker')}",
            f"{formats.duration(sum(row.seconds for row in self.rows.values()))} of computing",
        ]
        if self._transferring:
            parts.append(f"{formats.duration(self._transferring)} of transfers")
        if self._peak:
            parts.append(f"up to {formats.size(self._peak)} seen in the workers")
        if self.n_others:
            parts.append(f"next to {formats.count(self.n_others, 'task')} of other computations")
        return ", ".join(parts)

    def html(self) -> Markup:
        """Return the tasks by name, longest total first, and the GPUs, as tables; nothing without any."""
        return fragment(self._tasks_html(), self._gpus_html())

    def _tasks_html(self) -> Markup:
        rows = sorted(self.rows.values(), key=lambda row: -row.seconds)
        visible, rest = rows[:_MOST_ROWS], rows[_MOST_ROWS:]
        if rest:
            sums = (sum(getattr(row, name) for row in rest) for name in ("tasks", "seconds", "nbytes", "failed"))
            visible.append(Row(f"{formats.count(len(rest), 'more name')}", "#797979", *sums))
        any_failed = any(row.failed for row in rows)
        head = ("Task", "Number", "Computing", "Mean", "Results", *(("Failed",) if any_failed else ()))
        longest = max((row.seconds for row in visible), default=0.0)
        return _table(head, [_cells(row, longest)[: len(head)] for row in visible])

    def _gpus_html(self) -> Markup:
        gpus = sorted(self._gpus.values(), key=lambda gpu: (gpu.latest.host, gpu.latest.index))
        several = len({gpu.latest.host for gpu in gpus}) > 1
        return _table(("GPU", "Mean use", "Most memory"), [_gpu_cells(gpu, several) for gpu in gpus])

    def _count(self, tasks: Tasks) -> None:
        if not len(tasks):
            return
        self._addresses.update(np.array(tasks.worker.values)[np.unique(tasks.worker.codes)].tolist())
        own = tasks.own
        computed = (tasks.kind == _COMPUTE) & own
        seconds, codes, n_names = tasks.stop - tasks.start, tasks.name.codes, len(tasks.name.values)
        sums = [
            np.bincount(codes[computed], weights, n_names)
            for weights in (None, seconds[computed], tasks.nbytes[computed], tasks.erred[computed])
        ]
        for name, number, took, nbytes, failed in zip(
            tasks.name.values, *(each.tolist() for each in sums), strict=True
        ):
            if number:
                row = self.rows.setdefault(name, Row(name, neutral_color(self._colors.index(name))))
                row.tasks += int(number)
                row.seconds += took
                row.nbytes += int(nbytes)
                row.failed += int(failed)
        self._transferring += float(seconds[(tasks.kind == _TRANSFER) & own].sum())
        self.n_others += int(((tasks.kind == _COMPUTE) & ~own).sum())

    def _add(self, sample: GpuSample) -> None:
        gpu = self._gpus.setdefault(sample.uuid, _Gpu(sample))
        gpu.latest = sample
        gpu.memory = max(gpu.memory, sample.memory_used or 0)
        if sample.utilisation is not None:
            gpu.use += sample.utilisation
            gpu.n_samples += 1


def _cells(row: Row, longest: float) -> tuple[str, ...]:
    mean = formats.duration(row.seconds / row.tasks) if row.tasks else ""
    return (
        row.name,
        formats.count(row.tasks),
        fragment(_bar(row.seconds / longest if longest else 0.0, row.color), " ", formats.duration(row.seconds)),
        mean,
        formats.size(row.nbytes),
        formats.count(row.failed),
    )


def _gpu_cells(gpu: _Gpu, several_hosts: bool) -> tuple[str, ...]:
    latest = gpu.latest
    host = f" on {latest.host}" if several_hosts else ""
    simulated = " (SIMULATED)" if latest.simulated else ""
    return (
        f"{latest.index}: {latest.name}{host}{simulated}",
        f"{gpu.use / gpu.n_samples:.0f} %" if gpu.n_samples else "unknown",
        formats.size(gpu.memory) if gpu.memory else "unknown",
    )


def _bar(share: float, color: str) -> Markup:
    """Return a bar as an image that contains itself, which even a notebook that isn't trusted shows."""
    width, height = max(1, round(_BAR[0] * share)), _BAR[1]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        f'<rect width="{width}" height="{height}" fill="{color}"/></svg>'
    )
    data = base64.b64encode(svg.encode()).decode()
    return tag("img", alt="", width=width, height=height, src=f"data:image/svg+xml;base64,{data}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    if not rows:
        return Markup("")
    return tag("table", tag("thead", _row("th", head)), tag("tbody", *(_row("td", row) for row in rows)))


def _row(kind: str, cells: Sequence[str]) -> Markup:
    align = ("left", *["right"] * (len(cells) - 1))
    return tag("tr", *(tag(kind, cell, style=f"text-align:{side}") for cell, side in zip(cells, align, strict=True)))
