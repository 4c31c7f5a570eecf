"""What is known of protocol_sweep beside its code: its parameters, what it needs, whether its answers agree."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.utils import format_bytes

from workbench.workloads import checks
from workbench.workloads.fields import Chunks
from workbench.workloads.forms import bad, from_text
from workbench.workloads.registry import Resolution
from workbench.workloads.sizes import Wish, chunks_of, number_of_blocks, shape_of
from workbench.workloads.values import Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

PROTOCOLS = ("tcp", "tls", "ucx")

_NAME = "protocol_sweep"
_WITHOUT_CLUSTER = 2  # workers


def resolved_sweep(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    """Shape, blocks, protocols and workers."""
    dtype = np.dtype(values["dtype"])
    wish = Wish(_NAME, "square", dtype, dtype)
    if values["shape"] is not None and values["shape"][0] != values["shape"][1]:
        raise bad(_NAME, "shape", list(values["shape"]), "as many rows as columns, such as 10000, 10000")
    shape = shape_of(wish, values, given, around)
    blocks = {_block(wish, shape, text, around) for text in values["chunks"].split(",")}
    protocols = _protocols(values["protocols"])
    n_workers = _WITHOUT_CLUSTER if around.threads is None else around.threads // around.threads_per_worker
    resolved = {
        "shape": shape,
        "n_workers": n_workers,
        "threads_per_worker": around.threads_per_worker,
        "chunks": [list(block) for block in sorted(blocks)],
        "protocols": protocols,
    }
    rest = {name: value for name, value in values.items() if name not in ("size", *resolved)}
    return resolved | rest, ("Measured on clusters of its own, one for each protocol, which are gone afterwards.",)


def _block(wish: Wish, shape: tuple[int, int], text: str, around: Surroundings) -> tuple[int, int]:
    block, _ = chunks_of(wish, shape, from_text(text.strip(), Chunks), around)
    return block


def _protocols(text: str) -> list[str]:
    names = {name.strip().lower() for name in text.split(",")}
    if not names <= set(PROTOCOLS):
        raise bad(_NAME, "protocols", text, "some of tcp, tls and ucx with commas between them")
    return [name for name in PROTOCOLS if name in names]


def sweep_needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """The array in memory, and the blocks of it that were fetched."""
    n_bytes = math.prod(resolved["shape"]) * np.dtype(resolved["dtype"]).itemsize
    blocks = [tuple(block) for block in resolved["chunks"]]
    largest = max(math.prod(block) for block in blocks) * np.dtype(resolved["dtype"]).itemsize
    turns = len(resolved["protocols"]) * resolved["repetitions"]
    held = 3 * largest * threads_per_worker
    # The array, and of each block that a worker has fetched a replica.
    total = 2 * n_bytes + held
    return Needs(
        input_bytes=n_bytes,
        output_bytes=8,
        bytes_processed=n_bytes * turns * len(blocks),
        passes=turns * len(blocks),
        held_per_worker=held,
        held_total=total,
        n_tasks=sum(4 * number_of_blocks(tuple(resolved["shape"]), block) for block in blocks) * turns,
        sentence=f"Makes {format_bytes(n_bytes)} {turns * len(blocks)} times over, one after the other, on clusters of "
        f"{resolved['n_workers']} workers: {format_bytes(total)} on all of them together at a time. The cluster that "
        "is named lends its size and stays idle.",
    )


def answers_agree(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Each array's sum over one protocol against that over the others, and against what is expected of chance."""
    rows = results["rows"]
    wrong = [row for row in rows if not checks.transpose_sum_is_expected(resolved, row, client).passed]
    if wrong:
        return Check(passed=False, what=checks.transpose_sum_is_expected(resolved, wrong[0], client).what)
    answers: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        answers[row["repetition"], *row["chunks"]].append(row["value"])
    off = max((max(each) - min(each)) / abs(max(each)) for each in answers.values())
    # The order in which a sum is added up follows from the blocks; on GPUs it may vary within a block.
    bound = 64 * float(np.finfo(resolved["dtype"]).eps)
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    if len(protocols) == 1:
        return Check(
            passed=True, what=f"All {len(rows)} sums are as expected. There is one protocol: nothing to agree."
        )
    names = f"{', '.join(protocols[:-1])} and {protocols[-1]}"
    how = "are the same" if off == 0 else f"differ by {off:.1e} at most ({bound:.1e} allowed)"
    return Check(
        passed=bool(off <= bound), what=f"The sums of {len(answers)} arrays over {names} {how}, and are as expected."
    )
