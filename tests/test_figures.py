import json

import pytest
from distributed.utils import color_of as dask_color_of

from tests.feeds import tasks_of
from workbench.figures.colors import DARK, LIGHT, VIRIDIS, TaskColors, category_colors, color_index, contrast
from workbench.figures.layout import build, item
from workbench.figures.live import LiveFigure
from workbench.monitor.events import Batch, Progress, Task, WorkerSample

START = 1_700_000_000.0


def task(index, *, worker="tcp://a:1", thread=1, name="add", kind="compute", length=0.05, status="ok"):
    start = START + 0.1 * index
    return Task(f"{name}-{index}", name, worker, thread, kind, start, start + length, 80, status)


def sample(seconds, worker="tcp://a:1", name="0", **changes):
    values = {"cpu": 50.0, "memory": 2**30, "memory_limit": 2**31, "spilled": 0, "n_executing": 1, "n_threads": 2}
    return WorkerSample(worker, name, START + seconds, **(values | changes))


def progress(seconds, **counts):
    return Progress(
        START + seconds,
        {name: {"total": total, "done": done, "erred": 0, "processing": 0} for name, (done, total) in counts.items()},
    )


def batch(*tasks, samples=(), counts=None, at=None, recorded=False):
    at = at if at is not None else max((each.stop for each in tasks), default=START)
    return Batch(at, tasks_of(tasks), tuple(samples), counts, recorded)


class Page:
    """A page that embeds the figure and applies patches."""

    def __init__(self):
        self.sources = {}

    def apply(self, patches):
        for patch in patches:
            if patch.mode == "replace":
                self.sources[patch.source] = {name: list(column) for name, column in patch.columns.items()}
                continue
            if patch.mode == "set":
                self.sources.setdefault(patch.source, {}).update(patch.columns)
                continue
            for name, column in patch.columns.items():
                kept = self.sources[patch.source].setdefault(name, [])
                kept += column
                del kept[: max(0, len(kept) - patch.rollover)]


def test_a_page_that_applies_patches_has_every_task():
    figure, page = LiveFigure(), Page()
    for index in range(40):
        figure.feed([batch(task(index))])
        page.apply(figure.patches())
    assert len(page.sources["tasks"]["left"]) == 40
    assert page.sources["tasks"]["left"][-1] == pytest.approx(1000 * (START + 3.9))
    assert page.sources["tasks"]["key"][-1] == "add-39"


def test_columns_of_a_patch_are_equally_long_and_json():
    figure = LiveFigure()
    figure.feed(
        [batch(task(0), task(1, status="erred"), samples=[sample(0.0), sample(0.5)], counts=progress(0, add=(1, 2)))]
    )
    for patch in [*figure.patches(), *figure.show_range(1000 * START, 1000 * START + 500, 800)]:
        assert patch.mode == "set" or len({len(column) for column in patch.columns.values()}) == 1, patch.source
        json.dumps(patch.columns, allow_nan=False)


def test_nothing_new_makes_no_patches():
    figure = LiveFigure()
    figure.feed([batch(task(0), samples=[sample(0.0)], counts=progress(0, add=(1, 1)))])
    assert figure.patches()
    assert figure.patches() == []


def test_new_tasks_are_streamed_and_not_all_sent_again():
    figure = LiveFigure()
    figure.feed([batch(*(task(index) for index in range(20)))])
    figure.patches()
    figure.feed([batch(task(20))])
    tasks = [patch for patch in figure.patches() if patch.source == "tasks"]
    assert [(patch.mode, len(patch.columns["left"])) for patch in tasks] == [("stream", 1)]


def test_all_threads_have_their_rows_before_the_first_task_and_none_moves():
    figure, page = LiveFigure(), Page()
    figure.feed([batch(samples=[sample(0, "tcp://a:1", "2"), sample(0, "tcp://b:1", "10")])])
    page.apply(figure.patches())
    rows = ["worker 2 · 1", "· 2", "worker 10 · 1", "· 2"]
    assert page.sources["lanes"]["label"] == rows
    for number, worker in enumerate(("tcp://b:1", "tcp://a:1")):
        figure.feed([batch(task(number, worker=worker))])
        later = figure.patches()
        page.apply(later)
        assert not {"lanes", "tasks_plot", "tasks_range"} & {each.source for each in later}
    by_worker = dict(zip(page.sources["tasks"]["worker"], page.sources["tasks"]["y"], strict=True))
    assert by_worker == {"2": 0.0, "10": 2.0}


def test_a_worker_that_was_started_anew_goes_on_in_its_lane_and_line():
    figure, page = LiveFigure(), Page()
    figure.feed(
        [batch(task(0, worker="tcp://a:1"), samples=[sample(0, "tcp://a:1", "0"), sample(0.5, "tcp://a:1", "0")])]
    )
    page.apply(figure.patches())
    figure.feed([batch(task(9, worker="tcp://a:2"))])
    page.apply(figure.patches())
    figure.feed([batch(task(10, worker="tcp://a:2"), samples=[sample(1, "tcp://a:2", "0")])])
    page.apply(figure.patches())
    assert page.sources["lanes"]["label"] == ["worker 0 · 1", "· 2"]
    assert page.sources["tasks"]["y"] == [0.0, 0.0, 0.0]
    assert set(page.sources["workers_memory"]["worker"]) == {"0"}


