"""Clusters whose Python is another minor version than ours, for real, and what travels to any cluster."""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import pytest
from distributed import Client
from distributed.protocol.pickle import dumps

import workbench
from tests import other_python
from workbench import remote
from workbench.errors import ConflictError
from workbench.hardware import sampling
from workbench.monitor import plugin, sampler
from workbench.runs import block_counts, store, submit
from workbench.sent_code import Travelling, ask, make_ready

TRAVELS = {
    "watching": (plugin.watch, None),
    "sampler": (sampler.GpuSampler, (Travelling(sampling), "watch", 1.0)),
    "places": (block_counts.Places, ("name",)),
}


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    with other_python.cluster(other_python.python_or_skip()) as address:
        yield address


@pytest.fixture
def client(foreign: str) -> Iterator[Client]:
    with pytest.warns(match="Mismatched versions"), Client(foreign) as client:  # noqa: PT031
        client.wait_for_workers(2)
        workers = set(client.scheduler_info()["workers"])
        yield client
        assert set(client.scheduler_info()["workers"]) == workers, "workers were ended"


@pytest.mark.parametrize("name", TRAVELS)
def test_what_travels_is_text_and_a_builtin_and_no_bytecode(name: str) -> None:
    opcodes = [(opcode.name, value) for opcode, value, _ in pickletools.genops(dumps(Travelling(*TRAVELS[name])))]
    texts = [value for name, value in opcodes if "UNICODE" in name]
    assert texts[:2] == ["builtins", "eval"]
    assert not [name for name, _ in opcodes if "BYTES" in name]


def test_workers_of_another_python_survive_being_watched(client: Client, data_folder: Path) -> None:
    x = da.random.default_rng(0).random((200, 200), chunks=100)
    with workbench.watch(client, name="abroad") as run:
        total = (x + x.T).sum().compute()
    assert total == pytest.approx(40_000, rel=0.05)
    assert (run.status, run.error) == ("done", None)
    assert run.result["tasks"] > 4
    assert run.progress.done == run.progress.total > 4
    assert run.diagnosis is not None


def test_a_cell_with_watch_leaves_workers_of_another_python_alive(client: Client, data_folder: Path) -> None:
    from IPython.testing.globalipapp import get_ipython, start_ipython

    shell = start_ipython() or get_ipython()
    shell.run_line_magic("load_ext", "workbench")
    shell.user_ns.update(x=da.ones((200, 200), chunks=100), client=client)
    shell.run_cell_magic("watch", "--client client", "total = (x + x.T).sum().compute()")
    assert shell.user_ns["total"] == 80_000
    assert store.find("last").status == "done"


def test_what_runs_ask_of_scheduler_and_workers_is_answered_under_another_python(client: Client) -> None:
    future = client.compute(da.ones(20, chunks=5).sum())
    assert future.result() == 20
    workers = client.run_on_scheduler(Travelling(remote.worker_addresses))
    assert client.run(Travelling(remote.executing_keys)) == {worker: [] for worker in workers}
    assert client.run_on_scheduler(Travelling(remote.unwanted), {key: [] for key in workers}, "nobody") == []


def test_a_run_under_another_python_is_refused_in_a_sentence_before_anything_is_sent(
    client: Client, foreign: str, data_folder: Path
) -> None:
    theirs = ask(client)[0].python
    with pytest.raises(ConflictError, match=rf"nothing was sent: python is {theirs} at the scheduler and on "):
        make_ready(client)
    with workbench.attach(foreign) as there:
        assert f": python is {theirs} there, and " in (there.record.warning or "")
        with pytest.raises(ConflictError, match=f"Nothing can be run on {there.name}. It can be watched"):
            submit.submit("array_sum", {"size": "1MiB"}, there.record)
