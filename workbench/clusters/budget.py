"""One memory budget for all running clusters of this user."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from workbench import config, formats
from workbench.clusters.records import ClusterRecord, memory_of_children
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, WorkbenchError
from workbench.hardware import Inventory

MINIMUM_PER_WORKER = 128 * 2**20
"""Bytes. A worker uses 90 MiB before it holds any data (resident, distributed 2026.7.1 with NumPy imported)."""

_RUNNING = ("starting", "ready")


class Budget(BaseModel, frozen=True):
    """Memory in bytes: `left` is `limit` less `promised`, less the larger of `reserve` and `used`, and at least 0."""

    limit: int
    reserve: int
    used: int = 0
    """Bytes used by other programs, plus a quarter of the reserve for what they may take before a cluster starts."""
    promised: int
    held: int = 0
    """Bytes that workers of running clusters already use of the memory promised to them."""
    left: int

    def describe(self) -> str:
        """Return a clause: '23.5 GiB of memory, less 2.4 GiB in reserve, less 5 GiB given to running clusters'."""
        others = f"{formats.size(self.reserve)} in reserve"
        if self.used > self.reserve:
            others = f"{formats.size(self.used)} that other programs hold or may take"
        return (
            f"{formats.size(self.limit)} of memory, less {others}, "
            f"less {formats.size(self.promised)} given to running clusters"
        )

    def allows(self, memory: int) -> bool:
        """Return whether a cluster of this many bytes may start.

        If other programs use much memory, a quarter of the reserve is allowed beyond `left`: what they take between
        the plan and the start of a cluster must not refuse it.
        """
        used = self.used - _slack(self.reserve)
        return memory <= max(0, self.limit - self.promised - max(self.reserve, used))


def reserve(limit: int) -> int:
    """Return the bytes that no cluster is promised: the larger of a share and a size (config), at most half of all."""
    fraction = config.get("memory-reserve.fraction")
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction < 1:
        raise BadInputError(
            f"The setting workbench.memory-reserve.fraction is {fraction!r}. Give a number from 0 up to but not 1."
        )
    return min(max(int(fraction * limit), config.size("memory-reserve.bytes")), limit // 2)


def running(records: Iterable[ClusterRecord]) -> tuple[ClusterRecord, ...]:
    """Return the records of this machine's clusters that hold their promise: starting or ready."""
    return tuple(record for record in records if record.status in _RUNNING and not record.spec.elsewhere)


def workers(record: ClusterRecord) -> int:
    """Return the largest number of worker processes that a running cluster may have."""
    if record.adaptive is not None:
        return max(record.adaptive[1], record.n_workers_expected)
    # A new record doesn't expect any workers yet; a ready cluster may have been scaled to none.
    return record.spec.n_workers if record.status == "starting" else record.n_workers_expected


def promised(record: ClusterRecord) -> int:
    """Return the bytes promised to a running cluster."""
    return workers(record) * (record.spec.memory_limit or 0)


def promised_together(records: Iterable[ClusterRecord]) -> int:
    """Return the bytes promised to running clusters. Clusters of one group compute in turn: only the largest counts."""
    most: dict[tuple[str, str], int] = {}
    for record in records:
        key = (record.group, "" if record.group else record.name)
        most[key] = max(most.get(key, 0), promised(record))
    return sum(most.values())


def held(record: ClusterRecord) -> int:
    """Return the bytes that a cluster's workers use on this machine now, including workers that are starting."""
    return memory_of_children(record, lambda _: True)


def without(records: Iterable[ClusterRecord], name: str) -> tuple[ClusterRecord, ...]:
    """Return the records with nothing promised to the cluster `name`; memory that its workers use still counts."""
    without_promise = {"status": "ready", "n_workers_expected": 0, "adaptive": None}
    return tuple(record.model_copy(update=without_promise) if record.name == name else record for record in records)


def budget(inventory: Inventory, records: Iterable[ClusterRecord], *, group: str = "") -> Budget:
    """Return this machine's budget while the clusters of `records` run, for a cluster of `group`."""
    running_records = running(records)
    return budget_after(inventory, promised_together(_outside(running_records, group)), sum(map(held, running_records)))


def _outside(records: Iterable[ClusterRecord], group: str) -> tuple[ClusterRecord, ...]:
    return tuple(record for record in records if not group or record.group != group)


def budget_after(inventory: Inventory, promised: int, held: int = 0) -> Budget:
    """Return this machine's budget after `promised` bytes were promised, of which workers already use `held`."""
    limit, available = inventory.memory.limit, inventory.memory.available
    reserved = reserve(limit)
    # Memory used by workers is part of their promise: don't count it twice.
    used = max(0, limit - (limit if available is None else available) - held) + _slack(reserved)
    left = max(0, limit - promised - max(reserved, used))
    return Budget(limit=limit, reserve=reserved, used=used, promised=promised, held=held, left=left)


def _slack(reserve: int) -> int:
    return reserve // 4


def check_budget(spec: ClusterSpec, inventory: Inventory, records: Iterable[ClusterRecord], *, group: str = "") -> None:
    """Raise ConflictError if a spec needs more memory than is left.

    Clusters of its `group` compute in turn with it, and take no memory from it. To check a running cluster before
    scaling it, give its spec with the new number of workers, and the records `without` it.
    """
    if spec.elsewhere:
        return
    others = running(records)
    _check_memory(spec, budget(inventory, others, group=group), _outside(others, group))


def refusal(spec: ClusterSpec, inventory: Inventory, records: Iterable[ClusterRecord]) -> str | None:
    """Return why this spec would be refused if it were started now; None if it would not."""
    from workbench.clusters.environments import check_environment

    try:
        check_budget(spec, inventory, records)
        if spec.python is not None:
            check_environment(spec.python)
    except WorkbenchError as err:
        return str(err)
    return None


def _check_memory(spec: ClusterSpec, budget: Budget, others: tuple[ClusterRecord, ...]) -> None:
    if budget.allows(spec.memory):
        return
    releasable = [f"{record.name} ({formats.size(promised(record))})" for record in others if promised(record)]
    remedies = [f"stop {_either(releasable)}"] if releasable else []
    if budget.left >= spec.n_workers * MINIMUM_PER_WORKER:
        remedies.append(f"ask for at most {_rounded_down(budget.left)} of memory")
    requested, available = formats.distinct_sizes(spec.memory, budget.left)
    raise ConflictError(
        f"This asks for {requested}, and {available} is left ({budget.describe()}): {_joined([*remedies, 'force it'])}."
    )


def _rounded_down(size: int) -> str:
    """Return a size to type, rounded down: '3.2 GiB' or '800 MiB'."""
    return f"{size * 10 // 2**30 / 10:g} GiB" if size >= 2**30 else f"{size // 2**20} MiB"


def _either(items: list[str]) -> str:
    if len(items) > 4:
        items = [*items[:3], f"{len(items) - 3} more"]
    return items[0] if len(items) == 1 else f"one of {', '.join(items)}"


def _joined(items: list[str]) -> str:
    # The last item is always to force it, which is no advice on its own.
    return ", ".join([*items[:-1], f"or {items[-1]}"]) if len(items) > 1 else "only force goes past that"
