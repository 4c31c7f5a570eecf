"""Diagnosis of a run's time, on runs of real clusters, each made slow in one way."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker, wait

import workbench
from tests.feeds import tasks_of
from tests.test_block_locations import fall_back, is_device, make
from tests.waiting import until
from workbench import terminal
from workbench.clusters.spec import ClusterSpec
from workbench.figures.report import report_html
from workbench.monitor.events import KINDS, Batch, Task, WorkerSample
from workbench.monitor.feed import Feed
from workbench.monitor.record import Recorder, read_events
from workbench.runs import block_locations
from workbench.runs.explaining.diagnosis import diagnose
from workbench.runs.explaining.shares import shares_of
from workbench.runs.facts import Fact, facts, facts_html
from workbench.runs.run import SHARES, Diagnosis, Run

# Workers needn't import this module, and pytest with it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two processes with a thread each."""
    quiet = {"dashboard_address": "127.0.0.1:0", "memory_limit": "1GB"}
    with LocalCluster(n_workers=2, threads_per_worker=1, **quiet) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        # The first task on a worker waits for imports.
        warm = da.random.default_rng(0).random((40, 4), chunks=(2, 4)).map_blocks(steady, dtype=float)
        client.gather(client.compute(warm.sum()))
        yield client


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., tuple[Run, Batch]]:
    """Compute something as a runner does: watched, its events on disk."""

    def recorded(client: Client, build: Callable[[], Any], **resolved: Any) -> tuple[Run, Batch]:
        path = tmp_path / "events.parquet"
        with Recorder(path) as recorder, Feed(client, recorder.write):
            started, began = time.time(), time.perf_counter()
            computed = client.persist(build())
            wait(computed)
            seconds = time.perf_counter() - began
        run = Run(id="slow", workload="test", cluster="c", resolved=resolved, started=started, seconds=seconds)
        return run, read_events(path)

    return recorded


def first_rule(found: Diagnosis | None) -> str:
    assert found is not None
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.suggestions, (found.sentence, found.shares)
    first = found.suggestions[0]
    assert first.share == max(each.share for each in found.suggestions)
    assert found.sentence == f"{first.found[0].upper()}{first.found[1:]}. Try: {first.change}."
    return first.rule


def steady(block: Any) -> Any:
    time.sleep(0.05)
    return block


def slow_on_one(block: Any) -> Any:
    time.sleep(0.15 if get_worker().name == 0 else 0.03)
    return block


def alone(total: Any) -> Any:
    time.sleep(2)
    return total


def test_a_run_in_good_order_is_told_that_there_is_nothing_to_avoid() -> None:
    # Of a record that is made here: on a machine that others use as well, a real run has something to avoid.
    addresses = ("tcp://h:1", "tcp://h:2")
    rows = [task("dot", worker, at / 10 + 0.002, at / 10 + 0.1) for worker in addresses for at in range(1, 40)]
    resolved = {"shape": (4000, 1000), "chunks": (100, 1000)}
    run = Run(id="good", workload="w", cluster="c", resolved=resolved, started=0.0, seconds=4.0)
    found = diagnose(run, batch(*rows))
    assert found is not None
    assert found.suggestions == ()
    assert found.sentence == "Nothing avoidable was found: the workers computed for 96 % of their time."
    assert (found.threads, found.workers) == (2, 2)


@pytest.mark.parametrize("cpu", [30.0, 95.0])
def test_tasks_that_hardly_used_the_cores_are_not_said_to_be_in_good_order(cpu: float) -> None:
    rows = [task("dot", "tcp://h:1", at / 10 + 0.002, at / 10 + 0.1) for at in range(40)]
    samples = tuple(WorkerSample("tcp://h:1", "1", at / 2, cpu, 10, 1000, 0, 1, 1) for at in range(1, 8))
    found = diagnose(Run(id="busy", workload="w", cluster="c", started=0.0, seconds=4.0), batch(*rows, samples=samples))
    assert found is not None
    assert [each.rule for each in found.suggestions] == (["little CPU"] if cpu < 50 else [])
    assert ("each thread in a task used 31 % of a core" in found.sentence.lower()) == (cpu < 50)


