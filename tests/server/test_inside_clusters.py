"""What is inside a cluster, and inside this machine, as tabs show it."""

from __future__ import annotations

import re
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.test_run_pages import html_of
from tests.server.test_views import text_of
from workbench.hardware.gauges import Meter
from workbench.monitor.events import Batch, Links, Progress, WorkerSample
from workbench.views import workers
from workbench.views.graph import graph
from workbench.views.heard import Heard


@pytest.fixture
def cluster(session: Any) -> str:
    session.add("calm-otter", status="ready")
    return "calm-otter"


def order(html: str) -> list[str]:
    return re.findall(r'data-workbench="worker-(\d)"', html)


async def test_workers_are_sorted_by_the_column_that_was_clicked(api: Any, cluster: str) -> None:
    html = unescape(await html_of(api, f"workers:{cluster}"))
    assert order(html) == ["0", "1", "2"]
    assert 'data-choose="{"workers.by": "-memory"}"' in html, "the largest first"
    falling = unescape(await html_of(api, f"workers:{cluster}", {"workers.by": "-memory"}))
    assert order(falling) == ["2", "1", "0"]
    assert 'aria-sort="descending"' in falling
    assert 'data-choose="{"workers.by": "memory"}"' in falling
    assert "GPU" not in text_of(html), "no worker has one"
    assert order(await html_of(api, f"workers:{cluster}", {"workers.by": "nonsense"})) == ["0", "1", "2"]


async def test_one_worker_can_be_restarted_where_the_cluster_can(api: Any, session: Any, cluster: str) -> None:
    session.add("attached", can=())
    assert unescape(await html_of(api, f"workers:{cluster}")).count('data-body="{"worker": "tcp://') == 3
    assert "restart-worker" not in await html_of(api, "workers:attached")


async def test_frames_of_code_are_told_with_their_shares(api: Any, cluster: str) -> None:
    html = unescape(await html_of(api, f"profile:{cluster}"))
    assert 'title="<dot>, 75 %, a.py:7"' in html
    assert "width: 75.00%" in html


def heard(**names: str) -> Heard:
    found = Heard()
    samples = [WorkerSample(address, name, 1.0, 0.0, 0, 0, 0, 0) for address, name in names.items()]
    links = Links({"svd": ("<load>",), "<load>": ()}, {("b", "a"): 2.0**20, ("a", "b"): 2.0**21})
    counts = {name: {"total": 4, "done": 3, "erred": 0, "processing": 1} for name in ("<load>", "svd")}
    found.add([Batch(1.0, samples=tuple(samples), links=links, progress=Progress(1.0, counts))])
    return found


def seen(**names: str) -> Any:
    async def latest(_: str) -> Heard:
        return heard(**names)

    async def held(_: str) -> dict[str, int]:
        return {"svd": 2**20}

    return SimpleNamespace(heard=latest, choices={}, session=SimpleNamespace(control=SimpleNamespace(held=held)))


async def test_bandwidth_is_told_between_workers_by_their_names() -> None:
    html = await workers.bandwidth(seen(a="<", b="10"), "calm-otter")
    assert text_of(html).endswith("MiB/s, up to 2: rows receive, columns send &lt; 10 &lt; 2 10 1")
    assert 'title="10 to &lt;: 2 MiB/s">' in html


async def test_tasks_are_drawn_below_those_whose_results_they_need() -> None:
    html = await workers.tasks(seen(), "calm-otter")
    top = {unescape(name): int(y) for name, y in re.findall(r'id="wb-node-([^"]+)".*?top: (\d+)px', html)}
    assert top["<load>"] < top["svd"]
    assert html.count("<path ") == 1
    assert text_of(html).endswith("&lt;load&gt; 3 of 4 svd 3 of 4")


async def test_as_many_tasks_are_told_in_the_table_as_in_the_graph() -> None:
    assert text_of(await workers.groups(seen(), "calm-otter")).endswith("svd 3 of 4 1 MiB &lt;load&gt; 3 of 4")


def test_names_that_need_each_other_are_drawn_all_the_same() -> None:
    names = [f"name-{n}" for n in range(60)]
    counts = {name: {"total": 60 - n, "done": 0, "erred": n == 0} for n, name in enumerate(names)}
    html = graph(counts, {name: [names[n - 1]] for n, name in enumerate(names)})
    assert html.count('role="listitem"') == 48
    assert "0 of 60, 1 failed" in html
    both = {names[0]: names[1:2], names[1]: names[:1]}
    assert graph({name: counts[name] for name in both}, both).count("<path") == 2


async def test_what_is_marked_is_marked_in_all_panes_and_a_click_takes_it_back(api: Any, cluster: str) -> None:
    sight = seen(a="<", b="10")
    task, worker = (f"marked.{cluster}.{what}" for what in ("task", "worker"))
    sight.choices = {task: "<load>", worker: "10"}
    pressed = r'data-choose="{"marked.[\w-]+.(\w+)": null}" aria-pressed="true"'
    for view, what in ((workers.tasks, "task"), (workers.groups, "task"), (workers.bandwidth, "worker")):
        assert set(re.findall(pressed, unescape(await view(sight, cluster)))) == {what}
    table = unescape(await html_of(api, f"workers:{cluster}", {worker: "1"}))
    assert re.findall(pressed, table) == ["worker"]
    sight.choices = {task.replace(cluster, "other"): "<load>"}
    assert re.findall(pressed, unescape(await workers.groups(sight, cluster))) == []


async def test_a_cluster_that_cannot_be_watched_says_why_in_its_panes(api: Any, session: Any) -> None:
    session.add("failed", status="failed", message="No port.")
    assert "No port." in await html_of(api, "bandwidth:failed")
    assert "No port." in await html_of(api, "graph:failed")


async def test_logs_are_searched_and_shown_of_one_writer(api: Any, cluster: str) -> None:
    found = text_of(await html_of(api, f"logs:{cluster}", {f"logs.{cluster}.text": "STARTED"}))
    assert f"{cluster} started" in found
    assert "a worker" not in found
    of_one = {f"logs.{cluster}.who": "tls://127.0.0.1:40001"}
    assert "a worker" in text_of(await html_of(api, f"logs:{cluster}", of_one))
    assert f"{cluster} started" not in text_of(await html_of(api, f"logs:{cluster}", of_one))


async def test_this_machine_tells_what_it_does_without_a_cluster(api: Any) -> None:
    said = text_of(await html_of(api, "machine"))
    assert re.search(r"Cores \d+ % of \d+", said)
    assert re.search(r"Memory [\d.]+ [MG]iB of", said)


def test_a_core_that_works_is_seen() -> None:
    meter = Meter()
    sum(range(3_000_000))
    usage = meter.read()
    assert all(0 <= each <= 1 for each in usage.cores)
    assert max(usage.cores) > 0
