"""A long history is read a page at a time: over REST, and in the fold below the latest runs."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from tests.server.test_fragments import text_of


async def html_of(api: Any, fragment: str) -> str:
    html: str = (await api("GET", f"fragments/{fragment}")).content["html"]
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


async def test_older_runs_are_in_a_fold_whose_buttons_lead_to_the_page_before_and_after(api: Any, session: Any) -> None:
    for number in range(50):
        session.add_run(f"r{number}", status="done", seconds=1.0)
    assert "older-runs" not in await html_of(api, "runs")
    for number in range(50, 120):
        session.add_run(f"r{number}", status="done", seconds=1.0)
    latest = await html_of(api, "runs")
    assert "70 older" in text_of(latest)
    assert '<div data-live="older-runs:50">' in latest
    assert 'id="wb-run-r50"' not in latest
    first, last = await html_of(api, "older-runs:50"), await html_of(api, "older-runs:100")
    assert text_of(first).startswith("51 to 100 of 120 Newer Older")
    assert [f'id="wb-run-r{number}"' in first for number in (49, 50, 99, 100)] == [False, True, True, False]
    assert 'disabled data-show="older-runs:0"' in first
    assert 'wb-Link" data-show="older-runs:100"' in first
    assert 'disabled data-show="older-runs:150"' in last
    assert "as old as that" in await html_of(api, "older-runs:999999")
    assert await html_of(api, "older-runs:x") == first


async def test_the_words_above_an_answer_leave_out_what_is_long(api: Any, session: Any) -> None:
    scatter = [[0.5, 1.5]] * 5000
    session.add_run("r1", status="done", seconds=1.0, result={"singular_values": [3.0, 2.0], "scatter": scatter})
    html = await html_of(api, "runs")
    assert len(html) < 10_000
    (title,) = re.findall(r'title="([^"]*)" data-workbench="result"', html)
    assert json.loads(unescape(title)) == {"singular_values": [3.0, 2.0], "scatter": "… (5000 values)"}
