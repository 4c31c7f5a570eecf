"""How quick a cluster is at each kind of work: measured in a few seconds, kept with its date, sent to others."""

from __future__ import annotations

import contextlib
import contextvars
import math
import platform
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil
from pydantic import BaseModel, ValidationError

from workbench import config, remote
from workbench.clusters import records
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, FailedError, NotFoundError, install, reason_of
from workbench.formats import count
from workbench.hardware import Cpu, inventory, rates
from workbench.paths import check_openable
from workbench.runs.forecasting import devices
from workbench.travelling import Travelling, ask, machine_elsewhere, workers_of

if TYPE_CHECKING:
    from distributed import Client


FORMAT = 2

_ROUNDS = 3
_SECONDS_OF_A_KIND = 0.06
_SECONDS_OF_A_RUN = 0.6
_RUNS_MEASURED = 2
_TRAVELLING = 4_000_000  # numbers, which is 32 MB: about what a block has
_SMALL_GRAPH, _LARGE_GRAPH = 2, 16  # blocks along each side
_LOOKING = 1.0  # seconds between two looks at whether the workers are there
_BUSY = 0.25  # part of the cores from which a machine is called busy
_OLD = 90 * 24 * 3600  # seconds


class Calibration(BaseModel, frozen=True):
    """Rates of one cluster's shape on one machine. Frozen, JSON both ways."""

    format: int = FORMAT
    machine: str
    """Name of the host."""
    processor: str
    cores: int
    profile: str
    n_workers: int
    threads_per_worker: int
    protocol: str
    when: float
    """Seconds since the epoch."""
    rates: dict[str, float]
    """Amount of each kind in a second, all threads together."""
    one_thread: dict[str, float]
    """The same of one thread while the others wait, for what isn't shared."""
    moved: float | None
    """Bytes a second between the workers, all together; None with one worker."""
    task_seconds: float
    """Time that one more task costs."""
    start_seconds: float
    """Time that the smallest computation takes."""
    beside_seconds: float = 0.0
    """What a run's recording and counting, and the scheduler, take from cores that are all at work."""
    device: str = ""
    """Name of the GPUs, where the workers have some."""
    spread: float
    """Median over the kinds of how far the rounds lay apart, as a part of the median."""
    load: float
    """Cores that others kept busy when it began."""
    rounds: int = _ROUNDS
    measured: Literal["here", "elsewhere"] = "here"

    @property
    def key(self) -> str:
        """Name of what was measured: 'cpu-2x1-tls'."""
        return f"{self.profile}-{self.n_workers}x{self.threads_per_worker}-{self.protocol}"

    @property
    def threads(self) -> int:
        """Threads of all workers together."""
        return self.n_workers * self.threads_per_worker

    def rate(self, kind: str) -> float:
        """Amount of a kind in a second; where the workers that were measured have no numba, what "fast" would be."""
        lacks = kind == "fast" and kind not in self.rates
        return rates.FAST * self.rates["normal"] if lacks else self.rates[kind]

    def describe(self) -> str:
        """One line on what was measured, when, and what speaks against it."""
        day = time.strftime("%Y-%m-%d", time.localtime(self.when))
        each = count(self.threads_per_worker, "thread")
        if self.device:
            each = f"{self.device}, {each}"
        text = f"{self.machine}, {self.n_workers} × {each}, {self.protocol}, calibrated {day}"
        return f"{text}; {self.doubt}" if self.doubt else text

    @property
    def doubt(self) -> str:
        """Why to measure again; empty where nothing speaks for it."""
        if self.load > _BUSY * self.cores:
            return f"{self.load:.1f} of its {self.cores} cores were busy with something else meanwhile"
        if self.measured == "here" and time.time() - self.when > _OLD:
            return "more than three months ago"
        return ""


