"""A long history is read a page at a time, in a list that grows by clicks."""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests import views
from tests.server.conftest import DONE, html_of, read_state
from tests.server.test_views import text_of
from workbench.runs import store
from workbench.runs.answers import Answers, Array
from workbench.runs.comparing.comparisons import cluster_name
from workbench.runs.run import Run


async def test_a_few_runs_are_listed_and_more_for_each_click(service: Any, session: Any) -> None:
    for number in range(120):
        session.add_run(f"r{number}", status="done", seconds=1.0)
    latest = await html_of(service, "runs")
    assert latest.count('<li id="wb-run-') == 20
    assert "Show more (100 older)" in text_of(latest)
    (choices,) = re.findall(r'data-choose="([^"]*)" data-workbench="older-runs"', latest)
    more = await html_of(service, "runs", json.loads(unescape(choices)))
    assert more.count('<li id="wb-run-') == 70
    assert "older-runs" not in await html_of(service, "runs", {"runs.shown": 200})


async def test_runs_are_found_by_words_and_state_and_counted(service: Any, session: Any) -> None:
    for number in range(30):
        session.add_run(f"r{number}", status="done" if number % 2 else "failed", error=None)
    found = await html_of(service, "runs", {"runs.text": "r1", "runs.status": "done"})
    assert re.findall(r'<li id="wb-run-(\w+)"', found) == [f"r{n}" for n in (1, 11, 13, 15, 17, 19)]
    assert "6 found" in text_of(found)
    assert 'aria-label="Search runs"' in await html_of(service, "runs", {"runs.text": "nothing has this name"})


