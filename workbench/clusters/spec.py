"""ClusterSpec: everything that decides what cluster is started, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field

from workbench import formats
from workbench.errors import FailedError, MissingError, on_one_line

if TYPE_CHECKING:
    from workbench.clusters.profiles import Profile

Protocol = Literal["tcp", "tls", "ucx"]
_TELLING: dict[Protocol, str] = {"tls": "", "tcp": ", not encrypted", "ucx": ", UCX"}

WithoutDask = Literal["numpy", "cupy"]

WITHOUT_DASK: tuple[WithoutDask, ...] = get_args(WithoutDask)

SIZES = ("memory_limit", "device_memory_limit", "rmm_pool_size")
"""Fields of a spec that are bytes."""


_NOT_COMPARED = {"why", "missing"}

MOVES_TO_HOST = 0.8
"""Of a GPU's memory: beyond that Dask-CUDA moves blocks to the host's, where no other limit is given."""


class ClusterSpec(BaseModel, frozen=True, strict=True, extra="forbid"):
    """A cluster before it exists: profile, workers, threads, memory, protocol. Frozen, JSON both ways.

    `memory_limit` is bytes for each worker. `why` holds the sentences with which the plan explains itself; it takes
    no part in comparison. `devices` names GPUs by UUID, one for each worker, and is empty where workers have none.
    """

    profile: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")] = "cpu"
    """"numpy" and "cupy" are no cluster: one process computes, without Dask."""
    n_workers: Annotated[int, Field(ge=1)]
    threads_per_worker: Annotated[int, Field(ge=1)]
    memory_limit: Annotated[int, Field(ge=1)]
    protocol: Protocol = "tls"
    python: str | None = None
    idle_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 3600.0
    devices: tuple[str, ...] = ()
    device_memory_limit: Annotated[int, Field(ge=1)] | None = None
    """Bytes on each GPU beyond which blocks move to the host's memory; None is MOVES_TO_HOST of the card."""
    rmm_pool_size: Annotated[int, Field(ge=1)] | None = None
    """Bytes that RMM takes on each GPU at the start, and hands out quickly; None is no pool."""
    ucx_tls: str | None = None
    """Transports that UCX may use, as UCX_TLS takes them: 'tcp,cuda_copy'. None: UCX chooses."""
    interface: str | None = None
    """Network interface or port of a card for UCX's data, as UCX_NET_DEVICES takes it. None: UCX chooses."""
    cupy: bool = False
    """Whether workers import CuPy before anything else, and CuPy takes its memory from RMM's pool."""
    missing: dict[str, dict[str, int]] | None = None
    """Modules that workers can't import, each with how many such workers there are on a host; None: not known.

    Of `workbench.remote.MODULES`; it takes no part in comparison.
    """
    elsewhere: bool = False
    """Whether its workers take nothing from what this machine has to share out."""
    options: dict[str, Any] = {}
    """What the profile alone knows, validated by it."""
    why: tuple[str, ...] = ()

    @property
    def alone(self) -> bool:
        """Whether it is no cluster, but one process that computes without Dask."""
        return self.profile in WITHOUT_DASK

    @property
    def is_known(self) -> bool:
        """Whether workers and memory are known: of a scheduler that runs already they aren't before it is asked."""
        return not self.elsewhere or self.memory_limit > 1

    def measured(self, workers: Sequence[tuple[int, int]]) -> ClusterSpec:
        """Return it with threads and bytes that workers turned out to have; where they differ, the smallest count."""
        if not workers:
            return self
        threads, memory = (min(each) for each in zip(*workers, strict=True))
        return self.model_copy(update={"threads_per_worker": max(1, threads), "memory_limit": memory})

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
        return self.model_dump(exclude=_NOT_COMPARED) == other.model_dump(exclude=_NOT_COMPARED)

    def __hash__(self) -> int:
        return hash(self.model_dump_json(exclude=_NOT_COMPARED))

    def chosen(self, names: Container[str]) -> dict[str, Any]:
        """Choices of these names with which its profile plans such a cluster again."""
        told = {
            "n_workers": self.n_workers,
            "threads_per_worker": self.threads_per_worker if self.is_known else None,
            "memory": self.memory if self.is_known else None,
            "encrypt": self.encrypt,
            "idle_timeout": self.idle_timeout or "never",
            "python": self.python,
            "devices": ",".join(self.devices),
            "device_memory_limit": self.device_memory_limit,
            "rmm_pool_size": self.rmm_pool_size,
            "ucx_tls": self.ucx_tls,
            "interface": self.interface,
            **self.options,
        }
        return {name: value for name, value in told.items() if value not in (None, "") and name in names}

    def describe(self) -> str:
        """One line: '2 workers × 1 thread, 10.2 GiB (5.1 GiB each)', and ', not encrypted' or ', UCX' where so."""
        workers = formats.count(self.n_workers, "worker")
        threads = formats.count(self.threads_per_worker, "thread")
        if not self.is_known:
            return _or_why(lambda: _profile(self.profile).describe(self))
        if self.alone:
            return f"one process without Dask, {threads}, {formats.size(self.memory)}"
        gpus = " on a GPU each" if len(self.devices) > 1 else " on a GPU" if self.devices else ""
        each = f" ({formats.size(self.memory_limit)} each)" if self.n_workers > 1 else ""
        return f"{workers}{gpus} × {threads}, {formats.size(self.memory)}{each}{_TELLING.get(self.protocol, '')}"

    def ucx_variables(self) -> dict[str, str]:
        """Return the environment variables that tell UCX what was chosen for it."""
        told = {"UCX_TLS": self.ucx_tls, "UCX_NET_DEVICES": self.interface}
        return {name: value for name, value in told.items() if value}

    def preview(self) -> str | None:
        """Return what would be submitted elsewhere to get it; None where nothing is."""
        return _profile(self.profile).preview(self)

    def code(self) -> str:
        """Dask code that gets the same cluster without this package, a script that runs as it is."""
        return _or_why(lambda: _profile(self.profile).code(self), "# {}\n")


def _or_why(ask: Callable[[], str], shown: str = "{}") -> str:
    """Return what a profile tells or, for it stands in lists with others, the sentence that says why it can't."""
    try:
        return ask()
    except (FailedError, MissingError) as err:
        # On one line, for the next would be code.
        return shown.format(on_one_line(str(err)))


def _profile(name: str) -> Profile:
    from workbench.clusters.profiles import of_cluster

    return of_cluster(name)
