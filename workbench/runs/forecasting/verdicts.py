"""Comparison of a workload's memory with the workers', by Dask's own thresholds.

A worker spills to disk from 70 % of its limit on and is ended at 95 %. Memory in use by tasks can't be spilled. On
GPUs arrays must fit the card's memory, and from `device_memory_limit` on Dask-CUDA moves their blocks to the host's.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import dask.config

from workbench import formats
from workbench.clusters.budget import held
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import MOVES_TO_HOST, ClusterSpec
from workbench.errors import BadInputError
from workbench.hardware import memory
from workbench.runs.forecasting import devices
from workbench.sent_code import missing_here
from workbench.workloads.values import Needs

if TYPE_CHECKING:
    from workbench.workloads.registry import Template

VerdictName = Literal["fits", "will spill", "won't fit", "can't run"]

_SPILLS, _ENDS = 0.7, 0.95  # distributed.worker.memory.spill and .terminate
_PROCESS = 120 * 2**20
"""Bytes of a worker's process before and between tasks: 85 to 200 MiB were measured, most of it shared libraries."""
_PROCESS_SHARE = 0.25
"""Share of a small limit that an almost idle worker uses."""
_MARGIN = 8 * 2**20
"""Bytes of messages, graphs and memory that the allocator doesn't return."""
_SMALLEST_CHUNK = 2**20

_CONTEXT = 512 * 2**20
"""Bytes of a card for a CUDA context and the libraries' kernels before there is any data."""


class Verdict(NamedTuple):
    """Verdict on the fit of a workload, as one word and a message."""

    name: VerdictName
    sentence: str
    memory_per_worker: int
    """Bytes in the fullest worker, its process included."""
    spilled: int = 0
    """Bytes that all workers together spill to disk."""
    device_memory: int | None = None
    """Bytes on the fullest GPU, if the arrays lie on GPUs."""
    chunks: str | None = None
    """Size of blocks with which it fits; None if it fits already, or smaller ones don't help."""


def verdict(
    template: Template,
    parameters: Mapping[str, Any],
    needs: Needs,
    spec: ClusterSpec,
    cluster: ClusterRecord | ClusterSpec | None = None,
) -> Verdict:
    """Judge if a workload fits the workers' memory, and suggest a size of blocks.

    For a running `cluster`, memory that its workers already hold counts as available.
    """
    judged = judge(needs, spec)
    if judged.name != "won't fit" and (message := _other_programs(judged, spec, cluster)):
        return judged._replace(name="won't fit", sentence=message)
    if judged.name == "fits":
        return judged
    chunks = _chunks_that_fit(template, parameters, needs, spec)
    remedies = [f"Blocks of {chunks} would fit: chunks={chunks}."] if chunks else []
    if not chunks and _may_recompute(template, parameters):
        remedies = ["With compute=true it is made or read again instead of held."]
    if not remedies:
        more = "more or larger GPUs" if judged.device_memory else "a cluster with more memory for each worker"
        remedies = [f"Use a smaller size, or {more}."]
    return judged._replace(sentence=" ".join((judged.sentence, *remedies)), chunks=chunks)


def missing_on(spec: ClusterSpec) -> Mapping[str, Mapping[str, int]] | None:
    """Return the modules that workers can't import; for a planned cluster, those missing in its Python.

    None if unknown: for another Python, or other machines.
    """
    if spec.missing is not None or spec.elsewhere or spec.python not in (None, sys.executable):
        return spec.missing
    return missing_here(spec.n_workers)


def size_of(spec: ClusterSpec | None) -> dict[str, Any]:
    """Return the facts about a cluster that a template's `validate` takes."""
    if spec is None or not spec.is_known:
        return {}
    return {
        "memory": spec.memory,
        "threads": spec.threads,
        "threads_per_worker": spec.threads_per_worker,
        "missing": None if (missing := missing_on(spec)) is None else frozenset(missing),
        "on_gpu": bool(spec.devices),
        "device_memory": None if (card := _card(spec)) is None else spec.n_workers * _room(spec, card),
    }


def judge(needs: Needs, spec: ClusterSpec) -> Verdict:
    """Judge if it fits a worker's memory, and that of GPUs if its arrays lie there."""
    card = _card(spec) if needs.on_device else None
    if card is not None:
        return _judge_devices(needs, spec, card)
    process, several = _process(spec), needs.received if spec.n_workers > 1 else 0
    return _judge_workers(needs.held_per_worker + several + process, needs.peak(spec.n_workers) + process, spec)


def _judge_workers(in_hand: int, peak: int, spec: ClusterSpec) -> Verdict:
    """Judge so many bytes in use in one worker, and so many at most with what can be spilled."""
    limit, n_workers = spec.worker_memory, spec.n_workers
    if in_hand > _ENDS * limit:
        return Verdict(
            "won't fit",
            f"Won't fit: needs {formats.size(in_hand)} in one worker at once, and a worker has {formats.size(limit)} "
            "of memory. Dask would end and restart it until it gives up.",
            peak,
        )
    if peak <= _SPILLS * limit:
        return Verdict(
            "fits", f"Fits: {formats.size(peak)} in a worker at most, which has {formats.size(limit)}.", peak
        )
    together = f"{formats.size(spec.memory)} together" if n_workers > 1 else formats.size(limit)
    spilled = int(peak - _SPILLS * limit) * n_workers
    # The disks of other machines aren't known.
    if not spec.elsewhere and spilled > _free_disk():
        return Verdict(
            "won't fit",
            f"Won't fit: needs {formats.size(peak * n_workers)} at once, the workers have {together}, and the disk "
            f"has no room for the other {formats.size(spilled)}.",
            peak,
            spilled,
        )
    return Verdict(
        "will spill",
        f"Will spill: needs {formats.size(peak)} in a worker, and from {formats.size(_SPILLS * limit)} on its blocks "
        f"go to disk; the workers have {together}. About {formats.size(spilled)} are written and read back, which "
        "takes long.",
        peak,
        spilled,
    )


