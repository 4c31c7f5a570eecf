"""The views that the server makes: what they say, when they are made anew, and that nobody's text becomes markup."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import escape

from tests.server.conftest import html_of
from tests.server.test_stream import until
from workbench.figures.gpus import Choice, gpu_list
from workbench.hardware import Gpu, GpuSlice, Inventory, inventory
from workbench.hardware.gauges import GpuSample, silent
from workbench.hardware.sampling import NO_DRIVER
from workbench.markup import fragment, paragraph, tag
from workbench.views import parts
from workbench.views.actions import perform
from workbench.views.answers import to_json
from workbench.views.page import ViewWatch
from workbench.workloads.builtin import group_of

GIB = 2**30


def machine(*gpus: Gpu) -> Inventory:
    return inventory().model_copy(update={"gpus": gpus})


def gpu(index: int = 0, **fields: Any) -> Gpu:
    values = {"name": "SIMULATED", "uuid": f"GPU-{index}", "memory_total": 16 * GIB, "memory_free": 16 * GIB}
    return Gpu(index=index, **(values | fields))


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


async def test_a_page_is_pushed_a_view_and_again_when_it_is_no_longer_the_same(open_page: Any, session: Any) -> None:
    async with open_page() as page:
        await page.next("state")
        await page.send(type="watch", watch="w1", view="runs")
        first = await page.next("patches")
        await until(lambda: session.listening)
        session.add_run("r1", status="done", seconds=1.5, result={"value": 42.5}, created=time.time())
        session.touch()
        second = await page.next("patches")
    assert first["watch"] == "w1"
    assert text_of(first["html"]).startswith("Nothing has been run yet.")
    assert "Sum or mean of an array 1.5 s 42.5" in text_of(second["html"])


async def test_a_watched_run_has_the_name_that_it_was_given(service: Any, session: Any) -> None:
    told = {"name": "sum of a transpose", "source": "total.compute()", "tags": {"git": "1a2b"}}
    ended = {"workload": "watched", "status": "done", "seconds": 1.5}
    session.add_run("r1", **ended, parameters=told, result={"tasks": 38, "tasks_of_others": 0}, created=1.0)
    session.add_run(
        "r2", **ended, parameters=told, result={"tasks": 38, "tasks_of_others": 0, "mean": 0.5}, created=2.0
    )
    listed = text_of(await html_of(service, "runs"))
    assert "sum of a transpose 1.5 s 38 tasks" in listed
    assert "sum of a transpose git=1a2b 1.5 s mean 0.5" in listed
    assert "total.compute()" in text_of(await html_of(service, "run:r1"))


async def test_a_screen_reader_is_told_how_the_run_went_that_ended_last(service: Any, session: Any) -> None:
    for name, status, stopped in (("r1", "failed", 20.0), ("r2", "done", 10.0), ("r3", "running", None)):
        session.add_run(name, status=status, stopped=stopped, cluster="calm")
    html = await html_of(service, "runs")
    said = re.search(r'<p role="status"[^>]*run-ended[^>]*>(.*?)</p>', html)
    assert said is not None
    assert said[1] == "Sum or mean of an array on calm: failed"


async def test_a_screen_reader_is_told_the_stage_of_the_newest_cluster(service: Any, session: Any) -> None:
    session.add("old-otter", created=10.0)
    session.add("new-otter", created=20.0, status="starting", stage="workers", n_workers=1)
    html = await html_of(service, "clusters")
    said = re.search(r'<p role="status"[^>]*cluster-stage[^>]*>(.*?)</p>', html)
    assert said is not None
    assert said[1] == "Cluster new-otter: workers 1 of 2"


async def test_runs_whose_arrays_are_dropped_next_are_named_where_some_have_arrays(service: Any, session: Any) -> None:
    session.add_run("r1", status="done", answers={"arrays": {}, "kept": [], "kept_bytes": 1})
    told = text_of(await html_of(service, "runs"))
    assert "Dropped next are those of done; a star on a run keeps its own." in told


async def test_gpus_of_this_machine_are_shown_for_no_profile(service: Any, session: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(session, "hardware", lambda: machine(gpu(0)), raising=False)
    html = await html_of(service, "gpus:")
    assert "SIMULATED" in html
    assert "Unknown profile" not in html


async def test_what_comes_from_elsewhere_does_not_become_markup(service: Any, session: Any) -> None:
    session.add_run("r1", status="failed", error="<script>alert(1)</script>", parameters={"x": '"><b>'})
    html = await html_of(service, "runs")
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    copied = html.partition("data-copy")[2].partition("</button>")[2]
    assert copied.startswith('<span role="alert" data-workbench="run-error">&lt;script')


async def test_a_run_says_what_was_forecast_what_it_took_and_what_it_cost_in_energy(service: Any, session: Any) -> None:
    session.add_run("r1", status="done", seconds=4.0, created=time.time() - 60)
    nothing_travelled = {"workers": [], "matrix": [], "n_messages": 0, "overall": None, "transport": "tls"}
    session.add_run(
        "r2",
        status="done",
        seconds=3.9,
        created=time.time(),
        result={
            "bandwidth": {**nothing_travelled, "sentence": "Over tls."},
            "certificate": {"sentence": "Within <0.1 %.", "bound": []},
        },
        forecast={"verdict": "fits", "seconds": {"low": 3.1, "high": 4.5}, "price_per_hour": 1800},
        energy={"joules": 1500.0, "seconds": 4.0, "n_gpus": 2, "source": "counters"},
        on_gpu=dict.fromkeys(("blocks", "on_gpu", "bytes", "bytes_on_gpu", "share", "share_of_bytes"), 1)
        | {"sentence": "Half of it.", "warning": "Half of the blocks were on the CPU."},
    )
    html = await html_of(service, "runs")
    told = text_of(html)
    details = await html_of(service, "run:r2")
    assert "Half of the blocks were on the CPU." in told
    told = text_of(details)
    assert "Time 3.9 s Forecast fits · 3.1 to 4.5 s · off by 4 % Cost 1.95 Energy 1.5 kJ by 2 GPUs in 4 s" in told
    for words in ("On the GPU? Half of it.", "Bandwidth Over tls.", "Within &lt;0.1 %."):
        assert words in told
    assert session.show("r2").cost == pytest.approx(1.95)


@pytest.mark.parametrize(
    ("why", "said"),
    [(NO_DRIVER, "no GPU"), ("This account may not use the NVIDIA driver (NVML: No permission).", "GPUs unknown")],
)
async def test_gpus_that_nobody_can_ask_for_are_unknown_and_not_none(
    service: Any, session: Any, monkeypatch: pytest.MonkeyPatch, why: str, said: str
) -> None:
    found = machine().model_copy(update={"missing": {"gpus": why}})
    monkeypatch.setattr(session, "hardware", lambda: found)
    html = await html_of(service, "hardware")
    assert said in text_of(html)
    assert f'title="{why}"' in html


async def test_a_name_that_no_cluster_can_have_is_told_of_below_start(service: Any) -> None:
    html = await html_of(service, "start", {"name": "My Cluster"})
    plan, begin, why = map(html.index, ('class="wb-Plan"', 'data-workbench="start"', "A cluster can&#39;t be called"))
    assert plan < begin < why
    assert re.search(r'<button[^>]*disabled[^>]*data-workbench="start"', html)


async def test_a_view_that_there_is_not_names_those_that_there_are(open_page: Any) -> None:
    async with open_page() as page:
        await page.send(type="watch", watch="w1", view="secrets")
        assert (await page.next("gone"))["message"].startswith("There is no view 'secrets'. There are: sidebar, ")


async def test_more_workers_than_there_is_memory_for_are_asked_for_with_a_warning(service: Any, session: Any) -> None:
    session.add("calm-otter")
    field = "scale.calm-otter.n_workers"
    few, many = [await html_of(service, "clusters", {field: n}) for n in ("1", "9000")]
    assert ("Apply anyway" in few, "or force it" in few) == (False, False)
    assert ("Apply anyway" in many, "is left" in text_of(many)) == (True, True)
    assert escape(json.dumps({"cluster": "calm-otter", "n_workers": 2, "force": True})) in many


async def test_a_name_that_no_cluster_can_have_is_told_of_while_it_is_typed(service: Any, session: Any) -> None:
    session.add("calm-otter", created=1.0)
    session.add("new-otter", created=time.time())
    for name, said in {
        "My Cluster": "A cluster can&#39;t be called",
        "calm-otter": "There is a cluster &#39;calm-otter&#39; already (ready). Choose another name, or stop it",
        "new-otter": None,
        "other": None,
    }.items():
        html = await html_of(service, "start", {"name": name})
        assert (said or "GiB</p>") in html
        assert ("disabled" in html.partition('data-action="start"')[0].rpartition("<button")[2]) is bool(said)


async def test_of_many_clusters_the_newest_and_what_needs_a_look_are_open_and_the_others_a_line_each(
    service: Any, session: Any
) -> None:
    def opened(html: str) -> dict[str, bool]:
        cards = re.findall(r'id="wb-card-([^"]*)" class="wb-Drawer"( hidden)?>', html)
        return {name: not hidden for name, hidden in cards}

    for place in range(3):
        session.add(f"c{place}", created=float(place))
    session.add("ending", created=-1.0, expires_at=time.time() + 60)
    session.add("warned", created=-2.0, warning="The disk is full.")
    found = opened(await html_of(service, "clusters"))
    assert found == {"c2": True, "c1": False, "c0": False, "ending": True, "warned": True}


async def test_the_logs_of_a_cluster_stand_below_the_names_of_who_wrote_them(service: Any, session: Any) -> None:
    session.add("calm-otter")
    shown = text_of(await html_of(service, "logs:calm-otter"))
    assert "host calm-otter started scheduler Nothing was logged." in shown
    missing = await html_of(service, "logs:nobody")
    assert "calm-otter" in text_of(missing) or "nobody" in text_of(missing)


def reading(uuid: str, **fields: Any) -> GpuSample:
    return GpuSample(uuid, uuid, 0, "here", 10.0, **fields)


def test_each_gpu_says_what_it_does_who_holds_it_and_whether_it_is_proposed() -> None:
    busy = {"utilisation": 83, "memory_used": 4 * GIB, "memory_total": 16 * GIB, "power": 231.4, "temperature": 61}
    held = {"processes": ((2**31 - 1, GIB),), "absent": {"utilisation": "not supported"}}
    gauges = {"GPU-0": reading("GPU-0", **busy), "GPU-1": reading("GPU-1", **held)}
    html = gpu_list(machine(gpu(0), gpu(1)), gauges, place="here", choice=Choice(one=False, proposed={"GPU-0"}))
    assert text_of(
        html
    ) == "0 · SIMULATED 231 W · 61 °C 83 % 12 GiB free 1 · SIMULATED process 2147483647 holds 1 GiB " + (
        "No use (GPU 1): not supported."
    )
    assert re.findall(r'value="(GPU-\d)"( checked)?', html) == [("GPU-0", " checked"), ("GPU-1", "")]


def test_a_gpu_that_is_cut_up_is_chosen_by_its_slices_and_one_out_of_sight_not_at_all() -> None:
    cut = gpu(0, mig=True, slices=(GpuSlice(uuid="MIG-1", name="1g.10gb", memory_total=GIB, memory_free=GIB),))
    html = gpu_list(machine(cut, gpu(1, visible=False)), {}, place="here", choice=Choice(one=True, proposed=()))
    assert re.findall(r'type="radio" name="devices" value="([^"]*)"( disabled)?', html) == [
        ("MIG-1", ""),
        ("GPU-1", " disabled"),
    ]
    assert "Hidden by CUDA_VISIBLE_DEVICES." in html


def test_what_is_absent_from_all_slices_is_said_once_below_them() -> None:
    part = GpuSlice(uuid="MIG-0", name="1g.10gb", memory_total=GIB, memory_free=GIB)
    cut = gpu(0, mig=True, slices=tuple(part.model_copy(update={"uuid": f"MIG-{n}"}) for n in range(3)))
    absent = dict.fromkeys(("utilisation", "power"), "whole only")
    told = {f"MIG-{n}": reading(f"MIG-{n}", absent=absent) for n in range(3)}
    html = gpu_list(machine(cut, gpu(1)), told | {"GPU-1": reading("GPU-1")}, place="here")
    assert text_of(html).count("whole only") == 1
    assert text_of(html).endswith("No use and power (slice 0:0, slice 0:1, slice 0:2): whole only.")
    told["MIG-1"] = silent("MIG-1", "it is lost")
    html = gpu_list(machine(cut, gpu(1)), told, place="here")
    assert "No use and power (slice 0:0, slice 0:2): whole only." in html
    assert "No reading (slice 0:1): it is lost." in html


def test_attributes_are_escaped_and_left_out_where_there_is_nothing_to_say() -> None:
    assert tag("p", "x", title='"<', hidden=False, data_x=None, open=True) == '<p title="&#34;&lt;" open>x</p>'


def test_text_is_escaped_once_wherever_it_enters_html() -> None:
    name = "<b>&"
    assert tag("p", name, tag("i", name)) == "<p>&lt;b&gt;&amp;<i>&lt;b&gt;&amp;</i></p>"
    assert (
        name + paragraph(name) + fragment(name) == '&lt;b&gt;&amp;<p class="wb-Muted">&lt;b&gt;&amp;</p>&lt;b&gt;&amp;'
    )
    # Also where HTML is the value of an attribute, which holds no elements.
    assert tag("p", title=tag("i")) == '<p title="&lt;i&gt;&lt;/i&gt;"></p>'


async def test_a_page_gets_only_what_changed_of_a_list(open_page: Any, session: Any) -> None:
    for name in range(19):
        session.add_run(f"r{name}", status="done", seconds=1.0, result={"value": 1.0}, created=1.0, stopped=2.0)
    session.add_run("now", status="starting")
    async with open_page() as page:
        await page.send(type="watch", watch="w", view="runs")
        first = (await page.next("patches"))["html"]
        session.add_run("now", status="failed", error="It failed.")
        session.touch()
        second = (await page.next("patches"))["html"]
    assert "data-same" not in first
    assert second.count("data-same") == 19
    assert "It failed." in second
    assert len(second) < len(first) / 4


async def test_an_item_that_holds_a_list_is_sent_whole() -> None:
    nested = '<li id="a">one<ul><li>bar</li></ul>foot</li>'
    shown = SimpleNamespace(html=f"<ul>{nested}</ul>", is_broken=False, join=lambda _: None, leave=lambda _: None)
    watch = ViewWatch(SimpleNamespace(shown=lambda *_: shown), "comparisons", lambda: None, {})
    await watch.take()
    shown.html = f'<ul><li id="b">new</li>{nested}</ul>'
    assert await watch.take() == {"html": shown.html}
    shown.html += "!"
    assert await watch.take() == {"html": f'<ul><li id="b" data-same></li>{nested}</ul>!'}


async def test_a_form_that_can_no_longer_be_made_stays_below_the_sentence_that_says_so() -> None:
    shown = SimpleNamespace(html="<input name=memory>", is_broken=False, join=lambda _: None, leave=lambda _: None)
    watch = ViewWatch(SimpleNamespace(shown=lambda *_: shown), "start", lambda: None, {})
    await watch.take()
    shown.html, shown.is_broken = "<p>This could not be drawn.</p>", True
    assert await watch.take() == {"html": "<p>This could not be drawn.</p><input name=memory>"}
    assert await watch.take() is None
    shown.html, shown.is_broken = "<input name=memory>", False
    assert await watch.take() == {"html": "<input name=memory>"}


async def test_a_state_is_small_however_long_the_history_and_whatever_a_run_found(open_page: Any, session: Any) -> None:
    much = {"components": [[0.5] * 20] * 100, "sentence": "σ = 3.4, 2.1"}
    for place in range(300):
        session.add_run(f"genotype_pca-{place:06x}", status="done", seconds=1.0, result=much)
    for place in range(50):
        session.add(f"calm-otter-{place}", clients=("Client-a", "b-kernel-c"), created=time.time(), place="x" * 80)
    async with open_page() as page:
        state = await page.next("state")
        await page.send(type="watch", watch="w", view="runs")
        html = (await page.next("patches"))["html"]
        await page.send(type="watch", watch="c", view="clusters")
        clusters = (await page.next("patches"))["html"]
    assert (len(state["runs"]), len(state["clusters"])) == (50, 50)
    assert len(clusters.encode()) <= 40_000
    assert "Show more (44 older)" in text_of(clusters)
    assert len(to_json(state).encode()) <= 20_000
    assert len(html.encode()) <= 150_000
    assert "run:genotype_pca-000000" in html


async def test_the_machine_is_read_once_for_a_request(service: Any, session: Any) -> None:
    await perform(service, "start", {"profile": "cpu"})
    assert session.readings == 1


def test_workloads_stand_below_the_title_of_their_group() -> None:
    names = ("array_sum", "transpose_sum", "compressed_svd", "svd_of_file", "eofs", "genotype_pca", "mine")
    groups = {name: group_of(name) for name in names}
    html = parts.radios("workload", "Workload", ("", ""), [(name, name, "") for name in names], "eofs", groups)
    shown = re.findall(r"wb-Group[^>]*>([^<]*)<", html)
    assert shown == ["Arrays", "SVD", "Your data", "Climate", "Genotypes", "Yours"]
    assert html.index("transpose_sum") < html.index(">SVD<") < html.index("compressed_svd")


def test_a_form_says_what_an_empty_field_means_and_asks_what_to_compute() -> None:
    from workbench.views.forms import Form
    from workbench.workloads.lookup import template

    shown = {}
    for name in ("svd_of_file", "reduce_file"):
        schema = template(name).schema()
        form = Form(schema, f"run.{name}.", {}, None, {}, {}, "run-button")
        shown[name] = form.split(list(schema["properties"]))[0]
        assert ('placeholder="all"' in form.html(shown[name], {})) == (name == "svd_of_file")
    assert shown == {"svd_of_file": ["path", "k", "tol"], "reduce_file": ["path", "what"]}


@pytest.mark.parametrize(
    ("typed", "shown"), [({}, []), ({"k": 3}, ["tol"]), ({"k": 3, "method": "dask"}, ["iterator"])]
)
def test_accuracy_and_iterations_are_fields_only_where_they_have_an_effect(
    typed: dict[str, Any], shown: list[str]
) -> None:
    from workbench.views.work import shown_fields
    from workbench.workloads.lookup import template

    chosen = template("svd_of_file")
    fields = shown_fields(chosen, chosen.schema(), typed, None)
    assert [name for name in ("tol", "iterator") if name in fields] == shown
