"""ClusterSpec: everything that decides what cluster is started, as one frozen value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from dask.utils import format_bytes
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import BadInputError

ProfileName = Literal["cpu", "gpu", "gpus", "ucx"]
Protocol = Literal["tcp", "tls", "ucx"]

PROFILE_NAMES: tuple[ProfileName, ...] = get_args(ProfileName)


class ClusterSpec(BaseModel):
    """A cluster before it exists: profile, workers, threads, memory, protocol. Frozen, JSON both ways.

    `memory_limit` is bytes for each worker. `why` holds the sentences with which the plan explains itself; it takes
    no part in comparison. `devices` names GPUs by UUID and is empty on the cpu profile.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    profile: ProfileName = "cpu"
    n_workers: Annotated[int, Field(ge=1)]
    threads_per_worker: Annotated[int, Field(ge=1)]
    memory_limit: Annotated[int, Field(ge=1)]
    protocol: Protocol = "tls"
    python: str | None = None
    idle_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 3600.0
    devices: tuple[str, ...] = ()
    why: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _protocol_fits_profile(self) -> ClusterSpec:
        if (self.protocol == "ucx") != (self.profile == "ucx"):
            raise ValueError("protocol 'ucx' belongs to the profile 'ucx', and the other way round")
        return self

    @property
    def encrypt(self) -> bool:
        """Whether scheduler, workers and clients speak TLS."""
        return self.protocol == "tls"

    @property
    def memory(self) -> int:
        """Bytes promised to all workers together."""
        return self.n_workers * self.memory_limit

    @property
    def threads(self) -> int:
        """Threads of all workers together."""
        return self.n_workers * self.threads_per_worker

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterSpec):
            return NotImplemented
        return self.model_dump(exclude={"why"}) == other.model_dump(exclude={"why"})

    def __hash__(self) -> int:
        return hash(self.model_dump_json(exclude={"why"}))

    def to_json(self) -> str:
        """JSON text that `from_json` reads back to an equal spec."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> ClusterSpec:
        """Spec from its JSON. Raises BadInputError with one sentence a field."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as err:
            raise BadInputError(_sentence(err)) from err

    def describe(self) -> str:
        """One line: '2 workers × 1 thread, 10.2 GiB (5.1 GiB each), tls'."""
        workers = f"{self.n_workers} worker{'s' if self.n_workers > 1 else ''}"
        threads = f"{self.threads_per_worker} thread{'s' if self.threads_per_worker > 1 else ''}"
        return (
            f"{workers} × {threads}, {format_bytes(self.memory)} ({format_bytes(self.memory_limit)} each), "
            f"{self.protocol}"
        )

    def code(self) -> str:
        """Dask code that starts the same cluster without this package, a script that runs as it is."""
        arguments = [
            f"n_workers={self.n_workers}",
            f"threads_per_worker={self.threads_per_worker}",
            f"memory_limit={self.memory_limit},  # bytes per worker: {format_bytes(self.memory_limit)}",
            f'protocol="{self.protocol}"',
            'host="127.0.0.1"',
            'dashboard_address="127.0.0.1:0"',
        ]
        imports = ["from dask.distributed import Client, LocalCluster"]
        if self.encrypt:
            imports.append("from distributed.security import Security")
            arguments.append("security=Security.temporary()")
        body = "\n".join(f"        {line if '#' in line else line + ','}" for line in arguments)
        shebang = f"# Run with: {Path(self.python)}\n" if self.python else ""
        return (
            shebang + "\n".join(imports) + '\n\nif __name__ == "__main__":\n'
            f"    cluster = LocalCluster(\n{body}\n    )\n    client = Client(cluster)\n    print(client)\n"
        )


def _sentence(err: ValidationError) -> str:
    problems = []
    for item in err.errors():
        where = ".".join(str(part) for part in item["loc"]) or "spec"
        problems.append(f"{where}: {item['msg']} (given {item['input']!r:.80})")
    return "This is not a cluster spec. " + "; ".join(problems) + "."
