"""Latest GPU samples of clusters for views, whichever machine their workers are on.

A cluster is watched from the first request until requests have stopped for a while. No tornado here.
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
    from workbench.views.event_history import Past

IDLE_TIMEOUT = 5.0
"""Seconds without a request after which watching a cluster ends; if watching failed, seconds before a retry."""

FRESH = 5.0
"""Seconds for which a sample is current: workers send four a second."""


class LatestSamples:
    """The newest GPU samples of one cluster, updated by its batches."""

    def __init__(self) -> None:
        self.feed: Past | None = None
        self.refusal: str | None = None
        """Reason why the cluster can't be watched."""
        self._samples: dict[str, GpuSample] = {}
        self._nothing: tuple[NoGpus, ...] = ()
        self._time = 0.0
        self._received_at = 0.0

    def add(self, batches: list[Batch]) -> None:
        """Update the samples from batches."""
        for batch in batches:
            self._time, self._received_at = max(self._time, batch.time), time.monotonic()
            self._samples |= {sample.uuid: sample for sample in batch.gpus}
            if batch.no_gpus is not None:
                self._nothing = batch.no_gpus

    def wake(self) -> None:
        """Do nothing: views read the samples when they need them."""

    @property
    def samples(self) -> dict[str, GpuSample]:
        """The newest sample of each GPU by UUID, unless outdated."""
        if time.monotonic() - self._received_at > FRESH:
            return {}
        # Both times are by the scheduler's clock.
        return {uuid: sample for uuid, sample in self._samples.items() if self._time - sample.time < FRESH}

    @property
    def trouble(self) -> str | None:
        """Reason why no data arrive from the cluster."""
        return self.refusal or (None if self.feed is None else self.feed.ended or self.feed.waiting)

    @property
    def silence(self) -> str:
        """Reason for a GPU without samples."""
        if self.trouble:
            return self.trouble
        if self._nothing:
            return " ".join(f"On {each.host}: {each.reason}" for each in self._nothing)
        if self._samples:
            return "Its worker sends no samples of it any more."
        return "Its workers have sent no samples yet. The first readings take a moment."


class SampleReader:
    """The latest samples of each cluster, for as long as views request them.

    `join` subscribes an object to a cluster's batches, and returns the connection.
    """

    def __init__(self, join: Callable[[str, LatestSamples], Awaitable[Past]]) -> None:
        self._join = join
        self._latest: dict[str, LatestSamples] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._joining = asyncio.Lock()

    async def read(self, cluster: str) -> LatestSamples:
        """Return the latest samples of a cluster; the first request returns none."""
        async with self._joining:
            latest = self._latest.get(cluster)
            if latest is None:
                latest = self._latest[cluster] = LatestSamples()
                await self._begin(cluster, latest)
            ended = latest.refusal is not None or latest.feed is None or latest.feed.ended is not None
            if cluster not in self._ends or not ended:
                self._end_later(cluster)
        return latest

    def close(self) -> None:
        """Stop watching all clusters."""
        for cluster in tuple(self._latest):
            self._forget(cluster)

    async def _begin(self, cluster: str, latest: LatestSamples) -> None:
        try:
            latest.feed = await self._join(cluster, latest)
        except WorkbenchError as err:
            latest.refusal = str(err)

    def _end_later(self, cluster: str) -> None:
        if (before := self._ends.pop(cluster, None)) is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._ends[cluster] = loop.call_later(IDLE_TIMEOUT, self._forget, cluster)

    def _forget(self, cluster: str) -> None:
        self._ends.pop(cluster).cancel()
        latest = self._latest.pop(cluster)
        if latest.feed is not None:
            latest.feed.leave(latest)
