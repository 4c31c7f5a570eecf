"""A figure that is fed with batches of events and returns the changes for the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import escape

from workbench import formats
from workbench.figures.colors import (
    ERRED,
    THEMES,
    TRANSFER,
    category_colors,
    swatch,
    worker_color,
)
from workbench.figures.follow import Follow
from workbench.figures.gpu_lines import DRAWN, GpuLines
from workbench.figures.layout import COLUMNS, kinds_words, progress_room, stream_height, titles
from workbench.figures.patch import Patch, columns, room_for
from workbench.figures.replay import at_the_end, replay_columns
from workbench.figures.samples import Samples, Segments
from workbench.figures.timeline import Lane, Timeline, View, arranged, join
from workbench.markup import fragment
from workbench.monitor.events import COUNTS, Batch, Task, Tasks
from workbench.runs.run import ON_SIMULATED

MOST_NAMES = 8
"""Largest number of progress bars; the last one sums up the remaining names."""

MOST_WORKERS_NAMED = 16

_RECTANGLES = 3_000
"""Largest number of rectangles sent at once; up to twice as many are on the screen before all are sent again."""

_RECTANGLES_PER_LANE = 60
"""Limit per lane, if this allows more: with fewer, eighty lanes would be a mosaic."""

_SEGMENTS = 4_000
_STREAMED_EXACTLY = 60
_WIDTH = 1_000
"""Assumed width of the stream in pixels until `show_range` reports another."""

_GIB = 2.0**30


class LiveFigure:
    """Task stream, progress, CPU and memory of one cluster or one recorded run.

    Feed it with batches, and pass the result of `patches` on to a page that has embedded `layout.item`. `simulated`
    marks its GPUs as simulated in every title; otherwise their samples decide. `refines` means that the page calls
    `show_range` after a zoom.
    """

    def __init__(
        self, theme: str = "light", name: str = "this cluster", *, simulated: bool = False, refines: bool = True
    ) -> None:
        self.theme = THEMES[theme]
        self.name = name
        self.timeline = Timeline()
        self._follow = Follow()
        self._samples = Samples()
        self._series = self._samples.series
        self.gpus = GpuLines(self.theme)
        """GPU samples fed so far."""
        self._counts: dict[str, Mapping[str, int]] = {}
        self._simulated = simulated
        self._refines = refines
        self._others = False
        self._on_gpus = False
        self._record: Tasks | None = None
        """All tasks of a recorded run."""
        self._pinned: tuple[float, float, int, int] | None = None
        self._rows: dict[int, int] = {}
        self._lanes: list[Lane] = []
        """Threads of the rows from top to bottom, with the names of their workers."""
        self._sent = _Sent()

    # -- input

    def feed(self, batches: Iterable[Batch]) -> None:
        """Take in events; `patches` returns the resulting changes."""
        for batch in batches:
            if batch.recorded:
                self._record = batch.tasks
            self.timeline.feed(batch)
            self._follow.feed(batch)
            self.gpus.feed(batch)
            self._simulated = self._simulated or any(gpu.simulated for gpu in batch.gpus)
            self._on_gpus = self._on_gpus or bool(batch.gpus)
            self._others = self._others or not batch.tasks.own.all()
            self._samples.add(batch.samples)
            if batch.progress is not None:
                self._counts = dict(batch.progress.counts)

    # -- output

    def patches(self) -> list[Patch]:
        """Return the changes since the last call."""
        candidates = [
            *self._task_patches(),
            *self._lanes_patches(),
            *self._progress_patches(),
            *self._replay_patches(),
            *self._sample_patches(),
            *self.gpus.patches(self._seconds_in_view(), self._pinned_time()),
            *self._limits_patches(),
            *self._words_patches(),
            self._window_patch(),
        ]
        return [patch for patch in candidates if patch is not None and self._sent.is_new(patch)]

    def show_range(self, start: float, end: float, width: int, *, limit: int | None = None) -> list[Patch]:
        """Return changes that show the time from `start` to `end` (ms since the epoch) in detail on `width` pixels.

        Later events are still streamed, so a page that follows again has them. At most `limit` rectangles are returned.
        """
        limit = limit or 2 * self._most_rectangles
        self._pinned = (start / 1000, end / 1000, max(1, int(width)), limit)
        gpus = self.gpus.replaced(self._seconds_in_view(), self._pinned_time())
        return [*self._replaced_tasks(), *self._replaced_samples(), *gpus]

    def window(self) -> tuple[float, float]:
        """Return the range (ms since the epoch) that shows current work, or all of a recorded run."""
        start, end = self._follow.window() if self._record is None else self._follow.whole()
        return 1000 * start, 1000 * end

    def _seconds_in_view(self) -> tuple[float, float]:
        start, end = self.window()
        return start / 1000, end / 1000

    def _pinned_time(self) -> tuple[float, float, int] | None:
        return None if self._pinned is None else self._pinned[:3]

    # -- tasks

    @property
    def _most_rectangles(self) -> int:
        return max(_RECTANGLES, _RECTANGLES_PER_LANE * len(self.timeline.lanes))

    def _task_patches(self) -> Iterator[Patch]:
        timeline, sent = self.timeline, self._sent
        start, end = (edge / 1000 for edge in self.window())
        # A lane moves to another row as soon as its worker turns out to be a restarted one.
        renamed = (self._samples.names, self._threads(start)) != sent.workers
        if timeline.n_rows == sent.n_rows and not renamed:
            return
        new = self._new_rectangles(start, end)
        full = sent.n_rectangles + len(new) > 2 * self._most_rectangles
        # Rectangles sent for another zoom are too coarse now, or the gaps between them are too wide.
        rescaled = not 0.5 < (end - start) / (sent.seconds or 1e-9) < 2
        if (
            renamed
            or full
            or rescaled
            or sent.n_rows < timeline.first_row
            or not set(new.lane.tolist()) <= self._rows.keys()
        ):
            yield from self._replaced_tasks()
            return
        sent.n_rows = timeline.n_rows
        sent.n_rectangles += len(new)
        if len(new):
            yield Patch("tasks", "stream", self._task_columns(new, end - start), 2 * self._most_rectangles)

    def _new_rectangles(self, start: float, end: float) -> View:
        """Return rectangles of tasks that weren't sent, at the resolution of the window from `start` to `end`."""
        timeline, since = self.timeline, self._sent.n_rows
        first, last = timeline.span(since) or (start, end)
        begin = max(start, min(first, end))
        width = max(1, round(_WIDTH * (max(last, end) - begin) / (end - start)))
        limit = max(_STREAMED_EXACTLY, 2 * len(timeline.lanes) * width)
        return timeline.view(begin, max(last, end), width, since=since, limit=limit)

    def _replaced_tasks(self) -> Iterator[Patch]:
        start, end = (edge / 1000 for edge in self.window())
        # Include some earlier time, so that a short pan finds something.
        begin = start - (end - start) / 2 if self._record is None else start
        views = [self.timeline.view(begin, end, _WIDTH, limit=self._most_rectangles)]
        width = end - start
        if self._pinned is not None:
            pinned_start, pinned_end, pixels, limit = self._pinned
            width = pinned_end - pinned_start
            half = width / 2
            begin, stop = pinned_start - half, pinned_end + half
            outside = (views[0].stop < begin) | (views[0].start > stop)
            views = [views[0].take(np.flatnonzero(outside)), self._part(begin, stop, 2 * pixels, limit)]
        view = join(views)
        lanes = np.unique(view.lane).tolist()
        threads = self._threads(start)
        self._rows, self._lanes = arranged(self.timeline.lanes, lanes, self._samples.name, self._workers(), threads)
        self._sent.workers = dict(self._samples.names), threads
        self._sent.n_rows = self.timeline.n_rows
        self._sent.n_rectangles = len(view)
        self._sent.seconds = end - start
        yield from self._lanes_patches()
        yield Patch("tasks", "replace", self._task_columns(view, width))

    def _part(self, start: float, end: float, pixels: int, limit: int) -> View:
        """Return rectangles of a range. If tasks fill only part of it, that part has its share of the limit."""
        first, last = self._follow.edges()
        begin, stop = max(start, first), min(end, last)
        if not start < end or not begin < stop:
            return self.timeline.view(start, end, pixels, limit=limit)
        share = (stop - begin) / (end - start)
        return self.timeline.view(begin, stop, max(1, round(share * pixels)), limit=max(1, round(share * limit)))

    def _threads(self, start: float) -> dict[str, int]:
        """Return the number of threads of each worker that has reported since `start`."""
        latest = (each.latest for each in self._series.values())
        return {each.name: each.n_threads for each in latest if each is not None and each.time >= start}

    def _lanes_patches(self) -> Iterator[Patch]:
        lanes = self._lanes
        height, lane_height = stream_height(len(lanes))
        labels = _lane_labels(lanes, self._label, lane_height)
        yield Patch("lanes", "replace", {"label": labels})
        yield Patch("tasks_ticks", "set", {"ticks": [index for index, label in enumerate(labels) if label]})
        yield room_for(len(labels), "tasks_range")
        if labels:
            yield Patch("tasks_plot", "set", {"min_height": height})

    def _task_columns(self, view: View, seconds: float) -> dict[str, list[Any]]:
        view = view.in_order()
        colors = category_colors(self.theme)
        y = np.array([self._rows[lane] for lane in view.lane.tolist()], float)
        # Transfers and disk are drawn as a strip at the foot of their lane: they run in parallel with computing.
        transfers = (view.category >= TRANSFER) & (view.category < ERRED)
        pixel = seconds / _WIDTH
        separate = (view.stop - view.start) > 6 * pixel
        merged = view.count != 1
        color = [colors[category] for category in view.category.tolist()]
        words = [
            self._describe(task, count, busy)
            for task, count, busy in zip(
                self.timeline.tasks(view.row), view.count.tolist(), view.busy.tolist(), strict=True
            )
        ]
        return {
            "left": _ms(view.start),
            # A task that failed at once must be visible.
            "right": _ms(np.where(view.category == ERRED, np.maximum(view.stop, view.start + 3 * pixel), view.stop)),
            "y": np.where(transfers, y + 0.29, y).tolist(),
            "height": np.where(transfers, 0.3, 0.88).tolist(),
            "color": color,
            "line": np.select([merged, separate], ["#00000000", self.theme.background], color).tolist(),
            # Even a nearly empty rectangle must be visible.
            "alpha": np.where(merged, 0.25 + 0.75 * view.fill, 1.0).round(2).tolist(),
            **{key: [row[key] for row in words] for key in _WORDS},
        }

    def _describe(self, task: Task, count: int, busy: float) -> dict[str, str]:
        several = count > 1
        more = (
            " (failed)" if task.status == "erred" else "",
            " (of another computation)" if task.source else "",
            f" and {count - 1} more" if several else "",
        )
        return {
            "kind": "" if task.kind == "compute" else f"{task.kind} for ",
            "name": task.name,
            "more": "".join(more),
            "worker": self._short(task.worker),
            "key": ("zoom in to see each" if self._refines else "drawn as one") if several else _shortened(task.key),
            "duration": f"{formats.duration(busy)} together" if several else formats.duration(task.stop - task.start),
            "nbytes": "" if several else f"result {formats.size(task.nbytes)}",
        }

    # -- progress

    def _progress_patches(self) -> Iterator[Patch]:
        bars = self._progress_columns()
        yield Patch("progress", "replace", bars)
        yield from progress_room(len(bars["name"]))

    def _progress_columns(self) -> dict[str, list[Any]]:
        bars = progress_bars(self._counts)
        rows = [(names[0] if len(names) == 1 else f"{len(names)} more names", count) for names, count in bars]
        return {
            "y": list(range(len(rows))),
            "foot": [index + 0.31 for index in range(len(rows))],
            "done": [count["done"] / count["total"] for _, count in rows],
            "erred": [(count["done"] + count["erred"]) / count["total"] for _, count in rows],
            "processing": [
                min(1.0, (count["done"] + count["erred"] + count["processing"]) / count["total"]) for _, count in rows
            ],
            "color": [category_colors(self.theme)[self.timeline.colors.index(names[0])] for names, _ in bars],
            "name": [_shortened(name, 40) for name, _ in rows],
            "count": [count_words(count) for _, count in rows],
        }

    def _replay_patches(self) -> Iterator[Patch]:
        if not len(self.timeline) or self._record is None or self.timeline.n_rows == self._sent.n_replayed:
            return
        self._sent.n_replayed = self.timeline.n_rows
        start, end = self._follow.edges()
        bars = progress_bars(self._counts)
        bar_columns = self._progress_columns()
        yield Patch("replay", "replace", replay_columns(self._record, bars, bar_columns, start, end))
        yield from at_the_end(end - start)

    # -- workers

    def _workers(self) -> list[str]:
        """Return the names of workers, in order."""
        return sorted(self._series, key=lambda worker: natural(self._short(worker)))

    def _short(self, worker: str) -> str:
        """Return a short name or address."""
        name = self._samples.name(worker)
        # A worker with a GPU of its own is named after it, because no lane has room for a UUID.
        return self.gpus.label(name) or _shortened(name.rpartition("://")[2], 24)

    def _label(self, worker: str) -> str:
        short = self._short(worker)
        if len(short) <= 3:
            return f"worker {short}"
        if self.gpus.label(self._samples.name(worker)):
            return short
        host, colon, port = short.rpartition(":")
        return f"…:{port}" if colon and host else _shortened(short, 11)

    def _sample_patches(self) -> Iterator[Patch]:
        known = self._sent.n_samples
        new = {worker: len(series) - known.get(worker, 0) for worker, series in self._series.items()}
        if not any(new.values()):
            return
        if set(new) != set(known) or self._sent.n_segments + sum(new.values()) > 2 * _SEGMENTS:
            yield from self._replaced_samples()
            return
        for source, quantity, unit in _QUANTITIES:
            lines = [(worker, self._series[worker].segments_since(quantity, known[worker])) for worker in new]
            yield Patch(source, "stream", self._segment_columns(source, quantity, unit, lines), 2 * _SEGMENTS)
        self._sent.n_segments += sum(new.values())
        self._sent.n_samples = {worker: len(series) for worker, series in self._series.items()}

    def _replaced_samples(self) -> Iterator[Patch]:
        start, end = self._follow.whole()
        each = max(20, _SEGMENTS // max(1, len(self._series)))
        n_segments = 0
        for source, quantity, unit in _QUANTITIES:
            parts = [(start, end, each)]
            if self._pinned is not None:
                begin, stop, pixels, _ = self._pinned
                # A part that covers the whole replaces it: drawing each line twice would cost twice in every frame.
                covers = begin <= start + 1e-3 and stop >= end - 1e-3
                parts = [*([] if covers else parts), (begin, stop, min(each, 2 * pixels))]
            lines = [
                (worker, self._series[worker].segments(quantity, *part)) for worker in self._workers() for part in parts
            ]
            segments = self._segment_columns(source, quantity, unit, lines)
            n_segments = len(segments["x0"])
            yield Patch(source, "replace", segments)
        self._sent.n_segments = n_segments
        self._sent.n_samples = {worker: len(series) for worker, series in self._series.items()}

    def _segment_columns(
        self, source: str, quantity: str, unit: float, lines: Iterable[tuple[str, Segments]]
    ) -> dict[str, list[Any]]:
        order = {worker: index for index, worker in enumerate(self._workers())}
        rows = (
            (
                1000 * x0,
                1000 * x1,
                y0 / unit,
                y1 / unit,
                worker_color(order[worker], self.theme),
                self._short(worker),
                text,
            )
            for worker, segments in lines
            for x0, y0, x1, y1 in segments
            for text in [formats.size(y1) if quantity == "memory" else f"{y1:.0f} %"]
        )
        return columns(COLUMNS[source], rows)

    def _limits_patches(self) -> Iterator[Patch]:
        latest = [series.latest for series in self._series.values() if series.latest is not None]
        if not latest:
            return
        threads = max(sample.n_threads for sample in latest)
        cpu = 100.0 * max(threads, 1)
        memory = sorted({sample.memory_limit / _GIB for sample in latest if sample.memory_limit})
        most = max(sample.memory for sample in latest) / _GIB
        self._sent.most_memory = max(self._sent.most_memory, most)
        lines = memory[-3:] or [-1.0]
        yield Patch("limits", "replace", {"cpu": [cpu] * len(lines), "memory": lines})
        yield Patch("cpu_range", "set", {"end": 1.12 * cpu})
        yield Patch("memory_range", "set", {"end": 1.08 * max([*memory, self._sent.most_memory])})

    # -- words and time

    def _words_patches(self) -> Iterator[Patch]:
        for name, text in (("empty", self._why_empty()), ("worker_names", self._worker_names())):
            yield Patch(name, "set", {"text": text, "visible": text != ""})
        kinds = kinds_words(self.theme, others=self._others, gpus=self._on_gpus)
        yield Patch("kinds", "set", {"text": kinds})
        yield from titles(ON_SIMULATED if self._simulated else "")

    def _why_empty(self) -> str:
        if len(self.timeline):
            return ""
        if self._record is not None:
            return "No task of this run was recorded: it ended before its first task did."
        if not self._series and not self._counts:
            return escape(
                f"Nothing has come from {self.name} yet. It has no workers, or it is just being connected to."
            )
        processing = sum(count["processing"] for count in self._counts.values())
        if processing:
            tasks = f"{formats.count(processing, 'task')} {'is' if processing == 1 else 'are'}"
            return f"{tasks} being computed. Each appears here when it is finished."
        if any(count["done"] or count["erred"] for count in self._counts.values()):
            return "No task has ended since this was opened. Each appears here when it is finished."
        return escape(f"No tasks on {self.name} since this was opened. Each appears here when it is finished.")

    def _worker_names(self) -> str:
        workers = self._workers()
        if len(workers) > MOST_WORKERS_NAMED:
            return f"{len(workers)} workers. Point at a line to see whose it is. Dashed: the limit of each."
        if not workers:
            return ""
        names = (
            swatch(worker_color(index, self.theme), f"worker {self._short(worker)}")
            for index, worker in enumerate(workers)
        )
        return fragment(*names, "dashed: the limit of each")

    def _window_patch(self) -> Patch | None:
        if self._follow.is_empty:
            return None
        start, end = self.window()
        first, last = (1000 * each for each in self._follow.whole())
        origin = 1000 * (self._follow.origin if self._record is None else self._follow.edges()[0])
        times = {"start": start, "end": end, "first": first, "last": last, "origin": origin}
        return Patch("window", "replace", {name: [time] for name, time in times.items()})


class _Sent:
    """The state of the screen."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.workers: tuple[dict[str, str], dict[str, int]] = {}, {}
        """Names of workers by address, and their threads by name."""
        self.n_replayed = 0
        self.n_rectangles = 0
        self.seconds = 0.0
        """Visible range, in seconds, when all rectangles were last sent."""
        self.n_samples: dict[str, int] = {}
        self.n_segments = 0
        self.most_memory = 0.0
        self._last: dict[str, dict[str, Any]] = {}

    def is_new(self, patch: Patch) -> bool:
        """Return whether a patch changes anything: small sources are rebuilt each time and sent only if they differ."""
        if patch.mode == "stream" or patch.source in _GROWING:
            return True
        if self._last.get(patch.source) == patch.columns:
            return False
        self._last[patch.source] = patch.columns
        return True


_WORDS = ("kind", "name", "more", "worker", "key", "duration", "nbytes")

_GROWING = ("tasks", "workers_cpu", "workers_memory", *DRAWN)

_QUANTITIES = (("workers_cpu", "cpu", 1.0), ("workers_memory", "memory", _GIB))


def _ms(seconds: Any) -> list[float]:
    return np.round(1000 * seconds, 3).tolist()


def _lane_labels(lanes: Sequence[Lane], label_of: Callable[[str], str], lane_height: float) -> list[str]:
    """Return the labels of lanes from top to bottom, '' if a label doesn't fit."""
    several = {lane.worker for lane in lanes if lane.thread > 0}
    labels: list[str] = []
    worker = None
    room = 0.0
    for lane in lanes:
        room += lane_height
        label = ""
        if lane.worker != worker:
            label = label_of(lane.worker)
            if lane.worker in several and lane_height >= 13:
                label += f" · {lane.thread + 1}"
        elif lane_height >= 13:
            label = f"· {lane.thread + 1}"
        worker = lane.worker
        if label and room < 13 and labels:
            label = ""
        if label:
            room = 0.0
        labels.append(label)
    return labels


def progress_bars(counts: Mapping[str, Mapping[str, int]]) -> list[tuple[Sequence[str], Mapping[str, int]]]:
    """Return the task names of each bar, and the sum of their counts."""
    rows = sorted(((name, count) for name, count in counts.items() if count["total"]), key=lambda row: -row[1]["total"])
    if len(rows) <= MOST_NAMES:
        return [((name,), count) for name, count in rows]
    rest = rows[MOST_NAMES - 1 :]
    sums = {key: sum(count[key] for _, count in rest) for key in COUNTS}
    bars = [((name,), count) for name, count in rows[: MOST_NAMES - 1]]
    return [*bars, (tuple(name for name, _ in rest), sums)]


def count_words(count: Mapping[str, int]) -> str:
    """Return counts as text: '303 / 312, 2 failed'."""
    words = f"{formats.count(count['done'])} / {formats.count(count['total'])}"
    return f"{words}, {count['erred']} failed" if count["erred"] else words


def natural(name: str) -> tuple[int, int, str]:
    """Return a sort key that puts worker 10 after worker 9."""
    return (0, int(name), "") if name.isdigit() else (1, 0, name)


def _shortened(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2 - 1) :]}"
