"""Comparisons as actions, as pickers and a list in the sidebar, and in a figure that follows them."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from dask.utils import parse_bytes

from tests.server.conftest import html_of, read_state
from tests.server.test_views import GIB, text_of
from workbench.clusters.profiles.lookup import profiles
from workbench.clusters.profiles.ucx import UCX_OPEN
from workbench.clusters.spec import ClusterSpec
from workbench.hardware import Gpu, inventory
from workbench.workloads.builtin import templates


async def test_a_comparison_that_goes_on_is_pushed_to_the_page_that_shows_it(open_page: Any, session: Any) -> None:
    session.add_comparison("c1", status="running", now="round 1 of 5: cpu", done=1, total=4)
    async with open_page() as page:
        await page.send(type="watch", watch="w1", view="comparison:c1")
        first = await page.next("patches")
        session.add_comparison("c1")
        second = await page.next("patches")
    assert "round 1 of 5: cpu" in first["html"]
    assert "round 1 of 5: cpu" not in second["html"]


async def test_comparisons_are_listed_with_bars_and_buttons(service: Any, session: Any) -> None:
    session.add_comparison("c1")
    session.add_comparison("c2", status="running", now="round 1 of 5: cpu", done=1, total=4)
    made = await html_of(service, "comparisons")
    text = html.unescape(text_of(made))
    assert "round 1 of 5: cpu 1 of 4" in text
    assert "1.5 s" in text
    assert "<ucx>" in text
    assert "<ucx>" not in made
    assert 'data-action="cancel_comparison" data-arguments="{&#34;comparison&#34;: &#34;c2&#34;}"' in made
    assert 'data-page="workbench/api/comparisons/c1/page"' in made
    assert 'data-command="dask-workbench:cell"' in made


async def test_five_comparisons_are_listed_and_more_for_each_click(service: Any, session: Any) -> None:
    for number in range(7):
        session.add_comparison(f"c{number}")
    few = await html_of(service, "comparisons")
    assert few.count('<li id="wb-comparison-') == 5
    assert "Show more (2 older)" in text_of(few)
    (choices,) = re.findall(r'data-choose="([^"]*)" data-workbench="older-comparisons"', few)
    more = await html_of(service, "comparisons", json.loads(html.unescape(choices)))
    assert more.count('<li id="wb-comparison-') == 7
    assert "older-comparisons" not in more


def asked(made: str) -> Any:
    """Return the request of a click on Compare; None if it can't be clicked."""
    (attributes,) = re.findall(r'<button([^>]*) data-workbench="compare">', made)
    (body,) = re.findall(r'data-arguments="([^"]*)"', attributes)
    return None if " disabled" in attributes else json.loads(html.unescape(body))


def begun(session: Any) -> Any:
    """Return the request of the comparison that was started."""
    return session.comparison("compare-new").request


def with_hardware(session: Any, monkeypatch: pytest.MonkeyPatch, cores: int, *gpus: Gpu) -> None:
    there = inventory()
    there = there.model_copy(update={"cpu": there.cpu.model_copy(update={"usable": cores}), "gpus": gpus})
    monkeypatch.setattr(session, "hardware", lambda: there)
    monkeypatch.setattr(session, "profiles", lambda found: profiles(found, version=lambda _: "26.2"))


