"""The cores of this machine, as threads, processes or a mix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import formats
from workbench.clusters.choices import ClusterChoices
from workbench.clusters.profiles import Around
from workbench.clusters.profiles.this_machine import STARTED, Here, arguments, common, encrypted
from workbench.clusters.spec import ClusterSpec
from workbench.hardware import Cpu as Cores

if TYPE_CHECKING:
    from distributed.deploy.spec import SpecCluster
    from distributed.security import Security

_MOST_THREADS = 8
_FEWEST_THREADS = 4

MEASURED = (
    "Measured on two cores, 2026-11-21: (x + x.T).sum() took 0.86 s on one process "
    "of two threads and 0.98 s on two processes of one, (x + 1)[::2, ::2].sum() 1.53 s and 1.52 s, a tall-skinny SVD "
    "1.37 s and 1.28 s"
)
"""Results of tests/benchmarks/results/split-2026-11-21.md; a test compares the two."""


class Cpu(Here):
    """Workers on the cores of this machine."""

    name = "cpu"
    title = "CPU"
    line = "The cores of this machine, as threads, processes or a mix."
    model = ClusterChoices
    divides_cores = True

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec with as few processes as suits array work."""
        choices = self.checked(given, self.model)
        return on_cores(choices, around, profile=self.name, protocol=encrypted(choices.encrypt))

    def words(self, choices: Mapping[str, Any]) -> str:
        shape = {name: str(value) for name, value in choices.items()}
        return "One core" if shape == {"n_workers": "1", "threads_per_worker": "1"} else super().words(choices)

    async def start(self, spec: ClusterSpec, security: Security | None) -> SpecCluster:
        return await local_cluster(spec, security)


async def local_cluster(spec: ClusterSpec, security: Security | None) -> SpecCluster:
    """Start Dask's LocalCluster with a scheduler and no worker yet, reachable from this machine only.

    UCX takes no address to listen at: other machines can reach it unless a firewall blocks them.
    """
    from distributed import LocalCluster

    return await LocalCluster(**{**arguments(spec), "n_workers": 0}, security=security, **STARTED)


def on_cores(choices: ClusterChoices, around: Around, why: tuple[str, ...] = (), **fields: Any) -> ClusterSpec:
    """Return the spec of workers on cores, with these fields, and `why` after the other reasons."""
    cpu = around.inventory.cpu
    split = _split(cpu, choices.n_workers, choices.threads_per_worker)
    shared = common(choices, around, split.n_workers)
    reasons = (_cores(cpu), split.why, *_balance(cpu.usable, split), *shared.pop("why"), *why)
    return ClusterSpec(threads_per_worker=split.threads, **shared, **fields, why=reasons)


class _Split(NamedTuple):
    n_workers: int
    threads: int
    why: str


def _split(cpu: Cores, n_workers: int | None, threads: int | None) -> _Split:
    cores = formats.count(cpu.usable, "usable core")
    if n_workers is not None and threads is not None:
        return _Split(n_workers, threads, f"{_shape(n_workers, threads)}, as chosen.")
    if n_workers is not None:
        threads = max(1, cpu.usable // n_workers)
        return _Split(n_workers, threads, f"{_shape(n_workers, threads)}: processes as chosen, {cores} shared out.")
    if threads is not None:
        n_workers = max(1, cpu.usable // threads)
        return _Split(n_workers, threads, f"{_shape(n_workers, threads)}: threads as chosen, for {cores}.")
    return _default_split(cpu.usable)


def _default_split(usable: int) -> _Split:
    """Split cores for array work: as few processes as possible with at most eight threads each.

    Threads of one process share its blocks, processes copy them. On two cores that was measured
    (tests/benchmarks/bench_split.py); that more than eight threads slow one another down is a rule of thumb, after the
    ten processes of eight threads that "GPU Dask Arrays, first steps" (M. Rocklin, 2019) suggests for eighty.
    """
    if usable == 1:
        return _Split(1, 1, "1 process of 1 thread: there is one usable core.")
    if usable <= _MOST_THREADS:
        why = f"{_shape(1, usable)}: threads share their blocks of an array, processes copy them. {MEASURED}"
        return _Split(1, usable, f"{why}." if usable == 2 else f"{why}; for more cores it is a rule, not measured.")
    # Numbers of processes with four to eight threads each.
    sensible = range(math.ceil(usable / _MOST_THREADS), usable // _FEWEST_THREADS + 1)
    n_workers = min(sensible, key=lambda n: (usable % n, n))
    threads = usable // n_workers
    why = (
        f"{_shape(n_workers, threads)}: threads share their blocks of an array and processes copy them, but many "
        f"threads of one process get in one another's way. {_FEWEST_THREADS} to {_MOST_THREADS} threads a process is "
        "a rule (a well-known post suggests ten processes of eight on eighty cores) and was not measured here."
    )
    return _Split(n_workers, threads, why)


def _cores(cpu: Cores) -> str:
    if cpu.threads is None or cpu.usable == cpu.threads:
        return f"{formats.count(cpu.usable, 'core')} may be used."
    reasons = []
    if cpu.affinity is not None and cpu.affinity < cpu.threads:
        reasons.append(f"its affinity names {cpu.affinity}")
    if cpu.quota is not None and cpu.quota < cpu.threads:
        reasons.append(f"its control group grants {formats.count(round(cpu.quota, 2), 'CPU')}")
    return f"{formats.count(cpu.usable, 'core')} of {cpu.threads} may be used by this process: {' and '.join(reasons)}."


def _balance(usable: int, split: _Split) -> tuple[str, ...]:
    threads = split.n_workers * split.threads
    if threads > usable:
        return (
            f"Warning: {formats.count(threads, 'thread')} for {formats.count(usable, 'usable core')}: they take turns, "
            "which makes nothing faster.",
        )
    if threads < usable:
        return (
            f"{formats.count(usable - threads, 'usable core')} of {usable} left to the scheduler, Jupyter and others.",
        )
    return ()


def _shape(n_workers: int, threads: int) -> str:
    return f"{formats.count(n_workers, 'process')} of {formats.count(threads, 'thread')}"
