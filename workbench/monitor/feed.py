"""The client's part of monitoring: batches of events from any Dask cluster, over the client's own connection."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self
from uuid import uuid4
from weakref import WeakKeyDictionary

from distributed import Client
from distributed.protocol.pickle import dumps

from workbench import config
from workbench.hardware import sampling
from workbench.monitor import plugin, sampler
from workbench.monitor.events import Batch
from workbench.monitor.wire import unpack
from workbench.sent_code import Travelling

_GPU_INTERVAL = 0.25  # seconds, if the configuration has none

_LAST_BATCH = 2.0
"""Seconds to wait for the last batch after the watcher has left."""


_doing = Travelling(plugin.doing)
_watch = Travelling(plugin.watch)
_unwatch = Travelling(plugin.unwatch)

_feeds: WeakKeyDictionary[Any, tuple[Feed, ...]] = WeakKeyDictionary()
_lock = threading.Lock()


class Feed:
    """Batches of events from the cluster of a Dask client, from `start` until `close`.

    Several feeds can watch one scheduler, through one client or many: it does the work once. With a synchronous
    client use `start`, `close` or `with`; with an asynchronous one `astart` and `aclose`. `on_batch` is called with
    each batch in the client's event loop, so it must be quick. `separate` distinguishes the tasks that this client
    submits after `start` from its earlier ones and from those of other clients: progress counts only these tasks, and
    `Tasks.source` names the clients of the others.
    """

    def __init__(self, client: Client, on_batch: Callable[[Batch], None], *, separate: bool = False) -> None:
        self.client = client
        self.separate = separate
        self._id = uuid4().hex
        self._on_batch = on_batch
        self._ended: asyncio.Event | None = None

    def start(self) -> Self:
        """Start watching; the batches have all events after this returns."""
        self.client.sync(self.astart)
        return self

    def close(self) -> None:
        """Stop watching. After its last watcher, the scheduler stops collecting."""
        if self.client.status == "running":
            self.client.sync(self.aclose)
        else:
            _leave(self)

    async def astart(self) -> Self:
        """Start watching, from a coroutine."""
        _join(self)
        gpu_watch, gpu_interval = uuid4().hex, config.seconds("monitor.gpu-interval") or _GPU_INTERVAL
        try:
            await self.client.run_on_scheduler(
                _watch,
                client=self.client.id,
                feed=self._id,
                batch_interval=config.seconds("monitor.batch-interval"),
                sample_interval=config.seconds("monitor.sample-interval"),
                separate=self.separate,
                gpu_watch=gpu_watch,
                gpu_sampler=dumps(Travelling(sampler.GpuSampler, (Travelling(sampling), gpu_watch, gpu_interval))),
            )
        except BaseException:
            _leave(self)
            raise
        return self

    async def aclose(self) -> None:
        """Stop watching, from a coroutine. When this returns, the batches have all events until its call."""
        latest: Mapping[str, Any] = {}
        try:
            if self.separate and self.client.status == "running":
                # The record ends with the current state of the workers: a heartbeat may be a second old.
                with contextlib.suppress(TimeoutError, OSError):
                    latest = await asyncio.wait_for(self.client.run(_doing, on_error="ignore"), _LAST_BATCH)
            if self.client.status == "running":
                # Events use another connection than the answer to this call, which may overtake them.
                self._ended = asyncio.Event()
                if await self.client.run_on_scheduler(_unwatch, client=self.client.id, feed=self._id, latest=latest):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._ended.wait(), _LAST_BATCH)
        finally:
            _leave(self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _join(feed: Feed) -> None:
    client = feed.client
    with _lock:
        _feeds[client] = (*_feeds.get(client, ()), feed)
    # Client.subscribe_topic would also send its own message, which could arrive before or after a later unwatch.
    # `watch` subscribes, in one step with the rest.
    client._event_handlers[plugin.TOPIC] = lambda event: _hand_out(client, event)


def _leave(feed: Feed) -> None:
    with _lock:
        _feeds[feed.client] = tuple(other for other in _feeds.get(feed.client, ()) if other is not feed)


def _hand_out(client: Client, event: tuple[float, Any]) -> None:
    feeds = _feeds.get(client, ())
    message = event[1]
    if "end" in message:
        for feed in feeds:
            if message["end"] == feed._id and feed._ended is not None:
                feed._ended.set()
    elif feeds:
        everyones: Batch | None = None
        for feed in feeds:
            # Messages sent before a watch began are not part of it.
            if (since := message["watches"].get(feed._id)) is not None:
                feed._on_batch(unpack(message, (client.id, since)))
            elif not feed.separate:
                everyones = everyones or unpack(message)
                feed._on_batch(everyones)
