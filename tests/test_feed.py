"""Watching clusters in this process, and one in processes where something must be killed."""

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster
from distributed.protocol.pickle import dumps
from distributed.worker import DEFAULT_METRICS

from tests.feeds import Feed
from tests.waiting import until
from workbench.monitor import feed as feeds, plugin
from workbench.monitor.feed import _unwatch, _watch
from workbench.monitor.wire import unpack


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


def increment(number):
    return number + 1


def collect(feed, enough, timeout=10):
    batches = []
    deadline = time.monotonic() + timeout
    while not enough(batches) and time.monotonic() < deadline:
        batches += feed.take()
        time.sleep(0.02)
    return batches


def n_tasks(batches):
    return sum(len(batch.tasks) for batch in batches)


def counts(batches, name):
    seen = [batch.progress.counts[name] for batch in batches if batch.progress and name in batch.progress.counts]
    return seen[-1] if seen else None


def all_done(name, total):
    def enough(batches):
        count = counts(batches, name)
        return count is not None and count["done"] == count["total"] == total

    return enough


def test_every_task_is_seen_with_its_worker_thread_and_times(client, cluster):
    before = time.time()
    with Feed(client) as feed:
        client.gather(client.map(increment, range(100), key="seen"))
        batches = collect(feed, lambda batches: n_tasks(batches) >= 100)
    computed = [task for batch in batches for task in batch.tasks if task.kind == "compute"]
    assert len({task.key for task in computed}) == 100
    assert {task.name for task in computed} == {"seen"}
    assert {task.worker for task in computed} <= set(cluster.scheduler.workers)
    assert all(before - 1 < task.start <= task.stop < time.time() + 1 for task in computed)
    assert {task.status for task in computed} == {"ok"}
    assert all(task.nbytes > 0 for task in computed)


def test_a_computation_shorter_than_a_batch_is_seen_whole(client):
    for repeat in range(20):
        with Feed(client) as feed:
            client.submit(increment, repeat, pure=False).result()
        assert n_tasks(feed.take()) == 1, repeat


def test_progress_ends_with_all_tasks_done(client):
    with Feed(client) as feed:
        client.gather(client.map(increment, range(50), key="progress"))
        batches = collect(feed, all_done("progress", 50))
    assert counts(batches, "progress") == {"total": 50, "done": 50, "erred": 0, "processing": 0}


def test_tasks_that_are_being_forgotten_as_watching_begins_are_done(client, cluster):
    futures = client.map(increment, range(20), key="leaving")
    client.gather(futures)
    kept = futures[:5]
    del futures
    assert until(lambda: sum(task.startswith("leaving") for task in cluster.scheduler.tasks) == 5)
    with Feed(client) as feed:
        batches = collect(feed, lambda batches: counts(batches, "leaving"), timeout=2)
    assert counts(batches, "leaving") == {"total": 20, "done": 20, "erred": 0, "processing": 0}
    del kept


def test_what_a_client_scatters_is_no_task(client):
    with Feed(client) as feed:
        data = client.scatter(list(range(5)), hash=False)
        collect(feed, lambda batches: False, timeout=0.5)
        client.gather(client.map(increment, [*data, *client.scatter([5, 6], hash=False)], key="of data"))
        batches = collect(feed, all_done("of data", 7))
    progress = [batch.progress.counts for batch in batches if batch.progress]
    assert set(progress[-1]) == {"of data"}


def test_progress_stays_when_the_scheduler_has_forgotten_the_tasks(client):
    with Feed(client) as feed:
        futures = client.map(increment, range(30), key="forgotten")
        client.gather(futures)
        del futures
        time.sleep(0.5)
        batches = feed.take()
    assert counts(batches, "forgotten") == {"total": 30, "done": 30, "erred": 0, "processing": 0}


