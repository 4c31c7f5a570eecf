"""The profiles with GPUs: what is planned and refused, and real clusters on simulated devices."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulated import SimulatedNvml, computing, simulated_nvml
from tests.test_budget import machine
from workbench.clusters import control, cuda, records
from workbench.clusters.budget import check_budget
from workbench.clusters.choices import ClusterChoices, GpuChoices
from workbench.clusters.connect import connect
from workbench.clusters.devices import check, devices_of
from workbench.clusters.plan import explained, plan
from workbench.clusters.profiles.lookup import profile, profiles
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, MissingError, install
from workbench.hardware import Gpu, GpuSlice, Inventory
from workbench.packages import installed_version
from workbench.runs.submit import submit

__all__ = ["simulated_nvml"]

GIB = 2**30
PACKAGES = {"dask-cuda": "26.10.0", "distributed-ucxx-cu13": "0.52.0"}

needs_dask_cuda = pytest.mark.skipif(
    installed_version("dask-cuda") is None, reason="dask-cuda isn't installed, which starts a worker for each GPU."
)


def gpu(index: int, *, free: int | None = 79 * GIB, total: int | None = 80 * GIB, **more: Any) -> Gpu:
    return Gpu(index=index, name="SIMULATED", uuid=f"GPU-{index}", memory_total=total, memory_free=free, **more)


def sliced(index: int, slices: int) -> Gpu:
    parts = tuple(
        GpuSlice(uuid=f"MIG-{index}-{n}", name="SIMULATED MIG", memory_total=10 * GIB, memory_free=10 * GIB)
        for n in range(slices)
    )
    return gpu(index, mig=True, slices=parts)


def with_gpus(*gpus: Gpu) -> Inventory:
    return machine().model_copy(update={"gpus": gpus})


def planned(profile: str, *gpus: Gpu, **choices: Any) -> ClusterSpec:
    return plan(profile, with_gpus(*gpus), version=PACKAGES.get, **choices)


# What is planned


def test_all_gpus_are_planned_with_a_worker_each_and_told_by_uuid() -> None:
    spec = planned("gpus", gpu(0), gpu(1))
    assert (spec.profile, spec.n_workers, spec.threads_per_worker) == ("gpus", 2, 1)
    assert (spec.devices, spec.protocol) == (("GPU-0", "GPU-1"), "tls")
    assert spec.why[0].startswith("2 GPUs, all that there are: 0 (SIMULATED, 79 GiB of 80 GiB free), 1 (")
    assert planned("gpus", gpu(0)).n_workers == 1


def test_one_gpu_is_the_idlest_unless_chosen() -> None:
    crowd = (gpu(0, free=20 * GIB), gpu(1, utilisation=90), gpu(2, utilisation=5))
    assert planned("gpu", *crowd).devices == ("GPU-2",)
    assert planned("gpu", *crowd, devices=0).devices == ("GPU-0",)
    assert "the idlest of 3" in planned("gpu", *crowd).why[0]
    assert planned("gpus", *crowd, n_workers=2).devices == ("GPU-1", "GPU-2")


def test_gpus_are_chosen_by_index_or_uuid_in_the_order_given() -> None:
    there = (gpu(0), gpu(1), gpu(2))
    assert planned("gpus", *there, devices="2,GPU-0").devices == ("GPU-2", "GPU-0")
    assert planned("gpus", *there, devices=[0, 2]).devices == ("GPU-0", "GPU-2")
    assert planned("gpus", *there, devices="").devices == ("GPU-0", "GPU-1", "GPU-2")


def test_slices_are_chosen_like_gpus() -> None:
    assert planned("gpus", sliced(0, 2)).devices == ("MIG-0-0", "MIG-0-1")
    assert planned("gpu", sliced(0, 2), gpu(1), devices="0:1").devices == ("MIG-0-1",)
    assert [device.label for device in devices_of(with_gpus(sliced(0, 2), gpu(1)))] == ["0:0", "0:1", "1"]


def test_a_gpu_that_cuda_visible_devices_hides_is_not_offered() -> None:
    assert planned("gpus", gpu(0, visible=False), gpu(1)).devices == ("GPU-1",)
    with pytest.raises(MissingError, match="CUDA_VISIBLE_DEVICES hides every GPU"):
        planned("gpus", gpu(0, visible=False))


def test_limit_and_pool_are_planned_and_explained() -> None:
    spec = planned("gpus", gpu(0), device_memory_limit="40GiB", rmm_pool_size="60GiB", encrypt=False)
    assert (spec.device_memory_limit, spec.rmm_pool_size, spec.protocol) == (40 * GIB, 60 * GIB, "tcp")
    told = " ".join(spec.why)
    assert "beyond 40 GiB, as chosen. RMM takes a pool of 60 GiB on each GPU" in told
    assert "beyond 0.8 of the card." in " ".join(planned("gpu", gpu(0)).why)


def test_ucx_takes_the_gpus_where_there_are_some_and_dask_cuda_is_installed() -> None:
    there = with_gpus(gpu(0), gpu(1))
    there = there.model_copy(update={"ucx": there.ucx.model_copy(update={"installed": True, "version": "0.52.0"})})
    spec = plan("ucx", there, version=PACKAGES.get)
    assert (spec.protocol, spec.devices) == ("ucx", ("GPU-0", "GPU-1"))
    assert plan("ucx", there, version={}.get).devices == ()


def test_the_form_has_fields_for_gpus_only_where_they_mean_something() -> None:
    more = set(GpuChoices.model_fields) - set(ClusterChoices.model_fields)
    assert more == {"devices", "device_memory_limit", "rmm_pool_size"}
    assert profile("gpus").choices(machine()) is GpuChoices
    assert profile("cpu").choices(with_gpus(gpu(0))) is ClusterChoices
    on_cores = profile("ucx").choices(machine()).model_fields
    assert set(on_cores) - set(ClusterChoices.model_fields) == {"ucx_tls", "interface"}


# What is refused


@pytest.mark.parametrize(
    ("profile", "gpus", "choices", "sentence"),
    [
        ("gpus", (gpu(0),), {"devices": "3"}, r"devices has '3', which isn't there\. Choose among 0 \(SIMULATED"),
        ("gpus", (gpu(0),), {"devices": "0,GPU-0"}, "names a GPU twice"),
        ("gpus", (gpu(0),), {"devices": True}, "devices is True. Give indices or UUIDs"),
        ("gpu", (gpu(0), gpu(1)), {"devices": "0,1"}, "the gpu profile has one GPU"),
        ("gpu", (gpu(0), gpu(1)), {"n_workers": 2}, "n_workers is 2, and the gpu profile has one GPU"),
        ("gpus", (gpu(0),), {"n_workers": 2}, "a worker has a GPU of its own: there is 0 .* Give at most 1"),
        ("gpus", (gpu(0), sliced(1, 2)), {}, r"Whole GPUs and slices \(MIG\) can't be mixed .* the devices 0\."),
        ("gpus", (gpu(0),), {"rmm_pool_size": "81GiB"}, r"rmm_pool_size is 81 GiB, and GPU 0 .* has 80 GiB"),
        ("gpu", (gpu(0),), {"device_memory_limit": "1TiB"}, r"device_memory_limit is 1 TiB, and GPU 0"),
        ("gpu", (gpu(0, free=GIB // 2),), {}, r"GPU 0 .*has too little free memory: a worker needs 1 GiB"),
        ("gpu", (gpu(0, free=20 * GIB),), {"rmm_pool_size": "30GiB"}, r"too little free .* needs 30 GiB"),
        ("gpu", (gpu(0, free=0), gpu(1)), {"devices": "0"}, r"or choose 1 \(SIMULATED"),
        ("cpu", (gpu(0),), {"devices": "0"}, "devices is '0', and the cpu profile takes no devices"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(
    profile: str, gpus: tuple[Gpu, ...], choices: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((BadInputError, ConflictError), match=sentence):
        planned(profile, *gpus, **choices)


def test_memory_that_nobody_can_tell_refuses_nothing() -> None:
    assert planned("gpu", gpu(0, free=None, total=None), rmm_pool_size="500GiB").rmm_pool_size == 500 * GIB


def test_a_spec_is_checked_again_when_it_is_started() -> None:
    spec = planned("gpu", gpu(0))
    with pytest.raises(BadInputError, match="devices has 'GPU-0', which isn't there"):
        check(spec, with_gpus(gpu(1)))
    with pytest.raises(ConflictError, match="too little free memory"):
        check(spec, with_gpus(gpu(0, free=0)))


@pytest.mark.parametrize(
    "ask",
    [lambda record: control.scale(record.name, 3), lambda record: control.adapt(record.name, 1, 3)],
)
def test_a_cluster_does_not_grow_past_its_gpus(
    ask: Callable[[ClusterRecord], Any], data_folder: Path, asleep: dict[str, Any]
) -> None:
    record = ClusterRecord(name="calm-otter", spec=planned("gpus", gpu(0), gpu(1)), status="ready", **asleep)
    records.create(record)
    with pytest.raises(BadInputError, match=r"is 3, and calm-otter has 2 GPUs, a worker for each\. Give at most 2"):
        asyncio.run(ask(record))


def test_many_gpus_do_not_need_many_cores() -> None:
    eight = planned("gpus", *map(gpu, range(8)))
    check_budget(eight, machine(usable=1), [])


# Profiles and their remedies


@pytest.mark.parametrize(("driver", "extra"), [("12.8", "cuda12"), ("13.0", "cuda13"), (None, "cuda13")])
def test_the_package_that_fits_the_driver_is_named(driver: str | None, extra: str) -> None:
    there = with_gpus(gpu(0))
    there = there.model_copy(update={"cuda": there.cuda.model_copy(update={"version": driver})})
    reasons = {profile.name: profile.reason for profile in profiles(there, version={}.get)}
    assert reasons["gpu"] == reasons["gpus"] == f"Needs dask-cuda: {install(extra)}."
    assert f"'dask-cuda[cu{extra[-2:]}]==" in install(extra)


def test_with_a_gpu_and_the_packages_its_profiles_are_there() -> None:
    there = {profile.name: profile.available for profile in profiles(with_gpus(gpu(0)), version=PACKAGES.get)}
    assert (there["gpu"], there["gpus"]) == (True, True)


def test_without_a_cuda_driver_it_is_said_what_lacks() -> None:
    assert cuda.problem("libsurely-not-here.so") == "the CUDA driver (libsurely-not-here.so) is not installed"


# The same in plain Dask


@pytest.mark.parametrize("cupy", [True, False])
def test_the_code_of_a_spec_is_a_local_cuda_cluster(cupy: bool) -> None:
    spec = planned("gpus", gpu(0), gpu(1), rmm_pool_size="8GiB").model_copy(update={"cupy": cupy})
    code = explained(spec).code
    (call,) = (
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LocalCUDACluster"
    )
    given = {str(word.arg): ast.unparse(word.value) for word in call.keywords}
    assert given["CUDA_VISIBLE_DEVICES"] == "['GPU-0', 'GPU-1']"
    assert (given["rmm_pool_size"], given["protocol"]) == (str(8 * GIB), "'tls'")
    assert ("pre_import" in given) is cupy
    assert given.get("rmm_allocator_external_lib_list") == ("['cupy']" if cupy else None)
    assert "from dask_cuda import LocalCUDACluster" in code
    assert "workbench" not in code


# Real clusters on simulated devices


@pytest.fixture
def workbench(data_folder: Path, simulated_nvml: SimulatedNvml) -> Callable[..., Any]:
    """Run the command line with so many simulated GPUs."""

    def command(*words: str, gpus: int, **settings: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "workbench", *words],
            env=simulated_nvml.environment(gpus, **settings),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return command


def up(workbench: Callable[..., Any], *words: str, gpus: int, **settings: Any) -> dict[str, Any]:
    done = workbench("up", *words, "--json", gpus=gpus, **settings)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


SPECS = """
import asyncio, json, os, sys
from dask_cuda import LocalCUDACluster
from workbench.hardware import inventory
os.cpu_count = lambda: 80  # as many as a DGX-1 has: Dask-CUDA asks NVML for no more
async def main():
    devices = [gpu.uuid for gpu in inventory().gpus]
    cluster = LocalCUDACluster(
        CUDA_VISIBLE_DEVICES=devices,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        asynchronous=True,
    )
    cluster.scale(0)
    cluster.scale(8)
    workers = [cluster.worker_spec[device]["options"] for device in devices]
    cores = [next(sorted(each.cores) for each in worker["plugins"] if hasattr(each, "cores")) for worker in workers]
    print(json.dumps(cores), flush=True)
    os._exit(0)
