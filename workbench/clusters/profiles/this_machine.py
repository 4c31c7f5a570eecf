"""Shared code of the profiles of this machine: memory from one budget, TLS, Dask's own cluster classes."""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from workbench import config, formats
from workbench.clusters.budget import MINIMUM_PER_WORKER, Budget, budget_after
from workbench.clusters.choices import ClusterChoices
from workbench.clusters.profiles import Around, Group, Profile
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, MissingError, install, on_one_line
from workbench.hardware import Inventory, inventory

if TYPE_CHECKING:
    from distributed.deploy.spec import SpecCluster
    from distributed.security import Security

    from workbench.clusters.profiles.local import LocalEngine

_COMFORTABLE = 2 * MINIMUM_PER_WORKER
_DEFAULT_SHARE = 2 / 3
"""Default share of the memory that is left, so that the cluster can grow, or another one can start."""


class Here(Profile):
    """A cluster of one of Dask's own classes on this machine."""

    is_local = True
    reached_by = "every user of this machine"
    group: ClassVar[Group] = "here"

    def code(self, spec: ClusterSpec) -> str:
        lines = [_line(name, value) for name, value in arguments(spec).items()]
        imports = ["from dask.distributed import Client, LocalCluster"]
        if spec.devices:
            imports = ["from dask.distributed import Client", "from dask_cuda import LocalCUDACluster"]
        if spec.encrypt:
            imports.append("from distributed.security import Security")
            lines.append("security=Security.temporary(),")
        variables = "".join(
            f"os.environ[{formats.literal(name)}] = {formats.literal(value)}\n"
            for name, value in self.environment(spec)[1].items()
        )
        if variables:
            # Before Dask reads them; workers inherit them.
            imports, variables = ["import os", "", *imports], f"\n{variables}"
        body = "\n".join(f"        {line}" for line in lines)
        kind = "LocalCUDACluster" if spec.devices else "LocalCluster"
        shebang = f"# Run with: {on_one_line(spec.python)}\n" if spec.python else ""
        return (
            shebang + "\n".join(imports) + f'\n{variables}\nif __name__ == "__main__":\n'
            f"    cluster = {kind}(\n{body}\n    )\n    client = Client(cluster)\n    print(client)\n"
        )

    @abstractmethod
    async def start(self, spec: ClusterSpec, security: Security | None) -> SpecCluster:
        """Start Dask's cluster, with only its scheduler."""

    def engine(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> LocalEngine:
        from workbench.clusters.profiles.local import LocalEngine

        return LocalEngine(partial(self.start, spec, security), spec, security, folder, changed)

    def check(self, spec: ClusterSpec) -> None:
        if spec.python is not None and Path(spec.python) != Path(sys.executable):
            from workbench.clusters.environments import check_environment

            check_environment(spec.python)


def common(choices: ClusterChoices, around: Around, n_workers: int) -> dict[str, Any]:
    """Return the common fields of these specs, with the explanation of their memory in `why`."""
    budget = budget_after(around.inventory, around.promised, around.held)
    limit, why = _memory(n_workers, choices.memory, budget)
    return {
        "n_workers": n_workers,
        "memory_limit": limit,
        "python": None if choices.python is None else _absolute(choices.python),
        "idle_timeout": idle_timeout(choices.idle_timeout),
        "why": (why, *_available(around.inventory, limit * n_workers)),
    }


def encrypted(choice: bool | None) -> str:
    """Return "tls" or "tcp", by the choice or else by the setting."""
    is_encrypted = config.switch("encrypt") if choice is None else choice
    return "tls" if is_encrypted else "tcp"


def check_package(spec: ClusterSpec, names: tuple[str, ...], extras: tuple[str, str]) -> None:
    """Raise MissingError if the environment of the cluster has none of these distributions."""
    from workbench.clusters.environments import installed

    if not installed(spec.python, names):
        extra = extra_for(extras, inventory())
        raise MissingError(
            f"The {spec.profile} profile needs {names[0]} in {spec.python or sys.executable}: {install(extra)}."
        )


def extra_for(extras: tuple[str, str], inventory: Inventory) -> str:
    """Return the one of two extras, for CUDA 12 and 13, that fits the driver: an older one can't run CUDA 13."""
    major = (inventory.cuda.version or "").partition(".")[0]
    return extras[0 if major.isdecimal() and int(major) < 13 else 1]


STARTED: dict[str, Any] = {
    # The host adds the dashboard on first use: its import takes as long as starting two workers.
    "scheduler_kwargs": {"dashboard": False},
    "silence_logs": False,
    "asynchronous": True,
}
"""Arguments of each start, without the parts that the host adds."""


def arguments(spec: ClusterSpec) -> dict[str, Any]:
    """Return the arguments of the cluster's Dask class: LocalCUDACluster with devices, else LocalCluster."""
    values: dict[str, Any] = {
        "n_workers": spec.n_workers,
        "threads_per_worker": spec.threads_per_worker,
        "memory_limit": spec.memory_limit,
        "protocol": spec.protocol,
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
    }
    on_devices = {
        "CUDA_VISIBLE_DEVICES": list(spec.devices),
        "device_memory_limit": spec.device_memory_limit,
        "rmm_pool_size": spec.rmm_pool_size,
        # Without it CuPy has its own pool in addition to RMM's, which holds most of the card.
        "rmm_allocator_external_lib_list": ["cupy"] if spec.cupy and spec.rmm_pool_size is not None else None,
        "pre_import": "cupy" if spec.cupy else None,
    }
    return values | {name: value for name, value in on_devices.items() if spec.devices and value is not None}


_BYTES = {"memory_limit": "bytes per worker", "device_memory_limit": "bytes per GPU", "rmm_pool_size": "bytes per GPU"}


def _line(name: str, value: Any) -> str:
    """Return one argument of the code, ready to run."""
    if name in _BYTES:
        return f"{name}={value},  # {_BYTES[name]}: {formats.size(value)}"
    return f"{name}={formats.literal(value)},"


def _memory(n_workers: int, chosen: int | None, budget: Budget) -> tuple[int, str]:
    """Return the bytes per worker, and a message that explains them."""
    if chosen is None and budget.left < MINIMUM_PER_WORKER:
        raise ConflictError(
            f"Too little memory is left for another cluster ({budget.describe()}). Stop a cluster, or give the memory "
            "yourself and force it."
        )
    total = _by_default(n_workers, budget.left) if chosen is None else chosen
    each = memory_each(total, n_workers, is_chosen=chosen is not None)
    both = f"{formats.size(total)} for all workers together, {formats.size(each)} for each"
    if n_workers == 1:
        both = f"{formats.size(total)} for the one worker"
    if chosen is None:
        share = "all" if total == budget.left else "two thirds of what"
        purpose = "" if total == budget.left else ", so that it can grow or another cluster start"
        return each, f"{both}: {share} the budget leaves ({budget.describe()}){purpose}."
    verdict = f"the budget leaves {formats.size(budget.left)}"
    if not budget.allows(total):
        verdict = f"Warning: {verdict} ({budget.describe()}), so this has to be forced"
    return each, f"{both}, as chosen. {verdict[0].upper()}{verdict[1:]}."


def memory_each(memory: int, n_workers: int, *, is_chosen: bool = True) -> int:
    """Return the bytes per worker of `memory` bytes for all. Raises BadInputError if that is too little to work."""
    each = memory // n_workers
    if each < MINIMUM_PER_WORKER:
        raise BadInputError(_too_little(n_workers, memory if is_chosen else None, memory))
    return each


def _by_default(n_workers: int, available: int) -> int:
    """Return the default bytes for all workers: a share of what is left, or all of it if that is little."""
    share = int(_DEFAULT_SHARE * available)
    return share if share >= n_workers * _COMFORTABLE else available


def _too_little(n_workers: int, chosen: int | None, total: int) -> str:
    least, each = formats.size(MINIMUM_PER_WORKER), formats.size(total // n_workers)
    problem = f"n_workers is {n_workers}" if chosen is None else f"memory is {formats.size(chosen)}"
    remedies = [] if chosen is None else [f"at least {formats.size(n_workers * MINIMUM_PER_WORKER)} of memory"]
    fewer = total // MINIMUM_PER_WORKER
    if 0 < fewer < n_workers:
        remedies.append(f"at most {formats.count(fewer, 'worker')}")
    return f"{problem}, which is {each} for each worker, and a worker needs {least}. Give {', or '.join(remedies)}."


def _available(inventory: Inventory, memory: int) -> tuple[str, ...]:
    available = inventory.memory.available
    if available is None or available >= memory:
        return ()
    return (f"Warning: only {formats.size(available)} is free at this moment; running programs hold the rest.",)


def idle_timeout(choice: float | str | None) -> float | None:
    """Return the seconds, by the choice or else by the setting; None for never."""
    if choice is None:
        return config.seconds("idle-timeout")
    return None if isinstance(choice, str) else choice


def _absolute(python: str) -> str:
    # Symbolic links stay: a virtual environment's python is one, and resolving it would lead out of the environment.
    expanded = os.path.expanduser(python)  # noqa: PTH111
    return os.path.abspath(expanded) if os.sep in expanded else expanded  # noqa: PTH100
