"""The scheduler's part of monitoring: collects events and publishes them in batches while a client watches.

This module is sent to the scheduler as source text, so that any Dask scheduler can be watched, with any Python and
without this package. So it may import only what a scheduler has. `watch` and `unwatch` run there, `doing` on its
workers.

It costs the scheduler a list entry for each finished task. These are counted once a batch, or before a new graph
changes the owners of tasks, and sent as columns of plain data: a scheduler with only Dask has no Arrow. The receiver
of a batch makes the table (`workbench.monitor.wire`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from time import monotonic, thread_time
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time
from tornado.ioloop import PeriodicCallback

TOPIC = "workbench-events"
GPU_TOPIC = "workbench-gpus"
NAME = "workbench-monitor"

# A watcher that is this many messages behind gets nothing until it has caught up: unread messages would pile up in
# the scheduler's memory.
FAR_BEHIND = 300

# Share of a core for making batches on a quiet cluster; sending them takes as much again. To stay within it, batches
# are made less often, but at least once in LONGEST_REST seconds.
SHARE = 0.00125
LONGEST_REST = 0.5

# Seconds without a sample after which a GPU may be read by another worker.
GPU_SILENCE = 2.5

NO_PIDS = "NVML names no process of ours here, as inside a container"

_DISK = ("disk-read", "disk-write")
_MOVES = tuple((action, "count") for action in _DISK)
_ACTIVE = ("waiting", "queued", "no-worker", "processing")


# An interval of a finished task: key, name, worker, thread, bytes, 'ok' or 'erred', client, number of the watch, kind,
# start and stop.
Row = tuple[Any, str, str, int, int, str, str, int, str, float, float]


class Monitor(SchedulerPlugin):
    """A plugin that publishes tasks, progress and samples of workers on a topic, until its last watcher has left."""

    name = NAME
    idempotent = True

    def __init__(
        self, scheduler: Any, batch_interval: float, sample_interval: float, watch: str = "", gpu_sampler: bytes = b""
    ) -> None:
        self.watchers: dict[str, set[str]] = {}
        self._scheduler = scheduler
        self._ended: list[tuple[Any, str, dict[str, Any] | None]] = []
        self._finished: list[Row] = []
        self._disk = Disk(scheduler)
        self._counts: dict[str, dict[str, int]] = {}
        self._groups: dict[Any, int] = {}
        self._owners = Owners(scheduler)
        self._published: dict[str, Any] | None = None
        self._sampled: dict[str, tuple[float, tuple[Any, ...]]] = {}
        self._retired: list[tuple[Any, ...]] = []
        self._sample_interval = sample_interval
        self._next_sample = 0.0
        self._resting = 0.0
        self._callback = PeriodicCallback(self._tick_or_rest, batch_interval * 1000)
        self._gpus = Gpus(scheduler, watch, gpu_sampler)

    def begin(self) -> None:
        """Start counting with the tasks that exist now."""
        self._owners.begin()
        self._count_new_tasks()
        for group in self._groups:
            if not _is_data(group):
                count = self._counts[group.prefix.name]
                count["done"] += _ended_well(group)
                count["erred"] += group.states["erred"]
        self._callback.start()
        self._gpus.begin()

    def end(self) -> None:
        """Stop, and remove the plugins from the scheduler and the workers."""
        self._callback.stop()
        self._gpus.end()
        if self._scheduler.plugins.get(NAME) is self:
            self._scheduler.remove_plugin(name=NAME)

    def add_watcher(self, client: str, feed: str, separate: bool = False) -> None:
        """Send to this client as well, starting with the whole current state."""
        self.watchers.setdefault(client, set()).add(feed)
        if separate:
            self._owners.divide(feed)
        self._scheduler.subscribe_topic(TOPIC, client)
        self._published = None
        self._sampled = {}
        self._next_sample = 0.0
        self._gpus.repeat()
        # Send at once, since the client counts its own tasks from its first message on.
        self._tick()

    def remove_watcher(self, client: str, feed: str, latest: Mapping[str, Any]) -> None:
        """Send the remaining events and the workers' latest state, and forget one feed of a client.

        Without feeds the client gets no more messages; without watchers the monitor ends.
        """
        self._next_sample = 0.0
        self._tick(latest)
        self._owners.join(feed)
        self._publish({"end": feed})
        feeds = self.watchers.get(client, set())
        feeds.discard(feed)
        if not feeds:
            self.remove_client(self._scheduler, client)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Save a task that ended, with its worker's report."""
        if finish == "memory":
            if start == "processing":
                self._ended.append((self._scheduler.tasks[key], finish, kwargs))
        elif finish == "erred":
            self._ended.append((self._scheduler.tasks[key], finish, kwargs if start == "processing" else None))
        elif finish == "forgotten" and self._owners.noted:
            self._settle()
            self._owners.forget(key)

    def update_graph(self, scheduler: Any, *, client: str = "", tasks: Any = (), **kwargs: Any) -> None:
        """Count the tasks of a new graph before any of them can be forgotten, and note their owner."""
        self._settle()
        n_new = self._count_new_tasks(client)
        self._owners.take(client, tasks, n_new)

    def log_event(self, topic: str, msg: Any) -> None:
        """Receive the samples of a worker's GPUs."""
        if topic == GPU_TOPIC:
            self._gpus.take(msg)
            self._scheduler._broker.truncate(GPU_TOPIC)

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str = "", **kwargs: Any) -> None:
        """Forget a worker's GPUs; if the worker was retired, report it with no threads."""
        self._gpus.forget(worker)
        _, last = self._sampled.pop(worker, (0.0, ()))
        if last and stimulus_id.startswith("retire-workers"):
            self._retired.append((*last[:2], time(), 0.0, 0, last[5], 0, 0, 0))

    def restart(self, scheduler: Any) -> None:
        """Forget all tasks, as the scheduler does."""
        self._ended, self._finished, self._disk = [], [], Disk(self._scheduler)
        self._counts, self._groups = {}, {}
        self._owners.clear()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Send no more to a client that left or died."""
        for feed in self.watchers.pop(client, ()):
            self._owners.join(feed)
        self._scheduler.unsubscribe_topic(TOPIC, client)
        if not self.watchers:
            self.end()

    async def close(self) -> None:
        """Stop when the scheduler closes."""
        self._callback.stop()

    def _tick_or_rest(self) -> None:
        now, began = monotonic(), thread_time()
        if now >= self._resting:
            self._tick()
            self._resting = now + min(LONGEST_REST, (thread_time() - began) / SHARE)

    def _tick(self, latest: Mapping[str, Any] | None = None) -> None:
        message: dict[str, Any] = {}
        self._settle()
        self._finished += self._disk.confirmed(latest)
        if self._finished:
            message["tasks"], self._finished = list(zip(*self._finished, strict=True)), []
        self._count_new_tasks()
        message |= self._changed(self._progress())
        now = time()
        if now >= self._next_sample:
            self._next_sample = now + self._sample_interval
            if samples := self._samples(latest or {}):
                message["samples"] = samples
        message |= self._gpus.news()
        if message:
            self._publish(message)

    def _settle(self) -> None:
        """Count ended tasks for their owners."""
        ended, self._ended = self._ended, []
        for task, finish, reported in ended:
            name = task.prefix.name
            status, how = ("erred", "erred") if finish == "erred" else ("ok", "done")
            count = self._counts.get(name)
            if count is not None:
                count[how] += 1
            if reported is None:
                if count is not None:
                    self._owners.count(task, how)
                continue
            spans, worker = reported.get("startstops") or (), reported.get("worker") or ""
            if task.key in self._owners.again:
                spans = _latest(spans)
            thread, nbytes = reported.get("thread") or 0, reported.get("nbytes") or 0
            about = (task.key, name, worker, thread, nbytes, status, *self._owners.count(task, how))
            for span in spans:
                row = (*about, span["action"], span["start"], span["stop"])
                if span["action"] in _DISK:
                    self._disk.add(row)
                else:
                    self._finished.append(row)

    def _changed(self, progress: dict[str, dict[str, int]]) -> dict[str, Any]:
        changes = {"progress": progress, "owners": self._owners.progress(progress)}
        # A computation repeated between two messages leaves the same progress, but more done for its owner.
        if changes == self._published:
            return {}
        self._published = changes
        return changes

    def _publish(self, message: dict[str, Any]) -> None:
        message |= {"time": time(), "watches": dict(self._owners.watches)}
        for client in self.watchers:
            comm = self._scheduler.client_comms.get(client)
            if comm is not None and len(comm.buffer) > FAR_BEHIND:
                self._scheduler.unsubscribe_topic(TOPIC, client)
            else:
                self._scheduler.subscribe_topic(TOPIC, client)
        self._scheduler.log_event(TOPIC, message)
        # The scheduler would store the latest 100,000 events of a topic. These are only for the watchers.
        self._scheduler._broker.truncate(TOPIC)

    def _count_new_tasks(self, client: str = "") -> int:
        alive = self._scheduler.task_groups
        known = {group: size for group, size in self._groups.items() if alive.get(group.name) is group}
        if alive and not known and self._counts:
            if last := self._changed(self._progress(finished=True)):
                self._publish(last)
            self._counts = {}
        self._groups, n_new = known, 0
        for group in alive.values():
            added = len(group) - known.get(group, 0)
            if added > 0 and _is_data(group):
                known[group] = len(group)
            elif added > 0:
                name = group.prefix.name
                count = self._counts.setdefault(name, _no_tasks())
                count["total"] += added
                n_new += added
                known[group] = len(group)
                self._owners.add(group, added, client)
        self._owners.keep_only(known)
        return n_new

    def _progress(self, *, finished: bool = False) -> dict[str, dict[str, int]]:
        prefixes = {} if finished else self._scheduler.task_prefixes
        progress = {}
        for name, count in self._counts.items():
            states = prefixes[name].states if name in prefixes else {}
            settled = count["total"] - sum(states.get(state, 0) for state in _ACTIVE)
            # A task that is retried, or computed again because its worker was lost, ends more than once.
            erred = max(0, min(count["erred"], settled))
            progress[name] = {
                "total": count["total"],
                "done": max(0, min(count["done"], settled - erred)),
                "erred": erred,
                "processing": states.get("processing", 0),
            }
        return progress

    def _samples(self, latest: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        samples, self._retired = self._retired, []
        for address, worker in self._scheduler.workers.items():
            metrics = latest.get(address, worker.metrics)
            at = metrics.get("time", 0.0)
            if address in self._sampled and self._sampled[address][0] == at:
                continue
            sample = (
                address,
                str(worker.name),
                at + worker.time_delay,
                metrics.get("cpu", 0.0),
                metrics.get("memory", 0),
                worker.memory_limit or 0,
                metrics.get("spilled_bytes", {}).get("disk", 0),
                metrics.get("task_counts", {}).get("executing", 0),
                worker.nthreads,
            )
            self._sampled[address] = at, sample
            samples.append(sample)
        return samples


class Disk:
    """Disk intervals that wait until their worker confirms them.

    A worker reports one if storing or finding a value took 5 ms, which happens on a busy machine without any disk.
    Its next heartbeat counts the moved values; intervals of tasks that moved none are dropped. A worker with a GPU is
    trusted: Dask-CUDA moves values between GPU and host without counting them.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._trusted: list[Row] = []
        self._waiting: list[tuple[float, Row]] = []
        self._moved = self._count()

    def add(self, row: Row) -> None:
        """Add an interval, and correct its times to the scheduler's clock, which workers do only for other kinds."""
        worker = self._scheduler.workers.get(row[2])
        if worker is not None:
            row = (*row[:-2], row[-2] + worker.time_delay, row[-1] + worker.time_delay)
        if worker is not None and "gpu" in worker.extra:
            self._trusted.append(row)
        else:
            self._waiting.append((time(), row))

    def confirmed(self, latest: Mapping[str, Any] | None) -> list[Row]:
        """Return the intervals that were confirmed since the last call.

        `latest` is the workers' state at the end of a watch; with it, no interval waits any longer.
        """
        rows, self._trusted = self._trusted, []
        waiting, self._waiting, due = self._waiting, [], []
        for since, row in waiting:
            if latest is not None or self._has_reported(row[2], since):
                due.append(row)
            else:
                self._waiting.append((since, row))
        if due:
            before, self._moved = self._moved, self._count()
            moved = {of for of, n in self._moved.items() if n > before.get(of, 0)}
            moved.update(tuple(of) for last in (latest or {}).values() for of in last["moved"])
            rows += [row for row in due if (row[1], row[8]) in moved]
        return rows

    def _has_reported(self, worker: str, since: float) -> bool:
        state = self._scheduler.workers.get(worker)
        return state is None or state.metrics.get("time", 0.0) + state.time_delay > since

    def _count(self) -> dict[Any, float]:
        """Count the values moved to or from the disk until now, by task name and direction."""
        metrics = self._scheduler.cumulative_worker_metrics.items()
        return {key[1:3]: n for key, n in metrics if key[0] == "execute" and key[2:] in _MOVES}


