"""New samples among the components of an earlier run: the workload, what it needs and how it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from workbench import config, formats
from workbench.errors import BadInputError
from workbench.jobs import folders
from workbench.storage import places
from workbench.workloads import fields, studies
from workbench.workloads.fields import Resolved, Text, Words
from workbench.workloads.registry import Resolution
from workbench.workloads.values import BadParameterError, Check, Labelled, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes.projection import Projection

Components = Annotated[
    Text,
    Words(
        "Whose components: the ID of a run of genotype_pca, its end, or last, or the path of what it saved as Zarr.",
        allowed="the ID of a run of genotype_pca, its end, or last, or the path of what it saved as Zarr",
        examples=("genotype_pca-3fa29c", "components.zarr"),
    ),
]
Corrected = Annotated[
    bool, Words("Divide scores by the shrinkage that theory expects of unlinked variants (Lee et al., 2010).")
]

_KEPT = "answer.zarr"


def genotype_project(
    components: Components,
    path: fields.GenotypePath,
    correct: Corrected = False,
    labels: fields.Labels | None = None,
    array: fields.ArrayName | None = None,
    orientation: fields.Orientation | None = None,
    missing: fields.MissingCode | None = None,
    keep_samples: studies.SamplesKept | None = None,
    remove: studies.SamplesRemoved | None = None,
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
) -> Any:
    """Scores of new samples on the principal components of others, which a run of genotype_pca has found.

    Variants are found again by contig, position and alleles, whichever allele is counted, else by their names. New
    samples come out nearer to the middle than those that the components were found of; by how much is told, and
    divided by where correct is true.
    """
    from workbench.genotypes import open_genotypes, project

    genotypes = open_genotypes(
        path,
        array=array,
        orientation=orientation,
        missing=missing,
        labels=labels,
        keep_samples=keep_samples,
        remove=remove,
        storage_options=options,
    )
    return project(components, genotypes, correct=correct)


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    from workbench.genotypes import Reference

    where, (shape, _, remarks) = studies.looked_at("genotype_project", values)
    try:
        store = _store(values["components"])
        loadings = Reference.read(store).loadings.shape
    except BadInputError as err:
        raise BadParameterError(f"components of genotype_project: {err}", "components") from err
    return values | where | {"components": store, "shape": shape, "loadings": loadings}, remarks


def _store(text: str) -> str:
    """Path of the components of a run whose id this is, or begins or ends so; else the path that `text` is."""
    kept = {path.parent.name: path for path in config.data_folder().glob(f"runs/*/{_KEPT}")}
    if text == "last":
        late = (name for name in kept if name.startswith("genotype_pca-"))
        text = max(late, key=lambda name: kept[name].stat().st_mtime, default=text)
    found = kept.get(folders.one_of(list(kept), text, "runs"))
    return places.full(text).path if found is None else str(found)


def _needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass over the variants that both have."""
    (n_variants, n_samples), (m, k) = resolved["shape"], resolved["loadings"]
    packed = min(m, n_variants) * -(-n_samples // 4)
    block = min(2**23, packed)
    # Counts of some rows in floating point, and twice while they are centred.
    held = (2 * block + 256 * n_samples * 20 + 8 * k * n_samples) * threads_per_worker
    return Needs.of(
        input_bytes=packed,
        held=held,
        n_tasks=2 * max(16, packed // 2**23),
        n_blocks=max(16, packed // 2**23),
        work={"read": float(packed), "thin_f32": 8.0 * min(m, n_variants) * n_samples * k},
        on_device=False,
        sentence=f"Goes through {formats.size(packed)} of packed genotypes once: {formats.size(held)} in one worker "
        "at a time.",
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    found: Projection = results["projected"]
    return {
        "samples": len(found.samples),
        "variants_found": found.matched,
        "variants_lacking": found.lacking,
        "alleles_swapped": found.swapped,
        "shrinkage": [None if np.isnan(each) else float(each) for each in found.shrinkage],
        "told": found.sentence,
    }


def _arrays(results: Mapping[str, Any]) -> dict[str, Labelled]:
    found: Projection = results["projected"]
    components = {"component": [f"PC{i + 1}" for i in range(found.scores.shape[1])]}
    samples = {"sample": found.samples} | {
        name: ("sample", column)
        for name, column in found.sample_table.items()
        if name not in ("sample", "component", "scores", "shrinkage")
    }
    told = {"corrected": found.corrected, "told": found.sentence}
    return {
        "scores": Labelled(found.scores, ("sample", "component"), samples | components, told),
        "shrinkage": Labelled(found.shrinkage, ("component",), components),
    }


def _check(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """One sample projected for itself, which its place among the bits must not change."""
    from workbench.genotypes import project

    found: Projection = results["projected"]
    if not np.isfinite(found.scores).all():
        return Check(passed=False, what="Some scores are not finite.")
    chosen = len(found.samples) // 2
    alone = project(resolved["components"], studies.opened(resolved).of_samples([chosen]), correct=resolved["correct"])
    off = float(np.abs(alone.scores[0] - found.scores[chosen]).max() / (np.abs(found.scores).max() or 1.0))
    return Check(
        passed=off < 1e-9,
        what=f"The scores of {found.samples[chosen]}, projected alone, differ by {off:.1e} of the most.",
    )


TEMPLATE = studies.template(
    genotype_project,
    "projected",
    title="New samples among earlier components",
    resolver=_resolved,
    estimate=_needs,
    checker=_check,
    summary_of=_summary,
    arrays_of=_arrays,
    referring=("components",),
)
