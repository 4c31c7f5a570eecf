"""Tasks of two clients on one cluster stay separate: in messages, in the record, and in the figure."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from tests.feeds import Feed, tasks_of
from workbench.monitor.events import Batch, Task
from workbench.monitor.record import Recorder, read_events


def slowly(number: int) -> int:
    time.sleep(0.01)
    return number + 1


@pytest.fixture(scope="module")
def two_clients() -> Any:
    """Two clients of one cluster in processes, as two notebooks have them."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as mine,
        Client(cluster) as theirs,
    ):
        yield mine, theirs


def computed(batches: list[Batch]) -> list[Task]:
    return [task for batch in batches for task in batch.tasks if task.kind == "compute"]


def test_tasks_of_two_clients_are_told_apart_also_where_they_have_one_name(two_clients: Any) -> None:
    mine, theirs = two_clients
    before = theirs.map(slowly, range(1000, 1003))
    theirs.gather(before)
    with Feed(mine, separate=True) as feed:
        others = theirs.map(slowly, range(20))
        own = mine.map(slowly, range(100, 110))
        mine.gather(own)
        theirs.gather(others)
        # Wanted by both, and computed for the first.
        mine.gather(mine.map(slowly, range(20)))
    batches = feed.take()
    found = {task.key: task.source for task in computed(batches)}
    assert {found[future.key] for future in own} == {""}
    assert {found[future.key] for future in others} == {theirs.id}
    last = [batch.progress.counts for batch in batches if batch.progress is not None][-1]
    assert {name: (count["total"], count["done"]) for name, count in last.items()} == {"slowly": (10, 10)}


def test_an_array_of_another_client_is_its_own_down_to_the_first_task(two_clients: Any) -> None:
    import dask.array as da

    mine, theirs = two_clients
    with Feed(mine, separate=True) as feed, Feed(mine) as whole:
        theirs.compute(da.ones((40, 40), chunks=10).sum()).result()
        mine.compute((da.zeros((40, 40), chunks=10) + 1).sum()).result()
    found = computed(feed.take())
    # Each of the two has a task for each of its sixteen blocks.
    assert min(sum(task.source == source for task in found) for source in ("", theirs.id)) >= 16
    assert {task.source for task in found} == {"", theirs.id}
    assert {task.source for task in computed(whole.take())} == {""}


def test_what_a_client_wanted_before_anybody_watched_is_known_as_its_own(two_clients: Any) -> None:
    mine, theirs = two_clients
    early = theirs.map(slowly, range(200, 260), key="early")
    with Feed(mine, separate=True) as feed:
        theirs.gather(early)
    assert {task.source for task in computed(feed.take())} == {theirs.id}


def test_where_the_time_went_is_told_of_the_runs_own_tasks_and_names_what_others_took() -> None:
    from workbench.runs.explaining.diagnosis import diagnose
    from workbench.runs.run import Run

    run = Run(id="r-1", workload="watched", cluster="c", seconds=2.0, started=10.0)
    both = Batch(12.0, tasks_of([OWN, replace(THEIRS, stop=12.0), replace(OWN, stop=12.0, start=11.0)]))
    found = diagnose(run, both)
    assert found is not None
    assert found.sentence.endswith("Of the computing 50 % was for other computations on the same cluster.")
    alone = diagnose(run, Batch(12.0, tasks_of([OWN, replace(OWN, stop=12.0, start=11.0)])))
    assert alone is not None
    assert "other computations" not in alone.sentence
    assert diagnose(run, Batch(12.0, tasks_of([THEIRS]))) is None


OWN = Task("add-1", "add", "tcp://a:1", 7, "compute", 10.0, 11.0, 80, "ok")
THEIRS = Task("add-2", "add", "tcp://a:1", 8, "compute", 10.0, 11.0, 80, "ok", "Client-2")


def test_a_legend_names_other_computations_only_where_there_are_some() -> None:
    from workbench.figures.live import LiveFigure

    def legend(*rows: Task) -> str:
        figure = LiveFigure()
        figure.feed([Batch(12.0, tasks_of(rows))])
        return next(str(patch.columns["text"]) for patch in figure.patches() if patch.source == "kinds")

    assert "copying between processes" in legend(OWN)
    assert "other computations" not in legend(OWN)
    assert "other computations" in legend(OWN, THEIRS)


def test_a_record_keeps_whose_a_task_was(tmp_path: Path) -> None:
    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(Batch(11.0, tasks_of([OWN])))
        recorder.write(Batch(12.0, tasks_of([THEIRS, OWN])))
        assert [task.source for task in read_events(tmp_path / "events.parquet").tasks] == ["", "Client-2", ""]
    tasks = read_events(tmp_path / "events.parquet").tasks
    assert list(tasks) == [OWN, THEIRS, OWN]
    assert tasks.own.tolist() == [True, False, True]


def test_a_record_of_one_client_alone_needs_no_room_for_that(tmp_path: Path) -> None:
    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(Batch(11.0, tasks_of([OWN] * 5)))
    assert read_events(tmp_path / "events.parquet").tasks.table["source"].null_count == 5


def test_what_others_computed_is_grey_and_called_so() -> None:
    from workbench.figures.colors import LIGHT
    from workbench.figures.live import LiveFigure

    figure = LiveFigure()
    figure.feed([Batch(12.0, tasks_of([OWN, THEIRS]), recorded=True)])
    columns = next(patch.columns for patch in figure.patches() if patch.source == "tasks")
    words = map("".join, zip(columns["name"], columns["more"], strict=True))
    grey = {name: color == LIGHT.theirs for name, color in zip(words, columns["color"], strict=True)}
    assert grey == {"add": False, "add (of another computation)": True}
