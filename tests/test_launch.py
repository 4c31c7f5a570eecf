from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest

import workbench
from tests.waiting import until
from workbench.clusters import control, launch, records
from workbench.clusters.budget import budget
from workbench.clusters.choices import AllChoices
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, FailedError, MissingError
from workbench.hardware import inventory
from workbench.jobs import folders


def test_a_bad_name_starts_nothing(data_folder: Path, spec: ClusterSpec) -> None:
    with pytest.raises(BadInputError, match="My Cluster"):
        launch.launch(spec, name="My Cluster", force=True)
    assert records.names() == ()


def test_a_cluster_without_a_name_gets_one_that_no_other_may_have(data_folder: Path, spec: ClusterSpec) -> None:
    # This Python, given by its path, is the same as none.
    record = launch.launch(spec.model_copy(update={"python": sys.executable}), force=True)
    assert os.getsid(int(record.pid or 0)) == record.pid
    assert records.names() == (record.name,)
    with pytest.raises(ConflictError, match=record.name):
        launch.launch(spec, name=record.name, force=True)
    assert [each.pid for each in records.read_all()] in ([record.pid], [None])
    asyncio.run(control.stop(record))


def test_more_memory_than_there_is_is_refused_with_the_numbers_unless_forced(
    data_folder: Path, spec: ClusterSpec
) -> None:
    much = spec.model_copy(update={"n_workers": 1, "memory_limit": 2**50})
    with pytest.raises(ConflictError, match=r"1 PiB"):
        launch.launch(much)
    assert records.names() == ()
    asyncio.run(control.stop(launch.launch(much, force=True)))


STARTS = """
import asyncio, sys
from workbench.clusters import control, launch, records
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError
from workbench.hardware import inventory
from workbench.jobs import folders

spec = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=inventory().memory.limit * 2 // 3)
for line in sys.stdin:
    try:
        record = launch.launch(spec)
        print("started", flush=True)
    except ConflictError as err:
        record = None
        print(err, flush=True)
    sys.stdin.readline()
    if record is not None:
        asyncio.run(control.stop(record))
    print("stopped", flush=True)
"""


def test_of_two_simultaneous_starts_one_is_refused_when_memory_is_left_for_one(data_folder: Path) -> None:
    command = [sys.executable, "-c", STARTS]
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]

        def say_and_hear() -> list[str]:
            for each in both:
                assert each.stdin is not None
                each.stdin.write("\n")
                each.stdin.flush()
            return sorted(each.stdout.readline().strip() for each in both if each.stdout is not None)

        for _ in range(3):
            refused, started = say_and_hear()
            assert (started, refused.startswith("This asks for ")) == ("started", True)
            assert say_and_hear() == ["stopped", "stopped"]
        for each in both:
            each.communicate(timeout=10)


