"""Activity of every thread over time, thinned to what a plot can show. No Bokeh here.

A plot of 1000 pixels can't show a million tasks. `Timeline.view` returns, for a range of time and a width, no more
rectangles than the plot has pixels. Tasks narrower than a pixel column are drawn as one rectangle for each column and
lane. It has the color that took most of the time, and the share of time that they took together as its opacity. So a
lane that is half busy looks half busy at any zoom.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.figures.colors import DISK, ERRED, N_CATEGORIES, OTHER, THEIRS, TRANSFER, TaskColors
from workbench.monitor.events import KINDS, Batch, Task, Tasks

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MOST_INTERVALS = 1_000_000
"""Largest number of intervals in memory; the oldest ones of a longer stream are dropped."""

MOST_RECTANGLES = 8_000
"""Number of rectangles that a browser's canvas draws in 50 ms, regardless of the number of pixels."""

_COMPUTE = KINDS.index("compute")
_CATEGORY_OF_KIND = {"transfer": TRANSFER, "disk-read": DISK, "disk-write": DISK}
_CATEGORIES = np.array([_CATEGORY_OF_KIND.get(kind, OTHER) for kind in KINDS], np.int16)


@dataclass(frozen=True, slots=True)
class Lane:
    """One thread of one worker; threads are numbered in order of appearance."""

    worker: str
    thread: int


@dataclass(frozen=True, slots=True)
class View:
    """Rectangles in columns. Each stands for `count` intervals; `row` is one of them."""

    start: Floats
    stop: Floats
    lane: Integers
    category: Integers
    count: Integers
    busy: Floats
    """Seconds that the intervals took, within the view."""
    fill: Floats
    """Share of the rectangle's time that the intervals took, 1 for a single one."""
    row: Integers

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Integers) -> View:
        """Return these rows of all columns."""
        return View(*(getattr(self, name)[rows] for name in View.__slots__))

    def in_order(self) -> View:
        """Return the view with failed intervals last, to be drawn over the others, and other users' intervals first."""
        last = np.select([self.category == ERRED, self.category == THEIRS], [1, -1])
        return self.take(np.argsort(last, kind="stable"))


def arranged(
    lanes: Sequence[Lane],
    visible: Iterable[int],
    name_of: Callable[[str], str],
    order: Sequence[str],
    threads: Mapping[str, int],
) -> tuple[dict[int, int], list[Lane]]:
    """Return the row of each visible lane, and the sorted rows: by the worker's place in `order`, then by thread.

    Lanes of a restarted worker share a row: `name_of` gives it the same name. Workers have rows for all their
    `threads` before the first task of each, so that no row moves during a run.
    """
    rank = {name: place for place, name in enumerate(order)}
    named = {lane: Lane(name_of(lanes[lane].worker), lanes[lane].thread) for lane in visible}
    reserved = {Lane(name, thread) for name, number in threads.items() for thread in range(number)}
    rows = sorted(
        reserved.union(named.values()), key=lambda each: (rank.get(each.worker, len(rank)), each.worker, each.thread)
    )
    place = {each: row for row, each in enumerate(rows)}
    return dict(sorted(((lane, place[each]) for lane, each in named.items()), key=lambda item: item[1])), rows


def join(views: Sequence[View]) -> View:
    """Return all rectangles of several views."""
    return View(*(np.concatenate([getattr(view, name) for view in views]) for name in View.__slots__))


