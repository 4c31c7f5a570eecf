"""What passes between a workload and those who run it: parameters, needs, a check. All frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.config
from pydantic import BaseModel

from workbench.errors import BadParameterError as BadParameterError

FACTS = (
    "remarks",
    "columns",
    "selected",
    "stored",
    "imports",
    "axes",
    "dims",
    "lengths",
    "blocks",
    "reader",
    "on_device",
)
"""Names of what is kept beside parameters for estimates and checks."""


@dataclass(frozen=True)
class Surroundings:
    """What is known of the cluster while parameters are resolved; None where no cluster is named."""

    memory: int | None = None
    """Bytes of all workers together, needed where a size is a fraction."""
    threads: int | None = None
    """Threads of all workers together, which the default of `chunks` looks at."""
    threads_per_worker: int = 1
    """How many blocks one worker has in hand at once; only the estimate of its memory depends on it."""
    on_gpu: bool = False
    """Whether the workers have GPUs, which can't do all that processors can."""
    device_memory: int | None = None
    """Bytes of all workers' GPUs together that blocks may fill; None where nobody can tell."""

    missing: frozenset[str] | None = None
    """Modules of `workbench.remote.MODULES` that some worker can't import; None: not known."""

    def makes_on_gpu(self) -> bool:
        """Whether arrays will be made on GPUs: there, or where Dask's own setting has them."""
        return self.on_gpu or dask.config.get("array.backend", "numpy") == "cupy"

    def keeps(self, n_bytes: int) -> bool:
        """Whether an array stays between passes: in half of the memory, or 3⁄4 of what it may fill on GPUs."""
        if self.on_gpu and self.device_memory is not None:
            return n_bytes < 0.75 * self.device_memory
        return self.memory is None or n_bytes < self.memory / 2

    @property
    def too_much(self) -> str:
        """What there was too much to be kept for."""
        on_gpus = self.on_gpu and self.device_memory is not None
        return "three quarters of what arrays may fill of the GPUs" if on_gpus else "half of the memory"


class Parameters(BaseModel, frozen=True):
    """Checked parameters of one workload.

    `given` is what was asked for, with paths made absolute; `resolved` what the workload's function gets. Both are
    JSON: tuples are lists. `notes` are sentences on what was chosen for the person, and why.
    """

    workload: str
    given: dict[str, Any]
    resolved: dict[str, Any]
    notes: tuple[str, ...] = ()
    preset: str | None = None
    threads_per_worker: int = 1
    save: str | None = None
    """Path from the root, or URL, that the arrays of the answer are saved to."""
    replace: bool = False
    """Whether what is there may be replaced."""


class Needs(BaseModel, frozen=True):
    """What a workload moves and what must fit in memory, estimated before it runs."""

    sentence: str
    input_bytes: int = 0
    """Size of the array."""
    passes: int = 1
    """How often the whole array is gone through."""
    work: float | None = None
    """What its time grows with, in any unit, where that isn't the bytes that are gone through: pairs, for instance."""
    held_per_worker: int = 0
    """Bytes that tasks have in hand in one worker at once, which can't be spilled."""
    held_total: int = 0
    """Bytes that all workers together must hold at once."""
    kept: int | None = None
    """Bytes that stay, shared among the workers; None: all of `held_total` that tasks don't have in hand."""
    beside_kept: int | None = None
    """Bytes that tasks have in hand in one worker while all of `kept` is there; None: `held_per_worker`."""
    received: int = 0
    """Bytes more in one worker where there are several: blocks on their way, and shares that are not even."""
    n_rounds: int = 1
    """Computations that wait for each other: with several, more tasks come than are known at first."""
    on_device: bool = True
    """Whether it is on the GPUs that its arrays lie, where workers have some."""
    on_host: int = 0
    """Bytes of a worker's own memory in which blocks are read that then go to its GPU."""
    known: bool = True
    """Whether anything is known: of a person's function it may be nothing."""

    @classmethod
    def of(cls, *, held: int, kept: int = 0, **others: Any) -> Needs:
        """What is needed where a worker has so much in hand at once, while `kept` stays on all of them together."""
        return cls(held_per_worker=held, held_total=kept + held, kept=kept, **others)

    @property
    def array_bytes(self) -> int | None:
        """Size of the array, by which speeds are compared whatever the method; None where only memory is known."""
        return self.input_bytes if self.input_bytes and self.passes else None

    @property
    def bytes_processed(self) -> int:
        """Bytes of the array that are made or read, all passes together."""
        return self.passes * self.input_bytes

    def peak(self, n_workers: int) -> int:
        """Bytes in the fullest of so many workers, over what its process takes by itself."""
        kept = self.held_total - self.held_per_worker if self.kept is None else self.kept
        beside = self.held_per_worker if self.beside_kept is None else self.beside_kept
        several = self.received if n_workers > 1 else 0
        return max(self.held_per_worker + several, beside + -(-kept // n_workers) + several)


class Function(BaseModel, frozen=True):
    """A function of a person's as a record keeps it."""

    reference: str
    """Path of the file, or name of the module, a colon, and the function's name."""
    source: str
    sha: str
    """Hash of the text of the file and of those beside it that it imports: runs of one hash are of the same code."""
    checked: bool = False
    """Whether it was declared how its answer is checked."""


class Check(BaseModel, frozen=True):
    """Verdict on the answer of a run."""

    passed: bool
    what: str
    """What was compared with what, in a sentence for everybody."""
    detail: str = ""
    """By how much it differed, and by how much it may, for who knows the method."""
    rounding: float | None = None
    """By how much rounding may put the numbers of the answer off, which may exceed an answer near zero by far."""
