"""Location of blocks, on GPU or host, by their types on the workers, with a stand-in type and a stand-in CuPy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from tests.simulated import SimulatedNvml
from tests.test_backend import STANDIN
from tests.test_cuda import needs_dask_cuda
from workbench import terminal
from workbench.clusters import records
from workbench.jobs import folders, processes
from workbench.monitor.record import read_events
from workbench.runs import block_counts, block_locations, store
from workbench.runs.facts import facts
from workbench.runs.forecasting.forecast import size_of
from workbench.runs.recording import Recording
from workbench.runs.run import OnGpu, Run
from workbench.session import Session
from workbench.workloads.lookup import template


class DeviceArray(np.ndarray[Any, Any]):
    """An array that counts as lying on a device."""


def is_device(kind: type) -> bool:
    return issubclass(kind, DeviceArray)


def to_device(block: Any) -> Any:
    return np.asarray(block).view(DeviceArray)


def counted(client: Any, *steps: Any) -> OnGpu:
    """Count the blocks on GPUs for an array of four blocks that passes through `steps`, each in a separate task."""
    x = da.map_blocks(make, dtype="float64", chunks=((200, 200), (200, 200)))
    with block_locations.counted(client, "test", is_device):
        for step in (lambda x: x, *steps):
            # Persisted, so that Dask doesn't make one task of several steps.
            x = client.persist(step(x))
            client.gather(client.compute(x))
        return OnGpu.model_validate(block_locations.collected(client, "test"))


def make(block_info: Any = None) -> Any:
    return to_device(np.ones((200, 200)))


def fall_back(block: Any) -> Any:
    return np.asarray(block) + 1


def test_blocks_that_stay_on_the_device_are_all_counted_there(quick_client: Any) -> None:
    found = counted(quick_client, lambda x: x + 1, lambda x: x * 2)
    assert found.share == found.share_of_bytes == 1
    assert found.blocks == 12
    assert found.sentence == f"All {found.blocks} blocks were on a GPU."
    assert found.warning is None
    assert sum(found.devices.values()) == found.blocks
    assert [step.name for step in found.steps] == ["make", "add", "mul"]
    assert found.steps[1].bytes == found.steps[1].bytes_on_gpu == 400 * 400 * 8


def test_the_first_step_that_falls_back_to_numpy_is_named(quick_client: Any) -> None:
    found = counted(quick_client, lambda x: x.map_blocks(fall_back, dtype=x.dtype), lambda x: x * 2)
    assert found.warning is not None
    assert found.warning.startswith(
        "Data fell back to NumPy in the step 'fall_back', where 4 of 4 blocks were made on the CPU"
    )
    assert [(step.name, step.on_gpu) for step in found.steps] == [("make", 4), ("fall_back", 0), ("mul", 0)]
    assert found.sentence == "4 of 12 blocks were on a GPU, 33.3 % of their bytes."


def test_where_nothing_is_on_a_device_the_first_step_is_named(quick_client: Any) -> None:
    with block_locations.counted(quick_client, "test", is_device):
        x = quick_client.persist(da.ones((400, 400), chunks=200))
        quick_client.compute(x.sum()).result()
        found = block_locations.collected(quick_client, "test")
    assert found["share"] == 0
    assert found["sentence"] == f"None of {found['blocks']} blocks was on a GPU."
    assert "from the first step 'ones_like' on" in found["warning"]


def test_a_small_summary_of_a_block_may_be_on_the_host(quick_client: Any) -> None:
    def summary(block: Any) -> Any:
        return np.asarray(block).mean(axis=0, keepdims=True)[:, :1]

    found = counted(quick_client, lambda x: x.map_blocks(summary, dtype=x.dtype, chunks=(1, 1)))
    assert found.warning is None
    assert found.share is not None
    assert found.share < 1


def test_what_is_read_at_the_end_of_a_longer_step_did_not_fall_back() -> None:
    tally = {"blocks": 4, "on_gpu": 0, "bytes": 8, "bytes_on_gpu": 0, "fell": 4, "first": 1.0, "fell_at": 2.0}
    answer = {"device": "0", "tallies": {"sum-aggregate-to-host-3f": tally, "to-host-3f": tally}}
    assert block_locations.summary([answer])["steps"] == []


def test_the_arrays_in_a_pair_are_one_block(quick_client: Any) -> None:
    def pair(block: Any) -> Any:
        return block, [block, {"total": block}]

    def mixed(block: Any) -> Any:
        return block, np.asarray(block)

    with block_locations.counted(quick_client, "test", is_device):
        made = quick_client.submit(to_device, np.ones(10))
        quick_client.gather([quick_client.submit(pair, made), quick_client.submit(len, made)], direct=False)
        assert quick_client.submit(mixed, made).result()
        found = OnGpu.model_validate(block_locations.collected(quick_client, "test"))
    assert {step.name: (step.blocks, step.on_gpu) for step in found.steps} == {
        "to_device": (1, 1),
        "pair": (1, 1),
        "mixed": (1, 0),
    }
    assert found.warning is not None
    assert "step 'mixed'" in found.warning


def test_what_others_compute_meanwhile_is_not_counted(quick_client: Any, quick_cluster: Any, tmp_path: Path) -> None:
    from distributed import Client

    with (
        block_locations.counted(quick_client, "test", is_device),
        Client(quick_cluster, set_as_default=False) as other,
        Recording(tmp_path / "events.parquet") as recording,
    ):
        recording.start(quick_client)
        theirs = other.compute((da.ones(100, chunks=10) * 3).sum())
        assert theirs.result() == 300
        quick_client.submit(to_device, np.ones(10)).result()
        recording.stop()
        found = block_locations.collected(quick_client, "test", recording.groups)
    assert [step["name"] for step in found["steps"]] == ["to_device"]


def test_after_counting_the_workers_are_as_before(quick_client: Any) -> None:
    with block_locations.counted(quick_client, "test", is_device):
        assert (
            block_locations.collected(quick_client, "test")["sentence"] == "There was no block, on a GPU or elsewhere."
        )
    assert quick_client.run(block_counts.read_tallies, "test") == dict.fromkeys(quick_client.run(len, [1]))


def run_on(record: Any, workload: str, env: Mapping[str, str] = os.environ, **parameters: Any) -> Run:
    """Return a run that its runner computed, although the GPUs of its cluster are simulated."""
    run = store.create(
        Run(
            id=folders.new_id(workload),
            workload=workload,
            parameters=parameters,
            resolved=template(workload).validate(parameters, **size_of(record.spec)).resolved,
            cluster=record.name,
            spec=record.spec,
            created=time.time(),
            place=processes.place(),
        )
    )
    command = [sys.executable, "-P", "-m", "workbench.runs.runner", run.id]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return store.get(run.id)


def with_standin(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of processes that find the stand-in for CuPy."""
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, (str(STANDIN), env.get("PYTHONPATH"))))}