def calibrate(record: ClusterRecord) -> Calibration:
    """Measure a cluster that is ready, and keep what was found.

    Raises ConflictError where its GPUs have no CuPy, and FailedError where it, or a worker of it, ends meanwhile.
    """
    from workbench.clusters.connect import connect
    from workbench.runs.failures import may_be_the_clusters_end

    if record.spec.devices and not record.spec.cupy:
        raise ConflictError(
            f"The workers of {record.name} have no CuPy, with which its GPUs are measured. Install it and start the "
            f"cluster anew: {install('cuda13')}."
        )
    try:
        with connect(record.name, client_name="calibration") as client:
            client.wait_for_workers(record.n_workers, timeout=30)
            spec = record.spec.model_copy(update={"n_workers": max(1, record.n_workers)})
            found = _while_all_are_there(record.name, lambda: measure(client, spec))
    except Exception as err:
        if isinstance(err, OSError | NotFoundError) or may_be_the_clusters_end(err):
            raise FailedError(_ended(record.name)) from err
        raise
    found = found.model_copy(update={"beside_seconds": _beside(record, found)})
    keep(found)
    return found


def _while_all_are_there(name: str, measure: Callable[[], Calibration]) -> Calibration:
    """Return what `measure` returns. Raises ConnectionError as soon as the cluster or a worker of it has ended.

    Dask tells late, or never: it tries for half a minute to reach what was killed, and what only a worker that is gone
    may compute waits for ever.
    """
    before, found = records.read(name), Future[Calibration]()

    def work() -> None:
        try:
            found.set_result(measure())
        except BaseException as err:  # noqa: BLE001  Raised where it is awaited.
            found.set_exception(err)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="calibration", daemon=True).start()
    done = False
    while not done:
        done = bool(wait([found], _LOOKING).done)
        now = records.read(name)
        there = now.n_workers >= before.n_workers and {*before.worker_pids} <= {*now.worker_pids}
        if now.status != "ready" or not there:
            raise ConnectionError("A worker of the cluster ended, or all of it.")
    return found.result()


def _ended(name: str) -> str:
    """Return a sentence on what ended while a cluster was measured."""
    try:
        record = records.read(name)
    except NotFoundError:
        return f"{name} was stopped while it was measured. Nothing was saved."
    if record.status != "ready":
        return f"Nothing was saved of what was measured. Cluster {record.told}"
    return (
        f"A worker of {name} ended while it was measured, so nothing was saved. Measure again. Why it ended is in the "
        f"log: workbench logs {name}"
    )


def measure(client: Client, spec: ClusterSpec) -> Calibration:
    """Rates of a cluster: each kind in all threads at once, several times, then tasks and transfers."""
    elsewhere = machine_elsewhere(ask(client))
    machine = elsewhere or {
        "host": host(),
        "cpu": processor().model_dump(),
        "load": psutil.cpu_percent(0.3) / 100 * (psutil.cpu_count() or 1),
    }
    rounds = [_round(client, spec) for _ in range(_ROUNDS)]
    tasks = [_graph_seconds(client, spec) for _ in range(_ROUNDS)]
    small, large = (statistics.median(each[part] for each in tasks) for part in (0, 1))
    per_task = max(1e-5, (large - small) / (_tasks(_LARGE_GRAPH) - _tasks(_SMALL_GRAPH)))
    of_kind = {kind: [each[kind] for each in rounds] for kind in rounds[0]}
    together = {kind: statistics.median(found) for kind, found in of_kind.items()}
    return Calibration(
        machine=machine["host"],
        processor=machine["cpu"]["model"] or "unknown",
        cores=machine["cpu"]["usable"],
        profile=spec.profile,
        n_workers=spec.n_workers,
        threads_per_worker=spec.threads_per_worker,
        protocol=spec.protocol,
        when=time.time(),
        rates=together,
        one_thread=_rates(client, spec, rates.SERIAL, threads=1, workers=_addresses(client)[:1])[0],
        moved=_travelling(client, spec) if spec.n_workers > 1 else None,
        task_seconds=per_task,
        start_seconds=max(1e-3, small - _tasks(_SMALL_GRAPH) * per_task),
        spread=statistics.median((max(found) - min(found)) / together[kind] for kind, found in of_kind.items()),
        load=machine["load"],
        device=min(devices.names(spec), default="GPU") if spec.devices else "",
        measured="elsewhere" if elsewhere else "here",
    )


