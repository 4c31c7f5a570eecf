"""Thinning a task stream: what must hold at any zoom, on streams made at random from a seed."""

import numpy as np
import pytest

from tests.feeds import tasks_of
from workbench.figures.colors import ERRED, TRANSFER
from workbench.figures.follow import WINDOW, Follow
from workbench.figures.samples import Series
from workbench.figures.timeline import Timeline
from workbench.monitor.events import KINDS, Batch, Progress, Task, Tasks, WorkerSample, make_tasks

START = 1_700_000_000.0


def stream(seed, n_tasks=20_000, n_lanes=4, mean=1e-3, transfers=0.1, erred=0.0):
    """Tasks that follow each other in each lane with pauses between them, in the order in which they end."""
    random = np.random.default_rng(seed)
    lane = random.integers(0, n_lanes, n_tasks)
    duration = random.exponential(mean, n_tasks) * random.choice([0.01, 1, 20], n_tasks)
    pause = random.exponential(mean, n_tasks)
    start = np.empty(n_tasks)
    for index in range(n_lanes):
        own = lane == index
        start[own] = START + np.cumsum(duration[own] + pause[own]) - duration[own]
    order = np.argsort(start + duration)
    kind = np.where(random.random(n_tasks) < transfers, KINDS.index("transfer"), KINDS.index("compute"))
    return make_tasks(
        key=[f"key-{index}" for index in order],
        name=[f"name-{index}" for index in random.integers(0, 12, n_tasks)],
        worker=[f"tcp://w:{index}" for index in lane[order]],
        thread=np.full(n_tasks, 2**40),
        kind=np.array(KINDS)[kind],
        start=start[order],
        stop=(start + duration)[order],
        nbytes=np.ones(n_tasks, np.int64),
        status=np.where(random.random(n_tasks) < erred, "erred", "ok"),
    )


def fed(tasks, size=1_500, **options):
    timeline = Timeline(**options)
    for at in range(0, len(tasks), size):
        timeline.feed(Batch(0.0, Tasks(tasks.table.slice(at, size))))
    return timeline


def computing(tasks, start, end):
    """Seconds of computing for each worker within a stretch of time."""
    seconds = np.clip(tasks.stop, start, end) - np.clip(tasks.start, start, end)
    computed = tasks.kind == KINDS.index("compute")
    return np.bincount(tasks.worker.codes[computed], seconds[computed], len(tasks.worker.values))


def drawn(timeline, view, start, end):
    seconds = view.fill * (np.clip(view.stop, start, end) - np.clip(view.start, start, end))
    computed = view.category < TRANSFER
    by_lane = np.bincount(view.lane[computed], seconds[computed], len(timeline.lanes))
    return {lane.worker: by_lane[index] for index, lane in enumerate(timeline.lanes)}


def zooms(timeline, seed):
    first, last = timeline.span()
    yield first, last
    random = np.random.default_rng(seed)
    for length in (0.5, 0.1, 0.01):
        begin = first + random.random() * (1 - length) * (last - first)
        yield begin, begin + length * (last - first)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [1, 37, 400, 1600])
def test_there_are_never_more_rectangles_than_pixels(seed, width):
    timeline = fed(stream(seed, n_lanes=1 + 3 * seed))
    for start, end in zooms(timeline, seed):
        most = 2 * len(timeline.lanes) * width
        assert len(timeline.view(start, end, width)) <= most


@pytest.mark.parametrize("seed", range(5))
def test_a_limit_of_rectangles_is_kept(seed):
    timeline = fed(stream(seed, n_lanes=40))
    for start, end in zooms(timeline, seed):
        assert len(timeline.view(start, end, 2000, limit=300)) <= 300


