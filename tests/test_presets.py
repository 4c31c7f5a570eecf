from __future__ import annotations

import argparse
import asyncio
import html
import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_runs import start_cluster
from tests.trusted import trust_here
from tests.views import html_at, html_of
from workbench.cli import main
from workbench.cli.options import where
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError, NotFoundError
from workbench.runs.forecasting import machines
from workbench.runs.forecasting.forecast import elsewhere
from workbench.runs.run import Run
from workbench.session import Session
from workbench.views.actions import perform
from workbench.views.service import Service
from workbench.workloads import BadParameterError, template, templates

ALL = [(found.name, preset.name) for found in templates() for preset in found.presets]
ARRAYS = [each for each in ALL if each[0] != "dataframe_join"]


@pytest.mark.parametrize(("workload", "name"), ALL)
def test_a_preset_can_be_run_as_it_is(workload: str, name: str) -> None:
    chosen = template(workload)
    preset = chosen.preset(name)
    checked = chosen.validate(preset.parameters, threads=8)
    assert {name: checked.resolved[name] for name in preset.parameters if name != "chunks"} == {
        name: value for name, value in preset.parameters.items() if name != "chunks"
    }
    assert chosen.needs(checked).input_bytes > 0
    json.dumps(preset.model_dump())


def test_the_experiments_of_the_texts_are_there() -> None:
    sum_ = template("array_sum").validate(template("array_sum").preset("post").parameters)
    assert template("array_sum").needs(sum_).input_bytes == 2 * 10**12
    dgx2 = template("compressed_svd").validate(template("compressed_svd").preset("dgx2").parameters)
    assert template("compressed_svd").needs(dgx2).input_bytes == 200 * 10**9
    assert {("tall_skinny_svd", "textbook"), ("tall_skinny_svd", "ucx"), ("compressed_svd", "laptop")} <= set(ALL)


def test_an_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(NotFoundError, match=r"tall_skinny_svd has no preset 'dgx'. Choose one of: textbook, ucx, tall"):
        template("tall_skinny_svd").preset("dgx")
    with pytest.raises(NotFoundError, match=r"svd_of_file has no preset 'x'\. It has none\."):
        template("svd_of_file").preset("x")


def resolved(workload: str, **given: Any) -> dict[str, Any]:
    return template(workload).validate(given, threads=2).resolved


def n_blocks(found: dict[str, Any]) -> int:
    return math.prod(math.ceil(a / b) for a, b in zip(found["shape"], found["chunks"], strict=True))


def test_what_is_given_beside_a_preset_takes_its_place() -> None:
    post = resolved("array_sum", preset="post")
    assert post == resolved("array_sum", **template("array_sum").preset("post").parameters)
    assert resolved("array_sum", preset="post", chunks="5000") == {**post, "chunks": [5000, 5000]}
    assert resolved("array_sum", preset="post", shape="", dtype="float32") == {**post, "dtype": "float32"}


@pytest.mark.parametrize(("workload", "name"), ARRAYS)
def test_a_size_beside_a_preset_takes_the_place_of_its_shape_and_blocks(workload: str, name: str) -> None:
    found = resolved(workload, preset=name, size="16MiB")
    plain = resolved(workload, size="16MiB", dtype=found["dtype"])
    assert found["shape"] == plain["shape"]
    preset = template(workload).preset(name).parameters
    assert {key: found[key] for key in preset if key not in ("shape", "chunks")} == {
        key: value for key, value in preset.items() if key not in ("shape", "chunks")
    }


@pytest.mark.parametrize("scale", [0.0001, 4])
def test_dataframes_are_scaled_in_rows_and_keep_their_partitions(scale: float) -> None:
    whole, part = (
        resolved("dataframe_join", preset="dask_cuda"),
        resolved("dataframe_join", preset="dask_cuda", scale=scale),
    )
    assert part["n_rows"] == scale * whole["n_rows"]
    assert part["n_rows"] / part["partition"] == whole["n_rows"] / whole["partition"]
    checked = template("dataframe_join").validate({"preset": "dask_cuda", "scale": scale})
    assert f"n_rows {part['n_rows']}, not 16000000" in machines.text(template("dataframe_join"), checked, {}).differs


