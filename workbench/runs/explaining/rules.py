"""Rules that explain why a run was slow. Each looks for one cause, measures it, and suggests a change.

A rule takes `Facts` and returns `Found` or None. Its share is the part of the workers' time that the cause affects: at
most this much can be saved. No rule applies to a run on a well-configured cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workbench import formats
from workbench.formats import percent
from workbench.monitor.events import KINDS, Batch
from workbench.runs.run import Run, Suggestion

WORTH_WHILE = 0.05
"""Share of the workers' time below which nothing is reported."""

_GOOD_BLOCK = 128 * 2**20  # bytes; Dask's own advice is about 100 MB
_SMALL_BLOCK = 24_000_000  # bytes; templates choose about 32 MB if blocks are large enough
_BLOCKS_PER_THREAD = 2
_SHORT_TASK = 0.05  # seconds: Dask advises against tasks much shorter than 100 ms
_MANY_TASKS = 200  # a scheduler hands out some hundreds a second; fewer tasks are slow for other reasons
_MANY_FOR_A_THREAD = 20
_NOTICEABLE = 0.15
_WAITING_FOR_BLOCKS = 0.1
_HALF_IDLE = 0.3
_SLOWER = 2.0  # ratio of times for the same tasks; equal workers of a busy machine differed by up to 1.8
_SAME_TASKS = 4  # tasks of one name on each of two workers that are needed to compare them
_COMPUTE = KINDS.index("compute")
_TRANSFER = KINDS.index("transfer")


@dataclass(frozen=True)
class Facts:
    """Input of the rules: the run, its events, and the shares of its time."""

    run: Run
    events: Batch
    shares: Mapping[str, float]
    threads: Mapping[str, int]
    """Threads of each worker, by address."""
    seconds: float
    moments: tuple[float, float] = field(default=(0.0, 0.0))
    """Start and end of the interval."""

    @property
    def n_threads(self) -> int:
        """Threads of all workers."""
        return sum(self.threads.values())

    @property
    def thread_seconds(self) -> float:
        """Time of all threads together."""
        return self.seconds * self.n_threads

    @cached_property
    def computed(self) -> Computed:
        """Columns of all computed tasks."""
        tasks = self.events.tasks
        rows = tasks.kind == _COMPUTE
        return Computed(tasks.name.codes[rows], tasks.worker.codes[rows], tasks.start[rows], tasks.stop[rows])

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the workload's array."""
        return _whole_numbers(self.run.resolved.get("shape"))

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Chunks of the workload's array, in elements."""
        found = _whole_numbers(self.run.resolved.get("chunks"))
        return found if found and self.shape and len(found) == len(self.shape) else None

    @property
    def n_blocks(self) -> int | None:
        """Number of blocks of the workload's array."""
        if self.shape is None or self.chunks is None:
            return None
        return math.prod(math.ceil(length / part) for length, part in zip(self.shape, self.chunks, strict=True))

    @property
    def block_bytes(self) -> int | None:
        """Bytes of a whole block, in the type in which it is computed."""
        if self.shape is None or self.chunks is None:
            return None
        return math.prod(map(min, self.shape, self.chunks)) * self._worked

    @property
    def _worked(self) -> int:
        # Integers are computed as float64, which is also the default type.
        return 4 if self.run.resolved.get("dtype") == "float32" else 8

    @property
    def _stored(self) -> int:
        try:
            return np.dtype(self.run.resolved.get("dtype") or float).itemsize
        except TypeError:
            return 8

    def blocks_of(self, size: float) -> str:
        """Return the parameter for blocks that take `size` bytes in computing, and explain the number if it differs."""
        asked = size / self._worked * self._stored
        typed = f"chunks={formats.size(asked).replace(' ', '')}"
        if self._worked == self._stored:
            return typed
        dtype, worked = np.dtype(self.run.resolved["dtype"]).name, np.dtype(f"f{self._worked}").name
        times = self._worked / self._stored
        return f"{typed}, which counts {dtype} as it is stored; as {worked} it takes {times:g} times as much"


