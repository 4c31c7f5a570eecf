"""One budget of memory and worker processes over all running clusters of this person."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from workbench import config, formats
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, WorkbenchError
from workbench.hardware import Inventory

MINIMUM_PER_WORKER = 128 * 2**20
"""Bytes. A worker takes 90 MiB before it holds any data (resident, distributed 2026.7.1 with NumPy imported)."""

_RUNNING = ("starting", "ready")
_PROCESSES_PER_CORE = 2
_ALWAYS_ALLOWED = 4


class Budget(BaseModel, frozen=True):
    """Memory in bytes: `left` is `limit` less `reserve` less `promised`, and never below 0."""

    limit: int
    reserve: int
    promised: int
    left: int

    def describe(self) -> str:
        """One clause: '23.5 GiB of memory, less 2.4 GiB in reserve, less 5 GiB given to running clusters'."""
        return (
            f"{formats.size(self.limit)} of memory, less {formats.size(self.reserve)} in reserve, "
            f"less {formats.size(self.promised)} given to running clusters"
        )


def reserve(limit: int) -> int:
    """Bytes that no cluster is promised: the larger of a share and a size (config), at most half of the limit."""
    fraction = config.get("memory-reserve.fraction")
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction < 1:
        raise BadInputError(
            f"The setting workbench.memory-reserve.fraction is {fraction!r}. Give a number from 0 up to but not 1."
        )
    return min(max(int(fraction * limit), config.size("memory-reserve.bytes")), limit // 2)


def running(records: Iterable[ClusterRecord]) -> tuple[ClusterRecord, ...]:
    """Return the records of clusters of this machine that hold their promise: starting or ready."""
    return tuple(record for record in records if record.status in _RUNNING and not record.spec.elsewhere)


def workers(record: ClusterRecord) -> int:
    """Worker processes that a running cluster may come to have."""
    if record.adaptive is not None:
        return max(record.adaptive[1], record.n_workers_expected)
    # A record that was just written doesn't expect anything yet; a ready cluster may have been scaled to none.
    return record.spec.n_workers if record.status == "starting" else record.n_workers_expected


def promised(record: ClusterRecord) -> int:
    """Bytes promised to a running cluster."""
    return workers(record) * record.spec.memory_limit


def budget(inventory: Inventory, records: Iterable[ClusterRecord]) -> Budget:
    """Budget of this machine while the clusters of `records` run."""
    total = sum(promised(record) for record in running(records))
    return budget_after(inventory, total)


def budget_after(inventory: Inventory, promised: int) -> Budget:
    """Budget of this machine after so many bytes were promised."""
    limit = inventory.memory.limit
    kept = reserve(limit)
    return Budget(limit=limit, reserve=kept, promised=promised, left=max(0, limit - kept - promised))


def most_workers(inventory: Inventory) -> int:
    """Worker processes that make sense on this machine, those of all clusters together.

    Two for each usable core, and four on any machine: beyond that processes only wait for one another.
    """
    return max(_ALWAYS_ALLOWED, _PROCESSES_PER_CORE * inventory.cpu.usable)


def check_budget(spec: ClusterSpec, inventory: Inventory, records: Iterable[ClusterRecord]) -> None:
    """Raise ConflictError where a spec asks for more memory or worker processes than is left.

    To check a running cluster that is to be scaled, give its spec with the new number of workers, and the records of
    the others only.
    """
    if spec.elsewhere:
        return
    others = running(records)
    _check_workers(spec, inventory, others)
    _check_memory(spec, budget(inventory, others), others)


def refusal(spec: ClusterSpec, inventory: Inventory, records: Iterable[ClusterRecord]) -> str | None:
    """Return why this spec would be refused if it were started now, None where it wouldn't."""
    from workbench.clusters.environments import check_environment

    try:
        check_budget(spec, inventory, records)
        if spec.python is not None:
            check_environment(spec.python)
    except WorkbenchError as err:
        return str(err)
    return None


def _check_workers(spec: ClusterSpec, inventory: Inventory, others: tuple[ClusterRecord, ...]) -> None:
    # A worker with a GPU of its own is one for each card, however few the cores are.
    others = tuple(record for record in others if not record.spec.devices)
    most, there = most_workers(inventory), sum(workers(record) for record in others)
    if spec.devices or there + spec.n_workers <= most:
        return
    held = [f"{record.name} ({workers(record)})" for record in others if workers(record)]
    remedies = [f"stop {_either(held)}"] if held else []
    if most > there:
        remedies.append(f"ask for at most {formats.count(most - there, 'worker')}")
    raise ConflictError(
        f"{formats.count(spec.n_workers, 'worker')} and {there} running make {spec.n_workers + there}, and "
        f"{formats.count(inventory.cpu.usable, 'usable core')} can serve at most {most}: "
        f"{_joined([*remedies, 'force it'])}."
    )


def _check_memory(spec: ClusterSpec, budget: Budget, others: tuple[ClusterRecord, ...]) -> None:
    if spec.memory <= budget.left:
        return
    held = [f"{record.name} ({formats.size(promised(record))})" for record in others if promised(record)]
    remedies = [f"stop {_either(held)}"] if held else []
    if budget.left >= spec.n_workers * MINIMUM_PER_WORKER:
        remedies.append(f"ask for at most {_rounded_down(budget.left)} of memory")
    wanted, left = formats.sizes_apart(spec.memory, budget.left)
    raise ConflictError(
        f"This asks for {wanted}, and {left} is left ({budget.describe()}): {_joined([*remedies, 'force it'])}."
    )


def _rounded_down(size: int) -> str:
    """Size to type, never more than `size`: '3.2 GiB' or '800 MiB'."""
    return f"{size * 10 // 2**30 / 10:g} GiB" if size >= 2**30 else f"{size // 2**20} MiB"


def _either(items: list[str]) -> str:
    if len(items) > 4:
        items = [*items[:3], f"{len(items) - 3} more"]
    return items[0] if len(items) == 1 else f"one of {', '.join(items)}"


def _joined(items: list[str]) -> str:
    # The last item is always to force it, which alone is no advice.
    return ", ".join([*items[:-1], f"or {items[-1]}"]) if len(items) > 1 else "only force goes past that"