def test_lanes_are_labelled_by_worker_and_thread():
    figure, page = LiveFigure(), Page()
    figure.feed([batch(*(task(i, thread=i) for i in range(3)), samples=[sample(0)])])
    page.apply(figure.patches())
    assert page.sources["lanes"]["label"] == ["worker 0 · 1", "· 2", "· 3"]


def test_a_long_stream_stays_small_on_the_screen():
    figure, page = LiveFigure(), Page()
    for start in range(0, 18_000, 1800):
        rows = [
            Task(f"k-{i}", f"name-{i % 7}", "w", i % 4, "compute", START + i * 1e-3, START + i * 1e-3 + 4e-3, 8, "ok")
            for i in range(start, start + 1800)
        ]
        figure.feed([batch(*rows)])
        page.apply(figure.patches())
    assert len(page.sources["tasks"]["left"]) <= 6_000
    assert page.sources["window"]["end"][0] == pytest.approx(1000 * (START + 18), rel=1e-9)
    shown = [right for right in page.sources["tasks"]["right"] if right > 1000 * (START + 17.8)]
    assert shown


def test_a_range_is_shown_in_full_detail_and_following_goes_on():
    figure, page = LiveFigure(), Page()
    rows = [
        Task(f"k-{i}", "x", "w", 1, "compute", START + i * 1e-3, START + i * 1e-3 + 5e-4, 8, "ok")
        for i in range(50_000)
    ]
    figure.feed([batch(*rows)])
    page.apply(figure.patches())
    begin = 1000 * (START + 3)
    page.apply(figure.show_range(begin, begin + 100, 800))
    inside = [
        key
        for key, left in zip(page.sources["tasks"]["key"], page.sources["tasks"]["left"], strict=True)
        if begin <= left < begin + 100
    ]
    assert len(inside) == 100
    assert all(key.startswith("k-") for key in inside)
    figure.feed([batch(Task("late", "x", "w", 1, "compute", START + 50.5, START + 50.6, 8, "ok"))])
    page.apply(figure.patches())
    assert "late" in page.sources["tasks"]["key"]


def test_a_recorded_run_is_shown_as_a_whole():
    figure = LiveFigure()
    rows = [task(index) for index in (0, 10, 5_000)]
    figure.feed([batch(*rows, recorded=True)])
    start, end = figure.window()
    assert start <= 1000 * START
    assert end >= 1000 * rows[-1].stop


def test_transfers_are_red_spilling_orange_and_failures_black_on_a_light_page():
    figure = LiveFigure("light")
    rows = [task(0, kind="transfer"), task(1, kind="disk-write"), task(2, kind="deserialize"), task(3, status="erred")]
    figure.feed([batch(*rows)])
    tasks = next(patch for patch in figure.patches() if patch.source == "tasks")
    assert tasks.columns["color"] == [LIGHT.transfer, LIGHT.disk, LIGHT.other, "#000000"]
    assert tasks.columns["kind"] == ["transfer for ", "disk-write for ", "deserialize for ", ""]
    assert tasks.columns["name"] == ["add"] * 4
    assert tasks.columns["more"] == ["", "", "", " (failed)"]


def test_a_task_that_failed_at_once_is_wide_enough_to_be_seen():
    figure = LiveFigure()
    figure.feed([batch(task(0), task(100), task(50, status="erred", length=0.0))])
    tasks = next(patch for patch in figure.patches() if patch.source == "tasks")
    place = tasks.columns["more"].index(" (failed)")
    start, end = figure.window()
    assert tasks.columns["right"][place] - tasks.columns["left"][place] >= 2e-3 * (end - start)


def test_names_have_the_colours_of_dasks_own_dashboard():
    for name in ("add", "random_sample", "sum-aggregate", "transpose", "qr"):
        assert VIRIDIS[color_index(name)] == dask_color_of(name)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_colour_can_be_seen_on_its_page(theme):
    assert min(contrast(color, theme.background) for color in category_colors(theme)) >= 1.7
    assert contrast(theme.text, theme.background) >= 7
    assert contrast(theme.muted, theme.background) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_colours_of_names_differ(theme):
    assert len(set(category_colors(theme))) == 23


def test_each_name_of_a_figure_has_a_colour_of_its_own():
    colors = TaskColors()
    names = [f"task-{number}" for number in range(40)]
    indices = [colors.index(name) for name in names]
    assert len(set(indices[: len(VIRIDIS)])) == len(VIRIDIS)
    assert indices[0] == color_index(names[0])
    assert [colors.index(name) for name in names] == indices


def test_no_task_glares_on_a_dark_page():
    assert max(contrast(color, DARK.background) for color in category_colors(DARK)[: len(VIRIDIS)]) < 8


