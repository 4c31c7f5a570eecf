"""From a choice to a spec: how many processes and threads, how much memory, and why."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NamedTuple, Unpack

from workbench import config, formats
from workbench.clusters.budget import MINIMUM_PER_WORKER, Budget, budget_after, most_workers
from workbench.clusters.choices import AllChoices, Choices, ClusterChoices, GpuChoices, UcxChoices, checked, choosing
from workbench.clusters.devices import Device, near_cards, pick
from workbench.clusters.devices import check as check_devices
from workbench.clusters.spec import PROFILE_NAMES, ClusterSpec, Protocol
from workbench.errors import BadInputError, ConflictError, MissingError
from workbench.hardware import Cpu, Inventory, profiles, ucx_transports
from workbench.hardware.sources import installed_version

_MOST_THREADS = 8
_FEWEST_THREADS = 4

MEASURED = (
    "Measured on two cores, 2026-11-21: (x + x.T).sum() took 0.86 s on one process "
    "of two threads and 0.98 s on two processes of one, (x + 1)[::2, ::2].sum() 1.53 s and 1.52 s, a tall-skinny SVD "
    "1.37 s and 1.28 s"
)
"""What tests/benchmarks/results/split-2026-11-21.md says; a test compares the two."""


UCX_MEASURED = (
    "UCX is slower than TCP between workers without GPUs: Dask's connections over UCX handle errors, which rules out "
    "its shared memory, so all goes over the loopback interface. Measured elsewhere (autumn 2026, another machine, two "
    "workers, not here): (x + x.T).sum() at 8000 × 8000 took 2.53 s against 1.02 s, at 0.44 of TCP's bandwidth. "
    "Measure it here: workbench compare transpose_sum --preset post --scale 0.02"
)
"""From experiments of autumn 2026 with distributed 2026.7.1 and distributed-ucxx 0.52.0."""

_COMFORTABLE = 2 * MINIMUM_PER_WORKER
_DEFAULT_SHARE = 2 / 3
"""Of the memory that is left, when nobody chooses: so that the cluster can grow, or another one be started."""

_UCX_OPEN = (
    "Warning: no encryption and no password over UCX, which listens on all network interfaces of this machine (ucxx "
    "takes no address to listen at): start it only where the network is trusted, or behind a firewall."
)


def consent(spec: ClusterSpec) -> str | None:
    """Return what a person has to agree to before such a cluster is started by a click; None where it is harmless."""
    return _UCX_OPEN if spec.protocol == "ucx" else None


def check_agreed(told: str | None, agreed: bool | Callable[[str], bool]) -> None:
    """Raise BadInputError where there is something to agree to (see `consent`) and nobody did.

    The one place that judges it, whoever asks for a cluster, a run or a comparison. `agreed` may be a function that
    asks a person.
    """
    if told is not None and not (agreed(told) if callable(agreed) else agreed):
        raise BadInputError(f"{told} Nothing was started. Leave UCX out, or agree (--yes, agreed=True).")


def choices_of(profile: str, inventory: Inventory) -> type[ClusterChoices]:
    """Return the choices that a profile has on this machine; their JSON Schema draws the form."""
    if profile == "ucx":
        return AllChoices if has_gpus(profile, inventory) else UcxChoices
    return GpuChoices if has_gpus(profile, inventory) else ClusterChoices


def _speaks_infiniband() -> bool:
    return ucx_transports().infiniband


class _Split(NamedTuple):
    n_workers: int
    threads: int
    why: str


@choosing
def plan(
    profile: str,
    inventory: Inventory,
    *,
    promised: int = 0,
    ucx_measured: str | None = None,
    version: Callable[[str], str | None] = installed_version,
    infiniband: Callable[[], bool] = _speaks_infiniband,
    **choices: Unpack[Choices],
) -> ClusterSpec:
    """Return the spec of the cluster that matches profile, hardware and choices; `spec.why` explains it.

    Parameters
    ----------
    profile
        One of cpu, gpu, gpus, ucx.
    **choices
        As in `AllChoices`.
    promised
        Bytes that running clusters were promised.
    ucx_measured
        Sentence on how UCX between workers without GPUs compared with TCP on this machine; None where it wasn't
        measured, and what was measured elsewhere must do.
    version
        Version of an installed package by its name, None where it is missing.
    infiniband
        Whether UCX has a transport for InfiniBand; asked only where there are GPUs and cards.

    Raises
    ------
    BadInputError
        A choice that can't be used: the sentence names it, what was given and what is allowed.
    MissingError
        A profile that can't be had here.
    ConflictError
        No memory was chosen and none is left, or a GPU has too little that is free.
    """
    _check_profile(profile, inventory, version)
    chosen = checked(choices)
    over = _over(profile, chosen)
    if has_gpus(profile, inventory, version):
        return _on_devices(profile, inventory, chosen, over, promised, infiniband)
    over = over._replace(interface=over.interface or "lo") if profile == "ucx" else over
    _check_no_gpu_choices(profile, chosen)
    split = _split(inventory.cpu, chosen.n_workers, chosen.threads_per_worker)
    left = budget_after(inventory, promised)
    limit, memory_why = _memory(split.n_workers, chosen.memory, left, most_workers(inventory))
    protocol = _protocol(profile, chosen.encrypt)
    return ClusterSpec(
        profile="ucx" if profile == "ucx" else "cpu",
        n_workers=split.n_workers,
        threads_per_worker=split.threads,
        memory_limit=limit,
        protocol=protocol,
        ucx_tls=over.tls,
        interface=over.interface,
        python=None if chosen.python is None else _absolute(chosen.python),
        idle_timeout=_idle_timeout(chosen.idle_timeout),
        why=(
            _cores(inventory.cpu),
            split.why,
            *_balance(inventory.cpu.usable, split),
            memory_why,
            *_available(inventory, limit * split.n_workers),
            *((_told(over), ucx_measured or UCX_MEASURED, _UCX_OPEN) if protocol == "ucx" else ()),
        ),
    )


def has_gpus(profile: str, inventory: Inventory, version: Callable[[str], str | None] = installed_version) -> bool:
    """Whether the workers of a profile have a GPU each on this machine."""
    if profile == "ucx":
        # Without Dask-CUDA the workers speak UCX on the cores alone.
        return bool(inventory.visible_gpus()) and version("dask-cuda") is not None
    return profile in ("gpu", "gpus")


def _on_devices(
    profile: str,
    inventory: Inventory,
    chosen: AllChoices,
    over: _Over,
    promised: int,
    infiniband: Callable[[], bool],
) -> ClusterSpec:
    picked, picked_why = pick(profile, inventory, chosen.devices, chosen.n_workers)
    threads = chosen.threads_per_worker or 1
    left = budget_after(inventory, promised)
    limit, memory_why = _memory(len(picked), chosen.memory, left, most_workers(inventory))
    protocol = _protocol(profile, chosen.encrypt)
    cards, cards_why = _cards(picked, inventory, over, infiniband) if protocol == "ucx" else ((), ())
    spec = ClusterSpec(
        profile="gpu" if profile == "gpu" else "gpus" if profile == "gpus" else "ucx",
        n_workers=len(picked),
        threads_per_worker=threads,
        memory_limit=limit,
        protocol=protocol,
        python=None if chosen.python is None else _absolute(chosen.python),
        idle_timeout=_idle_timeout(chosen.idle_timeout),
        devices=tuple(device.uuid for device in picked),
        device_memory_limit=chosen.device_memory_limit,
        rmm_pool_size=chosen.rmm_pool_size,
        network_cards=cards,
        ucx_tls=over.tls,
        interface=over.interface,
        cupy=find_spec("cupy") is not None,
        why=(
            picked_why,
            _gpu_threads(threads),
            memory_why,
            *_available(inventory, limit * len(picked)),
            _device_memory(chosen),
            *cards_why,
            *_without_cupy(),
            *((_told(over), _UCX_OPEN) if protocol == "ucx" else ()),
        ),
    )
    check_devices(spec, inventory)
    return spec


def _gpu_threads(threads: int) -> str:
    if threads == 1:
        return "One thread for each GPU, which feeds it: more would compete for its memory."
    return f"{threads} threads for each GPU, as chosen: they share its memory, so blocks must be smaller."


def _device_memory(chosen: GpuChoices) -> str:
    limit = chosen.device_memory_limit
    what = "0.8 of the card" if limit is None else f"{formats.size(limit)}, as chosen"
    pool = ""
    if chosen.rmm_pool_size is not None:
        pool = f" RMM takes a pool of {formats.size(chosen.rmm_pool_size)} on each GPU at the start, as chosen."
    return f"Blocks move from a GPU to the host's memory beyond {what}.{pool}"


class _Over(NamedTuple):
    """What UCX is told to speak over."""

    tls: str | None = None
    interface: str | None = None


def _over(profile: str, chosen: AllChoices) -> _Over:
    """What was chosen for UCX, or what the environment tells it."""
    if profile == "ucx":
        environ = os.environ
        return _Over(chosen.ucx_tls or environ.get("UCX_TLS"), chosen.interface or environ.get("UCX_NET_DEVICES"))
    for name in ("ucx_tls", "interface"):
        if getattr(chosen, name) is not None:
            raise BadInputError(
                f"{name} is {getattr(chosen, name)!r:.80}, and the {profile} profile speaks no UCX. Leave it out, or "
                "choose ucx."
            )
    return _Over()


def _told(over: _Over) -> str:
    transports = f"UCX_TLS={over.tls}" if over.tls else "no UCX_TLS, so that UCX chooses its transports"
    return (
        f"UCX is given {transports}, and {f'UCX_NET_DEVICES={over.interface}' if over.interface else 'no interface'}."
    )


def _cards(
    picked: Sequence[Device], inventory: Inventory, over: _Over, infiniband: Callable[[], bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Network card for each GPU, and which they are or why they are left out."""
    if not inventory.network:
        return (), ("No network card for each GPU: this machine has no InfiniBand or RoCE card.",)
    names = ", ".join(card.label for card in inventory.network)
    if over.interface:
        return (), (
            f"The network cards {names} are not shared out among the GPUs: all use {over.interface}, as chosen.",
        )
    if not infiniband():
        why = "ucx_info -d lists neither rc nor ud, and the wheels from PyPI have no InfiniBand; conda-forge's UCX has"
        return (), (f"The network cards {names} are left out: UCX has no transport for them here ({why}).",)
    cards = near_cards(picked, inventory)
    if not cards:
        return (), (f"The network cards {names} are left out: not every GPU has one near it that is up.",)
    pairs = ", ".join(f"{device.label} over {card}" for device, card in zip(picked, cards, strict=True))
    return cards, (f"UCX uses the network card nearest to each GPU: {pairs}.",)


