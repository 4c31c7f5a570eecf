"""The totals of a computation that stay in a notebook: what they count, and that any page may show them."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from xml.etree import ElementTree

from tests.feeds import tasks_of
from workbench.figures.colors import DARK, LIGHT, VIRIDIS, contrast, neutral_color
from workbench.figures.totals import Totals
from workbench.hardware.gauges import GpuSample
from workbench.monitor.events import Batch, Task, WorkerSample

ADD = Task("('add-1', 0)", "add", "tcp://a:1", 7, "compute", 10.0, 11.0, 80, "ok")
FETCH = replace(ADD, kind="transfer", start=10.2, stop=10.7)
FAILED = replace(ADD, key="sum-2", name="sum", start=11.0, stop=11.5, status="erred", nbytes=0)
THEIR = replace(ADD, key="other-1", worker="tcp://b:1", thread=8, source="Client-2")
SAMPLE = WorkerSample("tcp://a:1", "0", 10.5, 150.0, 2**30, 2**32, 5, 2, 4)
GPU = GpuSample("GPU-1", "A100", 0, "here", 10.5, utilisation=50.0, memory_used=2**31, memory_total=2**36)


def totals(*batches: Batch) -> Totals:
    made = Totals()
    made.feed([Batch(10.0), *batches])
    return made


def cells(made: Totals) -> list[list[str]]:
    """Text of the cells of each row, without bars."""
    rows = [re.findall("<t[hd].*?>(.*?)</t[hd]>", row) for row in re.findall("<tr>(.*?)</tr>", made.html())]
    return [[re.sub("<[^>]*>", "", cell).strip() for cell in row] for row in rows]


def bars(made: Totals) -> list[ElementTree.Element]:
    """Rectangles of all bars."""
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', made.html())
    return [ElementTree.fromstring(base64.b64decode(each))[0] for each in images]


def test_it_counts_tasks_by_name_with_what_failed() -> None:
    samples = (SAMPLE, replace(SAMPLE, time=11.4, memory=2**31))
    made = totals(Batch(12.0, tasks_of([ADD, FETCH, FAILED]), samples))
    assert cells(made) == [
        ["Task", "Number", "Computing", "Mean", "Results", "Failed"],
        ["add", "1", "1 s", "1 s", "80 B", "0"],
        ["sum", "1", "500 ms", "500 ms", "0 B", "1"],
    ]
    assert made.summary() == (
        "2 tasks on 1 worker, 1.5 s of computing, 500 ms of transfers, up to 2 GiB seen in the workers"
    )


def test_bars_are_as_long_as_the_tasks_took_and_have_the_color_of_their_name() -> None:
    drawn = bars(totals(Batch(12.0, tasks_of([ADD, FAILED]))))
    assert [each.get("width") for each in drawn] == ["100", "50"]
    assert len({each.get("fill") for each in drawn}) == 2


def test_what_others_computed_is_not_counted() -> None:
    made = totals(Batch(12.0, tasks_of([ADD, THEIR])))
    assert made.n_tasks == 1
    assert [row[:2] for row in cells(made)[1:]] == [["add", "1"]]
    assert "next to 1 task of other computations" in made.summary()


def test_a_restarted_worker_is_one_worker() -> None:
    again = replace(SAMPLE, worker="tcp://a:2", time=11.5, memory=2**28)
    made = totals(Batch(12.0, tasks_of([ADD, replace(ADD, worker="tcp://a:2")]), (SAMPLE, again)))
    assert made.summary().startswith("2 tasks on 1 worker, ")
    assert "up to 1 GiB" in totals(Batch(11.0, samples=(SAMPLE,)), Batch(12.0, samples=(again,))).summary()


def test_the_memory_of_a_worker_that_ended_is_not_added_to_later_ones() -> None:
    other = replace(SAMPLE, worker="tcp://b:1", name="1", time=40.0)
    assert "up to 1 GiB" in totals(Batch(11.0, samples=(SAMPLE,)), Batch(40.0, samples=(other,))).summary()


def test_gpus_have_a_table_where_there_are_samples_of_them() -> None:
    assert "GPU" not in totals(Batch(12.0, tasks_of([ADD]))).html()
    samples = (GPU, replace(GPU, time=11.0, utilisation=90.0), replace(GPU, time=11.5, utilisation=None))
    head, row = cells(totals(Batch(12.0, gpus=samples)))
    assert (head, row) == (["GPU", "Mean use", "Most memory"], ["0: A100", "70 %", "2 GiB"])
    other = replace(GPU, uuid="GPU-2", host="there", simulated=True, utilisation=None, memory_used=None)
    assert cells(totals(Batch(12.0, gpus=(GPU, other))))[1:] == [
        ["0: A100 on here", "50 %", "2 GiB"],
        ["0: A100 on there (SIMULATED)", "unknown", "unknown"],
    ]


def test_the_table_has_the_names_that_took_longest_and_the_rest_in_one() -> None:
    rows = [replace(ADD, key=f"n{i}-1", name=f"n{i}", stop=10.0 + 0.1 * (i + 1)) for i in range(12)]
    made = totals(Batch(12.0, tasks_of([*rows, FAILED])))
    assert [row[0] for row in cells(made)[1:]] == ["n11", "n10", "n9", "n8", "n7", "n6", "n5", "n4", "5 more names"]
    assert cells(made)[-1][1:3] == ["5", "1.5 s"]


def test_names_are_shown_as_they_are_and_never_as_code() -> None:
    made = totals(Batch(12.0, tasks_of([replace(ADD, name="<script>alert(1)</script>")])))
    assert "<script" not in made.html()
    assert "&lt;script&gt;alert(1)" in made.html()


def test_before_anything_has_happened_there_is_only_a_line() -> None:
    assert (Totals().html(), Totals().summary()) == ("", "0 tasks on 0 workers, 0 s of computing")


def test_every_bar_is_seen_on_a_light_page_and_on_a_dark_one() -> None:
    for page in (LIGHT.background, DARK.background):
        assert min(contrast(neutral_color(index), page) for index in range(len(VIRIDIS))) >= 1.69
