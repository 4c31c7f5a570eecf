"""The join of two dataframes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.errors import BadInputError
from workbench.runs import store, submit
from workbench.runs.explaining.diagnosis import awaited
from workbench.session import Session
from workbench.workloads.generators import table
from workbench.workloads.lookup import template

SMALL = {"n_rows": 10_007, "partition": 1_500}


@pytest.mark.parametrize("given", [{}, {"persist": False}, {"matching": 1.0}, {"partition": 100_000}, {"n_rows": 3}])
def test_rows_and_sum_are_those_of_pandas(given):
    chosen = template("dataframe_join")
    checked = chosen.validate({**SMALL, **given})
    resolved = checked.resolved
    n_parts = -(-resolved["n_rows"] // resolved["partition"])
    left, right = (
        pd.concat(
            table(part, n_parts, resolved["n_rows"], resolved["matching"], 0, side, "pandas") for part in range(n_parts)
        )
        for side in ("left", "right")
    )
    assert sorted(right.key) == list(range(resolved["n_rows"]))
    joined = left.merge(right, on="key")
    result, check = chosen.compute(checked)
    assert (result["rows"], result["value"]) == (len(joined), (joined.x * joined.y).sum())
    assert check.passed
    assert ("seconds_to_make" in result) == resolved["persist"]


def test_about_as_many_rows_match_as_were_asked_for():
    result, _ = template("dataframe_join").compute(template("dataframe_join").validate({**SMALL, "matching": 0.5}))
    assert abs(result["rows"] / SMALL["n_rows"] - 0.5) < 0.03


def test_a_join_that_loses_or_doubles_a_row_fails_its_check():
    chosen = template("dataframe_join")
    checked = chosen.validate(SMALL)
    result, check = chosen.compute(checked)
    assert check.passed
    right = {"rows": np.int64(result["rows"]), "total": np.int64(result["value"])}
    for wrong in ({"rows": right["rows"] - 1}, {"total": right["total"] + 1}):
        found = chosen.check(checked, right | wrong)
        assert not found.passed
        assert "and not" in found.what


def test_its_preset_shrinks_in_as_many_partitions():
    checked = template("dataframe_join").validate({"preset": "dask_cuda", "scale": 0.001})
    assert (checked.resolved["n_rows"], checked.resolved["partition"]) == (16_000, 1_000)


def test_on_gpus_it_is_a_join_of_cudf():
    checked = template("dataframe_join").validate(SMALL, on_gpu=True)
    assert any("cuDF" in note for note in checked.notes)


@pytest.mark.parametrize(("name", "value"), [("n_rows", 0), ("partition", "many"), ("matching", 0), ("matching", 2)])
def test_what_can_not_be_joined_is_refused_in_a_sentence(name, value):
    with pytest.raises(BadInputError, match=f"{name} of dataframe_join is"):
        template("dataframe_join").validate({name: value})


def test_a_run_tells_how_fast_rows_travelled_and_holds_no_more_than_was_said(data_folder, spec):
    session = Session()
    session.start(spec, name="calm-otter")
    record = session.wait("calm-otter", timeout=60)
    run = submit.finish(submit.submit("dataframe_join", {"n_rows": 2_000_000}, record).id, timeout=200)
    assert (run.status, run.error, run.check.passed) == ("done", None, True)
    assert run.result["bandwidth"]["n_messages"] > 0
    peak = awaited(store.get(run.id)).diagnosis.peak
    assert 0.5 * run.forecast["memory_per_worker"] < peak.bytes < run.forecast["memory_per_worker"]
    shown = session.forecast("dataframe_join", {"n_rows": 2_000_000}, record)
    assert shown.verdict == "fits"
