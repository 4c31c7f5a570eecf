"""Speed of transfers between workers: their logs as a matrix in text and as a figure."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from workbench.figures.bandwidth import bandwidth_html, heat_map
from workbench.runs import transfers
from workbench.runs.transfers import Transfers

ONE, OTHER = "tcp://127.0.0.1:4001", "tcp://127.0.0.1:4002"


def told(found: dict[str, Transfers]) -> dict[str, Any]:
    return {**transfers.summary(found), "transport": "tcp"}


def both_ways(count: int = 8) -> dict[str, Any]:
    speeds = [1e6 * each for each in range(100, 100 + count)]
    return told(
        {
            ONE: Transfers([(OTHER, 2_000_000, speed) for speed in speeds], count + 3, False),
            OTHER: Transfers([(ONE, 8_000_000, 2 * speed) for speed in speeds], count, False),
        }
    )


def test_workers_tell_what_they_fetched_from_one_another() -> None:
    from distributed import Client, LocalCluster, wait

    def measured(seed: int) -> tuple[dict[str, Any], int]:
        since = transfers.clock(client)
        x = client.persist(da.random.RandomState(seed).random(size=(1600, 1600), chunks=(400, 400)))
        wait(x)
        client.compute((x + x.T).sum()).result()
        return transfers.bandwidth(client, since, gpus=seed == 1), x.nbytes

    # Processes: workers that share one hand over no bytes.
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        first, size = measured(0)
        again, _ = measured(1)
    assert first["transport"] == "tcp"
    assert len(first["workers"]) == 2
    assert [first["matrix"][place][place] for place in (0, 1)] == [None, None]
    cells = [cell for row in first["matrix"] for cell in row if cell is not None]
    assert sum(cell["count"] for cell in cells) == first["n_messages"] > 0
    assert all(0 < low <= middle <= high for low, middle, high in (cell["bandwidth"] for cell in cells))
    assert 0 < first["bytes"] <= size
    # Only transfers after the given time are reported.
    assert again["n_messages"] <= 16
    waits = "Blocks on GPUs are sent when the kernels that make them have ended: with persist that isn't timed."
    assert (waits in first["sentence"], waits in again["sentence"]) == (False, True)


def test_the_quartiles_are_numpys() -> None:
    cell = both_ways()["matrix"][0][1]
    assert cell["count"] == 8
    np.testing.assert_allclose(cell["bandwidth"], np.quantile(1e6 * np.arange(100, 108), (0.25, 0.5, 0.75)))


def test_the_table_names_the_transport_and_who_sent_to_whom() -> None:
    lines = transfers.text(both_ways()).splitlines()
    assert lines[0] == "Over tcp. 16 messages above 1 MB between 2 workers."
    assert lines[2].split() == ["MiB/s", "from", ":4001", "from", ":4002"]
    assert lines[3].split("  ")[0] == "to :4001"
    assert "97 | 99 | 100 (8)" in lines[3]


def test_one_worker_had_nobody_to_talk_to() -> None:
    alone = told({ONE: Transfers([], 0, False)})
    assert "no partner" in transfers.text(alone)
    assert bandwidth_html(alone) == ""


def test_small_messages_are_said_to_be_too_small() -> None:
    quiet = told({ONE: Transfers([], 3, False), OTHER: Transfers([], 1, False)})
    assert quiet["sentence"].startswith("Between the workers went no message above 1 MB, and 4 smaller ones: take")


def test_few_messages_and_a_short_log_are_named() -> None:
    few = told({ONE: Transfers([(OTHER, 2_000_000, 1e8)], 1000, True), OTHER: Transfers([], 0, False)})
    assert "1 message above 1 MB" in few["sentence"]
    assert "fewer than 5" in few["sentence"]
    assert "last 1000 messages" in few["sentence"]


def test_many_workers_are_left_to_the_report() -> None:
    workers = [f"tcp://10.0.0.{host}:4000" for host in range(12)]
    found = {
        worker: Transfers([(workers[place - 1], 2_000_000, 1e9)], 1, False) for place, worker in enumerate(workers)
    }
    assert "the matrix is in the report" in transfers.text(told(found))
    assert transfers.labels(workers)[0] == "10.0.0.0:4000"


def test_the_heat_map_has_a_cell_for_each_pair_that_talked() -> None:
    html = bandwidth_html(both_ways(), " · SIMULATED GPUs")
    assert 'title=":4002 to :4001: 97 | 99 | 100 MiB/s, 8 messages">97 | 99 | 100</td>' in html
    assert 'title=":4001 to :4002: 194 | 197 | 201 MiB/s, 8 messages">' in html
    assert "MiB/s, up to 197 · SIMULATED" in html


def test_cells_of_many_workers_are_told_to_whoever_points_at_them() -> None:
    html = heat_map([f"<{n}>" for n in range(20)], {(3, 4): (2**20, "1", "")})
    assert 'title="&lt;4&gt; to &lt;3&gt;: 1 MiB/s"></td>' in html
    assert "vertical-rl" in html
    assert "<3>" not in html


def test_the_transport_is_that_of_the_workers_that_answered() -> None:
    # Client.scheduler_info returns no workers where its own periodic update comes in between.
    assert transfers.transport(None, ["tls://127.0.0.1:1", "tls://127.0.0.1:2"]) == "tls"  # type: ignore[arg-type]
    assert transfers.transport(None, []) == "none"  # type: ignore[arg-type]
