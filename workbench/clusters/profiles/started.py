"""The handle of a scheduler elsewhere that an engine started for us, such as a gateway's or Kubernetes'."""

from __future__ import annotations

import asyncio
import time

from workbench.clusters.attached import Attached
from workbench.clusters.handle import Job, State, Verb
from workbench.clusters.reaching import Place
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError

_ARRIVING = 0.3  # seconds between two looks at workers that start
_BUSY = {"executing", "long-running", "ready", "constrained", "waiting", "fetch", "flight", "resumed"}
"""States of tasks on a worker that has something to do."""


class Started(Attached):
    """A scheduler elsewhere that was started from here: asked as any, and changed through what started it."""

    can: tuple[Verb, ...] = ("scale", "adapt", "stop")

    def __init__(self, spec: ClusterSpec, place: Place) -> None:
        super().__init__(spec, place)
        self._requested: int | None = None
        self._busy = time.time()

    async def fill(self) -> None:
        """Return when the workers that were asked for are there, or some while it is known that others wait."""
        if "stop" in self.can:
            self._requested = self._spec.n_workers
            await self.ask_for(self._requested)
            while (there := len(self._identity["workers"])) < self._requested:
                if there and any(job.reason for job in await self.jobs()):
                    break
                await asyncio.sleep(_ARRIVING)
                await self._ask()
        await super().fill()

    async def state(self) -> State:
        """Return what its scheduler said last."""
        state = await super().state()
        workers = self._identity.get("workers", {}).values()
        if any(_BUSY.intersection(each.get("metrics", {}).get("task_counts", ())) for each in workers):
            self._busy = time.time()
        requested = self._requested or state.arrived
        return state._replace(requested=requested, idle_since=self._busy, jobs=await self.jobs())

    async def jobs(self) -> tuple[Job, ...]:
        """Return what waits to become a worker, where that can be asked."""
        return ()

    async def scale(self, n: int) -> None:
        """Have `n` workers, as far as what started it gives them."""
        before, self._requested, self._adapts = (self._requested, self._adapts), n, False
        try:
            await self.ask_for(n)
        except FailedError:
            self._requested, self._adapts = before
            raise

    async def adapt(self, minimum: int, maximum: int) -> None:
        """Have what started it follow the load."""
        await self.ask_to_follow(minimum, maximum)
        self._requested, self._adapts = None, True

    async def ask_for(self, n: int) -> None:
        """Ask what started it for `n` workers. Raises FailedError with what that says."""
        raise NotImplementedError

    async def ask_to_follow(self, minimum: int, maximum: int) -> None:
        """Ask it to follow the load. Raises FailedError with what it says."""
        raise NotImplementedError