def test_a_run_that_hardly_computed_is_not_said_to_be_in_good_order() -> None:
    # The worker of this run is busy for a second of its four; it appears after the third.
    rows = [task("dot", "tcp://h:1", 3 + at / 10 + 0.002, 3 + at / 10 + 0.1) for at in range(10)]
    run = Run(id="late", workload="w", cluster="c", started=0.0, seconds=4.0)
    told = WorkerSample("tcp://h:1", "1", 3.0, 100.0, 10, 1000, 0, 1, 1)
    found = diagnose(run, batch(*rows, samples=(told,)))
    assert found is not None
    assert "Nothing avoidable" not in found.sentence, found.shares
    assert all(f"is {key}" not in found.sentence for key in found.shares)


def test_tiny_blocks_are_named_with_the_number_of_tasks_and_a_better_size(client: Client, record: Any) -> None:
    shape, chunks = (2000, 2000), (100, 100)
    run, recorded = record(
        client, lambda: (da.ones(shape, chunks=chunks) + 1).sum(), shape=shape, chunks=chunks, dtype="float64"
    )
    found = diagnose(run, recorded)
    assert first_rule(found) == "short tasks"
    assert found is not None
    assert "blocks of 7.63 MiB instead of 78.1 kiB would make about 5 tasks: chunks=7.63MiB" in found.sentence
    # Sizes are those of the array as it is stored, here an eighth of the float64 that is computed.
    found = diagnose(run.model_copy(update={"resolved": {**run.resolved, "dtype": "uint8"}}), recorded)
    assert found is not None
    assert "blocks of 977 kiB instead of 9.77 kiB would make about 5 tasks: chunks=977kiB" in found.sentence


def test_many_tasks_that_do_nothing_are_named_with_their_number_and_what_each_costs() -> None:
    addresses = ("tcp://h:1", "tcp://h:2")
    rows = [task("nothing", worker, at / 1000, at / 1000 + 4e-5) for worker in addresses for at in range(1, 4001)]
    run = Run(id="many", workload="w", cluster="c", resolved={}, started=0.0, seconds=4.1)
    found = diagnose(run, batch(*rows))
    assert first_rule(found) == "short tasks"
    assert found is not None
    assert found.sentence.startswith(
        "8,000 tasks of 40 µs each kept the scheduler busy, about 493 µs for each, and waiting for it took 96 % of the "
        "workers' time. Try: do more in each task: larger blocks or partitions"
    )


def test_fewer_blocks_than_threads_leave_threads_without_work(client: Client, record: Any) -> None:
    shape = (3000, 3000)
    found = diagnose(
        *record(
            client,
            lambda: da.ones(shape, chunks=shape).map_blocks(alone, dtype=float).sum(),
            shape=shape,
            chunks=shape,
        )
    )
    first_rule(found)
    assert found is not None
    # Where others use the machine, that may cost more.
    (huge,) = (each for each in found.suggestions if each.rule == "one huge block")
    assert "1 block of 68.7 MiB for 2 threads" in huge.found
    assert "blocks of 17.2 MiB would give each thread 2" in huge.change


def test_blocks_that_travel_are_counted_in_bytes_and_one_worker_is_proposed(client: Client, record: Any) -> None:
    here, there = client.scheduler_info()["workers"]

    def exchanged() -> Any:
        used = []
        for place in range(16):
            with dask.annotate(workers=[(here, there)[place % 2]]):
                made = dask.delayed(np.ones)(2_000_000 + place)
            with dask.annotate(workers=[(there, here)[place % 2]]):
                used.append(dask.delayed(len)(made))
        return dask.delayed(sum)(used)

    run, recorded = record(client, exchanged)
    found = diagnose(run, recorded)
    assert first_rule(found) == "transfers"
    assert found is not None
    assert re.search(r"Blocks went between 2 workers over tcp in \d+ transfers", found.sentence)
    assert "one worker with 2 threads" in found.sentence


def test_a_slow_worker_is_named(client: Client, record: Any) -> None:
    shape, chunks = (4000, 1000), (100, 1000)
    found = diagnose(
        *record(
            client,
            lambda: da.ones(shape, chunks=chunks).map_blocks(slow_on_one, dtype=float).sum(),
            shape=shape,
            chunks=chunks,
        )
    )
    assert first_rule(found) == "one slow worker"
    assert found is not None
    slow = next(address for address, told in client.scheduler_info()["workers"].items() if told["name"] == 0)
    assert slow in found.sentence
    assert "times as long as the others" in found.sentence


