"""Comparisons as values, and their storage: one folder for each, which outlives the process that requested it.

`workbench.jobs.records` describes these records.
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import psutil
from pydantic import BaseModel, BeforeValidator, Field

from workbench import formats
from workbench.clusters import records
from workbench.clusters.lines import read_line
from workbench.clusters.profiles import DEFAULT_PROFILE
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, NotFoundError
from workbench.jobs import records as on_disk
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
    """Request for a comparison. Frozen, JSON both ways."""

    workload: str
    parameters: dict[str, Any] = {}
    on: tuple[str, ...] = (DEFAULT_PROFILE,)
    """Lines such as 'cpu --workers 2', or '--cluster NAME' for a running one; see `clusters.lines`."""
    settings: Annotated[dict[str, Any], BeforeValidator(read_pairs)] = {}
    """Settings of Dask for all rows."""
    sweep: dict[str, tuple[Any, ...]] = {}
    """Values of the workload's parameters, or of workers, threads and memory; each makes its own rows."""
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
    """Joules used by the GPUs, if measured."""
    price_per_hour: float | None = None
    """Price of the hardware when the run started, in the currency of workbench.prices."""
    error: str | None = None


class Row(BaseModel, frozen=True):
    """One architecture with one set of parameters, and its measurements."""

    on: str
    """The line that names the cluster."""
    label: str
    """The line, and the values of swept parameters."""
    workload: str
    settings: dict[str, Any] = {}
    """Settings of Dask for each run."""
    sha: str | None = None
    """Hash of the source of the user's function that the row's runs call."""
    swept: dict[str, Any] = {}
    spec: ClusterSpec | None = None
    """None if it is unavailable."""
    cluster: str | None = None
    """Name of the cluster, which ran already or was started for this."""
    parameters: dict[str, Any] = {}
    """Parameters given to each run."""
    resolved: dict[str, Any] = {}
    """Parameters as the workload's function gets them."""
    reason: str | None = None
    """Reason that it is unavailable, or that its measuring ended early."""
    warmups: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    versions: dict[str, str] = {}
    inventory: dict[str, Any] | None = None
    """Machine of a past run; other rows have the comparison's."""

    @property
    def title(self) -> str:
        """Description of the hardware, and the values of swept parameters."""
        try:
            return f"{read_line(self.on).words()}{self.label.removeprefix(self.on)}"
        except BadInputError:
            return self.label  # A row of past runs has their label.

    @property
    def seconds(self) -> tuple[float, ...]:
        """Times of the runs that gave an answer, in the order of measurement."""
        return tuple(sample.seconds for sample in self.samples if sample.seconds is not None)

    @property
    def times(self) -> dict[int, float]:
        """Times of the runs that gave an answer, by round."""
        return {sample.round: sample.seconds for sample in self.samples if sample.seconds is not None}

    @property
    def failed(self) -> bool:
        """True if one of its runs failed, including warm-ups; False if it is unavailable."""
        return self.reason is not None and bool(self.samples or self.warmups)


class Comparison(Lasting, frozen=True):
    """Several architectures or sets of parameters, measured in turn."""

    id: str
    workload: str
    request: Request | None = None
    """None for past runs."""
    mode: Mode = "side by side"
    seed: int = 0
    """Seed of the order of the rows within each round."""
    stage: Stage | None = None
    now: str | None = None
    """Description of the current measurement; None before and after."""
    done: int = 0
    total: int = 0
    """Number of runs, including warm-ups."""
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    inventory: dict[str, Any] | None = None
    started: float | None = None
    stopped: float | None = None

    def __repr__(self) -> str:
        return f"<Comparison {self.id}: {self.workload}, {formats.count(len(self.rows), 'row')}, {self.status}>"

    @property
    def title(self) -> str:
        """Title of the workload, marked if GPUs were simulated."""
        return f"{SIMULATED if self.simulated else ''}{', '.join(map(title_of, self.workload.split(', ')))}"

    @property
    def in_rounds(self) -> bool:
        """True if runs of one round were measured one after another and form pairs."""
        return self.mode != "past"

    def order(self, items: Sequence[T], round_: int) -> list[T]:
        """Shuffle rows or clusters for a round, so that none always follows the same other."""
        return random.Random(f"{self.seed} {round_}").sample(items, len(items))

    @property
    def simulated(self) -> bool:
        """True if the GPUs of one of its rows were simulated."""
        return any(on_simulated(row.spec, row.inventory or self.inventory) for row in self.rows)


def create(comparison: Comparison) -> Comparison:
    """Save a new comparison."""
    return on_disk.create(folder(comparison.id), comparison)


def write(comparison: Comparison) -> Comparison:
    """Replace the record of a comparison. A deleted one stays deleted."""
    return on_disk.write(folder(comparison.id), comparison)


def select(*, limit: int | None = 50) -> tuple[Comparison, ...]:
    """Return the comparisons, the newest first."""
    if limit is not None and limit < 1:
        raise BadInputError(f"limit: given {limit}, allowed are whole numbers from 1.")
    return tuple(_shelf.listed()[:limit])


def clusters_of(comparison: Comparison) -> tuple[str, ...]:
    """Return the names of the clusters that are started for a comparison."""
    return tuple(cluster_name(comparison.id, index) for index in range(len(places(comparison.rows))))


def cluster_name(comparison_id: str, index: int) -> str:
    """Return the name of the index-th cluster that is started for a comparison."""
    return f"compare-{comparison_id.rpartition('-')[2]}-{index + 1}"


def turn_file() -> Path:
    """Return the file that the comparison computing on this machine locks; machines may share the disk."""
    return _shelf.root / f".turn-{platform.node()}"


def places(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the lines of the available rows, each once: rows with the same line share a cluster."""
    return tuple(dict.fromkeys(row.on for row in rows if row.spec is not None))


def _parsed(path: str) -> Comparison:
    text = on_disk.read_bytes(f"{path}/{on_disk.FILE}")
    return Comparison.model_validate_json(text).model_copy(update={"id": os.path.basename(path)})  # noqa: PTH119


def _damaged(path: Path, error: Exception) -> Comparison:
    return Comparison(
        id=path.name,
        workload=path.name.removeprefix("compare-").rpartition("-")[0],
        status="lost",
        created=path.stat().st_mtime,
        error=on_disk.damage(error, "delete_comparison"),
    )


def _bury(comparison: Comparison) -> dict[str, Any]:
    """End the clusters of a comparison whose process was killed, and return the record's changes."""
    for name in clusters_of(comparison):
        with contextlib.suppress(NotFoundError):
            host = records.host_process(records.read(name))
            if host is not None:
                with contextlib.suppress(psutil.Error):
                    host.terminate()
    why = "The process that conducted it was ended from outside. What was measured until then is kept."
    return {"status": "lost", "stage": None, "now": None, "stopped": time.time(), "error": why}


_shelf = on_disk.Shelf(
    "comparisons",
    "comparison",
    "workbench compare array_sum --on cpu",
    parse=_parsed,
    bury=_bury,
    damaged=_damaged,
    brief=lambda comparison: comparison,
    parse_brief=_parsed,
)
folder, get, find, cancel, delete = _shelf.folder, _shelf.get, _shelf.find, _shelf.cancel, _shelf.delete
