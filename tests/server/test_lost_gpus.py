"""GPUs that only the workers see, on a server that sees none: live bars, and a GPU that is lost in mid-run."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from tests.server.test_fragments import text_of
from tests.simulated import SimulatedNvml, simulated_nvml
from workbench.hardware.sources import installed_version

__all__ = ["simulated_nvml"]

LOST = "the GPU has fallen off the bus"
PATIENCE = 60.0


@pytest.fixture
def jp_server_config(data_folder: Path) -> Config:
    """A server as it is installed."""
    return Config({"ServerApp": {"jpserver_extensions": {"workbench": True}, "allow_unauthenticated_access": False}})


@pytest.fixture
def shown(api: Any) -> Callable[..., Any]:
    """Asks for a fragment until it tells all of these words; its HTML."""

    async def asked(fragment: str, *words: str) -> str:
        async with asyncio.timeout(PATIENCE):
            while True:
                html: str = (await api("GET", f"fragments/{fragment}")).content["html"]
                if all(word in text_of(html) for word in words):
                    return html
                await asyncio.sleep(0.2)

    return asked


@pytest.mark.skipif(
    installed_version("dask-cuda") is None, reason="dask-cuda isn't installed, which starts a worker for each GPU."
)
async def test_gpus_that_only_the_workers_see_have_bars_until_they_are_lost(
    shown: Any, simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    lost = tmp_path / "lost"
    env = simulated_nvml.environment(2, load="40", lost={1: lost})

    def workbench(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "workbench", *words], env=env, capture_output=True, check=True)

    try:
        await asyncio.to_thread(workbench, "up", "gpus", "--memory", "1GiB", "--no-encrypt", "--name", "calm-otter")
        html = await shown("cluster:calm-otter", "SIMULATED GPU 0 140 W", "SIMULATED GPU 1 140 W")
        assert len(re.findall(r'aria-label="Use of SIMULATED GPU \d" [^>]*aria-valuenow="40"', html)) == 2
        assert html.count("as its worker tells") == 2
        lost.touch()
        html = await shown("cluster:calm-otter", "GPU 1 (GPU-00000000-0000-0000-0000-000000000001) was lost", LOST)
        assert "SIMULATED GPU 0 140 W" in text_of(html)
        assert f"SIMULATED GPU 1 No use, memory, power and temperature: {LOST}." in text_of(html)
    finally:
        await asyncio.to_thread(workbench, "down", "--all")
