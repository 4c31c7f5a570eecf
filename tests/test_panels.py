"""The panels, driven through their widgets: forms, lists, a real cluster and a real run, figures of any client."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import panel as pn
import pytest
from bokeh.document import Document
from bokeh.models import ImportedStyleSheet, UIElement

from tests.cell import Cell
from tests.conftest import using_data_folder
from workbench.clusters.choices import ClusterChoices
from workbench.hardware import Gpu, Inventory, inventory
from workbench.hardware.sources import installed_version
from workbench.panels import Workbench
from workbench.panels.forms import Form
from workbench.panels.hardware import Hardware
from workbench.panels.workloads import Workloads
from workbench.session import Session

SCHEMA = {
    "$defs": {"Kind": {"enum": ["a", "b"], "type": "string"}},
    "properties": {
        "n": {"type": "integer", "title": "Number", "description": "How many.", "default": 3, "minimum": 1},
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "size": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": "2GiB", "examples": ["1GiB"]},
        "shape": {"anyOf": [{"type": "array"}, {"type": "null"}], "default": None, "examples": [[10, 20]]},
        "kind": {"$ref": "#/$defs/Kind", "default": "a"},
        "chosen": {"anyOf": [{"enum": ["x", "y"]}, {"type": "null"}]},
        "flag": {"type": "boolean", "default": False},
        "switch": {"type": "boolean"},
    },
}


def until(true: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until it is true; fail when that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
    return found


def click(button: Any) -> None:
    assert button.visible
    assert not button.disabled
    button.clicks += 1


def shown(view: Any) -> str:
    """All text in a panel, without its markup."""
    texts = [pane.object for pane in view.select(lambda each: hasattr(each, "object")) if isinstance(pane.object, str)]
    return html.unescape(re.sub(r"<[^>]*>", " ", " ".join(texts)))


# -- forms


def test_a_form_gives_only_what_was_changed() -> None:
    form = Form(SCHEMA)
    assert form.values() == {}
    form.set(n=5, size="4GiB", kind="b", flag=True, switch=False)
    assert form.values() == {"n": 5, "size": "4GiB", "kind": "b", "flag": True, "switch": False}
    form.set(n=3, size=" ", switch=None)
    assert form.values() == {"kind": "b", "flag": True}


def test_a_form_names_and_explains_its_fields() -> None:
    widgets = Form(SCHEMA).widgets
    assert widgets["n"].label == "Number"
    assert widgets["n"].description == "How many. Allowed: at least 1."
    assert widgets["share"].description == "Allowed: above 0, at most 1."
    assert widgets["shape"].placeholder == "such as 10, 20"
    assert list(widgets["kind"].options) == ["a", "b"]
    assert list(widgets["chosen"].options.values()) == ["", "x", "y"]


def test_a_form_says_when_a_value_has_changed() -> None:
    changes = []
    form = Form(SCHEMA, lambda: changes.append(1))
    form.set(n=4)
    assert until(lambda: changes)


def test_every_choice_and_every_workload_has_its_fields() -> None:
    assert set(Form(ClusterChoices.model_json_schema()).widgets) == set(ClusterChoices.model_fields)
    for template in Session().workloads():
        form = Form(template.schema())
        assert set(form.widgets) == set(template.schema()["properties"])
        assert form.values() == {}


# -- hardware


def test_all_four_profiles_are_offered_and_those_that_cannot_be_had_say_why(data_folder: Path) -> None:
    hardware = Hardware(Session(), lambda record: None)
    assert list(hardware.profiles) == ["cpu", "gpu", "gpus", "ucx"]
    for profile in Session().profiles():
        assert hardware.profiles[profile.name].disabled is not profile.available
        assert (profile.reason or profile.summary) in shown(hardware.view)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"n_workers": -2}, "n_workers is -2"),
        ({"memory": "lots"}, "memory is 'lots'"),
        ({"idle_timeout": "soon"}, "idle_timeout is 'soon'"),
    ],
)
def test_a_choice_that_cannot_be_used_is_a_sentence_and_starts_nothing(
    data_folder: Path, choice: dict[str, Any], sentence: str
) -> None:
    started: list[Any] = []
    hardware = Hardware(Session(), started.append)
    hardware.form.set(**choice)
    until(lambda: sentence in hardware.notice.text)
    until(lambda: hardware.plan.object == "")
    click(hardware.start_button)
    until(lambda: not hardware.start_button.disabled)
    assert sentence in hardware.notice.text
    assert started == []
    assert Session().clusters() == ()


def test_the_plan_explains_itself_and_shows_its_code(data_folder: Path) -> None:
    hardware = Hardware(Session(), lambda record: None)
    hardware.form.set(n_workers=2, threads_per_worker=1, memory="1GiB")
    until(lambda: "2 processes of 1 thread, as chosen." in shown(hardware.view))
    assert "LocalCluster(" in shown(hardware.view)


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
    hardware = Hardware(OnGpus(), lambda record: None)
    assert "0 · SIMULATED" in shown(hardware.view)
    hardware.choose("gpus")
    assert hardware.picker.boxes.value == ["GPU-1"]
    assert "1 GPU, the idle one of 2" in shown(hardware.view)
    assert "rmm_pool_size" in hardware.form.widgets
    hardware.picker.boxes.value = ["GPU-0", "GPU-1"]
    until(lambda: "2 GPUs, as chosen" in shown(hardware.view))
    hardware.choose("gpu")
    hardware.picker.boxes.value = ["GPU-0", "GPU-1"]
    until(lambda: "1 GPU, as chosen: 0" in shown(hardware.view))
    assert hardware.picker.boxes.value == ["GPU-0"]


# -- the whole of it


def test_a_preset_fills_the_form_and_leaves_no_other_parameter(data_folder: Path) -> None:
    workloads = Workloads(Session(), print)
    assert workloads.shown == "array_sum"
    workloads.form.set(seed=3)
    workloads.preset.value = next(name for name in workloads.preset.options.values() if name)
    until(lambda: workloads.values() == {"preset": "post"})
    assert workloads.form.widgets["generator"].value == "RandomState"
    assert [workloads.form.widgets[name].value for name in ("size", "shape", "chunks")] == ["", "", ""]
    workloads.form.set(size="16MiB", generator="tiles")
    assert workloads.values() == {"preset": "post", "size": "16MiB", "generator": "tiles"}
    until(lambda: "16 MiB" in workloads.needs.object)
    workloads.form.set(size="", scale=0.01)
    until(lambda: "18.6 GiB" in workloads.needs.object)
    assert workloads.notice.view.object == ""
    workloads.preset.value = ""
    until(lambda: workloads.values() == {})
    assert workloads.form.widgets["size"].value == "2GiB"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A workbench with a small cluster called 'otter' that was started by a click."""
    with using_data_folder(tmp_path_factory.mktemp("panels")), Workbench() as bench:
        bench.hardware.form.set(n_workers=2, threads_per_worker=1, memory="1GiB", encrypt=False)
        bench.hardware.name.value = "otter"
        click(bench.hardware.start_button)
        until(lambda: "otter" in bench.clusters.items)
        wait_for_ready(bench, "otter")
        yield bench


