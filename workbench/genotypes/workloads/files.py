"""Workloads on files of genotypes: their quality, relatives among samples, and packing them into two bits each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import xarray as xr
from pydantic import Field

from workbench import formats
from workbench.genotypes.workloads import studies
from workbench.storage import places
from workbench.storage.servers import options_of
from workbench.storage.variables import dataset
from workbench.workloads import fields
from workbench.workloads.checks import computed
from workbench.workloads.declaring import workload
from workbench.workloads.fields import Words
from workbench.workloads.registry import Resolution
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes import Genotypes
    from workbench.genotypes.qc import Quality
    from workbench.genotypes.relatives import Relatedness

MidP = Annotated[bool, Words("Use the mid-p adjustment, like PLINK's midp.")]

_BLOCK_BYTES = 8 * 2**20


def genotype_qc(
    path: studies.GenotypePath,
    array: fields.ArrayName | None = None,
    orientation: studies.Orientation | None = None,
    missing: studies.MissingCode | None = None,
    keep_samples: studies.SamplesKept | None = None,
    remove: studies.SamplesRemoved | None = None,
    leave_out: studies.RegionsOut | None = None,
    autosomes_only: studies.Autosomes = False,
    mid_p: MidP = False,
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> Any:
    """Check genotypes: missing values, allele counts, Hardy-Weinberg equilibrium and heterozygosity.

    One pass over blocks of two bits per genotype. For each site: the number of samples with 0, 1 and 2 copies or
    missing, the frequency of the counted allele, and the p-value of the exact test of Hardy-Weinberg equilibrium
    (Wigginton et al., 2005), which sites on X, Y and mitochondria lack. For each sample: the number of missing and
    heterozygous sites. Nothing is excluded; the answer counts the variants that the usual thresholds would exclude.
    """
    from workbench.genotypes import qc

    genotypes = studies.opened("genotype_qc", locals())
    return qc(genotypes, leave_out=leave_out, autosomes_only=autosomes_only, mid_p=mid_p)


def _quality_resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    where, (shape, remarks, _) = studies.looked_at("genotype_qc", values)
    return values | where | {"shape": shape}, remarks


def _quality_needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate one pass in which blocks are read, and numbers of each site and sample come back."""
    n_variants, n_samples = resolved["shape"]
    packed = n_variants * -(-n_samples // 4)
    # The block in the file's codes and in ours, and two planes of bits.
    held = (4 * min(_BLOCK_BYTES, packed) + 64 * n_samples) * threads_per_worker
    answer = 8 * (7 * n_variants + 6 * n_samples)
    return Needs.of(
        input_bytes=packed,
        held=held,
        on_device=False,
        sentence=f"Goes through {formats.size(packed)} of packed genotypes once: {formats.size(held)} in one worker "
        f"at a time, and {formats.size(answer)} come back.",
    )


def _quality_summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts at the usual thresholds, and the samples that stand out."""
    found: Quality = results["quality"]
    het, worst = found.sample_het[~np.isnan(found.sample_het)], int(found.sample_missing.argmax())
    outliers = np.abs(het - het.mean()) > 3 * het.std() if het.size else het
    return {
        "variants": len(found.counts),
        "samples": len(found.samples),
        "unknown_share": float(found.counts[:, 3].sum() / max(1, found.counts.sum())),
        "variants_that_would_go": found.would_go(),
        "samples_heterozygosity_3_sd_apart": int(outliers.sum()),
        "sample_most_unknown": f"{found.samples[worst]} ({100 * found.sample_missing[worst]:.3g} %)",
    }


def _quality_arrays(results: Mapping[str, Any]) -> xr.Dataset:
    found: Quality = results["quality"]
    columns = {name: getattr(found.variants, name) for name in ("id", "contig", "position")}
    if found.variants.alleles is not None:
        columns["other_allele"], columns["counted_allele"] = found.variants.alleles.T
    variants = {f"variant_{name}": ("variant", column) for name, column in columns.items() if column is not None}
    samples = {"sample": found.samples}
    copies = {"genotype": np.array(["0", "1", "2", "unknown"])}
    by_variant = {"missing": found.missing, "frequency": found.frequency, "hwe_p": found.hwe}
    by_sample = {"sample_missing": found.sample_missing, "sample_heterozygosity": found.sample_het}
    arrays = {
        "counts": (("variant", "genotype"), found.counts),
        "sample_counts": (("sample", "genotype"), found.by_sample),
        **{name: ("variant", data) for name, data in by_variant.items()},
        **{name: ("sample", data) for name, data in by_sample.items()},
    }
    return dataset(arrays, variants | samples | copies)


def _quality_check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Compare the counts of some variants with unpacked ones counted otherwise, and both tables' sums."""
    found: Quality = results["quality"]
    if (found.counts.sum(axis=0) != found.by_sample.sum(axis=0)).any():
        return Check(passed=False, what="Counts by site and by sample come to different sums.")
    genotypes = studies.opened_for_check("genotype_qc", resolved)
    starts = np.unique(np.linspace(0, max(0, genotypes.n_variants - 4), 16).astype(int))
    parts = [slice(start, start + 4) for start in starts]
    counts = computed(client, *(genotypes[part].counts(3) for part in parts))
    wrong = sum(
        int((found.counts[part, code] != (np.asarray(each) == code).sum(axis=1)).sum())
        for part, each in zip(parts, counts, strict=True)
        for code in range(4)
    )
    subject = f"of {len(parts)} × 4 variants all over the file, unpacked and counted one by one,"
    if wrong:
        return Check(passed=False, what=f"{wrong} counts {subject} differ.")
    return Check(passed=True, what=f"The counts {subject} are the same, and those by site and by sample add up alike.")


QUALITY = studies.template(
    workload(
        title="Genotype quality control",
        prepare=_quality_resolved,
        needs=_quality_needs,
        check=_quality_check,
        code=lambda **resolved: studies.code(
            "genotype_qc", resolved, "qc", names=("leave_out", "autosomes_only", "mid_p")
        ),
    )(genotype_qc),
    "quality",
    summary_of=_quality_summary,
    arrays_of=_quality_arrays,
)


# --- relatives --------------------------------------------------------------------------------------------------------

Kinship = Annotated[
    float,
    Field(ge=-1, le=0.5, allow_inf_nan=False),
    Words(
        "Smallest kinship of the listed pairs: 0.354 for twins, 0.177 for first degree, 0.0884 for second, "
        "0.0442 for third.",
        examples=(0.0884, 0.177),
    ),
]

_SHOWN = 20


def genotype_relatedness(
    path: studies.GenotypePath,
    cutoff: Kinship = 0.0884,
    array: fields.ArrayName | None = None,
    orientation: studies.Orientation | None = None,
    missing: studies.MissingCode | None = None,
    maf: studies.Rarest = 0.0,
    max_missing: studies.Unknown = 1.0,
    hwe: studies.Equilibrium = 0.0,
    keep_samples: studies.SamplesKept | None = None,
    remove: studies.SamplesRemoved | None = None,
    leave_out: studies.RegionsOut | None = None,
    autosomes_only: studies.Autosomes = False,
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> Any:
    """Find related samples by KING-robust kinship, and which samples to remove so that none are related.

    All pairs are compared on the bits of packed blocks, each over the variants that both samples have (Manichaikul et
    al., 2010). Variants on X, Y and mitochondria distort kinship and are left out, as in PLINK. The samples to remove
    are chosen one at a time, always the one with the most remaining relatives. Save their names and pass them as
    remove.
    """
    from workbench.genotypes import kinship

    genotypes = studies.opened("genotype_relatedness", locals())
    return kinship(
        genotypes,
        cutoff,
        maf=maf,
        max_missing=max_missing,
        hwe=hwe,
        leave_out=leave_out,
        autosomes_only=autosomes_only,
    )


def _relatives_resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    where, (shape, remarks, _) = studies.looked_at("genotype_relatedness", values)
    if shape[1] < 2:
        raise BadParameterError("path of genotype_relatedness: there is one sample. Give two or more.", "path")
    return values | where | {"shape": shape}, remarks


def _relatives_needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate bits of all genotypes by sample, and for each pair of tiles the counts of all pairs in them."""
    from workbench.genotypes.relatives import TILE

    n_variants, n_samples = resolved["shape"]
    packed = n_variants * -(-n_samples // 4)
    tile = min(TILE, n_samples)
    # Four counts of each pair and six derived numbers; and the bits of two tiles.
    held = (80 * tile**2 + 4 * tile * -(-n_variants // 4)) * threads_per_worker
    return Needs.of(
        input_bytes=packed,
        work=float(n_variants) * n_samples**2,
        held=held,
        kept=2 * packed,
        received=tile * -(-n_variants // 4),
        on_device=False,
        sentence=f"Compares {formats.count(n_samples * (n_samples - 1) // 2)} pairs in {formats.size(packed)} of bits "
        f"that stay in memory, by sample: {formats.size(held)} in one worker at a time.",
    )


def _relatives_summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Count the pairs of each degree and the samples to remove, and name the closest pair."""
    from workbench.genotypes.relatives import DEGREES

    found: Relatedness = results["related"]
    numbers = np.bincount(found.degree, minlength=5)
    names = np.asarray(found.samples)
    return {
        "variants": found.n_variants,
        "samples": len(found.samples),
        "pairs": len(found.pairs),
        "pairs_by_degree": {name: int(n) for name, n in zip((*DEGREES, "further"), numbers, strict=True) if n},
        "samples_to_remove": len(found.remove),
        "closest": [
            f"{names[i]} and {names[j]}: {phi:.4f}"
            for (i, j), phi in zip(found.pairs[:_SHOWN], found.kinship, strict=False)
        ],
    }


def _relatives_arrays(results: Mapping[str, Any]) -> xr.Dataset:
    found: Relatedness = results["related"]
    columns = found.table()
    pairs = {name: ("pair", columns[name]) for name in ("sample_1", "sample_2", "degree")}
    arrays = {
        "kinship": ("pair", found.kinship, {"cutoff": found.cutoff, "variants": found.n_variants}),
        **{name: ("pair", columns[name]) for name in ("known", "hethet", "ibs0")},
        "remove": ("removed", found.remove),
    }
    # With the family, PLINK's --remove knows the sample.
    families = {name: ("removed", values) for name, values in found.families.items()}
    return dataset(arrays, pairs | families)


def _relatives_check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Recount some pairs from their unpacked genotypes, and check that the remaining samples are unrelated."""
    from workbench.genotypes import choosing, qc
    from workbench.genotypes.scaling import Rule

    found: Relatedness = results["related"]
    names = np.asarray(found.samples)
    removed = np.isin(names, found.remove)
    if (~removed[found.pairs]).all(axis=1).any():
        return Check(passed=False, what="Some pairs stay related without the samples to remove.")
    if not len(found.pairs):
        return Check(passed=True, what=f"No pair has a kinship of {found.cutoff:g} or more: there is nothing to check.")
    genotypes = choosing.of_diploid_variants(studies.opened_for_check("genotype_relatedness", resolved))
    limits = [resolved[name] for name in ("maf", "max_missing", "hwe")]
    if limits != [0, 1, 0]:
        genotypes = genotypes[Rule("center", *limits).verdict(qc(genotypes).counts) == 0]
    sampled = np.unique(np.linspace(0, len(found.pairs) - 1, 5).astype(int))
    people, places = np.unique(found.pairs[sampled], return_inverse=True)
    x = np.asarray(computed(client, genotypes.of_samples(people).counts(3))[0]).astype(np.int8)
    again = [_kinship(x[:, i], x[:, j]) for i, j in places.reshape(-1, 2)]
    off = float(np.abs(np.array(again) - found.kinship[sampled]).max())
    of = f"The kinship of {len(sampled)} pairs, from their genotypes one by one,"
    return Check(passed=off < 1e-12, what=f"{of} differs by {off:.1e}." if off >= 1e-12 else f"{of} is the same.")


def _kinship(x: Any, y: Any) -> float:
    """Return the kinship by the distance of both, as the paper's equation 11 can be written."""
    both = (x < 3) & (y < 3)
    least = min(int((x[both] == 1).sum()), int((y[both] == 1).sum()))
    return 0.5 - float(((x[both] - y[both]) ** 2).sum()) / (4 * least)


_OF_KINSHIP = ("cutoff", "maf", "max_missing", "hwe", "leave_out", "autosomes_only")

RELATIVES = studies.template(
    workload(
        title="Related samples",
        prepare=_relatives_resolved,
        needs=_relatives_needs,
        check=_relatives_check,
        code=lambda **resolved: studies.code("genotype_relatedness", resolved, "kinship", names=_OF_KINSHIP),
    )(genotype_relatedness),
    "related",
    summary_of=_relatives_summary,
    arrays_of=_relatives_arrays,
)


# --- packing ----------------------------------------------------------------------------------------------------------

Overwrite = Annotated[bool, Words("Replace an existing store instead of continuing it.")]

_STORES = 30_000_000
"""Bytes of the packages that read and write stores, which a worker loads once."""


def pack_genotypes(
    path: studies.GenotypePath,
    to: fields.NewPath,
    array: fields.ArrayName | None = None,
    orientation: studies.Orientation | None = None,
    missing: studies.MissingCode | None = None,
    labels: studies.Labels | None = None,
    overwrite: Overwrite = False,
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
    to_endpoint_url: fields.Endpoint | None = None,
) -> tuple[Any, int, int]:
    """Write genotypes to a Zarr store with two bits per genotype.

    One task reads, packs and writes each block. If the run is stopped or killed, running it again continues it.
    """
    from workbench.genotypes import pack_to_zarr

    values = locals()
    options = options_of("pack_genotypes", path, values)
    to_options = options_of("pack_genotypes", to, values, "to_")
    packed = pack_to_zarr(
        path,
        to,
        overwrite=overwrite,
        array=array,
        orientation=orientation,
        missing=missing,
        labels=labels,
        storage_options=options,
        to_storage_options=to_options,
    )
    return packed, studies.size_of(path, options), places.full(to, to_options).size()


def _packing_resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    """Inspect the file, and make the output path absolute."""
    where, (shape, remarks, _) = studies.looked_at("pack_genotypes", values, at_least=0)
    to = places.full(values["to"]).path
    options_of("pack_genotypes", to, values, "to_")  # Raises if the options don't allow writing there.
    if places.overlap(to, where["path"]):
        raise BadParameterError(f"to of pack_genotypes is {to}, what is read from. Give another path.", "to")
    return values | where | {"to": to, "shape": shape}, remarks


def _packing_needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate one pass, in which a block is read, packed and written."""
    from workbench.genotypes.packing import block_rows

    n_variants, n_samples = resolved["shape"]
    packed = n_variants * -(-n_samples // 4)
    rows = block_rows(n_variants, n_samples)
    # The check holds a block of the source and of the store, a byte for each genotype, and their differences.
    held = 13 * rows * -(-n_samples // 4) * threads_per_worker + _STORES
    return Needs.of(
        input_bytes=packed,
        held=held,
        on_device=False,
        sentence=f"Writes about {formats.size(packed)} of packed genotypes block by block: "
        f"{formats.size(held)} in a worker at a time is enough.",
    )


def _packing_summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the path and the size of the store."""
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


def _packing_check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Compare sampled blocks of the store, read again, with the source."""
    from workbench.genotypes import open_genotypes

    source = studies.opened_for_check("pack_genotypes", resolved)
    to_options = options_of("pack_genotypes", resolved["to"], resolved, "to_")
    packed = open_genotypes(resolved["to"], storage_options=to_options)
    if source.shape != packed.shape:
        return Check(
            passed=False, what=f"The store has {packed.shape} variants and samples, the source {source.shape}."
        )
    if list(source.samples) != list(packed.samples):
        return Check(passed=False, what="The names of the samples in the store are not those of the source.")
    ends = np.cumsum((0, *packed.packed.chunks[0]))
    sampled = sorted({round(each) for each in np.linspace(0, len(ends) - 2, 4)}) if len(ends) > 1 else []
    rows = [slice(int(ends[i]), int(ends[i + 1])) for i in sampled]
    differences = [(source[part].counts() != packed[part].counts()).sum() for part in rows]
    wrong = sum(int(each) for each in computed(client, *differences))
    of = f"{len(rows)} of {len(ends) - 1} blocks"
    if wrong:
        return Check(passed=False, what=f"{wrong} genotypes in {of} of the store differ from the source.")
    return Check(passed=True, what=f"{of} of the store, read again, hold the genotypes of the source.")


def _packing_code(on_gpu: bool, **resolved: Any) -> str:
    names = ("overwrite", "array", "orientation", "missing", "labels")
    options = {
        "storage_options": options_of("pack_genotypes", resolved["path"], resolved) or None,
        "to_storage_options": options_of("pack_genotypes", resolved["to"], resolved, "to_") or None,
    }
    where = [formats.literal(resolved[name]) for name in ("path", "to")]
    options_of_reading = {name: resolved[name] or None for name in names}
    called = studies.calling("packed", "pack_to_zarr", *where, **options_of_reading, **options)
    return f"from workbench.genotypes import pack_to_zarr\n\n{called}packed\n"


PACKING = studies.template(
    workload(
        title="Pack genotypes",
        prepare=_packing_resolved,
        needs=_packing_needs,
        check=_packing_check,
        code=_packing_code,
    )(pack_genotypes),
    "packed",
    "bytes_before",
    "bytes_after",
    imports=lambda resolved: (
        {"zarr": ""} | studies.imports_of(resolved) | dict.fromkeys(places.modules_of(resolved["to"]), "")
    ),
    summary_of=_packing_summary,
)
