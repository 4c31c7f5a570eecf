"""Values passed between a workload and its runner: parameters, needs, a check. All frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.config
from pydantic import BaseModel

from workbench.errors import BadParameterError as BadParameterError

if TYPE_CHECKING:
    import dask.array as da

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
"""Names of the facts stored with parameters for estimates and checks."""


@dataclass(frozen=True)
class Surroundings:
    """Facts about the cluster while parameters are resolved; None where no cluster is named."""

    memory: int | None = None
    """Bytes of all workers together, needed where a size is a fraction."""
    threads: int | None = None
    """Threads of all workers together, used for the default of `chunks`."""
    threads_per_worker: int = 1
    """Number of blocks in use at once in one worker; only the estimate of its memory depends on it."""
    on_gpu: bool = False
    """True if the workers have GPUs, which can't do everything that processors can."""
    device_memory: int | None = None
    """Bytes of all workers' GPUs together that blocks may fill; None if unknown."""

    missing: frozenset[str] | None = None
    """Modules of `workbench.remote.MODULES` that some worker can't import; None: not known."""

    def makes_on_gpu(self) -> bool:
        """Return whether arrays will be made on GPUs: there, or where Dask's own setting has them."""
        return self.on_gpu or dask.config.get("array.backend", "numpy") == "cupy"

    def keeps(self, n_bytes: int) -> bool:
        """Return whether an array stays between passes: in half of the memory, or 3⁄4 of what it may fill on GPUs."""
        if self.on_gpu and self.device_memory is not None:
            return n_bytes < 0.75 * self.device_memory
        return self.memory is None or n_bytes < self.memory / 2

    @property
    def too_much(self) -> str:
        """Description of the memory that was too small for the array."""
        on_gpus = self.on_gpu and self.device_memory is not None
        return "three quarters of what arrays may fill of the GPUs" if on_gpus else "half of the memory"


class Parameters(BaseModel, frozen=True):
    """Checked parameters of one workload.

    `given` is the request, with paths made absolute; `resolved` are the arguments of the workload's function. Both are
    JSON: tuples are lists. `notes` are messages about automatic choices, and the reasons.
    """

    workload: str
    given: dict[str, Any]
    resolved: dict[str, Any]
    notes: tuple[str, ...] = ()
    preset: str | None = None
    threads_per_worker: int = 1
    save: str | None = None
    """Path from the root, or URL, where the arrays of the answer are saved."""
    replace: bool = False
    """True if existing files may be replaced."""


class Needs(BaseModel, frozen=True):
    """Data moved by a workload and memory that it needs, estimated before it runs."""

    sentence: str
    input_bytes: int = 0
    """Size of the array."""
    passes: int = 1
    """Number of passes over the whole array."""
    work: float | None = None
    """Amount that its time grows with, in any unit, if not the bytes that are processed: pairs, for instance."""
    held_per_worker: int = 0
    """Bytes in use by tasks in one worker at once, which can't be spilled."""
    held_total: int = 0
    """Bytes that all workers together must hold at once."""
    kept: int | None = None
    """Bytes that stay, shared among the workers; None: all of `held_total` that tasks don't use."""
    with_kept: int | None = None
    """Bytes in use by tasks in one worker while all of `kept` is there; None: `held_per_worker`."""
    received: int = 0
    """Additional bytes in one worker if there are several: blocks being sent, and uneven shares."""
    n_rounds: int = 1
    """Computations that wait for each other: with several, more tasks come than are known at first."""
    on_device: bool = True
    """True if its arrays lie on the GPUs, where workers have some."""
    on_host: int = 0
    """Bytes of a worker's own memory in which blocks are read that then go to its GPU."""
    known: bool = True
    """True if anything is known: for a user's function it may be nothing."""

    @classmethod
    def of(cls, *, held: int, kept: int = 0, **others: Any) -> Needs:
        """Return needs with `held` bytes in use in a worker at once, and `kept` bytes that stay on all workers."""
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
        """Return the bytes in the fullest of so many workers, in addition to what its process takes by itself."""
        stays = self.held_total - self.held_per_worker if self.kept is None else self.kept
        with_kept = self.held_per_worker if self.with_kept is None else self.with_kept
        several = self.received if n_workers > 1 else 0
        return max(self.held_per_worker + several, with_kept + -(-stays // n_workers) + several)


class Function(BaseModel, frozen=True):
    """A user's function as a record stores it."""

    reference: str
    """Path of the file, or name of the module, a colon, and the function's name."""
    source: str
    sha: str
    """Hash of the text of the file and its imported neighbors: runs of one hash are of the same code."""
    checked: bool = False
    """True if a check of its answer was declared."""


class Check(BaseModel, frozen=True):
    """Verdict on the answer of a run."""

    passed: bool
    what: str
    """Comparison that was made, in a message for everybody."""
    detail: str = ""
    """The difference, and the largest allowed one, for experts in the method."""
    rounding: float | None = None
    """Largest effect of rounding on the answer's numbers, which may exceed an answer near zero by far."""


class Alone(NamedTuple):
    """A workload run by plain NumPy or CuPy, without Dask, as a baseline."""

    array: Callable[[Mapping[str, Any]], da.Array]
    """Maker of the numbers, which are the same as on a cluster."""
    compute: Callable[[Any, Any, Mapping[str, Any]], dict[str, Any]]
    """Function from NumPy or CuPy, the array and the parameters to the results."""
    copies: int
    """Number of arrays of that size in memory at once, measured by the process's peak."""
    check: Callable[[Any, Mapping[str, Any], dict[str, Any]], Check] | None = None
    """Check of the answer for the array; None for the workload's own check."""
