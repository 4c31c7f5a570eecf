"""Comparisons as values, and where they are kept: one folder for each, which outlives whoever asked for it.

What `workbench.jobs.records` says of records is true of these.
"""

from __future__ import annotations

import contextlib
import platform
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import psutil
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from workbench import config, formats
from workbench.clusters import records
from workbench.clusters.lines import read_line
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, NotFoundError
from workbench.jobs import folders, records as on_disk
from workbench.jobs.folders import Lasting
from workbench.runs.parts import Result
from workbench.runs.run import SIMULATED, on_simulated
from workbench.runs.settings import read_pairs
from workbench.workloads.listing import title_of
from workbench.workloads.values import Check

T = TypeVar("T")
Stage = Literal["waiting for another comparison", "starting clusters", "warming up", "measuring", "stopping clusters"]
Mode = Literal["side by side", "one after another", "past"]

MOST_REPEATS = 1000
MOST_ROWS = 64


def read_values(text: str) -> tuple[str, ...]:
    """Return the values of a text such as '1,2,4'; a semicolon between them lets each hold commas."""
    values = text.split(";") if ";" in text else text.split(",")
    return tuple(value.strip() for value in values if value.strip())


class Request(BaseModel, frozen=True, str_strip_whitespace=True):
    """What is to be compared. Frozen, JSON both ways."""

    workload: str
    parameters: dict[str, Any] = {}
    on: tuple[str, ...] = ("cpu",)
    """Lines such as 'cpu --workers 2', or '--cluster NAME' for one that runs; see `clusters.lines`."""
    settings: Annotated[dict[str, Any], BeforeValidator(read_pairs)] = {}
    """Settings of Dask for all rows."""
    sweep: dict[str, tuple[Any, ...]] = {}
    """Values of parameters of the workload, or of workers, threads and memory, each of which makes rows of its own."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)] = 5
    warmup: Annotated[int, Field(ge=0, le=MOST_REPEATS)] = 1


class Sample(BaseModel, frozen=True):
    """One measured run."""

    run: str
    round: int = 0
    status: str = "done"
    seconds: float | None = None
    bytes: int | None = None
    result: Result | None = None
    check: Check | None = None
    energy: float | None = None
    """Joules that the GPUs took, where they were measured."""
    price_per_hour: float | None = None
    """Of the hardware when the run began, in whatever currency workbench.prices is."""
    error: str | None = None


class Row(BaseModel, frozen=True):
    """One architecture with one set of parameters, and what was measured of it."""

    on: str
    """The line that names the cluster."""
    label: str
    """The line, and the values of swept parameters."""
    workload: str
    settings: dict[str, Any] = {}
    """Of Dask, for each of its runs."""
    sha: str | None = None
    """Of the text of a person's function, which each run of the row is of."""
    swept: dict[str, Any] = {}
    spec: ClusterSpec | None = None
    """None where it can't be had."""
    cluster: str | None = None
    """Name of the cluster that runs already, or was started for this."""
    parameters: dict[str, Any] = {}
    """As each run is given them."""
    resolved: dict[str, Any] = {}
    """As the workload's function gets them."""
    reason: str | None = None
    """Why it can't be had, or what ended its measuring early."""
    warmups: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    versions: dict[str, str] = {}
    inventory: dict[str, Any] | None = None
    """Machine of a run of the past; those of one comparison have the comparison's."""

    @property
    def title(self) -> str:
        """The hardware in words, and the values of swept parameters."""
        try:
            return f"{read_line(self.on).words()}{self.label.removeprefix(self.on)}"
        except BadInputError:
            return self.label  # A row of the past is called after its runs.

    @property
    def seconds(self) -> tuple[float, ...]:
        """Times of the runs that gave an answer, in the order in which they were measured."""
        return tuple(sample.seconds for sample in self.samples if sample.seconds is not None)

    @property
    def times(self) -> dict[int, float]:
        """The same by the round in which they were measured."""
        return {sample.round: sample.seconds for sample in self.samples if sample.seconds is not None}

    @property
    def failed(self) -> bool:
        """Whether a run of it failed, one that warms up included; not where it can't be had."""
        return self.reason is not None and bool(self.samples or self.warmups)


class Comparison(Lasting, frozen=True):
    """Several architectures or sets of parameters, measured in turn."""

    id: str
    workload: str
    request: Request | None = None
    """None for runs of the past."""
    mode: Mode = "side by side"
    seed: int = 0
    """Of the order of the rows within each round."""
    stage: Stage | None = None
    now: str | None = None
    """What is being measured, in words; None before and after."""
    done: int = 0
    total: int = 0
    """Runs, those that warm up included."""
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    inventory: dict[str, Any] | None = None
    started: float | None = None
    stopped: float | None = None

    def __repr__(self) -> str:
        return f"<Comparison {self.id}: {self.workload}, {formats.count(len(self.rows), 'row')}, {self.status}>"

    @property
    def title(self) -> str:
        """What the workload is called, marked where GPUs were simulated."""
        return f"{SIMULATED if self.simulated else ''}{', '.join(map(title_of, self.workload.split(', ')))}"

    @property
    def in_rounds(self) -> bool:
        """Whether runs of one round were measured one after another, and are a pair."""
        return self.mode != "past"

    def order(self, items: Sequence[T], round_: int) -> list[T]:
        """Return rows or clusters in the order of a round, shuffled: none always comes after the same other."""
        return random.Random(f"{self.seed} {round_}").sample(items, len(items))

    @property
    def simulated(self) -> bool:
        """Whether GPUs of one of its rows were."""
        return any(on_simulated(row.spec, row.inventory or self.inventory) for row in self.rows)


