"""A run as a value: the content of its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, Field, computed_field

from workbench import formats
from workbench.clusters.spec import ClusterSpec
from workbench.jobs.folders import Lasting
from workbench.monitor.energy import Energy
from workbench.runs.answers import Answers, Arrays, arrays, dataset
from workbench.runs.parts import Result
from workbench.runs.statistics import speed
from workbench.workloads.values import Check, Function

SIMULATED = "SIMULATED · "
"""Prefix of results from simulated GPUs."""
ON_SIMULATED = " · SIMULATED GPUs"
"""Suffix of titles of figures from simulated GPUs."""

NAME = 24
"""Characters to show of a worker's name: Dask-CUDA names the worker of one GPU by its UUID."""
WATCHED = "watched"
"""Workload of a run that a user's notebook or script computed, while `workbench.watch` recorded it."""

_MOST = 2**63 - 1

Number = Annotated[int, Field(ge=0, le=_MOST)]
Pid = Annotated[int, Field(gt=0, lt=2**31)]
"""Id of one process: as targets of signals, 0 and -1 mean a group of processes, or all."""
Moment = Annotated[float, Field(ge=0, le=2e11)]
"""Seconds since the epoch, within the calendar's years."""


class Count(BaseModel, frozen=True):
    """Tasks done of all."""

    done: Number = 0
    total: Number = 0


class Progress(Count):
    """Tasks done of all, together and by kind."""

    by_name: dict[str, Count] = {}
    stage: Literal["building", "computing", "saving", "checking"] | None = None
    """Stage of a current run; None before and after."""
    more: bool = False
    """True if more tasks come than are known, so that a progress bar would go backwards."""
    passes: Number = 0
    """Passes over the array that have started, if the tasks show it."""
    waits: str | None = None
    """Reason why the run stands still, if known."""

    def after(self, before: Progress) -> Progress:
        """Return the same, with `more` set if more tasks came since `before`."""
        kinds = ((count, before.by_name.get(name, Count())) for name, count in self.by_name.items())
        fell = any(now.done * then.total < then.done * now.total for now, then in ((self, before), *kinds))
        return self.model_copy(update={"more": before.more or fell})

    def finished(self) -> Progress:
        """Return the same for a computation that is known to have ended well, whenever it was last counted."""
        by_name = {name: Count(done=count.total, total=count.total) for name, count in self.by_name.items()}
        return self.model_copy(update={"done": self.total, "by_name": by_name, "more": False})

    def words(self) -> str:
        """Return the progress: '303 of 312 tasks', or 'Pass 4: 572 tasks done; number of passes not known yet'."""
        if not self.more:
            return f"{formats.count(self.done)} of {formats.count(self.total, 'task')}"
        done = f"{formats.count(self.done, 'task')} done"
        return f"Pass {self.passes}: {done}; number of passes not known yet" if self.passes else f"{done}; more follow"


class Blocks(BaseModel, frozen=True):
    """Blocks, and those of them that lay on a GPU."""

    blocks: int
    on_gpu: int
    bytes: int
    bytes_on_gpu: int


class Step(Blocks, frozen=True):
    """Blocks that the tasks of one name made."""

    name: str


class OnGpu(Blocks, frozen=True):
    """Location of the blocks of a run, from their types on the workers."""

    share: float | None
    """Share of the blocks on a GPU; None if there were no blocks."""
    share_of_bytes: float | None
    steps: tuple[Step, ...] = ()
    """Steps, in the order in which they started."""
    devices: dict[str, int] = {}
    """Blocks on each device, by its UUID."""
    sentence: str
    warning: str | None = None
    """The first step in which data fell back to NumPy."""


class Suggestion(BaseModel, frozen=True):
    """One cause of a run's slowness, and one change to try."""

    rule: str
    share: float
    """Largest share of the workers' time that can be saved."""
    found: str
    """The finding, with its number."""
    change: str

    def text(self) -> str:
        """Return the finding and the change as two sentences."""
        return f"{self.found[:1].upper()}{self.found[1:]}. Try: {self.change}."


class Peak(BaseModel, frozen=True):
    """Largest memory use of a worker during a run."""

    worker: str
    """Name of the worker."""
    task: str
    """Task that it computed then."""
    bytes: Number
    limit: Number
    """Its limit; 0 without one."""

    @property
    def share(self) -> float:
        """Share of the limit; 0 without one."""
        return self.bytes / self.limit if self.limit else 0.0

    def text(self) -> str:
        """Return a text such as "782 MiB of 1 GiB (76 %) by worker 0, in 'sum'"."""
        of = f" of {formats.size(self.limit)} ({100 * self.share:.0f} %)" if self.limit else ""
        return f"{formats.size(self.bytes)}{of} by worker {formats.shorten_middle(self.worker, NAME)}, in '{self.task}'"


