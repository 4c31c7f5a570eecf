"""The static picture of a computation: what it draws, what it counts, and that any page may show it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np

from tests.feeds import tasks_of
from workbench.figures.colors import DARK, LIGHT, THEIRS, contrast, neutral_colors, neutral_line
from workbench.figures.picture import Picture
from workbench.hardware.gauges import GpuSample
from workbench.monitor.events import Batch, Progress, Task, WorkerSample, make_tasks

ADD = Task("('add-1', 0)", "add", "tcp://a:1", 7, "compute", 10.0, 11.0, 80, "ok")
FETCH = replace(ADD, kind="transfer", start=10.2, stop=10.7)
FAILED = replace(ADD, key="sum-2", name="sum", start=11.0, stop=11.5, status="erred", nbytes=0)
THEIR = replace(ADD, key="other-1", thread=8, source="Client-2")
SAMPLE = WorkerSample("tcp://a:1", "0", 10.5, 150.0, 2**30, 2**32, 5, 2, 4)
GPU = GpuSample("GPU-1", "A100", 0, "here", 10.5, utilisation=50.0, memory_used=2**31, memory_total=2**36)


def picture(*batches: Batch) -> Picture:
    drawn = Picture()
    drawn.feed([Batch(10.0), *batches])
    return drawn


def words(drawn: Picture) -> list[str]:
    return [
        element.text or "" for element in ElementTree.fromstring(drawn.svg()).iter() if element.tag.endswith("text")
    ]


def test_it_draws_progress_tasks_and_memory_with_their_names() -> None:
    samples = (SAMPLE, replace(SAMPLE, time=11.4, memory=2**31))
    counts = {"add": {"total": 4, "done": 1, "erred": 0, "processing": 1}}
    drawn = picture(Batch(12.0, tasks_of([ADD, FETCH, FAILED]), samples, Progress(12.0, counts)))
    assert {"Progress", "add", "1 / 4", "Task stream", "copying", "failed", "worker 0", "Worker memory", "2 s"} <= set(
        words(drawn)
    )
    assert "other computations" not in words(drawn)


def test_a_record_is_drawn_from_its_first_task_on() -> None:
    drawn = Picture()
    drawn.feed([Batch(20.0, tasks_of([ADD, FAILED]), recorded=True)])
    assert "No task has finished." not in words(drawn)


def test_what_others_computed_is_grey_and_not_counted() -> None:
    drawn = picture(Batch(12.0, tasks_of([ADD, THEIR])))
    assert "other computations" in words(drawn)
    assert neutral_colors()[THEIRS] in drawn.svg()
    assert drawn.n_tasks == 1
    assert "next to 1 task of other computations" in drawn.summary()
    assert '<td style="text-align:right">1</td>' in drawn.table()


def test_gpus_are_drawn_where_there_are_samples_of_them() -> None:
    assert "GPU use" not in words(picture(Batch(12.0, tasks_of([ADD]))))
    samples = (GPU, replace(GPU, time=11.0, utilisation=90.0), replace(GPU, time=11.5, utilisation=None))
    assert {"GPU use", "100 %", "GPU memory", "2 GiB", "GPU 0"} <= set(words(picture(Batch(12.0, gpus=samples))))
    assert words(picture(Batch(12.0, gpus=(replace(GPU, simulated=True),))))[0] == "All of this on SIMULATED GPUs"


def test_the_table_has_the_names_that_took_longest_and_the_rest_in_one() -> None:
    rows = [replace(ADD, key=f"n{i}-1", name=f"n{i}", stop=10.0 + 0.1 * (i + 1)) for i in range(12)]
    drawn = picture(Batch(12.0, tasks_of([*rows, FAILED])))
    shown = re.findall(r"<tr><td[^>]*>([^<]*)</td>", drawn.table())
    assert shown == ["n11", "n10", "n9", "n8", "n7", "n6", "n5", "n4", "5 more names"]
    assert "Failed" in drawn.table()


def test_names_are_shown_as_they_are_and_never_as_code() -> None:
    drawn = picture(Batch(12.0, tasks_of([replace(ADD, name="<script>alert(1)</script>")])))
    assert "<script" not in drawn.table() + drawn.image() + drawn.svg()


def test_an_image_holds_all_that_it_shows_and_runs_nothing() -> None:
    html = picture(Batch(12.0, tasks_of([ADD]))).image()
    data = re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    assert data is not None
    assert ElementTree.fromstring(base64.b64decode(data[1])).tag.endswith("svg")
    assert 'alt="1 task on 1 worker, 1 s of computing"' in html


def test_a_hundred_thousand_tasks_make_a_picture_of_some_kilobytes() -> None:
    random, size = np.random.default_rng(1), 100_000
    start = np.sort(10 + 60 * random.random(size))
    tasks = make_tasks(
        key=[""] * size,
        name=random.choice(["a", "b"], size),
        worker=random.choice(["tcp://a:1", "tcp://b:1"], size),
        thread=random.integers(0, 4, size),
        kind=["compute"] * size,
        start=start,
        stop=start + 1e-3,
        nbytes=np.ones(size, np.int64),
        status=["ok"] * size,
    )
    drawn = picture(Batch(71.0, tasks))
    assert drawn.n_tasks == size
    assert len(drawn.svg()) < 120_000


def test_before_anything_has_happened_there_is_a_picture_that_says_so() -> None:
    assert "No task came to the cluster." in words(Picture())
    assert Picture().table() == ""


def test_every_colour_is_seen_on_a_light_page_and_on_a_dark_one() -> None:
    for page in (LIGHT.background, DARK.background):
        assert min(contrast(color, page) for color in neutral_colors()) >= 1.69
        assert min(contrast(neutral_line(index), page) for index in range(8)) >= 2.9


def test_only_workers_whose_memory_is_drawn_are_named_beside_it() -> None:
    lone = replace(SAMPLE, worker="tcp://b:1", name="1")
    drawn = picture(Batch(12.0, tasks_of([ADD]), (SAMPLE, replace(SAMPLE, time=11.4), lone)))
    assert {"Worker memory", "worker 0"} <= set(words(drawn))
    assert "worker 1" not in words(drawn)
    assert "up to 2 GiB seen in the workers" in drawn.summary()
