"""Progress of a run: the tasks that are counted, and the current pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import pytest
from distributed import Client, LocalCluster

from workbench.linalg import svd_compressed
from workbench.linalg.keys import pass_in
from workbench.runs.recording import Recording


@pytest.fixture
def address() -> Iterator[str]:
    where = "127.0.0.1:0"
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=where) as cluster:
        yield cluster.scheduler_address


def _sum(client: Client, blocks: int) -> Any:
    future = client.compute(da.ones(blocks, chunks=1).sum())
    assert future.result() == blocks
    return future


def test_tasks_of_one_name_are_counted_for_the_client_that_wants_them(address: str, tmp_path: Path) -> None:
    with (
        Client(address, set_as_default=False) as one,
        Client(address, set_as_default=False) as other,
        Recording(tmp_path / "one.parquet") as of_one,
        Recording(tmp_path / "other.parquet") as of_other,
    ):
        of_one.start(one)
        of_other.start(other)
        futures = [_sum(one, 3), _sum(other, 20)]
        for recording in (of_one, of_other):
            recording.stop()
        few, many = of_one.progress(), of_other.progress()
        assert 3 < few.done == few.total < 20 < many.done == many.total
        assert {future.status for future in futures} == {"finished"}


def test_the_number_of_a_pass_is_in_the_names_of_its_tasks(address: str, tmp_path: Path) -> None:
    with Client(address) as client, Recording(tmp_path / "events.parquet") as recording:
        recording.start(client)
        found = svd_compressed(da.random.default_rng(0).random((800, 300), chunks=(200, 300)), 3, tol=1e-6)
        recording.stop()
        assert recording.progress().passes == found.certificate.passes > 2
    assert not any(map(pass_in, ("product-pass-4", "add-" + 32 * "a", "x-pass-4-5")))


def test_who_has_computed_nothing_has_no_tasks(address: str, tmp_path: Path) -> None:
    with Client(address, set_as_default=False) as client, Recording(tmp_path / "events.parquet") as recording:
        recording.start(client)
        recording.stop()
        assert (recording.progress().done, recording.progress().total) == (0, 0)