class Timeline:
    """Intervals of all tasks so far, in columns."""

    def __init__(self, most: int = MOST_INTERVALS) -> None:
        self.lanes: list[Lane] = []
        self.colors = TaskColors()
        self.n_rows = 0
        """Number of rows ever fed; a row keeps its number when older ones are dropped."""
        self.first_row = 0
        """Oldest row that is still there."""
        self._most = most
        self._columns = _Columns(1024)
        self._lane_of: dict[tuple[str, int], int] = {}
        self._n_threads: dict[str, int] = {}
        self._batches: list[Tasks] = []
        self._batch_starts: list[int] = []

    def __len__(self) -> int:
        return self.n_rows - self.first_row

    def feed(self, batch: Batch) -> None:
        """Add the tasks of a batch."""
        if len(batch.tasks):
            self._add(batch.tasks)
        # No part of a record is dropped, however long it is.
        if len(self) > 1.25 * self._most and not batch.recorded:
            self._forget(len(self) - self._most)

    def tasks(self, rows: Integers) -> list[Task]:
        """Return the intervals in these rows, read from each batch at once: Arrow takes as long for one as for many."""
        starts = np.array(self._batch_starts)
        batch = np.searchsorted(starts, rows, side="right") - 1
        order = np.argsort(batch, kind="stable")
        found: list[Any] = [None] * len(rows)
        for places in np.split(order, np.flatnonzero(np.diff(batch[order])) + 1) if len(rows) else ():
            number = batch[places[0]]
            for place, task in zip(places, self._batches[number].take(rows[places] - starts[number]), strict=True):
                found[place] = task
        return found

    def span(self, since: int = 0) -> tuple[float, float] | None:
        """Return the start of the first and the stop of the last interval of rows from `since` on; None without any."""
        skipped = max(0, since - self.first_row)
        if skipped >= len(self):
            return None
        columns = self._filled()
        return float(columns.start[skipped:].min()), float(columns.stop[skipped:].max())

    def view(self, start: float, end: float, width: int, *, since: int = 0, limit: int = MOST_RECTANGLES) -> View:
        """Return rectangles for the time from `start` to `end` on `width` pixels, of rows from `since` on.

        There are at most `limit`, and at most two for each lane and pixel column: one for computing, and one in the
        strip of transfers and disk below it.
        """
        columns = self._filled()
        skipped = max(0, since - self.first_row)
        begins, ends = columns.start[skipped:], columns.stop[skipped:]
        rows = np.flatnonzero((ends >= start) & (begins <= end)) + skipped
        most = min(limit, 2 * max(1, len(self.lanes)) * width)
        if len(rows) <= most:
            return self._exact(rows, start, end)
        n_columns = int(np.clip(limit // max(1, len(self.lanes)), 1, width))
        while True:
            view = self._merged(rows, start, end, n_columns)
            if len(view) <= most or n_columns == 1:
                return view
            n_columns = max(1, int(0.9 * n_columns * most / len(view)))

    def _exact(self, rows: Integers, start: float, end: float) -> View:
        columns = self._filled()
        begins, ends = columns.start[rows], columns.stop[rows]
        return View(
            start=begins,
            stop=ends,
            lane=columns.lane[rows].astype(np.int64),
            category=columns.category[rows].astype(np.int64),
            count=np.ones(len(rows), np.int64),
            busy=np.clip(ends, start, end) - np.clip(begins, start, end),
            fill=np.ones(len(rows)),
            row=rows + self.first_row,
        )

    def _merged(self, rows: Integers, start: float, end: float, n_columns: int) -> View:
        """Return wide intervals as they are, and the others as one rectangle for each lane, column and category."""
        columns = self._filled()
        # A slice if possible: it copies nothing.
        selected: Any = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else rows
        column_width = (end - start) / n_columns
        begins = (np.maximum(columns.start[selected], start) - start) / column_width
        ends = (np.minimum(columns.stop[selected], end) - start) / column_width
        column = np.minimum(begins.astype(np.intp), n_columns - 1)
        last_column = np.minimum(ends.astype(np.intp), n_columns - 1)
        shape = (len(self.lanes) * n_columns, N_CATEGORIES)
        n_slots = shape[0] * shape[1]
        slot = (columns.lane[selected] * n_columns + column) * N_CATEGORIES + columns.category[selected]
        wide = np.flatnonzero(ends - begins >= 1)
        slot[wide] = n_slots
        busy: Any = np.bincount(slot, np.minimum(ends, column + 1) - begins, n_slots + 1)
        count = np.bincount(slot, minlength=n_slots + 1)
        row = np.empty(n_slots + 1, np.int64)
        # An interval that reaches into the next column takes its time there, but is counted where it began.
        over = np.flatnonzero((last_column > column) & (slot < n_slots))
        next_slot = slot[over] + N_CATEGORIES
        busy += np.bincount(next_slot, ends[over] - last_column[over], n_slots + 1)
        row[next_slot] = rows[over]
        row[slot] = rows
        return join(
            [
                self._exact(rows[wide], start, end),
                self._of_cells(
                    busy[:n_slots].reshape(shape),
                    count[:n_slots].reshape(shape),
                    row[:n_slots].reshape(shape),
                    start,
                    column_width,
                    n_columns,
                ),
            ]
        )

    def _of_cells(
        self, busy: Any, count: Integers, row: Integers, start: float, column_width: float, n_columns: int
    ) -> View:
        cell, category, filled, n_intervals = _cells_to_draw(busy, count)
        picked = row[cell, category]
        columns = self._filled()
        lengths = (columns.stop[picked] - columns.start[picked]) / column_width
        single = (n_intervals == 1) & (np.abs(filled - lengths) < 1e-6)
        column_start = start + (cell % n_columns) * column_width
        return View(
            start=np.where(single, columns.start[picked], column_start),
            stop=np.where(single, columns.stop[picked], column_start + column_width),
            lane=cell // n_columns,
            category=category,
            count=n_intervals,
            busy=filled * column_width,
            # Transfers of one thread overlap: together they may take more than the elapsed time.
            fill=np.where(single, 1.0, np.minimum(filled, 1.0)),
            row=picked + self.first_row,
        )

    def _add(self, tasks: Tasks) -> None:
        columns = self._columns.reserve(len(self), len(tasks))
        new = slice(len(self), len(self) + len(tasks))
        columns.start[new] = tasks.start
        columns.stop[new] = np.maximum(tasks.stop, tasks.start)
        columns.lane[new] = self._lanes(tasks)
        columns.category[new] = _categories(tasks, self.colors)
        self._batches.append(tasks)
        self._batch_starts.append(self.n_rows)
        self.n_rows += len(tasks)

    def _lanes(self, tasks: Tasks) -> npt.NDArray[np.int32]:
        threads, which = np.unique(tasks.thread, return_inverse=True)
        # Counting instead of sorting by both: for a million tasks that takes a tenth of the time.
        pair = tasks.worker.codes.astype(np.int64) * len(threads) + which.reshape(-1)
        lanes = np.zeros(len(tasks.worker.values) * len(threads), np.int32)
        for index in np.flatnonzero(np.bincount(pair, minlength=len(lanes))).tolist():
            worker, thread = divmod(index, len(threads))
            lanes[index] = self._lane(tasks.worker.values[worker], int(threads[thread]))
        return lanes[pair]

    def _lane(self, worker: str, thread: int) -> int:
        lane = self._lane_of.get((worker, thread))
        if lane is None:
            lane = self._lane_of[worker, thread] = len(self.lanes)
            number = self._n_threads.get(worker, 0)
            self._n_threads[worker] = number + 1
            self.lanes.append(Lane(worker, number))
        return lane

    def _forget(self, n_rows: int) -> None:
        self._columns.drop(len(self), n_rows)
        self.first_row += n_rows
        n_dropped = bisect_right(self._batch_starts, self.first_row) - 1
        del self._batches[:n_dropped]
        del self._batch_starts[:n_dropped]

    def _filled(self) -> _Columns:
        return self._columns.first(len(self))


class _Columns:
    """Columns, of which only the first rows are filled."""

    def __init__(self, size: int) -> None:
        self.start = np.empty(size)
        self.stop = np.empty(size)
        self.lane = np.empty(size, np.int32)
        self.category = np.empty(size, np.int16)

    def reserve(self, filled: int, more: int) -> _Columns:
        size = len(self.start)
        if filled + more > size:
            self._each(lambda column: np.concatenate([column, np.empty(max(more, size), column.dtype)]))
        return self

    def first(self, n_rows: int) -> _Columns:
        columns = object.__new__(_Columns)
        for name, column in vars(self).items():
            setattr(columns, name, column[:n_rows])
        return columns

    def drop(self, filled: int, n_rows: int) -> None:
        self._each(lambda column: column[n_rows:filled].copy())

    def _each(self, change: Any) -> None:
        for name, column in vars(self).items():
            setattr(self, name, change(column))


def _categories(tasks: Tasks, colors: TaskColors) -> npt.NDArray[np.int16]:
    by_name = np.array([colors.index(name) for name in tasks.name.values], np.int16)
    computed = tasks.kind == _COMPUTE
    categories = np.where(computed, by_name[tasks.name.codes], _CATEGORIES[tasks.kind])
    categories[computed & tasks.erred] = ERRED
    categories[~tasks.own] = np.where(computed, THEIRS, OTHER)[~tasks.own]
    return categories


def _cells_to_draw(busy: Any, count: Integers) -> tuple[Integers, Integers, Floats, Integers]:
    """Return the cells and their categories to draw: the longest one of all computing, and each of the others."""
    computing = slice(0, TRANSFER)
    # The count, in parts of a billion, decides between tasks that took no time at all.
    weight = busy + 1e-9 * count
    cells = np.flatnonzero(weight[:, computing].any(1))
    other_cells, others = np.nonzero(weight[:, TRANSFER:])
    others = others + TRANSFER
    return (
        np.concatenate([cells, other_cells]),
        np.concatenate([weight[cells, computing].argmax(1), others]),
        np.concatenate([busy[cells, computing].sum(1), busy[other_cells, others]]),
        np.concatenate([count[cells, computing].sum(1), count[other_cells, others]]),
    )