@pytest.mark.parametrize(("workload", "name"), ARRAYS)
@pytest.mark.parametrize("scale", [0.0001, 0.5, 4])
def test_a_preset_is_scaled_in_bytes_and_keeps_its_form_and_its_number_of_blocks_unless_they_are_tiny(
    workload: str, name: str, scale: float
) -> None:
    whole, part = resolved(workload, preset=name), resolved(workload, preset=name, scale=scale)
    assert math.prod(part["shape"]) / math.prod(whole["shape"]) == pytest.approx(scale, rel=0.02)
    cut = [2 if chunk < side else 1 for chunk, side in zip(whole["chunks"], whole["shape"], strict=True)]
    # Blocks of 8 MB or more, and two along each side that is cut.
    expected = max(min(n_blocks(whole), math.prod(part["shape"]) / 10**6), math.prod(cut))
    assert 0.6 * expected < n_blocks(part) < 1.05 * expected
    aspect = [max(each["shape"]) / min(each["shape"]) for each in (whole, part)]
    # Not where the shorter side would be less than 20, which the longer one then makes up for.
    if min(whole["shape"]) * math.sqrt(scale) >= 20:
        assert aspect[1] == pytest.approx(aspect[0], rel=0.02)
    else:
        assert min(part["shape"]) == 20
    if whole["shape"][0] == whole["shape"][1]:
        assert part["shape"][0] == part["shape"][1]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scale": 0.1}, "scale of array_sum is 0.1, of no preset"),
        ({"preset": "post", "scale": 0.1, "size": "1GiB"}, r"both scale \(0.1\) and size \('1GiB'\)"),
        ({"preset": "post", "scale": "0.1", "shape": [9, 9]}, r"both scale \(0.1\) and shape"),
        ({"preset": "post", "scale": 0}, "Give a number above 0 and at most 1000"),
        ({"preset": "pots"}, "array_sum has no preset 'pots'. Choose one of: post"),
    ],
)
def test_a_scale_or_preset_that_means_nothing_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadParameterError, match=sentence):
        template("array_sum").validate(given)


def test_what_is_no_random_array_has_no_preset_and_no_scale() -> None:
    for found in templates():
        assert ("preset" in found.schema()["properties"]) == ("scale" in found.schema()["properties"])
        assert ("preset" in found.schema()["properties"]) == bool(found.presets)


@pytest.mark.parametrize(("workload", "name"), ALL)
def test_each_time_that_a_title_promises_is_in_the_forecast_and_beside_the_run(workload: str, name: str) -> None:
    chosen = template(workload)
    checked = chosen.validate({"preset": name})
    listed = {one["machine"]: one["seconds"] for one in elsewhere(chosen, checked, chosen.needs(checked), ())}
    told = {figure.machine: figure.seconds for figure in machines.text(chosen, checked, {}).figures}
    for machine, seconds in told.items():
        assert tuple(listed[machine].values()) == pytest.approx(seconds)
    title = chosen.preset(name).title
    promised = [60 * int(a) + int(b) for a, b in re.findall(r"(\d+) min (\d+) s", title)]
    promised += [int(b) for a, b in re.findall(r"(\d+ to )?(\d+) s on", title) if "min" not in title]
    assert all(any(seconds == high for _, high in told.values()) for seconds in promised)
    assert bool(promised) == bool(told)