def test_runs_are_found_by_cluster_and_day(data_folder: Path) -> None:
    noon = datetime(2026, 11, 20, 12).timestamp()
    for number in range(6):
        made = {"cluster": f"c{number % 2}", "created": noon + 86400 * (number // 2)}
        store.create(Run(id=f"r{number}", workload="array_sum", status="done", **made))
    html = views.html_of("runs", {"runs.cluster": "c1", "runs.day": "2026-11-21"})
    assert re.findall(r'<li id="wb-run-(\w+)"', html) == ["r3"]
    assert "Give one such as" in views.html_of("runs", {"runs.day": "yesterday"})


async def test_runs_of_one_comparison_are_one_line_with_the_one_that_goes_on(service: Any, session: Any) -> None:
    comparison = session.add_comparison("compare-array_sum-3fa29c")
    for run in ("r1", "alone"):
        session.add_run(run, status="done", seconds=1.0)
    session.add_run("now", status="running", cluster=cluster_name(comparison.id, 0))
    html = await html_of(service, "runs")
    (line,) = re.findall(rf'<ul id="wb-compared-{comparison.id}".*?</ul>', html)
    assert [run in line for run in ('"wb-run-r1"', '"wb-run-now"', '"wb-run-alone"')] == [True, True, False]
    assert 'value="r1" data-list' in html.replace(line, ""), "what has ended is ticked together"
    assert "Sum or mean of an array, compared 2 runs" in text_of(html)


async def test_what_runs_differ_in_stands_beside_their_names(service: Any, session: Any) -> None:
    for number, parameters in enumerate(({"size": "1GiB", "seed": 2}, {"size": "1GiB", "seed": 1})):
        session.add_run(f"r{number}", status="done", parameters=parameters, seconds=1.0)
    html = await html_of(service, "runs")
    assert "Sum or mean of an array seed=2" in text_of(html)
    assert "Sum or mean of an array size=1GiB, seed=1" in text_of(html)


async def test_ticked_runs_can_be_compared_or_deleted_together(service: Any, session: Any) -> None:
    for number in range(3):
        session.add_run(f"r{number}", status="done", seconds=1.0)
    session.add_run("r3", status="running")
    html = unescape(await html_of(service, "runs", {"runs.ticked": "r0,r2"}))
    (every,) = re.findall(r'data-choose="{"runs.ticked": "(r[^"]*)"}"[^>]*>Tick all 3<', html)
    assert set(every.split(",")) == {"r0", "r1", "r2"}
    for name in ("compare_runs", "delete_runs"):
        assert f'data-action="{name}" data-arguments="{{"runs": ["r0", "r2"]}}"' in html
    assert 'data-page="workbench/api/runs/r0,r2/export"' in html
    one = await html_of(service, "runs", {"runs.ticked": "r0"})
    assert re.search(r"<button[^>]*disabled[^>]*compare-ticked", one)
    before, _, list_and_more = one.partition("wb-list-of-runs")
    assert "compare-ticked" in list_and_more, "a line doesn't move when it is ticked"
    assert before in await html_of(service, "runs")


async def test_a_result_names_its_file_and_parameters(service: Any, session: Any) -> None:
    given = {"path": "/data/of/mine/winds.npy", "k": 3}
    session.add_run("r0", status="done", seconds=2.0, parameters=given)
    for view in ("result", "runs"):
        html = await html_of(service, view)
        assert "path=winds.npy, k=3" in html, view


async def test_the_answer_of_a_run_comes_first_in_its_tab_and_in_the_list(service: Any, session: Any) -> None:
    shares = {"computing": 1.0}
    session.add_run(
        "r0",
        status="done",
        seconds=1.0,
        stopped=time.time(),
        result={"value": 12.5},
        check={"passed": True, "what": "Sum.", "detail": "Long."},
        diagnosis={"seconds": 1.0, "threads": 1, "workers": 1, "shares": shares, "sentence": "All is well."},
    )
    for html in (await html_of(service, "run:r0"), await html_of(service, "result")):
        places = [
            html.index(each) for each in ("12.5", "Checked: Sum.", "Run again", "Where the time went", "Name and note")
        ]
        assert places == sorted(places)


@pytest.mark.parametrize(("running", "asks"), [("array_sum", True), ("transpose_sum", False)])
async def test_a_second_run_of_what_runs_already_asks_first(
    service: Any, session: Any, running: str, asks: bool
) -> None:
    session.add("calm-otter")
    session.add_run("r0", workload=running, status="running", cluster="calm-otter")
    html = await html_of(service, "work")
    assert ('data-confirm="It runs already. Run a second?"' in html) is asks


async def test_a_run_that_the_user_ended_is_calm_and_a_name_is_not_translated(service: Any, session: Any) -> None:
    session.add_run("r0", status="cancelled", error="Cancelled after 2 s.", marks={"name": "Runs"})
    session.add_run("r1", status="failed", error="No memory.")
    listed = await html_of(service, "runs")
    calm, red = listed.partition("Cancelled after 2 s.")[0], listed.partition("No memory.")[0]
    assert calm.endswith('<p class="wb-Muted">')
    assert 'role="alert"' in red[-80:]
    assert '<span translate="no">Runs</span>' in listed


async def test_comparing_ticked_runs_opens_the_chart(act: Any, service: Any, session: Any) -> None:
    session.add_run("r0", status="done", seconds=1.0)
    session.add_run("r1", status="done", seconds=2.0)
    ticked = (await html_of(service, "runs", {"runs.ticked": "r0,r1"})).partition('data-workbench="compare-ticked"')[0]
    assert 'data-command="dask-workbench:view"' in ticked[-300:]
    assert (await act("compare_runs", runs=["r0", "r1"]))["value"]["view"] == "comparison:compare-past"


async def test_the_verdict_does_not_speak_on_every_key(service: Any, session: Any) -> None:
    session.add("calm-otter")
    html = (await html_of(service, "work")).partition('data-workbench="run-button"')[0]
    assert "aria-live" not in html
    assert 'role="status"' not in html


async def test_the_time_is_always_stated_and_an_unknown_one_can_be_measured(service: Any, session: Any) -> None:
    session.add("calm-otter")
    html = await html_of(service, "work")
    line = html.partition('data-workbench="needs"')[2].partition('data-workbench="run-problem"')[0]
    assert "wb-mod-fair" in line
    assert "Time unknown" in line


async def test_a_person_names_a_run_and_it_is_found_by_that_name(act: Any, service: Any, session: Any) -> None:
    session.add_run("r0", status="done", seconds=1.0)
    assert await act("mark_run", run="r0", name="the big one", star=True) == DONE
    await read_state(service)
    assert "★ the big one" in text_of(await html_of(service, "runs"))
    assert "colour" in (await act("mark_run", run="r0", colour="red"))["message"]


async def test_the_words_above_an_answer_leave_out_what_is_long(service: Any, session: Any) -> None:
    scatter = {"samples": [f"s{n}" for n in range(5000)], "scores": [[0.5] * 5000] * 2, "label": None, "labels": None}
    session.add_run("r1", status="done", seconds=1.0, result={"singular_values": [3.0, 2.0], "scatter": scatter})
    html = await html_of(service, "runs")
    assert len(html) < 10_000
    (title,) = re.findall(r'title="([^"]*)" class="wb-Run-result"', html)
    assert title == "σ = 3, 2"
    session.add_run("r2", status="done", seconds=1.0, result={"scatter": scatter})
    assert len(await html_of(service, "runs")) < 10_000


async def test_ticked_runs_are_exported_as_one_file_of_files(session: Any, jp_fetch: Any) -> None:
    for name in ("r0", "r1"):
        session.add_run(name, status="done", seconds=1.0)
    response = await jp_fetch("workbench", "api", "runs", "r0,r1", "export")
    with zipfile.ZipFile(io.BytesIO(response.body)) as archive:
        assert archive.namelist() == ["r0.zip", "r1.zip"]


async def test_an_export_states_its_size_and_offers_the_arrays_too(service: Any, session: Any, jp_fetch: Any) -> None:
    session.add_run("plain", status="done", seconds=1.0)
    answers = Answers(arrays={"s": Array(shape=(2,), dtype="float64", dims=("component",), bytes=16)}, kept_bytes=16)
    session.add_run("svd", status="done", seconds=1.0, answers=answers)
    plain, svd = await html_of(service, "run:plain"), await html_of(service, "run:svd")
    assert "A zip that another Workbench imports: parameters and result, about" in text_of(plain)
    assert 'data-page="workbench/api/runs/plain/export"' in plain
    assert "export-with-answers" not in plain
    assert 'data-page="workbench/api/runs/svd/export-with-answers"' in svd
    response = await jp_fetch("workbench", "api", "runs", "plain", "export-with-answers")
    with zipfile.ZipFile(io.BytesIO(response.body)) as archive:
        assert "run.json" in archive.namelist()


async def test_a_run_is_imported_from_a_path(service: Any, session: Any) -> None:
    empty = await html_of(service, "importing")
    assert 'data-action="import_run"' in empty
    assert "disabled" in empty
    typed = await html_of(service, "importing", {"import.path": "there/run.zip"})
    assert 'value="there/run.zip"' in typed
    assert "disabled" not in typed
    assert 'data-live="importing"' in await html_of(service, "runs")
