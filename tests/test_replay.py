import json

from tests.benchmarks.bench_views import batches
from tests.cell import Cell
from tests.feeds import tasks_of
from workbench.figures.live import LiveFigure
from workbench.figures.replay import STEPS, counts_over_time
from workbench.monitor.events import Batch, Progress, Task
from workbench.monitor.record import Recorder, read_events

TASKS = tasks_of(
    [
        Task("a-0", "a", "tcp://a:1", 7, "compute", 100.0, 102.0, 8, "ok"),
        Task("a-0", "a", "tcp://a:1", 7, "transfer", 101.0, 102.0, 8, "ok"),
        Task("a-1", "a", "tcp://a:1", 8, "compute", 104.0, 108.0, 8, "ok"),
        Task("b-0", "b", "tcp://a:1", 8, "compute", 108.0, 109.0, 8, "erred"),
    ]
)


def count(total, done, erred=0):
    return {"total": total, "done": done, "erred": erred, "processing": 0}


def record(n_tasks, path):
    with Recorder(path) as recorder:
        for batch in batches(n_tasks):
            recorder.write(batch)
    return read_events(path)


def test_tasks_are_counted_over_time_up_to_what_the_scheduler_counted():
    bars = [(("a",), count(4, 4)), (("b", "c"), count(3, 1, 1))]
    first, second = counts_over_time(TASKS, bars, 100.0, 110.0)
    # Half of four at 2 s of 10, all at 8 s; the transfer isn't counted.
    assert [first["done"][step] for step in (STEPS // 5 - 2, STEPS // 5 + 1, STEPS - 1)] == [0, 2, 4]
    assert first["started"][0] == 2
    assert first["total"] == 4
    assert second["erred"][-1] == 1
    # A task that no worker reported counts as done at the end.
    assert second["done"] == [0] * (STEPS - 1) + [1]


def test_a_recorded_run_can_be_replayed_and_a_live_cluster_cannot():
    progress = Progress(109.0, {"a": count(2, 2), "b": count(1, 0, 1)})
    live, recorded = LiveFigure(), LiveFigure()
    live.feed([Batch(110.0, TASKS, (), progress)])
    recorded.feed([Batch(110.0, TASKS, (), progress, recorded=True)])
    assert not [patch for patch in live.patches() if patch.source == "replay"]
    patches = recorded.patches()
    (patch,) = [patch for patch in patches if patch.source == "replay"]
    assert (patch.columns["start"], patch.columns["end"]) == ([100_000.0], [110_000.0])
    assert [row["done"][-1] for row in json.loads(patch.columns["counts"][0])["names"]] == [2, 0]
    changed = {patch.source: patch.columns for patch in patches}
    assert changed["replay_bar"] == {"visible": True}
    assert changed["head"]["end"] == 10.0
    assert not [patch for patch in recorded.patches() if patch.source == "replay"]


def test_a_notebook_replays_a_run(data_folder):
    from workbench.panels import Replay
    from workbench.runs import store
    from workbench.runs.run import Run

    store.create(Run(id="after", workload="array_sum", cluster="calm-otter", status="done", created=5.0))
    record(500, store.folder("after") / "events.parquet")
    with Replay("after") as replay:
        cell = Cell(replay)
        assert cell.acts("figure", run="after", theme="light")["value"]["item"]
        cell.until(lambda: cell.column("replay", "start") and cell.column("tasks", "left"))
