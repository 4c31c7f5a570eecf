"""Tests that need a real GPU."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from tests.benchmarks import bench_gpu
from tests.standin import on_host
from workbench.genotypes import pack, pca, unpack
from workbench.linalg import cuda
from workbench.runs import store
from workbench.runs.submit import finish, submit
from workbench.workloads import template
from workbench.workloads.svd import random_matrix

GIB = 2**30
TYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


def rounding(dtype: str) -> float:
    return 1e-4 if dtype == "float32" else 1e-9


def computed(client: Any, name: str, **parameters: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answer found on the GPU and the parameters used, after its check has passed."""
    chosen = template(name)
    checked = chosen.validate(parameters, threads=1)
    summary, check = chosen.compute(checked, client)
    assert check.passed, check.what
    return summary, checked.resolved


def normal(resolved: dict[str, Any]) -> Any:
    """Return the random array of the sums, made on the GPU and copied to the host."""
    rs = da.random.RandomState(resolved["seed"])
    x = rs.normal(10, 1, size=tuple(resolved["shape"]), chunks=tuple(resolved["chunks"]))
    return x.astype(resolved["dtype"]).to_backend("numpy").compute()


def uniform(resolved: dict[str, Any]) -> Any:
    values = [resolved[name] for name in ("shape", "chunks", "dtype", "seed")]
    return random_matrix(tuple(values[0]), tuple(values[1]), *values[2:]).to_backend("numpy").compute()


@TYPES
def test_sum_and_mean_are_those_of_numpy(gpu_client: Any, dtype: str) -> None:
    given = {"shape": [2000, 2000], "chunks": 500, "dtype": dtype}
    found, resolved = computed(gpu_client, "array_sum", **given)
    x = normal(resolved).astype("float64")
    assert found["value"] == pytest.approx((x + 1)[::2, ::2].sum(), rel=rounding(dtype))
    found, _ = computed(gpu_client, "array_sum", reduction="mean", **given)
    assert found["value"] == pytest.approx((x + 1)[::2, ::2].mean(), rel=rounding(dtype))


@TYPES
def test_the_sum_with_the_transpose_is_that_of_numpy(gpu_client: Any, dtype: str) -> None:
    found, resolved = computed(gpu_client, "transpose_sum", shape=[2000, 2000], chunks=500, dtype=dtype)
    x = da.random.RandomState(0).random(size=(2000, 2000), chunks=tuple(resolved["chunks"])).astype(dtype)
    x = x.to_backend("numpy").compute().astype("float64")
    assert found["value"] == pytest.approx((x + x.T).sum(), rel=rounding(dtype))


@TYPES
@pytest.mark.parametrize("persist", [False, True])
def test_the_values_of_a_tall_matrix_are_those_of_numpy(gpu_client: Any, dtype: str, persist: bool) -> None:
    given = {"shape": [20_000, 100], "chunks": [2_000, 100], "dtype": dtype, "persist": persist}
    found, resolved = computed(gpu_client, "tall_skinny_svd", **given)
    expected = np.linalg.svd(uniform(resolved).astype("float64"), compute_uv=False)
    np.testing.assert_allclose(found["singular_values"], expected, rtol=rounding(dtype))


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_the_first_values_of_a_large_matrix_are_near_those_of_numpy(gpu_client: Any, dtype: str) -> None:
    given = {"shape": [8_000, 200], "chunks": [2_000, 100], "dtype": dtype, "k": 5, "n_power_iter": 4}
    given |= {"method": "dask"}
    found, resolved = computed(gpu_client, "compressed_svd", **given)
    expected = np.linalg.svd(uniform(resolved).astype("float64"), compute_uv=False)[:5]
    np.testing.assert_allclose(found["singular_values"][0], expected[0], rtol=rounding(dtype))
    # The others of a random matrix lie close together, so that an approximation mixes them.
    np.testing.assert_allclose(found["singular_values"], expected, rtol=0.05)


@pytest.mark.parametrize("more", [{}, {"k": 3, "center": True, "compute": True}])
def test_the_values_of_a_file_are_those_of_numpy(gpu_client: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(3_000, 100)) * np.arange(100, 0, -1) ** 2
    np.save(tmp_path / "x.npy", x)
    found, _ = computed(gpu_client, "svd_of_file", path=str(tmp_path / "x.npy"), **more)
    x = x - x.mean(axis=0) if more else x
    expected = np.linalg.svd(x, compute_uv=False)[: more.get("k", 100)]
    np.testing.assert_allclose(found["singular_values"], expected, rtol=1e-3 if more else 1e-6)


