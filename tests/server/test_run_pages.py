"""A long history is read a page at a time: over REST, and in a list that grows by clicks."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from tests.server.test_views import text_of


async def html_of(api: Any, view: str, choices: dict[str, Any] | None = None) -> str:
    params = {"choices": json.dumps(choices or {})}
    html: str = (await api("GET", f"views/{view}", params=params)).content["html"]
    return html


async def test_rest_tells_a_page_of_runs_and_how_many_there_are(api: Any, session: Any) -> None:
    for number in range(7):
        session.add_run(f"r{number}", status="done")
    told = (await api("GET", "runs", params={"limit": "2", "offset": "4"})).content
    assert ([run["id"] for run in told["runs"]], told["total"]) == (["r4", "r5"], 7)
    beyond = (await api("GET", "runs", params={"offset": "7"})).content
    assert (beyond["runs"], beyond["total"]) == ([], 7)
    refused = await api("GET", "runs", params={"offset": "-1"})
    assert refused.status == 400
    assert "offset" in refused.content["message"]


async def test_a_few_runs_are_listed_and_more_for_each_click(api: Any, session: Any) -> None:
    for number in range(120):
        session.add_run(f"r{number}", status="done", seconds=1.0)
    latest = await html_of(api, "runs")
    assert latest.count('<li id="wb-run-') == 20
    assert "Show more (100 older)" in text_of(latest)
    (choices,) = re.findall(r'data-choose="([^"]*)" data-workbench="older-runs"', latest)
    more = await html_of(api, "runs", json.loads(unescape(choices)))
    assert more.count('<li id="wb-run-') == 70
    assert "older-runs" not in await html_of(api, "runs", {"runs.shown": 200})


async def test_runs_are_found_by_words_and_state_and_counted(api: Any, session: Any) -> None:
    for number in range(30):
        session.add_run(f"r{number}", status="done" if number % 2 else "failed", error=None)
    found = await html_of(api, "runs", {"runs.text": "r1", "runs.status": "done"})
    assert re.findall(r'<li id="wb-run-(\w+)"', found) == [f"r{n}" for n in (1, 11, 13, 15, 17, 19)]
    assert "6 found" in text_of(found)
    assert 'aria-label="Search runs"' in await html_of(api, "runs", {"runs.text": "nothing has this name"})


async def test_what_runs_differ_in_stands_beside_their_names(api: Any, session: Any) -> None:
    for number, parameters in enumerate(({"size": "1GiB", "seed": 2}, {"size": "1GiB", "seed": 1})):
        session.add_run(f"r{number}", status="done", parameters=parameters, seconds=1.0)
    html = await html_of(api, "runs")
    assert "Sum of an array seed=2" in text_of(html)
    assert "Sum of an array size=1GiB, seed=1" in text_of(html)


async def test_ticked_runs_can_be_compared_or_deleted_together(api: Any, session: Any) -> None:
    for number in range(3):
        session.add_run(f"r{number}", status="done", seconds=1.0)
    html = unescape(await html_of(api, "runs", {"runs.ticked": "r0,r2"}))
    assert 'data-body="{"runs": ["r0", "r2"]}"' in html
    assert '["DELETE runs/r0", "DELETE runs/r2"]' in html
    one = await html_of(api, "runs", {"runs.ticked": "r0"})
    assert re.search(r"<button[^>]*disabled[^>]*compare-ticked", one)


async def test_a_person_names_a_run_and_it_is_found_by_that_name(api: Any, session: Any) -> None:
    session.add_run("r0", status="done", seconds=1.0)
    assert (await api("PATCH", "runs/r0", {"name": "the big one", "star": True})).content["title"] == "the big one"
    assert "★ the big one" in text_of(await html_of(api, "runs"))
    refused = await api("PATCH", "runs/r0", {"colour": "red"})
    assert (refused.status, "colour" in refused.content["message"]) == (400, True)


async def test_the_words_above_an_answer_leave_out_what_is_long(api: Any, session: Any) -> None:
    scatter = [[0.5, 1.5]] * 5000
    session.add_run("r1", status="done", seconds=1.0, result={"singular_values": [3.0, 2.0], "scatter": scatter})
    html = await html_of(api, "runs")
    assert len(html) < 10_000
    (title,) = re.findall(r'title="([^"]*)" class="wb-Run-result"', html)
    assert json.loads(unescape(title)) == {"singular_values": [3.0, 2.0], "scatter": "… (5000 values)"}