asyncio.run(main())
"""


@needs_dask_cuda
def test_workers_are_pinned_as_the_matrix_of_the_dgx_1_says(simulated_nvml: SimulatedNvml) -> None:
    cores = json.loads(simulated_nvml.python(SPECS, preset="dgx1"))
    first, second = [*range(20), *range(40, 60)], [*range(20, 40), *range(60, 80)]
    assert cores == 4 * [first] + 4 * [second]


@needs_dask_cuda
def test_each_chosen_device_has_a_worker_that_is_pinned_and_nothing_computes_where_nothing_can(
    workbench: Callable[..., Any],
) -> None:
    told = up(workbench, "gpus", "--devices", "1,3", "--device-memory-limit", "2GiB", gpus=4)
    assert (told["n_workers"], len(told["devices"]), told["profile"]) == (2, 2, "gpus")
    with connect(told["name"]) as client:
        assert {places.split(",")[0] for places in client.run(os.getenv, "CUDA_VISIBLE_DEVICES").values()} == set(
            told["devices"]
        )
    if told["warning"] is None:
        pytest.skip("There is a real GPU here, so a run would compute.")
    assert "Its GPUs can't compute" in told["warning"]
    ran = workbench("run", "array_sum", "--cluster", told["name"], "-p", "size=16MiB", gpus=4)
    assert ran.returncode == 2
    assert ran.stderr.startswith(
        f"workbench: Nothing can be run on {told['name']}, which has workers without a device to compute on. Its GPUs"
    )
    assert "Traceback" not in ran.stderr


def test_a_warning_keeps_nobody_from_computing_while_every_worker_has_a_device(data_folder: Path) -> None:
    spec = planned("gpus", gpu(0)).model_copy(update={"cupy": False})
    warned = ClusterRecord(name="calm-otter", spec=spec, status="ready", warning="GPU 0 is hot.")
    # It gets past that, to what it lacks next.
    with pytest.raises(ConflictError, match="have no CuPy"):
        submit("array_sum", {}, warned)
    without = warned.model_copy(update={"can_compute": False})
    with pytest.raises(ConflictError, match=r"without a device to compute on\. GPU 0 is hot\. Run it on a cpu"):
        submit("array_sum", {}, without)


@needs_dask_cuda
@pytest.mark.skipif(cuda.problem() is None, reason="There is a real GPU here, with a driver and a CuPy of its own.")
def test_blocks_travel_between_simulated_gpus_over_ucx(
    simulated_nvml: SimulatedNvml, data_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("distributed_ucxx")
    env = computing(simulated_nvml.environment(2), tmp_path / "cuda")
    words = ("run", "transpose_sum", "--on", "ucx --workers 2 --memory 1GiB", "--yes", "--json")
    words += ("-p", "shape=1000,1000", "-p", "chunks=500", "-p", "persist=true")
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *words], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert (run["status"], run["check"]["passed"], run["simulated"]) == ("done", True, True)
    assert run["on_gpu"]["share"] == 1
    assert run["result"]["bandwidth"]["transport"].startswith("ucx")


@needs_dask_cuda
def test_the_code_of_a_spec_runs_as_it_is(
    workbench: Callable[..., Any], simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    code = json.loads(workbench("up", "gpus", "--memory", "2GiB", "--code", "--json", gpus=1).stdout)["code"]
    script = tmp_path / "cluster.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=simulated_nvml.environment(1),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "processes=1 threads=1" in done.stdout


@needs_dask_cuda
@pytest.mark.skipif(cuda.problem() is None, reason="There is a real GPU here, on which RMM gets its pool.")
def test_workers_that_do_not_come_fail_the_start_with_their_own_log(workbench: Callable[..., Any]) -> None:
    done = workbench("up", "gpu", "--rmm-pool-size", "1GiB", "--name", "calm-otter", gpus=1)
    assert done.returncode == 1
    assert done.stderr.startswith("workbench: Cluster calm-otter failed to start. The cluster did not start: CUDA")
    assert "Worker failed to start" in done.stderr


@needs_dask_cuda
def test_a_gpu_that_is_full_starts_nothing(workbench: Callable[..., Any]) -> None:
    done = workbench("up", "gpu", gpus=1, memory=16 * GIB, used=16 * GIB)
    assert (done.returncode, "too little free memory" in done.stderr) == (2, True)
    assert records.names() == ()
