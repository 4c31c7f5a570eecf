"""One budget of memory over all running clusters of this person."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from workbench import config, formats
from workbench.clusters.records import ClusterRecord, memory_of_children
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, WorkbenchError
from workbench.hardware import Inventory

MINIMUM_PER_WORKER = 128 * 2**20
"""Bytes. A worker takes 90 MiB before it holds any data (resident, distributed 2026.7.1 with NumPy imported)."""

_RUNNING = ("starting", "ready")


class Budget(BaseModel, frozen=True):
    """Memory in bytes: `left` is `limit` less `promised`, less the larger of `reserve` and `used`, and at least 0."""

    limit: int
    reserve: int
    used: int = 0
    """Bytes that other programs hold, and a quarter of the reserve that they may take before a cluster has started."""
    promised: int
    held: int = 0
    """Bytes that workers of running clusters hold already of what they were promised."""
    left: int

    def describe(self) -> str:
        """One clause: '23.5 GiB of memory, less 2.4 GiB in reserve, less 5 GiB given to running clusters'."""
        others = f"{formats.size(self.reserve)} in reserve"
        if self.used > self.reserve:
            others = f"{formats.size(self.used)} that other programs hold or may take"
        return (
            f"{formats.size(self.limit)} of memory, less {others}, "
            f"less {formats.size(self.promised)} given to running clusters"
        )

    def allows(self, memory: int) -> bool:
        """Return whether a cluster of so many bytes may start.

        That is a quarter of the reserve more than `left` where other programs hold much: what they take between the
        plan and the start of a cluster must not refuse it.
        """
        used = self.used - _slack(self.reserve)
        return memory <= max(0, self.limit - self.promised - max(self.reserve, used))


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


def promised_together(records: Iterable[ClusterRecord]) -> int:
    """Bytes promised to running clusters. Of those that compute in turn, which have one group, the largest counts."""
    most: dict[tuple[str, str], int] = {}
    for record in records:
        key = (record.group, "" if record.group else record.name)
        most[key] = max(most.get(key, 0), promised(record))
    return sum(most.values())


def held(record: ClusterRecord) -> int:
    """Bytes that the workers of a cluster hold on this machine now, those that are starting included."""
    return memory_of_children(record, lambda _: True)


def without(records: Iterable[ClusterRecord], name: str) -> tuple[ClusterRecord, ...]:
    """Return records of which the cluster `name` is promised nothing; what its workers hold is still its own."""
    gone = {"status": "ready", "n_workers_expected": 0, "adaptive": None}
    return tuple(record.model_copy(update=gone) if record.name == name else record for record in records)


def budget(inventory: Inventory, records: Iterable[ClusterRecord], *, group: str = "") -> Budget:
    """Budget of this machine while the clusters of `records` run, for one of a `group` that computes in turn."""
    there = running(records)
    return budget_after(inventory, promised_together(_outside(there, group)), sum(map(held, there)))


def _outside(records: Iterable[ClusterRecord], group: str) -> tuple[ClusterRecord, ...]:
    return tuple(record for record in records if not group or record.group != group)


def budget_after(inventory: Inventory, promised: int, held: int = 0) -> Budget:
    """Budget of this machine after so many bytes were promised, `held` of which workers hold already."""
    limit, available = inventory.memory.limit, inventory.memory.available
    kept = reserve(limit)
    # What workers hold is in what they were promised: it isn't counted twice.
    used = max(0, limit - (limit if available is None else available) - held) + _slack(kept)
    left = max(0, limit - promised - max(kept, used))
    return Budget(limit=limit, reserve=kept, used=used, promised=promised, held=held, left=left)


def _slack(reserve: int) -> int:
    return reserve // 4


def check_budget(spec: ClusterSpec, inventory: Inventory, records: Iterable[ClusterRecord], *, group: str = "") -> None:
    """Raise ConflictError where a spec asks for more memory than is left.

    Clusters of its `group` compute when it doesn't, and take no memory from it. To check a running cluster that is to
    be scaled, give its spec with the new number of workers, and the records `without` it.
    """
    if spec.elsewhere:
        return
    others = running(records)
    _check_memory(spec, budget(inventory, others, group=group), _outside(others, group))


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


def _check_memory(spec: ClusterSpec, budget: Budget, others: tuple[ClusterRecord, ...]) -> None:
    if budget.allows(spec.memory):
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
