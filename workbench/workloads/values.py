"""What passes between a workload and those who run it: parameters, needs, a check. All frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from workbench.errors import BadInputError


class BadParameterError(BadInputError):
    """A parameter of a workload that can't be used; `parameter` is its name."""

    def __init__(self, sentence: str, parameter: str | None = None) -> None:
        super().__init__(sentence)
        self.parameter = parameter

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.parameter)


@dataclass(frozen=True)
class Surroundings:
    """What is known of the cluster while parameters are resolved; None where no cluster is named."""

    memory: int | None = None
    """Bytes of all workers together."""
    threads: int | None = None
    """Threads of all workers together."""
    threads_per_worker: int = 1


class Parameters(BaseModel):
    """Checked parameters of one workload.

    `given` is what was asked for, with paths made absolute; `resolved` what the workload's function gets. Both are
    JSON: tuples are lists. `notes` are sentences on what was chosen for the person, and why.
    """

    model_config = ConfigDict(frozen=True)

    workload: str
    given: dict[str, Any]
    resolved: dict[str, Any]
    notes: tuple[str, ...] = ()
    threads_per_worker: int = 1


class Needs(BaseModel):
    """What a workload moves and what must fit in memory, estimated before it runs."""

    model_config = ConfigDict(frozen=True)

    input_bytes: int
    """Size of the array."""
    output_bytes: int
    """Size of the results that stay on the cluster or come back."""
    bytes_processed: int
    """Bytes of the array that are made or read, all passes together."""
    passes: int
    """How often the whole array is gone through."""
    held_per_worker: int
    """Bytes that must be in the memory of one worker at once."""
    held_total: int
    """Bytes that all workers together must hold at once."""
    n_tasks: int
    sentence: str


class Check(BaseModel):
    """Verdict on the answer of a run; `what` says what was compared with what."""

    model_config = ConfigDict(frozen=True)

    passed: bool
    what: str