def _without_cupy() -> tuple[str, ...]:
    if find_spec("cupy") is not None:
        return ()
    return ("Warning: CuPy isn't installed, so arrays are NumPy's and nothing is computed on the GPUs.",)


def _check_no_gpu_choices(profile: str, chosen: AllChoices) -> None:
    for name in ("devices", "device_memory_limit", "rmm_pool_size"):
        if getattr(chosen, name) is not None:
            raise BadInputError(
                f"{name} is {getattr(chosen, name)!r:.80}, and the {profile} profile has no GPUs here. Leave it out, "
                "or choose gpu or gpus."
            )


def _check_profile(name: str, inventory: Inventory, version: Callable[[str], str | None]) -> None:
    offered = {profile.name: profile for profile in profiles(inventory, version=version)}
    if name not in PROFILE_NAMES:
        raise BadInputError(f"Unknown profile {name!r:.80}. Choose one of: {', '.join(PROFILE_NAMES)}.")
    if not offered[name].available:
        raise MissingError(f"The {name} profile can't be had here. {offered[name].reason}")


def _protocol(profile: str, encrypt: bool | None) -> Protocol:
    if profile == "ucx":
        if encrypt:
            raise BadInputError(
                "encrypt is True, and there is no TLS over UCX. Leave it out, or choose another profile than ucx."
            )
        return "ucx"
    encrypted = config.switch("encrypt") if encrypt is None else encrypt
    return "tls" if encrypted else "tcp"


