"""Rules that explain why a run was slow. Each looks for one cause, measures it, and suggests a change.

A rule takes `Facts` and returns `Found` or None. Its share is the part of the workers' time that the cause affects: at
most this much can be saved. No rule applies to a run on a well-configured cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
_LITTLE_CPU = 0.5  # of a core for each thread while it is in a task
_ENOUGH_SAMPLES = 6  # a worker reports its CPU every half second
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

    @cached_property
    def blocks(self) -> Blocks | None:
        """Blocks of the workload's array; None if it has none."""
        shape, chunks = (_whole_numbers(self.run.resolved.get(name)) for name in ("shape", "chunks"))
        if shape is None or chunks is None or len(shape) != len(chunks):
            return None
        # Integers are computed as float64, which is also the default type.
        computed = 4 if self.run.resolved.get("dtype") == "float32" else 8
        try:
            stored = np.dtype(self.run.resolved.get("dtype") or float).itemsize
        except TypeError:
            stored = computed
        return Blocks(
            number=math.prod(math.ceil(length / part) for length, part in zip(shape, chunks, strict=True)),
            bytes=math.prod(map(min, shape, chunks)) * computed,
            stored=stored / computed,
        )


class Blocks(NamedTuple):
    """Number and size of blocks, in bytes as they are computed."""

    number: int
    bytes: int
    stored: float
    """Bytes as stored for each byte as computed. `chunks` and all texts count those."""

    def size(self, n_bytes: float) -> str:
        """Return a size as text, in bytes as stored."""
        return formats.size(n_bytes * self.stored)

    def change(self, n_bytes: float) -> str:
        """Return the parameter for blocks of another size."""
        return f"chunks={self.size(n_bytes).replace(' ', '')}"


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


def short_tasks(facts: Facts) -> Found | None:
    """Find many very short tasks, which take longer to hand out than to compute."""
    n_tasks, blocks = len(facts.computed.name), facts.blocks
    if n_tasks < max(_MANY_TASKS, _MANY_FOR_A_THREAD * facts.n_threads):
        return None
    each = float(facts.computed.seconds.mean())
    # A worker waits for the next task, or for the graph, which grows with the tasks as well.
    waiting = facts.shares["building"] + facts.shares["scheduler"] + facts.shares["idle"]
    if waiting < _NOTICEABLE or each > _SHORT_TASK:
        return None
    change = "do more in each task: larger blocks or partitions, or several calls in one delayed function"
    if blocks is not None:
        larger = min(_GOOD_BLOCK, blocks.bytes * blocks.number / (_BLOCKS_PER_THREAD * facts.n_threads), _room(facts))
        if blocks.bytes > _SMALL_BLOCK or larger < 2 * blocks.bytes:
            return None
        fewer = formats.count(max(1, round(n_tasks * blocks.bytes / larger)))
        change = (
            f"blocks of {blocks.size(larger)} instead of {blocks.size(blocks.bytes)} would make about {fewer} tasks: "
            f"{blocks.change(larger)}"
        )
    return Found(
        share=waiting,
        found=f"{formats.count(n_tasks)} tasks of {formats.duration(each)} each kept the scheduler busy, about "
        f"{formats.duration(waiting * facts.seconds / n_tasks)} for each, and waiting for it took {percent(waiting)} "
        "of the workers' time",
        change=change,
    )


def _room(facts: Facts) -> float:
    """Return the largest size of blocks with which a worker's memory has room for eight in each thread."""
    spec = facts.run.spec
    return math.inf if spec is None or not spec.is_known else spec.worker_memory / spec.worker_threads / 8


def huge_block(facts: Facts) -> Found | None:
    """Find fewer blocks than threads, so that some threads never get one."""
    blocks, idle = facts.blocks, facts.shares["idle"]
    if blocks is None or blocks.number >= facts.n_threads or idle < _NOTICEABLE:
        return None
    better = blocks.bytes * blocks.number / (_BLOCKS_PER_THREAD * facts.n_threads)
    return Found(
        share=idle,
        found=f"{formats.count(blocks.number, 'block')} of {blocks.size(blocks.bytes)} for {facts.n_threads} threads "
        f"left them idle for {percent(idle)} of their time",
        change=f"blocks of {blocks.size(better)} would give each thread {_BLOCKS_PER_THREAD}: {blocks.change(better)}",
    )


