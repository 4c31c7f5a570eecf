"""Quality of genotypes, site by site and sample by sample: the workload, what it needs and how it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from workbench import formats
from workbench.workloads import fields, studies
from workbench.workloads.fields import Resolved, Words
from workbench.workloads.registry import Resolution
from workbench.workloads.values import Check, Labelled, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes.qc import Quality

MidP = Annotated[bool, Words("Count half of what is as likely as what was found, as PLINK's midp.")]

_BLOCK_BYTES = 8 * 2**20


def genotype_qc(
    path: fields.GenotypePath,
    array: fields.ArrayName | None = None,
    orientation: fields.Orientation | None = None,
    missing: fields.MissingCode | None = None,
    keep_samples: studies.SamplesKept | None = None,
    remove: studies.SamplesRemoved | None = None,
    leave_out: studies.RegionsOut | None = None,
    autosomes_only: studies.Autosomes = False,
    mid_p: MidP = False,
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
) -> Any:
    """Missing values, allele counts, equilibrium and heterozygosity of genotypes, by site and by sample.

    One pass over blocks of two bits each. For each site: how many samples have 0, 1 and 2 copies or are unknown, the
    frequency of the counted allele, and p of the exact test of Hardy-Weinberg equilibrium (Wigginton et al., 2005). For
    each sample: how many sites are unknown and heterozygous. Nothing is left out: the answer counts the variants that
    the usual thresholds would leave out.
    """
    from workbench.genotypes import open_genotypes, qc

    genotypes = open_genotypes(
        path,
        array=array,
        orientation=orientation,
        missing=missing,
        keep_samples=keep_samples,
        remove=remove,
        storage_options=options,
    )
    return qc(genotypes, leave_out=leave_out, autosomes_only=autosomes_only, mid_p=mid_p)


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    where, (shape, _, remarks) = studies.looked_at("genotype_qc", values)
    return values | where | {"shape": shape}, remarks


def _needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass in which blocks are read, and numbers of each site and sample come back."""
    n_variants, n_samples = resolved["shape"]
    packed = n_variants * -(-n_samples // 4)
    n_blocks = max(16, -(-packed // _BLOCK_BYTES))
    # The block in the file's codes and in ours, and two planes of the bits that are counted.
    held = (4 * min(_BLOCK_BYTES, packed) + 64 * n_samples) * threads_per_worker
    answer = 8 * (7 * n_variants + 6 * n_samples)
    return Needs.of(
        input_bytes=packed,
        held=held,
        n_tasks=3 * n_blocks,
        n_blocks=n_blocks,
        work={"read": 6.0 * packed},
        on_device=False,
        sentence=f"Goes through {formats.size(packed)} of packed genotypes once: {formats.size(held)} in one worker "
        f"at a time, and {formats.size(answer)} come back.",
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Counts at the usual thresholds, and the samples that stand out."""
    found: Quality = results["quality"]
    het, worst = found.sample_het[~np.isnan(found.sample_het)], int(found.sample_missing.argmax())
    apart = np.abs(het - het.mean()) > 3 * het.std() if het.size else het
    return {
        "variants": len(found.counts),
        "samples": len(found.samples),
        "unknown_share": float(found.counts[:, 3].sum() / max(1, found.counts.sum())),
        "variants_that_would_go": found.would_go(),
        "samples_heterozygosity_3_sd_apart": int(apart.sum()),
        "sample_most_unknown": f"{found.samples[worst]} ({100 * found.sample_missing[worst]:.3g} %)",
    }


def _arrays(results: Mapping[str, Any]) -> dict[str, Labelled]:
    found: Quality = results["quality"]
    known = {name: getattr(found.variants, name) for name in ("id", "contig", "position")}
    if found.variants.alleles is not None:
        known["other_allele"], known["counted_allele"] = found.variants.alleles.T
    variants = {f"variant_{name}": ("variant", column) for name, column in known.items() if column is not None}
    samples = {"sample": found.samples}
    copies = {"genotype": np.array(["0", "1", "2", "unknown"])}
    by_variant = {"missing": found.missing, "frequency": found.frequency, "hwe_p": found.hwe}
    by_sample = {"sample_missing": found.sample_missing, "sample_heterozygosity": found.sample_het}
    return {
        "counts": Labelled(found.counts, ("variant", "genotype"), variants | copies),
        "sample_counts": Labelled(found.by_sample, ("sample", "genotype"), samples | copies),
        **{name: Labelled(data, ("variant",), variants) for name, data in by_variant.items()},
        **{name: Labelled(data, ("sample",), samples) for name, data in by_sample.items()},
    }


def _check(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """The counts of some variants, unpacked and counted otherwise; and both tables' sums."""
    from workbench.workloads.checks import computed

    found: Quality = results["quality"]
    if (found.counts.sum(axis=0) != found.by_sample.sum(axis=0)).any():
        return Check(passed=False, what="Counts by site and by sample come to different sums.")
    genotypes = studies.opened(resolved)
    starts = np.unique(np.linspace(0, max(0, genotypes.n_variants - 4), 16).astype(int))
    parts = [slice(start, start + 4) for start in starts]
    counts = computed(client, *(genotypes[part].counts(3) for part in parts))
    wrong = sum(
        int((found.counts[part, code] != (np.asarray(each) == code).sum(axis=1)).sum())
        for part, each in zip(parts, counts, strict=True)
        for code in range(4)
    )
    said = f"of {len(parts)} × 4 variants all over the file, unpacked and counted one by one,"
    if wrong:
        return Check(passed=False, what=f"{wrong} counts {said} differ.")
    return Check(passed=True, what=f"The counts {said} are the same, and those by site and by sample add up alike.")


TEMPLATE = studies.template(
    genotype_qc,
    "quality",
    title="Quality of genotypes",
    resolver=_resolved,
    estimate=_needs,
    checker=_check,
    summary_of=_summary,
    arrays_of=_arrays,
)