def _beside(record: ClusterRecord, found: Calibration) -> float:
    """Seconds that real runs take beside their work: of sums in tiles, whose work needs nothing but the processors.

    0 where they can't be run, and on GPUs, which compute while the processors do the rest.
    """
    from workbench.runs import store, submit
    from workbench.runs.forecasting.duration import model_seconds
    from workbench.workloads.values import Needs

    if record.spec.devices:
        return 0.0
    blocks = 4 * found.threads
    side = max(256, round(math.sqrt(found.rate("tiles") * _SECONDS_OF_A_RUN / blocks) / 256) * 256)
    missed = []
    for _ in range(_RUNS_MEASURED):
        run = submit.submit("array_sum", {"shape": [side, blocks * side], "chunks": side, "generator": "tiles"}, record)
        try:
            run = submit.finish(run.id, timeout=60)
        finally:
            with contextlib.suppress(ConflictError):  # it has ended, as it should
                submit.cancel(run.id)
            if not submit.finish(run.id, timeout=20).active:
                store.delete(run.id)
        if run.seconds is not None:
            told = model_seconds(Needs.model_validate(run.needs), found, found.n_workers, found.threads)
            missed.append(run.seconds - (told or run.seconds))
    return max(0.0, statistics.median(missed)) if missed else 0.0


def _round(client: Client, spec: ClusterSpec) -> dict[str, float]:
    """Rate of each kind, all threads of all workers together, which do the same at about the same time."""
    found = _rates(client, spec, rates.KINDS, threads=1 if spec.devices else spec.threads_per_worker)
    together = {kind: sum(each.get(kind, 0.0) for each in found) for kind in (*rates.KINDS, "fast")}
    return {kind: rate for kind, rate in together.items() if rate}


def _rates(
    client: Client, spec: ClusterSpec, kinds: Sequence[str], *, threads: int, workers: list[str] | None = None
) -> list[dict[str, float]]:
    """Rates in each of these threads of each worker."""
    answers = client.run(
        Travelling(remote.rates_of),
        Travelling(rates),
        kinds,
        time.time() + 0.1,
        _SECONDS_OF_A_KIND,
        threads=threads,
        on_gpu=bool(spec.devices),
        fast=kinds is rates.KINDS and not spec.devices,
        workers=workers,
    )
    return [each for of_worker in answers.values() for each in of_worker]


def _travelling(client: Client, spec: ClusterSpec) -> float:
    """Bytes a second when each worker fetches a block of its neighbour, all at once."""
    import dask.array as da
    from distributed import futures_of

    from workbench.linalg.backend import wait_for_gpus
    from workbench.runs.keeping import wait_for

    addresses = _addresses(client)
    neighbours = [*addresses[1:], addresses[0]]
    found = []
    for _ in range(_ROUNDS):
        with devices.arrays(spec):
            # Numbers that no encoding makes shorter.
            blocks = [da.random.RandomState().random_sample(_TRAVELLING, chunks=_TRAVELLING) for _ in addresses]
            held = [futures_of(client.persist(x, workers=[at]))[0] for x, at in zip(blocks, addresses, strict=True)]
        wait_for(held)
        if spec.devices:
            wait_for_gpus(client)
        began = time.perf_counter()
        arrived = [
            client.submit(len, block, workers=[neighbour], allow_other_workers=False, pure=False)
            for block, neighbour in zip(held, neighbours, strict=True)
        ]
        wait_for(arrived)
        found.append(len(held) * _TRAVELLING * 8 / (time.perf_counter() - began))
    return statistics.median(found)


def _graph_seconds(client: Client, spec: ClusterSpec) -> tuple[float, float]:
    """Seconds of a computation of few tasks and of one of many, which do nothing to speak of."""
    import dask.array as da

    found = []
    with devices.arrays(spec):
        for side in (_SMALL_GRAPH, _LARGE_GRAPH):
            began = time.perf_counter()
            rs = da.random.RandomState(0) if spec.devices else da.random.default_rng()
            x = rs.random(size=(4 * side, 4 * side), chunks=4)
            (total,) = client.persist([(x + x.T).sum()])
            client.compute(total.to_backend("numpy")).result()
            found.append(time.perf_counter() - began)
    return found[0], found[1]


def _tasks(side: int) -> float:
    """Tasks of that computation: each block made, each added with what turns it, and their sums."""
    return 2.4 * side**2


def _addresses(client: Client) -> list[str]:
    return list(workers_of(client))


def keep(found: Calibration) -> Path:
    """Write it where `for_spec` and `elsewhere` find it; an older one of the same machine and shape is replaced."""
    folder = _folder(found.measured)
    folder.mkdir(exist_ok=True, parents=True, mode=0o700)
    name = f"{found.machine}-{found.key}"
    path = folder / f"{''.join(sign if sign.isalnum() or sign in '-_' else '_' for sign in name)}.json"
    config.write_atomically(path, found.model_dump_json(indent=2))
    return path


