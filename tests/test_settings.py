"""Dask's settings of one run are read, and can be swept over."""

import asyncio
import logging

import dask
import pytest

from tests.views import html_at
from workbench.errors import BadInputError
from workbench.hardware import inventory
from workbench.runs.comparing.compare import plan_comparison, read_request
from workbench.runs.settings import read_settings
from workbench.session import Session
from workbench.views.service import Service


def test_a_setting_is_read_as_yaml():
    given = {"array.rechunk.threshold": "5", "array.slicing.split-large-chunks": "null", "my.own": "text"}
    given |= {"distributed.client.heartbeat": "3s"}
    with dask.config.set({"my.other": 1}):
        found = read_settings(given)
    assert found == {
        "array.rechunk.threshold": 5,
        "array.slicing.split-large-chunks": None,
        "my.own": "text",
        "distributed.client.heartbeat": "3s",
    }


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("array.rechunk.threshold", "[1", "The setting array.rechunk.threshold is '[1', which can't be read."),
        ("array.rechunk.treshold", "5", "Dask has no setting 'array.rechunk.treshold'. Did you mean threshold?"),
        (
            "distributed.worker.memory.target",
            "0.5",
            "distributed.worker.memory.target is fixed when schedulers and workers start, and no run changes it. Start"
            " the cluster with it: DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=0.5 workbench up cpu.",
        ),
        (
            "distributed.diagnostics.erred-tasks.max-history",
            "5",
            "distributed.diagnostics.erred-tasks.max-history is fix",
        ),
        (
            "temporary_directory",
            "/my own",
            "temporary_directory is fixed when schedulers and workers start, and no run c",
        ),
        ("array.query-planning", "true", "array.query-planning is read before a run begins"),
        ("workbench.data-folder", "/tmp", "workbench.data-folder is read before a run begins, and no run changes it."),
        ("scheduler", "threads", "scheduler is for Dask without a cluster, and a run has one"),
    ],
)
def test_a_setting_that_no_run_changes_is_refused(name, value, sentence):
    with pytest.raises(BadInputError) as caught:
        read_settings({name: value})
    assert str(caught.value).startswith(sentence)


def test_a_setting_is_swept_over_in_rows_of_its_own(data_folder):
    given = {
        "workload": "array_sum",
        "parameters": {"size": "1MiB"},
        "on": ["cpu --workers 1 --memory 512MiB"],
        "sweep": {"config.array.rechunk.threshold": ["1", "5"]},
        "settings": "array.slicing.split-large-chunks=true",
    }
    rows = plan_comparison(read_request(given), inventory(), ()).rows
    widths = [row.settings["array.rechunk.threshold"] for row in rows]
    assert widths == [1, 5]
    assert all(row.settings["array.slicing.split-large-chunks"] is True for row in rows)
    assert "threshold=5" in rows[1].label
    assert all("config" not in name for row in rows for name in row.parameters)


def test_settings_are_a_field_below_more_and_a_bad_one_is_told_before_anything_runs(data_folder):
    service = Service("/", logging.getLogger(__name__), make_session=Session)

    async def story():
        field = {"workload": "array_sum", "settings.array_sum": "array.rechunk.treshold=5"}
        html = await html_at(service, "work", field)
        assert 'data-workbench="field-settings"' in html
        assert "Dask has no setting" in html.partition("More")[0]
        await service.close()

    asyncio.run(story())


@pytest.mark.parametrize("given", [5, ["a"], "ave-width"])
def test_settings_that_name_nothing_are_refused(given):
    with pytest.raises(BadInputError, match=r"settings is|isn't KEY=VALUE"):
        read_settings(given)