def test_a_worker_that_is_slow_in_tiny_tasks_alone_is_not_blamed() -> None:
    # One piece of the work that only one worker has says nothing of its speed.
    rows = [task("item", "tcp://h:1", 0.1 + at / 10, 0.12 + at / 10) for at in range(5)]
    rows += [task("item", "tcp://h:2", 0.1 + at / 10, 0.1001 + at / 10) for at in range(5)]
    rows += [task("svd", "tcp://h:1", 1.0, 4.0)]
    run = Run(id="tiny", workload="w", cluster="c", resolved={}, started=0.0, seconds=4.0)
    assert "one slow worker" not in rules(diagnose(run, batch(*rows)))


def test_threads_without_work_are_counted(client: Client, record: Any) -> None:
    shape, chunks = (2000, 1000), (500, 1000)
    found = diagnose(
        *record(client, lambda: dask.delayed(alone)(da.ones(shape, chunks=chunks).sum()), shape=shape, chunks=chunks)
    )
    assert first_rule(found) == "idle workers"
    assert found is not None
    assert "2 threads had nothing to do for" in found.sentence


def rules(found: Diagnosis | None) -> list[str]:
    return [] if found is None else [each.rule for each in found.suggestions]


class SlowToRead:
    """A block of 16 MB that takes 50 ms to come back from any disk: Dask times only reads of 5 ms and more."""

    def __sizeof__(self) -> int:
        return 16_000_000

    def __setstate__(self, state: object) -> None:
        time.sleep(0.05)

    def __getstate__(self) -> object:
        return bytes(16_000_000)

    def total(self, _: object) -> int:
        return 1


def test_what_went_to_the_disk_is_told_with_the_memory_that_would_hold_it(record: Any) -> None:
    memory = {"target": 0.05, "spill": False, "pause": False, "terminate": False}
    config = {f"distributed.worker.memory.{name}": value for name, value in memory.items()}
    quiet = {"dashboard_address": "127.0.0.1:0", "processes": False, "memory_limit": "600MB"}

    def too_much() -> Any:
        # All of it is used twice, so that it must stay.
        blocks = [dask.delayed(SlowToRead)() for _ in range(8)]
        first = dask.delayed(len)(blocks)
        return dask.delayed(sum)([dask.delayed(SlowToRead.total)(block, first) for block in blocks])

    with (
        dask.config.set(config),
        LocalCluster(n_workers=1, threads_per_worker=1, **quiet) as cluster,
        Client(cluster) as client,
    ):
        run, recorded = record(client, too_much)
    run = run.model_copy(
        update={
            "spec": ClusterSpec(
                profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=600_000_000, protocol="tcp"
            )
        }
    )
    found = diagnose(run, recorded)
    assert first_rule(found) == "spilling"
    assert found is not None
    assert re.search(r"Blocks that did not fit in memory went to the disk, [\d.]+ [MG]iB at once", found.sentence)
    assert "instead of 572 MiB would keep them in memory" in found.sentence


def test_a_run_on_gpus_that_fell_back_to_numpy_is_told_where(quick_client: Any, record: Any) -> None:
    with block_locations.counted(quick_client, "test", is_device):
        x = quick_client.persist(da.map_blocks(make, dtype="float64", chunks=((200, 200), (200, 200))))
        wait(x)
        run, recorded = record(
            quick_client, lambda: x.map_blocks(fall_back, dtype=x.dtype).map_blocks(steady, dtype=float)
        )
        told = block_locations.collected(quick_client, "test")
    run = Run.model_validate({**run.model_dump(exclude={"cost"}), "on_gpu": told})
    found = diagnose(run, recorded)
    assert "NumPy on GPUs" in rules(found)
    assert found is not None
    (gpus,) = (each for each in found.suggestions if each.rule == "NumPy on GPUs")
    assert "fell back to NumPy in the step" in gpus.found
    assert gpus.change.startswith("look there for np.asarray")


def task(name: str, worker: str, start: float, stop: float, kind: str = "compute", thread: int = 1) -> Task:
    return Task(f"{name}-{start}", name, worker, thread, kind, start, stop, 8, "ok")


def batch(*rows: Task, samples: tuple[WorkerSample, ...] = ()) -> Batch:
    return Batch(10.0, tasks_of(rows), samples, recorded=True)


