from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_runs import finish, start_cluster, submit
from workbench.cli import main
from workbench.cli.runs import with_preset
from workbench.errors import NotFoundError
from workbench.session import Session
from workbench.workloads import template, templates

ALL = [(found.name, preset.name) for found in templates() for preset in found.presets]


@pytest.mark.parametrize(("workload", "name"), ALL)
def test_a_preset_can_be_run_as_it_is(workload: str, name: str) -> None:
    chosen = template(workload)
    preset = chosen.preset(name)
    checked = chosen.validate(preset.parameters, threads=8)
    assert checked.resolved["shape"] == preset.parameters["shape"]
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


def test_what_is_given_beside_a_preset_takes_its_place() -> None:
    preset = template("array_sum").preset("post")
    assert with_preset(preset, {"chunks": "5000"}) == {**preset.parameters, "chunks": "5000"}
    sized = with_preset(preset, {"size": "1GiB"})
    assert sized == {"size": "1GiB", "chunks": [10_000, 10_000], "generator": "RandomState"}


def test_the_presets_are_listed(capsys: Any) -> None:
    assert main(["workloads", "tall_skinny_svd"]) == 0
    told = capsys.readouterr().out
    assert "textbook" in told
    assert "workbench run tall_skinny_svd --preset textbook" in " ".join(told.split())
    assert main(["workloads", "tall_skinny_svd", "--json"]) == 0
    assert [preset["name"] for preset in json.loads(capsys.readouterr().out)["presets"]] == ["textbook", "ucx", "tall"]


def test_the_textbooks_svd_is_run_and_a_held_array_is_not_in_the_time(data_folder: Path, capsys: Any) -> None:
    record = start_cluster("calm-otter")
    # One thread of this machine takes long for 1 000 columns.
    shape = ["-p", "shape=2000,100", "-p", "chunks=200,100", "-p", "persist=true"]
    assert main(["run", "tall_skinny_svd", "--preset", "textbook", "--cluster", "calm-otter", "--json", *shape]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["resolved"]["shape"] == [2000, 100]
    assert run["result"]["seconds_to_make"] > 0
    assert run["check"]["passed"]
    given = {"shape": [2000, 100], "chunks": [500, 100], "k": 3, "persist": True}
    certified = finish(submit("compressed_svd", given, record).id, timeout=60)
    assert certified.result is not None
    assert certified.result["certificate"]["passes"] > 0
    assert certified.result["seconds_to_make"] > 0
    plain = finish(submit("tall_skinny_svd", {"shape": [2000, 100], "chunks": [200, 100]}, record).id, timeout=60)
    assert plain.result is not None
    assert "seconds_to_make" not in plain.result
    asyncio.run(Session().stop("calm-otter"))
