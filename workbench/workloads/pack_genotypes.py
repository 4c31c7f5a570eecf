"""Packing genotypes into two bits each: the workload, what it needs and how it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from workbench import formats
from workbench.storage import places
from workbench.workloads import fields, studies
from workbench.workloads.fields import Resolved, Words
from workbench.workloads.opening import SERVED, options_of
from workbench.workloads.registry import Resolution
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes import Genotypes

Overwrite = Annotated[bool, Words("Replace what is there, rather than going on with it.")]

_STORES = 30_000_000
"""Bytes of what reads and writes stores, which a worker loads once."""


def pack_genotypes(
    path: fields.GenotypePath,
    to: fields.NewPath,
    codec: fields.Codec = "2-bit",
    array: fields.ArrayName | None = None,
    orientation: fields.Orientation | None = None,
    missing: fields.MissingCode | None = None,
    labels: fields.Labels | None = None,
    overwrite: Overwrite = False,
    bytes_before: Annotated[int, Resolved()] = 0,
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
    to_options: Annotated[dict[str, Any] | None, Resolved()] = None,
) -> tuple[Any, int, int]:
    """Write genotypes as a Zarr store of two bits each, or compressed by Blosc.

    Each block is read, packed and written by one task. Stopped or killed, it goes on where it was when it is run again.
    Two bits are what is read quickest; Blosc (lz4 after a bit shuffle) keeps a byte for each genotype, which other
    programs can read.
    """
    from workbench.genotypes import pack_to_zarr
    from workbench.storage.places import full

    packed = pack_to_zarr(
        path,
        to,
        codec=codec,
        overwrite=overwrite,
        array=array,
        orientation=orientation,
        missing=missing,
        labels=labels,
        storage_options=options,
        to_storage_options=to_options,
    )
    return packed, bytes_before, full(to, to_options).size()


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    """What is in the file, and an absolute path to write to."""
    where, (shape, n_bytes, remarks) = studies.looked_at("pack_genotypes", values, at_least=0)
    to = places.full(values["to"]).path
    to_options = options_of("pack_genotypes", to, values, "to_")
    if places.overlap(to, where["path"]):
        raise BadParameterError(f"to of pack_genotypes is {to}, what is read from. Give another path.", "to")
    return values | where | {"to": to, "to_options": to_options, "shape": shape, "bytes_before": n_bytes}, remarks


def _needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass, in which a block is read, packed and written."""
    from workbench.genotypes.rows import block_rows

    n_variants, n_samples = resolved["shape"]
    packed = n_variants * -(-n_samples // 4)
    rows = block_rows(n_variants, n_samples)
    # The check has a block of the source and one of the store in a byte for each genotype, and where they differ.
    held = 13 * rows * -(-n_samples // 4) * threads_per_worker + _STORES
    n_blocks = -(-n_variants // rows)
    return Needs.of(
        input_bytes=packed,
        held=held,
        n_tasks=n_blocks,
        n_blocks=n_blocks,
        work={"read": 4.0 * packed, "write": 4.0 * packed},
        on_device=False,
        sentence=f"Writes about {formats.size(packed)} of packed genotypes block by block: "
        f"{formats.size(held)} in a worker at a time is enough.",
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Where the store is, and how large."""
    packed: Genotypes = results["packed"]
    assert packed.source is not None
    before, after = results["bytes_before"], results["bytes_after"]
    return {
        "store": packed.source,
        "variants": packed.n_variants,
        "samples": packed.n_samples,
        "bytes_before": before,
        "bytes_after": after,
        "ratio": before / after,
    }


def _check(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Sampled blocks of the store, read again, against the source."""
    from workbench.genotypes import open_genotypes
    from workbench.workloads.checks import computed

    told = {name: resolved[name] for name in ("array", "orientation", "missing")}
    source = open_genotypes(resolved["path"], **told, storage_options=resolved["options"])
    packed = open_genotypes(resolved["to"], storage_options=resolved["to_options"])
    if source.shape != packed.shape:
        return Check(
            passed=False, what=f"The store has {packed.shape} variants and samples, the source {source.shape}."
        )
    if list(source.samples) != list(packed.samples):
        return Check(passed=False, what="The names of the samples in the store are not those of the source.")
    ends = np.cumsum((0, *packed.packed.chunks[0]))
    chosen = sorted({round(each) for each in np.linspace(0, len(ends) - 2, 4)}) if len(ends) > 1 else []
    rows = [slice(int(ends[i]), int(ends[i + 1])) for i in chosen]
    differences = [(source[part].counts() != packed[part].counts()).sum() for part in rows]
    wrong = sum(int(each) for each in computed(client, *differences))
    of = f"{len(rows)} of {len(ends) - 1} blocks"
    if wrong:
        return Check(passed=False, what=f"{wrong} genotypes in {of} of the store differ from the source.")
    return Check(passed=True, what=f"{of} of the store, read again, hold the genotypes of the source.")


TEMPLATE = studies.template(
    pack_genotypes,
    "packed",
    "bytes_before",
    "bytes_after",
    title="Pack genotypes",
    resolver=_resolved,
    estimate=_needs,
    checker=_check,
    summary_of=_summary,
    extra={**SERVED, "to_endpoint_url": (fields.Endpoint | None, None)},
)
