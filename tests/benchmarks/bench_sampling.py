"""Cost of sampling GPUs for a worker: percent of one core at 4 Hz, with 1 and 8 simulated GPUs in one process.

`python -m tests.benchmarks sampling`, or this file with `--seconds N` and `--cost MICROSECONDS`. The simulated driver
keeps the processor busy for so long in each call (the second row; a guess, for want of a device), and a PCIe counter
sleeps 20 ms. On a cluster a worker has one GPU; eight in one process is the worst case.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.simulated import build, environment

INTERVAL = 0.25
GOAL = 1.0


def measured(seconds: float) -> dict[str, float]:
    """CPU of a process that does nothing but sample, in percent of a core, and of what it consists in µs."""
    from msgpack import packb

    from workbench.hardware import sampling
    from workbench.monitor.sampler import GpuSampler

    sent: list[int] = []

    def log_event(topic: str, message: dict[str, Any]) -> None:
        sent.append(len(packb(message)))

    sampler = GpuSampler(sampling, f"bench-{os.getpid()}", INTERVAL)
    sampler.setup(SimpleNamespace(log_event=log_event))
    time.sleep(1)
    cpu, began = time.process_time(), time.monotonic()
    time.sleep(seconds)
    used = 100 * (time.process_time() - cpu) / (time.monotonic() - began)
    sampler.teardown(None)
    time.sleep(2 * INTERVAL)
    devices = sampling.Devices()
    device = devices.device(devices.uuids[0])
    device.read_slowly()
    return {
        "percent": used,
        "messages": len(sent),
        "bytes": sum(sent) / len(sent),
        "reading": _each(device.read),
        "call": _each(lambda: device._call("nvmlDeviceGetPowerUsage")),
    }


def _each(work: Any, repeats: int = 400) -> float:
    began = time.process_time()
    for _ in range(repeats):
        work()
    return 1e6 * (time.process_time() - began) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cost", type=float, default=20, help="microseconds that a call of a real driver may take")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(measured(chosen.seconds)))
        return
    print(f"sampling every {INTERVAL} s for {chosen.seconds:g} s, in a process of its own   goal: at most {GOAL:g} %")
    with tempfile.TemporaryDirectory() as folder:
        nvml = build(Path(folder))
        for gpus in (1, 8):
            for cost in (0.0, chosen.cost):
                env = environment(nvml, gpus, load="wave", cost=cost, preset="dgx1" if gpus == 8 else "")
                done = subprocess.run(
                    [sys.executable, __file__, "--measure", "--seconds", str(chosen.seconds)],
                    env=env | {"PYTHONPATH": str(Path(__file__).parents[2])},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                found = json.loads(done.stdout)
                print(
                    f"  {gpus} GPU{'s' if gpus > 1 else ' '}, {cost:3g} µs a call: {found['percent']:5.2f} % of a core"
                    f"   a sample {found['reading']:4.0f} µs, a call by pynvml {found['call']:4.1f} µs,"
                    f" a message {found['bytes']:.0f} bytes"
                )


if __name__ == "__main__":
    main()
