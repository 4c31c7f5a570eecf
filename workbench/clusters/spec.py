"""ClusterSpec: the plan of a cluster, as one frozen value that is stored with the cluster and its runs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from workbench import formats
from workbench.errors import FailedError


class WithoutDask(NamedTuple):
    """A library that computes in one process, with the profile and choices of the cluster that has the same memory."""

    title: str
    profile: str
    choices: Mapping[str, Any]


WITHOUT_DASK: Mapping[str, WithoutDask] = {
    "numpy": WithoutDask("NumPy", "cpu", {"n_workers": 1}),
    "cupy": WithoutDask("CuPy", "gpu", {}),
}

SIZES = ("memory_limit", "device_memory_limit", "rmm_pool_size")
"""Fields of a spec in bytes."""


EXPLANATIONS = {"why", "summary", "code", "preview", "consent"}
"""Fields of a spec that follow from the others."""

MOVES_TO_HOST = 0.8
"""Default share of a GPU's memory beyond which Dask-CUDA moves blocks to the host's."""


class ClusterSpec(BaseModel, frozen=True, strict=True):
    """A cluster before it exists: profile, workers, threads, memory, protocol. Frozen; converts to and from JSON.

    `devices` names GPUs by UUID, one per worker, and is empty if workers have none. `why`, `summary`, `code`,
    `preview` and `consent` explain the plan, and are ignored in comparisons. Fields of other versions are ignored.
    """

    profile: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
    """Name of the profile. "numpy" and "cupy" aren't clusters: one process computes, without Dask."""
    n_workers: Annotated[int, Field(ge=0)]
    """Number of workers to start; 0 for a cluster that already runs, until it reports its own."""
    threads_per_worker: Annotated[int, Field(ge=1)] | None
    """Threads of each worker; None if only the workers know, once they have arrived."""
    memory_limit: Annotated[int, Field(ge=1)] | None
    """Bytes of each worker; None likewise."""
    protocol: Annotated[str, Field(pattern=r"^[a-z]{2,20}$")] = "tls"
    """Dask's name for the protocol, as in addresses: "tls", "tcp" or that of a plugin."""
    python: str | None = None
    idle_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 3600.0
    devices: tuple[str, ...] = ()
    device_memory_limit: Annotated[int, Field(ge=1)] | None = None
    """Bytes on each GPU beyond which blocks move to the host's memory; None: MOVES_TO_HOST of the card's memory."""
    rmm_pool_size: Annotated[int, Field(ge=1)] | None = None
    """Bytes that RMM takes on each GPU at the start, and hands out quickly; None: no pool."""
    cupy: bool = False
    """True if workers import CuPy before anything else, and CuPy takes its memory from RMM's pool."""
    missing: dict[str, dict[str, int]] | None = None
    """Modules of `workbench.remote.MODULES` that workers can't import, with their number by host; None: unknown."""
    elsewhere: bool = False
    """True if its workers use no resources of this machine."""
    options: dict[str, Any] = {}
    """Options of the profile, which validates them."""
    why: tuple[str, ...] = ()
    summary: str = ""
    """Description in one line, if the workers are unknown before they arrive."""
    code: str = ""
    """Dask code for the same cluster without this package, as a complete script."""
    preview: str | None = None
    """What would be submitted elsewhere to start it; None if nothing would."""
    consent: str | None = None
    """Warning that the user must accept before such a cluster is started by a click; None if it is harmless."""

    @property
    def alone(self) -> bool:
        """True if it isn't a cluster, but one process that computes without Dask."""
        return self.profile in WITHOUT_DASK

    @property
    def is_known(self) -> bool:
        """True if the workers' threads and memory are known; a running scheduler must first report them."""
        return self.threads_per_worker is not None and self.memory_limit is not None

    @property
    def worker_memory(self) -> int:
        """Bytes of each worker. Raises FailedError if they are unknown."""
        return _known(self.memory_limit, "memory")

    @property
    def worker_threads(self) -> int:
        """Threads of each worker. Raises FailedError if they are unknown."""
        return _known(self.threads_per_worker, "number of threads")

    @property
    def encrypt(self) -> bool:
        """True if scheduler, workers and clients use TLS."""
        return self.protocol == "tls"

    @property
    def memory(self) -> int:
        """Bytes promised to all workers together."""
        return self.n_workers * self.worker_memory

    @property
    def threads(self) -> int:
        """Threads of all workers together."""
        return self.n_workers * self.worker_threads

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterSpec):
            return NotImplemented
        return self.model_dump(exclude=EXPLANATIONS) == other.model_dump(exclude=EXPLANATIONS)

    def __hash__(self) -> int:
        return hash(self.model_dump_json(exclude=EXPLANATIONS))

    def chosen(self, names: Container[str]) -> dict[str, Any]:
        """Return the choices of these names with which its profile plans the same cluster again."""
        values = {
            "n_workers": self.n_workers or None,
            "threads_per_worker": self.threads_per_worker,
            "memory": None if self.memory_limit is None else self.memory,
            "encrypt": self.encrypt,
            "idle_timeout": self.idle_timeout or "never",
            "python": self.python,
            "devices": ",".join(self.devices),
            "device_memory_limit": self.device_memory_limit,
            "rmm_pool_size": self.rmm_pool_size,
            **self.options,
        }
        return {name: value for name, value in values.items() if value not in (None, "") and name in names}

    def describe(self) -> str:
        """Return one line: '2 workers × 1 thread, 10.2 GiB (5.1 GiB each)', with the protocol unless it is TLS."""
        workers = formats.count(self.n_workers, "worker")
        if not self.is_known:
            return self.summary or f"{workers}, sized by their machines"
        threads = formats.count(self.worker_threads, "thread")
        if self.alone:
            return f"one process without Dask, {threads}, {formats.size(self.memory)}"
        gpus = " on a GPU each" if len(self.devices) > 1 else " on a GPU" if self.devices else ""
        each = f" ({formats.size(self.worker_memory)} each)" if self.n_workers > 1 else ""
        protocol = {"tls": "", "tcp": ", not encrypted"}.get(self.protocol, f", {self.protocol.upper()}")
        return f"{workers}{gpus} × {threads}, {formats.size(self.memory)}{each}{protocol}"


def _known(value: int | None, name: str) -> int:
    if value is None:
        raise FailedError(f"The {name} of its workers is known once they have arrived.")
    return value


def measured(spec: ClusterSpec, workers: Sequence[Mapping[str, Any]], memory: int) -> ClusterSpec:
    """Return the spec with the actual number and sizes of workers; if they differ, the smallest counts for each.

    `workers` are as a scheduler describes them. One without a limit may use its share of `memory` bytes.
    """
    if not workers:
        return spec
    without = max(1, memory // len(workers))
    threads = min(int(each["nthreads"]) for each in workers)
    limit = min(int(each["memory_limit"] or without) for each in workers)
    sizes = {"n_workers": len(workers), "threads_per_worker": max(1, threads), "memory_limit": limit}
    return spec.model_copy(update=sizes)