def test_the_laptop_is_offered_in_both_ways_of_reading_the_post() -> None:
    laptop, bytes_ = (template("compressed_svd").preset(name) for name in ("laptop", "laptop_uint8"))
    assert {**laptop.parameters, "dtype": "uint8"} == bytes_.parameters
    assert laptop.parameters["dtype"] == "float64"
    for preset, size in ((laptop, "160 GB"), (bytes_, "20 GB")):
        assert size in preset.title
        checked = template("compressed_svd").validate({"preset": preset.name})
        assert template("compressed_svd").needs(checked).input_bytes == int(size.split()[0]) * 10**9


def test_in_what_a_run_differs_from_the_text_is_said() -> None:
    chosen = template("array_sum")
    given = {"preset": "post", "scale": 0.01, "generator": "tiles", "dtype": "float32", "chunks": 5000}
    text = machines.text(chosen, chosen.validate(given), {})
    assert text.differs == (
        "0.01 of its numbers, 50,000 × 50,000",
        "100 blocks, not 2,500",
        "dtype float32, not float64",
        "generator tiles, not RandomState",
    )
    fused = {"preset": "post", "generator": "fused"}
    around = {"memory": 2**36, "threads": 1, "on_gpu": True}
    checked = chosen.validate(fused, **around)
    assert machines.text(chosen, checked, around).differs == (
        "generator fused, not RandomState: every number is made, and none is stored",
    )
    assert checked.notes == (
        "Every number is made in a register and added up; none is stored.",
        "Fewer blocks cost nothing, as they are not stored: chunks=50000 takes least time.",
    )
    assert chosen.needs(checked).held_per_worker == 20 * 2**20
    large = chosen.validate({**fused, "chunks": "auto"}, **around)
    assert large.resolved["chunks"] == [50_000, 50_000]
    assert large.notes[1].endswith("nothing of a block is stored, and each is a task.")
    assert machines.text(chosen, chosen.validate({"preset": "post"}), {}).differs == ()
    drawn = template("compressed_svd")
    for cluster, differs in ((around, ("drawn by a kernel of ours, not by randint",)), ({}, ())):
        checked = drawn.validate({"preset": "laptop_uint8"}, **cluster)
        assert machines.text(drawn, checked, cluster).differs == differs
    spec = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=2, memory_limit=2**30)
    run = Run(id="a", workload="array_sum", cluster="c", status="done", seconds=142.3, spec=spec, text=text)
    assert run.text_comparison == (
        "GPU Dask Arrays, first steps (2019): 2 h 39 min on one CPU core (2019), 11 min 30 s on forty CPU cores "
        "(2019), 1 min 37 s on one V100 (2019), 19 s on eight V100 (2019); here: 2 min 22 s on 2 CPU threads. Here "
        "differ: 0.01 of its numbers, 50,000 × 50,000; 100 blocks, not 2,500; dtype float32, not float64; "
        "generator tiles, not RandomState."
    )
    assert Run(id="a", workload="array_sum", cluster="c").text_comparison is None