def wait_for_ready(bench: Workbench, cluster: str) -> None:
    """Fail with what the panel says when the cluster does not become ready."""
    item = bench.clusters.items[cluster]
    deadline = time.monotonic() + 60
    while not item.watch_button.visible and time.monotonic() < deadline:
        time.sleep(0.02)
    assert item.watch_button.visible, (shown(item.view), bench.notice.text, Session().cluster(cluster))


def choose(bench: Workbench, workload: str) -> None:
    bench.workloads.workload.value = workload
    until(lambda: bench.workloads.shown == workload)


def test_code_in_a_summary_looks_like_code(bench: Workbench) -> None:
    choose(bench, "array_sum")
    about = bench.workloads._about
    until(lambda: "<code>x + 1</code>" in about.object)
    assert "`" not in about.object.partition("<details>")[0]


def run_to_its_end(bench: Workbench, workload: str, **parameters: Any) -> Any:
    before = set(bench.runs.items)
    choose(bench, workload)
    bench.workloads.form.set(**parameters)
    click(bench.workloads.run_button)
    name = until(lambda: set(bench.runs.items) - before).pop()
    until(lambda: bench.runs.items[name].replay_button.visible, 60)
    return bench.runs.items[name]


def test_a_click_on_start_makes_a_cluster_and_the_panel_says_how_to_connect(bench: Workbench) -> None:
    record = Session().cluster("otter")
    assert record.status == "ready"
    assert record.spec.n_workers == 2
    text = until(lambda: 'workbench.connect("otter")' in shown(bench.clusters.view) and shown(bench.clusters.view))
    assert "2 workers × 1 thread" in text
    assert bench.workloads.cluster.value == "otter"