@needs_dask_cuda
def test_a_run_on_gpus_makes_its_blocks_there_and_tells_so(
    simulated_nvml: SimulatedNvml, data_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    env = with_standin(simulated_nvml.environment(gpus=1))
    code = "from workbench.cli import main; main(['up', 'gpu', '--name', 'calm-otter'])"
    up = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=90)
    record = records.read("calm-otter")
    assert record.status == "ready", up.stderr
    assert record.spec.cupy
    run = run_on(record, "compressed_svd", shape=[400, 60], chunks=[200, 30], method="dask")
    assert (run.status, run.check and run.check.passed) == ("done", True)
    assert run.on_gpu is not None
    assert [step.name for step in run.on_gpu.steps if step.on_gpu < step.blocks] == []
    assert run.on_gpu.warning is None
    assert list(run.on_gpu.devices) == list(record.spec.devices)
    assert {"qr", "counts"} <= {name for step in run.on_gpu.steps for name in step.name.split("-")}
    assert "wait-for-gpu" in read_events(store.folder(run.id) / "events.parquet").tasks.name.values
    packed = run_on(record, "genotype_pca", n_variants=4000, n_samples=203)
    assert (packed.status, packed.check and packed.check.passed) == ("done", True)
    assert packed.on_gpu is not None
    assert packed.on_gpu.sentence == f"All {packed.on_gpu.blocks} blocks were on a GPU."
    terminal.show_run(run)
    assert f"All {run.on_gpu.blocks} blocks were on a GPU." in " ".join(capsys.readouterr().out.split())
    Session().stop("calm-otter")


def test_the_report_tells_where_data_fell_back() -> None:
    found = {"sentence": "4 of 12 blocks were on a GPU.", "warning": "Data fell back to NumPy in the step 'x'."}
    found |= dict.fromkeys(("blocks", "on_gpu", "bytes", "bytes_on_gpu", "share", "share_of_bytes"), 1)
    told = [each.text for each in facts(Run(id="r", workload="w", cluster="c", on_gpu=OnGpu.model_validate(found)))]
    assert found["sentence"] in told
    assert found["warning"] in told
