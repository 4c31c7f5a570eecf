"""The workers' part of monitoring GPUs: a thread in each worker process reads the GPUs that no other worker reads.

This module is sent to the workers as source text, as `plugin` is to the scheduler, together with
`workbench.hardware.sampling`, which reads the GPUs. It may import only what a worker has.
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

# Seconds for which a worker of dask-cuda leaves the other GPUs that it sees to their own workers. Also the interval
# at which a worker checks whether a GPU has lost its reader.
CLAIM_INTERVAL = 2.0


class GpuSampler(WorkerPlugin):
    """A plugin that samples GPUs in its own thread and sends them to the scheduler, from `setup` until `teardown`.

    `reading` is the module `workbench.hardware.sampling`, and `interval` the seconds between two samples of a GPU. The
    samplers of one watch divide the GPUs of a host among themselves.
    """

    def __init__(self, reading: Any, watch: str, interval: float) -> None:
        self._reading = reading
        self._watch = watch
        self._interval = interval
        self._ended = threading.Event()
        self._send: Callable[[dict[str, Any]], None] = lambda message: None

    def setup(self, worker: Any) -> None:
        """Start sampling."""
        about = {
            "watch": self._watch,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pids_known": self._reading.own_processes_named(),
        }
        self._send = lambda message: worker.log_event(TOPIC, about | message)
        threading.Thread(target=self._run, name="workbench-gpus", daemon=True).start()

    def teardown(self, worker: Any) -> None:
        """Stop sampling. The thread ends after its current call."""
        self._ended.set()

    def _run(self) -> None:
        try:
            devices = self._reading.Devices()
        except self._reading.NoGpusError as err:
            self._report({"nothing": str(err), "expected": err.expected})
            return
        try:
            self._report({})
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
                    self._report({"samples": samples})
                # PCIe readings take 20 ms each: they come last, to delay no others, and are spread over the ticks.
                for turn in range(tick % n_ticks, 2 * len(mine), n_ticks):
                    mine[turn // 2].read_pcie(("pcie_rx", "pcie_tx")[turn % 2])
                tick += 1
                due = max(due + self._interval, time.monotonic())
                self._ended.wait(due - time.monotonic())
        finally:
            shares.give_up()

    def _report(self, message: dict[str, Any]) -> None:
        try:
            self._send(message)
        except RuntimeError:
            self._ended.set()  # the worker's event loop is closed


class _Shares:
    """The visible GPUs that this process reads. For each, a name that only one process can hold decides."""

    def __init__(self, devices: Any, watch: str) -> None:
        self._devices = devices
        self._watch = watch
        self._claims: dict[str, Any] = {}
        self._mine: list[Any] = []
        self._began = time.monotonic()
        self._tried = self._began - CLAIM_INTERVAL

    def claimed(self) -> list[Any]:
        """Claim free devices if it is time, and return those to read."""
        now = time.monotonic()
        if now - self._tried >= CLAIM_INTERVAL:
            self._tried = now
            alone = self._devices.own_first and now - self._began < CLAIM_INTERVAL
            for uuid in self._devices.uuids[: 1 if alone else None]:
                if uuid not in self._claims:
                    self._claim(uuid)
        return self._mine

    def give_up(self) -> None:
        """Release all devices to other processes."""
        for claim in self._claims.values():
            if claim is not None:
                claim.close()

    def _claim(self, uuid: str) -> None:
        try:
            self._claims[uuid] = _hold(f"workbench-{self._watch}-{uuid}")
        except OSError:
            return
        self._mine.append(self._devices.device(uuid))


def _hold(name: str) -> Any:
    """Take a name that only one process can hold, and return its holder. Raises OSError if another process has it."""
    if sys.platform != "linux":
        return None  # the scheduler drops duplicates
    # A name without a file (unix(7), abstract sockets): it is released when the process ends, in any way.
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0{name}")
    except OSError as err:
        holder.close()
        if err.errno == errno.EADDRINUSE:
            raise
        return None
    return holder