def _latest(spans: Any) -> Any:
    """Return the spans of the last computation, without earlier ones that a worker may still report."""
    computed = [place for place, span in enumerate(spans) if span["action"] == "compute"]
    return spans[computed[-2] + 1 :] if len(computed) > 1 else spans


class Owners:
    """Owners of tasks, and counts of tasks by owner and name. An owner is a client since the start of a watch.

    A group of tasks belongs to the client whose graph brought it, and to the latest watch at that time. If others add
    tasks to the group, as clients that map functions of the same name do, these are noted one by one.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.watches: dict[str, int] = {}
        """Number of each watch that separates its own tasks from earlier ones, by its feed."""
        self._latest = 0
        self.clear()

    def clear(self) -> None:
        """Forget all tasks."""
        self._of_group: dict[Any, tuple[str, int]] = {}
        self.noted: dict[Any, tuple[str, int]] = {}
        """Owners of the tasks whose group has another owner."""
        self._shared: set[Any] = set()
        self.again: set[Any] = set()
        """Released tasks that are computed again for a watch."""
        self._counts: dict[tuple[str, int], dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(_no_tasks))

    def divide(self, feed: str) -> None:
        """Start a watch, and separate later tasks from earlier ones."""
        self._latest += 1
        self.watches[feed] = self._latest

    def join(self, feed: str) -> None:
        """End a watch, and drop the counts that no other watch needs."""
        self.watches.pop(feed, None)
        first = min(self.watches.values(), default=self._latest + 1)
        self._keep(lambda owner: owner[1] >= first)

    def begin(self) -> None:
        """Assign the existing groups to the clients that want them, with their dependencies."""
        for name, client in self._scheduler.clients.items():
            waiting = list({task.group for task in client.wants_what})
            while waiting:
                group = waiting.pop()
                if group not in self._of_group:
                    self._of_group[group] = (name, 0)
                    waiting.extend(group.dependencies)

    def add(self, group: Any, added: int, client: str) -> None:
        """Count tasks that a graph of `client` added to a group; '' if the client is unknown."""
        owner = (client, self._latest)
        if group not in self._of_group:
            self._of_group[group] = owner
        elif client and self._of_group[group] != owner:
            self._shared.add(group)
        count = self._counts[owner if client else self._of_group[group]][group.prefix.name]
        count["total"] += added
        if not client:
            count["done"] += _ended_well(group)
            count["erred"] += group.states["erred"]

    def take(self, client: str, tasks: Any, n_new: int) -> None:
        """Note the tasks of a graph of `client` that will be computed in groups shared with other owners.

        If not all tasks of the graph are new, include those that were computed before and released.
        """
        if not self._shared and n_new >= len(tasks):
            return
        owner = (client, self._latest)
        for key in tasks:
            task = self._scheduler.tasks.get(key)
            if task is None or task.state != "released" or self._owner(task) == owner:
                continue
            if task.nbytes >= 0:
                self.again.add(key)
                self._shared.add(task.group)
            if task.group in self._shared:
                self.noted[key] = owner

    def _owner(self, task: Any) -> tuple[str, int]:
        owner = self._of_group.get(task.group, ("", 0))
        return self.noted.get(task.key, owner) if task.group in self._shared else owner

    def count(self, task: Any, how: str) -> tuple[str, int]:
        """Count an ended task, and return its owner."""
        owner = self._owner(task)
        count = self._counts[owner][task.prefix.name]
        count[how] += 1
        if task.key in self.again:
            self.again.discard(task.key)
            count["total"] += 1
        return owner

    def forget(self, key: Any) -> None:
        """Forget a task that the scheduler forgets."""
        self.noted.pop(key, None)
        self.again.discard(key)

    def keep_only(self, groups: Any) -> None:
        """Forget groups that the scheduler has forgotten."""
        if len(self._of_group) > len(groups):
            self._of_group = {group: owner for group, owner in self._of_group.items() if group in groups}
            self._shared &= set(groups)

    def progress(self, all_tasks: dict[str, dict[str, int]]) -> list[tuple[str, int, dict[str, list[int]]]]:
        """Return each owner with its counts by name: all tasks, done, erred, and at most this many in progress."""
        rows = []
        self._keep(lambda owner: owner[0] in self._scheduler.clients)
        for owner, counts in self._counts.items():
            own: dict[str, list[int]] = {}
            for name, count in counts.items():
                # A task that is computed again ends more than once.
                erred = min(count["erred"], count["total"])
                done = min(count["done"], count["total"] - erred)
                processing = min(all_tasks.get(name, {}).get("processing", 0), count["total"] - erred - done)
                own[name] = [count["total"], done, erred, processing]
            rows.append((*owner, own))
        return rows

    def _keep(self, which: Callable[[tuple[str, int]], bool]) -> None:
        for owner in [each for each in self._counts if not which(each)]:
            del self._counts[owner]


class Gpus:
    """Samples of GPUs from the workers' samplers: each GPU once, even if several workers see it.

    `sampler` is the pickled plugin for workers. Samples for another watch, which is just ending, are left out.
    """

    def __init__(self, scheduler: Any, watch: str, sampler: bytes) -> None:
        self._scheduler = scheduler
        self._sampler = sampler
        self.watch = watch
        self._starting: asyncio.Future[Any] | None = None
        self._stopping: asyncio.Future[Any] | None = None
        self._samples: list[dict[str, Any]] = []
        self._nothing: dict[str, tuple[str, str, bool]] = {}
        self._is_new = False
        self._readers: dict[str, tuple[str, float]] = {}
        self._processes: dict[str, tuple[str, int]] = {}

    def begin(self) -> None:
        """Start the samplers on all workers, including later ones."""
        if self._sampler:
            self._starting = asyncio.ensure_future(self._start())

    def end(self) -> None:
        """Stop all samplers."""
        self._stopping = asyncio.ensure_future(self._stop(self._starting))

    def repeat(self) -> None:
        """Send the reasons for missing GPUs again, to a new watcher."""
        self._is_new = bool(self._nothing)

    def take(self, message: dict[str, Any]) -> None:
        """Save the message of one worker."""
        worker = self._scheduler.workers.get(message.get("worker"))
        if worker is None or message["watch"] != self.watch:
            return
        host, address = message["host"], message["worker"]
        self._processes[address] = (host, message["pid"])
        if "nothing" in message:
            self._nothing[address] = (host, message["nothing"], message["expected"])
            self._is_new = True
        now = time()
        for sample in message.get("samples", ()):
            reader, read_at = self._readers.get(sample["uuid"], (address, now))
            if reader != address and now - read_at < GPU_SILENCE:
                continue
            self._readers[sample["uuid"]] = (address, now)
            sample["time"] += worker.time_delay
            self._samples.append({"host": host} | self._with_ours(sample, host, message["pids_known"]))

    def forget(self, worker: str) -> None:
        """Forget a worker that has left."""
        self._processes.pop(worker, None)
        self._is_new |= self._nothing.pop(worker, None) is not None

    def news(self) -> dict[str, Any]:
        """Return the samples since the last call, and the reason for each host without GPUs."""
        news: dict[str, Any] = {}
        if self._samples:
            news["gpus"], self._samples = self._samples, []
        if self._is_new:
            self._is_new = False
            news["no_gpus"] = list({host: (host, *rest) for host, *rest in self._nothing.values()}.values())
        return news

    def _with_ours(self, sample: dict[str, Any], host: str, pids_known: bool) -> dict[str, Any]:
        """Replace a sample's list of processes by the memory that workers of this cluster hold."""
        processes = sample.pop("processes", None)
        reason = sample["absent"].pop("processes", None)
        if processes is not None:
            pids = {pid for place, pid in self._processes.values() if place == host}
            ours = [n_bytes for pid, n_bytes in processes if pid in pids]
            if None in ours:
                reason = "NVML doesn't report how much each process holds"
            elif not ours and not pids_known:
                reason = NO_PIDS
            else:
                sample["memory_ours"] = sum(ours)
        if "memory_ours" not in sample:
            sample["absent"]["memory_ours"] = reason
        return sample

    async def _start(self) -> None:
        with contextlib.suppress(Exception):  # a dying worker must not stop the monitor
            await self._scheduler.register_worker_plugin(
                None, self._sampler, f"workbench-gpus-{self.watch}", idempotent=False
            )

    async def _stop(self, starting: asyncio.Future[Any] | None) -> None:
        if starting is None:
            return
        await starting
        with contextlib.suppress(Exception):
            await self._scheduler.unregister_worker_plugin(None, f"workbench-gpus-{self.watch}")


