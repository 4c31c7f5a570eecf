"""Dask's settings of one run are held against Dask's schema, and can be swept over."""

import asyncio
import json
import logging
from urllib.parse import quote

import dask
import pytest

from workbench.errors import BadInputError
from workbench.hardware import inventory
from workbench.runs.comparing.compare import plan_comparison, read_request
from workbench.runs.settings import read_settings
from workbench.session import Session
from workbench.views.desk import Desk
from workbench.views.requests import answer


def test_a_setting_is_read_as_its_schema_says():
    given = {"optimization.fuse.ave-width": "5", "optimization.fuse.active": "null", "my.own": "text"}
    given |= {"distributed.client.heartbeat": "3s"}
    with dask.config.set({"my.other": 1}):
        found = read_settings(given)
    assert found == {
        "optimization.fuse.ave-width": 5,
        "optimization.fuse.active": None,
        "my.own": "text",
        "distributed.client.heartbeat": "3s",
    }


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "optimization.fuse.ave-width",
            "wide",
            "The setting optimization.fuse.ave-width can't be so: 'wide' is not of",
        ),
        (
            "optimization.fuse.width",
            "5",
            "Dask has no setting 'optimization.fuse.width'. Beside it are: active, ave-wi",
        ),
        ("optimization.fuse", "5", "optimization.fuse holds several settings. Give one: "),
        ("arrey.chunk-size", "1", "Dask has no setting 'arrey.chunk-size'. Did you mean array? They begin with: "),
        ("array.chunk-size", "lots", "The setting array.chunk-size is 'lots'. Give a size such as '128MiB'."),
        ("distributed.comm.timeouts.tcp", "soon", "The setting distributed.comm.timeouts.tcp is 'soon'. Give a durat"),
        (
            "distributed.worker.memory.target",
            "0.5",
            "distributed.worker.memory.target is read when schedulers and workers start, and no run changes it. Start "
            "the cluster with it: DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=0.5 workbench up cpu.",
        ),
        ("scheduler", "threads", "scheduler is for Dask without a cluster, and a run has one"),
    ],
)
def test_a_setting_that_dask_does_not_know_so_is_refused(name, value, sentence):
    with pytest.raises(BadInputError) as caught:
        read_settings({name: value})
    assert str(caught.value).startswith(sentence)


def test_a_setting_is_swept_over_in_rows_of_its_own(data_folder):
    given = {
        "workload": "array_sum",
        "parameters": "size=1MiB",
        "on": "cpu --workers 1 --memory 512MiB",
        "sweep": "config.optimization.fuse.ave-width=1,5",
        "settings": "optimization.fuse.active=true",
    }
    rows = plan_comparison(read_request(given), inventory(), ()).rows
    widths = [row.settings["optimization.fuse.ave-width"] for row in rows]
    assert widths == [1, 5]
    assert all(row.settings["optimization.fuse.active"] is True for row in rows)
    assert "ave-width=5" in rows[1].label
    assert all("config" not in name for row in rows for name in row.parameters)


def test_settings_are_a_field_below_more_and_a_bad_one_is_told_before_anything_runs(data_folder):
    desk = Desk("/", logging.getLogger(__name__), make_session=Session)

    async def story():
        field = {"workload": "array_sum", "settings.array_sum": "optimization.fuse.width=5"}
        asked = f"views/work?choices={quote(json.dumps(field))}"
        html = (await answer(desk, "GET", asked)).value["html"]
        assert 'data-workbench="field-settings"' in html
        assert "Dask has no setting" in html.partition("More")[0]
        await desk.close()

    asyncio.run(story())


@pytest.mark.parametrize("given", [5, ["a"], "ave-width"])
def test_settings_that_name_nothing_are_refused(given):
    with pytest.raises(BadInputError, match=r"settings is|isn't KEY=VALUE"):
        read_settings(given)
