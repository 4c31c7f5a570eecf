"""Comparisons over REST, in the sidebar and in a figure that follows them."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from tests.server.test_stream import open_page

__all__ = ["open_page"]


async def test_a_comparison_that_goes_on_is_pushed_to_the_page_that_shows_it(open_page: Any, session: Any) -> None:
    session.add_comparison("c1", status="running", now="round 1 of 5: cpu", done=1, total=4)
    async with open_page() as page:
        await page.send(type="watch", watch="w1", comparison="c1", theme="dark")
        first = await page.next("patches")
        session.add_comparison("c1")
        second = await page.next("patches")
    assert {patch["source"] for patch in first["patches"]} >= {"rows", "words"}
    assert "round 1 of 5: cpu, 1 of 4 runs" in json.dumps(first)
    assert [patch["source"] for patch in second["patches"]] == ["words"]


async def test_the_sidebar_offers_a_form_and_lists_comparisons_with_bars_and_buttons(api: Any, session: Any) -> None:
    session.add_comparison("c1")
    session.add_comparison("c2", status="running", now="round 1 of 5: cpu", done=1, total=4)
    made = (await api("GET", "fragments/compare")).content["html"]
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", made)).split())
    assert "round 1 of 5: cpu 1 of 4" in text
    assert "1.50 s" in text
    assert "<ucx>" in text
    assert "<ucx>" not in made
    assert 'data-request="POST comparisons"' in made
    assert 'data-request="POST comparisons/c2/cancel"' in made
    assert 'data-page="workbench/api/comparisons/c1/page"' in made
    assert 'data-command="dask-workbench:cell"' in made


async def test_an_empty_field_of_the_form_is_one_left_out(api: Any, session: Any) -> None:
    body = {"workload": "array_sum", "on": "cpu\nucx", "parameters": "", "sweep": "", "repeats": "3"}
    answer = await api("POST", "comparisons", body)
    assert answer.status == 202
    assert answer.content["request"]["repeats"] == 3
    assert answer.content["request"]["weak"] is False
    assert answer.content["request"]["on"] == ["cpu", "ucx"]


async def test_ucx_listens_only_where_a_person_agreed(api: Any, session: Any) -> None:
    made = (await api("GET", "fragments/compare")).content["html"]
    assert ('name="agreed" value="true"' in made) is session.hardware().ucx.installed
    body = {"workload": "array_sum", "on": "cpu\nucx --workers 2"}
    answer = await api("POST", "comparisons", body)
    assert answer.status == 400
    assert answer.content["message"] == (
        "UCX listens on all network interfaces. Nothing was started. Leave UCX out, or agree (--yes, agreed=True)."
    )
    answer = await api("POST", "comparisons", body | {"agreed": "true"})
    assert answer.status == 202


async def test_the_form_asks_for_weak_scaling(api: Any, session: Any) -> None:
    made = (await api("GET", "fragments/compare")).content["html"]
    (box,) = re.findall(r'<input type="checkbox" name="weak"[^>]*>', made)
    assert 'name="weak" value="true"' in box
    body = {"workload": "array_sum", "on": "cpu", "sweep": "workers=1,2", "weak": "true"}
    answer = await api("POST", "comparisons", body)
    assert answer.content["request"]["weak"] is True


async def test_the_page_of_a_comparison_can_not_reach_the_server(api: Any, session: Any) -> None:
    session.add_comparison("c1")
    answer = await api("GET", "comparisons/c1/page")
    assert answer.headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