def _no_tasks() -> dict[str, int]:
    return {"total": 0, "done": 0, "erred": 0}


def _ended_well(group: Any) -> int:
    """Count the group's tasks whose results exist, were released or were forgotten."""
    states = group.states
    return int(states["memory"] + states["released"] + states["forgotten"])


def _is_data(group: Any) -> bool:
    """Return whether a group is scattered data: in memory, though none of its tasks ever ran."""
    states = group.states
    return bool(not group.start and states["memory"] and states["memory"] + states["forgotten"] == len(group))


def watch(
    client: str,
    feed: str,
    batch_interval: float,
    sample_interval: float,
    gpu_watch: str,
    gpu_sampler: bytes,
    separate: bool = False,
    dask_scheduler: Any = None,
) -> None:
    """Make the scheduler send its events to a feed of a client; `separate` distinguishes its tasks from earlier ones.

    The first watcher sets the intervals and the sampler for all.
    """
    if client not in dask_scheduler.clients:
        return
    monitor = dask_scheduler.plugins.get(NAME)
    if monitor is None:
        monitor = Monitor(dask_scheduler, batch_interval, sample_interval, gpu_watch, gpu_sampler)
        dask_scheduler.add_plugin(monitor, name=NAME)
        monitor.begin()
    monitor.add_watcher(client, feed, separate)


def unwatch(client: str, feed: str, latest: Mapping[str, Any], dask_scheduler: Any = None) -> bool:
    """Stop sending events to this feed; return whether a last message on this is on its way.

    `latest` is the current state of workers by address, from `doing`.
    """
    monitor = dask_scheduler.plugins.get(NAME)
    if monitor is None or feed not in monitor.watchers.get(client, ()):
        return False
    monitor.remove_watcher(client, feed, latest)
    return True


def doing(dask_worker: Any) -> dict[str, Any]:
    """Return the current state of a worker, and what it moved to or from disk since its heartbeat.

    This doesn't request a heartbeat: two at once end the worker.
    """
    # The CPU load over only a few clock ticks would be noise.
    if monotonic() - dask_worker.monitor.last_time > 0.1:
        dask_worker.monitor.update()
    since = dask_worker.digests_total_since_heartbeat
    return {
        **{name: dask_worker.monitor.recent()[name] for name in ("time", "cpu", "memory")},
        "spilled_bytes": {"disk": getattr(dask_worker.data, "spilled_total", (0, 0))[1]},
        "task_counts": {"executing": len(dask_worker.state.executing)},
        "moved": [key[2:4] for key in since if key[0] == "execute" and key[3:] in _MOVES],
    }