class Share(NamedTuple):
    """A kind of use of the workers' time, as every interface shows it."""

    title: str
    color: str
    """Color on light and dark pages, '' for a hatched area. Tasks, transfers and the disk have it in the stream too."""
    meaning: str


SHARES = {
    "computing": Share("computing", "#2176b5", "threads were in tasks"),
    "transferring": Share("copying between processes", "#e0301e", "threads waited for blocks from other workers"),
    "serialising": Share("unpacking", "#cc79a7", "threads waited for blocks to be packed or unpacked"),
    "spilling": Share(
        "memory full, using disk", "#ff8c00", "threads waited for blocks that went to the disk for want of memory"
    ),
    "building": Share(
        "building the graph", "#a6761d", "threads waited until the graph was built and sent, before the first task"
    ),
    "scheduler": Share(
        "waiting for the scheduler", "#8c8c8c", "threads waited for the next task or the transfer of the answer"
    ),
    "idle": Share("no task left", "", "others worked, and there was no task for them"),
    "arriving": Share("workers starting", "#56b4e9", "workers were still in a queue, or starting"),
}
"""Shares of a diagnosis, in the order of the bar."""


class Diagnosis(BaseModel, frozen=True):
    """Use of the workers' time in a run, from `runs.explaining.diagnosis`."""

    seconds: float
    threads: int
    workers: int
    shares: dict[str, float]
    """Shares of the time of all threads, by `runs.explaining.shares.SHARES`; they add up to 1."""
    sentence: str
    suggestions: tuple[Suggestion, ...] = ()
    """Suggestions, the largest share first."""
    peak: Peak | None = None
    """Peak memory; None if no worker reported it, as in records of older versions."""


class Figure(BaseModel, frozen=True):
    """Seconds, from low to high, that a text gives for its experiment on one machine."""

    machine: str
    seconds: tuple[float, float]

    def words(self) -> str:
        """Return a text such as '10 s to 15 s on sixteen V100'."""
        return f"{' to '.join(dict.fromkeys(map(formats.duration, self.seconds)))} on {self.machine}"


class Text(BaseModel, frozen=True):
    """Figures of the text whose experiment a run repeats, and the run's differences."""

    source: str
    figures: tuple[Figure, ...] = ()
    """Published times; empty where the text gives none."""
    differs: tuple[str, ...] = ()

    def compare(self, here: str = "") -> str:
        """Return the published times, the measured time `here`, and the differences."""
        figures = ", ".join(figure.words() for figure in self.figures) or "gives no time"
        differs = f" Here differ: {'; '.join(self.differs)}." if self.differs else ""
        return f"{self.source}: {figures}{here}.{differs}"


class Imported(BaseModel, frozen=True):
    """Origin of a run that was imported with `workbench import`."""

    machine: str
    """Name of the host it ran on."""
    at: float
    """Time of the import (seconds since the epoch)."""


class Marks(BaseModel, frozen=True):
    """A user's marks on a run."""

    name: Annotated[str, Field(max_length=200)] = ""
    note: Annotated[str, Field(max_length=10_000)] = ""
    star: bool = False