class Computed(NamedTuple):
    """Columns of tasks: one row for each computed task."""

    name: npt.NDArray[np.int32]
    worker: npt.NDArray[np.int32]
    start: npt.NDArray[np.float64]
    stop: npt.NDArray[np.float64]

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """Duration of each task."""
        return self.stop - self.start


class Found(NamedTuple):
    """Finding of a rule, with the fields of `Suggestion`."""

    share: float
    found: str
    change: str


def tiny_blocks(facts: Facts) -> Found | None:
    """Find many very short tasks, which take longer to hand out than to compute."""
    n_tasks, size, n_blocks = len(facts.computed.name), facts.block_bytes, facts.n_blocks
    if not n_blocks or not size or n_tasks < max(_MANY_TASKS, _MANY_FOR_A_THREAD * facts.n_threads):
        return None
    share, each = facts.shares["scheduler"], float(facts.computed.seconds.mean())
    larger = min(_GOOD_BLOCK, size * n_blocks / (_BLOCKS_PER_THREAD * facts.n_threads), _held(facts))
    if share < _NOTICEABLE or each > _SHORT_TASK or size > _SMALL_BLOCK or larger < 2 * size:
        return None
    fewer = max(1, round(n_tasks * size / larger))
    return Found(
        share=share,
        found=f"blocks of {formats.size(size)} make {formats.count(n_tasks)} tasks of {formats.duration(each)} each, "
        f"and handing them out takes {percent(share)} of the workers' time",
        change=f"blocks of {formats.size(larger)} would make about {formats.count(fewer)}: {facts.blocks_of(larger)}",
    )


def many_tasks(facts: Facts) -> Found | None:
    """Find many very short tasks in a graph with unknown blocks."""
    n_tasks = len(facts.computed.name)
    if facts.block_bytes or n_tasks < max(_MANY_TASKS, _MANY_FOR_A_THREAD * facts.n_threads):
        return None
    each = float(facts.computed.seconds.mean())
    # A worker waits for the next task, or for the graph, which grows with the tasks as well.
    waiting = facts.shares["scheduler"] + facts.shares["idle"]
    if waiting < _NOTICEABLE or each > _SHORT_TASK:
        return None
    overhead = waiting * facts.seconds / n_tasks
    return Found(
        share=waiting,
        found=f"{formats.count(n_tasks)} tasks of {formats.duration(each)} each kept the scheduler busy, about "
        f"{formats.duration(overhead)} for each, and waiting for it took {percent(waiting)} of the workers' time",
        change="do more in each task: larger blocks or partitions, or several calls in one delayed function",
    )


def _held(facts: Facts) -> float:
    """Return the size of the largest block of which a worker's memory has room for eight in each thread."""
    spec = facts.run.spec
    return math.inf if spec is None else spec.memory_limit / spec.threads_per_worker / 8


def huge_block(facts: Facts) -> Found | None:
    """Find fewer blocks than threads, so that some threads never get one."""
    n_blocks, size = facts.n_blocks, facts.block_bytes
    if n_blocks is None or size is None or n_blocks >= facts.n_threads or facts.shares["idle"] < _NOTICEABLE:
        return None
    better = size * n_blocks / (_BLOCKS_PER_THREAD * facts.n_threads)
    return Found(
        share=facts.shares["idle"],
        found=f"{formats.count(n_blocks, 'block')} of {formats.size(size)} for {facts.n_threads} threads left them "
        f"idle for {percent(facts.shares['idle'])} of their time",
        change=f"blocks of {formats.size(better)} would give each thread {_BLOCKS_PER_THREAD}: "
        f"{facts.blocks_of(better)}",
    )


