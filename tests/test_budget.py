"""One budget over all running clusters, refused with the numbers and the remedy."""

from __future__ import annotations

import re
from typing import Any

import dask
import pytest

from workbench.clusters.budget import budget, budget_after, check_budget, reserve
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError
from workbench.hardware import Cpu, Inventory, Memory, Ucx

GIB = 2**30


def machine(*, usable: int = 8, memory: int = 20 * GIB, available: int | None = None) -> Inventory:
    return Inventory(
        cpu=Cpu(model=None, physical_cores=None, threads=usable, usable=usable, affinity=None, quota=None),
        memory=Memory(total=memory, available=available or memory, cgroup_limit=None, limit=memory),
        gpus=(),
        ucx=Ucx(installed=False, version=None, reason="distributed-ucxx isn't installed."),
        missing={},
    )


def spec(n_workers: int, each: int) -> ClusterSpec:
    return ClusterSpec(profile="cpu", n_workers=n_workers, threads_per_worker=1, memory_limit=each)


def record(name: str, n_workers: int, each: int, **changes: Any) -> ClusterRecord:
    given = {"status": "ready", "n_workers_expected": n_workers} | changes
    return ClusterRecord(name=name, spec=spec(n_workers, each), **given)


def test_what_is_left_is_the_limit_less_the_reserve_less_what_running_clusters_were_promised() -> None:
    found = budget(machine(), [record("calm-otter", 2, 2 * GIB), record("brave-yak", 1, GIB)])
    assert (found.limit, found.reserve, found.promised, found.left) == (20 * GIB, 2 * GIB, 5 * GIB, 13 * GIB)
    assert found.describe() == ("20 GiB of memory, less 2 GiB in reserve, less 5 GiB given to running clusters")


def test_memory_that_other_programs_hold_is_not_left() -> None:
    full = machine(memory=3 * GIB, available=int(1.2 * GIB))
    with dask.config.set({"workbench.memory-reserve": {"fraction": 0.1, "bytes": "1GiB"}}):
        found = budget(full, [])
        # A quarter of the reserve is kept for what they take before the cluster has started.
        assert found.left == int(1.2 * GIB) - GIB // 4
        assert found.describe().startswith("3 GiB of memory, less 2.05 GiB that other programs hold or may take, less")
        check_budget(spec(1, int(1.2 * GIB)), full, [])
        with pytest.raises(ConflictError, match=r"This asks for 1\.5 GiB, and 973 MiB is left .* or force it"):
            check_budget(spec(1, int(1.5 * GIB)), full, [])
        # What workers hold already is in their promise.
        assert budget_after(full, promised=GIB, held=GIB).left == found.left
        assert budget_after(full, promised=GIB).left == 0


def test_more_promised_than_there_is_leaves_nothing_and_not_less() -> None:
    assert budget(machine(), [record("calm-otter", 4, 10 * GIB)]).left == 0


def test_of_clusters_that_compute_in_turn_the_largest_counts() -> None:
    together = [record("one", 2, 2 * GIB, group="compare-1"), record("two", 1, 6 * GIB, group="compare-1")]
    other = record("other", 1, GIB, group="compare-2")
    assert budget(machine(), [*together, other, record("calm-otter", 1, GIB)]).promised == 8 * GIB
    # Another cluster of this comparison may use all that the others have; one of another comparison, only what is left.
    check_budget(spec(1, 17 * GIB), machine(), [*together, other], group="compare-1")
    with pytest.raises(ConflictError, match=r"stop other \(1 GiB\)"):
        check_budget(spec(1, 18 * GIB), machine(), [*together, other], group="compare-1")
    check_budget(spec(1, 12 * GIB), machine(), together, group="compare-2")
    with pytest.raises(ConflictError):
        check_budget(spec(1, 13 * GIB), machine(), together)


@pytest.mark.parametrize(
    ("status", "holds"), [("starting", 2), ("ready", 2), ("stopping", 0), ("failed", 0), ("lost", 0)]
)
def test_only_starting_and_ready_clusters_hold_their_promise(status: str, holds: int) -> None:
    assert budget(machine(), [record("calm-otter", 2, GIB, status=status)]).promised == holds * GIB


