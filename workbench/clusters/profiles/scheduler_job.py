"""A scheduler in a job of its own: found by a file that it writes, and asked over the network."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distributed.deploy.spec import ProcessInterface

from workbench.clusters.reaching import ANSWERING, Place, asking

FILE = "scheduler.json"
"""That it writes into the folder of the cluster, which this machine and its node must see."""


class There(NamedTuple):
    """A worker, as a scheduler in this process would hold it."""

    name: str
    processing: Sequence[object]
    """As long as what it has to do."""


class SchedulerJob(ProcessInterface):
    """What a handle needs of a scheduler, of one that is a job of dask-jobqueue's, not submitted yet.

    `files` are the paths of CA, certificate and key; none without encryption.
    """

    def __init__(self, job: Any, folder: Path, files: Sequence[str]) -> None:
        self.address = ""
        super().__init__()
        self.job = job
        self.workers: Mapping[str, There] = {}
        self.heard = 0.0
        self._file = folder / FILE
        self._files = files
        self._idle_since: float | None = None
        self._comm: Any = None

    def find(self) -> Place | None:
        """Return where it is; None while it hasn't written that, or not all of it."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            self.address = str(json.loads(self._file.read_bytes())["address"])
            return Place(self.address, *self._files)
        return None

    async def start(self) -> None:
        """Ask it for the first time, once it was found."""
        self._comm = asking(self.address, Place(self.address, *self._files).security)
        await self.look()
        await super().start()

    async def look(self) -> None:
        """Ask it who is there. Raises OSError or TimeoutError where it doesn't answer."""
        async with asyncio.timeout(ANSWERING):
            identity = await self._comm.identity()
            self._idle_since = await self._comm.check_idle()
        self.workers = {address: _there(each) for address, each in identity["workers"].items()}
        self.heard = time.monotonic()

    def check_idle(self) -> float | None:
        """Return since when it had nothing to do when it was asked last; None while it has."""
        return self._idle_since

    async def retire_workers(self, **which: Any) -> None:
        """Have workers hand over what they hold, and leave."""
        await self._comm.retire_workers(**which)
        await self.look()

    async def restart(self, **how: Any) -> None:
        """Have all workers start anew."""
        await self._comm.restart(**how)

    async def close(self) -> None:
        """Cancel its job."""
        if self._comm is not None:
            await self._comm.close_rpc()
        await self.job.close()
        await super().close()


def _there(told: Mapping[str, Any]) -> There:
    counts: Mapping[str, int] = told.get("metrics", {}).get("task_counts", {})
    return There(told["name"], range(sum(n for state, n in counts.items() if state not in ("memory", "released"))))