def test_a_start_whose_process_is_stuck_is_waited_for_no_longer_than_the_time_out(
    data_folder: Path, spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = launch.launch(spec, force=True)
    assert stuck.pid is not None
    os.kill(stuck.pid, signal.SIGSTOP)
    monkeypatch.setattr(folders, "HEARTBEAT", 0.5)
    with (
        dask.config.set({"workbench.start-timeout": "1s"}),
        pytest.raises(FailedError, match=r"can't start: its process has said nothing for \d s\."),
    ):
        asyncio.run(control.wait(stuck.name))
    os.kill(stuck.pid, signal.SIGCONT)
    asyncio.run(control.stop(stuck))


def test_time_in_which_its_processes_are_stopped_does_not_count_for_a_start(
    data_folder: Path, spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "HEARTBEAT", 0.5)
    with dask.config.set({"workbench.start-timeout": "7s"}):
        paused = launch.launch(spec, force=True)
        assert paused.pid is not None
        until(lambda: records.read(paused.name).stage != "preparing")
        os.kill(paused.pid, signal.SIGSTOP)

        def sleep(*_: object) -> None:
            time.sleep(9)
            os.kill(paused.pid or 0, signal.SIGCONT)

        before = signal.signal(signal.SIGALRM, sleep)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            assert asyncio.run(control.wait(paused.name)).status == "ready"
        finally:
            signal.signal(signal.SIGALRM, before)
    asyncio.run(control.stop(paused))


def test_a_start_and_a_scaling_at_once_are_not_promised_the_same_memory(data_folder: Path) -> None:
    part = budget(inventory(), ()).left * 2 // 5
    part_of_it = ClusterSpec(profile="cpu", n_workers=1, threads_per_worker=1, memory_limit=part)
    grows = asyncio.run(control.wait(launch.launch(part_of_it, name="grows").name))

    async def both() -> list[Any]:
        starts = asyncio.to_thread(launch.launch, part_of_it, name="starts")
        return await asyncio.gather(starts, control.scale("grows", 2), return_exceptions=True)

    for _ in range(2):
        found = asyncio.run(both())
        assert [type(each) for each in found if isinstance(each, Exception)] == [ConflictError]
        if isinstance(found[0], ConflictError):
            asyncio.run(control.scale("grows", 1))
        else:
            asyncio.run(control.stop(found[0]))
    asyncio.run(control.stop(grows))


def test_the_host_gets_this_data_folder_and_the_marker_of_its_cluster(data_folder: Path, spec: ClusterSpec) -> None:
    record = ClusterRecord(name="calm-otter", spec=spec, created=1.5)
    with dask.config.set({"workbench.start-timeout": "7s"}):
        environment = launch.environment(record)
    assert environment["DASK_WORKBENCH__DATA_FOLDER"] == str(data_folder)
    assert environment["DASK_WORKBENCH__START_TIMEOUT"] == "7s"
    assert environment["WORKBENCH_CLUSTER"] == f"{data_folder}/clusters/calm-otter#1.5"


def test_blas_has_one_thread_for_each_of_dasks_unless_the_user_says_otherwise(
    data_folder: Path, spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    record = ClusterRecord(name="calm-otter", spec=spec)
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert [launch.environment(record)[name] for name in names] == ["1", "1", "1"]
    with dask.config.set({"distributed.nanny.pre-spawn-environ": {"MKL_NUM_THREADS": 2}}):
        assert [launch.environment(record)[name] for name in names] == ["1", "2", "1"]
        monkeypatch.setenv("MKL_NUM_THREADS", "4")
        assert [launch.environment(record)[name] for name in names] == ["1", "4", "1"]


_LOOKED_FOR = (
    "json",
    "random",
    "sqlite3",
    "datetime",
    "jupyterlab",
    "jupyter_server",
    "brotli",
    "crick",
    "cupy",
    "gilknocker",
    "lz4",
    "setproctitle",
    "snappy",
    "sparse",
)
"""Modules of Python and some that Dask imports where they are installed."""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that we work in, with modules that write down in `imported` that they were imported."""
    text = "import os, pathlib\nopen(pathlib.Path(__file__).with_name('imported'), 'a').write(f'{__name__}\\n')\n"
    for name in _LOOKED_FOR:
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "mine.py").write_text("answer = 42")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_module_beside_the_user_is_imported_by_a_cluster_and_its_runs(
    data_folder: Path, spec: ClusterSpec, clone: Path
) -> None:
    session = workbench.Session()
    record = session.start(spec, name="calm-otter", force=True)
    record = session.wait("calm-otter", timeout=60)
    run = session.run("array_sum", {"size": "1MiB"}, "calm-otter")
    assert session.wait_run(run.id, timeout=60).status == "done"
    asyncio.run(control.stop(record))
    assert not (clone / "imported").exists()


def test_the_module_workbench_takes_no_module_from_the_folder_it_is_started_in(clone: Path) -> None:
    for words in (["--version"], ["workloads"], ["lab", "--version"]):
        done = subprocess.run([sys.executable, "-m", "workbench", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert not (clone / "imported").exists()


def test_who_connects_brings_the_folder_that_python_imports_from(
    data_folder: Path, spec: ClusterSpec, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.clusters.connect import connect

    asyncio.run(control.wait(launch.launch(spec, name="calm-otter", force=True).name, timeout=30))
    monkeypatch.setattr("sys.path", [each for each in sys.path if each not in ("", str(clone))])
    with connect("calm-otter") as client, pytest.raises(ModuleNotFoundError):
        client.submit(_answer).result()
    # As in a notebook, a terminal and a script.
    sys.path.insert(0, "")
    with connect("calm-otter") as client:
        assert client.submit(_answer, pure=False).result() == 42
        assert client.run_on_scheduler(_answer) == 42
        # One that comes later has it, too.
        client.restart()
        assert client.submit(_answer, pure=False).result() == 42
    asyncio.run(control.stop(records.read("calm-otter")))


def _answer() -> int:
    import mine  # type: ignore[import-not-found]

    return int(mine.answer)


def test_a_program_that_is_no_python_starts_nothing(data_folder: Path, spec: ClusterSpec, tmp_path: Path) -> None:
    wrong = tmp_path / "python"
    wrong.write_text("#!/bin/sh\nexit 3\n")
    wrong.chmod(0o755)
    with pytest.raises((BadInputError, MissingError), match="python"):
        launch.launch(spec.model_copy(update={"python": str(wrong)}), force=True)
    assert records.names() == ()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("workers", "n_workers"),
        ("n_worker", "n_workers"),
        ("memory_limit", "memory, which is that of all workers together"),
        ("threads", "threads_per_worker"),
        ("idle_time_out", "idle_timeout"),
    ],
)
def test_a_word_that_start_does_not_have_is_answered_with_the_one_that_was_meant(given: str, meant: str) -> None:
    with pytest.raises(BadInputError, match=rf"^There is no choice '{given}'\. Did you mean {meant}\? Choose from: "):
        workbench.start("cpu", **{given: 1})
    with pytest.raises(BadInputError, match=f"Did you mean {meant}"):
        workbench.Session().plan("cpu", **{given: 1})


@pytest.mark.parametrize("function", [workbench.start, workbench.plan, workbench.Session.plan])
def test_all_that_can_be_chosen_is_spelled_out_with_its_type_and_said(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    for name in AllChoices.model_fields:
        assert str(parameters[name]) == str(inspect.signature(workbench.start).parameters[name])
        assert f"\n{name}\n    {AllChoices.model_fields[name].description:.40}" in (function.__doc__ or "")
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values())


def test_start_says_of_each_parameter_what_it_is() -> None:
    parameters = inspect.signature(workbench.start).parameters
    assert all(each.annotation is not each.empty for each in parameters.values())
    assert all(re.search(rf"^{name}$", workbench.start.__doc__ or "", re.MULTILINE) for name in parameters)


def test_start_takes_all_choices(data_folder: Path) -> None:
    with pytest.raises(BadInputError, match="the cpu profile takes no"):
        workbench.start("cpu", interface="lo")
