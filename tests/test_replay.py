import json

import numpy as np
import pytest

from tests.benchmarks.bench_views import batches
from tests.cell import Cell
from tests.feeds import tasks_of
from workbench.figures.beside import ORIGIN, BesideFigure, Record
from workbench.figures.live import LiveFigure
from workbench.figures.replay import STEPS, counts_over_time
from workbench.figures.report import beside_html
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
    first, second = counts_over_time([TASKS], bars, 100.0, 110.0)
    # Half of four at 2 s of 10, all at 8 s; the transfer isn't counted.
    assert [first["done"][step] for step in (STEPS // 5 - 2, STEPS // 5 + 1, STEPS - 1)] == [0, 2, 4]
    assert first["started"][0] == 2
    assert first["total"] == 4
    assert second["erred"][-1] == 1
    # One of which no worker told is done at the end.
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
    recorded.apply(patches)
    assert recorded.layout.named["replay_bar"].visible
    assert recorded.layout.named["head"].end == 10.0
    assert not live.layout.named["replay_bar"].visible
    assert not [patch for patch in recorded.patches() if patch.source == "replay"]


def test_records_beside_one_another_start_at_the_same_time_on_one_axis(tmp_path):
    one, other = record(3_000, tmp_path / "a.parquet"), record(1_000, tmp_path / "b.parquet")
    beside = BesideFigure([Record("before", one, 1.2), Record("after <b>", other)], "dark")
    layouts = [figure.layout for figure in beside.figures]
    assert {layout.stream.x_range for layout in layouts} == {beside.time}
    firsts = [min(layout.sources["tasks"].data["left"]) / 1000 for layout in layouts]
    assert firsts == pytest.approx([ORIGIN] * 2, abs=0.05)
    assert beside.model.select_one({"name": "head"}).end == pytest.approx(
        np.ptp([one.tasks.start.min(), one.time]), abs=0.1
    )
    assert layouts[0].memory.y_range.end == layouts[1].memory.y_range.end
    assert "after &lt;b&gt;" in json.dumps(beside.item())


def test_a_notebook_shows_two_runs_beside_one_another_and_replays_one(data_folder):
    from workbench.panels import Beside, Replay
    from workbench.runs import store
    from workbench.runs.run import Run

    for name in ("before", "after"):
        store.create(Run(id=name, workload="array_sum", cluster="calm-otter", status="done", created=5.0))
        record(500, store.folder(name) / "events.parquet")
    cell = Cell(Beside("before", "after", theme="dark"))
    assert '"play"' in json.dumps(cell.asked("figures/run/any?theme=dark")["value"]["item"])
    with Replay("after") as replay:
        cell = Cell(replay)
        assert cell.asked("figures/run/after?theme=light")["value"]["item"]
        cell.until(lambda: cell.column("replay", "start") and cell.column("tasks", "left"))


def test_the_page_of_two_runs_says_what_differs(tmp_path):
    recorded = record(500, tmp_path / "a.parquet")
    runs = [
        {"id": "a", "workload": "sum", "cluster": "x", "seconds": 4.0, "spec": {"protocol": "tcp", "n_workers": 2}},
        {"id": "b", "workload": "sum", "cluster": "y", "seconds": 2.0, "spec": {"protocol": "ucx", "n_workers": 2}},
    ]
    page = beside_html(runs, [recorded, recorded])
    assert "B took 2 s, 0.5 times the 4 s of A." in page
    assert "<dt>protocol</dt><dd>A: tcp · B: ucx</dd>" in page
    assert "<dt>n_workers</dt>" not in page
    assert "http://" not in page.partition("<script>")[0]
    assert "SIMULATED" not in page
    of_simulated = beside_html([run | {"simulated": True} for run in runs], [recorded, recorded])
    assert "<h1>SIMULATED · sum, twice</h1>" in of_simulated
    assert json.dumps("SIMULATED · sum on x")[1:-1] in of_simulated
