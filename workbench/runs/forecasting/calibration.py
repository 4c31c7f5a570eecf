"""How quick a cluster is at each kind of work: measured in a few seconds, kept with its date, sent to others."""

from __future__ import annotations

import math
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench import config
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, NotFoundError
from workbench.hardware import rates

if TYPE_CHECKING:
    from distributed import Client

    from workbench.hardware import Cpu

FORMAT = 1

_ROUNDS = 3
_SECONDS_OF_A_KIND = 0.08
_TRAVELLING = 4_000_000  # numbers, which is 32 MB: about what a block has
_SMALL_GRAPH, _LARGE_GRAPH = 2, 16  # blocks along each side
_BUSY = 0.25  # part of the cores from which a machine is called busy
_OLD = 90 * 24 * 3600  # seconds


class Calibration(BaseModel):
    """Rates of one cluster's shape on one machine. Frozen, JSON both ways."""

    model_config = ConfigDict(frozen=True, extra="ignore")

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

    def describe(self) -> str:
        """One line on what was measured, when, and what speaks against it."""
        day = time.strftime("%Y-%m-%d", time.localtime(self.when))
        text = (
            f"{self.machine}, {self.n_workers} × {self.threads_per_worker} thread"
            f"{'s' if self.threads_per_worker > 1 else ''}, {self.protocol}, calibrated {day}"
        )
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

    Raises
    ------
    ConflictError
        It isn't ready, or computes on GPUs, whose rates a NumPy measurement doesn't tell.
    """
    from workbench.clusters.connect import connect

    if record.spec.devices:
        raise ConflictError(
            f"Cluster {record.name} computes on GPUs, and a calibration measures CPUs. Forecasts for it come from the "
            "history of its runs."
        )
    with connect(record.name, client_name="calibration") as client:
        client.wait_for_workers(record.n_workers, timeout=30)
        found = measure(client, record.spec.model_copy(update={"n_workers": max(1, record.n_workers)}))
    keep(found)
    return found


def measure(client: Client, spec: ClusterSpec) -> Calibration:
    """Rates of a cluster: each kind in all threads at once, several times, then tasks and transfers."""
    import cloudpickle
    import psutil

    # The workers may have another version of this package, or none.
    cloudpickle.register_pickle_by_value(rates)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cpu = processor()
    load = psutil.cpu_percent(0.3) / 100 * (psutil.cpu_count() or 1)
    rounds = [_round(client, spec) for _ in range(_ROUNDS)]
    tasks = [_graph_seconds(client) for _ in range(_ROUNDS)]
    small, large = (statistics.median(each[part] for each in tasks) for part in (0, 1))
    per_task = max(1e-5, (large - small) / (_tasks(_LARGE_GRAPH) - _tasks(_SMALL_GRAPH)))
    together = {kind: statistics.median(each[kind] for each in rounds) for kind in rounds[0]}
    return Calibration(
        machine=host(),
        processor=cpu.model or "unknown",
        cores=cpu.usable,
        profile=spec.profile,
        n_workers=spec.n_workers,
        threads_per_worker=spec.threads_per_worker,
        protocol=spec.protocol,
        when=time.time(),
        rates=together,
        one_thread=_alone(client),
        moved=_travelling(client) if spec.n_workers > 1 else None,
        task_seconds=per_task,
        start_seconds=max(1e-3, small - _tasks(_SMALL_GRAPH) * per_task),
        spread=statistics.median(_apart([each[kind] for each in rounds]) for kind in together),
        load=load,
    )


def _round(client: Client, spec: ClusterSpec) -> dict[str, float]:
    """Rate of each kind, all threads of all workers together, which do the same at about the same time."""
    start = time.time() + 0.1
    futures = [
        client.submit(
            _do_each,
            rates.KINDS if thread == 0 else [kind for kind in rates.KINDS if kind not in rates.DISK],
            start,
            workers=[address],
            allow_other_workers=False,
            pure=False,
        )
        for address in _addresses(client)
        for thread in range(spec.threads_per_worker)
    ]
    found: list[Mapping[str, float]] = client.gather(futures)
    return {kind: sum(each.get(kind, 0.0) for each in found) for kind in rates.KINDS}


def _alone(client: Client) -> dict[str, float]:
    address = _addresses(client)[0]
    return client.submit(_do_each, rates.SERIAL, time.time(), workers=[address], pure=False).result()


def _do_each(kinds: Sequence[rates.Kind], start: float) -> dict[str, float]:
    """Rates of these kinds in this thread; runs on a worker."""
    from distributed import get_worker

    folder = get_worker().local_directory
    time.sleep(min(1.0, max(0.0, start - time.time())))
    return {kind: rates.measure(kind, _SECONDS_OF_A_KIND, folder) for kind in kinds}


def _travelling(client: Client) -> float:
    """Bytes a second when each worker fetches a block of its neighbour, all at once."""
    addresses = _addresses(client)
    neighbours = [*addresses[1:], addresses[0]]
    found = []
    for _ in range(_ROUNDS):
        held = [client.submit(_numbers, _TRAVELLING, workers=[address], pure=False) for address in addresses]
        _wait(held)
        began = time.perf_counter()
        _wait(
            [
                client.submit(len, block, workers=[neighbour], allow_other_workers=False, pure=False)
                for block, neighbour in zip(held, neighbours, strict=True)
            ]
        )
        found.append(len(held) * _TRAVELLING * 8 / (time.perf_counter() - began))
    return statistics.median(found)


def _numbers(count: int) -> Any:
    """Numbers that no encoding makes shorter; runs on a worker."""
    import numpy as np

    return np.random.default_rng().random(count)


def _graph_seconds(client: Client) -> tuple[float, float]:
    """Seconds of a computation of few tasks and of one of many, which do nothing to speak of."""
    import dask.array as da

    found = []
    for side in (_SMALL_GRAPH, _LARGE_GRAPH):
        began = time.perf_counter()
        x = da.random.default_rng().random((4 * side, 4 * side), chunks=4)
        (total,) = client.persist([(x + x.T).sum()])
        client.compute(total).result()
        found.append(time.perf_counter() - began)
    return found[0], found[1]


def _tasks(side: int) -> float:
    """Tasks of that computation: each block made, each added with what turns it, and their sums."""
    return 2.4 * side**2


def _addresses(client: Client) -> list[str]:
    return list(client.scheduler_info(n_workers=-1)["workers"])


def _wait(futures: Sequence[Any]) -> None:
    from distributed import wait

    wait(futures)
    for future in futures:
        if future.status != "finished":
            future.result()


def _apart(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


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
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as err:
        raise BadInputError(
            f"{path} can't be read ({err}). Give a file that `workbench calibrate --save` wrote."
        ) from err
    try:
        found = Calibration.model_validate_json(text).model_copy(update={"measured": "elsewhere"})
    except ValidationError as err:
        raise BadInputError(
            f"{path} is not a calibration. Give a file that `workbench calibrate --save` wrote."
        ) from err
    if found.format > FORMAT or not _usable(found):
        raise BadInputError(
            f"{path} is a calibration that this version can't use (format {found.format}). Let your colleague "
            "calibrate again with the same version of dask-workbench."
        )
    keep(found)
    return found


def _usable(found: Calibration) -> bool:
    """Whether all that a forecast divides by is a positive number."""
    numbers = [found.rates.get(kind, 0.0) for kind in rates.KINDS]
    numbers += [found.one_thread.get(kind, 0.0) for kind in rates.SERIAL]
    numbers += [found.task_seconds, found.start_seconds, 1.0 if found.moved is None else found.moved]
    return all(math.isfinite(number) and number > 0 for number in numbers)


def kept(measured: Literal["here", "elsewhere"]) -> tuple[Calibration, ...]:
    """All that were measured here, or elsewhere, the newest first; a file that can't be used is passed over."""
    found = []
    for path in _folder(measured).glob("*.json"):
        try:
            one = Calibration.model_validate_json(path.read_text())
        except (OSError, ValueError):
            continue
        if _usable(one) and one.format <= FORMAT:
            found.append(one)
    return tuple(sorted(found, key=lambda one: one.when, reverse=True))


