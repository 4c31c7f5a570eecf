"""Whose tasks are counted where several clients compute on one cluster."""

from __future__ import annotations

from typing import Any

import dask.array as da
from distributed import Client, LocalCluster

from workbench import remote
from workbench.runs.counting import progress_of
from workbench.travelling import Travelling

group_counts = Travelling(remote.group_counts)


def _counted(client: Client) -> tuple[int, int]:
    progress = progress_of(client.run_on_scheduler(group_counts, client.id))
    return progress.done, progress.total


def _sum(client: Client, blocks: int) -> Any:
    future = client.compute(da.ones(blocks, chunks=1).sum())
    assert future.result() == blocks
    return future


def test_tasks_of_one_name_are_counted_for_the_client_that_wants_them() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as one,
        Client(cluster, set_as_default=False) as other,
    ):
        few = _sum(one, 3)
        alone = _counted(one)
        assert alone[0] == alone[1] > 3
        many = _sum(other, 20)
        assert _counted(one) == alone
        assert _counted(other)[1] > 20
        assert few.status == many.status == "finished"


def test_who_has_computed_nothing_has_no_tasks() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert _counted(client) == (0, 0)
        assert client.run_on_scheduler(group_counts, "nobody") == []