def _split(cpu: Cpu, n_workers: int | None, threads: int | None) -> _Split:
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
    """Split that array work likes: as few processes as keep each at eight threads or fewer.

    Threads of one process share its blocks, processes copy them. On two cores that was measured
    (tests/benchmarks/bench_split.py); that more than eight threads hinder one another is a rule, after the ten
    processes of eight threads that "GPU Dask Arrays, first steps" (M. Rocklin, 2019) suggests for eighty.
    """
    if usable == 1:
        return _Split(1, 1, "1 process of 1 thread: there is one usable core.")
    if usable <= _MOST_THREADS:
        why = f"{_shape(1, usable)}: threads share their blocks of an array, processes copy them. {MEASURED}"
        return _Split(1, usable, f"{why}." if usable == 2 else f"{why}; for more cores it is a rule, not measured.")
    n_workers = min(_sensible(usable), key=lambda n: (usable % n, n))
    threads = usable // n_workers
    why = (
        f"{_shape(n_workers, threads)}: threads share their blocks of an array and processes copy them, but many "
        f"threads of one process get in one another's way. {_FEWEST_THREADS} to {_MOST_THREADS} threads a process is "
        "a rule (a well-known post suggests ten processes of eight on eighty cores) and was not measured here."
    )
    return _Split(n_workers, threads, why)