def for_spec(spec: ClusterSpec) -> Calibration | None:
    """Calibration of clusters of this shape here, else of the shape nearest to it; None for GPUs or where is none."""
    if spec.devices:
        return None
    # The data folder may be shared by several machines, and the name of a container's host changes each time.
    cpu = processor()
    here = (cpu.model or "unknown", cpu.usable)
    alike = [one for one in kept("here") if one.profile == spec.profile and (one.processor, one.cores) == here]
    return min(alike, key=lambda one: _distance(one, spec), default=None)


def is_exact(found: Calibration, spec: ClusterSpec) -> bool:
    """Whether it was measured on clusters of just this shape."""
    return _distance(found, spec) == 0


def _distance(one: Calibration, spec: ClusterSpec) -> float:
    return (
        abs(math.log(one.threads / spec.threads))
        + abs(math.log(one.n_workers / spec.n_workers)) / 2
        + (one.protocol != spec.protocol) / 4
    )


def named(machine: str) -> Calibration:
    """Newest calibration of a machine elsewhere. NotFoundError lists which there are."""
    found = [one for one in kept("elsewhere") if one.machine == machine]
    if not found:
        names = ", ".join(sorted({one.machine for one in kept("elsewhere")})) or "none"
        raise NotFoundError(f"There is no calibration of {machine!r}. There are: {names}.")
    return found[0]


def host() -> str:
    """Name of this machine."""
    return platform.node()


@cache
def processor() -> Cpu:
    """Processor of this machine, read once."""
    from workbench.hardware import inventory

    return inventory().cpu


def _folder(measured: str) -> Path:
    return config.data_folder() / ("calibrations" if measured == "here" else "machines")