def test_a_new_computation_is_counted_afresh(client):
    with Feed(client) as feed:
        for _ in range(2):
            client.gather(client.map(increment, range(10), key="afresh", pure=False))
            assert until(lambda: not client.cluster.scheduler.tasks)
        client.gather(client.map(increment, range(10), key="last"))
        batches = collect(feed, all_done("last", 10))
    finished = {"total": 10, "done": 10, "erred": 0, "processing": 0}
    seen = [_names(batch)["afresh"] for batch in batches if "afresh" in _names(batch)]
    assert {count["total"] for count in seen} == {10}
    assert seen[-1] == finished
    assert set(_names([batch for batch in batches if batch.progress][-1])) == {"last"}


def _names(batch):
    return batch.progress.counts if batch.progress else {}


def test_a_watcher_who_comes_late_hears_of_what_is_done(client):
    futures = client.map(increment, range(20), key="late")
    client.gather(futures)
    with Feed(client) as feed:
        batches = collect(feed, lambda batches: counts(batches, "late"))
    assert counts(batches, "late")["done"] == 20


def test_an_erred_task_is_marked_and_counted(client):
    logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)
    with Feed(client) as feed:
        futures = client.map(lambda number: 1 // number, range(3), key="broken")
        client.gather(futures, errors="skip")
        del futures
        batches = collect(feed, lambda batches: (counts(batches, "broken") or {}).get("erred") and n_tasks(batches) > 2)
    erred = [task for batch in batches for task in batch.tasks if task.status == "erred"]
    assert [task.kind for task in erred] == ["compute"]
    assert counts(batches, "broken") == {"total": 3, "done": 2, "erred": 1, "processing": 0}


def test_cancelled_tasks_are_not_counted_as_done(client):
    with Feed(client) as feed:
        futures = client.map(lambda _: time.sleep(0.2), range(20), key="cancelled", pure=False)
        time.sleep(0.5)
        client.cancel(futures)
        batches = collect(feed, lambda batches: (counts(batches, "cancelled") or {"total": 0})["total"], 5)
        time.sleep(0.5)
        batches += feed.take()
    assert counts(batches, "cancelled")["total"] == 20
    assert counts(batches, "cancelled")["done"] < 20


def test_workers_are_sampled_with_their_memory_limit(client, cluster):
    with Feed(client) as feed:
        batches = collect(feed, lambda batches: len({s.worker for b in batches for s in b.samples}) == 2)
    samples = [sample for batch in batches for sample in batch.samples]
    assert {sample.worker for sample in samples} == set(cluster.scheduler.workers)
    assert all(sample.memory > 0 and sample.n_threads == 2 for sample in samples)
    assert all(abs(sample.time - time.time()) < 30 for sample in samples)
    limits = {worker.memory_limit for worker in cluster.scheduler.workers.values()}
    assert {sample.memory_limit for sample in samples} == limits


def test_nothing_is_kept_on_the_scheduler(client, cluster):
    with Feed(client) as feed:
        client.gather(client.map(increment, range(10), key="kept"))
        collect(feed, lambda batches: n_tasks(batches) >= 10)
        assert plugin.NAME in cluster.scheduler.plugins
        assert cluster.scheduler.get_events(plugin.TOPIC) == ()
    assert plugin.NAME not in cluster.scheduler.plugins


def test_two_watchers_see_the_same_and_the_second_outlives_the_first(client, cluster):
    with Client(cluster) as other, Feed(other) as second:
        with Feed(client) as first:
            client.gather(client.map(increment, range(10), key="both"))
            seen = collect(first, lambda batches: n_tasks(batches) >= 10)
        client.gather(client.map(increment, range(10), key="second"))
        also_seen = collect(second, all_done("second", 10))
    assert n_tasks(seen) >= 10
    assert {"both", "second"} <= {task.name for batch in also_seen for task in batch.tasks}
    assert plugin.NAME not in cluster.scheduler.plugins


def test_two_feeds_can_share_a_client(client, cluster):
    with Feed(client) as second:
        with Feed(client) as first:
            client.gather(client.map(increment, range(10), key="shared"))
            assert n_tasks(collect(first, lambda batches: n_tasks(batches) >= 10)) >= 10
        client.gather(client.map(increment, range(10), key="alone"))
        assert n_tasks(collect(second, lambda batches: n_tasks(batches) >= 20)) >= 20
    assert plugin.NAME not in cluster.scheduler.plugins


def test_a_feed_can_be_started_again_at_once(client):
    for _ in range(20):
        Feed(client).start().close()
    with Feed(client) as feed:
        client.gather(client.map(increment, range(10), key="again"))
        assert n_tasks(collect(feed, lambda batches: n_tasks(batches) >= 10)) >= 10


def test_closing_after_the_client_was_closed_is_quiet(cluster):
    client = Client(cluster)
    feed = Feed(client).start()
    client.close()
    feed.close()
    assert until(lambda: plugin.NAME not in cluster.scheduler.plugins)


def test_batches_can_be_handed_over_as_they_come(client):
    batches = []
    with feeds.Feed(client, batches.append):
        client.gather(client.map(increment, range(10), key="handed"))
        assert until(lambda: n_tasks(batches) >= 10)


def test_an_asynchronous_client_can_watch():
    async def watch():
        async with (
            LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0", asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            feed = await Feed(client).astart()
            await client.gather(client.map(increment, range(10), key="asynchronous"))
            await feed.aclose()
            return feed.take()

    assert n_tasks(asyncio.run(watch())) >= 10


def _watch_until_killed(address, ready):
    with Client(address) as client, Feed(client):
        ready.set()
        time.sleep(60)


def test_a_watcher_that_is_killed_leaves_nothing_on_the_scheduler():
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        watcher = context.Process(target=_watch_until_killed, args=(cluster.scheduler_address, ready))
        watcher.start()
        assert ready.wait(30)
        assert plugin.NAME in cluster.scheduler.plugins
        os.kill(watcher.pid, signal.SIGKILL)
        watcher.join()
        assert until(lambda: plugin.NAME not in cluster.scheduler.plugins)


@contextmanager
def fake_scheduler(**workers):
    """As much of a scheduler as the monitor needs to encode what workers reported."""
    broker = SimpleNamespace(truncate=lambda topic: None)
    yield SimpleNamespace(
        workers={name: SimpleNamespace(time_delay=delay, metrics={}, extra={}) for name, delay in workers.items()},
        cumulative_worker_metrics={},
        tasks={"x-1": SimpleNamespace(key="x-1", group=None, prefix=SimpleNamespace(name="x"))},
        task_groups={},
        task_prefixes={},
        plugins={},
        client_comms={},
        _broker=broker,
    )


def told(monitor, latest=None):
    """Kind, start and end of what the next message has, as they arrive."""
    monitor._settle()
    rows, monitor._finished = monitor._finished + monitor._disk.confirmed(latest), []
    tasks = unpack({"time": 0.0, "tasks": list(zip(*rows, strict=True))}).tasks if rows else ()
    return [(task.kind, task.start, task.stop) for task in tasks]


def test_times_are_by_the_schedulers_clock():
    """Workers correct the times of computing and transfers themselves, those of their disk they don't."""
    with fake_scheduler(early=-100.0) as scheduler:

        async def encode():
            monitor = plugin.Monitor(scheduler, 0.1, 0.5)
            spans = [
                {"action": "disk-read", "start": 1100.0, "stop": 1101.0},
                {"action": "compute", "start": 1001.0, "stop": 1002.0},
            ]
            monitor.transition("x-1", "processing", "memory", worker="early", thread=1, nbytes=8, startstops=spans)
            return told(monitor, {"early": {"moved": [("x", "disk-read")]}})

        assert asyncio.run(encode()) == [("compute", 1001.0, 1002.0), ("disk-read", 1000.0, 1001.0)]


def test_what_a_worker_calls_its_disk_is_told_only_where_something_was_moved():
    """A worker calls so whatever took it 5 ms, and tells of what it moved with its next heartbeat, or when asked."""

    def finish(monitor, start):
        spans = [
            {"action": "disk-read", "start": start, "stop": start + 1},
            {"action": "compute", "start": start + 1, "stop": start + 2},
            {"action": "disk-write", "start": start + 2, "stop": start + 3},
        ]
        monitor.transition("x-1", "processing", "memory", worker="w", thread=1, nbytes=8, startstops=spans)

    def beat(scheduler, **moved):
        scheduler.workers["w"].metrics = {"time": time.time() + 1}
        for action, n in moved.items():
            scheduler.cumulative_worker_metrics["execute", "x", action.replace("_", "-"), "count"] = n

    async def check(scheduler):
        monitor = plugin.Monitor(scheduler, 0.1, 0.5)
        finish(monitor, 10)
        assert told(monitor) == [("compute", 11, 12)]
        assert told(monitor) == []
        beat(scheduler)
        assert told(monitor) == []
        finish(monitor, 20)
        scheduler.workers["w"].metrics = {}
        assert told(monitor) == [("compute", 21, 22)]
        beat(scheduler, disk_write=3)
        assert told(monitor) == [("disk-write", 22, 23)]
        finish(monitor, 30)
        scheduler.workers["w"].metrics = {}
        scheduler.cumulative_worker_metrics["execute", "x", "disk-read", "count"] = 1
        assert told(monitor, {}) == [("compute", 31, 32), ("disk-read", 30, 31)]
        finish(monitor, 40)
        assert told(monitor, {"w": {"moved": [("x", "disk-write")]}}) == [("compute", 41, 42), ("disk-write", 42, 43)]

    with fake_scheduler(w=0.0) as scheduler:
        asyncio.run(check(scheduler))


def test_the_end_of_a_watch_leaves_a_worker_be_that_is_telling_how_it_is(monkeypatch):
    """Workers with GPUs wait for NVML while they do: one more heartbeat at that time is the end of them."""

    async def slow(worker):
        await asyncio.sleep(0.3)
        return 1

    monkeypatch.setitem(DEFAULT_METRICS, "slow", slow)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        (worker,) = cluster.scheduler.workers
        samples = []
        for _ in range(5):
            with Feed(client, separate=True) as feed:
                client.submit(increment, 1, pure=False).result()
                time.sleep(0.13)
                asked = time.time()
            samples.append(max(sample.time for batch in feed.take() for sample in batch.samples) - asked)
        assert list(cluster.scheduler.workers) == [worker]
        assert min(samples) > -0.2


def test_a_watcher_that_does_not_read_is_sent_nothing_until_it_does():
    sent = []
    subscribed = set()
    with fake_scheduler() as scheduler:
        scheduler.subscribe_topic = lambda topic, client: subscribed.add(client)
        scheduler.unsubscribe_topic = lambda topic, client: subscribed.discard(client)
        scheduler.log_event = lambda topic, message: sent.append(set(subscribed))
        scheduler.client_comms["stuck"] = SimpleNamespace(buffer=[None] * (plugin.FAR_BEHIND + 1))
        scheduler.client_comms["awake"] = SimpleNamespace(buffer=[])

        async def publish():
            monitor = plugin.Monitor(scheduler, 0.1, 0.5)
            monitor.add_watcher("stuck", "1")
            monitor.add_watcher("awake", "2")
            monitor._publish({})
            scheduler.client_comms["stuck"].buffer.clear()
            monitor._publish({})

        asyncio.run(publish())
    assert sent[-2:] == [{"awake"}, {"stuck", "awake"}]


@pytest.mark.parametrize("function", [_watch, _unwatch])
def test_a_scheduler_that_lacks_this_package_can_be_watched(function):
    code = "import sys, pickle; sys.modules['workbench'] = None; print(pickle.loads(sys.stdin.buffer.read()).__name__)"
    done = subprocess.run([sys.executable, "-c", code], input=dumps(function), capture_output=True, check=True)
    assert done.stdout.decode().strip() == function.__name__