@pytest.mark.parametrize("seed", range(5))
def test_each_lane_is_drawn_as_busy_as_it_was(seed):
    tasks = stream(seed)
    timeline = fed(tasks)
    for start, end in zooms(timeline, seed):
        view = timeline.view(start, end, 500)
        expected = dict(zip(tasks.worker.values, computing(tasks, start, end), strict=True))
        for worker, seconds in drawn(timeline, view, start, end).items():
            assert seconds == pytest.approx(expected[worker], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_no_interval_is_left_out(seed):
    tasks = stream(seed, erred=0.01)
    timeline = fed(tasks)
    for start, end in zooms(timeline, seed):
        view = timeline.view(start, end, 300)
        assert view.count.sum() == np.count_nonzero((tasks.stop >= start) & (tasks.start <= end))


def test_what_has_room_is_drawn_as_it_was():
    tasks = stream(1, n_tasks=200)
    timeline = fed(tasks)
    view = timeline.view(*timeline.span(), 1000)
    assert np.array_equal(view.start, tasks.start)
    assert np.array_equal(view.stop, tasks.stop)
    assert set(view.count) == {1}


def test_rectangles_lie_within_a_pixel_of_what_they_stand_for():
    tasks = stream(2)
    timeline = fed(tasks)
    start, end = timeline.span()
    view = timeline.view(start, end, 400)
    pixel = (end - start) / 400
    starts = tasks.start[view.row]
    assert np.all(np.abs(view.start - starts) <= 1.5 * pixel)
    assert np.array_equal([timeline.lanes[lane].worker for lane in view.lane], [tasks.worker[row] for row in view.row])


def test_one_failed_task_among_thousands_is_seen():
    tasks = stream(3)
    status, kind = np.full(len(tasks), "ok", object), np.array(KINDS)[tasks.kind]
    status[7_000], kind[7_000] = "erred", "compute"
    tasks = tasks.replace(status=status, kind=kind)
    timeline = fed(tasks)
    view = timeline.view(*timeline.span(), 200)
    failed = np.flatnonzero(view.category == ERRED)
    assert [task.key for task in timeline.tasks(view.row[failed])] == [tasks[7_000].key]


def test_a_merged_rectangle_has_the_colour_that_took_longest():
    rows = [
        Task(f"a-{i}", "often", "w", 1, "compute", START + i * 1e-3, START + i * 1e-3 + 1e-5, 0, "ok")
        for i in range(90)
    ]
    rows += [Task("b", "long", "w", 1, "compute", START + 0.095, START + 0.099, 0, "ok")]
    timeline = fed(tasks_of(rows))
    view = timeline.view(START, START + 10, 10, limit=10)
    assert [task.name for task in timeline.tasks(view.row)] == ["long"]
    assert view.count.tolist() == [91]
    assert view.busy.tolist() == pytest.approx([90e-5 + 0.004], abs=1e-5)


def test_lanes_are_not_all_idle_at_the_ends_of_columns():
    """Draw a half-filled column as full: gaps at the same place in every lane would look like a barrier."""
    timeline = fed(stream(8, n_lanes=20, transfers=0))
    start, end = timeline.span()
    view = timeline.view(start, end, 1000, limit=400)
    merged = view.count > 1
    widths = view.stop[merged] - view.start[merged]
    assert np.ptp(widths) < 1e-6
    assert view.fill[merged].min() < 0.9


def test_only_new_rows_are_asked_for():
    tasks = stream(4, n_tasks=300)
    timeline = fed(tasks)
    view = timeline.view(*timeline.span(), 1000, since=290)
    assert view.row.tolist() == list(range(290, 300))


def test_the_oldest_go_when_there_are_too_many():
    tasks = stream(5, n_tasks=10_000)
    timeline = fed(tasks, most=2_000)
    assert 2_000 <= len(timeline) <= 2_500
    assert timeline.n_rows == 10_000
    assert timeline.tasks(np.array([9_999]))[0].key == tasks[9_999].key
    view = timeline.view(*timeline.span(), 1000)
    assert view.row.min() >= timeline.first_row
    assert [task.key for task in timeline.tasks(view.row)] == [tasks[row].key for row in view.row]


def test_threads_are_numbered_for_each_worker():
    rows = [
        Task(str(index), "x", worker, thread, "compute", START, START + 1, 0, "ok")
        for index, (worker, thread) in enumerate([("a", 7), ("b", 7), ("a", 5), ("a", 7)])
    ]
    timeline = fed(tasks_of(rows))
    assert sorted((lane.worker, lane.thread) for lane in timeline.lanes) == [("a", 0), ("a", 1), ("b", 0)]


def test_a_million_tasks_are_thinned_to_a_screen():
    timeline = fed(stream(6, n_tasks=1_000_000, n_lanes=8), size=100_000)
    view = timeline.view(*timeline.span(), 1400)
    assert len(view) <= 8_000
    assert view.count.sum() == 1_000_000


def test_an_empty_timeline_has_nothing_to_show():
    timeline = Timeline()
    assert timeline.span() is None
    assert len(timeline.view(0.0, 1.0, 100)) == 0


# -- the window that follows


def computed(start, stop):
    return Batch(stop, tasks_of([Task("k", "x", "w", 1, "compute", start, stop, 0, "ok")]))


def followed(*batches):
    follow = Follow()
    for batch in batches:
        follow.feed(batch)
    return follow.window()


def test_a_short_run_fills_the_view():
    start, end = followed(computed(START, START + 1), computed(START + 1, START + 2))
    assert START - 0.1 < start < START
    assert START + 2 < end < START + 2.1


def test_a_long_run_is_followed_by_its_last_seconds():
    start, end = followed(*(computed(START + i, START + i + 1) for i in range(120)))
    assert end - start == pytest.approx(WINDOW, rel=0.1)
    assert end == pytest.approx(START + 120, abs=1)


def test_work_after_a_pause_is_looked_at_by_itself():
    start, end = followed(computed(START, START + 20), computed(START + 60, START + 61))
    assert start == pytest.approx(START + 60, abs=0.2)
    assert end == pytest.approx(START + 61, abs=0.2)


def test_the_view_stays_with_the_last_work_while_nothing_is_computed():
    idle = Batch(START + 500, samples=(WorkerSample("w", "0", START + 500, 0.0, 1, 1, 0, 0),))
    start, end = followed(computed(START, START + 2), idle)
    assert (start, end) == followed(computed(START, START + 2))


def test_the_view_goes_on_while_a_long_task_is_computed():
    count = {"total": 2, "done": 1, "erred": 0, "processing": 1}
    working = Batch(START + 12, progress=Progress(START + 12, {"x": count}))
    assert followed(computed(START, START + 2), working)[1] >= START + 12


def test_long_tasks_get_a_longer_view():
    start, end = followed(*(computed(START + 60 * i, START + 60 * i + 60) for i in range(10)))
    assert end - start == pytest.approx(240, rel=0.1)


# -- lines of workers


def test_lines_keep_their_peaks_when_thinned():
    series = Series()
    for index in range(10_000):
        memory = 10**9 if index == 5_555 else 1_000 + index
        series.add(WorkerSample("w", "0", START + index, 0.0, memory, 0, 0, 0))
    line = series.segments("memory", START, START + 10_000, 200)
    assert len(line) <= 210
    assert line.y1.max() == 10**9


def test_a_line_is_broken_where_a_worker_was_not_heard_of():
    series = Series()
    for time in (0.0, 0.5, 1.0, 100.0, 100.5):
        series.add(WorkerSample("w", "0", START + time, 50.0, 1, 0, 0, 0))
    line = series.segments("cpu", START, START + 200, 100)
    assert line.x0.tolist() == [START, START + 0.5, START + 100.0]


def test_a_sample_that_comes_twice_is_taken_once():
    series = Series()
    sample = WorkerSample("w", "0", START, 50.0, 1, 0, 0, 0)
    series.add(sample)
    series.add(sample)
    assert len(series) == 1