def test_each_second_of_each_thread_counts_once_whatever_overlaps() -> None:
    recorded = batch(
        task("a", "w", 1.0, 3.0),
        task("a", "w", 2.0, 4.0, thread=2),
        task("a", "w", 3.0, 5.0, kind="transfer"),
        task("a", "w", 3.5, 4.5, kind="disk-write"),
        task("a", "w", 6.0, 7.0),
        task("a", "v", 1.0, 7.0),
    )
    shares = shares_of(recorded, 0.0, 8.0, {"w": 2, "v": 1})
    seconds = {name: share * 24 for name, share in shares.items()}
    assert list(seconds) == list(SHARES)
    assert sum(seconds.values()) == pytest.approx(24)
    assert seconds["computing"] == pytest.approx(2 + 2 + 1 + 6)
    # From 3.5 to 4 one of two threads waits for the disk, from 4 to 4.5 both; then for a transfer until 5.
    assert seconds["spilling"] == pytest.approx(0.5 + 1)
    assert seconds["transferring"] == pytest.approx(0.5 + 1)
    # The graph before the first task; the answer after the last, and the hand-over at the beginning of a gap.
    assert seconds["building"] == pytest.approx(3)
    assert seconds["scheduler"] == pytest.approx(3, abs=0.2)
    assert seconds["serialising"] == 0


def test_workers_that_came_late_were_waited_for_and_not_idle() -> None:
    tasks = [task("a", "w", float(at), at + 1.0) for at in range(20)]
    tasks += [task("a", "v", float(at), at + 1.0) for at in range(15, 20)]
    heard = tuple(
        WorkerSample(worker, worker, at, 100.0, 0, 0, 0, 1, 1) for worker, at in (("w", 0.5), ("w", 1.0), ("v", 14.5))
    )
    shares = shares_of(batch(*tasks, samples=heard), 0.0, 20.0, {"w": 1, "v": 1})
    assert shares["arriving"] == pytest.approx(14.5 / 40)
    assert shares["computing"] == pytest.approx(25 / 40)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param((("v", "0", 0.5), ("w", "1", 0.5), ("new", "1", 7.5)), id="started again"),
        pytest.param(
            (("v", "0", 0.5), ("w", "1", 0.5), ("w", "1", 3.5), ("new", "2", 7.5), ("v", "0", 9.5)),
            id="another job in its place",
        ),
    ],
)
def test_a_worker_that_took_the_place_of_one_that_ended_is_one_with_it(
    places: tuple[tuple[str, str, float], ...],
) -> None:
    tasks = [task("a", "v", float(at), at + 1.0) for at in range(10)]
    tasks += [task("a", "w", float(at), at + 1.0) for at in range(3)]
    tasks += [task("a", "new", float(at), at + 1.0, thread=7) for at in range(8, 10)]
    heard = tuple(WorkerSample(worker, name, at, 100.0, 0, 0, 0, 1, 1) for worker, name, at in places)
    run = Run(id="again", workload="w", cluster="c", started=0.0, seconds=10.0)
    found = diagnose(run, batch(*tasks, samples=heard))
    assert found is not None
    assert (found.threads, found.workers) == (2, 2)
    assert found.shares["computing"] == pytest.approx(15 / 20)
    assert found.shares["arriving"] == 0


def test_a_worker_that_was_asked_to_leave_is_not_idle_and_nobody_waits_for_the_next_one() -> None:
    tasks = [task("a", "v", float(at), at + 1.0) for at in range(10)]
    tasks += [task("a", "w", float(at), at + 1.0) for at in range(2)]
    tasks += [task("a", "new", float(at), at + 1.0) for at in range(8, 10)]
    told = (("v", 0.5, 1), ("w", 0.5, 1), ("w", 2.0, 0), ("new", 8.0, 1), ("v", 9.5, 1))
    heard = tuple(WorkerSample(worker, worker, at, 0.0, 0, 0, 0, 1, threads) for worker, at, threads in told)
    run = Run(id="adaptive", workload="w", cluster="c", started=0.0, seconds=10.0)
    found = diagnose(run, batch(*tasks, samples=heard))
    assert found is not None
    assert (found.threads, found.workers) == (2, 2)
    assert (found.shares["computing"], found.shares["arriving"]) == (pytest.approx(1), 0)


def test_the_time_of_a_worker_that_following_the_load_gave_up_is_nobodys(data_folder: Path) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        workbench.watch(client) as run,
    ):
        client.gather(client.map(time.sleep, [0.3] * 8, pure=False))
        cluster.adapt(minimum=1, maximum=1, interval="50ms", wait_count=1)
        until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1)
        client.gather(client.map(time.sleep, [0.3] * 8, pure=False))
    assert run.diagnosis.shares["computing"] > 0.8


