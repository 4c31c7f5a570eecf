"""Clusters on a real GPU, or on simulated ones, where what they can't show is skipped."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import bench_gpu
from tests.conftest import using_data_folder
from workbench.clusters import cuda
from workbench.hardware import inventory

NEEDED = ("cupy", "dask_cuda", "numba_cuda", "rmm")
"""Modules of the packages in the extra for CUDA."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of them where there is no device, and say why."""
    problem = cuda.problem()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if problem is not None:
                item.add_marker(pytest.mark.skip(reason=f"These tests need a real NVIDIA GPU: {problem}."))


def pytest_runtest_setup() -> None:
    """Fail each of them where there is a device and a package is missing: skipped, nobody would notice."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing and not bench_gpu.simulated(devices()):
        pytest.fail(f"There is a GPU here, and these tests can't use it without {', '.join(missing)}.", pytrace=False)


@cache
def devices() -> list[str]:
    """Names of the devices."""
    return [gpu.name for gpu in inventory().visible_gpus()]


@pytest.fixture(autouse=True, scope="session")
def _told(record_testsuite_property: Callable[[str, object], None]) -> None:
    """junit.xml says on which devices this was."""
    record_testsuite_property("devices", ", ".join(devices()))


@pytest.fixture(scope="session")
def shorter() -> int:
    """Return the factor by which the sides of large arrays are shortened."""
    return bench_gpu.SIMULATED_SIDES if bench_gpu.simulated(devices()) else 1


@pytest.fixture
def real_device() -> None:
    """Skips where there is none."""
    if bench_gpu.simulated(devices()):
        pytest.skip("The devices are SIMULATED: they have no memory, no allocator and no sensors of their own.")


@pytest.fixture(scope="session")
def gpu_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Provide a data folder for all clusters of these tests."""
    with using_data_folder(tmp_path_factory.mktemp("gpu")) as path:
        yield path


@contextlib.contextmanager
def cluster_of(name: str, profile: str = "gpu", **choices: Any) -> Iterator[Any]:
    """Start a cluster, yield its record, and stop it at the end of the block."""
    from workbench.session import Session

    session = Session()
    session.start(session.plan(profile, **choices), name=name, force=True)
    try:
        record = session.wait(name, timeout=120)
        assert record.warning is None, record.warning
        yield record
    finally:
        session.stop(name)


@pytest.fixture
def gpu_cluster(gpu_data_folder: Path) -> Callable[..., contextlib.AbstractContextManager[Any]]:
    """Return a function that starts clusters."""
    return cluster_of


@pytest.fixture(scope="module")
def one_gpu(gpu_data_folder: Path) -> Iterator[Any]:
    """Provide a cluster on one GPU."""
    with cluster_of("one-gpu") as record:
        yield record


@pytest.fixture
def gpu_client(one_gpu: Any) -> Iterator[Any]:
    """Provide a client of it, with arrays made on the worker's GPU."""
    from workbench.clusters.connect import connect
    from workbench.linalg import backend

    with connect(one_gpu.name) as client, backend.on_workers():
        yield client
