from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import until
from workbench.clusters import launch, records, spare
from workbench.clusters.control import logs, stop, wait
from workbench.clusters.host import FOLDER
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError
from workbench.jobs import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

SPEC = ClusterSpec(n_workers=1, threads_per_worker=1, memory_limit=2**29)


@pytest.fixture
def keep(data_folder: Path) -> Iterator[Callable[[], spare.Spare]]:
    """Starts a spare. Not started here: pytest's own variables differ between a fixture and its test."""

    def kept() -> spare.Spare:
        spare.keep()
        assert spare._waiting is not None
        return spare._waiting

    yield kept
    spare.dismiss()


def test_the_next_cluster_is_hosted_by_the_process_that_waited(keep: Callable[[], spare.Spare]) -> None:
    kept = keep()
    record = launch.launch(SPEC, name="warm-otter")
    assert record.pid == kept.process.pid
    ready = asyncio.run(wait("warm-otter"))
    assert ready.pid == kept.process.pid
    assert "host" in asyncio.run(logs(ready.name))
    assert (records.folder("warm-otter") / "host.log").stat().st_mode & 0o777 == 0o600
    asyncio.run(stop(ready))
    until(lambda: kept.process.poll() is not None)


def test_a_host_that_waited_and_was_killed_leaves_nothing(keep: Callable[[], spare.Spare]) -> None:
    kept = keep()
    launch.launch(SPEC, name="warm-otter")
    ready = asyncio.run(wait("warm-otter"))
    family = psutil.Process(kept.process.pid).children(recursive=True)
    assert family
    psutil.Process(kept.process.pid).kill()
    until(lambda: records.read("warm-otter").status == "lost")
    until(lambda: not any(process.is_running() for process in family))
    asyncio.run(stop(records.read(ready.name)))


def test_a_spare_of_another_environment_is_not_taken(
    keep: Callable[[], spare.Spare], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep()
    monkeypatch.setenv("A_SETTING_OF_TODAY", "1")
    record = launch.launch(SPEC, name="cold-otter")
    assert record.pid != kept.process.pid
    assert kept.process.poll() is not None
    asyncio.run(stop(asyncio.run(wait("cold-otter"))))


def test_a_spare_that_has_no_environment_yet_is_ended_too(
    keep: Callable[[], spare.Spare], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep()
    # For an instant after it was begun the kernel tells of none, and by that its processes are found.
    monkeypatch.setattr(processes, "leftovers", lambda *_: [])
    kept.end()
    assert kept.process.poll() is not None


def test_a_name_that_is_taken_costs_the_spare_but_leaves_no_process(keep: Callable[[], spare.Spare]) -> None:
    keep()
    record = asyncio.run(wait(launch.launch(SPEC, name="warm-otter").name))
    until(lambda: spare._waiting is not None)
    second = spare._waiting
    assert second is not None
    with pytest.raises(ConflictError, match="warm-otter"):
        launch.launch(SPEC, name="warm-otter", force=True)
    assert second.process.poll() is not None
    asyncio.run(stop(record))


def test_a_spare_ends_with_the_process_that_keeps_it(keep: Callable[[], spare.Spare]) -> None:
    kept = keep()
    assert kept.process.stdin is not None
    kept.process.stdin.close()
    until(lambda: kept.process.poll() is not None)
    assert not kept.log.exists()


def test_letting_go_ends_the_spare_and_its_forkserver(keep: Callable[[], spare.Spare]) -> None:
    before = {*Path(tempfile.gettempdir()).glob(f"{FOLDER}*")}
    kept = keep()
    until(lambda: len(psutil.Process(kept.process.pid).children()) > 0)
    assert (made := {*Path(tempfile.gettempdir()).glob(f"{FOLDER}*")} - before)
    family = [psutil.Process(kept.process.pid), *psutil.Process(kept.process.pid).children(recursive=True)]
    spare.dismiss()
    until(lambda: not any(process.is_running() for process in family))
    assert os.listdir(records.clusters_folder()) == []  # noqa: PTH208
    assert not any(each.exists() for each in made)