def test_shares_add_up_to_one_for_whatever_was_recorded() -> None:
    rng = np.random.default_rng(0)
    kinds = np.array(KINDS)
    for n_tasks in (1, 3, 200):
        starts = rng.uniform(-1, 11, n_tasks)
        rows = [
            task("a", f"w{rng.integers(3)}", start, start + rng.exponential(1), str(rng.choice(kinds)), rng.integers(4))
            for start in starts
        ]
        shares = shares_of(batch(*rows), 0.0, 10.0, {f"w{i}": 2 for i in range(4)})
        assert sum(shares.values()) == pytest.approx(1)
        assert min(shares.values()) >= 0


def test_a_run_without_tasks_has_no_diagnosis() -> None:
    assert diagnose(Run(id="none", workload="w", cluster="c", started=0.0, seconds=4.0), batch()) is None
    assert diagnose(Run(id="failed", workload="w", cluster="c", started=0.0), batch(task("a", "w", 0, 1))) is None


def test_terminal_report_and_panels_show_the_shares_and_the_sentence(capsys: Any) -> None:
    rows = [
        task("dot", "tcp://h:1", 0.0, 3.5),
        task("dot", "tcp://h:2", 0.0, 0.5),
        task("dot", "tcp://h:2", 3.0, 3.5),
    ]
    run = Run(id="old", workload="w", cluster="c", status="done", started=0.0, seconds=4.0)
    found = diagnose(run, batch(*rows))
    assert found is not None
    run = run.model_copy(update={"diagnosis": found})
    terminal.show_run(run)
    told = " ".join(capsys.readouterr().out.split())
    assert "■ computing 56 %" in told
    assert "□ no task left 31 %" in told
    assert found.sentence in told
    page = report_html(run, None)
    assert "Where the time went" in page
    assert facts_html(facts(run), "time") in page
    assert "Of the workers&#39; time: computing 56 %" in page


def with_memory(*samples: tuple[float, int, float]) -> Diagnosis:
    """Diagnosis of two workers in good order that held so many MB of 1074: (time, worker, MB)."""
    told = [
        WorkerSample(f"tcp://h:{worker}", str(worker), at, 100.0, round(held * 1e6), 1_074_000_000, 0, 1, 1)
        for at, worker, held in samples
    ]
    rows = [
        task("dot" if at < 20 else "join", f"tcp://h:{worker}", at / 10 + 0.002, at / 10 + 0.1)
        for worker in (1, 2)
        for at in range(1, 40)
    ]
    run = Run(id="good", workload="w", cluster="c", started=0.0, seconds=4.0)
    found = diagnose(run, replace(batch(*rows), samples=tuple(told)))
    assert found is not None
    return found


def test_the_most_memory_is_kept_with_the_worker_and_the_task_that_it_computed() -> None:
    found = with_memory((0.5, 1, 300), (2.55, 2, 500), (2.56, 1, 400), (-5.0, 1, 1000))
    assert found.peak is not None
    assert (found.peak.worker, found.peak.task, found.peak.bytes) == ("2", "join", 500_000_000)
    assert found.sentence.startswith("Nothing avoidable was found")
    said = "477 MiB of 1 GiB (47 %) by worker 2, in 'join'"
    assert found.peak.text() == said
    on_gpu = found.peak.model_copy(update={"worker": "GPU-5e7a9b1c-0000-4000-8000-00000000002b"})
    assert "by worker GPU-5e7a…00-00000000002b, in" in on_gpu.text()
    run = Run(id="r", workload="w", cluster="c", seconds=4.0, diagnosis=found)
    assert Fact("Most memory", said, "time") in facts(run)


def test_memory_that_is_nearly_used_up_is_said_before_all_else() -> None:
    found = with_memory((0.5, 1, 300), (1.55, 1, 820))
    assert found.sentence.startswith(
        "There was little memory left: 782 MiB of 1 GiB (76 %) by worker 1, in 'dot'. "
        "Dask pauses a worker at 80 % and ends it at 95 %. Try: smaller chunks, or more memory for each worker. "
    )
    assert "Nothing avoidable" not in found.sentence
    assert "Of the time nothing avoidable was found" in found.sentence


def test_the_terminal_says_how_much_memory_a_run_took(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(id="a-1", workload="w", cluster="c", seconds=4.0, diagnosis=with_memory((1.55, 1, 500)))
    terminal.show_run(run)
    assert "477 MiB of 1 GiB (47 %)" in " ".join(capsys.readouterr().out.split())