def spilling(facts: Facts) -> Found | None:
    """Find blocks that were moved to the disk and back, because they didn't fit in memory."""
    share, held = facts.shares["spilling"], _spilled(facts)
    if share < WORTH_WHILE or not held:
        return None
    spec = facts.run.spec
    more = "more memory for each worker, or fewer threads beside each other in it"
    if spec is not None:
        # Above 60 % of its limit a worker moves blocks to the disk (distributed.worker.memory.target).
        wanted = spec.memory_limit + held / 0.6 / max(1, len(facts.threads))
        more = (
            f"workers of {formats.size(wanted)} instead of {formats.size(spec.memory_limit)} would keep them in memory"
        )
    return Found(
        share=share,
        found=f"blocks that did not fit in memory went to the disk, {formats.size(held)} at once, "
        f"which took {percent(share)} of the workers' time",
        change=more
        + (", and compute=true makes them again instead" if facts.run.resolved.get("compute") is False else ""),
    )


def _spilled(facts: Facts) -> int:
    """Return the sum of each worker's most bytes on disk."""
    most: dict[str, int] = {}
    for sample in facts.events.samples:
        most[sample.worker] = max(most.get(sample.worker, 0), sample.spilled)
    return sum(most.values())


def transfers(facts: Facts) -> Found | None:
    """Find threads that wait for blocks from other workers."""
    share = facts.shares["transferring"] + facts.shares["serialising"]
    if share < _WAITING_FOR_BLOCKS or len(facts.threads) < 2:
        return None
    n_transfers = int((facts.events.tasks.kind == _TRANSFER).sum())
    protocol = next(iter(facts.threads)).partition("://")[0] or "tcp"
    return Found(
        share=share,
        found=f"blocks went between {len(facts.threads)} workers over {protocol} in {formats.count(n_transfers)} "
        f"transfers, and waiting for that took {percent(share)} of their time",
        change=_without_transfers(facts, protocol),
    )


def _without_transfers(facts: Facts, protocol: str) -> str:
    hosts = {address.partition("://")[2].rpartition(":")[0] for address in facts.threads}
    if facts.run.spec is not None and facts.run.spec.devices:
        return "one GPU that holds it all needs no transfers; between GPUs the profile ucx uses the links there are"
    if len(hosts) == 1:
        return f"one worker with {facts.n_threads} threads shares its memory and moves nothing"
    return (
        f"fewer workers with more threads each move less, larger blocks in fewer pieces; over {protocol} try the "
        "profile ucx where the network has RDMA"
    )


def slow_worker(facts: Facts) -> Found | None:
    """Find a worker that takes longer than the others for the same tasks."""
    found = _slowest(facts)
    if found is None:
        return None
    worker, mine, others, seconds = found
    ratio = mine / others
    excess = seconds * (1 - 1 / ratio) / facts.thread_seconds
    if ratio < _SLOWER or excess < WORTH_WHILE:
        return None
    # The others are idle once they are done.
    share = min(1.0, excess + facts.shares["idle"])
    address = facts.events.tasks.worker.values[worker]
    left = len(facts.threads) - 1
    return Found(
        share=share,
        found=f"the worker {_name_of(facts, address)} took {ratio:.1f} times as long as the others for the same tasks",
        change=(f"look what else runs on its cores, or start the cluster with {formats.count(left, 'worker')}"),
    )


def _slowest(facts: Facts) -> tuple[int, float, float, float] | None:
    """Return the slowest worker, its tasks' time by its own medians and by the others', and its total seconds."""
    done = facts.computed
    if len(facts.threads) < 2 or not len(done.name):
        return None
    mine: dict[int, float] = {}
    theirs: dict[int, float] = {}
    for name in np.unique(done.name):
        rows = done.name == name
        workers, seconds = done.worker[rows], done.seconds[rows]
        medians = {
            int(worker): (int((workers == worker).sum()), float(np.median(seconds[workers == worker])))
            for worker in np.unique(workers)
        }
        medians = {worker: found for worker, found in medians.items() if found[0] >= _SAME_TASKS}
        for worker, (count, median) in medians.items():
            rest = [other for at, (_, other) in medians.items() if at != worker]
            if rest:
                mine[worker] = mine.get(worker, 0.0) + count * median
                theirs[worker] = theirs.get(worker, 0.0) + count * float(np.median(rest))
    ratios = {worker: mine[worker] / theirs[worker] for worker in mine if theirs[worker] > 0}
    if not ratios:
        return None
    worker = max(ratios, key=ratios.__getitem__)
    return worker, mine[worker], theirs[worker], float(done.seconds[done.worker == worker].sum())


