"""Tabs that show the inside of a cluster and of this machine."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from tests.server.conftest import html_of
from tests.server.test_views import text_of
from workbench.hardware.gauges import Meter


@pytest.fixture
def cluster(session: Any) -> str:
    session.add("calm-otter", status="ready")
    return "calm-otter"


def order(html: str) -> list[str]:
    return re.findall(r'data-workbench="worker-(\d)"', html)


async def test_workers_are_sorted_by_the_column_that_was_clicked(service: Any, cluster: str) -> None:
    html = unescape(await html_of(service, f"workers:{cluster}"))
    assert order(html) == ["0", "1", "2"]
    assert 'data-choose="{"workers.by": "-memory"}"' in html, "the largest first"
    falling = unescape(await html_of(service, f"workers:{cluster}", {"workers.by": "-memory"}))
    assert order(falling) == ["2", "1", "0"]
    assert 'aria-sort="descending"' in falling
    assert 'data-choose="{"workers.by": "memory"}"' in falling
    assert "GPU" not in text_of(html), "no worker has one"
    assert order(await html_of(service, f"workers:{cluster}", {"workers.by": "nonsense"})) == ["0", "1", "2"]


async def test_one_worker_can_be_restarted_where_the_cluster_can(service: Any, session: Any, cluster: str) -> None:
    session.add("attached", can=())
    assert (
        unescape(await html_of(service, f"workers:{cluster}")).count(
            'data-arguments="{"cluster": "calm-otter", "worker": "tcp://'
        )
        == 3
    )
    assert "restart-worker" not in await html_of(service, "workers:attached")


async def test_this_machine_tells_what_it_does_without_a_cluster(service: Any) -> None:
    said = text_of(await html_of(service, "machine"))
    assert re.search(r"Cores \d+ % of \d+", said)
    assert re.search(r"Memory [\d.]+ [MG]iB of", said)


def test_a_core_that_works_is_seen() -> None:
    meter = Meter()
    sum(range(3_000_000))
    usage = meter.read()
    assert all(0 <= each <= 1 for each in usage.cores)
    assert max(usage.cores) > 0
