"""GPUs that only the workers see, on a server that sees none: a live figure, and a GPU that is lost in mid-run.

Arrays would need CuPy and a device to be computed on the GPUs of a cluster. What works here works on NumPy's, and asks
the driver of its own GPU for memory, as CuPy does: a GPU that is lost refuses that.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from tests.server.conftest import html_of
from tests.server.test_views import text_of
from tests.simulated import SimulatedNvml, simulated_nvml
from workbench.packages import installed_version

__all__ = ["simulated_nvml"]

LOST = "the GPU has fallen off the bus"
PATIENCE = 30.0


@pytest.fixture
def jp_server_config(data_folder: Path) -> Config:
    """Configure a server as it is installed."""
    return Config({"ServerApp": {"jpserver_extensions": {"workbench": True}, "allow_unauthenticated_access": False}})


@pytest.fixture
def shown(service: Any) -> Callable[..., Any]:
    """Asks for a view until it tells all of these words; its HTML."""

    async def asked(view: str, *words: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while True:
            html: str = await html_of(service, view)
            if all(word in text_of(html) for word in words):
                return html
            assert time.monotonic() < deadline, text_of(html)
            await asyncio.sleep(0.2)

    return asked


async def drawn_until(watch: Any, true: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Take changes of a figure until their latest columns by source are as wanted; those columns."""
    drawn: dict[str, Any] = {}
    deadline = time.monotonic() + PATIENCE
    while not true(drawn):
        assert time.monotonic() < deadline, drawn
        await asyncio.sleep(0.2)
        changes = await watch.take()
        drawn |= {patch["source"]: patch["columns"] for patch in (changes or {}).get("patches", ()) if patch["columns"]}
    return drawn


WORK = """
import sys, time
from pathlib import Path
import workbench

def work(place):
    import os, numpy, pynvml
    pynvml.nvmlInit()
    try:
        gpu = pynvml.nvmlDeviceGetHandleByUUID(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0].encode())
        pynvml.nvmlDeviceGetMemoryInfo(gpu)
    except pynvml.NVMLError as error:
        raise RuntimeError(f"out of reach: {error}") from None
    return float(numpy.random.default_rng(place).normal(size=100_000).sum())

with workbench.connect("calm-otter") as client, workbench.watch(client, name="sums"):
    client.gather(client.map(work, range(8)))
    time.sleep(1)  # so that something is seen of both GPUs
    Path(sys.argv[1]).touch()
    workers = list(client.scheduler_info()["workers"])
    client.gather([client.submit(work, place, workers=[worker]) for place, worker in enumerate(workers, 8)])
"""


@pytest.mark.skipif(
    installed_version("dask-cuda") is None, reason="dask-cuda isn't installed, which starts a worker for each GPU."
)
async def test_gpus_that_only_the_workers_see_are_drawn_and_one_that_is_lost_is_called_so(
    service: Any, shown: Any, simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    lost = tmp_path / "lost"
    env = simulated_nvml.environment(2, load="40", lost={1: lost})

    async def python(*words: str, fails: bool = False) -> str:
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, *words], env=env, capture_output=True, text=True, check=False
        )
        assert fails == bool(done.returncode), done.stderr
        return done.stderr if fails else done.stdout

    try:
        up = ("up", "gpus", "--memory", "1GiB", "--no-encrypt", "--yes", "--name", "calm-otter")
        await python("-m", "workbench", *up)
        await shown("workers:calm-otter", "40 %")
        watch = await (await service.watching()).watch_cluster("calm-otter", "light", lambda: None)
        drawn = await drawn_until(watch, lambda drawn: {"GPU 0", "GPU 1"} <= {*drawn.get("gpu_use", {}).get("gpu", ())})
        assert "40 % busy" in drawn["gpu_use"]["text"]

        assert "GPU is lost" in await python("-c", WORK, str(lost), fails=True)
        await drawn_until(watch, lambda drawn: LOST in drawn.get("gpu_words", {}).get("text", ""))
        watch.leave()
        await shown("runs", "sums failed", "GPU is lost")
    finally:
        await python("-m", "workbench", "down", "--all")