def _other_programs(judged: Verdict, spec: ClusterSpec, cluster: ClusterRecord | ClusterSpec | None) -> str | None:
    """Report that other programs use the memory meant for the workers; None if this machine still has it."""
    free = None if spec.elsewhere else memory().available
    # A worker spills to disk what exceeds that share of its limit.
    needed = spec.n_workers * min(judged.memory_per_worker, int(_SPILLS * spec.worker_memory))
    if free is None or needed <= free:
        return None
    free += held(cluster) if isinstance(cluster, ClusterRecord) else 0
    if needed <= free:
        return None
    return (
        f"Won't fit: needs {formats.size(needed)} in all workers together, and other programs leave them "
        f"{formats.size(free)} of this machine's memory. The system would end a process. End other programs, or use a "
        "smaller size."
    )


def _judge_devices(needs: Needs, spec: ClusterSpec, card: int) -> Verdict:
    """Judge if it fits GPUs of `card` bytes, and if their spilled blocks fit the workers."""
    limit = _room(spec, card)
    has = formats.size(card)
    several = needs.received if spec.n_workers > 1 else 0
    in_hand, peak = needs.held_per_worker + several + _CONTEXT, needs.peak(spec.n_workers) + _CONTEXT
    over, read = max(0, peak - limit), needs.on_host + _process(spec)
    on_workers = _judge_workers(read, read + over, spec)._replace(device_memory=peak)
    if in_hand > card:
        return on_workers._replace(
            name="won't fit",
            sentence=f"Won't fit: needs {formats.size(in_hand)} on one GPU at once, and a GPU has {has} of memory. "
            "CuPy would find none left.",
        )
    if on_workers.name != "fits":
        why = f" {formats.size(over)} of it is what a GPU of {has} has no room for." if over else ""
        return on_workers._replace(sentence=f"{on_workers.sentence}{why}")
    if not over:
        return on_workers._replace(
            sentence=f"Fits: {formats.size(peak)} on a GPU at most, which has {has}, and "
            f"{formats.size(on_workers.memory_per_worker)} in its worker, which has "
            f"{formats.size(spec.worker_memory)}.",
        )
    return on_workers._replace(
        name="will spill",
        sentence=f"Will spill: needs {formats.size(peak)} on a GPU of {has}, and from {formats.size(limit)} on its "
        f"blocks move to the memory of its worker, which has {formats.size(spec.worker_memory)}. About "
        f"{formats.size(over * spec.n_workers)} go there and come back, which takes long.",
    )


def _card(spec: ClusterSpec) -> int | None:
    """Return bytes of a worker's GPU; for another machine, the least that the spec says."""
    if not spec.devices:
        return None
    configured = max(spec.device_memory_limit or 0, spec.rmm_pool_size or 0)
    return devices.memory(spec) or configured or None


def _room(spec: ClusterSpec, card: int) -> int:
    """Return the bytes of a GPU that blocks may fill before they move to the memory of its worker."""
    return min(spec.device_memory_limit or int(MOVES_TO_HOST * card), card)


def _process(spec: ClusterSpec) -> int:
    """Return the bytes that a worker's process takes by itself."""
    return min(_PROCESS, int(spec.worker_memory * _PROCESS_SHARE)) + min(_MARGIN, spec.worker_memory // 32)


def _free_disk() -> int:
    try:
        return shutil.disk_usage(dask.config.get("temporary-directory", None) or tempfile.gettempdir()).free
    except OSError:
        return 2**63


def _chunks_that_fit(template: Template, parameters: Mapping[str, Any], needs: Needs, spec: ClusterSpec) -> str | None:
    """Return the largest size of blocks, halved from the current one, with the best verdict that blocks can give."""
    if "chunks" not in template.schema()["properties"]:
        return None
    # The memory of a worker, or of its GPU, is the most that a block could fill.
    most = max(spec.worker_memory, _card(spec) or 0)
    size = 2 ** int(math.log2(max(_SMALLEST_CHUNK, min(needs.input_bytes, most))))
    while size >= _SMALLEST_CHUNK:
        chunks = f"{size // 2**20}MiB"
        size //= 2
        try:
            checked = template.validate({**parameters, "chunks": chunks}, **size_of(spec))
        except BadInputError:
            continue
        fewer = template.needs(checked)
        if fewer.known and judge(fewer, spec).name == "fits":
            return chunks
    return None


def _may_recompute(template: Template, parameters: Mapping[str, Any]) -> bool:
    offered = template.schema()["properties"]
    return "compute" in offered and str(parameters.get("compute", "false")).lower() not in ("true", "yes", "on", "1")