def _name_of(facts: Facts, address: str) -> str:
    names = {sample.worker: sample.name for sample in facts.events.samples}
    return f"{names[address]} ({address})" if address in names else address


def idle_workers(facts: Facts) -> Found | None:
    """Find times in which most threads are idle, often because they wait for one step."""
    share = facts.shares["idle"]
    if share < _HALF_IDLE or facts.n_threads < 2:
        return None
    alone = _alone(facts)
    if alone is None:
        return Found(
            share=share,
            found=f"{facts.n_threads} threads had nothing to do for {percent(share)} of their time",
            change="take fewer workers, or a larger array: this one is too small for them",
        )
    name, seconds = alone
    return Found(
        share=share,
        found=f"for {formats.duration(seconds)} of {formats.duration(facts.seconds)} no more than half of the "
        f"{facts.n_threads} threads had work, most of it in the step '{name}', so they were idle for "
        f"{percent(share)} of their time",
        change=f"cut what '{name}' does into more tasks; as it is, {max(1, facts.n_threads // 2)} would do as well",
    )


def _alone(facts: Facts) -> tuple[str, float] | None:
    """Return the main step while at most half of the threads were busy, and the duration; None without one."""
    done, (began, ended) = facts.computed, facts.moments
    start, stop = done.start.clip(began, ended), done.stop.clip(began, ended)
    times = np.unique(np.r_[start, stop])
    if len(times) < 2:
        return None
    change = np.zeros(len(times))
    starts, stops = np.searchsorted(times, start), np.searchsorted(times, stop)
    np.add.at(change, starts, 1)
    np.add.at(change, stops, -1)
    busy = np.cumsum(change)[:-1]
    lonely = np.r_[0.0, np.cumsum(np.where((busy > 0) & (busy <= facts.n_threads / 2), np.diff(times), 0.0))]
    by_name = np.bincount(done.name, lonely[stops] - lonely[starts])
    name = int(by_name.argmax())
    seconds = float(lonely[-1])
    # Less than half of the idle time explains nothing.
    if seconds < facts.shares["idle"] / 2 * facts.seconds:
        return None
    return facts.events.tasks.name.values[name], seconds


def fell_back_to_numpy(facts: Facts) -> Found | None:
    """Find blocks that were made on the CPU despite GPUs."""
    found = facts.run.on_gpu
    if found is None or not found.warning:
        return None
    share = facts.shares["computing"] * (1 - (found.share_of_bytes or 0.0))
    if share < WORTH_WHILE:
        return None
    warning, _, advice = found.warning.rstrip(".").rpartition(". ")
    return Found(
        share=share,
        found=f"{found.on_gpu} of {formats.count(found.blocks)} blocks were on a GPU, and the CPU computed for "
        f"{percent(share)} of the workers' time: {_lower(warning)}",
        change=_lower(advice),
    )


RULES: Mapping[str, Callable[[Facts], Found | None]] = {
    "tiny blocks": tiny_blocks,
    "many tasks": many_tasks,
    "one huge block": huge_block,
    "spilling": spilling,
    "transfers": transfers,
    "one slow worker": slow_worker,
    "idle workers": idle_workers,
    "NumPy on GPUs": fell_back_to_numpy,
}

_EXPLAIN_IDLENESS = {"one huge block", "one slow worker", "many tasks"}


def suggestions(facts: Facts) -> tuple[Suggestion, ...]:
    """Return the findings of all rules, the largest share first."""
    looked = ((rule, look(facts)) for rule, look in RULES.items())
    found = [Suggestion(rule=rule, **each._asdict()) for rule, each in looked if each is not None]
    if any(each.rule in _EXPLAIN_IDLENESS for each in found):
        found = [each for each in found if each.rule != "idle workers"]
    return tuple(sorted(found, key=lambda each: -each.share))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, int) and part > 0 for part in value):
        return tuple(value)
    return None
