"""Arrays on the workers' GPUs, from a process that has none: with a stand-in for CuPy on the workers' path."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.backends import array_creation_dispatch

from workbench import genotypes
from workbench.errors import BadInputError
from workbench.genotypes import simulated
from workbench.linalg import backend
from workbench.workloads import template
from workbench.workloads.svd import held, random_matrix

STANDIN = Path(__file__).parent / "standin"


@pytest.fixture(scope="module")
def device_client() -> Iterator[Any]:
    """Provide a client without cupy, of a cluster whose scheduler and worker find the stand-in."""
    code = (
        "import sys, time\nfrom distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address='127.0.0.1:0',\n"
        "                      protocol='tcp', host='127.0.0.1') as cluster:\n"
        "        print(cluster.scheduler_address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    # As Dask's own workers have it: on a busy machine, threads of BLAS wait for each other.
    env = os.environ | {"PYTHONPATH": str(STANDIN), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        from distributed import Client

        with Client(process.stdout.readline().strip()) as client:
            yield client
        process.stdin.close()
        process.wait(timeout=20)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_sum_that_stores_nothing_is_made_on_devices_and_is_the_same_whatever_its_blocks(
    device_client: Any, dtype: str
) -> None:
    answers = []
    for chunks in ([301, 203], [151, 101]):
        chosen, given = template("array_sum"), {"shape": [301, 203], "generator": "fused", "dtype": dtype, "seed": 7}
        with backend.on_workers():
            checked = chosen.validate({**given, "chunks": chunks}, threads=2)
            summary, check = chosen.compute(checked, device_client)
            value = device_client.compute(chosen.build(checked)["value"])
            assert device_client.submit(kind_of, value).result() == "cupy"
            checked = chosen.validate({**given, "chunks": chunks, "reduction": "mean"}, threads=2)
            mean, mean_check = chosen.compute(checked, device_client)
        assert check.passed, check.what
        assert mean_check.passed, mean_check.what
        assert mean["value"] == pytest.approx(summary["value"] / (151 * 102), rel=1e-6)
        answers.append(summary["value"])
    assert answers[0] == pytest.approx(answers[1], rel=1e-6 if dtype == "float32" else 1e-13)


def test_a_sum_that_stores_nothing_is_refused_where_there_are_no_gpus() -> None:
    chosen, given = template("array_sum"), {"shape": [400, 400], "generator": "fused"}
    with pytest.raises(BadInputError, match=r"generator of array_sum is 'fused', which is for GPUs\. Give tiles"):
        chosen.validate(given, threads=2)
    with pytest.raises(BadInputError, match=r"generator=fused\) is for GPUs: array.backend is not 'cupy'"):
        chosen.compute(chosen.validate(given))


def test_genotypes_of_a_compressed_svd_are_drawn_on_devices_and_are_the_same_whatever_their_blocks(
    device_client: Any,
) -> None:
    chosen, given = template("compressed_svd"), {"shape": [801, 63], "k": 3, "n_power_iter": 12}
    numbers = []
    for chunks in ([200, 63], [801, 17]):
        checked = chosen.validate({**given, "chunks": chunks, "seed": 7}, threads=2, on_gpu=True)
        with backend.on_workers():
            summary, check = chosen.compute(checked, device_client)
            x = random_matrix((801, 63), (chunks[0], chunks[1]), "uint8", 7)
            assert device_client.submit(kind_of, device_client.compute(x.blocks[0, 0])).result() == "cupy"
            numbers.append(x.to_backend("numpy").compute())
        assert check.passed, check.what
        expected = np.linalg.svd(numbers[0].astype(float), compute_uv=False)[:3]
        np.testing.assert_allclose(summary["singular_values"], expected, rtol=1e-2)
    assert "GPUs draw 0, 1 and 2 with a kernel of ours" in " ".join(checked.notes)
    np.testing.assert_array_equal(*numbers)
    np.testing.assert_allclose(np.bincount(numbers[0].ravel()) / numbers[0].size, 1 / 3, atol=0.02)


def test_processors_draw_genotypes_as_the_post_does() -> None:
    x = random_matrix((90, 40), (30, 40), "uint8", 7)
    expected = da.random.RandomState(7).randint(0, 3, size=(90, 40), chunks=(30, 40), dtype="uint8")
    assert x.name == expected.name
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("from_file", [False, True])
def test_packed_genotypes_are_multiplied_on_devices(device_client: Any, tmp_path: Path, from_file: bool) -> None:
    given: dict[str, Any] = {"n_variants": 3000, "n_samples": 203, "n_populations": 4}
    if from_file:
        genotypes.pack_to_zarr(genotypes.simulate(3000, 203, n_populations=4, missing=0.02), tmp_path / "study.zarr")
        given = {"path": str(tmp_path / "study.zarr")}
    chosen = template("genotype_pca")
    given |= {"n_components": 3, "tol": 1e-7}
    with backend.on_workers():
        checked = chosen.validate(given, threads=2, on_gpu=True)
        assert checked.resolved["on_device"]
        assert "Packed genotypes are decoded and multiplied by the GPUs of the workers." in checked.notes
        built = chosen.build(checked)
        device_client.wait_for_workers(1)
        assert chosen.check(checked, built, device_client).passed
        operator = built["components"]._operator
        assert device_client.submit(kind_of, device_client.compute(operator.packed.blocks[0])).result() == "cupy"
        packed = operator.packed.to_backend("numpy").compute()
    samples = np.arange(203)
    source = genotypes.Genotypes(da.from_array(packed, chunks=(500, -1)), samples)
    if from_file:
        source = genotypes.open_genotypes(tmp_path / "study.zarr")
    with dask.config.set(scheduler="synchronous"):
        expected = genotypes.pca(source, 3, tol=1e-7, kernel="numpy")
    np.testing.assert_allclose(built["components"].singular_values, expected.singular_values, rtol=1e-9)


def test_genotypes_drawn_on_devices_have_the_frequencies_of_those_drawn_on_the_host(
    device_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {"missing": 0.05, "monomorphic": 0.1, "all_missing": 0.1, "seed": 3}
    found = []
    for n_bytes in (2**28, 256 * 76):
        monkeypatch.setattr(simulated, "_DEVICE_BYTES", n_bytes)
        with backend.on_workers():
            drawn = genotypes.simulate(600, 301, n_populations=3, on_device=True, **shares)
            assert device_client.submit(kind_of, device_client.compute(drawn.packed.blocks[0])).result() == "cupy"
            found.append(drawn.packed.to_backend("numpy").compute())
    np.testing.assert_array_equal(*found)
    counts = genotypes.unpack(found[0], 301)
    host = genotypes.simulate(600, 301, n_populations=3, **shares).counts().compute(scheduler="synchronous")
    unknown = (host == 255).all(axis=1)
    assert (unknown == (counts == 255).all(axis=1)).all()
    assert (counts[~unknown] == 255).mean() == pytest.approx(0.05, abs=0.005)
    there, here = (np.ma.masked_equal(each[~unknown], 255).astype(float) for each in (counts, host))
    fixed = here.std(axis=1) == 0
    assert fixed.sum() > 30
    np.testing.assert_array_equal(there[fixed].mean(axis=1), here[fixed].mean(axis=1))
    for population in range(3):
        part = np.arange(301) * 3 // 301 == population
        apart = there[:, part].mean(axis=1) - here[:, part].mean(axis=1)
        # Two means of about a hundred genotypes, each of a variance of at most a half.
        assert np.abs(apart).max() < 5 * np.sqrt(2 * 0.5 / 90)
        assert abs(apart.mean()) < 5 * np.sqrt(2 * 0.5 / 90 / len(apart))


def kind_of(block: Any) -> str:
    return type(block).__module__


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("array_sum", {"shape": [400, 400], "chunks": 200, "dtype": "float32"}),
        ("transpose_sum", {"shape": [400, 400], "chunks": 200}),
        ("tall_skinny_svd", {"shape": [1500, 20], "chunks": 500}),
        ("compressed_svd", {"shape": [400, 60], "chunks": [200, 30], "dtype": "float32"}),
        ("tall_skinny_svd", {"shape": [1500, 20], "chunks": 500, "method": "dask"}),
        ("compressed_svd", {"shape": [400, 60], "chunks": [200, 30], "dtype": "float64", "method": "dask"}),
    ],
)
def test_a_template_runs_on_devices_unchanged_and_passes_its_check(
    device_client: Any, name: str, parameters: dict[str, Any]
) -> None:
    chosen = template(name)
    checked = chosen.validate(parameters, threads=2)
    with backend.on_workers():
        summary, check = chosen.compute(checked, device_client)
    assert check.passed, check.what
    # The stand-in draws what NumPy draws. Dask gives both the same keys, so the other is computed elsewhere.
    with dask.config.set(scheduler="synchronous"):
        expected, _ = chosen.compute(checked)
    for key, value in expected.items():
        if key == "certificate":
            assert summary[key]["status"] == value["status"] != "not reached"
            continue
        np.testing.assert_allclose(summary[key], value, rtol=1e-4 if checked.resolved["dtype"] == "float32" else 1e-10)


def _notes_waiting() -> None:
    import cupy

    cupy.waited = []
    cupy.cuda.Device.synchronize = lambda self: cupy.waited.append(threading.current_thread().name)


def _waited() -> list[str]:
    import cupy

    found: list[str] = cupy.waited
    return found


def test_what_is_held_is_there_when_the_devices_have_made_it(device_client: Any) -> None:
    device_client.run(_notes_waiting)
    array = da.random.RandomState(0).random(size=(40, 40), chunks=20)
    held(array)
    assert list(device_client.run(_waited).values()) == [[]]
    with backend.on_workers():
        held(da.random.RandomState(0).random(size=(40, 40), chunks=20), array)
    ((waited),) = device_client.run(_waited).values()
    # Once on each worker, by a task, so that its loop goes on answering others.
    assert len(waited) == 1
    assert "Dask-Default-Threads" in waited[0]


@pytest.mark.parametrize(
    ("more", "method"), [({}, "workbench"), ({"k": 3, "center": True}, "workbench"), ({"center": True}, "dask")]
)
def test_the_svd_of_a_file_is_found_on_devices(
    device_client: Any, tmp_path: Path, more: dict[str, Any], method: str
) -> None:
    x = np.random.default_rng(0).normal(size=(300, 40)) * np.arange(40, 0, -1) ** 2
    np.save(tmp_path / "x.npy", x)
    chosen = template("svd_of_file")
    with backend.on_workers():
        checked = chosen.validate({"path": str(tmp_path / "x.npy"), "method": method, **more}, threads=2)
        summary, check = chosen.compute(checked, device_client)
    assert check.passed, check.what
    x = x - x.mean(axis=0) if more.get("center") else x
    count = more.get("k", 40)
    np.testing.assert_allclose(summary["singular_values"], np.linalg.svd(x, compute_uv=False)[:count], rtol=1e-6)


def test_blocks_are_made_on_the_workers_and_nothing_of_cupy_is_needed_here(device_client: Any) -> None:
    with backend.on_workers():
        rs = da.random.RandomState(0)
        arrays = [rs.normal(size=(8, 8), chunks=4), da.ones((8, 8), chunks=4), da.arange(8, chunks=4)]
        arrays += [da.from_array(np.ones((8, 8)), chunks=4).to_backend()]
        persisted = device_client.persist(arrays)
        kinds = [device_client.submit(kind_of, device_client.compute(x.blocks[0])).result() for x in persisted]
        assert kinds == ["cupy"] * 4
        read = [x.to_backend("numpy").compute() for x in persisted]
    assert "cupy" not in sys.modules
    assert [type(x) for x in read] == [np.ndarray] * 4
    assert [x.sum() for x in read[1:]] == [64, 28, 64]
    assert [x.dtype for x in read] == [x.dtype for x in arrays]


def test_random_numbers_of_the_kind_that_needs_a_gpu_here_say_so() -> None:
    with backend.on_workers(), pytest.raises(BadInputError, match=r"needs a GPU in this process.*RandomState"):
        da.random.default_rng(0)


def test_afterwards_arrays_are_made_as_before() -> None:
    before = dict(array_creation_dispatch._lookup)
    with backend.on_workers():
        assert dask.config.get("array.backend") == "cupy"
    assert dask.config.get("array.backend", None) != "cupy"
    assert array_creation_dispatch._lookup == before
    x = da.ones((4, 4), chunks=2)
    assert x.to_backend() is x
    assert x.to_backend("numpy") is x


def test_registered_for_good_it_changes_nothing_until_somebody_asks_for_cupy() -> None:
    before = dict(array_creation_dispatch._lookup)
    try:
        backend.register()
        x = da.ones((4, 4), chunks=2)
        assert x.to_backend("numpy") is x
        assert float(x.sum().compute()) == 16
        with dask.config.set({"array.backend": "cupy"}):
            assert x.to_backend("numpy") is not x
    finally:
        array_creation_dispatch._lookup.clear()
        array_creation_dispatch._lookup.update(before)


def test_what_travels_is_the_name_of_a_function() -> None:
    there = backend.Remote("math", "sqrt", here=abs)
    assert there(-4) == 4
    assert pickle.loads(pickle.dumps(there))(4) == 2
    assert dask.base.tokenize(there) == dask.base.tokenize(backend.Remote("math", "sqrt", here=min))


def test_the_cell_for_a_cluster_with_gpus_is_plain_dask_with_cupy() -> None:
    chosen = template("tall_skinny_svd")
    code = chosen.cell(chosen.validate({"shape": [1500, 20], "chunks": 500}), "calm-otter", on_gpu=True)
    assert '\ndask.config.set({"array.backend": "cupy"})\n' in code
    assert code.endswith('u, s, v = linalg.svd(x)\ns.to_backend("numpy").compute()\n')
    on_cores = chosen.cell(chosen.validate({"shape": [1500, 20], "chunks": 500}), "calm-otter")
    assert "config.set" not in on_cores
    assert "import cupy" not in on_cores


def test_the_cell_for_gpus_runs_where_the_workers_have_them(device_client: Any) -> None:
    chosen = template("compressed_svd")
    checked = chosen.validate({"shape": [400, 60], "chunks": [200, 30], "dtype": "float64"})
    code = chosen.cell(checked, on_gpu=True)
    names: dict[str, Any] = {}
    with backend.on_workers(), dask.config.set({"array.backend": "numpy"}):
        exec(code, names)
        s = names["s"].to_backend("numpy").compute()
    with dask.config.set(scheduler="synchronous"):
        expected = chosen.compute(checked)[0]["singular_values"]
    np.testing.assert_allclose(s, expected, rtol=1e-6)