async def test_two_choices_of_hardware_are_ticked_already(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hardware(session, monkeypatch, 4)
    made = await html_of(service, "compare")
    assert asked(made) == {
        "workload": "array_sum",
        "parameters": {},
        "on": ["cpu --workers 1 --threads 1", "cpu"],
        "repeats": 5,
    }
    assert "Sum or mean of an array, size 1GiB One core 1 worker × 1 thread CPU " in text_of(made)


@pytest.mark.parametrize(("cores", "gpus", "on"), [(1, 0, ["cpu", "numpy"]), (1, 2, ["cpu", "gpus"])])
async def test_what_is_ticked_already_depends_on_the_machine(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch, cores: int, gpus: int, on: list[str]
) -> None:
    if gpus:
        pytest.importorskip("dask_cuda")
    known = {"name": "SIMULATED", "memory_total": 16 * GIB, "memory_free": 16 * GIB, "visible": True}
    with_hardware(session, monkeypatch, cores, *(Gpu(index=n, uuid=f"GPU-{n}", **known) for n in range(gpus)))
    assert asked(await html_of(service, "compare"))["on"] == on


async def test_what_is_ticked_planned_and_typed_is_what_is_compared(
    act: Any, service: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hardware(session, monkeypatch, 4)
    session.add("calm-otter")
    session.add("late-otter", status="starting")
    await read_state(service)
    made = await html_of(
        service,
        "compare",
        {
            "run.array_sum.size": "2GiB",
            "plan.cpu.n_workers": "2",
            "plan.cpu.encrypt": False,
            "plan.cpu.idle_timeout": "2h",
            "compare.on.one-core": False,
            "compare.on.numpy": True,
            "compare.on.cluster-calm-otter": True,
            "compare.lines": "cpu --workers 3; ; cpu --memory 1GiB",
            "compare.repeats": 3,
            "compare.agreed": True,
            "compare.sweep": "size",
            "compare.values.size": "1GiB, 2GiB",
        },
    )
    assert asked(made) == {
        "workload": "array_sum",
        "parameters": {"size": "2GiB"},
        "on": [
            "cpu --workers 2 --no-encrypt",
            "numpy",
            "--cluster calm-otter",
            "cpu --workers 3",
            "cpu --memory 1GiB",
        ],
        "repeats": 3,
        "sweep": {"size": ["1GiB", "2GiB"]},
        "agreed": True,
    }
    assert "Sum or mean of an array, size 2GiB" in text_of(made)
    assert "late-otter" not in made
    assert (await act("compare", **asked(made)))["value"]["view"] == "comparison:compare-new"
    assert begun(session).on == tuple(asked(made)["on"])


async def test_of_many_clusters_the_youngest_are_offered_those_that_are_searched_for_and_those_that_are_ticked(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hardware(session, monkeypatch, 4)
    for number in range(20):
        session.add(f"otter-{number}", created=float(number))
    await read_state(service)

    async def offered(**chosen: Any) -> list[str]:
        made = await html_of(service, "compare", {f"compare.{name}": each for name, each in chosen.items()})
        return re.findall(r'data-workbench="compare-on-cluster-otter-(\d+)"', made)

    assert await offered() == ["19", "18", "17", "16", "15"]
    ticked = {"on.cluster-otter-3": True}
    assert await offered(**ticked) == ["19", "18", "17", "16", "15", "3"]
    assert await offered(**ticked, text="OTTER-1") == ["19", "18", "17", "16", "15", "3"]
    assert await offered(**ticked, text="r-11") == ["11", "3"]


async def test_a_sweep_proposes_its_values_and_leaves_out_clusters_that_run(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hardware(session, monkeypatch, 12)
    session.add("calm-otter")
    await read_state(service)
    ticked = {"compare.on.cluster-calm-otter": True}
    assert "compare-values" not in await html_of(service, "compare", ticked)
    workers = asked(await html_of(service, "compare", {**ticked, "compare.sweep": "workers"}))
    assert workers["sweep"] == {"workers": ["1", "2", "4", "8"]}
    assert "--cluster calm-otter" not in workers["on"]
    sizes = asked(await html_of(service, "compare", {**ticked, "compare.sweep": "size", "run.array_sum.size": "6GiB"}))
    assert [parse_bytes(each) for each in sizes["sweep"]["size"]] == [1.5 * GIB, 3 * GIB, 6 * GIB]
    assert "--cluster calm-otter" in sizes["on"]
    share = asked(await html_of(service, "compare", {"compare.sweep": "size", "run.array_sum.size": "0.5"}))
    assert [parse_bytes(each) for each in share["sweep"]["size"]] == [GIB // 2, GIB, 2 * GIB]


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"compare.on.cpu": False}, "Tick two or more, or one and two values to vary."),
        ({"compare.repeats": 0}, "repeats is 0. Give a whole number from 1 to 1000."),
        ({"compare.lines": "tpu"}, "Unknown profile 'tpu'. Choose one of: cpu, gpu, gpus, ucx, address"),
        ({"compare.lines": "cpu --spin 2"}, "spin is '2', and the cpu profile takes no spin. It takes: n_workers"),
        ({"compare.lines": "cpu --workers 0"}, "n_workers is '0'."),
        ({"compare.sweep": "workers", "compare.values.workers": " , "}, "sweep of workers is empty."),
        (
            {"compare.sweep": "threads", "compare.values.threads": "1,x"},
            "threads to vary are '1,x'. Give whole numbers",
        ),
        (
            {"compare.sweep": "workers", "compare.values.workers": "2", "compare.on.one-core": False},
            "One value on one kind of hardware is nothing to compare.",
        ),
    ],
)
async def test_what_can_not_be_compared_is_a_sentence_and_no_click(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch, choices: dict[str, Any], said: str
) -> None:
    with_hardware(session, monkeypatch, 4)
    made = await html_of(service, "compare", choices)
    assert said in html.unescape(text_of(made))
    assert asked(made) is None


async def test_a_plan_that_can_not_be_had_is_offered_with_its_reason(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hardware(session, monkeypatch, 4)
    ticked = dict.fromkeys(("compare.on.one-core", "compare.on.cpu", "compare.on.numpy"), True)
    made = await html_of(service, "compare", {**ticked, "plan.cpu.n_workers": "-2"})
    (chip,) = re.findall(r'<label class="wb-Chip" title="([^"]*)"><input[^>]* disabled [^>]*"compare-on-cpu">', made)
    assert "n_workers is '-2'" in html.unescape(chip)
    assert asked(made)["on"] == ["cpu --workers 1 --threads 1", "numpy"]


async def test_a_preset_about_ucx_offers_the_clusters_of_its_text(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hardware(session, monkeypatch, 4)
    monkeypatch.setattr(session, "workloads", lambda **_: templates())
    spec = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**29)
    monkeypatch.setattr("workbench.views.compare.plan", lambda *_, **__: spec)
    made = await html_of(service, "compare", {"workload": "transpose_sum", "run.transpose_sum.preset": "post"})
    body = asked(made)
    assert body["on"] == ["cpu --no-encrypt --workers 2", "cpu --workers 2", "ucx --workers 2"]
    assert body["parameters"] == {"preset": "post"}
    assert "Array plus its transpose, preset post" in text_of(made)


async def test_an_empty_field_of_the_form_is_one_left_out(act: Any, session: Any) -> None:
    body = {"workload": "array_sum", "on": ["cpu", "ucx"], "settings": "", "repeats": "3"}
    assert "value" in await act("compare", **body)
    assert (begun(session).repeats, begun(session).on) == (3, ("cpu", "ucx"))


async def test_ucx_listens_only_where_a_person_agreed(
    act: Any, service: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hardware(session, monkeypatch, 4)
    assert "compare-agreed" not in await html_of(service, "compare")
    spec = ClusterSpec(profile="ucx", n_workers=2, threads_per_worker=1, memory_limit=2**29, consent=UCX_OPEN)
    monkeypatch.setattr("workbench.views.compare.plan", lambda *_, **__: spec)
    made = await html_of(service, "compare")
    assert "which listens on all network interfaces" in text_of(made)
    assert asked(made) is None
    assert asked(await html_of(service, "compare", {"compare.agreed": True}))["agreed"] is True
    body = {"workload": "array_sum", "on": ["cpu", "ucx --workers 2"]}
    assert (await act("compare", **body))["message"] == (
        "UCX listens on all network interfaces. Nothing was started. Choose otherwise, or agree (--yes, agreed=True)."
    )
    assert "value" in await act("compare", **body, agreed=True)


async def test_the_page_of_a_comparison_can_not_reach_the_server(api: Any, session: Any) -> None:
    session.add_comparison("c1")
    answer = await api("GET", "comparisons/c1/page")
    assert answer.headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