def _sensible(usable: int) -> range:
    """Numbers of processes that leave each four to eight threads."""
    return range(math.ceil(usable / _MOST_THREADS), usable // _FEWEST_THREADS + 1)


def _cores(cpu: Cpu) -> str:
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


def _memory(n_workers: int, chosen: int | None, left: Budget, most: int) -> tuple[int, str]:
    """Bytes for each worker, and the sentence that says why."""
    if chosen is None and left.left < MINIMUM_PER_WORKER:
        raise ConflictError(
            f"{formats.size(left.left)} of memory is left for another cluster ({left.describe()}). Stop a cluster, or "
            "give the memory yourself and force it."
        )
    total = _by_default(n_workers, left.left) if chosen is None else chosen
    each = total // n_workers
    if each < MINIMUM_PER_WORKER:
        raise BadInputError(_too_little(n_workers, chosen, total, most))
    both = f"{formats.size(total)} for all workers together, {formats.size(each)} for each"
    if n_workers == 1:
        both = f"{formats.size(total)} for the one worker"
    if chosen is None:
        what = "all" if total == left.left else "two thirds of what"
        more = "" if total == left.left else ", so that it can grow or another cluster start"
        return each, f"{both}: {what} the budget leaves ({left.describe()}){more}."
    verdict = f"the budget leaves {formats.size(left.left)}"
    if total > left.left:
        verdict = f"Warning: {verdict} ({left.describe()}), so this has to be forced"
    return each, f"{both}, as chosen. {verdict[0].upper()}{verdict[1:]}."


def _by_default(n_workers: int, left: int) -> int:
    """Bytes for all workers when nobody chooses: a share of what is left, all of it where it is little."""
    share = int(_DEFAULT_SHARE * left)
    return share if share >= n_workers * _COMFORTABLE else left


def _too_little(n_workers: int, chosen: int | None, total: int, most: int) -> str:
    least, each = formats.size(MINIMUM_PER_WORKER), formats.size(total // n_workers)
    given = f"n_workers is {n_workers}" if chosen is None else f"memory is {formats.size(chosen)}"
    remedies = [] if chosen is None else [f"at least {formats.size(n_workers * MINIMUM_PER_WORKER)} of memory"]
    fewer = min(total // MINIMUM_PER_WORKER, most)
    if 0 < fewer < n_workers:
        remedies.append(f"at most {formats.count(fewer, 'worker')}")
    return f"{given}, which is {each} for each worker, and a worker needs {least}. Give {', or '.join(remedies)}."


def _available(inventory: Inventory, memory: int) -> tuple[str, ...]:
    available = inventory.memory.available
    if available is None or available >= memory:
        return ()
    return (f"Warning: only {formats.size(available)} is free at this moment; running programs hold the rest.",)


def _idle_timeout(chosen: float | str | None) -> float | None:
    if chosen is None:
        return config.seconds("idle-timeout")
    return None if isinstance(chosen, str) else chosen


def _absolute(python: str) -> str:
    # Symbolic links stay: a virtual environment's python is one, and resolving it would lead out of the environment.
    expanded = os.path.expanduser(python)  # noqa: PTH111
    return os.path.abspath(expanded) if os.sep in expanded else expanded  # noqa: PTH100


def _shape(n_workers: int, threads: int) -> str:
    return f"{formats.count(n_workers, 'process')} of {formats.count(threads, 'thread')}"