def test_a_name_in_use_is_a_sentence(bench: Workbench) -> None:
    bench.hardware.name.value = "otter"
    click(bench.hardware.start_button)
    assert "otter" in until(lambda: bench.hardware.notice.text)
    bench.hardware.name.value = ""


def test_a_click_on_run_gives_a_checked_answer(bench: Workbench) -> None:
    item = run_to_its_end(bench, "array_sum", size="16MiB")
    run = Session().show("last")
    assert run.status == "done"
    assert run.check is not None
    assert run.check.passed
    assert "✓" in item.text
    assert f"value {run.result['value']:.10g}" in item.text  # type: ignore[index]


def test_a_bad_parameter_is_a_sentence_and_runs_nothing(bench: Workbench) -> None:
    before = len(Session().runs())
    choose(bench, "transpose_sum")
    bench.workloads.form.set(size="-3")
    until(lambda: "size of transpose_sum" in bench.workloads.notice.text)
    click(bench.workloads.run_button)
    until(lambda: not bench.workloads.run_button.disabled)
    assert "size of transpose_sum" in bench.workloads.notice.text
    assert len(Session().runs()) == before
    bench.workloads.form.set(size="1GiB")


def test_what_a_workload_needs_is_said_before_it_runs(bench: Workbench) -> None:
    choose(bench, "array_mean")
    assert until(lambda: "one pass" in shown(bench.workloads.view))


def test_a_cluster_is_watched_and_a_run_is_replayed(bench: Workbench) -> None:
    click(bench.clusters.items["otter"].watch_button)
    watch = until(lambda: bench.watched)
    item = run_to_its_end(bench, "array_sum", size="128MiB", chunks="400")
    page = Cell(watch)
    until(lambda: page.column("tasks", "left"))
    click(item.replay_button)
    replay = until(lambda: bench.watched is not watch and bench.watched)
    page = Cell(replay)
    until(lambda: page.column("tasks", "left"))
    assert watch.client.status == "closed"


def test_a_run_is_cancelled_by_a_click(bench: Workbench) -> None:
    before = set(bench.runs.items)
    choose(bench, "array_sum")
    bench.workloads.form.set(size="60GiB")
    click(bench.workloads.run_button)
    name = until(lambda: set(bench.runs.items) - before).pop()
    until(lambda: Session().show(name).status == "running", 30)
    click(bench.runs.items[name].cancel_button)
    until(lambda: "cancelled" in bench.runs.items[name].text, 30)
    bench.workloads.form.set(size="16MiB")


def test_a_cluster_is_scaled_by_a_click(bench: Workbench) -> None:
    item = bench.clusters.items["otter"]
    item.n_workers.value = 1
    click(item.scale_button)
    until(lambda: "1 worker × 1 thread" in shown(item.view), 30)
    assert Session().cluster("otter").n_workers == 1


def test_what_another_face_does_is_seen(bench: Workbench) -> None:
    session = Session()
    record = session.start(session.plan("cpu", n_workers=1, memory="512MiB", encrypt=False), name="heron")
    until(lambda: "heron" in bench.clusters.items)
    asyncio.run(session.stop(record.name))
    until(lambda: "heron" not in bench.clusters.items)


def test_all_that_is_shown_comes_from_this_machine(bench: Workbench) -> None:
    """Panel turns addresses into text when it is displayed; what changes afterwards must bring none of its own."""
    from panel.io.notebook import patch_inline_stylesheets
    from pyviz_comms import Comm

    root = bench.__panel__()._render_model(Document(), Comm())
    for model in root.select({"type": UIElement}):
        patch_inline_stylesheets(model)
    bench.hardware.notice.say("Something.")
    bench.workloads.refresh()
    sheets = [sheet for model in root.select({"type": UIElement}) for sheet in model.stylesheets]
    assert sheets
    assert [sheet.url for sheet in sheets if isinstance(sheet, ImportedStyleSheet)] == []
    bench.hardware.notice.clear()
    del pn.state._views[root.ref["id"]]


def test_a_click_on_stop_leaves_nothing(bench: Workbench) -> None:
    click(bench.clusters.items["otter"].stop_button)
    until(lambda: bench.clusters.items == {}, 30)
    assert Session().clusters() == ()
    assert "No cluster is running" in shown(bench.clusters.view)
