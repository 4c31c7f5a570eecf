"""The workers' half of watching GPUs: one thread in each worker process reads the GPUs that no other one reads.

This module travels to the workers as source text, as `plugin` does to the scheduler, together with
`workbench.hardware.sampling`, which reads. It may import only what a worker has.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

TOPIC = "workbench-gpus"

# A worker of dask-cuda leaves the GPUs that it sees beside its own to their own workers for so long, in seconds.
# It is also how often a worker looks whether a GPU has lost its reader.
CLAIM_INTERVAL = 2.0


class GpuSampler(WorkerPlugin):
    """Reads GPUs in a thread of its own and sends what it finds to the scheduler, from `setup` until `teardown`.

    `reading` is the module `workbench.hardware.sampling`, and `interval` the seconds between two samples of a GPU. GPUs
    are shared out among all samplers of one watch on a host.
    """

    def __init__(self, reading: Any, watch: str, interval: float) -> None:
        self._reading = reading
        self._watch = watch
        self._interval = interval
        self._ended = threading.Event()
        self._send: Callable[[dict[str, Any]], None] = lambda message: None

    def setup(self, worker: Any) -> None:
        """Begin to sample."""
        about = {
            "watch": self._watch,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pids_known": self._reading.own_processes_named(),
        }
        self._send = lambda message: worker.log_event(TOPIC, about | message)
        threading.Thread(target=self._run, name="workbench-gpus", daemon=True).start()

    def teardown(self, worker: Any) -> None:
        """Sample no more. The thread ends after the call that it is in."""
        self._ended.set()

    def _run(self) -> None:
        try:
            devices = self._reading.Devices()
        except self._reading.NoGpusError as err:
            self._tell({"nothing": str(err), "expected": err.expected})
            return
        try:
            self._tell({})
            self._sample(_Shares(devices, self._watch))
        finally:
            devices.close()

    def _sample(self, shares: _Shares) -> None:
        slow = self._reading.SLOW
        n_ticks = max(1, round(slow / self._interval))
        tick, due = 0, time.monotonic()
        try:
            while not self._ended.is_set():
                mine = shares.claimed()
                samples = []
                for place, device in enumerate(mine):
                    if (tick - place) % n_ticks == 0:
                        device.read_slowly()
                    samples.append(device.read())
                if samples:
                    self._tell({"samples": samples})
                # After the others, which they would delay: these take 20 ms each, so they are spread over the ticks.
                for turn in range(tick % n_ticks, 2 * len(mine), n_ticks):
                    mine[turn // 2].read_pcie(("pcie_rx", "pcie_tx")[turn % 2])
                tick += 1
                due = max(due + self._interval, time.monotonic())
                self._ended.wait(due - time.monotonic())
        finally:
            shares.give_up()

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._send(message)
        except RuntimeError:
            self._ended.set()  # the worker's event loop is closed


class _Shares:
    """Which of the GPUs in sight this process reads. A name that only one process can hold settles it."""

    def __init__(self, devices: Any, watch: str) -> None:
        self._devices = devices
        self._watch = watch
        self._held: dict[str, Any] = {}
        self._mine: list[Any] = []
        self._began = time.monotonic()
        self._tried = self._began - CLAIM_INTERVAL

    def claimed(self) -> list[Any]:
        """The devices to read now."""
        now = time.monotonic()
        if now - self._tried >= CLAIM_INTERVAL:
            self._tried = now
            alone = self._devices.own_first and now - self._began < CLAIM_INTERVAL
            for uuid in self._devices.uuids[: 1 if alone else None]:
                if uuid not in self._held:
                    self._claim(uuid)
        return self._mine

    def give_up(self) -> None:
        """Leave all to others."""
        for held in self._held.values():
            if held is not None:
                held.close()

    def _claim(self, uuid: str) -> None:
        try:
            self._held[uuid] = _hold(f"workbench-{self._watch}-{uuid}")
        except OSError:
            return
        self._mine.append(self._devices.device(uuid))


def _hold(name: str) -> Any:
    """Something that no other process has while this one holds it. OSError while another one does."""
    if sys.platform != "linux":
        return None  # the scheduler drops what it gets twice
    # A name without a file (unix(7), abstract sockets): it goes with the process, however that ends.
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0{name}")
    except OSError as err:
        held.close()
        if err.errno == errno.EADDRINUSE:
            raise
        return None
    return held