def test_a_run_keeps_its_preset_and_what_the_text_says_and_a_held_array_is_not_in_its_time(
    data_folder: Path, capsys: Any
) -> None:
    start_cluster("calm-otter", n_workers=1)
    # One thread of this machine takes long for 1 000 columns.
    shape = ["-p", "shape=2000,100", "-p", "chunks=200,100", "-p", "persist=true"]
    assert main(["run", "tall_skinny_svd", "--preset", "textbook", "--cluster", "calm-otter", "--json", *shape]) == 0
    textbook = json.loads(capsys.readouterr().out)
    assert textbook["resolved"]["shape"] == [2000, 100]
    assert textbook["result"]["seconds_to_make"] > 0
    assert textbook["check"]["passed"]
    scaled = ["--preset", "tall", "--scale", "0.0005", "--cluster", "calm-otter"]
    assert main(["run", "tall_skinny_svd", "--json", *scaled]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["preset"] == "tall"
    assert run["text"]["source"] == "Large SVDs (2020)"
    assert run["text"]["differs"] == ["0.0005 of its numbers, 5,000 × 20", "2 blocks, not 16"]
    assert run["text_comparison"].startswith("Large SVDs (2020): gives no time; here: ")
    assert run["resolved"]["shape"] == [5000, 20]
    assert n_blocks(run["resolved"]) == 2
    assert run["check"]["passed"]
    assert "seconds_to_make" not in run["result"]
    assert main(["show", run["id"]]) == 0
    assert "gives no time; here: " in " ".join(capsys.readouterr().out.split())
    from workbench.figures.report import report_html

    kept = Session().show(run["id"])
    assert kept.text_comparison in html.unescape(report_html(kept, None))
    assert str(kept.text_comparison) in html.unescape(html_of(f"run:{kept.id}"))
    assert main(["forecast", "tall_skinny_svd", "--json", *scaled]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["shape"] == [5000, 20]
    Session().stop("calm-otter")


def test_a_preset_picks_the_profile_that_its_text_is_about(capsys: Any) -> None:
    assert template("tall_skinny_svd").preset("ucx").profile == "ucx"
    session = Session()
    named = argparse.Namespace(workload="tall_skinny_svd", on=None, preset="ucx", scale=None, parameters=[])
    assert where(session, named) == "ucx"
    assert where(session, argparse.Namespace(**{**vars(named), "on": "cpu --workers 1"})) == "cpu --workers 1"
    assert main(["run", "tall_skinny_svd", "--preset", "tall"]) == 2
    assert "No cluster was given. Give --cluster NAME (none runs), or --on with a profile" in capsys.readouterr().err


def test_the_presets_are_listed(capsys: Any) -> None:
    assert main(["workloads", "tall_skinny_svd"]) == 0
    told = capsys.readouterr().out
    assert "textbook" in told
    assert "workbench run tall_skinny_svd --preset textbook" in " ".join(told.split())
    assert main(["workloads", "tall_skinny_svd", "--json"]) == 0
    assert [preset["name"] for preset in json.loads(capsys.readouterr().out)["presets"]] == ["textbook", "ucx", "tall"]


def test_a_preset_of_ones_own_is_kept_runs_and_is_forgotten(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workloads", "array_sum", "--save-preset", "mine", "-p", "shape=40,60", "-p", "chunks=20"]) == 0
    assert capsys.readouterr().out == "Saved: mine, a preset of array_sum\n"
    assert main(["workloads", "array_sum", "--save-preset", "mine", "-p", "shape=40,60", "-p", "chunks=20"]) == 0
    assert "which replaces the one before" in capsys.readouterr().out
    assert main(["workloads", "array_sum"]) == 0
    assert "shape=[40, 60], chunks=20" in " ".join(capsys.readouterr().out.split())
    found = template("array_sum").validate({"preset": "mine", "seed": "3"}, threads=2)
    assert (found.preset, found.resolved["shape"], found.resolved["seed"]) == ("mine", [40, 60], 3)
    # The process that computes it needs no file of presets.
    assert template("array_sum").validate(found.given, threads=2).resolved == found.resolved
    assert "preset" not in found.given
    with pytest.raises(BadParameterError, match="scale of array_sum: a preset of your own"):
        template("array_sum").validate({"preset": "mine", "scale": 0.1})
    assert main(["workloads", "array_sum", "--forget-preset", "mine"]) == 0
    with pytest.raises(BadParameterError, match="array_sum has no preset 'mine'"):
        template("array_sum").validate({"preset": "mine"})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--save-preset", "post"], "array_sum has a preset 'post' already"),
        (["--save-preset", ""], "A preset can't be called ''"),
        (["--save-preset", "Night Queue"], "A preset can't be called 'Night Queue'"),
        (["--save-preset", "mine", "-p", "size=lots"], "size of array_sum is 'lots'"),
        (["--forget-preset", "mine"], "You saved no preset 'mine' of array_sum"),
    ],
)
def test_a_preset_that_cant_be_kept_is_told_and_nothing_is_kept(
    data_folder: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workloads", "array_sum", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (data_folder / "presets.yaml").exists()


def test_no_preset_is_kept_under_a_name_that_another_one_hides(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = "workbench: {presets: {array_sum: {ours: {shape: [40, 60]}}}}"
    (tmp_path / "workbench.yaml").write_text(told)
    trust_here()
    with pytest.raises(ConflictError, match=r"'ours' already, which isn't yours \(workbench.yaml here\)"):
        Session().keep_preset("array_sum", "ours", {"shape": [4, 6]})
    assert not Session().keep_preset("array_sum", "mine", {"shape": [4, 6]})
    assert Session().keep_preset("array_sum", "mine", {"shape": [4, 8]})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("workbench: [", "workbench.yaml can't be read"),
        ("presets: {array_sum: {a: {k: 1}}}", "presets stands at the top. Put it, indented, under a line that says"),
        ("workbench: {presets: 3}", "presets is 3"),
        ("workbench: {presets: {svd_of_file: {winds: 4}}}", "A preset of svd_of_file is 'winds': 4"),
    ],
)
def test_a_team_keeps_presets_in_a_file_of_its_folder_and_a_bad_one_is_one_sentence(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "workbench.yaml"
    file.write_text("workbench: {presets: {svd_of_file: {winds: {path: winds.npy, k: 4}}}}")
    trust_here()
    assert template("svd_of_file").preset("winds").parameters == {"path": "winds.npy", "k": 4}
    file.write_text(f"{text}\n")
    trust_here()
    with pytest.raises(BadParameterError, match=sentence):
        template("svd_of_file").validate({"preset": "winds"})
    assert template("array_sum").validate({"preset": "post"}).preset == "post"


def test_a_preset_is_kept_chosen_and_forgotten_on_the_page(data_folder: Path) -> None:
    service = Service("/", logging.getLogger(__name__), make_session=Session)

    async def story() -> None:
        kept = {"workload": "tall_skinny_svd", "name": "mine", "parameters": {"shape": "400, 20", "k": ""}}
        await perform(service, "keep_preset", kept)
        mine = {"run.tall_skinny_svd.preset": "mine", "preset.name": "other"}
        html = await html_at(service, "work", {"workload": "tall_skinny_svd", **mine})
        assert "From: what you kept" in html
        assert "preset-forget" in html
        assert 'value="other"' in html
        mine = {"workload": "tall_skinny_svd", "preset": "mine"}
        await perform(service, "forget_preset", mine)
        with pytest.raises(NotFoundError, match="You saved no preset 'mine'"):
            await perform(service, "forget_preset", mine)
        await service.close()

    asyncio.run(story())


def test_the_path_of_a_preset_is_opened_where_it_can_be_ended(data_folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((40, 6)))
    Session().keep_preset("svd_of_file", "mine", {"path": str(tmp_path / "x.npy"), "k": 3})
    opened_here = []

    class Here(Session):
        def forecast(self, *given: Any) -> Any:
            opened_here.append(given)
            return super().forecast(*given)

    async def story() -> str:
        service = Service("/", logging.getLogger(__name__), make_session=Here)
        chosen = {"workload": "svd_of_file", "run.svd_of_file.preset": "mine"}
        try:
            return await html_at(service, "work", chosen)
        finally:
            await service.close()

    assert "40 × 6" in asyncio.run(story())
    assert opened_here == []


def test_a_preset_that_says_nothing_of_the_size_leaves_that_of_the_form(data_folder: Path) -> None:
    Session().keep_preset("compressed_svd", "mine", {"k": 5})
    page = html_of("work", {"workload": "compressed_svd", "run.compressed_svd.preset": "mine"})
    fields = dict(re.findall(r'name="run\.compressed_svd\.(\w+)" value="([^"]*)"', page))
    default = Session().workload("compressed_svd").schema()["properties"]["size"]["default"]
    assert (fields["size"], fields["shape"], fields["k"]) == (default, "", "5")
