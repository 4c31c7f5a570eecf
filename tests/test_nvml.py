"""The inventory of GPUs, on simulated devices."""

from __future__ import annotations

from tests.simulated import SimulatedNvml


def test_every_device_says_that_it_is_simulated(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(2)
    assert [gpu.name for gpu in found.gpus] == ["SIMULATED GPU 0", "SIMULATED GPU 1"]