def spilling(facts: Facts) -> Found | None:
    """Find blocks that were moved to the disk and back, because they didn't fit in memory."""
    share, n_bytes = facts.shares["spilling"], _spilled(facts)
    if share < WORTH_WHILE or not n_bytes:
        return None
    spec = facts.run.spec
    more = "more memory for each worker, or fewer threads in it"
    if spec is not None and spec.memory_limit is not None:
        # Above 60 % of its limit a worker moves blocks to the disk (distributed.worker.memory.target).
        limit = spec.memory_limit + n_bytes / 0.6 / max(1, len(facts.threads))
        more = (
            f"workers of {formats.size(limit)} instead of {formats.size(spec.memory_limit)} would keep them in memory"
        )
    return Found(
        share=share,
        found=f"blocks that did not fit in memory went to the disk, {formats.size(n_bytes)} at once, "
        f"which took {percent(share)} of the workers' time",
        change=more
        + (", and compute=true makes them again instead" if facts.run.resolved.get("compute") is False else ""),
    )


def _spilled(facts: Facts) -> int:
    """Return the sum of the workers' largest numbers of bytes on disk."""
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
    worker, mine, others = found
    ratio = mine / others
    excess = (mine - others) / facts.thread_seconds
    if ratio < _SLOWER or excess < WORTH_WHILE:
        return None
    # The others are idle once they are done.
    share = min(1.0, excess + facts.shares["idle"])
    address = facts.events.tasks.worker.values[worker]
    return Found(
        share=share,
        found=f"the worker {_name_of(facts, address)} took {ratio:.1f} times as long as the others for the same tasks",
        change="see what else runs on its cores",
    )


def _slowest(facts: Facts) -> tuple[int, float, float] | None:
    """Return the slowest worker, and the time of the tasks it shares with others: by its medians, and by theirs."""
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
        medians = {worker: counted for worker, counted in medians.items() if counted[0] >= _SAME_TASKS}
        for worker, (count, median) in medians.items():
            rest = [other for at, (_, other) in medians.items() if at != worker]
            if rest:
                mine[worker] = mine.get(worker, 0.0) + count * median
                theirs[worker] = theirs.get(worker, 0.0) + count * float(np.median(rest))
    ratios = {worker: mine[worker] / theirs[worker] for worker in mine if theirs[worker] > 0}
    if not ratios:
        return None
    worker = max(ratios, key=ratios.__getitem__)
    return worker, mine[worker], theirs[worker]


def _name_of(facts: Facts, address: str) -> str:
    names = {sample.worker: sample.name for sample in facts.events.samples}
    return f"{names[address]} ({address})" if address in names else address


def little_cpu(facts: Facts) -> Found | None:
    """Find tasks that hardly used the cores: other programs had them, or the tasks waited."""
    if facts.run.spec is not None and facts.run.spec.devices:
        return None
    done = facts.computed
    first, last = done.start.min(initial=math.inf), done.stop.max(initial=-math.inf)
    within = [each for each in facts.events.samples if each.n_threads and first < each.time < last]
    if len(within) < _ENOUGH_SAMPLES or not done.seconds.any():
        return None
    in_tasks = done.seconds.sum() / (facts.n_threads * (last - first))
    used = sum(each.cpu for each in within) / sum(100 * each.n_threads for each in within) / in_tasks
    share = facts.shares["computing"] * (1 - used)
    if used > _LITTLE_CPU or share < _NOTICEABLE:
        return None
    return Found(
        share=share,
        found=f"each thread in a task used {percent(used)} of a core: other programs had the cores, or the tasks "
        "waited, for example for files",
        change="see what else runs on these machines, and repeat the run when they are free",
    )


def idle_workers(facts: Facts) -> Found | None:
    """Find threads that are idle for much of the time."""
    share = facts.shares["idle"]
    if share < _HALF_IDLE or facts.n_threads < 2:
        return None
    return Found(
        share=share,
        found=f"{facts.n_threads} threads had nothing to do for {percent(share)} of their time",
        change="take fewer workers, or a larger array: this one is too small for them",
    )


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
    "short tasks": short_tasks,
    "one huge block": huge_block,
    "spilling": spilling,
    "transfers": transfers,
    "one slow worker": slow_worker,
    "little CPU": little_cpu,
    "idle workers": idle_workers,
    "NumPy on GPUs": fell_back_to_numpy,
}

_EXPLAIN_IDLENESS = {"one huge block", "one slow worker", "short tasks"}


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