def test_the_time_axis_of_a_run_begins_at_zero():
    figure = LiveFigure()
    figure.feed([batch(task(3), samples=[sample(0)])])
    window = next(patch.columns for patch in figure.patches() if patch.source == "window")
    assert window["origin"] == [1000 * (START + 0.3)]


def words(figure):
    return next(patch.columns["text"] for patch in figure.patches() if patch.source == "empty")


def test_the_time_axis_counts_from_zero_before_anything_has_come():
    models = {model.name: model for model in build(LIGHT).references()}
    assert (models["time"].start, models["time"].end) == (0, 30_000)
    assert models["window"].data["origin"] == []


def test_an_empty_figure_says_why():
    figure = LiveFigure(name="calm-otter")
    assert words(figure).startswith("Nothing has come from calm-otter yet.")
    figure.feed([Batch(START, samples=(sample(0),))])
    assert words(figure).startswith("No tasks on calm-otter since this was opened.")
    count = {"total": 5, "done": 0, "erred": 0, "processing": 2}
    figure.feed([Batch(START, progress=Progress(START, {"x": count}))])
    assert words(figure).startswith("2 tasks are being computed.")
    figure.feed([Batch(START, progress=Progress(START, {"x": count | {"done": 5, "processing": 0}}))])
    assert words(figure).startswith("No task has ended since this was opened.")
    figure.feed([batch(task(0))])
    assert words(figure) == ""


def test_a_run_without_tasks_says_so():
    figure = LiveFigure()
    figure.feed([Batch(START, recorded=True)])
    assert words(figure) == "No task of this run was recorded: it ended before its first task did."


def test_a_name_that_is_markup_stays_text():
    assert "<b>" not in words(LiveFigure(name="<b>"))


def test_progress_shows_the_largest_names_and_adds_up_the_rest():
    figure = LiveFigure()
    counts = progress(0, **{f"name{index}": (index, 100 + index) for index in range(30)})
    figure.feed([Batch(START, progress=counts)])
    columns = next(patch.columns for patch in figure.patches() if patch.source == "progress")
    assert columns["name"][0] == "name29"
    assert columns["name"][-1] == "23 more names"
    assert len(columns["name"]) == 8
    assert columns["count"][0] == "29 / 129"


def test_failed_tasks_are_named_beside_the_bar():
    figure = LiveFigure()
    counts = {"x": {"total": 4, "done": 1, "erred": 2, "processing": 1}}
    figure.feed([Batch(START, progress=Progress(START, counts))])
    columns = next(patch.columns for patch in figure.patches() if patch.source == "progress")
    assert columns["count"] == ["1 / 4, 2 failed"]
    assert (columns["done"], columns["erred"], columns["processing"]) == ([0.25], [0.75], [1.0])


def test_memory_is_drawn_below_its_limit_line():
    figure = LiveFigure()
    figure.feed([Batch(START, samples=(sample(0), sample(0.5, memory=3 * 2**29)))])
    patches = {patch.source: patch.columns for patch in figure.patches()}
    assert patches["workers_memory"]["y0"] == [1.0]
    assert patches["workers_memory"]["y1"] == [1.5]
    assert patches["limits"]["memory"] == [2.0]
    assert patches["memory_range"]["end"] > 2.0
    assert patches["limits"]["cpu"] == [200.0]


def test_workers_without_a_limit_have_a_scale_all_the_same():
    figure = LiveFigure()
    figure.feed([Batch(START, samples=(sample(0, memory_limit=0),))])
    patches = {patch.source: patch.columns for patch in figure.patches()}
    assert patches["memory_range"]["end"] > 1.0
    assert patches["limits"]["memory"][0] < 0


def test_the_document_has_all_that_a_page_looks_for():
    figure = LiveFigure("dark")
    figure.feed([batch(task(0), samples=[sample(0)], counts=progress(0, add=(1, 1)))])
    names = {patch.source for patch in figure.patches()}
    assert names >= {"tasks", "tasks_plot", "tasks_range", "tasks_ticks", "cpu_title", "empty", "kinds", "window"}
    document = json.dumps(item("dark"))
    for name in (*names, "time"):
        assert f'"name": "{name}"' in document, name
    json.loads(document, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


def test_models_of_a_figure_get_ids_of_their_own_and_a_column_called_id_keeps_its_values() -> None:
    from workbench.views.drawing import with_own_ids

    source = {"type": "object", "name": "ColumnDataSource", "id": "p1", "attributes": {"data": {"id": ["p1", "p2"]}}}
    glyph = {
        "type": "object",
        "name": "Quad",
        "id": "p2",
        "attributes": {"data": {"id": "p1"}, "words": {"id": "x", "n": 1}},
    }
    first, second = with_own_ids({"doc": {"roots": [source, glyph]}, "root_id": "p1"})["doc"]["roots"]
    assert first["id"] not in ("p1", second["id"])
    assert second["attributes"]["data"] == {"id": first["id"]}
    assert first["attributes"]["data"] == {"id": ["p1", "p2"]}
    assert second["attributes"]["words"] == {"id": "x", "n": 1}