def folder(comparison_id: str) -> Path:
    """Folder of this comparison: record.json, log.txt."""
    if not folders.is_id(comparison_id):
        raise BadInputError(f"'{comparison_id:.80}' is not the id of a comparison. See: workbench comparisons")
    return _all() / comparison_id


def create(comparison: Comparison) -> Comparison:
    """Keep a new comparison."""
    return on_disk.create(folder(comparison.id), comparison)


def write(comparison: Comparison) -> Comparison:
    """Replace what is kept of it. One that was deleted meanwhile stays deleted."""
    return on_disk.write(folder(comparison.id), comparison)


def get(comparison_id: str) -> Comparison:
    """Comparison of this id, told truthfully: one whose process died is lost. NotFoundError names the latest ones."""
    found = _read(folder(comparison_id))
    if found is None:
        there = ", ".join(each.id for each in select(limit=5))
        latest = f"The latest are: {there}." if there else "There is none yet. Make one: workbench compare"
        raise NotFoundError(f"Unknown comparison '{comparison_id:.80}'. {latest}")
    return found


def find(text: str) -> Comparison:
    """Comparison of this id, or of the only id that begins or ends with `text`, or the latest one for 'last'."""
    if text == "last":
        latest = select(limit=1)
        if not latest:
            raise NotFoundError("There is no comparison yet. Make one: workbench compare array_sum --on cpu")
        return latest[0]
    return get(folders.one_of(on_disk.names(_all()), text, "comparisons"))


def select(*, limit: int | None = 50) -> tuple[Comparison, ...]:
    """Return the comparisons, the newest first."""
    if limit is not None and limit < 1:
        raise BadInputError(f"limit: given {limit}, allowed are whole numbers from 1.")
    read = (_read(_all() / each.id) if each.active else each for each in _index.all(_all()).values())
    ordered = sorted(filter(None, read), key=lambda each: each.created, reverse=True)
    return tuple(ordered[:limit])


def delete(comparison_id: str) -> None:
    """Forget a comparison; its runs stay. Raises ConflictError while it is going on."""
    comparison = get(comparison_id)
    if comparison.active:
        raise ConflictError(f"{comparison.id} is still going on. Cancel it first.")
    on_disk.discard(folder(comparison.id))


def clusters_of(comparison: Comparison) -> tuple[str, ...]:
    """Names that clusters started for this comparison have."""
    return tuple(cluster_name(comparison.id, index) for index in range(len(places(comparison.rows))))


def cluster_name(comparison_id: str, index: int) -> str:
    """Name of the index-th cluster that is started for a comparison."""
    return f"compare-{comparison_id.rpartition('-')[2]}-{index + 1}"


def turn_file() -> Path:
    """File that is locked by the comparison which computes on this machine; a disk may be several machines'."""
    return _all() / f".turn-{platform.node()}"


def places(rows: Sequence[Row]) -> tuple[str, ...]:
    """Lines of the rows that can be had, each once: rows with one line share one cluster."""
    return tuple(dict.fromkeys(row.on for row in rows if row.spec is not None))


def _all() -> Path:
    return config.data_folder() / "comparisons"


def _read(path: Path) -> Comparison | None:
    try:
        return on_disk.settled(lambda: _parsed(path), path, _bury)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as err:
        return _damaged(path, err)


def _parsed(path: Path) -> Comparison:
    text = on_disk.read_bytes(path / on_disk.FILE)
    return Comparison.model_validate_json(text).model_copy(update={"id": path.name})


def _in_list(path: str) -> Comparison:
    try:
        return _parsed(Path(path))
    except FileNotFoundError:
        raise
    except (OSError, ValidationError) as err:
        return _damaged(Path(path), err)


_index = on_disk.Index(lambda path: on_disk.stamp(f"{path}/{on_disk.FILE}"), _in_list)


def _damaged(path: Path, error: OSError | ValidationError) -> Comparison:
    return Comparison(
        id=path.name,
        workload=path.name.removeprefix("compare-").rpartition("-")[0],
        status="lost",
        created=path.stat().st_mtime,
        error=on_disk.damage(error, "delete_comparison"),
    )


def _bury(comparison: Comparison) -> dict[str, Any]:
    """What changes of one whose process was killed; the clusters that it left end."""
    for name in clusters_of(comparison):
        with contextlib.suppress(NotFoundError):
            host = records.host_process(records.read(name))
            if host is not None:
                with contextlib.suppress(psutil.Error):
                    host.terminate()
    why = "The process that conducted it was ended from outside. What was measured until then is kept."
    return {"status": "lost", "stage": None, "now": None, "stopped": time.time(), "error": why}