class Run(Lasting, frozen=True, ser_json_inf_nan="constants"):
    """One workload on one cluster, from the request to the answer."""

    stored_separately: ClassVar[frozenset[str]] = frozenset({"marks"})
    id: str
    workload: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters as given."""
    resolved: dict[str, Any] = Field(default_factory=dict)
    """Parameters as the workload's function got them."""
    notes: tuple[str, ...] = ()
    save: str | None = None
    """Path or URL where the arrays of its answer are saved."""
    replace: bool = False
    """True if existing files may be replaced."""
    files: dict[str, str] = Field(default_factory=dict)
    """State of each file that it reads when it was submitted, by parameter."""
    cluster: str
    spec: ClusterSpec | None = None
    inventory: dict[str, Any] | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    created: Moment = 0.0
    started: Moment | None = None
    """Time when the runner started to build the graph (seconds since the epoch)."""
    stopped: Moment | None = None
    seconds: Annotated[float, Field(ge=0, le=2e11)] | None = None
    """Time to build the graph and compute it, without the start of a process and the check."""
    bytes: Number | None = None
    """Size of the array, whatever the number of passes."""
    result: Result | None = None
    check: Check | None = None
    progress: Progress = Progress()
    needs: dict[str, Any] | None = None
    energy: Energy | None = None
    """Energy of all GPUs of the cluster from the run's start to its end; None without GPUs that report it."""
    on_gpu: OnGpu | None = None
    """GPU locations; None for a run on a cluster without GPUs."""
    diagnosis: Diagnosis | None = None
    """Use of the time; added a moment after the answer."""
    forecast: dict[str, Any] | None = None
    """Forecast before it started: verdict, seconds from low to high, memory, and the price of an hour."""
    imported: Imported | None = None
    """Origin; None for a run that was made here."""
    preset: str | None = None
    """Name of the text's experiment, or of the user's preset, with which it started."""
    text: Text | None = None
    measurement: bool = False
    """True if it ran only so that forecasts know the hardware, with a part of a workload."""
    settings: dict[str, Any] | None = None
    """Settings of Dask for this run, in addition to those of the environment."""
    function: Function | None = None
    """The user's function that it runs; None for a workload of ours."""
    marks: Marks | None = None
    """Name, note and star that a user gave it later."""
    answers: Answers | None = None
    """Arrays of its answer, and their location; None where it has none."""
    pid: Pid | None = None
    pid_created: Moment | None = None

    def __repr__(self) -> str:
        took = "" if self.seconds is None else f" in {formats.duration(self.seconds)}"
        checked = self.check and f", check {'passed' if self.check.passed else 'failed'}"
        text = f"{self.workload} on {self.cluster}, {self.status}{took}{checked or ''}"
        return f"<Run {self.id}: {text}{f': {self.error}' if self.error else ''}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return all facts, as a notebook shows them."""
        from workbench.runs.facts import run_html

        return run_html(self)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def bytes_per_second(self) -> float | None:
        """Speed, from the size of the array and the time."""
        return speed(self.bytes, self.seconds)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost(self) -> float | None:
        """Cost of its time at the price of an hour when it started; None without a price."""
        price = (self.forecast or {}).get("price_per_hour")
        return None if price is None or self.seconds is None else float(price) * self.seconds / 3600

    @computed_field  # type: ignore[prop-decorator]
    @property
    def title(self) -> str:
        """Name given by the user, then or later, else its workload."""
        if self.marks and self.marks.name:
            return self.marks.name
        if self.measurement:
            return f"{self.workload} (measurement)"
        name = self.parameters.get("name") if self.workload == WATCHED else None
        return name if isinstance(name, str) and name else self.workload

    @computed_field  # type: ignore[prop-decorator]
    @property
    def text_comparison(self) -> str | None:
        """The text's figures and its own time, with the differences; None if it repeats no text's experiment."""
        took = "an unknown time" if self.seconds is None else formats.duration(self.seconds)
        here = f"; here: {took} on {self._processors}" if self.status == "done" else ""
        return None if self.text is None else self.text.compare(here)

    @property
    def _processors(self) -> str:
        if self.spec is None:
            return "this machine"
        if self.spec.devices:
            return formats.count(len(self.spec.devices), "GPU")
        return formats.count(self.spec.threads, "CPU thread") if self.spec.is_known else "its cluster"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def simulated(self) -> bool:
        """True if its GPUs were simulated, as its machine reported: then neither time nor answer is one of a GPU."""
        return on_simulated(self.spec, self.inventory)

    @property
    def arrays(self) -> Arrays:
        """Arrays of its answer by name: NumPy's if they have 64 MiB or less together, else Dask's."""
        return arrays(self)

    @property
    def dataset(self) -> Any:
        """Its arrays as an `xarray.Dataset`, with certificate, parameters and versions as attributes."""
        return dataset(self)


def on_simulated(spec: ClusterSpec | None, inventory: Mapping[str, Any] | None) -> bool:
    """Return whether the GPUs of a cluster were simulated, as its machine's inventory says."""
    gpus = (inventory or {}).get("gpus") or ()
    return spec is not None and bool(spec.devices) and any(gpu.get("simulated") for gpu in gpus)


def answered(workload: str, result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a run's answer; a watched run may have stored nothing but the number of tasks."""
    if workload != WATCHED or result is None:
        return result
    return {name: value for name, value in result.items() if name not in ("tasks", "tasks_of_others")} or None
