"""Fixtures that all tests share. Nothing here touches the data folder of the user who runs the tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from threadpoolctl import threadpool_limits

from tests import slurm
from tests.simulated import simulated_nvml
from workbench.clusters.spec import ClusterSpec
from workbench.jobs import processes

__all__ = ["simulated_nvml"]  # a fixture, for every test

# A shell has what it starts in the background ignore Ctrl-C, and all that starts in turn: `make test &` would fail.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads of BLAS spin while they wait for each other: in parallel tests, small matrices took twenty times as long.
for _blas in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_blas}_NUM_THREADS", "1")  # of what is loaded later, and in other processes
threadpool_limits(1, user_api="blas")  # of what pytest's plugins have loaded


def pytest_configure() -> None:
    """Have Dask not sample its own threads 50 to 100 times a second, for a page that no test opens.

    That is half of the tenth of a core that a cluster of two workers takes when it is idle, and several are up while
    tests run. Not on import: a scheduler imports this module with a function of a test, and would lose its settings.
    """
    os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")
    os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL", "500ms")
    dask.config.refresh()


_BROWSERS = Path(__file__).with_name("ui")
_LONGEST = (
    "notebooks.py::test_a_tutorial",
    "first_minutes.py::test_",
    "docs.py",
    "forecast.py",
    "own_functions.py",
    "compare_runs.py",
    "remote_data.py",
    "two_at_once.py",
    "attach.py",
    "ucx.py",
    "bare_workers.py",
    "run_answers.py",
    "protocols.py",
    "svd_of_file.py",
    "block_locations.py",
    "secrets.py",
    "readme.py",
)
"""Slowest tests, the slowest first: if started last, one of them would run alone at the end.

The tests of a file run in one process, for the fixtures that they share; tests named here by their function share none.
"""


@contextlib.contextmanager
def using_data_folder(path: Path) -> Iterator[Path]:
    """`path` as the data folder, here and in the processes started meanwhile; clusters left in it are stopped."""
    before = os.environ.get("DASK_WORKBENCH__DATA_FOLDER")
    os.environ["DASK_WORKBENCH__DATA_FOLDER"] = str(path)
    try:
        with dask.config.set({"workbench.data-folder": str(path)}):
            yield path
            _stop_all()
    finally:
        if before is None:
            del os.environ["DASK_WORKBENCH__DATA_FOLDER"]
        else:
            os.environ["DASK_WORKBENCH__DATA_FOLDER"] = before


def _stop_all() -> None:
    from workbench.clusters import control, records
    from workbench.errors import FailedError

    for record in records.read_all():
        # What somebody else's daemon would have to end, which is gone with its test, is not listed any more.
        with contextlib.suppress(FailedError):
            asyncio.run(control.stop(record))


_MARKED: dict[str, Callable[[Path], bool]] = {
    "ui": lambda path: path.is_relative_to(_BROWSERS),
    "daemons": lambda path: "mark.daemons" in path.read_text(),
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing where no test has the mark that is asked for: all files take longer than to start a server."""
    asked = _MARKED.get(config.option.markexpr)
    is_test = collection_path.match("test_*.py")
    return True if asked is not None and is_test and not asked(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what drives a browser, and run it last; the files that take longest come first."""
    for item in items:
        if item.path.is_relative_to(_BROWSERS):
            item.add_marker("ui")
            # A signal ends Playwright's loop, and the next step of the test or of its clean-up then waits for ever.
            item.add_marker(pytest.mark.timeout(600, method="thread"))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.path.is_relative_to(_BROWSERS):
        return len(_LONGEST) + 1
    found = (place for place, each in enumerate(_LONGEST) if f"test_{each}" in item.nodeid)
    return next(found, len(_LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute tests by file, as --dist loadfile does, except those that are named in _LONGEST."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            alone = any("::" in each and f"test_{each}" in nodeid for each in _LONGEST)
            return nodeid if alone else super()._split_scope(nodeid)

    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell why a test was tried again: pytest-rerunfailures names it only."""
    for first in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first try of {first.nodeid}")
        terminalreporter.write_line(first.longreprtext)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Restore the handler of SIGTERM: a process that computes a run ignores it, and later tests would inherit that."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(autouse=True)
def _no_scheduler_is_left() -> Iterator[None]:
    """Fail where Dask's default scheduler stays that of clients which are closed: later tests could compute nothing.

    Dask restores the setting only if the client that was opened last is closed first.
    """
    yield
    if "distributed" in sys.modules and dask.config.get("scheduler", None) == "dask.distributed":
        from distributed import default_client

        try:
            default_client()
        except ValueError:
            dask.config.set(scheduler=None)
            pytest.fail("this test closed clients in another order than the reverse of that in which it opened them")


@pytest.fixture(autouse=True, scope="session")
def _nobodys_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replace the data folder, for tests that forget to ask for one."""
    with using_data_folder(tmp_path_factory.mktemp("nobody")):
        yield


@pytest.fixture
def data_folder(tmp_path: Path) -> Iterator[Path]:
    """Provide an empty data folder."""
    # "data" is Jupyter's own folder in the tests of the server. Many a home has a space in its path.
    with using_data_folder(tmp_path / "workbench data") as path:
        yield path


@pytest.fixture(scope="session")
def spec() -> ClusterSpec:
    """Return a small cluster: two workers of one thread and 512 MiB."""
    return ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=512 * 2**20)


@pytest.fixture(scope="session")
def quick_cluster() -> Iterator[Any]:
    """Two workers as threads of this process: a Dask cluster that starts in no time."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


@pytest.fixture
def quick_client(quick_cluster: Any) -> Iterator[Any]:
    """Provide a client of the cluster in this process."""
    from distributed import Client

    with Client(quick_cluster) as client:
        yield client
    # What a test leaves behind is met by whichever comes next, far from its cause.
    deadline = time.monotonic() + 10
    while (left := _unreleased(quick_cluster.scheduler)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, "this test left tasks on the scheduler that all tests share"


def _unreleased(scheduler: Any) -> list[Any]:
    """Tasks that the scheduler has something to do with; Dask never forgets some that it has released."""
    return [task for task in scheduler.tasks.values() if task.state != "released"]


@pytest.fixture(scope="session")
def slurm_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a SLURM on this machine, and yield its configuration; see tests/slurm.py."""
    reason = slurm.lacking()
    if reason is not None:
        pytest.skip(f"There is no SLURM: {reason}. `make test` installs it where it may.")
    with slurm.slurm(tmp_path_factory.mktemp("slurm")) as configuration:
        yield configuration


@pytest.fixture
def asleep() -> Iterator[dict[str, Any]]:
    """Pid and start of a process that can pass for a host."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield {"pid": process.pid, "pid_created": processes.created(process.pid), "place": processes.place()}