def test_a_run_tells_that_all_its_blocks_were_on_the_gpu_and_what_it_took(one_gpu: Any, shorter: int) -> None:
    given = {"shape": [40_000 // shorter] * 2, "chunks": 10_000 // shorter}
    run = finish(submit("array_sum", given, one_gpu).id, timeout=120)
    assert run.status == "done", (store.folder(run.id) / "log.txt").read_text()
    assert run.on_gpu is not None
    assert run.on_gpu.share == 1
    assert run.on_gpu.warning is None
    assert list(run.on_gpu.devices) == list(one_gpu.spec.devices)
    if run.energy is not None:
        assert run.energy.joules > 0


def test_data_that_exceed_the_card_are_spilled_and_right(gpu_cluster: Any) -> None:
    from workbench.clusters.connect import connect
    from workbench.linalg import backend

    with (
        gpu_cluster("small-card", device_memory_limit="128MiB") as record,
        connect(record.name) as client,
        backend.on_workers(),
    ):
        x = client.persist(da.random.RandomState(0).random(size=(8_000, 8_000), chunks=1_000))
        total = client.compute(x.sum().to_backend("numpy")).result()
        assert float(total) == pytest.approx(3.2e7, rel=1e-3)
        # It is 488 MiB: most of it must have gone to the host's memory.
        on_device = client.run(_bytes_on_device)
        assert max(on_device.values()) <= 1.2 * GIB / 8
        np.testing.assert_allclose(x.blocks[0, 0].mean().to_backend("numpy").compute(), 0.5, atol=0.01)


def _bytes_on_device(dask_worker: Any) -> int:
    return sum(block.nbytes for block in dask_worker.data.device.values())


def test_cupy_takes_its_memory_from_rmms_pool(real_device: None, gpu_cluster: Any) -> None:
    from workbench.clusters.connect import connect

    with gpu_cluster("with-a-pool", rmm_pool_size="2GiB") as record, connect(record.name) as client:
        ((pool, of_cupy),) = client.run(_allocated).values()
    assert "Pool" in pool
    assert of_cupy == 0


def _allocated() -> tuple[str, int]:
    import cupy
    import rmm

    held = cupy.ones(2**27)
    told = type(rmm.mr.get_current_device_resource()).__name__, cupy.get_default_memory_pool().total_bytes()
    del held
    return told


def test_one_gpu_computes_over_ucx(gpu_cluster: Any) -> None:
    from workbench.packages import installed_version

    if installed_version("distributed-ucxx-cu13") is None:
        pytest.skip("distributed-ucxx isn't installed.")
    with gpu_cluster("over-ucx", "ucx", n_workers=1) as record:
        assert record.spec.protocol == "ucx"
        assert len(record.spec.devices) == 1
        run = finish(submit("transpose_sum", {"shape": [8_000, 8_000], "chunks": 2_000}, record).id, timeout=120)
    assert run.status == "done", run.error
    assert run.on_gpu is not None
    assert run.on_gpu.share == 1


def test_samples_have_real_values(real_device: None, gpu_client: Any) -> None:
    from workbench.monitor.feed import Feed

    samples: list[Any] = []
    with Feed(gpu_client, lambda batch: samples.extend(batch.gpus)):
        deadline = time.monotonic() + 20
        while len(samples) < 3 and time.monotonic() < deadline:
            gpu_client.compute(da.random.RandomState(0).random(size=(20_000, 20_000), chunks=5_000).sum()).release()
            time.sleep(0.5)
    assert samples
    last = samples[-1]
    assert "SIMULATED" not in last.name
    assert last.uuid.startswith(("GPU-", "MIG-"))
    if last.memory_used is not None:
        assert 0 < last.memory_used <= last.memory_total
    if last.power is not None:
        assert 1 < last.power < 3000


def test_no_memory_of_the_device_is_left_after_down(real_device: None, gpu_cluster: Any) -> None:
    before = _used()
    with gpu_cluster("short-lived", rmm_pool_size="2GiB"):
        assert _used() - before > GIB
    deadline = time.monotonic() + 20
    while _used() - before > GIB // 10 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _used() - before <= GIB // 10


def _used() -> int:
    """Bytes that NVML says are taken on the device that a cluster would get."""
    from workbench.hardware import inventory

    gpu = inventory().visible_gpus()[0]
    assert gpu.memory_total is not None
    assert gpu.memory_free is not None
    return gpu.memory_total - gpu.memory_free


@pytest.mark.parametrize("kernel", ["numpy", "device"])
def test_components_of_packed_genotypes_are_those_of_numpy(kernel: str) -> None:
    import cupy

    with dask.config.set(scheduler="threads"):
        genotypes = bench_gpu.packed_genotypes("cupy", 10_000, 500, n_populations=6)
        genotypes = replace(genotypes, packed=genotypes.packed.persist())
        assert isinstance(genotypes.packed.blocks[0].compute(), cupy.ndarray)
        found = pca(genotypes, 5, keep=True, kernel=kernel)
        packed = cupy.asnumpy(genotypes.packed.compute())
    assert found.certificate.status != "not reached", found.certificate.sentence
    counts = unpack(packed, 500).astype("float64")
    frequency = counts.mean(axis=1, keepdims=True) / 2
    varies = ((frequency > 0) & (frequency < 1))[:, 0]
    scaled = (counts - 2 * frequency)[varies] / np.sqrt(frequency * (1 - frequency))[varies]
    expected = np.sqrt(np.linalg.eigvalsh(scaled.T @ scaled)[:-6:-1])
    np.testing.assert_allclose(found.singular_values, expected, rtol=1e-3)


def test_blocks_of_cupy_are_packed_where_they_lie() -> None:
    import cupy

    counts = np.random.default_rng(0).integers(0, 3, size=(1000, 1001), dtype="i1")
    counts[::7, 3] = -1
    packed = pack(cupy.asarray(counts))
    assert isinstance(packed, cupy.ndarray)
    np.testing.assert_array_equal(packed.get(), pack(counts))
    np.testing.assert_array_equal(unpack(packed, 1001).get(), unpack(pack(counts), 1001))


@pytest.mark.parametrize("name", [name for names in cuda.KERNELS.values() for name in names])
def test_a_kernel_gives_on_a_device_what_it_gives_on_a_processor(name: str) -> None:
    cupy = pytest.importorskip("cupy", reason="needs CuPy in the process of the tests")
    if on_host.compiler() is None:
        pytest.skip("Kernels on a processor need a C++ compiler, and there is none.")
    grid, block, parameters, place = launch(name)
    there = tuple(cupy.asarray(each) if isinstance(each, np.ndarray) else each for each in parameters)
    cuda.kernel(name)(grid, block, there)
    file = next(file for file, names in cuda.KERNELS.items() if name in names)
    on_host.kernel(cuda.source(file), name)(grid, block, parameters)
    # What is made of whole numbers is the same bit for bit; a logarithm may differ in its last place.
    rtol = {"sum_float64": 1e-12, "sum_float32": 1e-5}.get(name, 0)
    np.testing.assert_allclose(there[place].get(), parameters[place], rtol=rtol)


def launch(name: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Any, ...], int]:
    """Grid, block and parameters of a kernel, and which of these is its answer."""
    rng, height, samples = np.random.default_rng(0), 5_000, 1_003
    packed = rng.integers(0, 256, (height, -(-samples // 4)), dtype=np.uint8)
    n_bytes, threads = packed.shape[1], (cuda.THREADS,)
    if name.startswith("sum"):
        return (4, 512), threads, (7, 4_007, 3, 4_004, 10.0, 1.0, 5, np.zeros((4 * 512 * cuda.THREADS, 2))), 7
    if name == "count":
        return (-(-height // 8),), (32, 8), (packed, n_bytes, height, 0x3F, np.zeros((height, 3), np.int32)), 4
    if name == "draw":
        levels = np.sort(rng.integers(0, 2**31 + 1, (height, 3, 3), dtype=np.uint32), axis=2)
        population = (np.arange(samples) * 3 // samples).astype(np.int32)
        return (
            cuda.grid(n_bytes, height),
            threads,
            (2**33, height, samples, levels, population, 3, 5, np.zeros_like(packed), n_bytes),
            7,
        )
    if name == "draw_counts":
        drawn = np.zeros((height, samples), np.uint8)
        return cuda.grid(samples // 16 + 2, height), threads, (2**33, 2**33 + height, 5, 5 + samples, 5, drawn), 5
    dtype, groups = name.removeprefix("decode_"), n_bytes + 5
    decoded = np.zeros((height, 4 * groups), dtype)
    return (
        cuda.grid(groups, height),
        threads,
        (packed, n_bytes, height, rng.random(height).astype(dtype), decoded, groups),
        4,
    )


@TYPES
def test_a_sum_that_stores_nothing_is_that_of_its_kernel_on_a_processor(gpu_client: Any, dtype: str) -> None:
    found, _ = computed(gpu_client, "array_sum", shape=[3_001, 2_003], chunks=1_000, dtype=dtype, generator="fused")
    sums = np.zeros((16 * cuda.THREADS, 2))
    parameters = (0, 3_001, 0, 2_003, 10.0, 1.0, 0, sums)
    on_host.kernel(cuda.source("normal_sum"), f"sum_{dtype}")((1, 16), (cuda.THREADS,), parameters)
    assert found["value"] == pytest.approx(sums[:, 0].sum(), rel=rounding(dtype))
