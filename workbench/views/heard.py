"""What clusters said last of themselves, for views that show it: on whatever machine their workers are.

A cluster is watched for it from the first question until nobody has asked for a while. No tornado here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.hardware.gauges import GpuSample
    from workbench.monitor.events import Batch, NoGpus
    from workbench.views.watching import Past

ASKED_FOR = 5.0
"""Seconds without a question after which a cluster is watched no more; then it is tried again where that failed."""

FRESH = 5.0
"""Seconds for which a sample tells what is: workers send four a second."""


class Heard:
    """The newest samples of the GPUs of one cluster, as its batches come."""

    def __init__(self) -> None:
        self.feed: Past | None = None
        self.refusal: str | None = None
        """Why the cluster can't be watched."""
        self._samples: dict[str, GpuSample] = {}
        self._nothing: tuple[NoGpus, ...] = ()
        self._time = 0.0
        self._heard_at = 0.0

    def add(self, batches: list[Batch]) -> None:
        """Take in what has come."""
        for batch in batches:
            self._time, self._heard_at = max(self._time, batch.time), time.monotonic()
            self._samples |= {sample.uuid: sample for sample in batch.gpus}
            if batch.no_gpus is not None:
                self._nothing = batch.no_gpus

    def wake(self) -> None:
        """Do nothing: whoever wants to know asks."""

    @property
    def samples(self) -> dict[str, GpuSample]:
        """The newest sample of each GPU that still tells, by UUID."""
        if time.monotonic() - self._heard_at > FRESH:
            return {}
        # Both times are of the scheduler's clock.
        return {uuid: sample for uuid, sample in self._samples.items() if self._time - sample.time < FRESH}

    @property
    def trouble(self) -> str | None:
        """Why there is nothing new of the cluster."""
        return self.refusal or (None if self.feed is None else self.feed.ended or self.feed.waiting)

    @property
    def silence(self) -> str:
        """Why there may be a GPU of which no worker tells."""
        if self.trouble:
            return self.trouble
        if self._nothing:
            return " ".join(f"On {each.host}: {each.reason}" for each in self._nothing)
        if self._samples:
            return "Its worker tells nothing of it any more."
        return "Its workers have told nothing of it yet. The first readings take a moment."


class Hearing:
    """What each cluster said last, for as long as somebody asks.

    `join` begins to hand a cluster's batches to what is given, and returns the connection.
    """

    def __init__(self, join: Callable[[str, Heard], Awaitable[Past]]) -> None:
        self._join = join
        self._heard: dict[str, Heard] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._joining = asyncio.Lock()

    async def latest(self, cluster: str) -> Heard:
        """Return what there is now; the first answer is empty."""
        async with self._joining:
            heard = self._heard.get(cluster)
            if heard is None:
                heard = self._heard[cluster] = Heard()
                await self._begin(cluster, heard)
            ended = heard.refusal is not None or heard.feed is None or heard.feed.ended is not None
            if cluster not in self._ends or not ended:
                self._end_later(cluster)
        return heard

    def close(self) -> None:
        """Watch none of them any more."""
        for cluster in tuple(self._heard):
            self._forget(cluster)

    async def _begin(self, cluster: str, heard: Heard) -> None:
        try:
            heard.feed = await self._join(cluster, heard)
        except WorkbenchError as err:
            heard.refusal = str(err)

    def _end_later(self, cluster: str) -> None:
        if (before := self._ends.pop(cluster, None)) is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._ends[cluster] = loop.call_later(ASKED_FOR, self._forget, cluster)

    def _forget(self, cluster: str) -> None:
        self._ends.pop(cluster).cancel()
        heard = self._heard.pop(cluster)
        if heard.feed is not None:
            heard.feed.leave(heard)
