import json
import re
from html.parser import HTMLParser

import pytest

from tests.feeds import tasks_of
from workbench.figures.report import report_html
from workbench.monitor.events import Batch, Progress, Task, WorkerSample
from workbench.runs.run import WATCHED, Run

START = 1_700_000_000.0
RUN = {
    "id": "a1b2c3",
    "workload": "array_sum",
    "status": "done",
    "cluster": "calm-otter",
    "parameters": {"size": "2GiB"},
    "resolved": {"shape": [12000, 12000], "seed": 0},
    "notes": ["Chunks of 8 MiB keep two threads busy."],
    "started": START,
    "seconds": 3.2134,
    "bytes": 2 * 2**30,
    "result": {"value": 396009007.558},
    "check": {"passed": True, "what": "The sum is within 3 standard errors."},
    "spec": {
        "profile": "cpu",
        "n_workers": 2,
        "threads_per_worker": 1,
        "memory_limit": 2**30,
        "why": ["One process for each core."],
    },
    "versions": {"dask": "2026.7.1"},
    "error": None,
}


def report_of(run, events=None):
    return report_html(Run.model_validate_json(json.dumps(run)), events)


def recorded():
    rows = [
        Task(f"add-{i}", "add", f"tcp://a:{i % 2}", 1, "compute", START + i / 10, START + i / 10 + 0.08, 8, "ok")
        for i in range(50)
    ]
    sample = WorkerSample("tcp://a:0", "0", START, 50.0, 2**30, 2**31, 0, 1, 1)
    count = {"total": 50, "done": 50, "erred": 0, "processing": 0}
    return Batch(START + 5, tasks_of(rows), (sample,), Progress(START + 5, {"add": count}), True)


class References(HTMLParser):
    """All that a page would fetch by itself."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.open = []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.found += [(tag, name, value) for name, value in attributes if name in ("src", "href", "srcset", "action")]


@pytest.fixture(scope="module")
def page():
    return report_of(RUN, recorded())


def test_the_report_refers_to_nothing_outside_of_itself(page):
    references = References()
    references.feed(page)
    assert references.found == []
    assert "link" not in references.open
    assert "iframe" not in references.open
    assert "@import" not in page
    assert not re.search(r"url\(\s*['\"]?https?:", page)
    # What is ours, without BokehJS, holds no address at all.
    ours = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "http" not in ours
    assert "//" not in ours


def test_the_report_says_what_was_run_and_what_came_out(page):
    for text in (
        "array_sum",
        "done",
        "calm-otter",
        "2GiB",
        "(12000, 12000)",
        "3.21 s",
        "2 GiB",
        "396009007.6",
        "Checked: ",
        "within 3 standard errors",
        "One process for each core.",
        "Chunks of 8 MiB",
        "2026.7.1",
    ):
        assert text in page, text


def test_the_report_has_bokeh_and_both_themes_in_it(page):
    assert "prefers-color-scheme: dark" in page
    assert page.count('"patches": [') == 2
    assert page.count('"name": "tasks"') == 2
    assert "root.Bokeh" in page or "Bokeh =" in page


def test_the_parameters_are_on_top_but_the_text_of_a_cell_is_not():
    assert '</h1><p class="wb-Muted">size=2GiB</p>' in re.sub(r"<span.*?</span>", "", report_of(RUN))
    watched = RUN | {"workload": WATCHED, "title": "sums", "parameters": {"source": "print(1)"}}
    assert "print(1)" not in report_of(watched).partition("<h1>")[2].partition("<h2>")[0]


def test_the_error_of_a_failed_run_is_on_top():
    page = report_of(RUN | {"status": "failed", "error": "Worker <0> ran out of memory.", "check": None}, recorded())
    assert "Worker &lt;0&gt; ran out of memory." in page
    assert page.index("ran out of memory") < page.index("What the cluster did")


def test_a_check_that_failed_is_said():
    page = report_of(RUN | {"check": {"passed": False, "what": "Off by 7 standard errors."}})
    assert "The check failed: " in page


def test_a_run_without_events_has_a_report_without_a_figure():
    page = report_of(RUN)
    assert "This run has no recorded events" in page
    assert "<script" not in page


def test_text_of_a_run_is_text_and_not_markup():
    hostile = "</script><script>alert(1)</script>"
    page = report_of(RUN | {"workload": hostile, "parameters": {hostile: hostile}, "error": hostile}, recorded())
    assert "<script>alert(1)" not in page


def test_task_names_cannot_leave_their_script():
    rows = [Task("k", "</script><b>", "w", 1, "compute", START, START + 1, 8, "ok")]
    page = report_of(RUN, Batch(START, tasks_of(rows), recorded=True))
    assert "</script><b>" not in page


def test_a_run_that_left_no_events_is_reported_all_the_same():
    assert "This run has no recorded events" in report_of(RUN)


def test_the_title_says_where_the_gpus_were_simulated() -> None:
    gpus = [{"name": "SIMULATED", "simulated": True}]
    run = RUN | {"spec": RUN["spec"] | {"devices": ["GPU-0"]}, "inventory": {"gpus": gpus}}
    page = report_of(run)
    assert "<title>SIMULATED · Sum or mean of an array</title>" in page
    assert "<h1>SIMULATED · Sum or mean of an array<" in page
    assert "SIMULATED ·" not in report_of(run | {"inventory": None})
