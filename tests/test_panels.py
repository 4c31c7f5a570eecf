"""`Workbench()` in a cell, by the messages of its page: views, choices, clicks, a real cluster and real runs."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cell import Cell, Person, attributes
from tests.test_compare import comparison, row, times
from tests.waiting import until
from workbench.clusters.choices import ClusterChoices
from workbench.errors import BadInputError
from workbench.hardware import Gpu, Inventory, inventory
from workbench.packages import installed_version
from workbench.panels import Workbench
from workbench.panels.thread import soon
from workbench.runs.comparing import comparisons
from workbench.session import Session
from workbench.views.forms import Form

SCHEMA = {
    "$defs": {"Kind": {"enum": ["a", "b"], "type": "string"}},
    "required": ["path"],
    "properties": {
        "n": {"type": "integer", "title": "Number", "description": "How many.", "default": 3, "minimum": 1},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "shape": {"anyOf": [{"type": "array"}, {"type": "null"}], "default": None, "examples": [[10, 20]]},
        "kind": {"$ref": "#/$defs/Kind", "default": "a"},
        "flag": {"type": "boolean", "default": True},
        "path": {"type": "string"},
    },
}


@pytest.fixture
def person(data_folder: Path) -> Iterator[Person]:
    """Somebody who looks at an empty workbench."""
    with Workbench() as bench:
        yield Person(bench)


# -- forms


def test_a_form_names_explains_and_fills_its_fields() -> None:
    html = Form(SCHEMA, "run.x.", {"n": "5"}).html(SCHEMA["properties"])
    fields = {name: attributes(html, f"field-{name}") or {} for name in SCHEMA["properties"]}
    assert all(field["name"] == f"run.x.{name}" for name, field in fields.items())
    assert 'title="n: How many. At least 1.">Number</label>' in html
    assert fields["n"]["value"] == "5"
    assert "share: From 0 to 1." in html
    assert fields["shape"]["placeholder"] == "e.g. 10, 20"
    assert re.findall(r'<option value="(\w)"', html) == ["a", "b"]
    assert "checked" in fields["flag"]
    assert ">path *</label>" in html


def test_every_choice_of_a_cluster_has_its_field(person: Person) -> None:
    fields = set(re.findall(r'data-workbench="field-(\w+)"', person.looks_at("plan-form")))
    assert fields == set(ClusterChoices.model_fields)


def test_every_workload_has_its_form_its_help_and_its_code(person: Person) -> None:
    for template in Session().workloads():
        person.chooses(workload=template.name)
        text = person.finds("work", template.summary.partition("`")[0])
        assert f"def {template.name}(" in text
        assert f'name="run.{template.name}.' in person.looks_at("work")


# -- hardware


def test_profiles_are_offered_and_those_that_cannot_be_had_say_why(person: Person) -> None:
    text = person.finds("start", "Start")
    for profile in Session().profiles():
        assert (profile.title if profile.available else str(profile.reason)) in text


@pytest.mark.parametrize(
    ("field", "value", "called"),
    [("n_workers", "-2", "Workers"), ("memory", "lots", "Memory"), ("idle_timeout", "soon", "Idle time-out")],
)
def test_a_choice_that_cannot_be_used_is_a_sentence_and_no_click(
    person: Person, field: str, value: str, called: str
) -> None:
    sentence = f" is '{value}'"
    person.chooses(**{f"plan.cpu.{field}": value})
    person.finds("start", f"“{called}”{sentence}")
    person.finds("plan-form", f"“{called}”{sentence}")
    assert "disabled" in (person.button("start", "start") or {})
    answer = person.acts("start", profile="cpu", choices={field: value})
    assert f"{field}{sentence}" in answer["message"]
    assert Session().clusters() == ()


def test_the_plan_explains_itself_and_shows_its_code(person: Person) -> None:
    person.chooses(plan__cpu__n_workers="2", plan__cpu__threads_per_worker="1", plan__cpu__memory="1GiB")
    assert "LocalCluster(" in person.finds("start", "2 processes of 1 thread, as chosen.")


class OnGpus(Session):
    """A session on a machine with two GPUs, one of which somebody works on."""

    def hardware(self) -> Inventory:
        gpus = tuple(
            Gpu(index=n, name="SIMULATED", uuid=f"GPU-{n}", memory_total=2**34, memory_free=free)
            for n, free in enumerate((2**32, 2**34))
        )
        return inventory().model_copy(update={"gpus": gpus})


@pytest.mark.skipif(installed_version("dask-cuda") is None, reason="The profiles with GPUs need dask-cuda.")
def test_gpus_are_chosen_by_boxes_and_the_idle_ones_are_proposed(data_folder: Path) -> None:
    with Workbench(OnGpus()) as bench:
        person = Person(bench)
        person.chooses(profile="gpus")
        assert "0 · SIMULATED" in person.reads("gpus:gpus")
        person.finds("start", "1 GPU, the idle one of 2")
        person.finds("plan-form", "RMM")
        person.chooses(plan__gpus__devices="GPU-0,GPU-1")
        person.finds("start", "2 GPUs, as chosen")
        person.chooses(profile="gpu", plan__gpu__devices="GPU-0")
        person.finds("start", "1 GPU, as chosen: 0")


# -- workloads


def test_a_preset_fills_the_form_and_leaves_no_other_parameter(person: Person) -> None:
    preset = person.button("work", "preset") or {}
    assert preset["name"] == "run.array_sum.preset"
    assert preset["data-alone"] == "run.array_sum."
    person.chooses(**{"run.array_sum.preset": "post"})
    person.finds("work", "From: ")
    assert (person.button("work", "field-size") or {})["value"] == ""
    assert '<option value="RandomState" selected>' in person.looks_at("work")
    person.chooses(**{"run.array_sum.scale": "0.01"})
    person.finds("work", "18.6 GiB")
    person.chooses(**{"run.array_sum.scale": None, "run.array_sum.size": "16MiB", "run.array_sum.generator": "tiles"})
    person.finds("work", "16 MiB")
    person.chooses(**{f"run.array_sum.{name}": None for name in ("preset", "size", "generator")})
    until(lambda: (person.button("work", "field-size") or {})["value"] == "2 GiB")


# -- the whole of it, with a cluster


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """Provide a workbench with its own data folder."""
    from tests.conftest import using_data_folder

    with using_data_folder(tmp_path_factory.mktemp("panels")), Workbench() as bench:
        yield bench


@pytest.fixture(scope="module")
def otter(bench: Workbench) -> Person:
    """Somebody who has started a small cluster called 'otter'."""
    person = Person(bench)
    person.chooses(plan__cpu__n_workers="2", plan__cpu__threads_per_worker="1", plan__cpu__memory="1GiB")
    person.chooses(name="otter")
    person.finds("start", "2 workers × 1 thread")
    assert person.clicks("start", "start")["value"] is None
    until(lambda: person.button("clusters", "watch"), 60, lambda: person.reads("clusters"))
    return person


def begun(person: Person) -> str:
    """Start a run with a click, and return its id."""
    run_id: str = person.clicks("work", "run-button")["value"]["id"]
    return run_id


def run_to_its_end(person: Person, workload: str, **parameters: Any) -> str:
    """Start a run with a click, and return its id once it has ended."""
    person.chooses(workload=workload, **{f"run.{workload}.{name}": value for name, value in parameters.items()})
    until(lambda: f'name="run.{workload}.' in person.looks_at("work"))
    found = begun(person)
    until(lambda: person.button("runs", "report", f"run-{found}"), 60, lambda: person.reads("runs"))
    return found


def test_a_click_on_start_makes_a_cluster_and_the_page_says_how_to_connect(otter: Person) -> None:
    record = Session().cluster("otter")
    assert (record.status, record.spec.n_workers) == ("ready", 2)
    assert "2 workers × 1 thread" in otter.reads("clusters")
    assert 'workbench.connect("otter")' in otter.reads("code:otter")
    assert "name" not in otter.chosen
    assert 'value="otter" selected' in otter.looks_at("work")


def test_there_is_no_dashboard_where_there_is_no_server(otter: Person) -> None:
    assert otter.button("clusters", "restart") is not None
    assert otter.button("clusters", "dashboard") is None


def test_a_name_in_use_is_a_sentence(otter: Person) -> None:
    otter.chooses(name="otter")
    assert "otter" in otter.clicks("start", "start")["message"]
    otter.chooses(name=None)


def test_a_click_on_run_gives_a_checked_answer(otter: Person) -> None:
    found = run_to_its_end(otter, "array_sum", size="16MiB")
    run = Session().show(found)
    assert run.status == "done"
    assert run.check is not None
    assert run.check.passed
    assert otter.button("runs", "check-passed", f"run-{found}") is not None
    assert f"{run.result['value']:.10g}" in otter.reads("runs")  # type: ignore[index]


def test_a_bad_parameter_is_a_sentence_and_runs_nothing(otter: Person) -> None:
    before = len(Session().runs())
    otter.chooses(**{"workload": "transpose_sum", "run.transpose_sum.size": "-3"})
    otter.finds("work", "“Size” is -3")
    assert "disabled" in (otter.button("work", "run-button") or {})
    body = {"workload": "transpose_sum", "cluster": "otter", "parameters": {"size": "-3"}}
    assert "size of transpose_sum" in otter.acts("run", **body)["message"]
    assert len(Session().runs()) == before


def test_what_a_workload_needs_is_said_before_it_runs(otter: Person) -> None:
    otter.chooses(workload="array_sum")
    otter.finds("work", "one pass")


def test_what_does_not_fit_asks_once_more(otter: Person) -> None:
    otter.chooses(workload="array_sum", **{"run.array_sum.size": "80GiB", "run.array_sum.chunks": "4GiB"})
    otter.chooses(**{"run.array_sum.generator": "RandomState"})
    otter.finds("work", "Run anyway")
    assert json.loads((otter.button("work", "run-button") or {})["data-arguments"] or "")["force"] is True
    otter.chooses(**{"run.array_sum.chunks": None})
    until(lambda: "Run anyway" not in otter.reads("work"))
    assert json.loads((otter.button("work", "run-button") or {})["data-arguments"] or "")["force"] is False
    otter.chooses(**{"run.array_sum.size": None, "run.array_sum.generator": None})


def test_a_cluster_is_watched_and_a_run_is_replayed(bench: Workbench, otter: Person) -> None:
    watching = otter.button("clusters", "watch") or {}
    assert (watching["data-command"], watching["data-args"]) == ("dask-workbench:watch", '{"cluster": "otter"}')
    page = Cell(bench, cluster="otter")
    found = run_to_its_end(otter, "array_sum", size="128MiB", chunks="400")
    until(lambda: page.column("tasks", "left"))
    assert page.acts("figure", cluster="otter", theme="dark")["value"]["item"]
    replay = Cell(bench, run=found)
    until(lambda: replay.column("tasks", "left"))


def test_a_report_is_a_page_and_a_run_is_a_file(otter: Person) -> None:
    found = run_to_its_end(otter, "array_sum", size="16MiB", chunks=None)
    page = otter.acts("file", path=f"runs/{found}/report")["value"]
    assert page["kind"].startswith("text/html")
    assert b"<html" in base64.b64decode(page["base64"])
    file = otter.acts("file", path=f"runs/{found}/export")["value"]
    assert file["name"].endswith(".zip")
    assert zipfile.is_zipfile(io.BytesIO(base64.b64decode(file["base64"])))


def test_a_run_is_cancelled_and_deleted_by_a_click(otter: Person) -> None:
    otter.chooses(workload="array_sum", **{"run.array_sum.size": "60GiB"})
    otter.finds("work", "60 GiB")
    found = begun(otter)
    until(lambda: Session().show(found).status == "running", 30)
    otter.clicks("runs", "cancel-run", f"run-{found}")
    until(lambda: (otter.button("runs", f"run-{found}") or {})["data-status"] == "cancelled", 30)
    otter.chooses(**{"run.array_sum.size": None})
    otter.clicks(f"run:{found}", "delete-run")
    until(lambda: otter.button("runs", f"run-{found}") is None)
    assert found not in {run.id for run in Session().runs()}


def test_a_cluster_is_scaled_by_a_click(otter: Person) -> None:
    otter.chooses(scale__otter__n_workers=1)
    otter.clicks("clusters", "apply-scale", "cluster-otter")
    otter.finds("clusters", "1 worker × 1 thread", 30)
    assert Session().cluster("otter").n_workers == 1


def test_what_another_face_does_is_seen_and_two_places_show_the_same(bench: Workbench, otter: Person) -> None:
    session = Session()
    record = session.start(session.plan("cpu", n_workers=1, memory="512MiB"), name="heron")
    other = Person(bench)
    for person in (otter, other):
        person.finds("clusters", "heron")
    session.stop(record.name)
    for person in (otter, other):
        until(lambda person=person: "heron" not in person.reads("clusters"))


def test_closed_it_watches_no_more_until_a_click_resumes(data_folder: Path) -> None:
    bench = Workbench()
    person = Person(bench)
    person.finds("clusters", "None is running.")
    service = bench._service
    assert service is not None
    watching = soon(service.watching).result()
    assert watching.state.watching
    bench.close()
    until(lambda: bench._service is None and not watching.state.watching)
    person.say(type="choose", choices={"profile": "cpu"})
    until(lambda: person.came[-1]["type"] == "again")
    person.say(type="hello")
    until(lambda: person.came[-1]["type"] == "state")
    bench.close()


def test_all_that_is_shown_comes_from_this_machine(bench: Workbench) -> None:
    assert "@import" not in bench.styles
    assert "http" not in "".join(re.findall(r"url\([^)]*", bench.styles)).replace("http://www.w3.org", "")


def test_a_click_on_stop_leaves_nothing(otter: Person) -> None:
    otter.clicks("clusters", "stop", "cluster-otter")
    otter.finds("clusters", "None is running", 30)
    assert Session().clusters() == ()


# -- comparing; tests/test_compare_runs.py runs some


def test_what_can_not_be_compared_is_a_sentence(person: Person) -> None:
    body = {"workload": "array_sum", "on": ["gpu"]}
    assert "None of these can be had" in person.acts("compare", **body)["message"]
    person.chooses(compare__lines="tpu")
    person.finds("compare", "Unknown profile 'tpu'")
    assert "disabled" in (person.button("compare", "compare") or {})


def test_an_earlier_comparison_is_shown_again(person: Person) -> None:
    comparisons.create(comparison(row("one", times(6)), row("two", times(3, seed=1))))
    hook = "comparison-compare-array_sum-abcdef"
    watching = person.button("comparisons", "watch-comparison", hook) or {}
    args = json.loads(watching["data-args"] or "")
    assert args == {"view": "comparison:compare-array_sum-abcdef", "label": "Sum or mean of an array, compared"}
    assert person.button("comparisons", "cancel-comparison", hook) is None


def test_a_theme_that_there_is_not_is_said() -> None:
    with pytest.raises(BadInputError, match="theme is 'blue'"):
        Workbench(theme="blue")
