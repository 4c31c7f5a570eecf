"""Whose tasks are counted where several clients compute on one cluster."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
from dask.callbacks import Callback
from distributed import Client, LocalCluster

from workbench import remote
from workbench.linalg import svd_compressed
from workbench.linalg.keys import pass_in
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
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
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


def test_the_number_of_a_pass_is_in_the_names_of_its_tasks() -> None:
    names = set()

    def note(key: Any, *_: Any) -> None:
        names.add(key[0] if isinstance(key, tuple) else key)

    x = da.random.default_rng(0).random((800, 300), chunks=(200, 300))
    with dask.config.set(scheduler="synchronous"), Callback(pretask=note):
        found = svd_compressed(x, 3, tol=1e-6)
    for begun in (1, found.certificate.passes):
        counts = [(name, "a-pass", 1, 1) for name in names if pass_in(name) <= begun]
        assert progress_of(counts).passes == begun
    assert found.certificate.passes > 2
    assert not any(map(pass_in, ("product-pass-4", "add-" + 32 * "a", "x-pass-4-5")))


def test_who_has_computed_nothing_has_no_tasks() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert _counted(client) == (0, 0)
        assert client.run_on_scheduler(group_counts, "nobody") == []