def load(path: Path) -> Calibration:
    """Keep a colleague's calibration file as a reference machine. Raises BadInputError where it isn't one."""
    check_openable(path)
    found = _read(path)
    if isinstance(found, str):
        raise BadInputError(
            f"{path} can't be used as a calibration ({found}). Give a file that `workbench calibrate --save` wrote "
            "with the same version of dask-workbench."
        )
    found = found.model_copy(update={"measured": "elsewhere"})
    keep(found)
    return found


def _usable(found: Calibration) -> bool:
    """Return whether all that a forecast divides by is a positive number."""
    numbers = [found.rates.get(kind, 0.0) for kind in {*rates.KINDS, *found.rates}]
    numbers += [found.one_thread.get(kind, 0.0) for kind in rates.SERIAL]
    numbers += [found.task_seconds, found.start_seconds, 1.0 if found.moved is None else found.moved]
    return all(math.isfinite(number) and number > 0 for number in numbers)


def kept(measured: Literal["here", "elsewhere"]) -> tuple[Calibration, ...]:
    """All that were measured here, or elsewhere, the newest first; `damaged` tells of those that can't be used."""
    found = [one for path in _folder(measured).glob("*.json") if isinstance(one := _read(path), Calibration)]
    return tuple(sorted(found, key=lambda one: one.when, reverse=True))


def damaged() -> tuple[str, ...]:
    """Return a sentence for each file among the kept that can't be used, and so counts in no forecast."""
    paths = (path for measured in ("here", "elsewhere") for path in sorted(_folder(measured).glob("*.json")))
    return tuple(
        f"The calibration {path} can't be used ({why}). Calibrate again, or delete it."
        for path in paths
        if isinstance(why := _read(path), str)
    )


def _read(path: Path) -> Calibration | str:
    """Return what is in a file, or why it can't be used."""
    try:
        found = Calibration.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as err:
        return reason_of(err)
    if found.format != FORMAT:
        return f"another version of dask-workbench wrote it, in format {found.format}"
    return found if _usable(found) else "a rate or time in it is no positive number"


def for_spec(spec: ClusterSpec, machine: Mapping[str, Any] | None = None) -> Calibration | None:
    """Calibration of clusters of this shape on such machines, else of the shape nearest to it; None where none is.

    `machine` is what is known of those that the cluster is on; None for this one.
    """
    # The data folder may be shared by several machines, and the name of a container's host changes each time.
    model, cores = cores_of(machine)
    there = (model or "unknown", cores, bool(spec.devices))
    alike = [
        one
        for one in kept("here" if machine is None else "elsewhere")
        if (one.processor, one.cores, bool(one.device)) == there and _alike(one, spec)
    ]
    return min(alike, key=lambda one: distance(one, spec), default=None)


def _alike(one: Calibration, spec: ClusterSpec) -> bool:
    """Return whether its rates can tell of clusters of this spec: of the same GPUs, or else of the same profile."""
    return one.device in (devices.names(spec) or {"GPU"}) if spec.devices else one.profile == spec.profile


def distance(one: Calibration | ClusterSpec, spec: ClusterSpec) -> float:
    """Return how far the shape of one cluster is from that of another; 0 where it is the same."""
    return (
        abs(math.log(one.threads / spec.threads))
        + abs(math.log(one.n_workers / spec.n_workers)) / 2
        + (one.protocol != spec.protocol) / 4
    )


def host(machine: Mapping[str, Any] | None = None) -> str:
    """Name of a machine, or names with commas between them; of this one by default."""
    return platform.node() if machine is None else str(machine["host"])


def cores_of(machine: Mapping[str, Any] | None = None) -> tuple[str | None, int]:
    """Processor of a machine and cores that may be used there; of this one by default."""
    cpu = processor()
    return (cpu.model, cpu.usable) if machine is None else (machine["cpu"]["model"], machine["cpu"]["usable"])


@cache
def processor() -> Cpu:
    """Processor of this machine, read once."""
    return inventory().cpu


def _folder(measured: str) -> Path:
    return config.data_folder() / ("calibrations" if measured == "here" else "machines")