def test_a_cluster_that_was_just_recorded_holds_the_promise_of_its_spec() -> None:
    assert (
        budget(machine(), [record("calm-otter", 3, GIB, status="starting", n_workers_expected=0)]).promised == 3 * GIB
    )


def test_a_scaled_cluster_holds_what_it_was_scaled_to_and_an_adaptive_one_its_upper_bound() -> None:
    assert budget(machine(), [record("calm-otter", 2, GIB, n_workers_expected=5)]).promised == 5 * GIB
    assert budget(machine(), [record("calm-otter", 2, GIB, n_workers_expected=0)]).promised == 0
    assert budget(machine(), [record("calm-otter", 2, GIB, adaptive=(0, 6))]).promised == 6 * GIB


def test_the_reserve_is_the_larger_of_a_share_and_a_size_but_at_most_half() -> None:
    with dask.config.set({"workbench.memory-reserve": {"fraction": 0.1, "bytes": "1GiB"}}):
        assert reserve(100 * GIB) == 10 * GIB
        assert reserve(5 * GIB) == GIB
        assert reserve(GIB) == GIB // 2


@pytest.mark.parametrize("fraction", ["much", -0.1, 1, True, None])
def test_a_share_that_is_none_is_refused_by_the_name_of_its_setting(fraction: object) -> None:
    with (
        dask.config.set({"workbench.memory-reserve.fraction": fraction}),
        pytest.raises(BadInputError, match=r"workbench\.memory-reserve\.fraction is"),
    ):
        reserve(GIB)


def test_a_spec_that_fits_exactly_is_let_through() -> None:
    check_budget(spec(2, 9 * GIB), machine(), [])
    with pytest.raises(ConflictError):
        check_budget(spec(2, 9 * GIB + 1), machine(), [])


def test_too_much_memory_is_refused_with_the_numbers_and_three_remedies() -> None:
    with pytest.raises(ConflictError) as refused:
        check_budget(spec(2, 8 * GIB), machine(), [record("calm-otter", 2, int(2.5 * GIB))])
    assert str(refused.value) == (
        "This asks for 16 GiB, and 13 GiB is left (20 GiB of memory, less 2 GiB in reserve, less "
        "5 GiB given to running clusters): stop calm-otter (5 GiB), ask for at most 13 GiB of memory, or force "
        "it."
    )
    assert refused.value.status == 409


def test_the_memory_that_is_advised_passes() -> None:
    others = [record("calm-otter", 1, int(4.8765 * GIB))]
    with pytest.raises(ConflictError) as refused:
        check_budget(spec(1, 18 * GIB), machine(), others)
    advised = re.search(r"at most ([\d.]+) GiB", str(refused.value))
    assert advised is not None
    check_budget(spec(1, int(float(advised[1]) * GIB)), machine(), others)


def test_with_nothing_left_no_amount_is_advised() -> None:
    with pytest.raises(ConflictError) as refused:
        check_budget(
            spec(1, GIB),
            machine(),
            [record("calm-otter", 1, 18 * GIB), record("idle-crane", 1, GIB, n_workers_expected=0)],
        )
    assert "ask for" not in str(refused.value)
    assert str(refused.value).endswith(": stop calm-otter (18 GiB), or force it.")


def test_alone_on_the_machine_nothing_is_to_be_stopped() -> None:
    with pytest.raises(ConflictError) as refused:
        check_budget(spec(1, 30 * GIB), machine(), [])
    assert str(refused.value).endswith(": ask for at most 18 GiB of memory, or force it.")


def test_of_many_clusters_that_could_be_stopped_the_first_are_named() -> None:
    others = [record(f"run-{number}", 2, GIB) for number in range(9)]
    named = ", ".join(rf"run-{number} \(2 GiB\)" for number in range(3))
    with pytest.raises(ConflictError, match=rf"stop one of {named}, 6 more, or force it"):
        check_budget(spec(1, 8 * GIB), machine(), others)
